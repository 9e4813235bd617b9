"""Quench on real proxies: a producer hears of what is wanted at its own site, and behind the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import waypost
from chaos.cluster import Cluster, ProxySpec
from waypost.keys import Keys, public_key

TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    flags = {"no-discovery": ""}
    places = [ProxySpec("a1", "A", flags), ProxySpec("b1", "B", flags), ProxySpec("c1", "C", flags)]
    # In a line: what is wanted at C, A hears of from B.
    with Cluster(places, [("A", "B"), ("B", "C")], tmp_path_factory.mktemp("quench")) as cluster:
        yield cluster


async def wait_announced(producer: waypost.Producer, *terms: str) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while producer.terms != set(terms):
            await asyncio.sleep(0.02)


async def test_producer_learns_of_interest_at_any_site_and_may_suppress_unwanted_notifications(
    cluster: Cluster,
) -> None:
    here, there = cluster.proxies["a1"].url, cluster.proxies["c1"].url
    async with (
        waypost.produce("sensor", proxy=here) as sensor,
        waypost.attach("quench/far", proxy=there) as far,
    ):
        await sensor.quench("station", "temperature")
        assert not sensor.wanted({"station": "JFK", "temperature": 30})
        hot = await far.subscribe('station == "JFK" && temperature > 25 || require(rain)')
        await wait_announced(sensor, 'station == "JFK" && temperature > 25')
        assert sensor.wanted({"station": "JFK", "temperature": 30})
        assert not sensor.wanted({"station": "JFK", "temperature": 20})
        # It moves, over two sites, and is wanted all the time.
        for name in ("b1", "a1", "c1"):
            await far.move(cluster.proxies[name].url)
            await far.wait_attached()
            assert sensor.wanted({"station": "JFK", "temperature": 30})
        await far.unsubscribe(hot)
        await wait_announced(sensor)
        await far.delete()


async def test_interest_with_keys_is_reported_only_to_a_producer_with_the_keys(cluster: Cluster) -> None:
    async with (
        waypost.produce("honest", proxy=cluster.proxies["a1"].url) as honest,
        waypost.produce("other", proxy=cluster.proxies["a1"].url) as other,
        waypost.attach("quench/keyed", proxy=cluster.proxies["c1"].url) as far,
    ):
        await honest.publish_with(Keys.producer(b"k"))
        await honest.quench("report")
        await other.quench("report")
        await far.subscribe("report > 0", id="x", keys=Keys.producer(public_key(b"k")), insecure=False)
        await wait_announced(honest, "report > 0")
        assert not other.wanted({"report": 1})
        await far.subscribe("report > 0", id="x")
        await wait_announced(other, "report > 0")
        await far.delete()


async def test_reconnected_producer_gets_the_wanted_terms_again(cluster: Cluster) -> None:
    async with waypost.attach("quench/again", proxy=cluster.proxies["a1"].url) as near:
        await near.subscribe("again == 1")
        async with waypost.produce("sensor", proxy=cluster.proxies["b1"].url) as sensor:
            await sensor.quench("again")
            await wait_announced(sensor, "again == 1")
            await sensor.move(cluster.proxies["c1"].url)
            assert sensor.wanted({"again": 1})
            await wait_announced(sensor, "again == 1")
        await near.delete()
