"""A registry that is restored from an older copy: what was made since, its proxies write again, and nothing is lost."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import waypost
from chaos.cluster import Cluster, ProxySpec
from chaos.faults.older_registry import OlderRegistry
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from tests.helpers.polling import until
from waypost.identity import new_incarnation

TIMEOUT_S, LEASE_S = 90.0, 3
LAST = 1_000_000
"""What ends a reader."""


class Reader:
    """A receiver of a session of its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = waypost.ReceiverState()
        self.numbers: list[int] = []

    async def prepare(self, url: str, origins: list[str]) -> None:
        async with waypost.attach(self.name, proxy=url, state=self.state, timeout_s=TIMEOUT_S) as session:
            await session.wait_effective(await session.subscribe("n > 0"), origins)

    async def read(self, url: str) -> None:
        """Read in a session that is there already, until it has the last number."""
        async with waypost.attach(self.name, proxy=url, state=self.state, create=False, timeout_s=TIMEOUT_S) as session:
            async for notification in session:
                self.numbers.append(int(str(notification["n"])))
                if self.numbers[-1] == LAST:
                    return


@pytest.fixture
async def etcd_of_its_own(tmp_path: Path) -> AsyncIterator[EtcdServer]:
    with EtcdServer(tmp_path / "etcd") as server:
        yield server


def _flags(etcd: EtcdServer, kafka: KafkaServer) -> dict[str, str]:
    return {
        "no-discovery": "",
        "lease-ttl-ms": str(LEASE_S * 1_000),
        "etcd": etcd.endpoint,
        "kafka": kafka.bootstrap,
        "prefix": f"older-{new_incarnation()}",
    }


@pytest.mark.parametrize("down_s", [0.0, 2.5 * LEASE_S])
async def test_sessions_that_were_made_since_the_copy_lose_nothing(
    etcd_of_its_own: EtcdServer, kafka: KafkaServer, tmp_path: Path, down_s: float
) -> None:
    shared = _flags(etcd_of_its_own, kafka)
    places = [ProxySpec("a1", "A", shared), ProxySpec("a2", "A", shared), ProxySpec("b1", "B", shared)]
    registry, is_done = OlderRegistry(etcd_of_its_own, down_s), asyncio.Event()
    away, at_a, at_b = (Reader(name) for name in ("away", "at a", "at b"))
    published: list[int] = []

    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(places, [("A", "B")], tmp_path / "proxies"))
        urls = {name: proxy.url for name, proxy in cluster.proxies.items()}
        await registry.copy()
        # Of this one the copy has an earlier life.
        await asyncio.to_thread(cluster.proxies["a2"].stop)
        await asyncio.to_thread(cluster.proxies["a2"].start)
        await away.prepare(urls["a1"], ["A/0"])
        await at_a.prepare(urls["a2"], ["A/0"])
        await at_b.prepare(urls["b1"], ["A/0"])

        async def publish() -> None:
            async with waypost.produce("maker", proxy=urls["a1"], timeout_s=TIMEOUT_S) as producer:
                while not is_done.is_set():
                    await producer.publish({"n": len(published) + 1})
                    published.append(len(published) + 1)
                    await asyncio.sleep(0.02)

        reading = [
            asyncio.create_task(at_a.read(urls["a2"])),
            asyncio.create_task(at_b.read(urls["b1"])),
        ]
        producing = asyncio.create_task(publish())
        await until(lambda: len(at_a.numbers) > 20 and len(at_b.numbers) > 20, "both receive", TIMEOUT_S)
        await registry.inject()
        await registry.heal()
        before = len(published)
        await until(lambda: len(published) > before + 50, "producers go on", TIMEOUT_S)
        # One that was attached, and one of which nobody asked: it comes elsewhere.
        reading.append(asyncio.create_task(away.read(urls["a2"])))
        await until(lambda: len(away.numbers) > 20, "who was away receives", TIMEOUT_S)
        is_done.set()
        await producing
        async with waypost.produce("another", proxy=urls["a2"], timeout_s=TIMEOUT_S) as producer:
            await producer.publish({"n": LAST})
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.gather(*reading)
        for reader in (away, at_a, at_b):
            assert reader.numbers == [*published, LAST], reader.name
        lines = [(tmp_path / "proxies" / f"{name}.log").read_text() for name in urls]
        assert any("the registry has lost rows of our sessions" in text for text in lines)
        assert not any("a session was lost" in text for text in lines)


async def test_a_session_that_is_made_anew_under_the_name_of_one_that_was_lost_survives_its_proxy(
    etcd_of_its_own: EtcdServer, kafka: KafkaServer, tmp_path: Path
) -> None:
    """What an earlier proxy and the changelog have of the one that was lost is of no later epoch."""
    shared = _flags(etcd_of_its_own, kafka)
    places = [ProxySpec("a1", "A", shared), ProxySpec("a2", "A", shared)]
    registry, lost, anew = OlderRegistry(etcd_of_its_own, 0.0), Reader("s"), Reader("s")
    async with Cluster(places, [], tmp_path / "proxies") as cluster:
        a1, a2 = cluster.proxies["a1"], cluster.proxies["a2"]
        await registry.copy()
        await lost.prepare(a1.url, ["A/0"])
        for proxy in (a2, a1):
            async with waypost.attach("s", proxy=proxy.url, state=lost.state, timeout_s=TIMEOUT_S):
                pass
        await asyncio.to_thread(a1.stop)
        await registry.inject()
        await registry.heal()
        await anew.prepare(a2.url, ["A/0"])
        async with waypost.produce("maker", proxy=a2.url, timeout_s=TIMEOUT_S) as producer:
            for number in range(1, 21):
                await producer.publish({"n": number})
        await asyncio.to_thread(a2.kill)
        await asyncio.to_thread(a1.start)
        async with waypost.produce("another", proxy=a1.url, timeout_s=TIMEOUT_S) as producer:
            await producer.publish({"n": LAST})
        async with asyncio.timeout(TIMEOUT_S):
            await anew.read(a1.url)
        assert anew.numbers == [*range(1, 21), LAST]


async def test_empty_registry_gets_every_row_again(
    etcd_of_its_own: EtcdServer, kafka: KafkaServer, tmp_path: Path
) -> None:
    """Sessions, and whose registry it is: else each proxy that starts again is refused at its own site's log."""
    registry, reader = OlderRegistry(etcd_of_its_own, 0.0), Reader("s")
    await registry.copy()
    shared = _flags(etcd_of_its_own, kafka)
    places = [ProxySpec("a1", "A", shared), ProxySpec("a2", "A", shared)]
    async with Cluster(places, [], tmp_path / "proxies") as cluster:
        a1, a2 = cluster.proxies["a1"], cluster.proxies["a2"]
        await reader.prepare(a1.url, ["A/0"])
        await asyncio.to_thread(a2.kill)
        await registry.inject()
        await registry.heal()
        # Beside one that is about to tell the registry again what it knew.
        await asyncio.to_thread(a2.start)
        async with waypost.produce("maker", proxy=a2.url, timeout_s=TIMEOUT_S) as producer:
            await producer.publish({"n": 1})
        for proxy in (a1, a2):
            await asyncio.to_thread(proxy.stop)
            await asyncio.to_thread(proxy.start)
            await until(proxy.ready, "it is ready", TIMEOUT_S)
        async with waypost.produce("another", proxy=a2.url, timeout_s=TIMEOUT_S) as producer:
            await producer.publish({"n": LAST})
        async with asyncio.timeout(TIMEOUT_S):
            await reader.read(a1.url)
        assert reader.numbers == [1, LAST]


async def test_returning_owner_with_its_disk_does_not_undo_answers_of_later_owners(
    etcd_of_its_own: EtcdServer, kafka: KafkaServer, tmp_path: Path
) -> None:
    """The registry says that it is the owner, as in the copy, and its disk says so too."""
    registry, reader = OlderRegistry(etcd_of_its_own, 0.0), Reader("s")
    shared = _flags(etcd_of_its_own, kafka)
    places = [ProxySpec("a1", "A", shared), ProxySpec("a2", "A", shared)]
    async with Cluster(places, [], tmp_path / "proxies") as cluster:
        a1, a2 = cluster.proxies["a1"], cluster.proxies["a2"]
        async with waypost.attach("s", proxy=a1.url, state=reader.state, timeout_s=TIMEOUT_S):
            pass
        await registry.copy()
        await asyncio.to_thread(a1.kill)
        await reader.prepare(a2.url, ["A/0"])
        await asyncio.to_thread(a2.kill)
        await registry.inject()
        await registry.heal()
        await asyncio.to_thread(a1.start)
        await until(a1.ready, "a1 is ready", TIMEOUT_S)
        async with waypost.produce("another", proxy=a1.url, timeout_s=TIMEOUT_S) as producer:
            await producer.publish({"n": LAST})
        async with asyncio.timeout(TIMEOUT_S):
            await reader.read(a1.url)
        assert reader.numbers == [LAST]


async def test_proxies_that_have_lost_their_disks_since_are_not_taken_for_others_of_their_names(
    etcd_of_its_own: EtcdServer, kafka: KafkaServer, tmp_path: Path
) -> None:
    """The copy has lives of them of which their new folders know nothing."""
    registry = OlderRegistry(etcd_of_its_own, 0.0)
    shared = _flags(etcd_of_its_own, kafka)
    places = [ProxySpec("a1", "A", shared), ProxySpec("a2", "A", shared)]
    async with Cluster(places, [], tmp_path / "proxies") as cluster:
        await registry.copy()
        for name, proxy in cluster.proxies.items():
            await asyncio.to_thread(proxy.kill)
            await asyncio.to_thread(shutil.rmtree, tmp_path / "proxies" / "proxies" / name)
            await asyncio.to_thread(proxy.start)
            await until(proxy.ready, "it is ready", TIMEOUT_S)
        await registry.inject()
        await registry.heal()
        for proxy in cluster.proxies.values():
            async with waypost.produce("maker", proxy=proxy.url, timeout_s=TIMEOUT_S) as producer:
                await producer.publish({"n": 1})
            await until(proxy.ready, "it is ready again", TIMEOUT_S)
