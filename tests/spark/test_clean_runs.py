"""What is in order is called so: no class of anomaly may cry out at these.

Every scenario is a session of its own. All are in one run, which is judged once.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from spark.audit import judge
from spark.source import locate
from spark.verdict import Verdict
from tests.spark.runs import Run, origin
from waypost.facts import OwnedCause
from waypost.identity import GENERATION, Coordinate, Incarnation, ProxyId
from waypost.notification import Int64
from waypost.records import InterestsExpired

A, B = origin("A"), origin("B")
NOTHING = {A: -1, B: -1}
EVERYTHING = {A: 10_000, B: 10_000}
WANTED = "topic == 'x'"


class Scene:
    """What was published before any scenario begins, and the run that the scenarios are in."""

    def __init__(self) -> None:
        self.run = Run()
        self.site_a = [self.run.publish("A", topic="x", n=n) for n in range(6)]
        self.other = [self.run.publish("A", "q", topic="x", n=n) for n in range(3)]
        self.unwanted = [self.run.publish("A", topic="y", n=n) for n in range(3)]
        self.site_b = [self.run.publish("B", topic="x", n=Int64(n)) for n in range(4)]
        self.retried = self.run.publish("A", "w", 1, topic="x", n=0)
        self.behind = self.run.publish("A", "w", 2, topic="x", n=0)
        self.again = self.run.publish("A", "w", 1, topic="x", n=0)
        for coordinate in self.site_b:
            self.run.forward("A", coordinate)
        # The retried one is one notification, of two records.
        self.published = 6 + 3 + 3 + 4 + 2

    @property
    def everything(self) -> list[Coordinate]:
        """All that a session is owed that wants it from the beginning; of a retried one the first copy."""
        return [*self.site_a, *self.other, self.retried, self.behind, *self.site_b]

    def subscribe(self, session: str, above: dict[str, int] | None = None) -> None:
        self.run.subscribe(session, WANTED, NOTHING if above is None else above)
        self.run.drain(session, EVERYTHING)


def plain(scene: Scene) -> int:
    """Everything comes, in the order of the logs."""
    scene.subscribe("plain")
    scene.run.receive("plain", *scene.everything)
    return len(scene.everything)


def interleaved(scene: Scene) -> int:
    """Producers and origins come in another order than in the log; each producer's own is kept."""
    scene.subscribe("interleaved")
    scene.run.receive("interleaved", *scene.site_b, *scene.other, scene.retried, scene.behind, *scene.site_a)
    return len(scene.everything)


def restarted(scene: Scene) -> int:
    """The receiver's library was restarted: a new life, a new writer, other producers' things first."""
    scene.subscribe("restarted")
    scene.run.receive("restarted", *scene.site_b, *scene.site_a[:3])
    for coordinate in [*scene.site_a[3:], *scene.other, scene.retried, scene.behind]:
        scene.run.receive("restarted", coordinate, epoch=2, generation="second")
    return len(scene.everything)


def moved(scene: Scene) -> int:
    """The session was handed over, and promised again by its new owner, from further on."""
    run, local = scene.run, scene.site_a
    run.own("moved", "a", 1)
    scene.subscribe("moved")
    run.receive("moved", *local[:2])
    run.attest("released", "moved", proxy="a", epoch=1, frontier={A: local[1].offset})
    run.own("moved", "b", 2, OwnedCause.HANDOVER)
    run.attest("effective", "moved", subscription="s1", epoch=2, frontier={A: local[1].offset, B: -1})
    run.receive("moved", *scene.everything[2:], epoch=2, proxy="b")
    return len(scene.everything)


def late(scene: Scene) -> int:
    """Delivered by the retried copy alone: the first one lay below the promise."""
    scene.subscribe("late", {A: scene.retried.offset, B: 10_000})
    scene.run.receive("late", scene.behind, scene.again)
    return 2


def early(scene: Scene) -> int:
    """Delivered below the promise, which only says from where on nothing is missed."""
    scene.subscribe("early", {A: scene.behind.offset, B: 10_000})
    scene.run.receive("early", *scene.site_a[2:], scene.again)
    return 1


def double(scene: Scene) -> int:
    """Two overlapping subscriptions are one delivery; one of them ends, and ends twice."""
    scene.subscribe("double")
    scene.run.subscribe("double", "require(n)", NOTHING, subscription="s2")
    for upto in (scene.site_a[2].offset, scene.site_a[3].offset):
        scene.run.attest("unsubscribed", "double", subscription="s2", frontier={A: upto})
    scene.run.receive("double", *scene.everything)
    return len(scene.everything)


def shared(scene: Scene) -> int:
    """Two receivers, of whom the second came later and said from where on."""
    run, here = scene.run, {A: scene.site_a[5].offset, B: scene.site_b[1].offset}
    rest = [*scene.other, scene.retried, scene.behind, *scene.site_b[2:]]
    scene.subscribe("shared")
    run.attest("attached", "shared", receiver="r")
    run.attest("attached", "shared", receiver="r2", frontier=here)
    run.receive("shared", *scene.everything)
    run.receive("shared", *rest, receiver="r2")
    run.drain("shared", EVERYTHING, "r2")
    return len(scene.everything) + len(rest)


def quiet(scene: Scene) -> int:
    """Nothing matches."""
    scene.run.subscribe("quiet", "topic == 'z'", NOTHING)
    return 0


def unpromised(scene: Scene) -> int:
    """A subscription without a promise is owed nothing."""
    scene.run.attest("subscribed", "unpromised", subscription="s1", expression=WANTED)
    return 0


def ended(scene: Scene) -> int:
    """What lies behind the end of a subscription is not owed."""
    scene.subscribe("ended")
    scene.run.attest("unsubscribed", "ended", subscription="s1", frontier={A: scene.site_a[0].offset})
    scene.run.receive("ended", scene.site_a[0])
    return 1


def ended_and_not_known_where(scene: Scene) -> int:
    """What came before the end was found out may be delivered; and nothing is owed of an origin that never said so."""
    run, local = scene.run, scene.site_a
    scene.subscribe("ended_and_not_known_where")
    run.attest("unsubscribed", "ended_and_not_known_where", subscription="s1", unknown_ends=[A, B])
    run.attest(
        "unsubscribed",
        "ended_and_not_known_where",
        subscription="s1",
        frontier={A: local[1].offset},
        unknown_ends=[B],
    )
    got = [local[0], local[1], scene.site_b[0]]
    run.receive("ended_and_not_known_where", *got)
    return 2


def made_again(scene: Scene) -> int:
    """A subscription was taken back and, under the same name, made again, twice: once before anything else happened."""
    run, local = scene.run, scene.site_a
    lives = [({A: -1, B: -1}, {A: local[0].offset, B: -1}), ({A: local[0].offset, B: -1}, {A: local[0].offset, B: -1})]
    for number, (above, end) in enumerate(lives, 1):
        incarnation = f"1/{number}"
        run.subscribe("made_again", WANTED, above, generation=incarnation)
        run.attest(
            "unsubscribed", "made_again", subscription="s1", subscription_generation=incarnation, epoch=1, frontier=end
        )
    run.subscribe("made_again", WANTED, {A: local[2].offset, B: -1}, generation="1/3")
    run.drain("made_again", EVERYTHING)
    got = [local[0], *scene.everything[3:]]
    run.receive("made_again", *got)
    return len(got)


def created_again(scene: Scene) -> int:
    """A session was deleted, after which nothing is owed to its receiver, and another one of its name created."""
    run, local, epoch = scene.run, scene.site_a, GENERATION + 1
    run.subscribe("created_again", WANTED, NOTHING, generation="1/1")
    run.attest("attached", "created_again", receiver="first", epoch=1)
    run.receive("created_again", *local[:2], receiver="first")
    run.attest("deleted", "created_again", epoch=1, frontier={A: local[1].offset}, reason="receiver first asked for it")
    run.subscribe("created_again", WANTED, {A: local[3].offset, B: -1}, epoch=epoch, generation=f"{epoch}/1")
    run.drain("created_again", EVERYTHING, epoch=epoch)
    got = scene.everything[4:]
    run.receive("created_again", *got, epoch=epoch)
    return 2 + len(got)


def deleted_by_another(scene: Scene) -> int:
    """The owner was dead when an operator deleted the session; who says so had read less of the logs than the owner."""
    scene.subscribe("deleted_by_another")
    scene.run.receive("deleted_by_another", *scene.site_a[:4])
    about = {"frontier": {A: scene.site_a[2].offset}, "reason": "an operator asked for it"}
    scene.run.fact("another proxy", "deleted", session="deleted_by_another", epoch=1, **about)
    return 3


def restated(scene: Scene) -> int:
    """The facts of the first epoch were lost in a crash; what was delivered meanwhile was asked for all the same."""
    # Nobody else wants this expression: it is known by these facts alone.
    expression = f"({WANTED}) || topic == 'restated alone'"
    about = {"subscription": "s1", "subscription_generation": "1/1", "expression": expression, "frontier": NOTHING}
    for epoch in (2, 3):
        scene.run.attest("restated", "restated", epoch=epoch, **about)
    scene.run.receive("restated", *scene.everything)
    scene.run.drain("restated", EVERYTHING, epoch=3)
    return len(scene.everything)


SCENARIOS: list[Callable[[Scene], int]] = [
    plain,
    interleaved,
    restarted,
    moved,
    late,
    early,
    double,
    shared,
    quiet,
    unpromised,
    ended,
    ended_and_not_known_where,
    made_again,
    created_again,
    deleted_by_another,
    restated,
]


def writers_that_ended(scene: Scene) -> tuple[str, ...]:
    """Return those that never say that their journal is closed, and need not."""
    run = scene.run
    # One life was killed, and who killed it says that its journal is whole.
    run.fact("killed", "opened")
    run.fact("proxies", "ended", proxy="killed")
    # Another lost its lease, which its site log says.
    run.fact("proxy/a/first life", "opened")
    run.append("A", InterestsExpired(ProxyId("a"), Incarnation("first life")))
    # A receiver's library says nothing but what it received.
    return ("killed", "proxy/a/first life", "restarted/rsecond")


Judged = tuple[Scene, dict[str, int], Verdict]


@pytest.fixture(scope="module")
def judged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """Put every scenario into one run, and judge it: what was published, what each scenario is owed, the verdict."""
    scene = Scene()
    owed = {scenario.__name__: scenario(scene) for scenario in SCENARIOS}
    safe = [coordinate.offset for coordinate in (*scene.site_a, *scene.other, *scene.unwanted)]
    scene.run.fact("proxies", "acknowledged", origin=A, offsets=safe)
    scene.run.end(exclude=writers_that_ended(scene))
    return scene, owed, judge(spark, locate(str(scene.run.write(tmp_path_factory.mktemp("clean")))))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_scenario_without_an_anomaly_is_in_order(scenario: Callable[[Scene], int], judged: Judged) -> None:
    scene, _, verdict = judged
    assert any(
        fact.session == scenario.__name__ for fact in scene.run.journals["proxies"] if not isinstance(fact, bytes)
    )
    assert [
        finding
        for finding in verdict.examples
        if finding.get("session") == scenario.__name__ and finding["code"] != "O2"
    ] == []


def test_writers_that_ended_without_a_word_leave_no_hole(judged: Judged) -> None:
    assert [finding for finding in judged[2].examples if finding["code"] in ("A1", "A4")] == []


def test_the_run_of_all_of_them_is_ok_and_its_totals_are_exact(judged: Judged) -> None:
    scene, owed, verdict = judged
    # Who came between a notification and its retry has the retry behind what was sent later: said, and in order.
    assert (verdict.verdict, verdict.counts) == ("ok", {"O2": 1})
    assert [finding["session"] for finding in verdict.examples] == ["late"]
    assert verdict.published == scene.published
    assert verdict.owed == sum(owed.values())
    assert (verdict.lost, verdict.duplicated) == (0, 0)
