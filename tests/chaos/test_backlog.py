"""A session with 100,000 stored notifications moves to the other site, and on, while it is being read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import waypost
from chaos.checker import check
from chaos.cluster import Cluster, Place
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from chaos.workloads.audience import Guest
from tests.helpers.waiting import until_seen
from waypost.identity import NotificationId
from waypost.notification import Notification

STORED = 100_000
PATIENCE_S = 90


async def test_a_large_backlog_moves_and_moves_on(kafka: KafkaServer, etcd: EtcdServer, tmp_path: Path) -> None:
    flags = {"no-discovery": "", "kafka": kafka.bootstrap, "etcd": etcd.endpoint, "prefix": "backlog"}
    places = [Place("a1", "A", flags), Place("a2", "A", flags), Place("b1", "B", flags)]
    async with Cluster(places, [("A", "B")], tmp_path) as cluster:
        here, beside, there = (cluster.proxies[name] for name in ("a1", "a2", "b1"))
        guest = Guest("patient", ("number >= 0",))
        await guest.appear(here.url, ())
        await guest.subscribe_all(["A/0", "B/0"])
        await guest.vanish(politely=True)
        published: dict[NotificationId, Notification] = {}
        async with waypost.produce("maker", proxy=here.url, timeout_s=PATIENCE_S) as producer:
            for number in range(STORED):
                published[producer.next_id] = body = Notification({"number": number})
                await producer.publish_soon(body)
            while producer.unacknowledged:
                await asyncio.sleep(0.05)
        await until_seen(lambda: here.ask("/v1/status")["stored"] == STORED, "all is stored at a1")

        await guest.appear(there.url, ())
        await until_seen(lambda: here.owner(guest.session_id) == ("b1", 2), "the session has followed to b1")
        async with asyncio.timeout(PATIENCE_S):
            while not guest.got:
                await asyncio.sleep(0.005)
            had = len(guest.got)
            await guest.move(beside.url)
            while len(guest.got) < STORED:
                await asyncio.sleep(0.05)
        assert had < STORED
        await guest.vanish(politely=True)
    tally = check(published, {guest.name: guest.subscriptions}, {guest.name: guest.got})
    assert tally.clean, tally.worst
    assert tally.owed == STORED
