"""Histories of sessions, drawn by a seed: each in order, or with one thing wrong of which it is known what it is.

What is owed and what is wrong follow from lists in memory; nothing here asks the audit, or the service.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.spark.runs import Run, origin
from waypost.facts import Departure, GapCause, OwnedCause, RemovalPolicy
from waypost.identity import Coordinate, Origin

SITES = ("A", "B")
TOPICS = ("x", "y", "z")
PRODUCERS = ("p", "q")
PUBLISHED = 120
END = 10_000
TAKEOVERS = (OwnedCause.HANDOVER, OwnedCause.FAILOVER, OwnedCause.THAW)


@dataclass(frozen=True)
class Sent:
    """A notification as it was published."""

    coordinate: Coordinate
    topic: str
    producer: str


@dataclass
class Given:
    """A delivery: what, by the owner of which epoch."""

    sent: Sent
    epoch: int
    proxy: str
    digest: int | None = None


@dataclass
class History:
    """One session with one receiver, from its first owner to its last."""

    name: str
    rng: random.Random
    sent: list[Sent]
    topics: set[str] = field(init=False)
    above: dict[str, int] = field(init=False)
    owners: list[tuple[str, OwnedCause]] = field(init=False)
    given: list[Given] = field(default_factory=list)
    drained: dict[str, int] | None = field(init=False)

    def __post_init__(self) -> None:
        rng = self.rng
        self.topics = set(rng.sample(TOPICS, rng.randint(1, 2)))
        self.above = {origin(site): rng.randint(-1, 8) for site in SITES}
        causes = [
            OwnedCause.CREATE,
            *(rng.choice((*TAKEOVERS, OwnedCause.RESTART)) for _ in range(rng.randint(0, 2))),
        ]
        self.owners = [(f"{self.name}-{number}", cause) for number, cause in enumerate(causes)]
        self.drained = dict.fromkeys(map(origin, SITES), END)
        owed = {site: [one for one in self.sent if self._is_owed(one, site)] for site in SITES}
        order = [site for site, ones in owed.items() for _ in ones]
        rng.shuffle(order)
        cuts = sorted(rng.randint(0, len(order)) for _ in self.owners[1:])
        for index, site in enumerate(order):
            epoch = 1 + sum(cut <= index for cut in cuts)
            self.given.append(Given(owed[site].pop(0), epoch, self.owners[epoch - 1][0]))

    def _is_owed(self, one: Sent, site: str) -> bool:
        at = one.coordinate
        return at.origin == origin(site) and one.topic in self.topics and at.offset > self.above[at.origin]

    def write(self, run: Run) -> None:
        expression = " || ".join(f"topic == '{topic}'" for topic in sorted(self.topics))
        run.subscribe(self.name, expression, self.above)
        for epoch, (proxy, cause) in enumerate(self.owners, start=1):
            run.own(self.name, proxy, epoch, cause)
            for one in self.given:
                if one.epoch == epoch:
                    at = one.sent.coordinate
                    run.receive(self.name, at, epoch=epoch, proxy=one.proxy, digest=one.digest)
        if self.drained is not None:
            run.drain(self.name, self.drained)

    # ---- what can be picked

    def one(self) -> int:
        return self.rng.randrange(len(self.given))

    def loss_of(self, index: int) -> str:
        """Return the code of a loss at this place: of a handover, if one lies between the deliveries on either side."""
        lost = self.given[index].sent.coordinate
        same = [each for each in self.given if each.sent.coordinate.origin == lost.origin]
        below = [each.epoch for each in same if each.sent.coordinate.offset < lost.offset]
        above = [each.epoch for each in same if each.sent.coordinate.offset > lost.offset]
        first, last = (below or [1])[-1], (above or [len(self.owners)])[0]
        between = [cause for epoch, (_, cause) in enumerate(self.owners, 1) if first < epoch <= last]
        return "L2" if set(between) & set(TAKEOVERS) else "L1"

    def last_of(self, which: str) -> list[Given]:
        return [each for each in self.given if each.sent.coordinate.origin == which]


Plant = Callable[[History, Run], Counter[str]]


def in_order(history: History, run: Run) -> Counter[str]:
    history.write(run)
    return Counter()


def lost(history: History, run: Run) -> Counter[str]:
    index = history.one()
    code = history.loss_of(index)
    del history.given[index]
    history.write(run)
    return Counter([code])


def lost_at_a_move(history: History, run: Run) -> Counter[str]:
    places = [index for index in range(len(history.given)) if history.loss_of(index) == "L2"]
    if not places:
        return in_order(history, run)
    del history.given[history.rng.choice(places)]
    history.write(run)
    return Counter(["L2"])


def duplicated(history: History, run: Run) -> Counter[str]:
    again = history.given[history.one()]
    epoch = len(history.owners)
    history.given.append(Given(again.sent, epoch, history.owners[-1][0]))
    history.write(run)
    return Counter(["D1" if again.epoch == epoch else "D2"])


def altered(history: History, run: Run) -> Counter[str]:
    history.given[history.one()].digest = 7
    history.write(run)
    return Counter(["P5"])


def unwanted(history: History, run: Run) -> Counter[str]:
    other = next(one for one in history.sent if one.topic not in history.topics)
    history.given.append(Given(other, len(history.owners), history.owners[-1][0]))
    history.write(run)
    return Counter(["P3"])


def invented(history: History, run: Run) -> Counter[str]:
    nothing = Sent(run.something_else("B"), "none", "nobody")
    history.given.append(Given(nothing, len(history.owners), history.owners[-1][0]))
    history.write(run)
    return Counter(["P1"])


def swapped(history: History, run: Run) -> Counter[str]:
    for index, (one, other) in enumerate(zip(history.given, history.given[1:], strict=False)):
        alike = one.sent.producer == other.sent.producer and one.epoch == other.epoch
        if alike and one.sent.coordinate.origin == other.sent.coordinate.origin:
            history.given[index : index + 2] = other, one
            history.write(run)
            return Counter(["O1"])
    return in_order(history, run)


def by_a_stranger(history: History, run: Run) -> Counter[str]:
    history.given[history.one()].proxy = "stranger"
    history.write(run)
    return Counter(["H1"])


def owned_twice(history: History, run: Run) -> Counter[str]:
    history.write(run)
    run.attest("owned", history.name, proxy="second", epoch=len(history.owners), cause=OwnedCause.FAILOVER)
    return Counter(["H2"])


def never_handed_over(history: History, run: Run) -> Counter[str]:
    history.write(run)
    about = {"transfer": f"t {history.name}", "role": "source", "epoch": len(history.owners)}
    run.attest("handover", history.name, proxy=history.owners[-1][0], phase="copying", **about)
    return Counter(["H3"])


def away(history: History, run: Run) -> Counter[str]:
    which = history.given[-1].sent.coordinate.origin
    missing = history.last_of(which)[-history.rng.randint(1, 3) :]
    history.given = [each for each in history.given if each not in missing]
    history.drained = {which: missing[0].sent.coordinate.offset - 1}
    history.write(run)
    return Counter({"L5": len(missing)})


def passed_over(history: History, run: Run) -> Counter[str]:
    which = history.given[-1].sent.coordinate.origin
    history.given.remove(history.last_of(which)[0])
    history.drained = None
    history.write(run)
    return Counter(["L3"])


def expired(history: History, run: Run) -> Counter[str]:
    return _removed(history, run, at_ms=60_000)


def removed_early(history: History, run: Run) -> Counter[str]:
    return _removed(history, run, at_ms=54_000)


def _removed(history: History, run: Run, at_ms: int) -> Counter[str]:
    index = history.one()
    code, at = history.loss_of(index), history.given[index].sent.coordinate
    del history.given[index]
    history.write(run)
    run.attest("policy", history.name, subscription="s1", epoch=1, ttl_s=60)
    about = {"origin": at.origin, "offsets": [at.offset], "policies": [RemovalPolicy.TIME_TO_LIVE]}
    run.attest("removed", history.name, at_ms=at_ms, epoch=1, **about)
    return Counter(["L4" if at_ms >= 55_000 else code])


def told_of(history: History, run: Run) -> Counter[str]:
    index = history.one()
    at = history.given.pop(index).sent.coordinate
    history.write(run)
    run.attest("gap", history.name, epoch=1, origin=at.origin, offsets=[at.offset] * 2, cause=GapCause.RETENTION)
    return Counter(["G1"])


def given_after(end: str) -> Plant:
    """Return a plant: the end comes before the last delivery of an origin, which is given all the same."""

    def plant(history: History, run: Run) -> Counter[str]:
        history.write(run)
        last = history.given[-1].sent.coordinate
        cut = dict.fromkeys(map(origin, SITES), END) | {last.origin: last.offset - 1}
        about = {"epoch": len(history.owners), "frontier": cut}
        if end == "deleted":
            run.attest("deleted", history.name, **about, reason="asked for")
        elif end == "unregistered":
            run.attest("unregistered", history.name, receiver="r", cause=Departure.LEFT, **about)
        else:
            run.attest("unsubscribed", history.name, subscription="s1", **about)
        return Counter(["P4"])

    return plant


PLANTS: tuple[Plant, ...] = (
    *(
        in_order,
        lost,
        lost_at_a_move,
        duplicated,
        altered,
        unwanted,
        invented,
        swapped,
        by_a_stranger,
        owned_twice,
        never_handed_over,
    ),
    *(away, passed_over, expired, removed_early, told_of),
    *(given_after("deleted"), given_after("unregistered"), given_after("unsubscribed")),
)


def drawn(seed: int, count: int) -> tuple[Run, Counter[tuple[str, str]]]:
    """Return a run of so many histories, each kind in turn, and what is to be found in each: (code, session)."""
    run, rng = Run(), random.Random(seed)
    sent = []
    for number in range(PUBLISHED):
        site, topic, producer = SITES[number % 2], TOPICS[number % 3], rng.choice(PRODUCERS)
        at = run.publish(site, f"{producer} at {site}", topic=topic, n=number)
        sent.append(Sent(Coordinate(Origin(at.origin), at.offset), topic, producer))
    expected: Counter[tuple[str, str]] = Counter()
    for number in range(count):
        plant = PLANTS[number % len(PLANTS)]
        history = History(f"{number} {seed}", random.Random(f"{seed}/{number}"), sent)
        for code, times in plant(history, run).items():
            expected[code, history.name] += times
    run.end()
    return run, expected
