"""The state of a site: the fold of its log, which every reader of the log computes alike.

The state - the frontier of each origin, the interests of the site's proxies, the filters that its neighbours request
and that it requests of them, and the offsets above which those are effective - *is* the log, folded in order. A
snapshot in the changelog is for a proxy that finds the log's beginning gone, and has nothing that the log did not have
(handover rule 25). So all proxies of a site agree at every offset without a message, a link's sender knows exactly
which filter is in force at the record that it reads, and a proxy whose interests expired reads so before the first
hole.

The effect of each record
-------------------------
Published     the site's own frontier advances to its offset
Forwarded     its origin's frontier advances, if the record is above it; else it is a duplicate
Progress      the same, without a notification
Effective     an expression that we requested is covered for an origin, and with it all that it covers; announced to
              neighbours that requested one of them too. A second one, above the frontier: the neighbour's log no longer
              has the offsets between
InterestRegistered  a proxy's interests for one session; the first in an expression has it requested of neighbours, or
                    covered by what is (docs/adr/0029), the withdrawal of the last removes it
InterestsExpired    a proxy's interests end with its lease
FiltersRequested    a neighbour's filters; each new one is installed at this offset, and its start is announced
Closed        none; it is for the audit
LogBegun      another log epoch: the own origin ends at the record before, and the next one begins here
OriginEnded   the same of another site's origin
TreeEntered   everything goes over that tree from here on: filters of a site that is no neighbour any more end, and
              origins that arrive over another link begin to be covered anew
LinkLed       that leader of the link is in force from here on; later records of an earlier one are ignored
Severed       notifications of that link are not covered any more: some may have been lost on the way
Damaged       it may have been any of these: the own origin advances past it, with a gap; the rest is not relied on
Repaired      interests, filters and the tree stated until here are removed, at all proxies alike, and are stated again

Handover rules (docs/handover-rules.md, by number)
--------------------------------------------------
8-10  Coverage starts at X := max(X as told, own frontier when told): a stale leader of the link may already have
      pushed the frontier past something that only the new filter lets through.
11    Installations are per hop: what we pass on starts at max(own X, own frontier at the log position where the
      neighbour's filter was installed).
14    Markers have no coordinate: the own frontier is the offset of the last own *notification*, or of what stands for
      one that may have been there (Severed, Damaged, Repaired).
-     After a record of a newer leader's epoch, a link's older records mean nothing.
-     Requests and notifications go over the tree alone, so that no circle of links keeps a request alive.
9     An origin that arrives over another link than before has a hole, which neighbours are told of.
27    A loss with the end of a log is reported: an origin that has ended is complete up to the highest offset seen of
      it anywhere, and a session that has less catches up, which reports the loss.
29    A proxy that could not read a record has it repaired, before it forwards, opens a link or relies on coverage.
-     An installation's number is the log offset that turned it on: an off-and-on cannot pass for the earlier one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import assert_never

import msgspec

from federation.site.acceptance import Acceptance, EndedOrigin, LogMark, is_own_loss
from federation.site.dispatching_tree import Tree, star
from federation.site.events import (
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
from federation.site.neighbour_filters import Filter, NeighbourFilters, Wanted
from federation.site.requested_filters import NeededFilter, RequestedFilters
from waypost.checksum import sealed, unsealed
from waypost.errors import BadRecord
from waypost.identity import NOTHING, Incarnation, Origin, ProxyId, SessionId, SiteId, log_epoch_of, origin_of, site_of
from waypost.keys import OPEN, Protection
from waypost.limits import LINK_KEYS, MAX_SITES_PASSED
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
    TreeEntered,
    Unreadable,
)

OF_POSITION_ALONE = (Published, Forwarded, Progress, LinkLed, Closed, Unreadable)
"""Records that change nothing but position and acceptance."""
INSTALLATIONS = 1 << 44
"""The distance of installation numbers of two log epochs: more than the offsets of one."""


class RegisteredInterest(msgspec.Struct):
    """The interest that one proxy has registered for one session.

    Args:
        incarnation: of the proxy; the interest ends with the lease of that incarnation.
        expressions: canonical texts.
        protections: canonical text -> the keys by which it is wanted; an expression that is absent is open to
            everybody.
    """

    incarnation: Incarnation
    expressions: tuple[str, ...]
    protections: dict[str, tuple[Protection, ...]] = {}

    def by_protection(self) -> dict[str, tuple[Protection, ...]]:
        """Return, by expression, the keys by which it is wanted; OPEN alone: it is wanted without any."""
        return {expression: self.protections.get(expression, (OPEN,)) for expression in self.expressions}


class Snapshot(msgspec.Struct, kw_only=True):
    """The state as it is stored, with its log position."""

    position: int
    frontier: dict[Origin, int]
    registered: list[tuple[ProxyId, SessionId, RegisteredInterest]]
    neighbour_filters: dict[SiteId, NeighbourFilters]
    requests: dict[SiteId, dict[str, NeededFilter]]
    effective: dict[str, dict[Origin, int]]
    link_epochs: dict[SiteId, int]
    upstream: dict[Origin, SiteId]
    mark: LogMark = LogMark()
    ended: dict[Origin, EndedOrigin] = {}
    damaged: int = NOTHING
    repaired: int = NOTHING
    severed_at: int = NOTHING
    moved_at: dict[Origin, int] = {}
    left_at: dict[SiteId, int] = {}
    covered_since_repair: tuple[Origin, ...] | None = None
    tree: Tree = Tree()


def read_snapshot(data: bytes) -> Snapshot:
    """Return the snapshot that :meth:`SiteState.snapshot` encoded. Raises BadRecord: it is damaged, or no snapshot."""
    whole = unsealed(data)
    if whole is None:
        raise BadRecord("a site's state is damaged: its checksum is wrong")
    try:
        return msgspec.msgpack.decode(whole, type=Snapshot)
    except msgspec.DecodeError as error:
        raise BadRecord(f"a site's state cannot be read: {error}") from None


class SiteState:
    """The state of a site, folded from its log. `position` is the offset of the next record to be folded.

    Args:
        site: whose log it is.
        neighbours: the sites that it forwards to as long as the log names no tree.
    """

    def __init__(self, site: SiteId, neighbours: Iterable[SiteId] = ()) -> None:
        self.site = site
        self.position = 0
        self.acceptance = Acceptance(site, tree=star(site, neighbours))
        self.neighbours = self.tree.neighbours(site)
        """The sites that this one forwards to."""
        self.registered: dict[tuple[ProxyId, SessionId], RegisteredInterest] = {}
        self.interest_counts: Counter[str] = Counter()
        self._protected_counts: dict[str, Counter[Protection]] = {}
        """Interests in each expression by keys, for expressions that are not open to everybody."""
        self.neighbour_filters: dict[SiteId, NeighbourFilters] = {}
        self.requests = {neighbour: RequestedFilters() for neighbour in self.neighbours}
        self.effective: dict[str, dict[Origin, int]] = {}
        self._must_request_all = True
        """Whether the requests to neighbours are to be computed for all expressions: the neighbours may have changed
        since the snapshot.
        """
        self.damaged = NOTHING
        """The offset of the last record that could not be read, and is not repaired yet."""
        self.severed_at = NOTHING
        """The last offset at which coverage of forwarded notifications began anew, of all origins."""
        self.moved_at: dict[Origin, int] = {}
        """The last offset at which that of one origin began anew, because it arrives over another link."""
        self.left_at: dict[SiteId, int] = {}
        """The last offset at which the filters of a site were removed, because it is no neighbour any more."""
        self._covered_since_repair: set[Origin] | None = None
        """Origins whose coverage has begun anew since a repair; None: there was no repair."""
        self.version = 0
        """A counter that grows whenever anything except position and acceptance may have changed."""
        self._followed: dict[SiteId, set[str]] = {}
        """Neighbours whose wants are followed (:meth:`follow_wants`)."""

    @property
    def tree(self) -> Tree:
        """The dispatching tree over which this site forwards."""
        return self.acceptance.tree

    @property
    def origin(self) -> Origin:
        """The origin of notifications that are first appended here, in the present log epoch."""
        return self.acceptance.origin

    @property
    def repaired(self) -> int:
        """The offset up to which unreadable records were repaired (handover rule 29); NOTHING (-1): none was."""
        return self.acceptance.repaired

    @property
    def is_broken(self) -> bool:
        """Whether this proxy's state may lack something that others have: a record could not be read (handover rule
        29).
        """
        return self.damaged != NOTHING

    @property
    def ended(self) -> dict[Origin, EndedOrigin]:
        """The origins of earlier log epochs, of this site and of others, with the end of each (handover rule 27)."""
        return self.acceptance.ended

    @property
    def frontier(self) -> dict[Origin, int]:
        """The frontier of the log: by origin, the offset up to which it is complete for all filters in force."""
        return self.acceptance.frontier

    @property
    def upstream(self) -> dict[Origin, SiteId]:
        """The neighbour over whose link each origin of another site arrives; one that is absent has no link yet."""
        return self.acceptance.upstream

    def begin(self, first: int, known: Snapshot | None, log_epoch: int = 1) -> None:
        """Move this state, before more is folded, to a later position, where the log's beginning is gone: to the
        snapshot, or to the first record. Nothing changes if the state is that far already.

        A log whose first record is behind the snapshot, or without a snapshot, begins at its first record: the records
        before are lost. A snapshot is made once a minute, and retention is longer than that.

        Args:
            first: the offset of the first record that the log keeps.
            known: the snapshot of the changelog; None: there is none.
            log_epoch: of the record at `first`; used where there is no snapshot.
        """
        if known is not None and known.position > self.position:
            self._restore(known)
        if self.position < first:
            if known is None and log_epoch > 1:
                self.acceptance = Acceptance(self.site, mark=LogMark(log_epoch=log_epoch), tree=self.tree)
            self.position = first
            self.frontier[self.origin] = first - 1

    # ------------------------------------------------------------ folding

    def fold(self, offset: int, record: Record) -> list[Event]:
        """Apply the next record of the log; return its events, in order; empty: it changed nothing that a reader needs.

        The `mark` of the acceptance stays: :meth:`Acceptance.read` moves it, and the caller calls that for the last
        record of a batch.

        Args:
            offset: of the record, at or above :attr:`position`, which it advances.
            record: as the log has it.
        """
        events = self._apply(offset, record)
        if isinstance(record, OF_POSITION_ALONE):
            return events
        self.version += 1
        if self._followed:
            changed = [event.expression for event in events if isinstance(event, InterestChanged)]
            for followed in self._followed.values():
                followed.update(changed)
        return events

    def _apply(self, offset: int, record: Record) -> list[Event]:  # noqa: PLR0912 - a dispatch
        self.position = offset + 1
        match record:
            case Published():
                self.acceptance.advance(offset, record)
                return [NotificationArrived(self.origin, offset, record)]
            case Forwarded():
                return self._arrived(offset, record, NotificationArrived(record.origin, record.offset, record))
            case Progress():
                return self._arrived(offset, record, Advanced(record.origin, record.upto))
            case Effective():
                return self._effective(record)
            case InterestRegistered():
                return self._interest_registered(offset, record)
            case InterestsExpired():
                return self._interests_expired(offset, record)
            case FiltersRequested():
                return self._filters_requested(offset, record)
            case LogBegun():
                return self._log_begun(offset, record)
            case OriginEnded():
                return self._origin_ended(offset, record)
            case Severed():
                return self._severed(offset, record)
            case Damaged():
                return self._broken(offset, record)
            case Repaired():
                return self._repaired(offset, record)
            case LinkLed():
                self.acceptance.advance(offset, record)
                return []
            case TreeEntered():
                return self._tree_entered(offset, record)
            case Closed() | Unreadable():
                return []
            case _:
                assert_never(record)

    def _arrived(self, offset: int, record: Forwarded | Progress, event: Event) -> list[Event]:
        before, known = self.frontier.get(record.origin, NOTHING), self.ended.get(record.origin)
        if not self.acceptance.advance(offset, record):
            return []
        if known is None or self.ended[record.origin] == known:
            return [event]
        return [
            OriginClosed(record.origin, before, is_first=False),
            *self._announce_ended([record.origin], exclude=record.link),
            event,
        ]

    def _broken(self, offset: int, record: Damaged) -> list[Event]:
        before = self.frontier[self.origin]
        self.acceptance.advance(offset, record)
        self.damaged = offset
        return [LogDamaged(offset, before)]

    def _repaired(self, offset: int, record: Repaired) -> list[Event]:
        """Remove interests and filters: proxies that could not read a record, and those that could, have the same state
        again.

        Frontiers stay. Those of other sites' origins may differ; so none is relied on before coverage begins anew.
        """
        before = self.repaired
        self.acceptance.advance(offset, record)
        if record.upto <= before:
            return []
        self.severed_at = offset
        if self.damaged <= record.upto:
            self.damaged = NOTHING
        interests, neighbours = self.all_interests(), self.neighbours
        self.neighbours = ()
        self.registered, self.interest_counts, self._protected_counts = {}, Counter(), {}
        self.neighbour_filters, self.effective = {}, {}
        self.requests = {}
        self._covered_since_repair = set()
        return [
            StateReset(),
            *(InterestChanged(interest) for interest in sorted(interests)),
            *(SeveranceAnnounced(neighbour, ()) for neighbour in neighbours),
            Advanced(self.origin, offset),
        ]

    def _tree_entered(self, offset: int, record: TreeEntered) -> list[Event]:
        before = self.neighbours
        moved = self.acceptance.enter_tree(offset, record)
        if moved is None:
            return []
        self.neighbours = self.tree.neighbours(self.site)
        events = self._uncover(moved)
        self.moved_at |= dict.fromkeys(moved, offset)
        events.append(Advanced(self.origin, offset))
        released: set[str] = set()
        for neighbour in set(before).difference(self.neighbours):
            self.left_at[neighbour] = offset
            released.update(self.neighbour_filters.pop(neighbour, NeighbourFilters()).filters)
            del self.requests[neighbour]
        for neighbour in self.neighbours:
            self.requests.setdefault(neighbour, RequestedFilters())
        events += [InterestChanged(expression) for expression in sorted(released)]
        self._must_request_all = True
        return events + self._rewant(offset, ())

    def _uncover(self, origins: Collection[Origin]) -> list[Event]:
        """End the coverage of these origins: of all expressions, and of what was announced to neighbours."""
        events: list[Event] = []
        for expression, known in list(self.effective.items()):
            for origin in [origin for origin in known if origin in origins]:
                del known[origin]
                events.append(Interrupted(expression, origin))
                for requested in self.neighbour_filters.values():
                    if expression in requested.filters:
                        requested.filters[expression].above.pop(origin, None)
            if not known:
                del self.effective[expression]
        return events

    def _severed(self, offset: int, record: Severed) -> list[Event]:
        if not self.acceptance.advance(offset, record):
            return []
        arriving = self._arriving(record.link)
        if record.origins:
            arriving.intersection_update(record.origins)
            self.moved_at |= dict.fromkeys(record.origins, offset)
        else:
            self.severed_at = offset
        events = self._uncover(arriving)
        concerned = [
            neighbour for neighbour in self.neighbours if neighbour != record.link and neighbour not in record.path
        ]
        events += [
            SeveranceAnnounced(neighbour, record.path, record.origins)
            for neighbour in concerned
            if len(record.path) < MAX_SITES_PASSED
        ]
        return [*events, Advanced(self.origin, offset)]

    def _log_begun(self, offset: int, record: LogBegun) -> list[Event]:
        before, frontier, known = self.origin, dict(self.frontier), set(self.ended)
        ended = self.acceptance.begin_log(offset, record)
        # A reader that reads on to here has read, beyond the end, records that were appended before all knew of it.
        if before in ended:
            frontier[before] = min(frontier.get(before, NOTHING), self.ended[before].end)
        events: list[Event] = [
            OriginClosed(origin, frontier.get(origin, NOTHING), origin not in known) for origin in ended
        ]
        events += self._announce_ended(ended)
        if self.origin != before:
            for neighbour, requested in self.neighbour_filters.items():
                for expression, installed in requested.filters.items():
                    events += self._announce(neighbour, expression, installed, self.origin, offset)
        # Requests of this site, or their withdrawals, may have been lost with the end, and its neighbours know them.
        return events + self._request_again(offset, self.neighbours) if ended else events

    def _origin_ended(self, offset: int, record: OriginEnded) -> list[Event]:
        before, is_first = self.frontier.get(record.origin, NOTHING), record.origin not in self.ended
        known, arriving = self.ended.get(record.origin), self._arriving(record.link)
        self.acceptance.advance(offset, record)
        if self.ended.get(record.origin) == known:
            return []
        events: list[Event] = [OriginClosed(record.origin, before, is_first)]
        events += self._announce_ended([record.origin], exclude=record.link)
        if not is_own_loss(record):
            return events
        # A neighbour that lost the end of its log may have lost our requests: what arrives over it has a hole, and
        # those who have it from us are told of that before what passes over the hole.
        holed = tuple(sorted(arriving.difference(self.ended)))
        events += self._request_again(offset, [record.link])
        if holed:
            self.moved_at |= dict.fromkeys(holed, offset)
            others = [neighbour for neighbour in self.neighbours if neighbour != record.link]
            events += [SeveranceAnnounced(neighbour, (), holed) for neighbour in others]
        return [*events, Advanced(self.origin, offset)]

    def _arriving(self, link: SiteId) -> set[Origin]:
        """Return the origins that arrive over a link."""
        return {origin for origin, known in self.upstream.items() if known == link}

    def _request_again(self, offset: int, neighbours: Iterable[SiteId]) -> list[Event]:
        """Request the same filters by new installations: it is unknown how far the earlier ones reached (rule 27)."""
        events: list[Event] = []
        for neighbour in neighbours:
            requests = self._requests_of(neighbour)
            events += self._uncover({origin for origin in self._arriving(neighbour) if origin not in self.ended})
            if requests.installations:
                self._forget_coverage(neighbour, requests.needed)
                requests.request_again(self._installation(offset))
                self._note(neighbour, requests.installations)
                events.append(WantsChanged(neighbour))
        return events

    def _installation(self, offset: int) -> int:
        """Return the number of an installation at this offset: it is not that of any earlier log epoch."""
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
        requests = self._requests_of(record.link)
        if requests.installations.get(record.expression) != record.installation:
            return []
        events: list[Event] = []
        seen, above = self.frontier.setdefault(record.origin, NOTHING), record.above
        if self._covered_since_repair is not None and record.origin not in self._covered_since_repair:
            # A proxy that could not read a record of the origin learns here how far it had come.
            self._covered_since_repair.add(record.origin)
            if above > seen:
                self.frontier[record.origin] = above
                events.append(Advanced(record.origin, above))
        for expression in requests.carried_by(record.expression):
            events += self._cover(expression, record.origin, above, seen, record.link)
        return events

    def _cover(self, expression: str, origin: Origin, announced: int, seen: int, link: SiteId) -> list[Event]:
        """Record that the log has every match of an expression above an offset.

        Args:
            expression: that is requested over the link, or covered by what is.
            origin: of the matches.
            announced: the offset, as the neighbour or a covering expression says.
            seen: the frontier of the origin.
            link: over which the origin arrives.
        """
        known = self.effective.setdefault(expression, {})
        before = known.get(origin)
        if before is not None and announced <= max(seen, before):
            return []
        above = known[origin] = max(announced, seen)
        events: list[Event] = [Covered(expression, origin, above)]
        if before is not None:
            events.append(Interrupted(expression, origin))
        for neighbour, requested in self.neighbour_filters.items():
            installed = requested.filters.get(expression)
            if installed and neighbour != link:
                events += self._announce(neighbour, expression, installed, origin, above)
        return events

    def _interest_registered(self, offset: int, record: InterestRegistered) -> list[Event]:
        key = (record.proxy, record.session)
        before = self._release(key)
        after: dict[str, tuple[Protection, ...]] = {}
        if record.expressions:
            interest = self.registered[key] = RegisteredInterest(
                record.incarnation, record.expressions, record.protections
            )
            after = interest.by_protection()
            self._count_interests(after)
        released = frozenset(before.keys() - after.keys())
        events: list[Event] = [InterestWithdrawn(record.proxy, record.session, released)] if released else []
        events += [
            InterestChanged(expression)
            for expression in sorted({*before, *after})
            if before.get(expression) != after.get(expression)
        ]
        toggled = [expression for expression in {*before, *after} if before.get(expression) != after.get(expression)]
        return events + self._rewant(offset, toggled)

    def _interests_expired(self, offset: int, record: InterestsExpired) -> list[Event]:
        removed = [
            key
            for key, interest in self.registered.items()
            if key[0] == record.proxy and interest.incarnation == record.incarnation
        ]
        released = set[str]().union(*(self._release(key) for key in removed))
        changed = [InterestChanged(expression) for expression in sorted(released)]
        return [*changed, *self._rewant(offset, released), RegistrationsExpired(record.proxy, record.incarnation)]

    def _count_interests(self, held: Mapping[str, tuple[Protection, ...]]) -> None:
        for expression, protections in held.items():
            if protections != (OPEN,) and expression not in self._protected_counts:
                self._protected_counts[expression] = +Counter({OPEN: self.interest_counts[expression]})
            self.interest_counts[expression] += 1
            if expression in self._protected_counts:
                self._protected_counts[expression].update(protections)

    def _release(self, key: tuple[ProxyId, SessionId]) -> dict[str, tuple[Protection, ...]]:
        """Remove an interest; return its expressions, with their keys."""
        interest = self.registered.pop(key, None)
        released = interest.by_protection() if interest else {}
        for expression, protections in released.items():
            self.interest_counts[expression] -= 1
            if expression in self._protected_counts:
                self._protected_counts[expression] -= Counter(protections)
            if not self.interest_counts[expression]:
                del self.interest_counts[expression]
                self._protected_counts.pop(expression, None)
        return released

    def _filters_requested(self, offset: int, record: FiltersRequested) -> list[Event]:
        if record.link not in self.neighbours or record.tree_epoch != self.tree.epoch:
            return []
        requested = self.neighbour_filters.setdefault(record.link, NeighbourFilters())
        changes = requested.apply(record, self.frontier)
        if changes is None:
            return []
        events: list[Event] = []
        for expression, installed in changes.installed.items():
            events += self._installed(record.link, expression, installed)
        events += [InterestChanged(expression) for expression in sorted(changes.changed)]
        return events + self._rewant(offset, changes.changed)

    def _installed(self, neighbour: SiteId, expression: str, installed: Filter) -> list[Event]:
        own = self.frontier[self.origin]
        events = self._announce(neighbour, expression, installed, self.origin, own)
        for origin, above in self.effective.get(expression, {}).items():
            if self.upstream.get(origin) != neighbour:
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
        """Compute the requests to each neighbour again: what is wanted here, and what the other neighbours request.

        Only expressions that are `concerned` can have changed; there may be very many others.
        """
        if self._must_request_all:
            self._must_request_all = False
            asked = (neighbour_filters.filters for neighbour_filters in self.neighbour_filters.values())
            needed = (requests.needed for requests in self.requests.values())
            concerned = set(self.interest_counts).union(*asked, *needed)
        concerned = sorted(concerned)
        events: list[Event] = []
        for neighbour in self.neighbours:
            requests, keys = self.requests[neighbour], {}
            for expression in concerned:
                if wanted_by := self.interests(expression, neighbour):
                    keys[expression] = wanted_by != {OPEN}
            removed = [
                expression for expression in concerned if expression in requests.needed and expression not in keys
            ]
            added = {
                expression: is_apart
                for expression, is_apart in keys.items()
                if (known := requests.needed.get(expression)) is None or known.is_apart is not is_apart
            }
            changes = requests.change(added, removed, self._installation(offset))
            self._forget_coverage(neighbour, removed)
            for expression in changes.newly_covered:
                events += self._cover_as(requests.carrier_of(expression), expression, neighbour)
            if changes.changed:
                self._note(neighbour, changes.changed)
                events.append(WantsChanged(neighbour))
        return events

    def _cover_as(self, cover: str, expression: str, neighbour: SiteId) -> list[Event]:
        """Count an expression as covered from where on the one that covers it is, where nothing is known of it yet."""
        events: list[Event] = []
        for origin, above in self.effective.get(cover, {}).items():
            if self.upstream.get(origin) == neighbour and origin not in self.effective.get(expression, {}):
                events += self._cover(expression, origin, above, above, neighbour)
        return events

    def _note(self, neighbour: SiteId, expressions: Iterable[str]) -> None:
        if neighbour in self._followed:
            self._followed[neighbour].update(expressions)

    def _forget_coverage(self, neighbour: SiteId, expressions: Iterable[str]) -> None:
        """Forget from where on these are covered, of the origins that arrive over one link."""
        for expression in expressions:
            known = self.effective.get(expression, {})
            for origin in [origin for origin in known if self.upstream.get(origin) == neighbour]:
                del known[origin]
            if not known:
                self.effective.pop(expression, None)

    def _requests_of(self, neighbour: SiteId) -> RequestedFilters:
        return self.requests.get(neighbour) or RequestedFilters()

    # ------------------------------------------------------------ queries

    def interests(self, expression: str, exclude: SiteId | None = None) -> frozenset[Protection]:
        """Return the keys by which the expression is wanted here, or behind a neighbour; empty: nobody wants it.

        Args:
            expression: in its canonical text.
            exclude: a neighbour that does not count; None: all count.
        """
        found = set(self._protected_counts.get(expression) or ((OPEN,) if expression in self.interest_counts else ()))
        for neighbour, requested in self.neighbour_filters.items():
            installed = requested.filters.get(expression)
            if installed is not None and neighbour != exclude:
                found.update(installed.protections)
        return frozenset(found)

    def all_interests(self) -> set[str]:
        """Return all expressions, canonical, that are wanted here or behind a neighbour."""
        return set(self.interest_counts).union(*(requested.filters for requested in self.neighbour_filters.values()))

    def filters_of(self, neighbour: SiteId) -> NeighbourFilters:
        """Return the filters that a neighbour requests of this site; empty ones, of no leader, if it never has."""
        return self.neighbour_filters.get(neighbour) or NeighbourFilters()

    def requested(self, neighbour: SiteId) -> Mapping[str, int]:
        """Return the expressions that this site requests of a neighbour, with the numbers of their installations;
        empty: it requests nothing there. The mapping is not to be changed.
        """
        return self._requests_of(neighbour).installations

    def covered(self, neighbour: SiteId) -> int:
        """Return how many expressions this site needs of a neighbour and does not request there, because another one
        covers them.
        """
        requests = self._requests_of(neighbour)
        return len(requests.needed) - len(requests.installations)

    def wanted(self, neighbour: SiteId, expression: str) -> Wanted | None:
        """Return the number of the installation, and the keys, sorted, with which this site requests the expression of
        a neighbour; None: it does not request it there. Keys only say to whom nobody listens (quench), so that past
        LINK_KEYS of them the expression is requested for everybody: a request has to fit into one record.

        Args:
            neighbour: the site that is requested of.
            expression: in its canonical text.
        """
        installation = self.requested(neighbour).get(expression)
        if installation is None:
            return None
        protections = self.interests(expression, neighbour)
        if len(protections) + sum(len(protection.keys) for protection in protections) > LINK_KEYS:
            return (installation, (OPEN,))
        return (installation, tuple(sorted(protections)))

    def follow_wants(self, neighbour: SiteId) -> set[str]:
        """Return a set to which every later :meth:`fold` adds the expressions whose :meth:`wanted` may have changed.

        The caller may remove elements. Nothing is added after the next call for that neighbour, or
        :meth:`follow_wants_no_more`.
        """
        followed = self._followed[neighbour] = set()
        return followed

    def follow_wants_no_more(self, neighbour: SiteId) -> None:
        """Add nothing more to the set that :meth:`follow_wants` returned for that neighbour; no effect if there is
        none.
        """
        self._followed.pop(neighbour, None)

    def covered_above(self, origin: Origin, expressions: Iterable[str]) -> int | None:
        """Return the offset above which this log has all matches of all these expressions; None: not known yet
        (handover rule 9).

        For an origin of this site, or one that has ended, it is NOTHING (-1): the log has all of it that there is.

        Args:
            origin: of the matches.
            expressions: in their canonical texts.
        """
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

    def announcements_in_force(self, neighbour: SiteId) -> list[Effective]:
        """Return the announcements in force for that neighbour, to be repeated when it resumes (handover rule 12).

        They include those for filters that the neighbour requested only after it opened the link, if the log has these
        already.
        """
        return [
            self._announcement(expression, installed, origin, above)
            for expression, installed in self.filters_of(neighbour).filters.items()
            for origin, above in installed.above.items()
        ]

    def continued(self, frontier: Mapping[Origin, int]) -> dict[Origin, int]:
        """Return a frontier with the following origin added for each of its origins that has ended (handover rule 27).

        A reader with a position in an origin has one in the next: none of that is passed over.

        Args:
            frontier: by origin, the offset up to which the reader has all; it is not changed.
        """
        found = dict(frontier)
        for origin, known in sorted(self.ended.items(), key=lambda item: log_epoch_of(item[0])):
            if origin in found:
                found.setdefault(known.following, known.begins)
        return found

    def log_epoch_at(self, offset: int) -> int:
        """Return the log epoch of the site's log to which the record at this offset belongs, as far as the log was
        folded; 1 where no later one is known to have begun below it.
        """
        begun = [ended_origin.following for ended_origin in self.ended.values() if ended_origin.begins < offset]
        return max((log_epoch_of(origin) for origin in begun if site_of(origin) == self.site), default=1)

    def by_origin(self, offsets: Sequence[int]) -> list[tuple[Origin, list[int]]]:
        """Return offsets of notifications in the site's log, at least one, in their order and by the origins that they
        are of, as far as the log was folded: an answer to an append may come after the log has entered another log
        epoch above it.
        """
        first = self.log_epoch_at(min(offsets))
        if first == self.log_epoch_at(max(offsets)):
            return [(origin_of(self.site, log_epoch=first), [*offsets])]
        runs = groupby(offsets, self.log_epoch_at)
        return [(origin_of(self.site, log_epoch=log_epoch), [*run]) for log_epoch, run in runs]

    def ended_origins(self, neighbour: SiteId) -> list[OriginEnded]:
        """Return the origins that have ended, to be announced again to that neighbour when it resumes (handover rule
        12).

        Those that arrive over the neighbour's own link are left out.
        """
        return [self._ended_record(origin) for origin in self.ended if self.upstream.get(origin) != neighbour]

    # ------------------------------------------------------------ snapshots

    def snapshot(self) -> bytes:
        """Return the state as bytes, sealed by a checksum, for :func:`read_snapshot` and :meth:`restore`."""
        kept = msgspec.msgpack.encode(
            Snapshot(
                position=self.position,
                frontier=self.frontier,
                registered=[(proxy, session, interest) for (proxy, session), interest in self.registered.items()],
                neighbour_filters=self.neighbour_filters,
                requests={neighbour: requests.needed for neighbour, requests in self.requests.items()},
                effective=self.effective,
                link_epochs=self.acceptance.link_epochs,
                upstream=self.acceptance.upstream,
                mark=self.acceptance.mark,
                ended=self.acceptance.ended,
                damaged=self.damaged,
                repaired=self.repaired,
                severed_at=self.severed_at,
                moved_at=self.moved_at,
                left_at=self.left_at,
                tree=self.tree,
                covered_since_repair=None
                if self._covered_since_repair is None
                else tuple(sorted(self._covered_since_repair)),
            )
        )
        return sealed(kept)

    @classmethod
    def restore(cls, site: SiteId, neighbours: Iterable[SiteId], data: bytes) -> SiteState:
        """Return the state of a snapshot.

        Args:
            site: whose log it is.
            neighbours: the sites that it forwards to as long as the log names no tree; the requests to a new one follow
                at the next change.
            data: of :meth:`snapshot`.

        Raises:
            BadRecord: it is damaged, or no snapshot.
        """
        state = cls(site, neighbours)
        state._restore(read_snapshot(data))
        return state

    def resume_at(self, position: int, acceptance: bytes) -> None:
        """Continue to fold at `position`, which is not below the snapshot's. Call it once, on a state that
        :meth:`restore` made, before the first fold. The records between the two have not changed the state; sessions
        may be further on, and pass over what is folded below their own positions.

        Args:
            position: the offset of the next record to fold.
            acceptance: the acceptance at `position`, encoded, as the store has it (:meth:`Acceptance.restore`).

        Raises:
            msgspec.DecodeError: `acceptance` is no snapshot of one; it has no checksum, so other damage is not noticed.
                The position is set already.
        """
        self.position = position
        self.acceptance = Acceptance.restore(self.site, acceptance)

    def _restore(self, snapshot: Snapshot) -> None:
        self.position = snapshot.position
        self.acceptance = Acceptance(
            self.site,
            snapshot.frontier,
            link_epochs=snapshot.link_epochs,
            upstream=snapshot.upstream,
            mark=snapshot.mark,
            ended=snapshot.ended,
            repaired=snapshot.repaired,
            tree=snapshot.tree if snapshot.tree.epoch != 0 else self.tree,
        )
        self.neighbours = self.tree.neighbours(self.site)
        self.registered = {(proxy, session): interest for proxy, session, interest in snapshot.registered}
        self.interest_counts, self._protected_counts = Counter(), {}
        for interest in self.registered.values():
            self._count_interests(interest.by_protection())
        self.neighbour_filters = snapshot.neighbour_filters
        self.requests = {neighbour: RequestedFilters(snapshot.requests.get(neighbour)) for neighbour in self.neighbours}
        self.effective = snapshot.effective
        self.damaged, self.severed_at = snapshot.damaged, snapshot.severed_at
        self.moved_at, self.left_at = snapshot.moved_at, snapshot.left_at
        self._covered_since_repair = (
            None if snapshot.covered_since_repair is None else set(snapshot.covered_since_repair)
        )

    def copy(self) -> SiteState:
        """Return an independent copy of the state; wants are not followed in it, and its `version` begins at 0."""
        return SiteState.restore(self.site, self.neighbours, self.snapshot())
