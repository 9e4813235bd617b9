"""The embedded registry: a small table of rows with leases, and the log of its changes, in one SQLite file.

Leases end on a clock of the whole machine that neither steps nor stops while it sleeps (CLOCK_BOOTTIME); a
lease of an earlier boot has ended, and so has its holder. No process is in charge of ends: whoever touches
the registry or watches it ends what is due, in a write transaction, so that it happens once.

Why the holder sees the end first: it counts from before it asked for the renewal, the file from after that;
and a renewal in the file is refused once the time is over, even if nobody has ended the lease yet.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from federation.embedded import registry_rows as rows
from federation.embedded.database import DatabaseThread, GroupCommit, snapshot, translated, write
from federation.ports import (
    SECRET_BYTES,
    Claimed,
    DrainRow,
    Lease,
    LinkRow,
    OwnerRow,
    ProxyRow,
    RegistryEvent,
    Reloaded,
    SiteLogRow,
    TreeRow,
    WatchAlive,
)
from federation.versioned_condition import VersionedCondition
from waypost.checkpoint import Rank
from waypost.errors import Internal, RegistryUnavailable
from waypost.identity import Incarnation, Ownership, ProxyId, SessionId, SiteId, without_row
from waypost.limits import REGISTRY_CHANGES

T = TypeVar("T")

MAX_POLL_MS = 1000
"""A watch looks for ended leases at least so often, whatever the deadlines said."""


@cache
def boot_id() -> str:
    """Return the id of this boot of the machine; empty where the system does not state one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class MachineClock:
    """The clock of leases: milliseconds since boot, asleep or awake, the same for all processes of the machine.

    Args:
        boot: the id of this boot; times of two boots are not compared.
    """

    boot: str

    def now_ms(self) -> int:
        """Return the milliseconds since the machine's boot (:meth:`waypost.clock.Clock.now_ms`)."""
        return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1_000_000


class EmbeddedLease:
    """A lease in the embedded registry: a :class:`federation.ports.Lease`."""

    def __init__(self, registry: EmbeddedRegistry, number: int, ttl_ms: int) -> None:
        self._registry = registry
        self.number = number
        self.ttl_ms = ttl_ms

    async def renew(self) -> bool:
        """Renew the lease: it lasts `ttl_ms` milliseconds anew (:meth:`federation.ports.Lease.renew`).

        Returns:
            False: the lease has ended for good, or its proxy was announced again, and it is not renewed.

        Raises:
            RegistryUnavailable: it is not known whether the lease was renewed.
        """
        return await self._registry.renew(self)

    async def revoke(self) -> None:
        """End the lease now, with all rows under it; one that has ended is no error. Raises RegistryUnavailable
        (:meth:`federation.ports.Lease.revoke`).
        """
        await self._registry.change(lambda c: rows.end_lease(c, self.number))


class _Claim(NamedTuple):
    session: SessionId
    expected: Ownership | None
    new: Ownership


class EmbeddedRegistry:
    """The registry in the file `path`, which the processes of this machine share.

    `durable` as in the site log. `clock` is for tests of leases; all handles on a file must agree on it.
    """

    def __init__(self, path: Path | str, *, durable: bool = True, clock: MachineClock | None = None) -> None:
        self._path = Path(path)
        self._clock = clock or MachineClock(boot_id())
        self._writer = DatabaseThread(self._path, rows.SCHEMA, durable=durable)
        self._reader = DatabaseThread(self._path, rows.SCHEMA, durable=durable)
        # A proxy that starts claims many sessions at a time.
        self._claims = GroupCommit(self._writer, _compare_and_set_all)
        self._changed = VersionedCondition()
        self._polling = False

    async def start(self) -> None:
        """Open the file now and not at the first use; it and missing folders are made. Raises RegistryUnavailable."""
        await self.owner(SessionId(""))

    async def create(self, session: SessionId, ownership: Ownership) -> Claimed:
        """Create the row of a session that never had one; of concurrent calls one wins
        (:meth:`federation.ports.Registry.create`).

        Returns:
            Whether this call won, and the row in force. A deleted session is created again by :meth:`claim`.

        Raises:
            RegistryUnavailable: the row may have been created all the same; :meth:`owner` tells.
        """
        return await self._claim(_Claim(session, None, ownership))

    async def claim(self, session: SessionId, expected: Ownership, new: Ownership) -> Claimed:
        """Replace the row `expected` of a session, as :meth:`owner` returns it, by `new`
        (:meth:`federation.ports.Registry.claim`).

        Returns:
            Whether this call made the change, and the row in force.

        Raises:
            RegistryUnavailable: the change may have been made all the same; :meth:`owner` tells.
        """
        return await self._claim(_Claim(session, expected, new))

    async def _claim(self, claim: _Claim) -> Claimed:
        with self._translated():
            claimed = await self._claims.submit(claim)
        self._changed.notify()
        return claimed

    async def owner(self, session: SessionId) -> Ownership | None:
        """Return the session's row; for one without, the row that it counts as (:func:`waypost.identity.without_row`);
        None: the session never existed. Raises RegistryUnavailable (:meth:`federation.ports.Registry.owner`).
        """
        return await self._see(lambda c: _owner(c, session))

    async def forget(self, deleted: Mapping[SessionId, Ownership]) -> None:
        """Remove the rows of deleted sessions that are still as given, after raising the floor
        (:meth:`federation.ports.Registry.forget`). A row that has changed, or is not of a deleted session, stays.

        Args:
            deleted: the rows as they are expected to be. The floor is raised to the highest generation of all of them,
                also of those that stay.

        Raises:
            RegistryUnavailable: any of the rows may have been removed; a repetition does no harm.
        """
        await self.change(lambda c: _forget(c, deleted))

    async def announce(
        self,
        row: ProxyRow,
        ttl_ms: int,
        *,
        earlier: Collection[Incarnation] | None = None,
        replace: bool = False,
    ) -> EmbeddedLease:
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
        now = self.now()
        number = await self.change(lambda c: rows.announce(c, row, now(), ttl_ms, earlier=earlier, replace=replace))
        return EmbeddedLease(self, number, ttl_ms)

    async def renew(self, lease: Lease) -> bool:
        """Renew a lease, also one that was granted over another handle of the same file
        (:meth:`federation.ports.LeaseRenewer.renew`).

        Returns:
            False: the lease has ended for good, or its proxy was announced again, and it is not renewed.

        Raises:
            Internal: it is a lease of another kind of registry.
            RegistryUnavailable: it is not known whether the lease was renewed.
        """
        if not isinstance(lease, EmbeddedLease):
            raise Internal(f"{type(lease).__name__} is no lease of this registry")
        now = self.now()
        return await self.change(lambda c: rows.renew(c, lease.number, now(), lease.ttl_ms))

    async def forget_site(self, site: SiteId) -> bool:
        """Remove the address of a site's checkpoints: nobody looks for any there from now on
        (:meth:`federation.ports.Registry.forget_site`).

        Returns:
            False, and nothing has changed: a proxy of the site has a lease.

        Raises:
            RegistryUnavailable: the address may have been removed all the same.
        """
        now = self.now()
        return await self.change(lambda c: rows.forget_site(c, site, now()))

    async def drain(self, proxy: ProxyId, row: DrainRow | None) -> None:
        """Set the order to drain a proxy, alive or not; None: take the order back, if there is one. Raises
        RegistryUnavailable (:meth:`federation.ports.Registry.drain`).
        """
        key = rows.DRAIN + proxy
        if row is None:
            await self.change(lambda c: rows.delete(c, key))
        else:
            text = row.model_dump_json()
            await self.change(lambda c: rows.put(c, key, text))

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
        if not isinstance(lease, EmbeddedLease):
            raise Internal("a lease of another registry")
        number, now = lease.number, self.now()
        return await self.change(lambda c: rows.elect(c, link, proxy, number, now()))

    async def resign(self, link: str, lease: Lease) -> None:
        """Give the leadership of the link back; no effect if it is not held under the lease
        (:meth:`federation.ports.Registry.resign`).

        Raises:
            Internal: the lease is of another kind of registry.
            RegistryUnavailable: the leadership may have been given back all the same.
        """
        if not isinstance(lease, EmbeddedLease):
            raise Internal("a lease of another registry")
        number = lease.number
        await self.change(lambda c: rows.resign(c, link, number))

    async def set_link(self, row: LinkRow, *, seed: bool) -> None:
        """Write the row of a link; with `seed` only if the link has no row, and the row of a removed link counts as
        one. Raises RegistryUnavailable (:meth:`federation.ports.Registry.set_link`).
        """
        await self.change(lambda c: rows.set_link(c, row, seed=seed))

    async def claim_tree(self, expected: TreeRow, new: TreeRow) -> bool:
        """Replace the row `expected` of the dispatching tree, of epoch 0 if there is none, by `new`; return whether
        `expected` was in force, and `new` is now (:meth:`federation.ports.Registry.claim_tree`).

        Raises:
            RegistryUnavailable: the row may have been set all the same; the watch reports it then.
        """
        return await self.change(lambda c: rows.claim_tree(c, expected, new))

    async def secret(self, before: bytes = b"", *, make: bool = True) -> bytes:
        """Return the secret of the federation, 32 random bytes; of concurrent calls that make it one wins
        (:meth:`federation.ports.Registry.secret`). Raises RegistryUnavailable.

        Args:
            before: the secret to be set if there is none; empty: new random bytes.
            make: set a secret if there is none; False: return b"" instead.
        """
        stored = await self._see(lambda c: rows.get(c, rows.SECRET))
        if stored is not None or not make:
            return bytes.fromhex(stored or "")
        proposed = before or secrets.token_bytes(SECRET_BYTES)
        return await self.change(lambda c: rows.get_or_put_secret(c, proposed))

    async def site_log(self, site: SiteId) -> SiteLogRow | None:
        """Return the row of the site's log; None: it has none. Raises RegistryUnavailable
        (:meth:`federation.ports.Registry.site_log`).
        """
        return await self._see(lambda c: rows.site_log(c, site))

    async def claim_site_log(self, site: SiteId, expected: SiteLogRow | None, new: SiteLogRow) -> bool:
        """Replace the row `expected` of the site's log, None if there is none, by `new`; return whether `expected` was
        in force, and `new` is now (:meth:`federation.ports.Registry.claim_site_log`).

        Raises:
            RegistryUnavailable: the row may have been set all the same.
        """
        return await self.change(lambda c: rows.claim_site_log(c, site, expected, new))

    async def note_checkpoints(self, ranks: Mapping[SessionId, Rank]) -> None:
        """Record the rank of the checkpoint of each session up to which clients were answered (handover rule 19,
        :meth:`federation.ports.Registry.note_checkpoints`).

        A rank that is not above the recorded one changes nothing, and a session without a row is skipped. Raises
        RegistryUnavailable: any of the ranks may have been recorded.
        """
        await self.change(lambda c: rows.note_checkpoints(c, ranks))

    async def noted_checkpoint(self, session: SessionId) -> Rank | None:
        """Return the highest rank that :meth:`note_checkpoints` recorded for the session; None: there is none. Raises
        RegistryUnavailable (:meth:`federation.ports.Registry.noted_checkpoint`).
        """
        return await self._see(lambda c: rows.noted_checkpoint(c, session))

    async def watch(self) -> AsyncIterator[RegistryEvent | WatchAlive]:
        """Yield all rows as a :class:`federation.ports.Reloaded`, then every change in order, none skipped, and
        :class:`federation.ports.WatchAlive` in silence (:meth:`federation.ports.Registry.watch`).

        A watch that has not seen changes that are removed begins again with a `Reloaded`.

        Raises:
            RegistryUnavailable: this handle was closed, or the file cannot be read or written.
        """
        self._poll()
        # Until now perhaps nobody looked for leases that have ended.
        await self._end_leases_due()
        place: int | None = None
        while True:
            seen = self._changed.version
            news = await self._news(place)
            for event, revision in news:
                place = revision
                yield event
            if not news:
                # Also when the condition changes: a lease that is renewed changes the file, and is no news.
                yield WatchAlive()
            if self._changed.version == seen:
                await self._changed.wait(seen, await self._end_leases_due() / 1000)

    async def compact(self, keep: int = 0) -> None:
        """Remove all past changes but the last `keep`; a watch that has not seen them begins again with a Reloaded.

        Raises:
            RegistryUnavailable: the file cannot be written.
        """
        await self.change(lambda c: rows.prune(c, keep))

    async def close(self) -> None:
        """Finish the claims under way, and close the file; every watch that waits ends with RegistryUnavailable, and a
        later call raises it. Leases are not ended (:meth:`federation.ports.Registry.close`).
        """
        await self._claims.drain()
        await self._writer.close()
        await self._reader.close()
        self._changed.notify()

    def now(self) -> Callable[[], rows.Moment]:
        """Return a function that reads the machine's clock, to be called under the write lock: a lease must not be late
        by the time that the lock was waited for.
        """
        return lambda: rows.Moment(self._clock.boot, self._clock.now_ms())

    async def change(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Run `action` with the connection under the file's write lock, on its own thread, all or nothing; return its
        result, and wake the watches.

        Raises:
            RegistryUnavailable: the file cannot be written. Other errors of `action` are raised as they are.
        """
        with self._translated():
            result = await self._writer.call(lambda c: write(c, lambda: action(c)))
        self._changed.notify()
        return result

    async def _see(self, query: Callable[[sqlite3.Connection], T]) -> T:
        with self._translated():
            return await self._reader.call(lambda c: snapshot(c, lambda: query(c)))

    async def _news(self, position: int | None) -> list[tuple[RegistryEvent, int]]:
        """Return the events behind `place`, each with its own place; a Reloaded if they are not all there."""
        return await self._see(lambda c: _news(c, position))

    async def _end_leases_due(self) -> int:
        """End the leases whose time is over. Return how many milliseconds until the next look."""
        now = self.now()
        wait_ms = await self._see(lambda c: rows.until_next_end_ms(c, now()))
        if wait_ms is not None and wait_ms <= 0:
            await self.change(lambda c: rows.expire_leases(c, now()))
            return 0
        return min(wait_ms or MAX_POLL_MS, MAX_POLL_MS)

    def _poll(self) -> None:
        if not self._polling:
            self._polling = True
            self._reader.notify(self._changed.notify)

    def _translated(self) -> AbstractContextManager[None]:
        return translated(RegistryUnavailable, "the registry", self._path)


def _owner(connection: sqlite3.Connection, session: SessionId) -> Ownership | None:
    value = rows.get(connection, rows.owner_key(session))
    return (
        OwnerRow.model_validate_json(value).ownership
        if value is not None
        else without_row(rows.generation_floor(connection))
    )


def _forget(connection: sqlite3.Connection, deleted: Mapping[SessionId, Ownership]) -> None:
    rows.raise_floor(connection, max((ownership.generation for ownership in deleted.values()), default=0))
    for session, expected in deleted.items():
        key = rows.owner_key(session)
        if expected.deleted and rows.get(connection, key) is not None and _owner(connection, session) == expected:
            rows.delete(connection, key)
            connection.execute("DELETE FROM rows WHERE key = ?", (rows.CHECKPOINT + session,))


def _compare_and_set_all(connection: sqlite3.Connection, claims: list[_Claim]) -> list[Claimed]:
    """Settle claims that came together, each by itself, in their order."""
    return [_compare_and_set(connection, claim) for claim in claims]


def _compare_and_set(connection: sqlite3.Connection, claim: _Claim) -> Claimed:
    current = _owner(connection, claim.session)
    if current != claim.expected:
        return Claimed(False, current)
    row = OwnerRow(proxy=claim.new.proxy, epoch=claim.new.epoch)
    rows.put(connection, rows.owner_key(claim.session), row.model_dump_json())
    return Claimed(True, claim.new)


def _news(connection: sqlite3.Connection, position: int | None) -> list[tuple[RegistryEvent, int]]:
    oldest, newest = rows.changes_kept(connection)
    if position is None or position + 1 < oldest:
        return [(_load(connection), newest)]
    changes = rows.changes_after(connection, position, REGISTRY_CHANGES)
    return [(rows.event_of(change), change.revision) for change in changes]


def _load(connection: sqlite3.Connection) -> Reloaded:
    proxies = (ProxyRow.model_validate_json(value) for value in rows.values(connection, rows.INCARNATION))
    leaders = {leader.link: leader for leader in rows.leaders(connection)}
    return Reloaded(
        owners={
            rows.session_of(key): OwnerRow.model_validate_json(value).ownership
            for key, value in rows.items(connection, rows.OWNER)
        },
        # In the order of announcement: of several incarnations of a proxy the last one stays.
        proxies={row.proxy: row for row in proxies},
        leaders={link: (leader.proxy, leader.epoch) for link, leader in leaders.items()},
        drains={
            ProxyId(key.removeprefix(rows.DRAIN)): DrainRow.model_validate_json(value)
            for key, value in rows.items(connection, rows.DRAIN)
        },
        links={row.sites: row for row in rows.links(connection)},
        tree=rows.tree(connection),
        changelogs={SiteId(key.removeprefix(rows.SITE)): value for key, value in rows.items(connection, rows.SITE)},
    )
