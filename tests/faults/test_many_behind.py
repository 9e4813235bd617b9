"""Many sessions miss the same site at once: what they ask of it stays within what it can answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import waypost
from chaos.checker import check
from chaos.cluster import Cluster, ProxySpec
from chaos.faults.pause import Pause
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from chaos.workloads.audience import Guest
from tests.helpers.polling import until_seen
from waypost.identity import NotificationId
from waypost.notification import Notification

SESSIONS = 120
AWAY_S = 6.0
"""Longer than a lease: what every proxy holds is held no more, and all sessions are behind."""
STOPPED_S = 7.0
TIMEOUT_S = 60.0


async def test_all_that_was_missed_comes_when_the_site_answers_again(
    kafka: KafkaServer, etcd: EtcdServer, tmp_path: Path
) -> None:
    flags = {"no-discovery": "", "kafka": kafka.bootstrap, "etcd": etcd.endpoint, "prefix": "behind"}
    async with Cluster([ProxySpec("a1", "A", flags), ProxySpec("b1", "B", flags)], [("A", "B")], tmp_path) as cluster:
        here, there = cluster.proxies["a1"], cluster.proxies["b1"]
        guests = [Guest(name=f"behind{number}", subscriptions=(f"kind == {number % 5}",)) for number in range(SESSIONS)]
        for guest in guests:
            await guest.appear(here.url, ())
            await guest.subscribe_all(["B/0"])
            await guest.vanish(politely=True)
        published: dict[NotificationId, Notification] = {}
        stop = asyncio.Event()

        async def produce() -> None:
            async with waypost.produce("maker", proxy=there.url, timeout_s=TIMEOUT_S) as producer:
                for number in range(100_000):
                    if stop.is_set():
                        break
                    published[producer.next_id] = body = Notification({"kind": number % 5, "number": number})
                    await producer.publish_soon(body)
                    await asyncio.sleep(0.02)
                while producer.unacknowledged:
                    await asyncio.sleep(0.05)

        producing = asyncio.create_task(produce())
        await asyncio.sleep(2)
        away = Pause(etcd)
        await away.inject()
        await asyncio.sleep(AWAY_S)
        await away.heal()
        await asyncio.sleep(3)
        stopped = Pause(there.process)
        await stopped.inject()
        await asyncio.sleep(STOPPED_S)
        await stopped.heal()
        stop.set()
        async with asyncio.timeout(TIMEOUT_S):
            await producing
        await until_seen(lambda: here.ready() and here.request("/v1/status")["gates"] == 0, "no gate is closed at a1")
        # Some of each kind.
        chosen = {guest.name: guest for guest in guests[::7]}
        for guest in chosen.values():
            await guest.appear(here.url, ())
        kinds = Counter(f"kind == {body['kind']!r}" for body in published.values())
        owed = {name: kinds[guest.subscriptions[0]] for name, guest in chosen.items()}
        await until_seen(lambda: all(len(each.got) >= owed[name] for name, each in chosen.items()), "everybody has all")
        for guest in chosen.values():
            await guest.vanish(politely=True)
    result = check(
        published,
        {name: each.subscriptions for name, each in chosen.items()},
        {name: each.got for name, each in chosen.items()},
    )
    assert result.clean, result.worst
