"""Reading back what was stored during an absence: from the attach to the last of 100,000 notifications.

One proxy on embedded parts. All of it was written to the disk, and most of it left memory, before the client comes.
Goal: 50,000 notifications/s.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import waypost
from bench.handover import FLAGS, Roamer
from bench.measurement import Row
from chaos.cluster import Cluster, ProxySpec

STORED = 100_000
AT_ONCE = 20_000
REPEATS = 5
IDLE_S = 1.0


def run() -> list[Row]:
    """Read back what was stored during an absence, REPEATS times at one proxy; return the row of rates."""
    with tempfile.TemporaryDirectory() as root, Cluster([ProxySpec("a1", "A", FLAGS)], [], Path(root)) as cluster:
        rates = [asyncio.run(once(cluster, f"bench/reading/{each}")) for each in range(REPEATS)]
    return [Row(f"reading back {STORED:,} after an absence", "notifications/s", tuple(rates), ">= 50,000")]


async def once(cluster: Cluster, session: str) -> float:
    """Store STORED notifications for a client that is away, and return how many a second it reads; the session is
    deleted then.

    Args:
        cluster: with a proxy a1.
        session: the id of a new session.
    """
    proxy, roamer = cluster.proxies["a1"], Roamer(session)
    await roamer.begin(proxy, ["A/0"])
    async with waypost.produce("bench", proxy=proxy.url, timeout_s=60) as producer:
        for _ in range(STORED // AT_ONCE):
            await roamer.be_owed(producer, proxy, AT_ONCE)
    await asyncio.sleep(IDLE_S)
    read, began = 0, time.monotonic()
    async with waypost.attach(session, proxy=proxy.url, state=roamer.position) as place:
        async for batch in place.batches():
            read += len(batch)
            if read >= STORED:
                break
        rate = read / (time.monotonic() - began)
        place.acknowledge()
        await place.delete()
    return rate
