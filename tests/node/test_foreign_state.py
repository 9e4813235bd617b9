"""A receiver attaches with a state that is not of this federation: nobody else of its session loses by that."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import waypost
from chaos.cluster import Cluster, ProxySpec
from waypost.identity import Origin

ORIGINS = ["A/0", "B/0"]
BEYOND = dict.fromkeys(map(Origin, [*ORIGINS, "A/0.2", "C/0"]), 2**40)
WAIT_S = 30.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    flags = {"no-discovery": "", "lease-ttl-ms": "2000"}
    with Cluster([ProxySpec("a1", "A", flags), ProxySpec("b1", "B", flags)], [("A", "B")], tmp_path) as cluster:
        yield cluster


async def _publish(cluster: Cluster, kind: int) -> list[tuple[int, str]]:
    published = []
    for name, proxy in cluster.proxies.items():
        async with waypost.produce(f"of-{name}", proxy=proxy.url) as producer:
            await producer.publish({"kind": kind, "at": name})
        published.append((kind, name))
    return published


async def _take(receiver: waypost.Receiver, count: int) -> set[tuple[int, str]]:
    async with asyncio.timeout(WAIT_S):
        taken = [await anext(receiver) for _ in range(count)]
    return {(int(str(one["kind"])), str(one["at"])) for one in taken}


@pytest.mark.parametrize("name", ["another", "main"])
async def test_state_of_another_federation_takes_nothing_from_others(cluster: Cluster, name: str) -> None:
    urls = {proxy: process.url for proxy, process in cluster.proxies.items()}
    session = "team/foreign"
    async with waypost.attach(session, receiver="owner", proxy=urls["a1"]) as owner:
        await owner.wait_effective(await owner.subscribe("kind == 0"), ORIGINS)
        if name == "main":
            async with waypost.attach(session, receiver=name, proxy=urls["a1"]):
                pass
        foreign = waypost.ReceiverState(frontier=dict(BEYOND))
        async with waypost.attach(session, receiver=name, state=foreign, proxy=urls["a1"]):
            pass
        await owner.wait_effective(await owner.subscribe("kind == 1"), ORIGINS)
        expected = {*await _publish(cluster, 0), *await _publish(cluster, 1)}
        assert await _take(owner, 4) == expected
        await owner.move(urls["b1"])
        await owner.wait_effective(await owner.subscribe("kind == 2"), ORIGINS)
        expected = {*await _publish(cluster, 2), *await _publish(cluster, 0)}
        assert await _take(owner, 4) == expected
    # Whoever comes later, also under the name of that receiver, gets what is published then.
    for later in ("later", name):
        async with waypost.attach(session, receiver=later, proxy=urls["b1"]) as receiver:
            missing = {*await _publish(cluster, 1)}
            async with asyncio.timeout(WAIT_S):
                while missing:
                    missing -= await _take(receiver, 1)
