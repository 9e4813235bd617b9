"""Planned handovers: from a client's attach at the other proxy to its first delivery.

A session is given 1,000 notifications while its only client is away; then the client attaches at the other proxy, and
back again the next time. With nothing stored the end is the proxy's word that the session is served there.
Goals on real parts, same site: p50 <= 15 ms with nothing stored; <= 40 ms, p99 <= 200 ms with 1,000; with 100,000 at
most three times what it is with nothing.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import waypost
from bench.measured import Row, quantile
from chaos.cluster import Cluster, Place, ProxyProcess
from waypost.identity import Coordinate
from waypost.notification import Notification

TIMES = 30
REPEATS = 3
STORED = 1_000
MANY = 100_000
STORE_S = 120.0
QUIET_S = 0.15
FLAGS = {"no-discovery": ""}
LINKS = [("A", "B")]


@dataclass(frozen=True, slots=True)
class Case:
    """Which two proxies the client moves between, on what, with how much stored."""

    real: bool
    far: bool
    stored: int

    @property
    def name(self) -> str:
        parts = "Kafka, etcd" if self.real else "embedded"
        return f"handover, {parts}, {'two sites' if self.far else 'one site'}, {self.stored} stored"

    @property
    def pair(self) -> tuple[str, str]:
        return ("a1", "b1") if self.far else ("a1", "a2")


CASES = [Case(real, far, stored) for real in (True, False) for far in (False, True) for stored in (STORED, 0)]
CASES += [Case(True, far, MANY) for far in (False, True)]


def run() -> list[Row]:
    """Measure all cases; one federation for those on real parts and one for the others."""
    return [row for real in (True, False) for row in _federation([case for case in CASES if case.real is real])]


def _federation(cases: list[Case]) -> list[Row]:
    places = [Place("a1", "A", FLAGS), Place("a2", "A", FLAGS), Place("b1", "B", FLAGS)]
    with (
        tempfile.TemporaryDirectory() as root,
        Cluster(places, LINKS, Path(root), real=cases[0].real) as cluster,
    ):
        return [row for case in cases for row in asyncio.run(measure(cluster, case))]


async def measure(cluster: Cluster, case: Case) -> list[Row]:
    """Return p50 and p99 of one case, each once a repeat."""
    here, there = (cluster.proxies[name] for name in case.pair)
    times = 2 if case.stored == MANY else TIMES
    moves = [here, there] * (REPEATS * times)
    async with waypost.produce("bench", proxy=here.url) as producer:
        roamer = Roamer(f"bench/{case.pair[1]}-{case.stored}")
        await roamer.begin(here, sorted({f"{here.site}/0", f"{there.site}/0"}))
        taken: list[float] = []
        for source, target in pairwise(moves[: REPEATS * times + 1]):
            await roamer.be_owed(producer, source, case.stored)
            taken.append(await roamer.move(target, case.stored))
    runs = [taken[begin : begin + times] for begin in range(0, len(taken), times)]
    goal = case.real and not case.far
    return [
        Row(f"{case.name}: p50", "ms", tuple(quantile(run, 0.5) for run in runs), "<= 40" if goal else ""),
        Row(f"{case.name}: p99", "ms", tuple(quantile(run, 0.99) for run in runs), "<= 200" if goal else ""),
    ]


class Roamer:
    """A client that moves, and keeps its place."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._body = Notification({"kind": name, "text": "x" * 160})
        self._place = waypost.ReceiverState()

    async def begin(self, proxy: ProxyProcess, origins: list[str]) -> None:
        async with waypost.attach(self._name, proxy=proxy.url, state=self._place) as session:
            await session.until_effective(await session.subscribe(f'kind == "{self._name}"'), origins)

    async def be_owed(self, producer: waypost.Session, owner: ProxyProcess, count: int) -> None:
        """Publish while the client is away, and wait until the session's owner has read it all."""
        if count:
            waiting = [await producer.publish_soon(self._body) for _ in range(count)]
            safe = await asyncio.gather(*waiting)
            async with asyncio.timeout(STORE_S):
                while not await asyncio.to_thread(_has_read, owner, safe[-1]):
                    await asyncio.sleep(0.01)
        await asyncio.sleep(QUIET_S)

    async def move(self, target: ProxyProcess, owed: int) -> float:
        """Return the milliseconds from attach to the first delivery; then take the rest and leave."""
        began = time.perf_counter()
        async with waypost.attach(self._name, proxy=target.url, state=self._place) as session:
            await session.until_attached()
            batches = session.batches()
            got = len(await anext(batches)) if owed else 0
            ms = (time.perf_counter() - began) * 1000
            while got < owed:
                got += len(await anext(batches))
        return ms


def _has_read(proxy: ProxyProcess, coordinate: Coordinate) -> bool:
    return bool(proxy.ask("/v1/status")["frontier"].get(coordinate.origin, -1) >= coordinate.offset)
