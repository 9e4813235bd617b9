"""The shell around the ends of links: nothing waits for it, and every action is answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import cast

import msgspec
import pytest

from federation.links.endpoints import LinkEndpoints
from federation.links.inputs import LinkInput, LinksLeaseGranted, LinksLeaseLost, NeighbourSent
from federation.messages import LinkOpen, LinkRecords, LinkWants
from federation.ports import Registry, SiteLog, SiteLogRow
from federation.site.state import SiteState
from node.health.dependency_health import DependencyHealth
from node.machines.log_guard import LogGuard
from node.peers.directory import NodeDirectory
from node.peers.peers import Peers
from node.shell.links import Links
from node.site_log.guarded_log import GuardedLog
from node.site_log.witnesses import Witnesses
from waypost.clock import ManualClock
from waypost.errors import LogUnavailable
from waypost.identity import Origin, ProxyId, SiteId
from waypost.records import FiltersRequested, LinkLed, Progress, Record

A, B = SiteId("A"), SiteId("B")
B1 = ProxyId("b1")
X, Y = "n > 0", "m > 1"


class SlowLog:
    """A log that takes nothing before it is told to, and whose first offset is known at once."""

    def __init__(self) -> None:
        self.asked: list[Sequence[Record]] = []
        self.go_on = asyncio.Event()
        self.failure: Exception | None = None

    async def append(self, records: Sequence[Record]) -> list[int]:
        self.asked.append(records)
        await self.go_on.wait()
        if self.failure is not None:
            raise self.failure
        return list(range(len(records)))

    async def first_offset(self) -> int:
        return 0


class Sent:
    """Peers that only note what they are sent."""

    def __init__(self) -> None:
        self.messages: list[tuple[ProxyId, msgspec.Struct]] = []
        self.health = DependencyHealth(random.Random(0), ManualClock())

    def send(self, proxy: ProxyId, message: msgspec.Struct) -> None:
        self.messages.append((proxy, message))


Step = Callable[[LinkInput], None]


def links(log: SlowLog, sent: Sent) -> tuple[Links, Step]:
    state = SiteState(A, (B,))
    ends, site_log = LinkEndpoints(state, random.Random(1)), cast(SiteLog, log)
    # It may send, for it had a lease; it leads no link.
    for input in (LinksLeaseGranted(), LinksLeaseLost()):
        ends.step(input, 0)
    nobody = cast(Registry, None)
    others = Witnesses(ProxyId("a1"), A, cast(Peers, sent), NodeDirectory(A), ManualClock())
    guard = LogGuard(state, "federation", SiteLogRow(identity="log"))
    # The log has said what it is, and that was compared with other proxies.
    guard._is_identified = guard.is_confirmed = True

    def step(input: LinkInput) -> None:
        for effect in ends.step(input, 0):
            shell.perform(effect)

    shell = Links(
        ProxyId("a1"),
        ends,
        log=site_log,
        registry=nobody,
        peers=cast(Peers, sent),
        clock=ManualClock(),
        guarded_log=GuardedLog(guard, site_log, nobody, others),
        health=sent.health,
        step=step,
    )
    return shell, step


async def moments(number: int = 5) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_slow_append_of_filters_does_not_delay_the_link() -> None:
    log, sent = SlowLog(), Sent()
    shell, step = links(log, sent)
    step(NeighbourSent(B1, LinkWants(B, 1, 1, {X: 1})))
    step(NeighbourSent(B1, LinkOpen(site=B, epoch=1, frontier={}, serial=2, digest=0)))
    await moments()
    assert log.asked == [[FiltersRequested(B, 1, 1, {X: 1})]]
    assert [type(message) for _, message in sent.messages] == [LinkRecords]
    await shell.close()


async def test_unexpected_error_in_an_effect_is_answered() -> None:
    log = SlowLog()
    shell, step = links(log, Sent())
    step(NeighbourSent(B1, LinkWants(B, 1, 1, {X: 1})))
    step(NeighbourSent(B1, LinkWants(B, 1, 2, {Y: 2})))
    await moments()
    log.failure = ZeroDivisionError("a bug")
    log.go_on.set()
    await moments()
    assert log.asked == [[FiltersRequested(B, 1, 1, {X: 1})], [FiltersRequested(B, 1, 2, {Y: 2})]]
    await shell.close()


async def test_when_it_is_closed_nothing_is_left_behind() -> None:
    shell, step = links(SlowLog(), Sent())
    step(NeighbourSent(B1, LinkOpen(site=B, epoch=1, frontier={}, serial=1, digest=0)))
    await shell.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_link_whose_records_the_log_does_not_take_is_a_trouble_until_they_go_through() -> None:
    log, sent = SlowLog(), Sent()
    shell, _ = links(log, sent)
    log.go_on.set()
    log.failure = LogUnavailable("the log is full")
    records: list[Record] = [Progress(B, 1, Origin("B/0"), 3)]
    with pytest.raises(LogUnavailable):
        await shell._append(records)
    assert sent.health.now == {"link from B": "LOG_UNAVAILABLE: the log is full"}
    log.failure = None
    await shell._append([LinkLed(B, 2, "claim")])
    assert sent.health.now
    await shell._append(records)
    assert not sent.health.now
    await shell.close()
