"""The backends of proxies as plain Python objects: a registry, a site log, a changelog, a store. Synchronous and dumb.

The world (chaos/simulator/world.py) decides when each action happens and whether its answer gets lost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from federation.highest_checkpoints import HighestCheckpoints
from federation.names import check_name
from federation.ports import (
    Claimed,
    DrainChanged,
    DrainRow,
    LeaderChanged,
    LinkChanged,
    LinkRow,
    OwnerChanged,
    ProxyDown,
    ProxyRow,
    ProxyUp,
    RegistryEvent,
    Reloaded,
    SiteForgotten,
    SiteLogRow,
    SiteSnapshot,
    TreeChosen,
    TreeRow,
)
from federation.site.acceptance import LogMark
from proxy.core.store_port import (
    Outdated,
    Policed,
    Restored,
    SavedSession,
    SessionChange,
    SiteCheckpoint,
    StoreBatch,
    Swept,
)
from proxy.session.retention import Mark, Window
from proxy.session.stored_notification import Entry
from waypost.checkpoint import Checkpoint, Descriptor, Rank, decode_checkpoint, encode_checkpoint
from waypost.errors import HistoryTruncated, StoreDamaged, StoreFailed
from waypost.identity import (
    NOTHING,
    Edge,
    Incarnation,
    Origin,
    Ownership,
    ProxyId,
    SessionId,
    SiteId,
    origin_of,
    without_row,
)
from waypost.records import Damaged, LogBegun, OriginEnded, Record, decode_record, encode_record


class PlainLog:
    """One site's log. Records that retention has removed are still there for the verdict."""

    def __init__(self, site: SiteId) -> None:
        self._site = site
        self._records: list[tuple[int, Record]] = []
        self._damaged: dict[int, Record] = {}
        """Offset -> the record before it was damaged."""
        self.was_damaged = False
        self.first = 0
        self.losses = 0
        """How often it has lost its end."""
        self.interruptions = 0
        """How often all connections to it have broken."""
        self.away_until = 0
        """The time until which it does not answer."""
        self.seen_below = 0
        """Below this offset some process has read, or was answered for an append."""

    @property
    def origin(self) -> Origin:
        """The origin of a notification that is appended now: the site, and the log epoch by the log's own records."""
        return self.origin_at(len(self))

    def origin_at(self, offset: int) -> Origin:
        """Return the origin of a notification at this offset: site, and log epoch by the records up to there."""
        epochs = [record.log_epoch for at, record in self.everything() if isinstance(record, LogBegun) and at <= offset]
        return origin_of(self._site, log_epoch=max(epochs, default=1))

    def lose_end(self, count: int) -> list[tuple[int, Record]]:
        """Lose the last `count` records, from 0 to all, as a broker that had not synced them. A log that has lost more
        than retention has left begins where it ends, as a log of Kafka does.

        Returns:
            The lost records with their offsets, ascending; a damaged one as it was before.
        """
        self.losses += 1
        end = len(self._records) - count
        lost = self.everything()[end:]
        del self._records[end:]
        self.first = min(self.first, end)
        self.seen_below = min(self.seen_below, len(self))
        self._damaged = {at: record for at, record in self._damaged.items() if at < end}
        return lost

    def has(self, mark: LogMark) -> bool | None:
        """Tell whether the record at the offset of a mark is the one that was read (handover rule 27).

        Returns:
            None: no comparison is possible, for the mark has no checksum, or the log has no readable record at that
                offset.
        """
        if not mark.is_comparable or not self.first <= mark.offset < len(self) or mark.offset in self._damaged:
            return None
        return mark.is_confirmed_by(*self._records[mark.offset])

    def damage(self, offset: int) -> bool:
        """Flip a bit in the record at `offset`, which must be in the log: from now on it is read as Damaged.

        Records about the log itself are not damaged: they are appended again only when a proxy begins.

        Returns:
            False, and nothing is changed: retention has removed the record, it is damaged already, or is about the log
                itself.
        """
        at, record = self._records[offset]
        if at < self.first or isinstance(record, LogBegun | OriginEnded | Damaged):
            return False
        self.was_damaged = True
        self._damaged[offset] = record
        self._records[offset] = (at, Damaged("a bit was turned over"))
        return True

    def append(self, records: list[Record]) -> list[int]:
        """Append copies of records in this order; return their offsets, ascending."""
        start = len(self)
        self._records += enumerate([decode_record(encode_record(record)) for record in records], start)
        return list(range(start, len(self)))

    def read(self, offset: int, upto: int | None = None) -> list[tuple[int, Record]]:
        """Return records and their offsets from `offset` to below `upto`, ascending; `upto` None: to the end.

        Empty: there are none yet.

        Raises:
            HistoryTruncated: retention has removed the record at `offset`.
        """
        if offset < self.first:
            raise HistoryTruncated(f"offset {offset} is gone; the log begins at {self.first}", first=self.first)
        return self._records[offset:upto]

    def truncate(self, before: int) -> None:
        """Let the log begin at offset `before`, or at its end if that is lower, as retention does; a log that begins
        there or later is not changed.
        """
        self.first = max(self.first, min(before, len(self)))

    def everything(self) -> list[tuple[int, Record]]:
        """Return all records that were not lost, with their offsets, ascending.

        Those that retention has removed are there too, and damaged ones as they were.
        """
        return [(at, self._damaged.get(at, record)) for at, record in self._records]

    def __len__(self) -> int:
        return len(self._records)


class PlainRegistry:
    """Rows, leases, and events for watches. Its methods are like those of the port federation.ports.Registry."""

    def __init__(self) -> None:
        self.owners: dict[SessionId, Ownership] = {}
        self.generation_floor = 0
        self.incarnations: dict[tuple[ProxyId, Incarnation], tuple[ProxyRow, int]] = {}
        self.leaders: dict[str, tuple[tuple[ProxyId, Incarnation] | None, int]] = {}
        self.links: dict[Edge, LinkRow] = {}
        self.tree = TreeRow()
        self.drains: dict[ProxyId, DrainRow] = {}
        self.changelogs: dict[SiteId, str] = {}
        self.site_logs: dict[SiteId, SiteLogRow] = {}
        self.noted: dict[SessionId, Rank] = {}
        self.replaced: set[tuple[ProxyId, Incarnation]] = set()
        """Incarnations in whose place another one of the name was announced."""
        self.forgotten: dict[tuple[ProxyId, Incarnation], int] = {}
        """Incarnation whose lease was lost when the registry was put back -> the time until which it may act."""
        self.restored = 0
        """How often it was put back to a copy."""
        self.events: list[RegistryEvent] = []
        self.tree_events: list[LeaderChanged | LinkChanged | TreeChosen] = []

    def copy(self) -> PlainRegistry:
        """Return a registry of its own with the rows that this one has now, and without its pending events."""
        copy = PlainRegistry()
        copy.put_back(self)
        return copy

    def put_back(self, copy: PlainRegistry) -> None:
        """Replace all rows by those of a copy, count that in :attr:`restored`, and drop the pending events.

        An incarnation that loses its lease so may act until the lease would have ended: :meth:`lease_until`.
        """
        self.forgotten |= {incarnation: until for incarnation, (_, until) in self.incarnations.items()}
        self.owners, self.generation_floor = dict(copy.owners), copy.generation_floor
        self.incarnations, self.leaders = dict(copy.incarnations), dict(copy.leaders)
        self.changelogs, self.site_logs, self.noted = dict(copy.changelogs), dict(copy.site_logs), dict(copy.noted)
        self.links, self.tree, self.drains = dict(copy.links), copy.tree, dict(copy.drains)
        self.restored += 1
        self.events.clear()
        self.tree_events.clear()

    def claim_site_log(self, site: SiteId, expected: SiteLogRow | None, new: SiteLogRow) -> bool:
        """Compare and set the row of a site's log.

        Args:
            site: whose log it is.
            expected: the row that is to be replaced; None: there is none.
            new: the row in its place.

        Returns:
            Whether the row was as expected, and is `new` now.
        """
        if self.site_logs.get(site) != expected:
            return False
        self.site_logs[site] = new
        return True

    def note_checkpoints(self, ranks: Mapping[SessionId, Rank]) -> None:
        """Note the rank of a durable checkpoint of each session; a lower one, or one of no row, changes nothing."""
        for session, rank in ranks.items():
            if session in self.owners:
                self.noted[session] = max(rank, self.noted.get(session, rank))

    def owner(self, session: SessionId) -> Ownership | None:
        """Return a session's row; for a session without one, the row that it counts as.

        That is a deleted row, or None where no row was ever removed (:func:`waypost.identity.without_row`, handover
        rule 28).
        """
        return self.owners.get(session) or without_row(self.generation_floor)

    def forget(self, deleted: Mapping[SessionId, Ownership]) -> None:
        """Remove the rows of deleted sessions that are still as given, with the noted ranks of their checkpoints; each
        removal adds an event for the watches.

        The floor rises to the generations of all given rows (:meth:`owner`), also of those that stay.

        Args:
            deleted: session -> its row as it is expected to be; a row that has changed, or is not a deleted one, stays.
        """
        self.generation_floor = max([self.generation_floor, *(ownership.generation for ownership in deleted.values())])
        for session, expected in deleted.items():
            if expected.deleted and self.owners.get(session) == expected:
                del self.owners[session]
                self.noted.pop(session, None)
                self.events.append(OwnerChanged(session, None))

    def claim(self, session: SessionId, expected: Ownership | None, new: Ownership) -> Claimed:
        """Compare and set a session's row, or create it; if that succeeds, add an event for the watches.

        Args:
            session: whose row it is.
            expected: what :meth:`owner` is to return now; None: the session never had a row.
            new: the row in its place.

        Returns:
            Whether the row is `new` now, and the row in force.
        """
        if self.owner(session) != expected:
            return Claimed(False, self.owner(session))
        self.owners[session] = new
        self.events.append(OwnerChanged(session, new))
        return Claimed(True, new)

    def announce(
        self,
        row: ProxyRow,
        until_ms: int,
        *,
        earlier: Collection[Incarnation] | None = None,
        replace: bool = False,
    ) -> None:
        """Add a proxy's row under a lease, note the address of its site's changelog, and add an event for the watches.

        An incarnation of the name whose place it takes is not renewed any more.

        Args:
            row: of the proxy.
            until_ms: when its lease ends, by the world's clock.
            earlier: incarnations of this instance that have ended, and may be replaced; None: all of them have.
            replace: take the name from any holder.

        Raises:
            NameInUse: another one has the name.
        """
        of_name = [name for name in self.incarnations if name[0] == row.proxy]
        holders = (self.incarnations[name][0] for name in of_name if name not in self.replaced)
        check_name(row, next(holders, None), earlier=earlier, replace=replace)
        self.replaced.update(of_name)
        self.incarnations[row.proxy, row.incarnation] = (row, until_ms)
        self.changelogs[row.site] = row.changelog
        self.events.append(ProxyUp(row))

    def renew(self, proxy: ProxyId, incarnation: Incarnation, until_ms: int) -> bool:
        """Let the lease of an incarnation end at `until_ms` instead. Call :meth:`expire` before: a lease whose time is
        over counts until then.

        Returns:
            False, and nothing is changed: the lease has ended, or another incarnation has taken the place of this one.
        """
        known = self.incarnations.get((proxy, incarnation))
        if known is None or (proxy, incarnation) in self.replaced:
            return False
        self.incarnations[proxy, incarnation] = (known[0], until_ms)
        return True

    def revoke(self, proxy: ProxyId, incarnation: Incarnation) -> None:
        """End the lease of an incarnation, if it has one, and its leadership of links; adds events for the watches."""
        if self.incarnations.pop((proxy, incarnation), None) is not None:
            self._end_leadership((proxy, incarnation))
            self.events.append(ProxyDown(proxy, incarnation))

    def _end_leadership(self, incarnation: tuple[ProxyId, Incarnation]) -> None:
        for link in self.leaders:
            self.resign(link, incarnation)

    def resign(self, link: str, incarnation: tuple[ProxyId, Incarnation]) -> None:
        """End the leadership of a link, with an event for the watches, if this incarnation leads the link.

        Args:
            link: its name (:func:`waypost.identity.link_name`).
            incarnation: proxy and incarnation of the leader.
        """
        leader, epoch = self.leaders.get(link, (None, 0))
        if leader == incarnation:
            self.leaders[link] = (None, epoch)
            self.tree_events.append(LeaderChanged(link, None, epoch))

    def set_link(self, row: LinkRow, *, seed: bool) -> None:
        """Write the row of a link, and add an event for the watches; with `seed` only if the link has no row yet."""
        if not seed or row.sites not in self.links:
            self.links[row.sites] = row
            self.tree_events.append(LinkChanged(row))

    def forget_site(self, site: SiteId) -> bool:
        """Remove the address of a site's changelog, and add an event for the watches.

        Returns:
            False, and nothing is removed: a proxy of the site has a lease. True: the registry has no address of it any
                more.
        """
        if any(row.site == site for row, _ in self.incarnations.values()):
            return False
        if self.changelogs.pop(site, None) is not None:
            self.events.append(SiteForgotten(site))
        return True

    def claim_tree(self, expected: TreeRow, new: TreeRow) -> bool:
        """Compare and set the row of the dispatching tree; return whether it was as expected.

        Success adds an event for the watches.
        """
        if self.tree != expected:
            return False
        self.tree = new
        self.tree_events.append(TreeChosen(new))
        return True

    def lease_until(self, proxy: ProxyId, incarnation: Incarnation) -> int:
        """Return the time, by the world's clock in ms, until which an incarnation may act, also if that is past.

        0: it has no lease, and lost none when the registry was put back to a copy.
        """
        known = self.incarnations.get((proxy, incarnation))
        return max(known[1] if known else 0, self.forgotten.get((proxy, incarnation), 0))

    def elect(self, link: str, incarnation: tuple[ProxyId, Incarnation]) -> int | None:
        """Make an incarnation the leader of a link, unless another one with a lease leads the link. Call :meth:`expire`
        before: a lease whose time is over counts until then.

        An election adds an event for the watches.

        Args:
            link: its name (:func:`waypost.identity.link_name`).
            incarnation: proxy and incarnation of the candidate.

        Returns:
            The link's epoch, which grows with each election, also of the same leader; None if another incarnation leads
                the link, or this one has no lease.
        """
        leader, epoch = self.leaders.get(link, (None, 0))
        if leader in self.incarnations and leader != incarnation:
            return None
        if incarnation not in self.incarnations:
            return None
        self.leaders[link] = (incarnation, epoch + 1)
        self.tree_events.append(LeaderChanged(link, incarnation[0], epoch + 1))
        return epoch + 1

    def prolong(self, until_ms: int) -> None:
        """Let every lease that ends before `until_ms` end then."""
        self.incarnations = {
            incarnation: (row, max(until_ms, until)) for incarnation, (row, until) in self.incarnations.items()
        }

    def expire(self, now_ms: int) -> None:
        """End the leases that end at `now_ms` or earlier, and leaderships under them, with events for the watches."""
        for incarnation in [
            incarnation for incarnation, (_, until_ms) in self.incarnations.items() if until_ms <= now_ms
        ]:
            del self.incarnations[incarnation]
            self._end_leadership(incarnation)
            self.events.append(ProxyDown(*incarnation))

    def drain(self, proxy: ProxyId, row: DrainRow | None) -> None:
        """Write the order to drain a proxy, which adds an event for the watches; None: it is drained no more."""
        if row is None:
            self.drains.pop(proxy, None)
        else:
            self.drains[proxy] = row
        self.events.append(DrainChanged(proxy, row))

    def reloaded(self) -> Reloaded:
        """Return the event with all present rows, with which every watch begins."""
        proxies = {proxy: row for (proxy, _), (row, _) in self.incarnations.items()}
        leaders = {
            link: (leader[0], epoch) for link, (leader, epoch) in self.leaders.items() if leader in self.incarnations
        }
        return Reloaded(
            dict(self.owners),
            proxies,
            leaders,
            dict(self.changelogs),
            dict(self.drains),
            links=dict(self.links),
            tree=self.tree,
        )


class PlainChangelog:
    """One site's checkpoints, and the last snapshot of the site."""

    def __init__(self) -> None:
        self.highest = HighestCheckpoints()
        self.site: SiteSnapshot | None = None

    def put(self, checkpoint: Checkpoint) -> None:
        """Add a copy of a checkpoint; one that is there already changes nothing.

        Raises:
            CheckpointOutdated: there is a checkpoint of the session that counts more (handover rule 19).
        """
        self.highest.put(_copied(checkpoint))

    def forget(self, deleted: Mapping[SessionId, int]) -> None:
        """Remove the checkpoints of deleted sessions.

        Args:
            deleted: session -> the epoch up to which, inclusive, its checkpoints go; an unknown session changes
                nothing.
        """
        self.highest.forget(deleted)

    def put_site(self, snapshot: SiteSnapshot) -> None:
        """Replace the snapshot of the site, unless the present one has the same rank or a higher one."""
        if self.site is None or self.site.rank < snapshot.rank:
            self.site = snapshot

    def latest(self, session: SessionId) -> tuple[Checkpoint, ...]:
        """Return copies of a session's highest checkpoints: that of an owner, and behind it a first one that is higher.

        Empty: there is no checkpoint of the session. The port is :meth:`federation.ports.Changelog.latest`.
        """
        return tuple(map(_copied, self.highest.latest(session)))


def _copied(checkpoint: Checkpoint) -> Checkpoint:
    return decode_checkpoint(encode_checkpoint(checkpoint))


STORES_KEPT = 3
"""Writes that a store may lose."""
LOOKED_AT = 3
"""Entries that one read examines at least."""


@dataclass(slots=True, kw_only=True)
class PlainStore:
    """One proxy's store, which the simulator can cut off and damage. Its methods are like those of the port
    proxy.core.store_port.SessionStore.
    """

    site_checkpoint: tuple[int, bytes] | None = None
    site: SiteCheckpoint = field(default_factory=lambda: SiteCheckpoint(0, b"", b""))
    sessions: dict[SessionId, SavedSession] = field(default_factory=dict)
    descriptors: dict[SessionId, bytes] = field(default_factory=dict)
    rows: dict[SessionId, dict[int, Entry]] = field(default_factory=dict)
    marks: dict[SessionId, dict[int, Mark]] = field(default_factory=dict)
    damaged: set[tuple[SessionId, int]] = field(default_factory=set)
    """Entries with a flipped bit."""
    _earlier: deque[PlainStore] = field(default_factory=lambda: deque(maxlen=STORES_KEPT))
    """What was stored before each of the last writes."""

    def before(self, writes: int) -> PlainStore:
        """Return the store as it was before the last writes, as after a failure of power: they had not come to the disk
        yet.

        Args:
            writes: how many of them are lost, from 0; no more than STORES_KEPT are.
        """
        return [*self._earlier, self][-1 - min(writes, len(self._earlier))]

    def damage(self, pick: int) -> bool:
        """Flip a bit in one entry, so that each :meth:`entries` that looks at the entry raises StoreDamaged; other
        reads do not notice.

        Note that the damage goes by session and number: it also hits an entry that takes the place of this one later.

        Args:
            pick: any number, which picks the entry.

        Returns:
            False: the store has no entries.
        """
        entries = [(session, number) for session, rows in sorted(self.rows.items()) for number in rows]
        self.damaged.update(entries[pick % len(entries) :][:1] if entries else ())
        return bool(entries)

    def apply(self, batch: StoreBatch) -> None:
        """Write all changes of a batch, or none. Raises StoreFailed: a session to extend is not in the store."""
        # First what may not be possible: all or nothing.
        descriptors = {
            session_change.saved.id: msgspec.json.encode(session_change.saved.descriptor)
            for session_change in batch.changes
            if session_change.saved.descriptor is not None
        }
        if any(change.saved.id not in descriptors and change.saved.id not in self.sessions for change in batch.changes):
            raise StoreFailed("there is no such session to extend")
        self._earlier.append(
            PlainStore(
                site_checkpoint=self.site_checkpoint,
                site=self.site,
                sessions=dict(self.sessions),
                descriptors=dict(self.descriptors),
                rows=dict(self.rows),
                marks=dict(self.marks),
                damaged=set(self.damaged),
            )
        )
        self.site_checkpoint = (batch.position, batch.acceptance)
        if not batch.behind:
            self.site = SiteCheckpoint(
                *self.site_checkpoint, self.site.state if batch.site_state is None else batch.site_state
            )
        for session in [
            *batch.deleted,
            *(session_change.saved.id for session_change in batch.changes if session_change.replaces),
        ]:
            for kept in (self.sessions, self.descriptors, self.rows, self.marks):
                kept.pop(session, None)
        self.descriptors |= descriptors
        for change in batch.changes:
            self._change(change)

    def _change(self, change: SessionChange) -> None:
        saved = self.sessions[change.saved.id] = change.saved
        rows = self.rows.get(saved.id, {}) | {entry[0]: entry for entry in change.entries}
        self.rows[saved.id] = {
            number: row
            for number, row in rows.items()
            if number >= saved.first_number and number not in change.discarded and not _lies_in(change.removed, row)
        }
        marks = self.marks.get(saved.id, {}) | {mark.below: mark for mark in change.marks}
        self.marks[saved.id] = {below: mark for below, mark in marks.items() if below > saved.first_number}

    def load(self) -> Restored | None:
        """Return the contents, without the entries; None: nothing was ever written."""
        if self.site_checkpoint is None:
            return None
        sessions = [
            replace(saved, descriptor=msgspec.json.decode(self.descriptors[identity], type=Descriptor))
            for identity, saved in sorted(self.sessions.items())
        ]
        policed = {
            saved.id: Policed(
                [mark for _, mark in sorted(self.marks.get(saved.id, {}).items())],
                [(number, row[2]) for number, row in sorted(self.rows[saved.id].items())],
            )
            for saved in sessions
            if any(row.ttl_s or row.max_count for row in saved.descriptor.subscriptions)  # type: ignore[union-attr]
        }
        return Restored(*self.site_checkpoint, self.site, sessions, policed)

    def entries(self, session: SessionId, after: int, limit: int, passing: Mapping[Origin, int]) -> list[Entry]:
        """Return up to `limit` stored entries of a session with a number above `after`, in order; empty: none follow
        but such as `passing` leaves out.

        Args:
            session: whose entries they are.
            after: the number above which the entries begin.
            limit: the most entries to return.
            passing: entries at or below this frontier are left out, except the last one that this read looks at, if
                others follow. So fewer than `limit` do not mean that it was the end.

        Raises:
            StoreDamaged: an entry that this read looks at has a flipped bit.
        """
        rows = self.rows.get(session, {})
        numbers = sorted(rows)
        numbers = numbers[bisect_right(numbers, after) :]
        looked_at = [rows[number] for number in numbers[: max(limit, LOOKED_AT)]]
        if any((session, number) in self.damaged for number, *_ in looked_at):
            raise StoreDamaged("the checksum of an entry is wrong")
        last = looked_at[-1] if len(looked_at) < len(numbers) else None
        return [row for row in looked_at if row is last or row[1].offset > passing.get(row[1].origin, NOTHING)][:limit]

    def outdated(self, session: SessionId, windows: Sequence[Window], limit: int) -> Swept:
        """Return the first `limit` entries of a session, by number, that lie in one of the windows.

        Nothing is removed. The answer also has the lowest number that the store would keep without them.
        """
        rows = [row for _, row in sorted(self.rows.get(session, {}).items())]
        gone = [row for row in rows if _lies_in(windows, row)][:limit]
        lowest = min((row[0] for row in rows if row not in gone), default=None)
        return Swept(
            [Outdated(number, matched, stored.origin, stored.offset) for number, stored, matched in gone], lowest
        )


def _lies_in(windows: Sequence[Window], row: Entry) -> bool:
    return any(row[2] == window.matched and window.start <= row[0] < window.below for window in windows)
