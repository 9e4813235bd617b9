"""A lease of etcd is renewed over a connection of its own, in a thread of its own, beside what the node's loop asks."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from chaos.servers.etcd import EtcdServer
from federation.etcd import EtcdLeaseRenewer, EtcdRegistry
from federation.ports import ProxyRow
from node.shell.lease_renewal import Heart, LeaseRenewal
from tests.helpers.polling import until
from waypost.clock import SystemClock
from waypost.identity import Incarnation, ProxyId, SessionId, SiteId

TTL_MS = 3_000


async def test_busy_loop_keeps_its_lease_at_etcd(etcd: EtcdServer, key_prefix: str) -> None:
    registry = EtcdRegistry(etcd.endpoint, key_prefix)
    connect = partial(EtcdLeaseRenewer, etcd.endpoint, key_prefix)
    await registry.start()
    row = ProxyRow(
        proxy=ProxyId("a"), incarnation=Incarnation("a#1"), site=SiteId("A"), url="ws://a", changelog="file:a"
    )
    lease = await registry.announce(row, TTL_MS, earlier=())
    until_ms: list[int] = []
    heart = Heart()
    beating = asyncio.create_task(heart.beat())
    keeping = asyncio.create_task(LeaseRenewal(connect, SystemClock(), heart, until_ms.append, print).keep(lease))
    await until(lambda: bool(until_ms), "a renewal")
    time.sleep(1.5 * TTL_MS / 1000)  # noqa: ASYNC251 - the loop is busy
    assert await lease.renew()
    for _ in range(100):
        await registry.owner(SessionId("s"))
    await lease.revoke()
    await asyncio.wait_for(keeping, 10)
    beating.cancel()
    await registry.close()
