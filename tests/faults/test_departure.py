"""Who leaves in order says what it has: none of that is given again, also where the session just changes hands."""

from __future__ import annotations

import asyncio
from pathlib import Path

import waypost
from chaos.cluster import Cluster, ProxySpec
from tests.helpers.polling import until_seen

LEASE_MS = 1_000
COUNT = 200
ROUNDS = 8


async def taken(receiver: waypost.Receiver, count: int) -> list[int]:
    async with asyncio.timeout(30):
        return [int((await anext(receiver))["n"]) for _ in range(count)]


async def test_receiver_that_leaves_after_its_proxy_lost_the_lease_gets_no_notification_again(
    tmp_path: Path,
) -> None:
    """Its proxy stands still for longer than its lease holds, and the receiver leaves when it goes on."""
    with Cluster([ProxySpec("a1", "A", {"no-discovery": "", "lease-ttl-ms": str(LEASE_MS)})], [], tmp_path) as cluster:
        here = cluster.proxies["a1"]
        async with waypost.attach("s", proxy=here.url) as receiver:
            await receiver.subscribe("n > 0", id="x")
            await receiver.wait_effective("x", ["A/0"])
        async with waypost.produce("p", proxy=here.url) as producer:
            for number in range(1, COUNT + 1):
                await producer.publish({"n": number})
        await until_seen(lambda: here.stored("s") == COUNT, "all is stored")
        came: list[int] = []
        for _ in range(ROUNDS):
            async with waypost.attach("s", proxy=here.url) as receiver:
                came += await taken(receiver, COUNT // ROUNDS)
                here.process.pause()
                await asyncio.sleep(LEASE_MS / 1_000 + 0.5)
                here.process.resume()
        assert came == list(range(1, COUNT + 1))
    assert "lease lost" in (tmp_path / "a1.log").read_text()
