"""A lease of etcd is renewed over a connection of its own, in a thread of its own, beside what the node's loop asks."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest

from chaos.servers.etcd import EtcdServer
from chaos.servers.process import free_port
from federation.embedded.registry import EmbeddedLease
from federation.etcd import EtcdLeaseRenewer, EtcdRegistry
from federation.ports import ProxyRow
from node.shell.lease_renewal import Heart, LeaseRenewal
from tests.helpers.polling import until
from waypost.clock import SystemClock
from waypost.errors import Internal, RegistryUnavailable
from waypost.identity import Incarnation, ProxyId, SessionId, SiteId

TTL_MS = 3_000


def announced(incarnation: str) -> ProxyRow:
    return ProxyRow(
        proxy=ProxyId("a"), incarnation=Incarnation(incarnation), site=SiteId("A"), url="ws://a", changelog="file:a"
    )


async def test_busy_loop_keeps_its_lease_at_etcd(etcd: EtcdServer, key_prefix: str) -> None:
    registry = EtcdRegistry(etcd.endpoint, key_prefix)
    connect = partial(EtcdLeaseRenewer, etcd.endpoint, key_prefix)
    await registry.start()
    lease = await registry.announce(announced("a#1"), TTL_MS, earlier=())
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


async def test_renewer_says_whether_the_lease_and_the_name_are_still_held(etcd: EtcdServer, key_prefix: str) -> None:
    registry, renewer = EtcdRegistry(etcd.endpoint, key_prefix), EtcdLeaseRenewer(etcd.endpoint, key_prefix)
    await registry.start()
    first = await registry.announce(announced("a#1"), TTL_MS, earlier=())
    assert await renewer.renew(first)
    second = await registry.announce(announced("a#2"), TTL_MS, earlier=[Incarnation("a#1")])
    # The name is another incarnation's now.
    assert not await renewer.renew(first)
    assert await renewer.renew(second)
    await registry.revoke(second.number)
    assert not await renewer.renew(second)
    with pytest.raises(Internal, match="no lease of this registry"):
        await renewer.renew(EmbeddedLease.__new__(EmbeddedLease))
    await renewer.close()
    await registry.close()


async def test_renewer_asks_another_member_after_one_that_does_not_answer(etcd: EtcdServer, key_prefix: str) -> None:
    registry = EtcdRegistry(etcd.endpoint, key_prefix)
    await registry.start()
    lease = await registry.announce(announced("a#1"), TTL_MS, earlier=())
    renewer = EtcdLeaseRenewer(f"127.0.0.1:{free_port()},{etcd.endpoint}", key_prefix, deadline_s=0.5)
    with pytest.raises(RegistryUnavailable) as caught:
        await renewer.renew(lease)
    assert "\n" not in caught.value.message and len(caught.value.message) < 300
    assert await renewer.renew(lease)
    await renewer.close()
    await registry.close()
