"""A session with a large backlog moves to the other site, and on, while it is read; no memory grows with it (F42)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import waypost
from bench.backlog import peak_mb, resident_mb
from chaos.checker import check
from chaos.cluster import Cluster, ProxySpec
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from chaos.workloads.audience import Guest
from tests.helpers.polling import until_seen
from waypost.identity import NotificationId
from waypost.notification import Notification

STORED = 50_000
"""Some 12 MB of deliveries, and twice that as objects."""
MORE_MB = 24
"""QUEUE_IN_MEMORY, COPY_UNSAVED and a window of chunks, here some 8,000 entries; the caches of SQLite; slack."""
TIMEOUT_S = 90


class SlowReader(Guest):
    """Takes one delivery, and no other until it is told to go on."""

    def __init__(self) -> None:
        super().__init__(name="patient", subscriptions=("number >= 0",))
        self.took_one, self.goes_on = asyncio.Event(), asyncio.Event()

    async def read(self, session: waypost.Receiver) -> None:
        async for batch in session.batches():
            self.check(batch)
            session.acknowledge()
            self.took_one.set()
            await self.goes_on.wait()


async def test_a_large_backlog_moves_and_moves_on(kafka: KafkaServer, etcd: EtcdServer, tmp_path: Path) -> None:
    flags = {"no-discovery": "", "kafka": kafka.bootstrap, "etcd": etcd.endpoint, "prefix": "backlog"}
    places = [ProxySpec("a1", "A", flags), ProxySpec("a2", "A", flags), ProxySpec("b1", "B", flags)]
    async with Cluster(places, [("A", "B")], tmp_path) as cluster:
        here, beside, there = (cluster.proxies[name] for name in ("a1", "a2", "b1"))
        guest = SlowReader()
        await guest.appear(here.url, ())
        await guest.subscribe_all(["A/0", "B/0"])
        await guest.vanish(politely=True)
        published: dict[NotificationId, Notification] = {}
        async with waypost.produce("maker", proxy=here.url, timeout_s=TIMEOUT_S) as producer:
            for number in range(STORED):
                published[producer.next_id] = body = Notification({"number": number})
                await producer.publish_soon(body)
            while producer.unacknowledged:
                await asyncio.sleep(0.05)
        await until_seen(lambda: here.request("/v1/status")["stored"] == STORED, "all is stored at a1")

        before = [resident_mb(proxy) for proxy in cluster.proxies.values()]
        await guest.appear(there.url, ())
        await until_seen(lambda: (here.owner(guest.session_id) or ("",))[0] == "b1", "the session has followed to b1")
        async with asyncio.timeout(TIMEOUT_S):
            await guest.took_one.wait()
            await guest.move(beside.url)
            had = len(guest.got)
            guest.goes_on.set()
            while len(guest.got) < STORED:
                await asyncio.sleep(0.05)
        assert 0 < had < STORED
        more = [peak_mb(proxy) - rest for proxy, rest in zip(cluster.proxies.values(), before, strict=True)]
        assert max(more) <= MORE_MB
        await guest.vanish(politely=True)
    result = check(published, {guest.name: guest.subscriptions}, {guest.name: guest.got})
    assert result.clean, result.worst
    assert result.expected == STORED
