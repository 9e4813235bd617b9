"""More filters than one record of a log has room for: a neighbour has them all, and goes on while it takes them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import waypost
from chaos.cluster import Cluster, ProxySpec
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from waypost.identity import new_incarnation

pytestmark = pytest.mark.alone

SESSIONS, EACH = 17, 100
TOPIC = "x" * 580
TIMEOUT_S = 240.0


@pytest.fixture
async def cluster(etcd: EtcdServer, kafka: KafkaServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    prefix = f"filters-{new_incarnation()}"
    flags = {"no-discovery": "", "kafka": kafka.bootstrap, "etcd": etcd.endpoint, "prefix": prefix}
    places = [ProxySpec(name, site, flags) for name, site in (("a1", "A"), ("b1", "B"))]
    async with AsyncExitStack() as stack:
        yield await asyncio.to_thread(stack.enter_context, Cluster(places, [("A", "B")], tmp_path))


def expression(number: int) -> str:
    return f'topic == "{TOPIC}" && n == {number}'


class Reader:
    """One session with many long expressions."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.got: list[int] = []
        self.effective = asyncio.Event()

    async def read(self, url: str) -> None:
        async with waypost.attach(f"many-{self.number}", proxy=url, timeout_s=TIMEOUT_S) as session:
            first = self.number * EACH
            subscriptions = [await session.subscribe(expression(n)) for n in range(first, first + EACH)]
            for subscription in subscriptions:
                await session.wait_effective(subscription, ["A/0"])
            self.effective.set()
            async for notification in session:
                self.got.append(int(str(notification["n"])))


async def publish_until(url: str, done: asyncio.Event, waits: list[float]) -> None:
    async with waypost.produce("other", proxy=url, timeout_s=TIMEOUT_S) as producer:
        while not done.is_set():
            began = time.monotonic()
            await producer.publish({"other": 1})
            waits.append(time.monotonic() - began)
            await asyncio.sleep(0.02)


async def test_a_neighbour_forwards_by_more_filters_than_a_record_has_room_for(cluster: Cluster) -> None:
    near, far = cluster.proxies["b1"].url, cluster.proxies["a1"].url
    done, waits = asyncio.Event(), list[float]()
    readers = [Reader(number) for number in range(SESSIONS)]
    async with asyncio.TaskGroup() as group:
        publishing = group.create_task(publish_until(far, done, waits))
        reading = [group.create_task(reader.read(near)) for reader in readers]
        began = time.monotonic()
        async with asyncio.timeout(TIMEOUT_S):
            for reader in readers:
                await reader.effective.wait()
        took_s = time.monotonic() - began
        done.set()
        await publishing
        async with waypost.produce("maker", proxy=far, timeout_s=TIMEOUT_S) as producer:
            for number in range(SESSIONS * EACH):
                await producer.publish({"topic": TOPIC, "n": number})
        async with asyncio.timeout(TIMEOUT_S):
            while sum(len(reader.got) for reader in readers) < SESSIONS * EACH:
                await asyncio.sleep(0.1)
        for task in reading:
            task.cancel()
    assert [reader.got for reader in readers] == [
        list(range(number * EACH, (number + 1) * EACH)) for number in range(SESSIONS)
    ]
    print(f"{SESSIONS * EACH} filters in force after {took_s:.1f} s; a publish took {max(waits):.3f} s at most")
