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
InterestRegistered  a proxy's needs for one session; a first need turns on an ask, the last one turns it off
InterestsExpired    a proxy's needs end with its lease
FiltersRequested    a neighbour's wants; each new one is installed here and now, and answered with where it starts
Closed        nothing; it speaks to the audit
LogBegun      another log epoch: the own origin ends at the record before, and the next one begins here
OriginEnded   the same of another site's origin
LinkLed       a leader of that link speaks from here on; what an earlier one appends later means nothing
Severed       what comes over that link is not covered any more: something of it may have been lost on the way
Damaged       it may have been any of these: the own origin moves past it, with a gap, and nothing else is relied on
Repaired      what proxies and neighbours said until here is forgotten, at all proxies alike, and is said again

Handover rules (docs/handover-rules.md, by number)
--------------------------------------------------
8-10  Coverage starts at X := max(X as told, own frontier when told): a stale leader of the link may already have
      pushed the frontier past something that only the new filter lets through.
11    Installations are per hop: what we pass on starts at max(own X, own frontier at the log position where the
      neighbour's filter was installed).
14    Markers have no coordinate: the own frontier is the offset of the last own *notification*, or of what stands for
      one that may have been there (Severed, Damaged, Repaired).
-     After a record of a newer leader's epoch, a link's older records mean nothing.
-     An origin is taken from the link over which it first came, so that a cycle of links does no harm.
27    What is lost with the end of a log is told: an origin that has ended is complete up to what anybody has seen of
      it, and whoever has less of it catches up, which tells what is lost.
29    Who could not read a record has it repaired, before anything is passed on, opened or covered again.
-     An installation's number is the log offset that turned it on: an off-and-on cannot pass for the earlier one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import assert_never

import msgspec

from federation.acceptance import Acceptance, EndedOrigin, LogMark
from federation.site_events import (
    Advanced,
    Announced,
    Covered,
    EndedAnnounced,
    Event,
    InterestChanged,
    InterestWithdrawn,
    Interrupted,
    LogDamaged,
    NotificationArrived,
    OriginClosed,
    RegistrationsExpired,
    SeveranceAnnounced,
    StateReset,
    WantsChanged,
)
from waypost.checksum import sealed, unsealed
from waypost.errors import BadRecord
from waypost.identity import NOTHING, Incarnation, Origin, ProxyId, SessionId, SiteId, log_epoch_of, site_of
from waypost.keys import OPEN, Protection
from waypost.limits import MAX_HOPS
from waypost.records import (
    Closed,
    Damaged,
    Effective,
    FiltersRequested,
    Forwarded,
    InterestRegistered,
    InterestsExpired,
    LinkLed,
    LogBegun,
    OriginEnded,
    Progress,
    Published,
    Record,
    Repaired,
    Severed,
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


INSTALLATIONS = 1 << 44
"""More than one log epoch has."""


class NeighbourFilters(msgspec.Struct):
    """What a neighbour asked for last."""

    epoch: int = 0
    serial: int = -1
    filters: dict[str, Filter] = {}


class RegisteredInterest(msgspec.Struct):
    incarnation: Incarnation
    expressions: tuple[str, ...]
    protections: dict[str, tuple[Protection, ...]] = {}

    def by_protection(self) -> dict[str, tuple[Protection, ...]]:
        """Return by which keys each expression is held."""
        return {expression: self.protections.get(expression, (OPEN,)) for expression in self.expressions}


class Snapshot(msgspec.Struct, kw_only=True):
    """The state as it is kept beside a log position."""

    position: int
    frontier: dict[Origin, int]
    registered: list[tuple[ProxyId, SessionId, RegisteredInterest]]
    neighbour_filters: dict[SiteId, NeighbourFilters]
    wants: dict[SiteId, dict[str, int]]
    effective: dict[str, dict[Origin, int]]
    link_epochs: dict[SiteId, int]
    upstream: dict[Origin, SiteId]
    mark: LogMark = LogMark()
    ended: dict[Origin, EndedOrigin] = {}
    damaged: int = NOTHING
    repaired: int = NOTHING
    severed_at: int = NOTHING
    covered_since_repair: tuple[Origin, ...] | None = None


def read_snapshot(data: bytes) -> Snapshot:
    """Return what :meth:`SiteState.snapshot` made. Raises BadRecord."""
    whole = unsealed(data)
    if whole is None:
        raise BadRecord("a site's state is damaged: its checksum is wrong")
    try:
        return msgspec.msgpack.decode(whole, type=Snapshot)
    except msgspec.DecodeError as error:
        raise BadRecord(f"a site's state cannot be read: {error}") from None


class SiteState:
    """The fold. `position` is the offset of the next record to be folded."""

    def __init__(self, site: SiteId, neighbours: Iterable[SiteId] = ()) -> None:
        self.site = site
        self.neighbours = tuple(sorted(neighbours))
        self.position = 0
        self.acceptance = Acceptance(site)
        self.registered: dict[tuple[ProxyId, SessionId], RegisteredInterest] = {}
        self.interest_counts: Counter[str] = Counter()
        self._protected_counts: dict[str, Counter[Protection]] = {}
        """How often an expression is held by which keys, if any of that is not open to everybody."""
        self.neighbour_filters: dict[SiteId, NeighbourFilters] = {}
        self.wants: dict[SiteId, dict[str, int]] = {neighbour: {} for neighbour in self.neighbours}
        self.effective: dict[str, dict[Origin, int]] = {}
        self._must_request_all = True
        """What is asked of neighbours may not follow from the rest: they may be others than when it was kept."""
        self.damaged = NOTHING
        """The last record that could not be read, and is not repaired yet."""
        self.severed_at = NOTHING
        """The last offset at which coverage of what we pass on began anew."""
        self._covered_since_repair: set[Origin] | None = None
        """Origins of which coverage has begun anew since a repair; None: there was none."""
        self.version = 0
        """Grows whenever anything beside position and acceptance may have changed."""

    @property
    def origin(self) -> Origin:
        """Where notifications are first appended here, in the present log epoch."""
        return self.acceptance.origin

    @property
    def repaired(self) -> int:
        """Up to here everything was said again that could not be read."""
        return self.acceptance.repaired

    @property
    def is_broken(self) -> bool:
        """Tell whether what is known here may lack something that others know."""
        return self.damaged != NOTHING

    @property
    def ended(self) -> dict[Origin, EndedOrigin]:
        """Origins of earlier log epochs."""
        return self.acceptance.ended

    @property
    def frontier(self) -> dict[Origin, int]:
        return self.acceptance.frontier

    @property
    def upstream(self) -> dict[Origin, SiteId]:
        return self.acceptance.upstream

    def begin(self, first: int, known: Snapshot | None, log_epoch: int = 1) -> None:
        """Begin where our own reading cannot go on: at `known`, what the log means up to a place as others say.

        A log whose first record is behind that place, or of which nothing is known, begins there: what was before is
        not to be had. A snapshot is made once a minute, and retention is longer than that.

        Args:
            log_epoch: the one in which the first record is, where nothing is known.
        """
        if known is not None and known.position > self.position:
            self._restore(known)
        if self.position < first:
            if known is None and log_epoch > 1:
                self.acceptance = Acceptance(self.site, mark=LogMark(log_epoch=log_epoch))
            self.position = first
            self.frontier[self.origin] = first - 1

    # ------------------------------------------------------------ folding

    def fold(self, offset: int, record: Record) -> list[Event]:
        """Take the next record; return what it brought, in order."""
        self.position = offset + 1
        match record:
            case Published():
                self.acceptance.advance(offset, record)
                return [NotificationArrived(self.origin, offset, record)]
            case Forwarded():
                moved = self.acceptance.advance(offset, record)
                return [NotificationArrived(record.origin, record.offset, record)] if moved else []
            case Progress():
                moved = self.acceptance.advance(offset, record)
                return [Advanced(record.origin, record.upto)] if moved else []
            case Effective():
                self.version += 1
                return self._effective(record)
            case InterestRegistered():
                self.version += 1
                return self._interest_registered(offset, record)
            case InterestsExpired():
                self.version += 1
                return self._interests_expired(offset, record)
            case FiltersRequested():
                self.version += 1
                return self._filters_requested(offset, record)
            case LogBegun():
                self.version += 1
                return self._log_begun(offset, record)
            case OriginEnded():
                self.version += 1
                return self._origin_ended(offset, record)
            case Severed():
                self.version += 1
                return self._severed(offset, record)
            case Damaged():
                self.version += 1
                return self._broken(offset, record)
            case Repaired():
                self.version += 1
                return self._repaired(offset, record)
            case LinkLed():
                self.acceptance.advance(offset, record)
                return []
            case Closed() | Unreadable():
                return []
            case _:
                assert_never(record)

    def _broken(self, offset: int, record: Damaged) -> list[Event]:
        before = self.frontier[self.origin]
        self.acceptance.advance(offset, record)
        self.damaged = offset
        return [LogDamaged(offset, before)]

    def _repaired(self, offset: int, record: Repaired) -> list[Event]:
        """Forget what others said: those who could not read something of it, and those who could, know the same again.

        Frontiers stay. Of other sites' origins they may differ; so nobody relies on them before coverage begins anew.
        """
        before = self.repaired
        self.acceptance.advance(offset, record)
        if record.upto <= before:
            return []
        self.severed_at = offset
        if self.damaged <= record.upto:
            self.damaged = NOTHING
        interests = self.all_interests()
        self.registered, self.interest_counts, self._protected_counts = {}, Counter(), {}
        self.neighbour_filters, self.effective = {}, {}
        self.wants = {neighbour: {} for neighbour in self.neighbours}
        self._covered_since_repair = set()
        return [
            StateReset(),
            *(InterestChanged(interest) for interest in sorted(interests)),
            *(SeveranceAnnounced(neighbour, ()) for neighbour in self.neighbours),
            Advanced(self.origin, offset),
        ]

    def _severed(self, offset: int, record: Severed) -> list[Event]:
        if not self.acceptance.advance(offset, record):
            return []
        self.severed_at = offset
        events: list[Event] = []
        for expression, known in list(self.effective.items()):
            for origin in [each for each in known if self.upstream.get(each) == record.link]:
                del known[origin]
                events.append(Interrupted(expression, origin))
                for asks in self.neighbour_filters.values():
                    if expression in asks.filters:
                        asks.filters[expression].above.pop(origin, None)
            if not known:
                del self.effective[expression]
        concerned = [
            neighbour for neighbour in self.neighbours if neighbour != record.link and neighbour not in record.path
        ]
        events += [SeveranceAnnounced(each, record.path) for each in concerned if len(record.path) < MAX_HOPS]
        return [*events, Advanced(self.origin, offset)]

    def _log_begun(self, offset: int, record: LogBegun) -> list[Event]:
        before, frontier, known = self.origin, dict(self.frontier), set(self.ended)
        ended = self.acceptance.begin_log(offset, record)
        # Whoever reads on to here has read, beyond the end, what was appended before all knew of that.
        if before in ended:
            frontier[before] = min(frontier.get(before, NOTHING), self.ended[before].end)
        events: list[Event] = [
            OriginClosed(origin, frontier.get(origin, NOTHING), origin not in known) for origin in ended
        ]
        events += self._announce_ended(ended)
        if self.origin != before:
            for neighbour, asks in self.neighbour_filters.items():
                for expression, installed in asks.filters.items():
                    events += self._announce(neighbour, expression, installed, self.origin, offset)
        # What this site asked for, or took back, may have been lost with the end, and its neighbours know of it.
        return events + self._request_again(offset, self.neighbours) if ended else events

    def _origin_ended(self, offset: int, record: OriginEnded) -> list[Event]:
        before, is_first = self.frontier.get(record.origin, NOTHING), record.origin not in self.ended
        if not self.acceptance.end_origin(record):
            return []
        events: list[Event] = [OriginClosed(record.origin, before, is_first)]
        events += self._announce_ended([record.origin], exclude=record.link)
        # A neighbour that lost the end of its log may have lost what we asked of it.
        return events + self._request_again(offset, [record.link]) if site_of(record.origin) == record.link else events

    def _request_again(self, offset: int, neighbours: Iterable[SiteId]) -> list[Event]:
        """Ask these for the same by new installations: how far the earlier ones reached, nobody knows (rule 27)."""
        events: list[Event] = []
        for neighbour in neighbours:
            expressions = sorted(self.wants.get(neighbour, ()))
            events += [
                Interrupted(expression, origin)
                for expression in expressions
                for origin in self.effective.get(expression, {})
                if self.upstream[origin] == neighbour and origin not in self.ended
            ]
            if expressions:
                self._want_no_more(neighbour, expressions)
                self.wants[neighbour] = dict.fromkeys(expressions, self._installation(offset))
                events.append(WantsChanged(neighbour))
        return events

    def _installation(self, offset: int) -> int:
        """Return the number of an installation that begins here: never one of an earlier log epoch."""
        return offset + (self.acceptance.mark.log_epoch - 1) * INSTALLATIONS

    def _announce_ended(self, origins: Iterable[Origin], exclude: SiteId | None = None) -> list[Event]:
        listed = list(origins)
        return [
            EndedAnnounced(neighbour, self._ended_record(origin))
            for neighbour in self.neighbours
            if neighbour != exclude
            for origin in listed
        ]

    def _ended_record(self, origin: Origin) -> OriginEnded:
        known = self.ended[origin]
        return OriginEnded(
            link=self.site,
            link_epoch=0,
            origin=origin,
            end=known.end,
            seen=known.seen,
            following=known.following,
            begins=known.begins,
        )

    def _effective(self, record: Effective) -> list[Event]:
        if not self.acceptance.accept(record):
            return []
        if self.wants.get(record.link, {}).get(record.expression) != record.installation:
            return []
        known = self.effective.setdefault(record.expression, {})
        seen, before = self.frontier.setdefault(record.origin, NOTHING), known.get(record.origin)
        if before is not None and record.above <= max(seen, before):
            return []
        events: list[Event] = []
        if self._covered_since_repair is not None and record.origin not in self._covered_since_repair:
            # Who knew less of the origin, for a record that could not be read, knows now how far it had come.
            self._covered_since_repair.add(record.origin)
            if record.above > seen:
                seen = self.frontier[record.origin] = record.above
                events.append(Advanced(record.origin, seen))
        above = known[record.origin] = max(record.above, seen)
        events.append(Covered(record.expression, record.origin, above))
        if before is not None:
            events.append(Interrupted(record.expression, record.origin))
        for neighbour, asks in self.neighbour_filters.items():
            installed = asks.filters.get(record.expression)
            if installed and neighbour != record.link:
                events += self._announce(neighbour, record.expression, installed, record.origin, above)
        return events

    def _interest_registered(self, offset: int, record: InterestRegistered) -> list[Event]:
        key = (record.proxy, record.session)
        before = self._release(key)
        after: dict[str, tuple[Protection, ...]] = {}
        if record.expressions:
            hold = self.registered[key] = RegisteredInterest(record.incarnation, record.expressions, record.protections)
            after = hold.by_protection()
            self._count_interests(after)
        released = frozenset(before.keys() - after.keys())
        events: list[Event] = [InterestWithdrawn(record.proxy, record.session, released)] if released else []
        events += [InterestChanged(each) for each in sorted({*before, *after}) if before.get(each) != after.get(each)]
        return events + self._rewant(offset, before.keys() ^ after.keys())

    def _interests_expired(self, offset: int, record: InterestsExpired) -> list[Event]:
        gone = [
            key
            for key, hold in self.registered.items()
            if key[0] == record.proxy and hold.incarnation == record.incarnation
        ]
        released = set[str]().union(*(self._release(key) for key in gone))
        changed = [InterestChanged(each) for each in sorted(released)]
        return [*changed, *self._rewant(offset, released), RegistrationsExpired(record.proxy, record.incarnation)]

    def _count_interests(self, held: Mapping[str, tuple[Protection, ...]]) -> None:
        for expression, protections in held.items():
            if protections != (OPEN,) and expression not in self._protected_counts:
                self._protected_counts[expression] = +Counter({OPEN: self.interest_counts[expression]})
            self.interest_counts[expression] += 1
            if expression in self._protected_counts:
                self._protected_counts[expression].update(protections)

    def _release(self, key: tuple[ProxyId, SessionId]) -> dict[str, tuple[Protection, ...]]:
        """End a hold; return what it held, and by which keys."""
        hold = self.registered.pop(key, None)
        released = hold.by_protection() if hold else {}
        for expression, protections in released.items():
            self.interest_counts[expression] -= 1
            if expression in self._protected_counts:
                self._protected_counts[expression] -= Counter(protections)
            if not self.interest_counts[expression]:
                del self.interest_counts[expression]
                self._protected_counts.pop(expression, None)
        return released

    def _filters_requested(self, offset: int, record: FiltersRequested) -> list[Event]:
        asks = self.neighbour_filters.setdefault(record.link, NeighbourFilters())
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
        return [Announced(neighbour, self._announcement(expression, installed, origin, above))]

    def _announcement(self, expression: str, installed: Filter, origin: Origin, above: int) -> Effective:
        """Return the announcement to the neighbour whose filter it is; the link fills in its own epoch."""
        return Effective(
            link=self.site,
            link_epoch=0,
            expression=expression,
            installation=installed.installation,
            origin=origin,
            above=above,
        )

    def _rewant(self, offset: int, concerned: Iterable[str]) -> list[Event]:
        """Compute again what we ask of each neighbour: what is held here, and what the others ask of us.

        Only expressions that are `concerned` can have changed; there may be very many others.
        """
        if self._must_request_all:
            self._must_request_all = False
            asked = (neighbour_filters.filters for neighbour_filters in self.neighbour_filters.values())
            concerned = set(self.interest_counts).union(*asked, *self.wants.values())
        concerned = sorted(concerned)
        changed: list[Event] = []
        for neighbour in self.neighbours:
            others = [asks.filters for other, asks in self.neighbour_filters.items() if other != neighbour]
            needed = [
                each for each in concerned if each in self.interest_counts or any(each in filters for filters in others)
            ]
            wants = self.wants[neighbour]
            gone = [each for each in set(concerned).difference(needed) if each in wants]
            new = [each for each in needed if each not in wants]
            if gone or new:
                self._want_no_more(neighbour, gone)
                wants.update(dict.fromkeys(new, self._installation(offset)))
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

    def interests(self, expression: str, exclude: SiteId | None = None) -> frozenset[Protection]:
        """Return by which keys anybody wants what matches it, here or behind a neighbour other than `but`."""
        found = set(self._protected_counts.get(expression) or ((OPEN,) if expression in self.interest_counts else ()))
        for neighbour, asks in self.neighbour_filters.items():
            installed = asks.filters.get(expression)
            if installed is not None and neighbour != exclude:
                found.update(installed.protections)
        return frozenset(found)

    def all_interests(self) -> set[str]:
        """Return all expressions that anybody wants, as far as is known here."""
        return set(self.interest_counts).union(*(asks.filters for asks in self.neighbour_filters.values()))

    def protections_for(self, neighbour: SiteId) -> dict[str, tuple[Protection, ...]]:
        """Return what is wanted of the neighbour by keys: by which ones."""
        guarded = set(self._protected_counts).union(
            *(
                (each for each, installed in asks.filters.items() if installed.protections != (OPEN,))
                for asks in self.neighbour_filters.values()
            )
        )
        wanted = {each: self.interests(each, neighbour) for each in guarded if each in self.wants[neighbour]}
        return {each: tuple(sorted(found)) for each, found in sorted(wanted.items()) if found != {OPEN}}

    def covered_above(self, origin: Origin, expressions: Iterable[str]) -> int | None:
        """Return the offset above which this log has all matches of all expressions, None if not yet known."""
        if site_of(origin) == self.site or origin in self.ended:
            return NOTHING
        if self.is_broken:
            return None
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
        asks = self.neighbour_filters.get(neighbour, NeighbourFilters())
        return [
            self._announcement(expression, installed, origin, above)
            for expression, installed in asks.filters.items()
            for origin, above in installed.above.items()
        ]

    def continued(self, frontier: Mapping[Origin, int]) -> dict[Origin, int]:
        """Return a frontier that has, for each of its origins that has ended, the origin that follows.

        Whoever has a place in an origin has one in the next: nothing of that is passed over.
        """
        found = dict(frontier)
        for origin, known in sorted(self.ended.items(), key=lambda each: log_epoch_of(each[0])):
            if origin in found:
                found.setdefault(known.following, known.begins)
        return found

    def log_epoch_at(self, offset: int) -> int:
        """Return in which log epoch a reader is who begins at this offset."""
        begun = [ended_origin.following for ended_origin in self.ended.values() if ended_origin.begins < offset]
        return max((log_epoch_of(each) for each in begun if site_of(each) == self.site), default=1)

    def ended_origins(self, neighbour: SiteId) -> list[OriginEnded]:
        """Return the origins that have ended, to be repeated for that neighbour on a resume."""
        return [self._ended_record(origin) for origin in self.ended if self.upstream.get(origin) != neighbour]

    # ------------------------------------------------------------ keeping

    def snapshot(self) -> bytes:
        """Return the state, sealed, for :func:`read_snapshot`."""
        kept = msgspec.msgpack.encode(
            Snapshot(
                position=self.position,
                frontier=self.frontier,
                registered=[(proxy, session, hold) for (proxy, session), hold in self.registered.items()],
                neighbour_filters=self.neighbour_filters,
                wants=self.wants,
                effective=self.effective,
                link_epochs=self.acceptance.link_epochs,
                upstream=self.acceptance.upstream,
                mark=self.acceptance.mark,
                ended=self.acceptance.ended,
                damaged=self.damaged,
                repaired=self.repaired,
                severed_at=self.severed_at,
                covered_since_repair=None
                if self._covered_since_repair is None
                else tuple(sorted(self._covered_since_repair)),
            )
        )
        return sealed(kept)

    @classmethod
    def restore(cls, site: SiteId, neighbours: Iterable[SiteId], data: bytes) -> SiteState:
        """Return the state of a snapshot. Neighbours may have changed since; their asks follow at the next change."""
        state = cls(site, neighbours)
        state._restore(read_snapshot(data))
        return state

    def _restore(self, snapshot: Snapshot) -> None:
        self.position = snapshot.position
        self.acceptance = Acceptance(
            self.site,
            snapshot.frontier,
            snapshot.link_epochs,
            snapshot.upstream,
            snapshot.mark,
            snapshot.ended,
            snapshot.repaired,
        )
        self.registered = {(proxy, session): hold for proxy, session, hold in snapshot.registered}
        self.interest_counts, self._protected_counts = Counter(), {}
        for hold in self.registered.values():
            self._count_interests(hold.by_protection())
        self.neighbour_filters = snapshot.neighbour_filters
        self.wants |= {neighbour: snapshot.wants.get(neighbour, {}) for neighbour in self.neighbours}
        self.effective = snapshot.effective
        self.damaged, self.severed_at = snapshot.damaged, snapshot.severed_at
        self._covered_since_repair = (
            None if snapshot.covered_since_repair is None else set(snapshot.covered_since_repair)
        )

    def copy(self) -> SiteState:
        return SiteState.restore(self.site, self.neighbours, self.snapshot())
