"""What only the adapters in memory offer: failures on demand, and a clock that is moved by hand."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from federation.memory import (
    MemoryLogStorage,
    MemoryRegistry,
    MemoryRegistryStorage,
    MemorySiteLog,
)
from federation.ports import LeaderChanged, OwnerChanged, ProxyDown, ProxyRow, Reloaded
from tests.helpers.watch import changes
from waypost.clock import ManualClock
from waypost.errors import LogUnavailable, RegistryUnavailable
from waypost.identity import Epoch, Incarnation, Ownership, ProxyId, SessionId, SiteId
from waypost.records import Published

S = SessionId("s")
OWN, YOURS = Ownership(ProxyId("p"), Epoch(1)), Ownership(ProxyId("q"), Epoch(2))
ROW = ProxyRow(proxy=ProxyId("p"), incarnation=Incarnation("1"), site=SiteId("north"), url="")


async def test_claim_with_a_lost_answer_is_applied() -> None:
    storage = MemoryRegistryStorage()
    registry = MemoryRegistry(storage, ManualClock())
    await registry.create(S, OWN)
    storage.answers_to_lose = 1
    with pytest.raises(RegistryUnavailable):
        await registry.claim(S, OWN, YOURS)
    assert await registry.owner(S) == YOURS


async def test_a_storage_that_is_away_refuses_and_does_nothing() -> None:
    storage = MemoryLogStorage()
    log = MemorySiteLog(storage)
    storage.away = True
    with pytest.raises(LogUnavailable):
        await log.append([Published(producer="a", incarnation=Incarnation(""), sequence=0, at_ms=0, body=b"")])
    storage.away = False
    assert await log.end_offset() == 0


async def test_leases_end_on_the_clock_that_is_given() -> None:
    clock = ManualClock()
    storage = MemoryRegistryStorage()
    registry = MemoryRegistry(storage, clock)
    lease = await registry.announce(ROW, 1000)
    assert await registry.elect("link", ROW.proxy, lease) == 1
    events: Any = changes(registry)
    async with asyncio.timeout(5), aclosing(events):
        await anext(events)
        clock.advance(999)
        assert await lease.renew()
        clock.advance(1000)
        storage.expire_leases(clock.now_ms())
        assert len(storage.rows.terms) == 1
        clock.advance(1)
        storage.expire_leases(clock.now_ms())
        assert await anext(events) == LeaderChanged("link", None, 1)
        assert await anext(events) == ProxyDown(ROW.proxy, ROW.incarnation)
        assert not await lease.renew()


async def test_a_watch_behind_a_compaction_loads_anew() -> None:
    storage = MemoryRegistryStorage()
    registry = MemoryRegistry(storage, ManualClock())
    events: Any = changes(registry)
    async with asyncio.timeout(5), aclosing(events):
        assert await anext(events) == Reloaded({}, {}, {})
        await registry.create(S, OWN)
        storage.compact()
        assert await anext(events) == Reloaded({S: OWN}, {}, {})
        await registry.claim(S, OWN, YOURS)
        assert await anext(events) == OwnerChanged(S, YOURS)


async def test_tasks_that_wait_wake_in_the_order_in_which_they_came() -> None:
    log = MemorySiteLog(MemoryLogStorage())
    order: list[int] = []

    async def wait(number: int) -> None:
        tail: Any = log.tail(0)
        async with aclosing(tail):
            await anext(tail)
            order.append(number)

    tasks = [asyncio.create_task(wait(number)) for number in range(20)]
    await asyncio.sleep(0)
    await log.append([Published(producer="a", incarnation=Incarnation(""), sequence=0, at_ms=0, body=b"")])
    await asyncio.gather(*tasks)
    assert order == list(range(20))
