"""A drain: 1,000 sessions of one proxy go to the other one of its site, as fast as they can.

Goal: 200 sessions a second.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import waypost
from bench.measurement import Row
from chaos.cluster import Cluster, ProxySpec
from node.cli.commands.proxy_client import request

SESSIONS = 1_000
AT_ONCE = 50
REPEATS = 3
RATE = 2_000.0
FLAGS = {"no-discovery": ""}


def run() -> list[Row]:
    """Drain SESSIONS sessions to and fro between two proxies of a site, on Kafka and etcd; return the row of rates."""
    places = [ProxySpec("a1", "A", FLAGS), ProxySpec("a2", "A", FLAGS)]
    with tempfile.TemporaryDirectory() as root, Cluster(places, [], Path(root), real=True) as cluster:
        urls = {name: proxy.url for name, proxy in cluster.proxies.items()}
        asyncio.run(_make(urls["a1"]))
        rates = []
        for turn in range(REPEATS):
            source = ("a1", "a2")[turn % 2]
            rates.append(_drain(urls, source))
            request(urls[source], "/v1/drains", {"proxy": source, "rate": None})
        return [Row(f"drain of {SESSIONS:,} sessions", "sessions/s", tuple(rates), ">= 200")]


async def _make(url: str) -> None:
    async def one(number: int) -> None:
        async with waypost.attach(f"bench/{number}", proxy=url, timeout_s=60) as session:
            await session.subscribe(f"number == {number}")

    for begin in range(0, SESSIONS, AT_ONCE):
        await asyncio.gather(*(one(number) for number in range(begin, begin + AT_ONCE)))


def _drain(urls: dict[str, str], source: str) -> float:
    """Return sessions a second, from the first that left to the last."""
    request(urls[source], "/v1/drains", {"proxy": source, "rate": RATE})
    left, began = SESSIONS, time.monotonic()
    while left:
        rows = request(urls[source], "/v1/drains")["drains"]
        left = int(rows[0]["left"]) if rows else SESSIONS
        if left == SESSIONS:
            began = time.monotonic()
        time.sleep(0.05)
    return SESSIONS / (time.monotonic() - began)
