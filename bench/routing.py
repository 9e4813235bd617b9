"""Between sites: how soon a subscription is effective over a line of five, and how soon everything goes around a site.

The second one is measured in a ring of three: the neighbour over which notifications come is killed for good.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import waypost
from bench.measurement import Row, quantile
from chaos.cluster import Cluster, ProxySpec
from waypost.notification import Notification

LINE = "ABCDE"
SUBSCRIPTIONS = 40
REPEATS = 3
LEASE_MS = 3_000
FLAGS = {"no-discovery": ""}
EVERY_S = 0.05
"""Between two notifications of the producer behind the ring."""


def run() -> list[Row]:
    """Measure the line with embedded logs and with Kafka, then the ring."""
    return [*_line("embedded", 100, real=False), *_line("Kafka and etcd", 400, real=True), _ring()]


def _line(name: str, goal_ms: int, *, real: bool) -> list[Row]:
    places = [ProxySpec(f"{site.lower()}1", site, FLAGS) for site in LINE]
    links = list(pairwise(LINE))
    with tempfile.TemporaryDirectory() as root, Cluster(places, links, Path(root), real=real) as cluster:
        found = [asyncio.run(_effective(cluster, f"line/{number}")) for number in range(REPEATS)]
    return [
        Row(f"subscription effective over a line of five, {name}: p50", "ms", tuple(_ms(found, 0.5)), f"<= {goal_ms}"),
        Row("the same: p90", "ms", tuple(_ms(found, 0.9))),
    ]


def _ms(found: list[list[float]], share: float) -> list[float]:
    return [quantile(times, share) * 1e3 for times in found]


async def _effective(cluster: Cluster, name: str) -> list[float]:
    """Return for each subscription the seconds until it is effective for the far end of the line."""
    times = []
    async with waypost.attach(name, proxy=cluster.proxies["a1"].url) as session:
        await session.wait_effective(await session.subscribe(f'first == "{name}"'), ["E/0"])
        for number in range(SUBSCRIPTIONS):
            began = time.perf_counter()
            await session.wait_effective(await session.subscribe(f'kind == "{name}/{number}"'), ["E/0"])
            times.append(time.perf_counter() - began)
    return times


def _ring() -> Row:
    flags = FLAGS | {"lease-ttl-ms": str(LEASE_MS)}
    times = []
    for _ in range(REPEATS):
        places = [ProxySpec(f"{site.lower()}1", site, flags) for site in "ABC"]
        ring = [("A", "B"), ("B", "C"), ("A", "C")]
        with tempfile.TemporaryDirectory() as root, Cluster(places, ring, Path(root)) as cluster:
            times.append(asyncio.run(_around(cluster)))
    return Row(
        "a site of a ring is killed: until a notification comes around it", "s", tuple(times), "<= lease + 2 = 5"
    )


async def _around(cluster: Cluster) -> float:
    """Kill the site between two others, and return the seconds until what is published then has come."""
    near, middle, far = await _between(cluster)
    async with (
        waypost.attach("around", proxy=cluster.proxies[f"{near.lower()}1"].url) as session,
        waypost.produce("bench", proxy=cluster.proxies[f"{far.lower()}1"].url) as producer,
    ):
        await session.wait_effective(await session.subscribe("require(n)"), [f"{far}/0"])
        await asyncio.to_thread(cluster.proxies[f"{middle.lower()}1"].kill)
        began = time.monotonic()
        publishing = asyncio.create_task(_publish(producer))
        await anext(session)
        took = time.monotonic() - began
        publishing.cancel()
    return took


async def _between(cluster: Cluster) -> tuple[str, str, str]:
    """Return the sites along the tree of the ring, which is a line of three."""
    while len(edges := cluster.proxies["a1"].request("/v1/status")["tree"]["links"]) < 2:
        await asyncio.sleep(0.1)
    (middle,) = set(edges[0]).intersection(edges[1])
    near, far = sorted(set(edges[0]).union(edges[1]).difference(middle))
    return near, middle, far


async def _publish(producer: waypost.Producer) -> None:
    number = 0
    while True:
        await producer.publish(Notification({"n": number}))
        number += 1
        await asyncio.sleep(EVERY_S)
