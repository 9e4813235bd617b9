"""A log that lost its end, and says so: what was lost is had, told, or a loss; what follows is owed as before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.audit import judge
from spark.epochs import Continued, EpochStart, LostEnd, Span, read
from spark.source import locate
from spark.verdict import Verdict
from tests.spark.runs import Run
from waypost.facts import GapCause, RemovalPolicy
from waypost.identity import Coordinate, Origin

WANTED = "topic == 'x'"
FIRST, SECOND, THIRD = "A/0", "A/0.2", "A/0.3"
LAST = (1 << 63) - 1
EVERYTHING = {FIRST: 10_000, SECOND: 10_000, THIRD: 10_000, "B/0": 10_000}


# ---------------------------------------------------------------- what a log says of its epochs


def test_a_log_in_its_first_epoch_has_nothing_to_tell() -> None:
    assert not read([EpochStart("A", 3, 1, False, {}), EpochStart("A", 9, 1, True, {})], {"A": 0})


def test_positions_belong_to_origins_and_those_in_between_to_none() -> None:
    epochs = read(
        [EpochStart("A", 12, 2, False, {FIRST: (9, 14)}), EpochStart("A", 20, 2, True, {FIRST: (9, 17)})], {"A": 0}
    )
    assert epochs.spans == (Span("A", 0, 9, FIRST), Span("A", 13, LAST, SECOND))
    assert epochs.lost == (LostEnd("A", FIRST, 10, 17),)
    assert epochs.continued == (Continued(FIRST, SECOND, 12, 17),)


def test_log_that_lost_its_epoch_record_has_no_span_of_that_epoch() -> None:
    epochs = read([EpochStart("A", 8, 3, False, {FIRST: (6, 14), SECOND: (6, 30)})], {"A": 0})
    assert epochs.spans == (Span("A", 0, 6, FIRST), Span("A", 9, LAST, THIRD))
    assert epochs.lost == (LostEnd("A", FIRST, 7, 14), LostEnd("A", SECOND, 0, 30))
    assert epochs.continued == (Continued(FIRST, THIRD, 8, 14), Continued(SECOND, THIRD, 8, 30))


def test_a_log_that_has_forgotten_its_beginning_says_where_it_is() -> None:
    epochs = read([EpochStart("A", 70, 2, True, {FIRST: (55, 60)})], {"A": 50})
    assert epochs.spans == (Span("A", 50, 55, FIRST), Span("A", 56, LAST, SECOND))


# ---------------------------------------------------------------- the audit


@dataclass
class Scene:
    """Site A lost two of four, of which `level` had all, and went on with two more."""

    run: Run
    before: list[Coordinate]
    lost: list[Coordinate]
    after: list[Coordinate]
    expected: Counter[str] = field(default_factory=Counter)

    def subscribe(self, session: str, expression: str = WANTED, above: int = -1) -> None:
        self.run.subscribe(session, expression, {FIRST: above, "B/0": -1})
        self.run.drain(session, EVERYTHING)

    def announce_gap(self, session: str, first: int = 0) -> None:
        offsets = [self.lost[first].offset, self.lost[-1].offset]
        self.run.attest("gap", session, origin=FIRST, offsets=offsets, cause=GapCause.LOG_LOST)


def scene(*, forwarded: bool) -> Scene:
    run = Run()
    before = [run.publish("A", topic="x", n=n) for n in range(2)]
    lost = [run.publish("A", topic="x", n=n) for n in range(2, 4)]
    run.publish("B", topic="y")
    for each in [*before, *(lost if forwarded else ())]:
        run.forward("B", each)
    run.lose_end("A", len(lost))
    after = [run.publish("A", topic="x", n=n) for n in range(4, 6)]
    made = Scene(run, before, lost, after)
    for origin, offsets in ((FIRST, [*before, *lost]), (SECOND, after)):
        run.fact("proxies", "acknowledged", origin=origin, offsets=[coordinate.offset for coordinate in offsets])
    made.subscribe("level")
    run.receive("level", *before, *lost, *after)
    return made


def audited(run: Run, spark: SparkSession, folder: Path) -> Verdict:
    run.end()
    return judge(spark, locate(str(run.write(folder))))


def found(verdict: Verdict) -> Counter[tuple[str, str]]:
    return Counter((example["code"], str(example.get("session", ""))) for example in verdict.examples)


def test_lost_notification_that_every_receiver_has_and_another_log_knows_is_in_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    lossy = scene(forwarded=True)
    verdict = audited(lossy.run, spark, tmp_path)
    assert (verdict.verdict, verdict.counts) == ("ok", {"G2": 1}), verdict.examples
    (end,) = verdict.examples
    assert (end["site"], end["origin"], end["offset"]) == ("A", FIRST, lossy.lost[0].offset)
    assert end["note"] == f"the log lost its end up to {lossy.lost[-1].offset}, as it says itself"


def test_lost_notification_that_no_log_knows_is_unknown(spark: SparkSession, tmp_path: Path) -> None:
    verdict = audited(scene(forwarded=False).run, spark, tmp_path)
    assert verdict.verdict == "unknown"
    assert found(verdict) == {("G2", ""): 1, ("A5", "level"): 2, ("L3", ""): 2}


@pytest.mark.parametrize("forwarded", [True, False], ids=["with copies elsewhere", "known by who had it"])
def test_session_without_the_lost_notification_must_have_been_told(
    forwarded: bool, spark: SparkSession, tmp_path: Path
) -> None:
    lossy = scene(forwarded=forwarded)
    for session in ("told", "not told", "told of a part"):
        lossy.subscribe(session)
        lossy.run.receive(session, *lossy.before, *lossy.after)
    lossy.announce_gap("told")
    lossy.announce_gap("told of a part", first=1)
    # These are owed nothing of it: they came later, were level without asking for the same, or have it.
    lossy.subscribe("came later", above=lossy.lost[-1].offset)
    lossy.run.receive("came later", *lossy.after)
    lossy.subscribe("asked for another", "topic == 'z'")
    verdict = audited(lossy.run, spark, tmp_path)
    of_sessions = {key: count for key, count in found(verdict).items() if key[1] not in ("", "level")}
    assert of_sessions == {
        ("G1", "told"): 1,
        ("L1", "not told"): 2,
        ("G1", "told of a part"): 1,
        ("L1", "told of a part"): 1,
    }
    assert verdict.verdict == "violated"


def test_notification_removed_by_policy_is_not_owed_after_the_log_lost_it(spark: SparkSession, tmp_path: Path) -> None:
    lossy = scene(forwarded=False)
    lossy.subscribe("removed")
    lossy.run.attest("policy", "removed", subscription="s1", ttl_s=60)
    offsets = [coordinate.offset for coordinate in lossy.lost]
    lossy.run.attest("removed", "removed", origin=FIRST, offsets=offsets, policies=[RemovalPolicy.TIME_TO_LIVE])
    lossy.run.receive("removed", *lossy.before, *lossy.after)
    assert not [
        example for example in audited(lossy.run, spark, tmp_path).examples if example.get("session") == "removed"
    ]


def test_a_promise_for_an_origin_holds_for_those_that_follow(spark: SparkSession, tmp_path: Path) -> None:
    lossy = scene(forwarded=True)
    lossy.subscribe("stopped")
    lossy.run.receive("stopped", *lossy.before, *lossy.lost, lossy.after[0])
    # Who subscribed later is promised what its own promise says.
    lossy.run.subscribe("new", WANTED, {FIRST: lossy.lost[-1].offset, SECOND: lossy.after[0].offset})
    lossy.run.drain("new", EVERYTHING)
    lossy.run.receive("new", lossy.after[1])
    # Who left before is owed nothing behind.
    lossy.subscribe("left")
    lossy.run.attest("unsubscribed", "left", subscription="s1", frontier={FIRST: lossy.before[-1].offset})
    lossy.run.receive("left", *lossy.before)
    verdict = audited(lossy.run, spark, tmp_path)
    assert found(verdict) == {("G2", ""): 1, ("L1", "stopped"): 1}
    (loss,) = (example for example in verdict.examples if example["code"] == "L1")
    assert (loss["origin"], loss["offset"]) == lossy.after[1]


def test_record_appended_before_every_proxy_knew_of_the_epoch_is_owed_to_no_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = Run()
    before = run.publish("A", topic="x", n=1)
    between = run.publish("A", topic="x", n=2)
    run.begin_epoch("A", {FIRST: (before.offset, before.offset)})
    after = run.publish("A", topic="x", n=3)
    run.subscribe("s", WANTED, {FIRST: -1})
    run.drain("s", EVERYTHING)
    run.receive("s", before, after)
    # A proxy heard late of the log epoch, and named what it appended by the earlier one.
    run.fact("proxies", "acknowledged", origin=FIRST, offsets=[before.offset, after.offset])
    verdict = audited(run, spark, tmp_path)
    assert (verdict.verdict, verdict.counts, verdict.published) == ("ok", {}, 2), verdict.examples
    assert between.offset == 1


def test_acknowledged_notification_that_no_epoch_declares_lost_is_a_loss(spark: SparkSession, tmp_path: Path) -> None:
    lossy = scene(forwarded=True)
    lossy.run.fact("proxies", "acknowledged", origin=FIRST, offsets=[lossy.lost[-1].offset + 100])
    lossy.run.fact("proxies", "acknowledged", origin=SECOND, offsets=[lossy.after[-1].offset + 1])
    verdict = audited(lossy.run, spark, tmp_path)
    assert found(verdict) == {("G2", ""): 1, ("L1", ""): 2}


def disordered(run: Run) -> None:
    first, second = run.publish("A", topic="x", n=1), run.publish("A", topic="x", n=2)
    run.begin_epoch("A", {FIRST: (second.offset, second.offset)})
    third = run.publish("A", topic="x", n=3)
    run.receive("s", first, third, second)


def altered(run: Run) -> None:
    run.receive("s", run.publish("A", topic="x", n=1))
    run.begin_epoch("A", {FIRST: (0, 0)})
    run.receive("s", run.publish("A", topic="x", n=2), digest=1)


def invented(run: Run) -> None:
    run.receive("s", run.publish("A", topic="x", n=1))
    run.begin_epoch("A", {FIRST: (0, 0)})
    later = run.publish("A", topic="x", n=2)
    run.receive("s", later, Coordinate(Origin(SECOND), later.offset + 1))


@pytest.mark.parametrize(("scenario", "code"), [(disordered, "O1"), (altered, "P5"), (invented, "P1")])
def test_the_other_promises_hold_across_log_epochs(
    scenario: Callable[[Run], None], code: str, spark: SparkSession, tmp_path: Path
) -> None:
    run = Run()
    run.subscribe("s", WANTED, {FIRST: -1})
    run.drain("s", EVERYTHING)
    scenario(run)
    assert found(audited(run, spark, tmp_path)) == {(code, "s"): 1}


def test_a_log_that_lost_its_end_twice(spark: SparkSession, tmp_path: Path) -> None:
    """The second time it loses what it said of its second epoch, too."""
    run = Run()
    own = [run.publish("A", topic="x", n=n) for n in range(4)]
    run.lose_end("A", 1)
    second = run.publish("A", topic="x", n=4)
    for each in (*own, second):
        run.forward("B", each)
    # What is gone: the second epoch as a whole, and one more of the first.
    run.lose_end("A", 3, {FIRST: (1, own[3].offset)})
    third = run.publish("A", topic="x", n=5)
    run.subscribe("level", WANTED, {FIRST: -1})
    run.receive("level", *own, second, third)
    run.drain("level", EVERYTHING)
    run.subscribe("not told", WANTED, {FIRST: -1})
    run.receive("not told", *own[:2], third)
    run.drain("not told", EVERYTHING)
    verdict = audited(run, spark, tmp_path)
    assert found(verdict) == {("G2", ""): 2, ("L1", "not told"): 2}, verdict.examples
