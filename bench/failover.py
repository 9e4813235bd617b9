"""Failover: from kill -9 of a session's owner, its disk gone too, to the next delivery at another proxy.

Goal: the lease time plus 2 s.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from pathlib import Path

import waypost
from bench.measurement import Row
from chaos.cluster import Cluster, ProxySpec
from waypost.notification import Notification

REPEATS = 5
LEASE_MS = 3_000
FLAGS = {"no-discovery": "", "lease-ttl-ms": str(LEASE_MS)}


def run() -> list[Row]:
    """Measure failovers within a site and across sites, on Kafka and etcd; return the rows."""
    goal = f"<= {LEASE_MS / 1000 + 2:g}"
    places = [ProxySpec("a1", "A", FLAGS), ProxySpec("a2", "A", FLAGS), ProxySpec("b1", "B", FLAGS)]
    with tempfile.TemporaryDirectory() as root, Cluster(places, [("A", "B")], Path(root), real=True) as cluster:
        return [
            Row(f"failover, disk lost, {name}", "s", tuple(asyncio.run(_again(cluster, heir))), goal)
            for name, heir in (("one site", "a2"), ("two sites", "b1"))
        ]


async def _again(cluster: Cluster, heir: str) -> list[float]:
    return [await _once(cluster, heir, f"bench/{heir}-{number}") for number in range(REPEATS)]


async def _once(cluster: Cluster, heir: str, name: str) -> float:
    """Return the seconds from the kill to a delivery of what was published after it."""
    owner, other = cluster.proxies["a1"], cluster.proxies[heir]
    async with (
        waypost.attach(name, proxy=[owner.url, other.url], timeout_s=60) as session,
        waypost.produce("bench", proxy=cluster.proxies["b1"].url, timeout_s=60) as producer,
    ):
        await session.wait_effective(await session.subscribe(f'kind == "{name}"'), ["A/0", "B/0"])
        await asyncio.to_thread(owner.kill)
        began = time.monotonic()
        await asyncio.to_thread(shutil.rmtree, cluster.root / "proxies" / "a1")
        await producer.publish(Notification({"kind": name}))
        await anext(session)
        took = time.monotonic() - began
    await asyncio.to_thread(owner.start)
    return took
