"""The simulator's log and registry behind the ports, so that they keep the promises that simulations count on.

The simulator has no use for drains, for the secret, and for leaders in a watch: tests of these take
`complete_registries`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence

from chaos.simulator.environment.fake_backends import PlainLog, PlainRegistry
from federation.ports import (
    Batch,
    Claimed,
    DrainRow,
    Lease,
    LinkRow,
    ProxyRow,
    RegistryEvent,
    SiteLogRow,
    TreeRow,
    WatchAlive,
)
from waypost.checkpoint import Rank
from waypost.errors import LogReplaced, LogUnavailable, RegistryUnavailable
from waypost.identity import Incarnation, Ownership, ProxyId, SessionId, SiteId
from waypost.records import Record

POLL_S = 0.002


class SimulatedSiteLog:
    def __init__(self, log: PlainLog) -> None:
        self._log = log
        self._is_closed = False

    async def start(self) -> None:
        pass

    async def append(self, records: Sequence[Record]) -> list[int]:
        self._check_open()
        return self._log.append(list(records))

    async def tail(self, offset: int) -> AsyncIterator[Batch]:
        while True:
            self._check_open()
            if offset > len(self._log):
                raise LogReplaced(f"the log ends at {len(self._log)}, and was read up to {offset}")
            batch = self._log.read(offset)
            if batch:
                offset = batch[-1][0] + 1
                yield batch
            await asyncio.sleep(POLL_S)

    async def read(self, offset: int, limit: int) -> Batch:
        self._check_open()
        return self._log.read(offset, offset + limit)

    async def first_offset(self) -> int:
        return self._log.first

    async def end_offset(self) -> int:
        return len(self._log)

    @property
    def seen_below(self) -> int:
        return len(self._log)

    async def interrupted(self) -> None:
        await asyncio.get_running_loop().create_future()

    def resume(self) -> None:
        pass

    async def close(self) -> None:
        self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogUnavailable("this handle is closed")


class SimulatedLease:
    def __init__(self, registry: PlainRegistry, row: ProxyRow, ttl_ms: int) -> None:
        self._registry = registry
        self._row = row
        self.ttl_ms = ttl_ms

    @property
    def holder(self) -> tuple[ProxyId, Incarnation]:
        return self._row.proxy, self._row.incarnation

    async def renew(self) -> bool:
        self._registry.expire(now_ms())
        return self._registry.renew(*self.holder, now_ms() + self.ttl_ms)

    async def revoke(self) -> None:
        self._registry.revoke(*self.holder)


class SimulatedRegistry:
    def __init__(self, registry: PlainRegistry) -> None:
        self._registry = registry
        self._is_closed = False

    async def start(self) -> None:
        pass

    async def create(self, session: SessionId, ownership: Ownership) -> Claimed:
        return self._registry.claim(session, None, ownership)

    async def claim(self, session: SessionId, expected: Ownership, new: Ownership) -> Claimed:
        return self._registry.claim(session, expected, new)

    async def owner(self, session: SessionId) -> Ownership | None:
        if self._is_closed:
            raise RegistryUnavailable("this handle is closed")
        return self._registry.owner(session)

    async def forget(self, deleted: Mapping[SessionId, Ownership]) -> None:
        self._registry.forget(deleted)

    async def announce(
        self, row: ProxyRow, ttl_ms: int, *, earlier: Collection[Incarnation] | None = None, replace: bool = False
    ) -> Lease:
        self._registry.expire(now_ms())
        self._registry.announce(row, now_ms() + ttl_ms, earlier=earlier, replace=replace)
        return SimulatedLease(self._registry, row, ttl_ms)

    async def drain(self, proxy: ProxyId, row: DrainRow | None) -> None:
        raise NotImplementedError

    async def elect(self, link: str, proxy: ProxyId, lease: Lease) -> int | None:
        assert isinstance(lease, SimulatedLease) and lease.holder[0] == proxy
        self._registry.expire(now_ms())
        return self._registry.elect(link, lease.holder)

    async def resign(self, link: str, lease: Lease) -> None:
        assert isinstance(lease, SimulatedLease)
        self._registry.resign(link, lease.holder)

    async def set_link(self, row: LinkRow, *, seed: bool) -> None:
        self._registry.set_link(row, seed=seed)

    async def forget_site(self, site: SiteId) -> bool:
        return self._registry.forget_site(site)

    async def claim_tree(self, expected: TreeRow, new: TreeRow) -> bool:
        return self._registry.claim_tree(expected, new)

    async def secret(self, before: bytes = b"", *, make: bool = True) -> bytes:
        raise NotImplementedError

    async def site_log(self, site: SiteId) -> SiteLogRow | None:
        return self._registry.site_logs.get(site)

    async def claim_site_log(self, site: SiteId, expected: SiteLogRow | None, new: SiteLogRow) -> bool:
        return self._registry.claim_site_log(site, expected, new)

    async def note_checkpoints(self, ranks: Mapping[SessionId, Rank]) -> None:
        self._registry.note_checkpoints(ranks)

    async def noted_checkpoint(self, session: SessionId) -> Rank | None:
        return self._registry.noted.get(session)

    async def watch(self) -> AsyncIterator[RegistryEvent | WatchAlive]:
        events, seen = self._registry.events, len(self._registry.events)
        yield self._registry.reloaded()
        while True:
            self._registry.expire(now_ms())
            for event in events[seen:]:
                seen += 1
                yield event
            await asyncio.sleep(POLL_S)

    async def close(self) -> None:
        self._is_closed = True


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
