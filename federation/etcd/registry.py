"""The registry on etcd 3: all that is asked of it but the renewal of leases (lease_renewer.py).

What happens when messages are lost: every call has a deadline, and raises RegistryUnavailable after it. A
create or claim whose answer is lost has been applied or not; reading the row settles it. An election whose
answer is lost is repeated, and finds its own lease.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
from contextlib import aclosing, suppress
from itertools import chain
from typing import Any
from urllib.parse import quote

import aetcd
from aetcd import rpc

from federation.credentials import Credentials
from federation.endpoints import Endpoints
from federation.etcd.connection import CHANNEL_OPTIONS, DEADLINE_S, Servers, TlsClient
from federation.etcd.rows import (
    CHECKPOINT,
    DRAIN,
    FLOOR,
    INCARNATION,
    LEADER,
    LINK,
    LOG,
    OWNER,
    SECRET,
    SITE,
    TREE,
    RegistryView,
    name_key,
    owner_value,
    put_row,
    read_owner,
)
from federation.etcd.watch_stream import changes
from federation.names import check_name
from federation.ports import (
    SECRET_BYTES,
    Claimed,
    DrainRow,
    Lease,
    LinkRow,
    ProxyRow,
    RegistryEvent,
    SiteLogRow,
    TreeRow,
    WatchAlive,
    decode_rank,
    encode_rank,
)
from waypost.checkpoint import Rank
from waypost.errors import Internal, RegistryUnavailable
from waypost.identity import Incarnation, Ownership, ProxyId, SessionId, SiteId
from waypost.limits import REGISTRY_ROWS, RETRY_PAUSES_S

START_S = 4.5
SHORTEST_LEASE_S = 2
"""etcd makes shorter ones longer by itself: it cannot promise them across an election of its own."""
COMPACT_S = 300.0
"""Time for which etcd keeps earlier versions of rows, in seconds. By itself it keeps them for ever, and they fill its
disk."""


class EtcdLease:
    """A lease of etcd, with the row of the proxy that has it: a :class:`federation.ports.Lease`."""

    def __init__(self, registry: EtcdRegistry, number: int, row: ProxyRow, ttl_ms: int) -> None:
        self._registry = registry
        self.row = row
        self.number = number
        self.ttl_ms = ttl_ms

    async def renew(self) -> bool:
        """Renew the lease: it lasts `ttl_ms` milliseconds anew (:meth:`federation.ports.Lease.renew`).

        Returns:
            False: the lease has ended for good, or its proxy was announced again, and it is not renewed.

        Raises:
            RegistryUnavailable: it is not known whether the lease was renewed.
        """
        # A later incarnation has taken its place: this one is not renewed, and ends when its time is over.
        if not await self._registry.has_name(self.row, self.number):
            return False
        return await self._registry.keep_alive(self.number)

    async def revoke(self) -> None:
        """End the lease now, with all rows under it; one that has ended is no error. Raises RegistryUnavailable
        (:meth:`federation.ports.Lease.revoke`).
        """
        await self._registry.revoke(self.number)


class EtcdRegistry:
    """The registry in etcd, below a prefix of its keys.

    A lease lasts at least `ttl_ms`; etcd counts in seconds and rounds up, which errs on the safe side.

    Args:
        endpoints: host:port, several with commas between; after a failure the next one is asked. Handles that share
            them know of each other's failures.
        prefix: of all keys.
        deadline_s: of every call, in seconds.
        compact_s: past revisions are removed after so many seconds, or twice that; 0: never. etcd removes those of all
            its keys, also of other applications; a watch that is that far behind begins again with a Reloaded.
        credentials: for TLS; None: without TLS.
    """

    def __init__(
        self,
        endpoints: str | Endpoints,
        prefix: str = "/waypost/",
        *,
        deadline_s: float = DEADLINE_S,
        compact_s: float = COMPACT_S,
        credentials: Credentials | None = None,
    ) -> None:
        self._servers = Servers(endpoints, deadline_s)
        self._prefix = prefix
        self._deadline_s = deadline_s
        self._compact_s = compact_s
        self._compacts_at_s = 0.0
        self._past = 0
        """The revision that was the last one when it was compacted last."""
        self._credentials = credentials
        self._clients: list[aetcd.Client] = []
        self._closed = False
        self._is_behind = False
        """The watch of this handle has broken, and does not have all rows again."""

    async def start(self) -> None:
        """Ask each endpoint in turn, until one answers; after a failure this handle is closed.

        Raises:
            RegistryUnavailable: none has answered. Each has the deadline of a call, and all together START_S seconds.
        """
        try:
            with self._servers.translated_errors():
                async with asyncio.timeout(START_S):
                    await self._ask_each()
        except BaseException:
            await self.close()
            raise

    async def create(self, session: SessionId, ownership: Ownership) -> Claimed:
        """Create the row of a session that never had one; of concurrent calls one wins
        (:meth:`federation.ports.Registry.create`).

        Returns:
            Whether this call won, and the row in force. A deleted session is created again by :meth:`claim`.

        Raises:
            RegistryUnavailable: the row may have been created all the same; :meth:`owner` tells. It is raised also
                while the watch of this handle has broken, and has not begun again.
        """
        return await self._swap_owner(session, None, ownership)

    async def claim(self, session: SessionId, expected: Ownership, new: Ownership) -> Claimed:
        """Replace the row `expected` of a session, as :meth:`owner` returns it, by `new`
        (:meth:`federation.ports.Registry.claim`).

        Returns:
            Whether this call made the change, and the row in force.

        Raises:
            RegistryUnavailable: the change may have been made all the same; :meth:`owner` tells. It is raised also
                while the watch of this handle has broken, and has not begun again.
        """
        return await self._swap_owner(session, expected, new)

    async def owner(self, session: SessionId) -> Ownership | None:
        """Return the session's row; for one without, the row that it counts as (:func:`waypost.identity.without_row`);
        None: the session never existed. Raises RegistryUnavailable (:meth:`federation.ports.Registry.owner`).
        """
        _, answers = await self._transact([], self._row_reads(session), [])
        return read_owner(answers)

    async def forget(self, deleted: Mapping[SessionId, Ownership]) -> None:
        """Remove the rows of deleted sessions that are still as given, after raising the floor
        (:meth:`federation.ports.Registry.forget`). A row that has changed, or is not of a deleted session, stays.

        Args:
            deleted: the rows as they are expected to be. The floor is raised to the highest generation of all of them,
                also of those that stay.

        Raises:
            RegistryUnavailable: any of the rows may have been removed; a repetition does no harm.
        """
        await self._raise_floor(max((ownership.generation for ownership in deleted.values()), default=0))
        for session, expected in deleted.items():
            key = self._key(OWNER, session)
            if expected.deleted:
                unchanged = aetcd.transactions.Value(key) == owner_value(expected)
                noted = self._key(CHECKPOINT, session)
                both = [aetcd.transactions.Delete(key), aetcd.transactions.Delete(noted)]
                await self._transact([unchanged], both, [])

    async def _raise_floor(self, generation: int) -> None:
        key = self._key(FLOOR, "")
        while True:
            _, answers = await self._transact([], [aetcd.transactions.Get(key)], [])
            known = bytes(answers[0][0][0]) if answers[0] else None
            if generation <= int(known or b"0"):
                return
            condition = aetcd.transactions.Create(key) == 0 if known is None else aetcd.transactions.Value(key) == known
            await self._transact([condition], [aetcd.transactions.Put(key, str(generation).encode())], [])

    def _row_reads(self, session: SessionId) -> list[Any]:
        """Return what reads a session's row, and the floor, at one revision."""
        return [aetcd.transactions.Get(self._key(OWNER, session)), aetcd.transactions.Get(self._key(FLOOR, ""))]

    async def announce(
        self,
        row: ProxyRow,
        ttl_ms: int,
        *,
        earlier: Collection[Incarnation] | None = None,
        replace: bool = False,
    ) -> EtcdLease:
        """Take the name of a proxy by compare-and-set of its row, and return the lease under which the row stands
        (:meth:`federation.ports.Registry.announce`).

        Args:
            row: the row of the proxy, whose `proxy` is the name.
            ttl_ms: how long the lease lasts without a renewal, at least, in milliseconds.
            earlier: incarnations of this instance that have ended, and may be replaced; None: all of them have.
            replace: take the name from any holder.

        Raises:
            NameInUse: another instance, or an incarnation that is not among the earlier ones, has the name under a
                lease.
            RegistryUnavailable: the row may have been set all the same, under a lease that nobody renews.
        """
        name = name_key(self._prefix, row.proxy)
        while True:
            with self._servers.translated_errors():
                async with asyncio.timeout(self._deadline_s):
                    found = await (await self._client()).get(name)
            holder = ProxyRow.model_validate_json(found.value) if found is not None else None
            check_name(row, holder, earlier=earlier, replace=replace)
            unchanged = aetcd.transactions.Mod(name) == (found.mod_revision if found is not None else 0)
            if (lease := await self._announce_if(unchanged, name, row, ttl_ms)) is not None:
                return lease

    async def _announce_if(self, unchanged: Any, name: bytes, row: ProxyRow, ttl_ms: int) -> EtcdLease | None:
        """Write the rows of a proxy if its name's row is as it was read; None: somebody was faster."""
        ttl_s = max(-(-ttl_ms // 1000), SHORTEST_LEASE_S)
        with self._servers.translated_errors():
            async with asyncio.timeout(self._deadline_s):
                granted = await (await self._client()).lease(ttl_s)
        incarnation = self._key(INCARNATION, f"{quote(row.proxy, safe='')}/{row.incarnation}")
        site = aetcd.transactions.Put(self._key(SITE, row.site), row.changelog.encode())
        try:
            won, _ = await self._transact(
                [unchanged], [put_row(name, row, granted.id), put_row(incarnation, row, granted.id), site], []
            )
        except LookupError as error:
            # It took longer to come here than the lease lasts.
            raise self._servers.unavailable(error) from error
        if won:
            return EtcdLease(self, int(granted.id), row, ttl_ms)
        await self.revoke(int(granted.id))
        return None

    async def forget_site(self, site: SiteId) -> bool:
        """Remove the address of a site's checkpoints: nobody looks for any there from now on
        (:meth:`federation.ports.Registry.forget_site`).

        Returns:
            True: there is no address now, also if there was none. False, and nothing was removed here: a proxy of the
                site has a lease, or announces itself at this time, or another call removes the address at this time.

        Raises:
            RegistryUnavailable: the address may have been removed all the same.
        """
        key = self._key(SITE, site)
        with self._servers.translated_errors():
            async with asyncio.timeout(self._deadline_s):
                client = await self._client()
                # In this order: whoever announces itself behind it writes the site's row, too.
                found = await client.get(key)
                incarnations = await client.get_prefix(self._key(INCARNATION, ""))
        if any(ProxyRow.model_validate_json(row.value).site == site for row in incarnations):
            return False
        unchanged = aetcd.transactions.Mod(key) == (found.mod_revision if found is not None else 0)
        won, _ = await self._transact([unchanged], [aetcd.transactions.Delete(key)], [])
        return won

    async def drain(self, proxy: ProxyId, row: DrainRow | None) -> None:
        """Set the order to drain a proxy, alive or not; None: take the order back, if there is one. Raises
        RegistryUnavailable (:meth:`federation.ports.Registry.drain`).
        """
        key = self._key(DRAIN, proxy)
        change = aetcd.transactions.Delete(key) if row is None else put_row(key, row)
        await self._transact([], [change], [])

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
        if not isinstance(lease, EtcdLease):
            raise Internal("a lease of another registry")
        key = self._key(LEADER, link)
        put = aetcd.transactions.Put(key, proxy.encode(), lease=lease.number)
        get = aetcd.transactions.Get(key)
        try:
            won, answers = await self._transact([aetcd.transactions.Create(key) == 0], [put, get], [get])
            leader = answers[-1][0][1]
            if not won and leader.lease == lease.number:
                unchanged = aetcd.transactions.Mod(key) == leader.mod_revision
                won, answers = await self._transact([unchanged], [put, get], [])
        except LookupError:
            return None  # the lease has ended
        return int(answers[-1][0][1].mod_revision) if won else None

    async def resign(self, link: str, lease: Lease) -> None:
        """Give the leadership of the link back; no effect if it is not held under the lease
        (:meth:`federation.ports.Registry.resign`).

        Raises:
            Internal: the lease is of another kind of registry.
            RegistryUnavailable: the leadership may have been given back all the same.
        """
        if not isinstance(lease, EtcdLease):
            raise Internal("a lease of another registry")
        key = self._key(LEADER, link)
        _, answers = await self._transact([], [aetcd.transactions.Get(key)], [])
        if answers[0] and answers[0][0][1].lease == lease.number:
            unchanged = aetcd.transactions.Mod(key) == answers[0][0][1].mod_revision
            await self._transact([unchanged], [aetcd.transactions.Delete(key)], [])

    async def set_link(self, row: LinkRow, *, seed: bool) -> None:
        """Write the row of a link; with `seed` only if the link has no row, and the row of a removed link counts as
        one. Raises RegistryUnavailable (:meth:`federation.ports.Registry.set_link`).
        """
        key = self._key(LINK, row.key)
        await self._transact([aetcd.transactions.Create(key) == 0] if seed else [], [put_row(key, row)], [])

    async def claim_tree(self, expected: TreeRow, new: TreeRow) -> bool:
        """Replace the row `expected` of the dispatching tree, of epoch 0 if there is none, by `new`; return whether
        `expected` was in force, and `new` is now (:meth:`federation.ports.Registry.claim_tree`).

        Raises:
            RegistryUnavailable: the row may have been set all the same; the watch reports it then.
        """
        key = self._key(TREE, "")
        return await self._replace_row(key, None if expected == TreeRow() else expected, new)

    async def secret(self, before: bytes = b"", *, make: bool = True) -> bytes:
        """Return the secret of the federation, 32 random bytes; of concurrent calls that make it one wins
        (:meth:`federation.ports.Registry.secret`). Raises RegistryUnavailable.

        Args:
            before: the secret to be set if there is none; empty: new random bytes.
            make: set a secret if there is none; False: return b"" instead.
        """
        key, proposed = self._key(SECRET, ""), before or secrets.token_bytes(SECRET_BYTES)
        if not make:
            _, answers = await self._transact([], [aetcd.transactions.Get(key)], [])
            return bytes(answers[0][0][0]) if answers[0] else b""
        put, get = aetcd.transactions.Put(key, proposed), aetcd.transactions.Get(key)
        made, answers = await self._transact([aetcd.transactions.Create(key) == 0], [put], [get])
        return proposed if made else bytes(answers[0][0][0])

    async def site_log(self, site: SiteId) -> SiteLogRow | None:
        """Return the row of the site's log; None: it has none. Raises RegistryUnavailable
        (:meth:`federation.ports.Registry.site_log`).
        """
        with self._servers.translated_errors():
            async with asyncio.timeout(self._deadline_s):
                row = await (await self._client()).get(self._key(LOG, site))
        return SiteLogRow.model_validate_json(row.value) if row is not None else None

    async def claim_site_log(self, site: SiteId, expected: SiteLogRow | None, new: SiteLogRow) -> bool:
        """Replace the row `expected` of the site's log, None if there is none, by `new`; return whether `expected` was
        in force, and `new` is now (:meth:`federation.ports.Registry.claim_site_log`).

        Raises:
            RegistryUnavailable: the row may have been set all the same.
        """
        key = self._key(LOG, site)
        return await self._replace_row(key, expected, new)

    async def note_checkpoints(self, ranks: Mapping[SessionId, Rank]) -> None:
        """Record the rank of the checkpoint of each session up to which clients were answered (handover rule 19,
        :meth:`federation.ports.Registry.note_checkpoints`).

        A rank that is not above the recorded one changes nothing, and a session without a row is skipped. Raises
        RegistryUnavailable: any of the ranks may have been recorded.
        """
        await asyncio.gather(*(self._note_checkpoint(session, rank) for session, rank in ranks.items()))

    async def _note_checkpoint(self, session: SessionId, rank: Rank) -> None:
        key, owner = self._key(CHECKPOINT, session), self._key(OWNER, session)
        put = aetcd.transactions.Put(key, encode_rank(rank).encode())
        known: bytes | None = None
        while True:
            unchanged = aetcd.transactions.Create(key) == 0 if known is None else aetcd.transactions.Value(key) == known
            read = [aetcd.transactions.Get(key), aetcd.transactions.Get(owner)]
            noted, answers = await self._transact([unchanged, aetcd.transactions.Create(owner) > 0], [put], read)
            if noted or not answers[1]:
                return
            known = bytes(answers[0][0][0]) if answers[0] else None
            if known is not None and decode_rank(known.decode()) >= rank:
                return

    async def noted_checkpoint(self, session: SessionId) -> Rank | None:
        """Return the highest rank that :meth:`note_checkpoints` recorded for the session; None: there is none. Raises
        RegistryUnavailable (:meth:`federation.ports.Registry.noted_checkpoint`).
        """
        with self._servers.translated_errors():
            async with asyncio.timeout(self._deadline_s):
                row = await (await self._client()).get(self._key(CHECKPOINT, session))
        return decode_rank(row.value.decode()) if row is not None else None

    async def watch(self) -> AsyncIterator[RegistryEvent | WatchAlive]:
        """Yield all rows as a :class:`federation.ports.Reloaded`, then every change in order, none skipped, and
        :class:`federation.ports.WatchAlive` in silence (:meth:`federation.ports.Registry.watch`).

        While etcd does not answer the watch waits; then it begins again with a `Reloaded`.

        Raises:
            RegistryUnavailable: this handle was closed.
        """
        pause_s, longest_s = RETRY_PAUSES_S
        while True:
            self._is_behind = True
            with suppress(RegistryUnavailable):
                async with aclosing(self._watch_once()) as events:
                    async for event in events:
                        pause_s = RETRY_PAUSES_S[0]
                        yield event
            if self._closed:
                raise RegistryUnavailable("this handle of the registry is closed")
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, longest_s)

    async def close(self) -> None:
        """Close this handle; a call under way, or a later one, may raise RegistryUnavailable. Leases are not ended
        (:meth:`federation.ports.Registry.close`).
        """
        self._closed = True
        clients, self._clients = self._clients, []
        for client in clients:
            with suppress(Exception):
                await asyncio.wait_for(client.close(), self._deadline_s)

    # ------------------------------------------------------------ leases

    async def has_name(self, row: ProxyRow, lease: int) -> bool:
        """Tell whether the proxy's name is held under the lease with this id, and not by a later incarnation.

        Raises:
            RegistryUnavailable: etcd does not answer.
        """
        with self._servers.translated_errors():
            async with asyncio.timeout(self._deadline_s):
                found = await (await self._client()).get(name_key(self._prefix, row.proxy))
        return found is not None and bool(found.lease == lease)

    async def keep_alive(self, lease: int) -> bool:
        """Renew the lease of etcd with this id, also one whose proxy was announced again (:meth:`has_name` tells);
        return False if it has ended. Raises RegistryUnavailable.
        """
        with self._servers.translated_errors():
            async with asyncio.timeout(self._deadline_s):
                reply = await (await self._client()).refresh_lease(lease)
            if reply is None:
                raise ConnectionAbortedError("no answer to a renewal")
        return bool(reply.TTL > 0)

    async def revoke(self, lease: int) -> None:
        """End the lease of etcd with this id, with its rows; one that has ended is no error. Raises
        RegistryUnavailable.
        """
        with suppress(LookupError), self._servers.translated_errors():
            async with asyncio.timeout(self._deadline_s):
                await (await self._client()).revoke_lease(lease)

    # ------------------------------------------------------------ calls

    async def _ask_each(self) -> None:
        addresses = self._servers.endpoints.addresses
        for attempt in range(1, len(addresses) + 1):
            index = self._servers.endpoints.current
            try:
                await self.owner(SessionId(""))
                return
            except RegistryUnavailable:
                if attempt == len(addresses):
                    if self._credentials is not None:
                        await self._credentials.try_by_hand(*addresses[index])
                    raise

    def _key(self, kind: str, name: str) -> bytes:
        return f"{self._prefix}{kind}{name}".encode()

    async def _client(self) -> aetcd.Client:
        """Return the client of the endpoint whose turn it is. gRPC dials at the first call, not here."""
        if self._closed:
            raise RegistryUnavailable("this handle of the registry is closed")
        if not self._clients:
            self._clients = [self._new_client(host, port) for host, port in self._servers.endpoints.addresses]
        client = self._clients[self._servers.endpoints.current]
        await client.connect()
        return client

    def _new_client(self, host: str, port: int) -> aetcd.Client:
        if self._credentials is None:
            return aetcd.Client(host, port, timeout=self._deadline_s, options=CHANNEL_OPTIONS)
        return TlsClient(host, port, self._deadline_s, self._credentials)

    async def _transact(self, compare: list[Any], success: list[Any], failure: list[Any]) -> tuple[bool, Any]:
        with self._servers.translated_errors():
            async with asyncio.timeout(self._deadline_s):
                succeeded, answers = await (await self._client()).transaction(compare, success, failure)
        return bool(succeeded), answers

    async def _replace_row(self, key: bytes, expected: SiteLogRow | TreeRow | None, new: SiteLogRow | TreeRow) -> bool:
        """Replace a row that means what is expected, None: there is none; return whether it was so.

        It may be written otherwise: a later version has fields that this one does not know, and an earlier one lacked
        some that have defaults here.
        """
        put = put_row(key, new)
        if expected is None:
            return (await self._transact([aetcd.transactions.Create(key) == 0], [put], []))[0]
        as_written = aetcd.transactions.Value(key) == expected.model_dump_json().encode()
        won, answers = await self._transact([as_written], [put], [aetcd.transactions.Get(key)])
        if won or not answers[0]:
            return won
        value, found = answers[0][0]
        if type(expected).model_validate_json(value) != expected:
            return False
        unchanged = aetcd.transactions.Mod(key) == found.mod_revision
        return (await self._transact([unchanged], [put], []))[0]

    async def _swap_owner(self, session: SessionId, expected: Ownership | None, new: Ownership) -> Claimed:
        if self._is_behind:
            # An etcd that was put back to an older copy would let one take what is another's.
            raise RegistryUnavailable(f"the watch of etcd at {self._servers.names} has broken, and begins anew")
        key, floor = self._key(OWNER, session), self._key(FLOOR, "")
        put = aetcd.transactions.Put(key, owner_value(new))
        if expected is None:
            unchanged = [aetcd.transactions.Create(key) == 0, aetcd.transactions.Create(floor) == 0]
        else:
            unchanged = [aetcd.transactions.Value(key) == owner_value(expected)]
        won, answers = await self._transact(unchanged, [put], self._row_reads(session))
        if won:
            return Claimed(True, new)
        if not answers[0] and expected is not None and read_owner(answers) == expected:
            # There is no row, and it is expected as such a session counts: as long as the floor is this one.
            unchanged = [aetcd.transactions.Create(key) == 0, aetcd.transactions.Value(floor) == answers[1][0][0]]
            won, answers = await self._transact(unchanged, [put], self._row_reads(session))
        return Claimed(True, new) if won else Claimed(False, read_owner(answers))

    # ------------------------------------------------------------ watching

    async def _watch_once(self) -> AsyncGenerator[RegistryEvent | WatchAlive, None]:
        """Yield a Reloaded and what follows it; raise RegistryUnavailable when the stream breaks."""
        with self._servers.translated_errors():
            client = await self._client()
            rows, revision = await self._load(client)
            view = RegistryView(len(self._prefix.encode()))
            self._is_behind = False
            yield view.load(rows)
            async with aclosing(changes(client, self._prefix.encode(), revision + 1, self._deadline_s)) as raw:
                async for change in raw:
                    if change is not None:
                        revision = int(change.kv.mod_revision)
                    await self._compact(client, revision)
                    if change is None:
                        yield WatchAlive()
                    elif (event := view.event(change)) is not None:
                        yield event

    async def _compact(self, client: aetcd.Client, revision: int) -> None:
        """Have etcd forget what was before the revision of last time, if it is time. All who watch do so."""
        now_s = time.monotonic()
        if not self._compact_s or now_s < self._compacts_at_s:
            return
        past, self._past, self._compacts_at_s = self._past, revision, now_s + self._compact_s
        if past:
            # Another proxy may have been first, and etcd refuses it then.
            with suppress(aetcd.ClientError, rpc.RpcError, OSError, TimeoutError):
                async with asyncio.timeout(self._deadline_s):
                    await client.compact(past)

    async def _load(self, client: aetcd.Client) -> tuple[list[Any], int]:
        """Return all rows as they were at one revision, and that revision."""
        pages: list[Any] = []
        start, revision = self._prefix.encode(), 0
        while True:
            request = rpc.RangeRequest(
                key=start,
                range_end=aetcd.utils.prefix_range_end(self._prefix.encode()),
                limit=REGISTRY_ROWS,
                revision=revision,
            )
            answer = await client.kvstub.Range(request, timeout=self._deadline_s)
            revision = revision or int(answer.header.revision)
            pages.append(answer.kvs)
            if not answer.more:
                return list(chain.from_iterable(pages)), revision
            start = answer.kvs[-1].key + b"\0"
