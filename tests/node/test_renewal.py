"""A lease is renewed while the node's loop is busy, and no more when it has stood still for too long."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path

import pytest

from federation.embedded.registry import EmbeddedRegistry
from federation.ports import ProxyRow
from node.shell import lease_renewal
from node.shell.lease_renewal import Heart, LeaseRenewal
from tests.helpers.polling import until
from waypost.clock import SystemClock
from waypost.identity import Incarnation, ProxyId, SiteId

TTL_MS = 600
LONG_TTL_MS = 2_000
"""So long that the first renewal comes in time on a machine that has a lot to do."""


def row() -> ProxyRow:
    return ProxyRow(
        proxy=ProxyId("a"), incarnation=Incarnation("a#1"), site=SiteId("A"), url="ws://a", changelog="file:a"
    )


async def test_busy_loop_keeps_its_lease(tmp_path: Path) -> None:
    registry = EmbeddedRegistry(tmp_path / "registry.db", durable=False)
    lease = await registry.announce(row(), LONG_TTL_MS, earlier=())
    until_ms: list[int] = []
    connect = partial(EmbeddedRegistry, tmp_path / "registry.db", durable=False)
    heart = Heart()
    beating = asyncio.create_task(heart.beat())
    keeping = asyncio.create_task(LeaseRenewal(connect, SystemClock(), heart, until_ms.append, print).keep(lease))
    await until(lambda: bool(until_ms), "a renewal")
    time.sleep(2 * LONG_TTL_MS / 1000)  # noqa: ASYNC251 - the loop is busy
    assert await lease.renew()
    await until(lambda: until_ms[-1] > SystemClock().now_ms(), "the news of a renewal")
    await lease.revoke()
    await asyncio.wait_for(keeping, 10)
    beating.cancel()
    await registry.close()


async def test_loop_that_has_no_turn_for_too_long_loses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_renewal, "HEARTBEAT_S", TTL_MS / 1000)
    registry = EmbeddedRegistry(tmp_path / "registry.db", durable=False)
    lease = await registry.announce(row(), TTL_MS, earlier=())
    connect = partial(EmbeddedRegistry, tmp_path / "registry.db", durable=False)
    heart = Heart()
    beating = asyncio.create_task(heart.beat())
    keeping = asyncio.create_task(LeaseRenewal(connect, SystemClock(), heart, lambda _: None, print).keep(lease))
    await asyncio.sleep(3 * TTL_MS / 1000)
    assert not keeping.done()
    time.sleep(4 * TTL_MS / 1000)  # noqa: ASYNC251 - the loop stands still
    assert not await lease.renew()
    await asyncio.wait_for(keeping, 10)
    beating.cancel()
    await registry.close()
