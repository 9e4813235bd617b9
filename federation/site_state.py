"""What a site log means: the one fold that every reader of the log shares.

A site's knowledge - how far each origin has come, what its proxies hold, what its neighbours asked for, what it
asks of them, from where on that is effective - *is* the log, folded in order. A snapshot in the changelog is
for who finds its beginning gone, and has nothing that the log did not have (handover rule 25). So all proxies
of a site agree at every offset without talking, a link's sender knows exactly which filter is in force at
the record it reads, and a proxy whose holds were dropped reads of it before it reads the first hole.

What a record does
------------------
Published     the site's own frontier moves to its offset
Forwarded     its origin's frontier moves, if the record lies above it; else it is a repeat
Progress      the same, without a notification
Effective     an expression that we asked for is covered for an origin; passed on to neighbours who asked for it too.
              Said again, from above what came so far: the neighbour's log no longer has what lies between
Held          a proxy's needs for one session; a first need turns on an ask, the last one turns it off
Dropped       a proxy's needs end with its lease
Asked         a neighbour's wants; each new one is installed here and now, and answered with where it starts
Closed        nothing; it speaks to the audit

Handover rules (docs/handover-rules.md, by number)
--------------------------------------------------
8-10  Coverage starts at X := max(X as told, own frontier when told): a stale leader of the link may already have
      pushed the frontier past something that only the new filter lets through.
11    Installations are per hop: what we pass on starts at max(own X, own frontier at the log position where the
      neighbour's filter was installed).
14    Markers have no coordinate: the own frontier is the offset of the last own *notification*.
-     After a record of a newer leader's epoch, a link's older records mean nothing.
-     An origin is taken from the link over which it first came, so that a cycle of links does no harm.
-     An installation's number is the log offset that turned it on: an off-and-on cannot pass for the earlier one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from federation.site_events import (
    Advanced,
    Announced,
    Arrived,
    Covered,
    Event,
    HoldsDropped,
    InterestChanged,
    Interrupted,
    Released,
    WantsChanged,
)
from waypost.errors import BadRecord
from waypost.identity import NOTHING, Incarnation, Origin, ProxyId, SessionId, SiteId, origin_of
from waypost.keys import OPEN, Protection
from waypost.records import (
    Asked,
    Closed,
    Dropped,
    Effective,
    Forwarded,
    Held,
    Progress,
    Published,
    Record,
    Unreadable,
)


class Filter(msgspec.Struct):
    """One expression that a neighbour asked for. `at`: our frontier at the log position of the installation.

    `protections`: by which keys it is wanted there.
    """

    installation: int
    at: dict[Origin, int]
    above: dict[Origin, int] = {}
    protections: tuple[Protection, ...] = (OPEN,)


class Asks(msgspec.Struct):
    """What a neighbour asked for last."""

    epoch: int = 0
    serial: int = -1
    filters: dict[str, Filter] = {}


class Hold(msgspec.Struct):
    incarnation: Incarnation
    expressions: tuple[str, ...]
    protections: dict[str, tuple[Protection, ...]] = {}

    def guarded(self) -> dict[str, tuple[Protection, ...]]:
        """Return by which keys each expression is held."""
        return {each: self.protections.get(each, (OPEN,)) for each in self.expressions}


class Snapshot(msgspec.Struct):
    """The state as it is kept beside a log position."""

    position: int
    frontier: dict[Origin, int]
    holds: list[tuple[ProxyId, SessionId, Hold]]
    asks: dict[SiteId, Asks]
    wants: dict[SiteId, dict[str, int]]
    effective: dict[str, dict[Origin, int]]
    link_epochs: dict[SiteId, int]
    upstream: dict[Origin, SiteId]


def read_snapshot(data: bytes) -> Snapshot:
    """Return what :meth:`SiteState.snapshot` made. Raises BadRecord."""
    try:
        return msgspec.msgpack.decode(data, type=Snapshot)
    except msgspec.DecodeError as error:
        raise BadRecord(f"a site's state cannot be read: {error}") from None


class Acceptance:
    """Which records of a log count: how far each origin has come, by which link, under which leader's epoch.

    After a record of a newer epoch, a link's older records mean nothing; at or below the frontier is a repeat.
    """

    __slots__ = ("frontier", "link_epochs", "origin", "upstream")

    def __init__(
        self,
        origin: Origin,
        frontier: Mapping[Origin, int] | None = None,
        link_epochs: Mapping[SiteId, int] | None = None,
        upstream: Mapping[Origin, SiteId] | None = None,
    ) -> None:
        self.origin = origin
        self.frontier: dict[Origin, int] = dict(frontier or {origin: NOTHING})
        self.link_epochs: dict[SiteId, int] = dict(link_epochs or {})
        self.upstream: dict[Origin, SiteId] = dict(upstream or {})

    def copy(self) -> Acceptance:
        return Acceptance(self.origin, self.frontier, self.link_epochs, self.upstream)

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self.frontier, self.link_epochs, self.upstream))

    @classmethod
    def restore(cls, origin: Origin, data: bytes) -> Acceptance:
        return cls(origin, *msgspec.msgpack.decode(data))

    def heed(self, record: Forwarded | Progress | Effective) -> bool:
        """Remember the epoch and the link of a link's record, if it still counts; tell whether it does."""
        if record.link_epoch < self.link_epochs.get(record.link, 0):
            return False
        self.link_epochs[record.link] = record.link_epoch
        if record.origin == self.origin:
            return False
        return self.upstream.setdefault(record.origin, record.link) == record.link

    def advance(self, offset: int, record: Record) -> bool:
        """Move the frontier that the record moves, if it does; tell whether it did."""
        match record:
            case Published():
                self.frontier[self.origin] = offset
                return True
            case Forwarded():
                return self.heed(record) and self._raise(record.origin, record.offset)
            case Progress():
                return self.heed(record) and self._raise(record.origin, record.upto)
            case _:
                return False

    def _raise(self, origin: Origin, offset: int) -> bool:
        if offset <= self.frontier.get(origin, NOTHING):
            return False
        self.frontier[origin] = offset
        return True


class SiteState:
    """The fold. `position` is the offset of the next record to be folded."""

    def __init__(self, site: SiteId, neighbours: Iterable[SiteId] = ()) -> None:
        self.site = site
        self.origin = origin_of(site)
        self.neighbours = tuple(sorted(neighbours))
        self.position = 0
        self.acceptance = Acceptance(self.origin)
        self.holds: dict[tuple[ProxyId, SessionId], Hold] = {}
        self.held: Counter[str] = Counter()
        self._guarded: dict[str, Counter[Protection]] = {}
        """How often an expression is held by which keys, if any of that is not open to everybody."""
        self.asks: dict[SiteId, Asks] = {}
        self.wants: dict[SiteId, dict[str, int]] = {neighbour: {} for neighbour in self.neighbours}
        self.effective: dict[str, dict[Origin, int]] = {}
        self._wants_all_anew = True
        """What is asked of neighbours may not follow from the rest: they may be others than when it was kept."""
        self.version = 0
        """Grows whenever anything beside position and acceptance may have changed."""

    @property
    def frontier(self) -> dict[Origin, int]:
        return self.acceptance.frontier

    @property
    def upstream(self) -> dict[Origin, SiteId]:
        return self.acceptance.upstream

    def begin(self, first: int, known: Snapshot | None) -> None:
        """Begin where our own reading cannot go on: at `known`, what the log means up to a place as others say.

        A log whose first record is behind that place, or of which nothing is known, begins there: what was before is
        not to be had. A snapshot is made once a minute, and retention is longer than that.
        """
        if known is not None and known.position > self.position:
            self._take(known)
        if self.position < first:
            self.position = first
            self.frontier[self.origin] = first - 1

    # ------------------------------------------------------------ folding

    def fold(self, offset: int, record: Record) -> list[Event]:
        """Take the next record; return what it brought, in order."""
        self.position = offset + 1
        match record:
            case Published():
                self.acceptance.advance(offset, record)
                return [Arrived(self.origin, offset, record)]
            case Forwarded():
                moved = self.acceptance.advance(offset, record)
                return [Arrived(record.origin, record.offset, record)] if moved else []
            case Progress():
                moved = self.acceptance.advance(offset, record)
                return [Advanced(record.origin, record.upto)] if moved else []
            case Effective():
                self.version += 1
                return self._effective(record)
            case Held():
                self.version += 1
                return self._held(offset, record)
            case Dropped():
                self.version += 1
                return self._dropped(offset, record)
            case Asked():
                self.version += 1
                return self._asked(offset, record)
            case Closed() | Unreadable():
                return []

    def _effective(self, record: Effective) -> list[Event]:
        if not self.acceptance.heed(record):
            return []
        if self.wants.get(record.link, {}).get(record.expression) != record.installation:
            return []
        known = self.effective.setdefault(record.expression, {})
        seen, before = self.frontier.setdefault(record.origin, NOTHING), known.get(record.origin)
        if before is not None and record.above <= max(seen, before):
            return []
        above = known[record.origin] = max(record.above, seen)
        events: list[Event] = [Covered(record.expression, record.origin, above)]
        if before is not None:
            events.append(Interrupted(record.expression, record.origin))
        for neighbour, asks in self.asks.items():
            installed = asks.filters.get(record.expression)
            if installed and neighbour != record.link:
                events += self._announce(neighbour, record.expression, installed, record.origin, above)
        return events

    def _held(self, offset: int, record: Held) -> list[Event]:
        key = (record.proxy, record.session)
        before = self._release(key)
        after: dict[str, tuple[Protection, ...]] = {}
        if record.expressions:
            hold = self.holds[key] = Hold(record.incarnation, record.expressions, record.protections)
            after = hold.guarded()
            self._hold(after)
        released = frozenset(before.keys() - after.keys())
        events: list[Event] = [Released(record.proxy, record.session, released)] if released else []
        events += [InterestChanged(each) for each in sorted({*before, *after}) if before.get(each) != after.get(each)]
        return events + self._rewant(offset, before.keys() ^ after.keys())

    def _dropped(self, offset: int, record: Dropped) -> list[Event]:
        gone = [
            key for key, hold in self.holds.items() if key[0] == record.proxy and hold.incarnation == record.incarnation
        ]
        released = set[str]().union(*(self._release(key) for key in gone))
        changed = [InterestChanged(each) for each in sorted(released)]
        return [*changed, *self._rewant(offset, released), HoldsDropped(record.proxy, record.incarnation)]

    def _hold(self, held: Mapping[str, tuple[Protection, ...]]) -> None:
        for expression, protections in held.items():
            if protections != (OPEN,) and expression not in self._guarded:
                self._guarded[expression] = +Counter({OPEN: self.held[expression]})
            self.held[expression] += 1
            if expression in self._guarded:
                self._guarded[expression].update(protections)

    def _release(self, key: tuple[ProxyId, SessionId]) -> dict[str, tuple[Protection, ...]]:
        """End a hold; return what it held, and by which keys."""
        hold = self.holds.pop(key, None)
        released = hold.guarded() if hold else {}
        for expression, protections in released.items():
            self.held[expression] -= 1
            if expression in self._guarded:
                self._guarded[expression] -= Counter(protections)
            if not self.held[expression]:
                del self.held[expression]
                self._guarded.pop(expression, None)
        return released

    def _asked(self, offset: int, record: Asked) -> list[Event]:
        asks = self.asks.setdefault(record.link, Asks())
        if (record.link_epoch, record.serial) <= (asks.epoch, asks.serial):
            return []
        asks.epoch, asks.serial = record.link_epoch, record.serial
        before = asks.filters
        by_keys = {expression: installed.protections for expression, installed in before.items()}
        asks.filters = {
            expression: installed
            for expression, installed in asks.filters.items()
            if record.installations.get(expression) == installed.installation
        }
        events: list[Event] = []
        for expression, installation in record.installations.items():
            if expression not in asks.filters:
                installed = asks.filters[expression] = Filter(installation, dict(self.frontier))
                events += self._installed(record.link, expression, installed)
        for expression, installed in asks.filters.items():
            installed.protections = record.protections.get(expression, (OPEN,))
        events += [
            InterestChanged(each)
            for each in sorted({*before, *asks.filters})
            if each not in asks.filters or by_keys.get(each) != asks.filters[each].protections
        ]
        return events + self._rewant(offset, before.keys() ^ asks.filters.keys())

    def _installed(self, neighbour: SiteId, expression: str, installed: Filter) -> list[Event]:
        own = self.frontier[self.origin]
        events = self._announce(neighbour, expression, installed, self.origin, own)
        for origin, above in self.effective.get(expression, {}).items():
            if self.upstream[origin] != neighbour:
                events += self._announce(neighbour, expression, installed, origin, above)
        return events

    def _announce(
        self, neighbour: SiteId, expression: str, installed: Filter, origin: Origin, above: int
    ) -> list[Event]:
        above = max(above, installed.at.get(origin, NOTHING))
        if origin in installed.above and above <= installed.above[origin]:
            return []
        installed.above[origin] = above
        told = Effective(self.site, 0, expression, installed.installation, origin, above)
        return [Announced(neighbour, told)]

    def _rewant(self, offset: int, concerned: Iterable[str]) -> list[Event]:
        """Compute again what we ask of each neighbour: what is held here, and what the others ask of us.

        Only expressions that are `concerned` can have changed; there may be very many others.
        """
        if self._wants_all_anew:
            self._wants_all_anew = False
            asked = (each.filters for each in self.asks.values())
            concerned = set(self.held).union(*asked, *self.wants.values())
        concerned = sorted(concerned)
        changed: list[Event] = []
        for neighbour in self.neighbours:
            others = [asks.filters for other, asks in self.asks.items() if other != neighbour]
            needed = [each for each in concerned if each in self.held or any(each in filters for filters in others)]
            wants = self.wants[neighbour]
            gone = [each for each in set(concerned).difference(needed) if each in wants]
            new = [each for each in needed if each not in wants]
            if gone or new:
                self._want_no_more(neighbour, gone)
                wants.update(dict.fromkeys(new, offset))
                changed.append(WantsChanged(neighbour))
        return changed

    def _want_no_more(self, neighbour: SiteId, expressions: Iterable[str]) -> None:
        for expression in expressions:
            del self.wants[neighbour][expression]
            known = self.effective.get(expression, {})
            for origin in [origin for origin in known if self.upstream[origin] == neighbour]:
                del known[origin]
            if not known:
                self.effective.pop(expression, None)

    # ------------------------------------------------------------ questions

    def interests(self, expression: str, but: SiteId | None = None) -> frozenset[Protection]:
        """Return by which keys anybody wants what matches it, here or behind a neighbour other than `but`."""
        found = set(self._guarded.get(expression) or ((OPEN,) if expression in self.held else ()))
        for neighbour, asks in self.asks.items():
            installed = asks.filters.get(expression)
            if installed is not None and neighbour != but:
                found.update(installed.protections)
        return frozenset(found)

    def all_interests(self) -> set[str]:
        """Return all expressions that anybody wants, as far as is known here."""
        return set(self.held).union(*(asks.filters for asks in self.asks.values()))

    def protections_for(self, neighbour: SiteId) -> dict[str, tuple[Protection, ...]]:
        """Return what is wanted of the neighbour by keys: by which ones."""
        guarded = set(self._guarded).union(
            *(
                (each for each, installed in asks.filters.items() if installed.protections != (OPEN,))
                for asks in self.asks.values()
            )
        )
        wanted = {each: self.interests(each, neighbour) for each in guarded if each in self.wants[neighbour]}
        return {each: tuple(sorted(found)) for each, found in sorted(wanted.items()) if found != {OPEN}}

    def covered_above(self, origin: Origin, expressions: Iterable[str]) -> int | None:
        """Return the offset above which this log has all matches of all expressions, None if not yet known."""
        if origin == self.origin:
            return NOTHING
        above = NOTHING
        for expression in expressions:
            start = self.effective.get(expression, {}).get(origin)
            if start is None:
                return None
            above = max(above, start)
        return above

    def standing(self, neighbour: SiteId) -> list[Effective]:
        """Return the announcements in force for that neighbour, to be repeated on a resume (rule 12).

        Also of what it asked for only after it opened, if the log has that already: nobody would say them later.
        """
        asks = self.asks.get(neighbour, Asks())
        return [
            Effective(self.site, 0, expression, installed.installation, origin, above)
            for expression, installed in asks.filters.items()
            for origin, above in installed.above.items()
        ]

    # ------------------------------------------------------------ keeping

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(
            Snapshot(
                self.position,
                self.frontier,
                [(proxy, session, hold) for (proxy, session), hold in self.holds.items()],
                self.asks,
                self.wants,
                self.effective,
                self.acceptance.link_epochs,
                self.acceptance.upstream,
            )
        )

    @classmethod
    def restore(cls, site: SiteId, neighbours: Iterable[SiteId], data: bytes) -> SiteState:
        """Return the state of a snapshot. Neighbours may have changed since; their asks follow at the next change."""
        state = cls(site, neighbours)
        state._take(read_snapshot(data))
        return state

    def _take(self, kept: Snapshot) -> None:
        self.position = kept.position
        self.acceptance = Acceptance(self.origin, kept.frontier, kept.link_epochs, kept.upstream)
        self.holds = {(proxy, session): hold for proxy, session, hold in kept.holds}
        self.held, self._guarded = Counter(), {}
        for hold in self.holds.values():
            self._hold(hold.guarded())
        self.asks = kept.asks
        self.wants |= {neighbour: kept.wants.get(neighbour, {}) for neighbour in self.neighbours}
        self.effective = kept.effective

    def copy(self) -> SiteState:
        return SiteState.restore(self.site, self.neighbours, self.snapshot())
