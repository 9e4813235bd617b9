"""A receiver that is given by priority or deadline, on real proxies: it moves, its proxy and its process are killed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import waypost
from chaos.cluster import Cluster, ProxySpec
from tests.helpers.polling import until_seen
from waypost.errors import Refused

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    flags = {"no-discovery": "", "lease-ttl-ms": "1000"}
    places = [ProxySpec("a1", "A", flags), ProxySpec("a2", "A", flags), ProxySpec("b1", "B", flags)]
    with Cluster(places, [("A", "B")], tmp_path_factory.mktemp("order")) as cluster:
        yield cluster


async def next_ones(session: waypost.Receiver, count: int) -> list[int]:
    async with asyncio.timeout(TIMEOUT_S):
        return [int((await anext(session))["n"]) for _ in range(count)]


async def store(cluster: Cluster, session: str, *attributes: dict[str, int]) -> None:
    """Have these wait for a session to which nobody is attached."""
    here = cluster.proxies["a1"].url
    async with waypost.attach(session, proxy=here) as receiver:
        await receiver.subscribe("n > 0", id="x")
        await receiver.wait_effective("x", ["A/0"])
    async with waypost.produce("p", proxy=here) as producer:
        for number, fields in enumerate(attributes, 1):
            await producer.publish({"n": number, **fields})

    stored = cluster.proxies["a1"].stored
    await until_seen(lambda: stored(session) == len(attributes), f"{len(attributes)} wait for {session}")


async def test_by_priority_and_nothing_twice_for_another_life_elsewhere_after_a_crash(cluster: Cluster) -> None:
    here, there = cluster.proxies["a1"].url, cluster.proxies["b1"].url
    await store(cluster, "order/s", *({"Priority": priority} for priority in (1, 5, 3, 5, 2, 4, 9, 1)))
    async with waypost.attach("order/s", proxy=here, order="priority") as first:
        assert await next_ones(first, 3) == [7, 2, 4]
        first.acknowledge()
        assert await first.wait_attested()
        await first.abandon()
    # Nobody but the proxies knows now what that process had.
    async with waypost.attach("order/s", proxy=there, order="priority") as second:
        assert await next_ones(second, 2) == [6, 3]
        second.acknowledge()
        # What is answered would survive the proxy, and all that was said before it.
        await second.subscribe("n > 100", id="y")
        await second.abandon()
    await until_seen(lambda: (cluster.proxies["a1"].owner("order/s") or ("",))[0] == "b1", "it is at b1")
    await asyncio.to_thread(cluster.proxies["b1"].kill)
    await asyncio.to_thread(cluster.proxies["b1"].start)
    await until_seen(lambda: cluster.proxies["b1"].owner("order/s") is not None, "it is served again")
    async with waypost.attach("order/s", proxy=there, order="priority") as third:
        assert await next_ones(third, 3) == [5, 1, 8]
        await third.delete()


async def test_selectively_acknowledged_notifications_do_not_come_again_after_a_failover(cluster: Cluster) -> None:
    await store(cluster, "order/f", *({"Priority": priority} for priority in (0, 9, 9, 9)))
    here, there = cluster.proxies["a1"], cluster.proxies["a2"]
    async with waypost.attach("order/f", proxy=here.url, order="priority") as first:
        assert await next_ones(first, 3) == [2, 3, 4]
        first.acknowledge()
        # What is answered would survive the proxy and its disk, and all that was said before it.
        await first.subscribe("n > 100", id="y")
        await first.abandon()
    await asyncio.to_thread(here.kill)
    async with waypost.attach("order/f", proxy=there.url, order="priority") as second:
        assert await next_ones(second, 1) == [1]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(second), 2)
        await second.delete()
    await asyncio.to_thread(here.start)


async def test_by_deadline_the_one_that_ends_first_and_what_never_ends_last(cluster: Cluster) -> None:
    here = cluster.proxies["a1"].url
    soon, late = {"Timeout": 600_000}, {"Timeout": 6_000_000}
    await store(cluster, "order/t", {}, late, {"StopTime": 1}, soon)
    async with waypost.attach("order/t", proxy=here, order="deadline") as session:
        assert await next_ones(session, 4) == [3, 4, 2, 1]
        await session.delete()


def test_an_order_that_is_none_is_refused_before_anything_is_said() -> None:
    with pytest.raises(Refused, match="order"):
        waypost.attach("order/u", order="random")  # type: ignore[arg-type]
