"""The four ports in memory, for tests.

A storage outlives the handles upon it: close (or forget) a handle and open another one on the same storage,
and that is a crash and a restart. Several handles at a time are several processes. Time comes from a Clock;
nothing here draws a random number but the registry's secret, on which no simulation depends, so that one seed
gives one run.

Every storage can be made to fail: `away` refuses every action, and `answers_to_lose` performs that many actions and
then raises as if the answer was lost.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from federation.highest_checkpoints import HighestCheckpoints
from federation.interruption import Interruption
from federation.journal_segments import JournalSegments, Rotation
from federation.names import check_name
from federation.ports import (
    NO_TREE_ROW,
    SECRET_BYTES,
    WATCH_SIGN_S,
    Batch,
    Claimed,
    DrainChanged,
    DrainRow,
    LeaderChanged,
    Lease,
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
    WatchAlive,
)
from federation.versioned_condition import VersionedCondition
from waypost.checkpoint import Checkpoint, Rank
from waypost.clock import Clock
from waypost.errors import (
    HistoryTruncated,
    Internal,
    LogReplaced,
    LogUnavailable,
    RegistryUnavailable,
    Unreachable,
)
from waypost.facts import Fact, encode_fact
from waypost.identity import Edge, Incarnation, Ownership, ProxyId, SessionId, SiteId, without_row
from waypost.limits import LOG_BATCH
from waypost.records import Record


class Fallible:
    """The common part of the storages in memory: `changed` wakes those who wait for a change; `away` (every action
    fails) and `answers_to_lose` (so many actions are done, and their answers lost) are for tests to set.
    """

    error: type[Unreachable] = LogUnavailable

    def __init__(self) -> None:
        self.changed = VersionedCondition()
        self.away = False
        self.answers_to_lose = 0

    async def check_reachable(self) -> None:
        """Let other tasks run first, as during a real round trip; then raise LogUnavailable, of a registry
        RegistryUnavailable, if `away` is set. Every action of a handle begins with this call.
        """
        await asyncio.sleep(0)
        if self.away:
            raise self.error("the storage is away")

    def answer(self) -> None:
        """Wake whoever waits for a change of the storage; every action that changed something ends with this call.

        If `answers_to_lose` is above 0, it counts down by one, and the call raises LogUnavailable, of a registry
        RegistryUnavailable: the change stays made.
        """
        self.changed.notify()
        if self.answers_to_lose > 0:
            self.answers_to_lose -= 1
            raise self.error("the answer got lost")


# ---------------------------------------------------------------- the site log


class MemoryLogStorage(Fallible):
    """The records of a site log; handles are :class:`MemorySiteLog`."""

    def __init__(self) -> None:
        super().__init__()
        self.first = 0
        self.records: list[Record] = []

    @property
    def end(self) -> int:
        """The offset that the next record will have."""
        return self.first + len(self.records)

    def truncate(self, before: int) -> None:
        """Remove the records below offset `before`, as retention does; the end of the log stays."""
        gone = min(max(before - self.first, 0), len(self.records))
        del self.records[:gone]
        self.first += gone


class MemorySiteLog:
    """A site log in memory, for tests and the simulator."""

    def __init__(self, storage: MemoryLogStorage) -> None:
        self._storage = storage
        self._closed = False
        self._interruption = Interruption()

    async def start(self) -> None:
        """Connect to the log, before any other call. Raises LogUnavailable (:meth:`federation.ports.SiteLog.start`)."""
        await self._begin()

    async def append(self, records: Sequence[Record]) -> list[int]:
        """Append records in this order, once this handle is not interrupted; return their offsets
        (:meth:`federation.ports.SiteLog.append`).

        Raises:
            LogUnavailable: this handle is closed, or the storage is away; or the answer is lost, and the records are
                appended.
        """
        await self._begin()
        await self._interruption.wait_resumed()
        start = self._storage.end
        self._storage.records.extend(records)
        self._interruption.saw(self._storage.end)
        self._storage.answer()
        return list(range(start, self._storage.end))

    async def tail(self, offset: int) -> AsyncIterator[Batch]:
        """Yield every record from `offset` on, for ever, in batches that are not empty, also after an outage; nothing
        while this handle is interrupted (:meth:`federation.ports.SiteLog.tail`).

        Raises:
            HistoryTruncated: `offset` is older than the first record kept.
            LogReplaced: the log ends before `offset`, or has lost its end.
            LogUnavailable: this handle was closed.
        """
        self._interruption.saw(offset)
        while True:
            await self._interruption.wait_resumed()
            seen = self._storage.changed.version
            batch = self._slice(offset, LOG_BATCH)
            if batch:
                offset = batch[-1][0] + 1
                self._interruption.saw(offset)
                yield batch
                continue
            if offset > self._storage.end and not self._storage.away:
                end = self._storage.end
                raise LogReplaced(f"the log ends at {end}, and was read up to {offset}", end=end)
            await self._storage.changed.wait(seen)

    async def read(self, offset: int, limit: int) -> Batch:
        """Return up to `limit` records from `offset` on, with their offsets, ascending; empty: the log has none yet
        (:meth:`federation.ports.SiteLog.read`).

        Raises:
            HistoryTruncated: `offset` is older than the first record kept.
            LogUnavailable: the storage does not answer, or this handle is closed.
        """
        await self._begin()
        return self._slice(offset, limit)

    async def first_offset(self) -> int:
        """Return the offset of the first record kept; if none is, that of the next one. Raises LogUnavailable
        (:meth:`federation.ports.SiteLog.first_offset`).
        """
        await self._begin()
        return self._storage.first

    async def end_offset(self) -> int:
        """Return the end of the log: the offset that the next record will have. Raises LogUnavailable
        (:meth:`federation.ports.SiteLog.end_offset`).
        """
        await self._begin()
        return self._storage.end

    def interrupt(self) -> None:
        """Interrupt this handle, as an outage of the storage does: appends and tails wait until :meth:`resume`."""
        self._interruption.interrupt()

    @property
    def seen_below(self) -> int:
        """The offset below which every record was yielded by a tail of this handle, lies below the offset at which one
        of its tails began, or had its append answered here (:attr:`federation.ports.SiteLog.seen_below`).
        """
        return self._interruption.seen_below

    async def interrupted(self) -> None:
        """Wait for an interruption of this handle by :meth:`interrupt`; each is reported once
        (:meth:`federation.ports.SiteLog.interrupted`).
        """
        await self._interruption.wait_interrupted()

    def resume(self) -> None:
        """End an interruption, once the log is known to have everything that was read of it: appends and tails go on.
        No effect if another interruption has begun (:meth:`federation.ports.SiteLog.resume`).
        """
        self._interruption.resume()

    async def close(self) -> None:
        """Close this handle; calls under way, and tails, may raise LogUnavailable. The log stays
        (:meth:`federation.ports.SiteLog.close`).
        """
        self._closed = True
        self._interruption.close()
        self._storage.changed.notify()

    async def _begin(self) -> None:
        self._check_open()
        await self._storage.check_reachable()

    def _check_open(self) -> None:
        if self._closed:
            raise LogUnavailable("this handle of the log is closed")

    def _slice(self, offset: int, limit: int) -> Batch:
        self._check_open()
        if self._storage.away:
            return []
        start = offset - self._storage.first
        if start < 0:
            raise HistoryTruncated(
                f"offset {offset} is gone; the log begins at {self._storage.first}", first=self._storage.first
            )
        return list(enumerate(self._storage.records[start : start + limit], offset))


# ---------------------------------------------------------------- the registry


@dataclass(slots=True)
class _IncarnationRow:
    row: ProxyRow
    lease: int


@dataclass(slots=True)
class _Leader:
    proxy: ProxyId
    epoch: int
    lease: int


@dataclass(slots=True)
class _Term:
    deadline_ms: int
    superseded: bool = False


@dataclass(slots=True, kw_only=True)
class _Rows:
    owners: dict[SessionId, Ownership] = field(default_factory=dict)
    incarnations: dict[tuple[ProxyId, Incarnation], _IncarnationRow] = field(default_factory=dict)
    """In the order of the announcements: a later incarnation of a proxy is behind its earlier ones."""
    leaders: dict[str, _Leader] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    changelogs: dict[SiteId, str] = field(default_factory=dict)
    drains: dict[ProxyId, DrainRow] = field(default_factory=dict)
    terms: dict[int, _Term] = field(default_factory=dict)
    leases_granted: int = 0
    secret: bytes = b""
    site_logs: dict[SiteId, SiteLogRow] = field(default_factory=dict)
    generation_floor: int = 0
    noted: dict[SessionId, Rank] = field(default_factory=dict)
    links: dict[Edge, LinkRow] = field(default_factory=dict)
    tree: TreeRow = NO_TREE_ROW

    def owner(self, session: SessionId) -> Ownership | None:
        return self.owners.get(session) or without_row(self.generation_floor)


class MemoryRegistryStorage(Fallible):
    """The rows of a registry in memory, and its past changes; handles are :class:`MemoryRegistry`."""

    error = RegistryUnavailable

    def __init__(self) -> None:
        super().__init__()
        self.rows = _Rows()
        self.changes: list[RegistryEvent] = []
        self.compacted = 0
        """The number of changes that were removed; the position of changes[0]."""

    def compact(self) -> None:
        """Remove all past changes; a watch that has not seen them begins again with a Reloaded."""
        self.compacted += len(self.changes)
        self.changes.clear()
        self.changed.notify()

    def expire_leases(self, now_ms: int) -> None:
        """End the leases that have run out at `now_ms`. Any use of a handle calls it; a simulator may call it too."""
        for lease, term in list(self.rows.terms.items()):
            # The clock counts whole milliseconds: only the next one is certainly not too soon.
            if term.deadline_ms < now_ms:
                self.end_lease(lease)

    def end_lease(self, lease: int) -> None:
        """End the lease of this number now, with the rows under it; do nothing if it has ended."""
        if self.rows.terms.pop(lease, None) is None:
            return
        for link, leader in [item for item in self.rows.leaders.items() if item[1].lease == lease]:
            del self.rows.leaders[link]
            self.changes.append(LeaderChanged(link, None, leader.epoch))
        for name, _incarnation in [item for item in self.rows.incarnations.items() if item[1].lease == lease]:
            del self.rows.incarnations[name]
            self.changes.append(ProxyDown(*name))
        self.changed.notify()

    def snapshot(self) -> Reloaded:
        """Return the rows that a watch reports, as its first event; the result does not change afterwards. Leases that
        are over count until :meth:`expire_leases` has ended them.
        """
        rows = self.rows
        return Reloaded(
            owners=dict(rows.owners),
            proxies={proxy: incarnation.row for (proxy, _), incarnation in rows.incarnations.items()},
            leaders={link: (leader.proxy, leader.epoch) for link, leader in rows.leaders.items()},
            changelogs=dict(rows.changelogs),
            drains=dict(rows.drains),
            links=dict(rows.links),
            tree=rows.tree,
        )


class MemoryLease:
    """A lease of a :class:`MemoryRegistry`."""

    def __init__(self, storage: MemoryRegistryStorage, clock: Clock, number: int, ttl_ms: int) -> None:
        self._storage = storage
        self._clock = clock
        self.number = number
        self.ttl_ms = ttl_ms

    async def renew(self) -> bool:
        """Renew the lease: it lasts `ttl_ms` milliseconds anew (:meth:`federation.ports.Lease.renew`).

        Returns:
            False: the lease has ended for good, or its proxy was announced again, and it is not renewed.

        Raises:
            RegistryUnavailable: it is not known whether the lease was renewed.
        """
        await self._storage.check_reachable()
        now_ms = self._clock.now_ms()
        self._storage.expire_leases(now_ms)
        term = self._storage.rows.terms.get(self.number)
        if term is None or term.superseded:
            return False
        term.deadline_ms = now_ms + self.ttl_ms
        return True

    async def revoke(self) -> None:
        """End the lease now, with all rows under it; one that has ended is no error. Raises RegistryUnavailable
        (:meth:`federation.ports.Lease.revoke`).
        """
        await self._storage.check_reachable()
        self._storage.end_lease(self.number)


class MemoryRegistry:
    """A handle of a registry in memory: a :class:`federation.ports.Registry`."""

    def __init__(self, storage: MemoryRegistryStorage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        self._closed = False

    async def start(self) -> None:
        """Connect to the registry, before any other call. Raises RegistryUnavailable
        (:meth:`federation.ports.Registry.start`).
        """
        await self._begin()

    async def create(self, session: SessionId, ownership: Ownership) -> Claimed:
        """Create the row of a session that never had one; of concurrent calls one wins
        (:meth:`federation.ports.Registry.create`).

        Returns:
            Whether this call won, and the row in force. A deleted session is created again by :meth:`claim`.

        Raises:
            RegistryUnavailable: the row may have been created all the same; :meth:`owner` tells.
        """
        return await self._compare_and_set(session, None, ownership)

    async def claim(self, session: SessionId, expected: Ownership, new: Ownership) -> Claimed:
        """Replace the row `expected` of a session, as :meth:`owner` returns it, by `new`
        (:meth:`federation.ports.Registry.claim`).

        Returns:
            Whether this call made the change, and the row in force.

        Raises:
            RegistryUnavailable: the change may have been made all the same; :meth:`owner` tells.
        """
        return await self._compare_and_set(session, expected, new)

    async def owner(self, session: SessionId) -> Ownership | None:
        """Return the session's row; for one without, the row that it counts as (:func:`waypost.identity.without_row`);
        None: the session never existed. Raises RegistryUnavailable (:meth:`federation.ports.Registry.owner`).
        """
        return (await self._begin()).owner(session)

    async def forget(self, deleted: Mapping[SessionId, Ownership]) -> None:
        """Remove the rows of deleted sessions that are still as given, after raising the floor
        (:meth:`federation.ports.Registry.forget`). A row that has changed, or is not of a deleted session, stays.

        Args:
            deleted: the rows as they are expected to be. The floor is raised to the highest generation of all of them,
                also of those that stay.

        Raises:
            RegistryUnavailable: any of the rows may have been removed; a repetition does no harm.
        """
        rows = await self._begin()
        rows.generation_floor = max([rows.generation_floor, *(ownership.generation for ownership in deleted.values())])
        for session, expected in deleted.items():
            if expected.deleted and rows.owners.get(session) == expected:
                del rows.owners[session]
                rows.noted.pop(session, None)
                self._storage.changes.append(OwnerChanged(session, None))
        self._storage.answer()

    async def announce(
        self,
        row: ProxyRow,
        ttl_ms: int,
        *,
        earlier: Collection[Incarnation] | None = None,
        replace: bool = False,
    ) -> MemoryLease:
        """Take the name of a proxy by compare-and-set of its row, and return the lease under which the row stands
        (:meth:`federation.ports.Registry.announce`).

        Args:
            row: the row of the proxy, whose `proxy` is the name.
            ttl_ms: how long the lease lasts without a renewal, in milliseconds.
            earlier: incarnations of this instance that have ended, and may be replaced; None: all of them have.
            replace: take the name from any holder.

        Raises:
            NameInUse: another instance, or an incarnation that is not among the earlier ones, has the name under a
                lease.
            RegistryUnavailable: the row may have been set all the same, under a lease that nobody renews.
        """
        rows = await self._begin()
        check_name(row, self._holder(row.proxy), earlier=earlier, replace=replace)
        for (proxy, _), incarnation in rows.incarnations.items():
            if proxy == row.proxy:
                rows.terms[incarnation.lease].superseded = True
        rows.leases_granted += 1
        rows.terms[rows.leases_granted] = _Term(self._clock.now_ms() + ttl_ms)
        rows.incarnations.pop((row.proxy, row.incarnation), None)
        rows.incarnations[row.proxy, row.incarnation] = _IncarnationRow(row, rows.leases_granted)
        rows.changelogs[row.site] = row.changelog
        lease = MemoryLease(self._storage, self._clock, rows.leases_granted, ttl_ms)
        self._storage.changes.append(ProxyUp(row))
        self._storage.answer()
        return lease

    def _holder(self, proxy: ProxyId) -> ProxyRow | None:
        """Return the incarnation that has the name: the one that nobody has replaced."""
        rows = self._storage.rows
        incarnations = [incarnation for (name, _), incarnation in rows.incarnations.items() if name == proxy]
        return next(
            (incarnation.row for incarnation in incarnations if not rows.terms[incarnation.lease].superseded), None
        )

    async def forget_site(self, site: SiteId) -> bool:
        """Remove the address of a site's checkpoints: nobody looks for any there from now on
        (:meth:`federation.ports.Registry.forget_site`).

        Returns:
            False, and nothing has changed: a proxy of the site has a lease.

        Raises:
            RegistryUnavailable: the address may have been removed all the same.
        """
        rows = await self._begin()
        is_live = any(incarnation.row.site == site for incarnation in rows.incarnations.values())
        if not is_live and rows.changelogs.pop(site, None) is not None:
            self._storage.changes.append(SiteForgotten(site))
        self._storage.answer()
        return not is_live

    async def drain(self, proxy: ProxyId, row: DrainRow | None) -> None:
        """Set the order to drain a proxy, alive or not; None: take the order back, if there is one. The watch reports
        it in either case. Raises RegistryUnavailable (:meth:`federation.ports.Registry.drain`).
        """
        rows = await self._begin()
        if row is None:
            rows.drains.pop(proxy, None)
        else:
            rows.drains[proxy] = row
        self._storage.changes.append(DrainChanged(proxy, row))
        self._storage.answer()

    async def elect(self, link: str, proxy: ProxyId, lease: Lease) -> int | None:
        """Try to make the proxy the leader of the link under the lease; one that leads under it already begins another
        term (:meth:`federation.ports.Registry.elect`).

        Args:
            link: its name (:func:`waypost.identity.link_name`).
            proxy: the proxy that is to lead.
            lease: of that proxy, granted by this registry; the leadership ends with it.

        Returns:
            The leader's epoch, greater than all before; None: another lease leads, or this one has ended.

        Raises:
            Internal: the lease is of another kind of registry.
            RegistryUnavailable: the proxy may have been elected all the same; a repetition begins another term.
        """
        if not isinstance(lease, MemoryLease):
            raise Internal("a lease of another registry")
        rows = await self._begin()
        leader = rows.leaders.get(link)
        if leader is not None and leader.lease != lease.number:
            return None
        if lease.number not in rows.terms:
            return None
        epoch = rows.epochs[link] = rows.epochs.get(link, 0) + 1
        rows.leaders[link] = _Leader(proxy, epoch, lease.number)
        self._storage.changes.append(LeaderChanged(link, proxy, epoch))
        self._storage.answer()
        return epoch

    async def resign(self, link: str, lease: Lease) -> None:
        """Give the leadership of the link back; no effect if it is not held under the lease, or the lease is of another
        kind of registry. Raises RegistryUnavailable (:meth:`federation.ports.Registry.resign`).
        """
        rows = await self._begin()
        if not isinstance(lease, MemoryLease):
            raise Internal("a lease of another registry")
        leader = rows.leaders.get(link)
        if leader is not None and leader.lease == lease.number:
            del rows.leaders[link]
            self._storage.changes.append(LeaderChanged(link, None, leader.epoch))
        self._storage.answer()

    async def set_link(self, row: LinkRow, *, seed: bool) -> None:
        """Write the row of a link; with `seed` only if the link has no row, and the row of a removed link counts as
        one. Raises RegistryUnavailable (:meth:`federation.ports.Registry.set_link`).
        """
        rows = await self._begin()
        if not seed or row.sites not in rows.links:
            rows.links[row.sites] = row
            self._storage.changes.append(LinkChanged(row))
        self._storage.answer()

    async def claim_tree(self, expected: TreeRow, new: TreeRow) -> bool:
        """Replace the row `expected` of the dispatching tree, of epoch 0 if there is none, by `new`; return whether
        `expected` was in force, and `new` is now (:meth:`federation.ports.Registry.claim_tree`).

        Raises:
            RegistryUnavailable: the row may have been set all the same; the watch reports it then.
        """
        rows = await self._begin()
        if rows.tree != expected:
            return False
        rows.tree = new
        self._storage.changes.append(TreeChosen(new))
        self._storage.answer()
        return True

    async def secret(self, before: bytes = b"", *, make: bool = True) -> bytes:
        """Return the secret of the federation, 32 random bytes; of concurrent calls that make it one wins
        (:meth:`federation.ports.Registry.secret`). Raises RegistryUnavailable.

        Args:
            before: the secret to be set if there is none; empty: new random bytes.
            make: set a secret if there is none; False: return b"" instead.
        """
        rows = await self._begin()
        if not rows.secret and make:
            rows.secret = before or secrets.token_bytes(SECRET_BYTES)
            self._storage.answer()
        return rows.secret

    async def site_log(self, site: SiteId) -> SiteLogRow | None:
        """Return the row of the site's log; None: it has none. Raises RegistryUnavailable
        (:meth:`federation.ports.Registry.site_log`).
        """
        return (await self._begin()).site_logs.get(site)

    async def claim_site_log(self, site: SiteId, expected: SiteLogRow | None, new: SiteLogRow) -> bool:
        """Replace the row `expected` of the site's log, None if there is none, by `new`; return whether `expected` was
        in force, and `new` is now (:meth:`federation.ports.Registry.claim_site_log`).

        Raises:
            RegistryUnavailable: the row may have been set all the same.
        """
        rows = await self._begin()
        if rows.site_logs.get(site) != expected:
            return False
        rows.site_logs[site] = new
        self._storage.answer()
        return True

    async def note_checkpoints(self, ranks: Mapping[SessionId, Rank]) -> None:
        """Record the rank of the checkpoint of each session up to which clients were answered (handover rule 19,
        :meth:`federation.ports.Registry.note_checkpoints`).

        A rank that is not above the recorded one changes nothing, and a session without a row is skipped. Raises
        RegistryUnavailable: any of the ranks may have been recorded.
        """
        rows = await self._begin()
        for session, rank in ranks.items():
            if session in rows.owners:
                rows.noted[session] = max(rank, rows.noted.get(session, rank))
        self._storage.answer()

    async def noted_checkpoint(self, session: SessionId) -> Rank | None:
        """Return the highest rank that :meth:`note_checkpoints` recorded for the session; None: there is none. Raises
        RegistryUnavailable (:meth:`federation.ports.Registry.noted_checkpoint`).
        """
        return (await self._begin()).noted.get(session)

    async def watch(self) -> AsyncIterator[RegistryEvent | WatchAlive]:
        """Yield all rows as a :class:`federation.ports.Reloaded`, then every change in order, none skipped, and
        :class:`federation.ports.WatchAlive` in silence (:meth:`federation.ports.Registry.watch`).

        A watch that has not seen changes that are removed begins again with a `Reloaded`. It ends once this handle is
        closed.
        """
        storage = self._storage
        position = -1
        while not self._closed:
            storage.expire_leases(self._clock.now_ms())
            seen = storage.changed.version
            if storage.away:
                await storage.changed.wait(seen, self._until_next_end_s())
            elif position < storage.compacted:
                position = storage.compacted + len(storage.changes)
                yield storage.snapshot()
            elif position - storage.compacted < len(storage.changes):
                position += 1
                yield storage.changes[position - 1 - storage.compacted]
            else:
                await storage.changed.wait(seen, min(self._until_next_end_s() or WATCH_SIGN_S, WATCH_SIGN_S))
                if storage.changed.version == seen:
                    yield WatchAlive()

    async def close(self) -> None:
        """Close this handle; a call under way, or a later one, may raise RegistryUnavailable. Leases are not ended
        (:meth:`federation.ports.Registry.close`).
        """
        self._closed = True
        self._storage.changed.notify()

    async def _begin(self) -> _Rows:
        if self._closed:
            raise RegistryUnavailable("this handle of the registry is closed")
        await self._storage.check_reachable()
        self._storage.expire_leases(self._clock.now_ms())
        return self._storage.rows

    async def _compare_and_set(self, session: SessionId, expected: Ownership | None, new: Ownership) -> Claimed:
        rows = await self._begin()
        current = rows.owner(session)
        if current != expected:
            return Claimed(False, current)
        rows.owners[session] = new
        self._storage.changes.append(OwnerChanged(session, new))
        self._storage.answer()
        return Claimed(True, new)

    def _until_next_end_s(self) -> float | None:
        """How long to sleep at most, so that a lease that ends by itself is seen; None: none can."""
        deadlines = [term.deadline_ms for term in self._storage.rows.terms.values()]
        return max(min(deadlines) + 1 - self._clock.now_ms(), 1) / 1000 if deadlines else None


# ---------------------------------------------------------------- changelog and journal


class MemoryChangelogStorage(Fallible):
    """The checkpoints of a changelog in memory, and the site's snapshot; handles are :class:`MemoryChangelog`."""

    def __init__(self) -> None:
        super().__init__()
        self.highest = HighestCheckpoints()
        self.site: SiteSnapshot | None = None


class MemoryChangelog:
    """A handle of a changelog in memory: a :class:`federation.ports.Changelog`.

    Args:
        storage: what is written, which all handles of the changelog share, and which outlives them.
    """

    def __init__(self, storage: MemoryChangelogStorage) -> None:
        self._storage = storage

    async def start(self) -> None:
        """Connect to the changelog, before any other call. Raises LogUnavailable
        (:meth:`federation.ports.Changelog.start`).
        """
        await self._storage.check_reachable()

    async def put(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint; return once it is written (:meth:`federation.ports.Changelog.put`). A first checkpoint
        (`is_first`) whose rank is there already is not written again, and is no error.

        Raises:
            CheckpointOutdated: there is one that counts more, or an owner's of the same rank (handover rule 19);
                nothing was written.
            LogUnavailable: it is not known whether the checkpoint was written.
        """
        await self._storage.check_reachable()
        self._storage.highest.put(checkpoint)
        self._storage.answer()

    async def latest(self, session: SessionId) -> tuple[Checkpoint, ...]:
        """Return the checkpoints of the session that count, the lower one first
        (:meth:`federation.ports.Changelog.latest`).

        Returns:
            The highest one by rank that an owner wrote, if there is one; behind it a first one (`is_first`), if it is
            higher. Empty: there is no checkpoint of the session.

        Raises:
            LogUnavailable: the storage is away.
        """
        await self._storage.check_reachable()
        return self._storage.highest.latest(session)

    async def forget(self, deleted: Mapping[SessionId, int]) -> None:
        """Remove the checkpoints of deleted sessions, each up to the given epoch, inclusive; none there is no error.
        Raises LogUnavailable: any of them may have been removed (:meth:`federation.ports.Changelog.forget`).
        """
        await self._storage.check_reachable()
        self._storage.highest.forget(deleted)
        self._storage.answer()

    async def lost(self) -> None:
        """Wait for ever: a changelog in memory loses no part of itself (:meth:`federation.ports.Changelog.lost`)."""
        await asyncio.get_running_loop().create_future()

    async def put_site(self, snapshot: SiteSnapshot) -> None:
        """Write a snapshot of the site's state; one whose rank is not higher than that of the snapshot there changes
        nothing. Raises LogUnavailable: the snapshot may have been written all the same
        (:meth:`federation.ports.Changelog.put_site`).
        """
        await self._storage.check_reachable()
        known = self._storage.site
        if known is None or known.rank < snapshot.rank:
            self._storage.site = snapshot
        self._storage.answer()

    async def latest_site(self) -> SiteSnapshot | None:
        """Return the snapshot of the site's state with the highest rank; None: there is none. Raises LogUnavailable
        (:meth:`federation.ports.Changelog.latest_site`).
        """
        await self._storage.check_reachable()
        return self._storage.site

    async def close(self) -> None:
        """Do nothing: a changelog in memory stays usable (:meth:`federation.ports.Changelog.close`)."""


class MemoryJournalStorage(Fallible):
    """The facts of a journal in memory; handles are :class:`MemoryJournal`."""

    def __init__(self) -> None:
        super().__init__()
        self.facts: list[Fact] = []


class MemoryJournal:
    """A handle of a journal in memory: a :class:`federation.ports.Journal`.

    Args:
        storage: the facts, which all handles of the journal share.
        writer: the name of the journal in the fact that begins a segment.
        rotation: when a segment ends; None: never.
    """

    def __init__(self, storage: MemoryJournalStorage, writer: str = "", rotation: Rotation | None = None) -> None:
        self._storage = storage
        self._segments = JournalSegments(writer, rotation or Rotation())

    async def start(self) -> None:
        """Connect to the journal, before any other call (:meth:`federation.ports.Journal.start`). Raises
        LogUnavailable.
        """
        await self._storage.check_reachable()

    async def attest(self, facts: Sequence[Fact]) -> None:
        """Write facts in this order, behind the fact that begins a segment if one is due
        (:meth:`federation.ports.Journal.attest`).

        Raises:
            LogUnavailable: the storage is away, and nothing was written; or the answer is lost, and the facts are
                written.
        """
        await self._storage.check_reachable()
        size = sum(len(encode_fact(fact)) for fact in facts)
        beginning = self._segments.begin_if_due(size, 0, time.monotonic()) if facts else None
        self._storage.facts.extend(facts if beginning is None else [beginning, *facts])
        self._segments.wrote(facts, size)
        self._storage.answer()

    async def close(self) -> None:
        """Do nothing: a journal in memory stays usable (:meth:`federation.ports.Journal.close`)."""
