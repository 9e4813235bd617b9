"""The matrix of reliabilities on a real proxy that is killed: cell by cell, what survives and what may go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

import pytest

import waypost
from chaos.cluster import Cluster, ProxySpec
from tests.helpers.polling import until_seen
from waypost.messages import Gap
from waypost.reliability import BEST_EFFORT, BEST_EFFORT_EVENTS, PERSISTENT, Reliability

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    flags = {"no-discovery": "", "lease-ttl-ms": "1000"}
    with Cluster([ProxySpec("a1", "A", flags)], [], tmp_path_factory.mktemp("reliability")) as cluster:
        yield cluster


class Cell(NamedTuple):
    """What a receiver was after the crash: what it was given, of how many gaps it was told, whether its place was new,
    and whether its subscription was there."""

    given: list[int]
    gaps: int
    joined: bool
    subscribed: bool


async def after_a_crash(cluster: Cluster, reliability: Reliability) -> Cell:
    """Have a receiver take 1, be away for 2 and 3, and come back for 4 after its proxy was killed."""
    proxy, session = cluster.proxies["a1"], f"matrix/{reliability.events}-{reliability.connection}"
    async with (
        waypost.produce("p", proxy=proxy.url) as producer,
        waypost.attach(session, proxy=proxy.url, reliability=reliability) as receiver,
    ):
        await receiver.subscribe("n > 0", id="x")
        await receiver.wait_effective("x", ["A/0"])
        await producer.publish({"n": 1})
        assert (await anext(receiver))["n"] == 1
        receiver.acknowledge()
        assert await receiver.wait_attested()
        await receiver.abandon()
        await producer.publish({"n": 2})
        await producer.publish({"n": 3})
    await until_seen(lambda: proxy.stored(session) == 2, f"2 and 3 wait for {session}")
    # What is to be written, is written by then.
    await asyncio.sleep(1)
    await asyncio.to_thread(proxy.kill)
    await asyncio.to_thread(proxy.start)
    await until_seen(lambda: proxy.owner(session) is not None, f"{session} is served again")
    # A place that is given up, is given up by then.
    await asyncio.sleep(4)
    gaps: list[Gap] = []
    came: list[int] = []

    def hear(event: object) -> None:
        if isinstance(event, Gap):
            gaps.append(event)

    async with (
        waypost.produce("p", proxy=proxy.url) as producer,
        waypost.attach(session, proxy=proxy.url, reliability=reliability, on_event=hear) as receiver,
    ):
        await producer.publish({"n": 4})
        async with asyncio.timeout(TIMEOUT_S):
            async for received in receiver:
                came.append(int(received["n"]))
                if came[-1] == 4:
                    break
        attached = await receiver.wait_attached()
        cell = Cell(came, len(gaps), receiver.joined, "x" in attached.subscriptions)
        await receiver.delete()
    return cell


async def test_persistent_events_on_a_persistent_connection_all_survive(cluster: Cluster) -> None:
    assert await after_a_crash(cluster, PERSISTENT) == Cell([2, 3, 4], 0, joined=False, subscribed=True)


async def test_best_effort_events_go_and_the_persistent_connection_survives(cluster: Cluster) -> None:
    assert await after_a_crash(cluster, BEST_EFFORT_EVENTS) == Cell([4], 1, joined=False, subscribed=True)


async def test_of_best_effort_alone_the_place_goes_too_and_the_sessions_subscription_stays(cluster: Cluster) -> None:
    assert await after_a_crash(cluster, BEST_EFFORT) == Cell([4], 0, joined=True, subscribed=True)


def test_persistent_events_on_a_connection_of_best_effort_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="mean nothing"):
        Reliability("persistent", "best-effort")
