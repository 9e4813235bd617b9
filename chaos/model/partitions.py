"""A site of two partitions: a session moves between two proxies that read its logs each at its own pace (ADR 30).

A partition is a log with all that belongs to it: what each of its records means is folded from that log alone, by the
code's own `federation/site/state.py`. A partition of the far site forwards to one of this site, over a link of its own.
What is said for a session - its interests begin, or end - is appended to each partition by itself, so one may have it
long before the other. Where a gate stands is decided as in `handover/gate.py`, for each origin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from federation.site.state import SiteState
from handover.gate import Gate
from waypost.identity import NOTHING, Incarnation, Origin, ProxyId, SessionId, SiteId
from waypost.records import Effective, Forwarded, InterestRegistered, Progress, Record

GIVEN = "P1 what is owed is given"
TWICE = "P2 nothing is given twice"
ORDER = "P3 of one origin, what comes behind is not given before"
RECOVERS = "P1 all that is owed can still be given"
NEAR, FAR, ORIGIN, WANTED = SiteId("B"), SiteId("A"), Origin("A/0"), "require(n)"
PROXIES = (ProxyId("b1"), ProxyId("b2"))
PLANES = (0, 1)
SHADOWING = "shadowing"
SOURCE, TARGET = 0, 1


class Entry(NamedTuple):
    """A record of a partition of this site.

    Args:
        kind: "held" or "dropped", of the proxy `number`; "forwarded" or "passed", the far notification `number`;
            "effective", from above the far notification `number`.
        installation: of "effective".
    """

    kind: str
    number: int
    installation: int = 0


Log = tuple[Entry, ...]


class Plane(NamedTuple):
    """A partition of each site, and the link between them.

    Args:
        published: the notifications of the far partition: 0, 1, ..
        sent: those that the link has forwarded or passed over.
        filter: the installation that is in force there; None: none is.
        log: of this site.
    """

    published: int = 0
    sent: int = 0
    filter: int | None = None
    log: Log = ()


class Cursor(NamedTuple):
    """How far a proxy has read a partition, and the gate of the session there.

    Args:
        read: entries.
        seen: C, the last far notification that the session has; None: it is not known here.
        from_above: the frontier when the gate began to keep matches; None: the gate is open.
        kept: the matches behind the gate.
        is_held: whether interest was registered here, or asked to be.
    """

    read: int = 0
    seen: int | None = None
    from_above: int | None = None
    kept: tuple[int, ...] = ()
    is_held: bool = False


class State(NamedTuple):
    """The state of both sites, their links and the session.

    Args:
        planes: the two partitions.
        source: of the proxy that serves at first, the cursor of each partition.
        target: of the one that takes the session over.
        phase: "shadowing"; "frozen", the target knows the cut; "committed".
        given: what the receiver got of each far partition, in order.
    """

    planes: tuple[Plane, Plane]
    source: tuple[Cursor, Cursor]
    target: tuple[Cursor, Cursor]
    phase: str = SHADOWING
    given: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


@dataclass(frozen=True, slots=True)
class Partitions:
    """The model, for :class:`chaos.model.explore.Explorer`.

    Args:
        publishes: notifications in each partition of the far site.
        without: names of the rules that are switched off.
    """

    publishes: int = 2
    without: frozenset[str] = frozenset()
    lost: str = field(default=GIVEN, init=False)
    liveness: str = field(default=RECOVERS, init=False)

    def initial(self) -> State:
        """Return the state in which the source serves, and what it is owed is covered."""
        log = (Entry("held", SOURCE), Entry("effective", NOTHING, 0))
        plane, cursor = Plane(filter=0, log=log), Cursor(read=2, seen=NOTHING, is_held=True)
        shadow = Cursor(read=2, from_above=NOTHING)
        return State((plane, plane), (cursor, cursor), (shadow, shadow))

    def broken(self, state: State) -> str:
        """Return the invariant that does not hold in a state; empty: all hold."""
        for given in state.given:
            if len(set(given)) < len(given):
                return TWICE
            if list(given) != sorted(given):
                return ORDER
        return ""

    def is_quiescent(self, state: State) -> bool:
        """Tell whether a run may end in a state: the session has moved, and everything was given."""
        everything = tuple(range(self.publishes))
        return state.phase == "committed" and state.given == (everything, everything)

    def steps(self, state: State) -> Iterator[tuple[str, State, str]]:
        """Yield what can happen in a state: a label, the state after it, and "": none of it is a fault."""
        for number in PLANES:
            for label, after in self._of_plane(state, number):
                yield f"partition {number}: {label}", after, ""
        for label, after in self._of_move(state):
            yield label, after, ""

    # ------------------------------------------------------------ far site and links

    def _of_plane(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        plane = state.planes[number]
        if plane.published < self.publishes:
            published = plane._replace(published=plane.published + 1)
            yield f"{plane.published} is published", _with_plane(state, number, published)
        wanted = meaning(plane.log).requested(FAR).get(WANTED)
        if wanted != plane.filter:
            log = plane.log
            if wanted is not None:
                log = (*log, Entry("effective", plane.sent - 1, wanted))
            yield (
                "the filter changes at the far site",
                _with_plane(state, number, plane._replace(filter=wanted, log=log)),
            )
        if plane.sent < plane.published:
            kind = "passed" if plane.filter is None else "forwarded"
            sent = plane._replace(sent=plane.sent + 1, log=(*plane.log, Entry(kind, plane.sent)))
            yield f"{plane.sent} is {kind}", _with_plane(state, number, sent)
        # A frozen source's reads change nothing.
        readers = (
            ((SOURCE, "the source"), (TARGET, "the target")) if state.phase == SHADOWING else ((TARGET, "the target"),)
        )
        for who, name in readers:
            if self._cursor(state, who, number).read < len(plane.log):
                yield f"{name} reads on", self._read(state, who, number)
        yield from self._of_interests(state, number)
        yield from self._of_gate(state, number)

    def _of_interests(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        source, target = state.source[number], state.target[number]
        if not target.is_held and not ("EACH" in self.without and number):
            # The gate keeps what is read from here on.
            frontier = meaning(state.planes[number].log[: target.read]).frontier.get(ORIGIN, NOTHING)
            held = target._replace(is_held=True, from_above=frontier)
            after = _with_cursor(state, TARGET, number, held)
            yield "the target registers", _appended(after, number, Entry("held", TARGET))
        if source.is_held and state.phase == "committed":
            after = _with_cursor(state, SOURCE, number, source._replace(is_held=False))
            yield "the source withdraws", _appended(after, number, Entry("dropped", SOURCE))

    # ------------------------------------------------------------ the session

    def _read(self, state: State, who: int, number: int) -> State:
        cursor = self._cursor(state, who, number)
        entry = state.planes[number].log[cursor.read]
        state = _with_cursor(state, who, number, cursor._replace(read=cursor.read + 1))
        if entry.kind != "forwarded":
            return state
        if who == SOURCE:
            return self._give(state, SOURCE, number, entry.number) if state.phase == SHADOWING else state
        if cursor.from_above is None:
            return self._give(state, TARGET, number, entry.number)
        if not cursor.is_held:
            return state
        kept = (*cursor.kept, entry.number)
        return _with_cursor(state, who, number, self._cursor(state, who, number)._replace(kept=kept))

    def _of_gate(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        cursor = state.target[number]
        if state.phase != "committed" or cursor.from_above is None or not cursor.is_held:
            return
        gate = Gate[int](cursor.seen, cursor.from_above)
        covered_from = gate.covered_from(self._covered_above(state, number))
        if missing := gate.missing(covered_from):
            for offset in range(missing[0] + 1, missing[1] + 1):
                state = self._give(state, TARGET, number, offset)
            yield "the target catches up", state
        elif gate.may_open(covered_from):
            for offset in cursor.kept:
                state = self._give(state, TARGET, number, offset)
            opened = state.target[number]._replace(from_above=None, kept=())
            yield "the gate opens", _with_cursor(state, TARGET, number, opened)

    def _covered_above(self, state: State, number: int) -> int | None:
        """Return from where on the target has all matches of a partition, as that partition says; None: not known."""
        known = number if "OWN" not in self.without else 0
        log = state.planes[known].log[: state.target[known].read]
        if Entry("held", TARGET) not in log:
            return None
        return meaning(log).covered_above(ORIGIN, [WANTED])

    def _of_move(self, state: State) -> Iterator[tuple[str, State]]:
        if state.phase == SHADOWING:
            cut = [cursor.seen for cursor in state.source]
            if "VECTOR" in self.without:
                cut = [max(seen for seen in cut if seen is not None)] * 2
            first, second = (cursor._replace(seen=seen) for cursor, seen in zip(state.target, cut, strict=True))
            yield "the source freezes, the target has the cut", state._replace(phase="frozen", target=(first, second))
        if state.phase == "frozen":
            yield "the target commits", state._replace(phase="committed")

    def _give(self, state: State, who: int, number: int, offset: int) -> State:
        cursor = self._cursor(state, who, number)
        if cursor.seen is not None and offset <= cursor.seen:
            return state
        state = _with_cursor(state, who, number, cursor._replace(seen=offset))
        given = list(state.given)
        given[number] = (*given[number], offset)
        return state._replace(given=(given[0], given[1]))

    def _cursor(self, state: State, who: int, number: int) -> Cursor:
        return (state.source if who == SOURCE else state.target)[number]


@lru_cache(maxsize=1 << 16)
def meaning(log: Log) -> SiteState:
    """Return the site's state as a partition's log means it; the object is shared, so it must not be changed."""
    if not log:
        return SiteState(NEAR, (FAR,))
    state = meaning(log[:-1]).copy()
    state.fold(len(log) - 1, _record(log[-1]))
    return state


def _record(entry: Entry) -> Record:
    if entry.kind in ("held", "dropped"):
        wanted = (WANTED,) if entry.kind == "held" else ()
        return InterestRegistered(PROXIES[entry.number], Incarnation("1"), SessionId("s"), wanted)
    if entry.kind == "passed":
        return Progress(FAR, 1, ORIGIN, entry.number)
    if entry.kind == "effective":
        return Effective(
            link=FAR,
            link_epoch=1,
            expression=WANTED,
            installation=entry.installation,
            origin=ORIGIN,
            above=entry.number,
        )
    return Forwarded(
        link=FAR,
        link_epoch=1,
        origin=ORIGIN,
        offset=entry.number,
        path=(FAR,),
        producer="p",
        incarnation=Incarnation("i"),
        sequence=entry.number,
        at_ms=0,
        body=b"\x80",
    )


def _with_plane(state: State, number: int, plane: Plane) -> State:
    first, second = state.planes
    return state._replace(planes=(plane, second) if number == 0 else (first, plane))


def _appended(state: State, number: int, entry: Entry) -> State:
    plane = state.planes[number]
    return _with_plane(state, number, plane._replace(log=(*plane.log, entry)))


def _with_cursor(state: State, who: int, number: int, cursor: Cursor) -> State:
    first, second = state.source if who == SOURCE else state.target
    changed = (cursor, second) if number == 0 else (first, cursor)
    return state._replace(source=changed) if who == SOURCE else state._replace(target=changed)
