"""The owner dies with its disk: the session is served elsewhere from the changelog, nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

import waypost
from chaos.cluster import Cluster, ProxySpec
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from waypost.notification import Notification

NUMBER = 300
TAKEN = 120
TIMEOUT_S = 60


@pytest.mark.parametrize("other", ["a2", "b1"], ids=["at the same site", "across sites"])
async def test_a_session_outlives_its_owner_and_its_disk(
    other: str, kafka: KafkaServer, etcd: EtcdServer, tmp_path: Path
) -> None:
    flags = {"no-discovery": "", "kafka": kafka.bootstrap, "etcd": etcd.endpoint, "prefix": f"failover-{other}"}
    places = [
        ProxySpec("a1", "A", flags),
        ProxySpec(other, "A" if other == "a2" else "B", flags),
        ProxySpec("b2", "B", flags),
    ]
    cluster = Cluster(places, [("A", "B")], tmp_path)
    await asyncio.to_thread(cluster.__enter__)
    try:
        owner, heir = cluster.proxies["a1"], cluster.proxies[other]
        state = waypost.ReceiverState()
        taken: list[int] = []
        urls = [owner.url, heir.url]
        async with waypost.attach("team/f", proxy=urls, state=state, window=50, timeout_s=TIMEOUT_S) as session:
            await session.wait_effective(await session.subscribe("number >= 0"), ["A/0", "B/0"])
            async with waypost.produce("maker", proxy=cluster.proxies["b2"].url) as producer:
                for number in range(NUMBER):
                    await producer.publish_soon(Notification({"number": number}))
                while producer.unacknowledged:
                    await asyncio.sleep(0.01)
            async with asyncio.timeout(TIMEOUT_S):
                taken += [int((await anext(session))["number"]) for _ in range(TAKEN)]
            await asyncio.to_thread(owner.kill)
            await asyncio.to_thread(shutil.rmtree, tmp_path / "proxies" / "a1")
            async with asyncio.timeout(TIMEOUT_S):
                taken += [int((await anext(session))["number"]) for _ in range(NUMBER - TAKEN)]
            assert (await session.wait_attached()).proxy == other
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await anext(session)
    finally:
        await asyncio.to_thread(cluster.__exit__, None, None, None)
    assert taken == list(range(NUMBER))
