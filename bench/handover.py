"""Planned handovers: from a client's attach at the other proxy to its first delivery.

A session is given 1,000 notifications while its only client is away; then the client attaches at the other proxy, and
back again the next time. With nothing stored the end is the proxy's word that the session is served there.
Goal on real parts, same site: p50 <= 40 ms, p99 <= 200 ms.
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
from waypost.notification import Notification

TIMES = 30
REPEATS = 3
STORED = 1_000
BODY = Notification({"kind": "bench", "text": "x" * 160})
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
    moves = [here, there] * (REPEATS * TIMES)
    async with waypost.produce("bench", proxy=here.url) as producer:
        roamer = Roamer(f"bench/{int(case.far)}-{case.stored}")
        await roamer.begin(here, sorted({f"{here.site}/0", f"{there.site}/0"}))
        taken: list[float] = []
        for source, target in pairwise(moves[: REPEATS * TIMES + 1]):
            await roamer.be_owed(producer, source, case.stored)
            taken.append(await roamer.move(target, case.stored))
    runs = [taken[begin : begin + TIMES] for begin in range(0, len(taken), TIMES)]
    goal = case.real and not case.far
    return [
        Row(f"{case.name}: p50", "ms", tuple(quantile(run, 0.5) for run in runs), "<= 40" if goal else ""),
        Row(f"{case.name}: p99", "ms", tuple(quantile(run, 0.99) for run in runs), "<= 200" if goal else ""),
    ]


class Roamer:
    """A client that moves, and keeps its place."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._place = waypost.ReceiverState()

    async def begin(self, proxy: ProxyProcess, origins: list[str]) -> None:
        async with waypost.attach(self._session, proxy=proxy.url, state=self._place) as session:
            await session.until_effective(await session.subscribe('kind == "bench"'), origins)

    async def be_owed(self, producer: waypost.Session, owner: ProxyProcess, count: int) -> None:
        """Publish while the client is away, and wait until the session has it all."""
        await asyncio.gather(*[await producer.publish_soon(BODY) for _ in range(count)])
        while await asyncio.to_thread(_stored, owner, self._session) != count:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)

    async def move(self, target: ProxyProcess, owed: int) -> float:
        """Return the milliseconds from attach to the first delivery; then take the rest and leave."""
        began = time.perf_counter()
        async with waypost.attach(self._session, proxy=target.url, state=self._place) as session:
            await session.until_attached()
            batches = session.batches()
            got = len(await anext(batches)) if owed else 0
            ms = (time.perf_counter() - began) * 1000
            while got < owed:
                got += len(await anext(batches))
        return ms


def _stored(proxy: ProxyProcess, session: str) -> int | None:
    rows = proxy.ask("/v1/sessions")["sessions"]
    return next((row["stored"] for row in rows if row["session"] == session), None)
