"""Planned handovers: from a client's attach at the other proxy to its first delivery.

A session is given 1,000 notifications while its only client is away; then the client attaches at the other proxy, and
back again the next time. With nothing stored the end is the proxy's word that the session is served there. With
100,000 the receiver is relayed first, and reads while the session is copied to where it is: the longest gap between
two batches around the moment in which the new owner lets it in has the freeze, the commit and the client's own move in
it. The longest of all has, besides, whatever two cores come to that do everything.
Goals on real parts, same site: p50 <= 15 ms with nothing stored; <= 40 ms, p99 <= 200 ms with 1,000; with 100,000 at
most three times what it is with nothing. Bytes are those that the proxies of the pair sent to others, frames and seals
included, from the attach to the last delivery; where the receiver is relayed, its deliveries are among them.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import waypost
from bench.measurement import Row, quantile
from chaos.cluster import Cluster, ProxyProcess, ProxySpec
from waypost.identity import Coordinate
from waypost.messages import Attached
from waypost.notification import Notification

TIMES = 30
REPEATS = 3
STORED = 1_000
MANY = 100_000
STORE_S = 120.0
QUIET_S = 0.15
NEAR_S = 0.1
GOALS = {0: ("<= 15", ""), STORED: ("<= 40", "<= 200"), MANY: ("<= 3 x that of 0", "")}
"""On real parts, within a site: p50 and p99."""
FLAGS = {"no-discovery": ""}
LINKS = [("A", "B")]


@dataclass(frozen=True, slots=True)
class Move:
    """One move as the client saw it, and what the proxies sent to others meanwhile.

    Args:
        first_ms: milliseconds from the attach to the first delivery, or to its answer if nothing is owed.
        wire_bytes: bytes between proxies.
    """

    first_ms: float
    gap_ms: float
    """Longest time between two batches."""
    pause_ms: float
    """The same, of what was under way within a tenth of a second of being let in by the new owner."""
    wire_bytes: int


@dataclass(frozen=True, slots=True)
class Case:
    """What a benchmark of handover moves.

    Args:
        real: on etcd and Kafka; else on the embedded backends.
        far: between proxies of two sites; else of one.
        stored: how many notifications the session has.
    """

    real: bool
    far: bool
    stored: int

    @property
    def name(self) -> str:
        """The name of this case, with which the names of its rows begin."""
        parts = "Kafka, etcd" if self.real else "embedded"
        return f"handover, {parts}, {'two sites' if self.far else 'one site'}, {self.stored} stored"

    @property
    def pair(self) -> tuple[str, str]:
        """The proxies between which the session moves."""
        return ("a1", "b1") if self.far else ("a1", "a2")


CASES = [Case(real, far, stored) for real in (True, False) for far in (False, True) for stored in (0, STORED)]
CASES += [Case(True, far, MANY) for far in (False, True)]


def run() -> list[Row]:
    """Measure all cases; one federation for those on real parts and one for the others."""
    return [row for real in (True, False) for row in _federation([case for case in CASES if case.real is real])]


def _federation(cases: list[Case]) -> list[Row]:
    places = [ProxySpec("a1", "A", FLAGS), ProxySpec("a2", "A", FLAGS), ProxySpec("b1", "B", FLAGS)]
    with (
        tempfile.TemporaryDirectory() as root,
        Cluster(places, LINKS, Path(root), real=cases[0].real) as cluster,
    ):
        return [row for case in cases for row in asyncio.run(measure(cluster, case))]


async def measure(cluster: Cluster, case: Case) -> list[Row]:
    """Return the rows of one case: p50 and p99 of each repeat, and more where much is stored."""
    first, second = (cluster.proxies[name] for name in case.pair)
    times = 2 if case.stored == MANY else TIMES
    moves = [first, second] * (REPEATS * times)
    async with waypost.produce("bench", proxy=first.url) as producer:
        roamer = Roamer(f"bench/{case.pair[1]}-{case.stored}")
        await roamer.begin(first, sorted({f"{first.site}/0", f"{second.site}/0"}))
        taken: list[Move] = []
        for source, target in pairwise(moves[: REPEATS * times + 1]):
            await roamer.be_owed(producer, source, case.stored)
            before = await _wire_bytes(first, second)
            timed = await roamer.move(target, case.stored)
            taken.append(Move(*timed, await _wire_bytes(first, second) - before))
    runs = [taken[begin : begin + times] for begin in range(0, len(taken), times)]
    return [*_times(case, runs), *_amounts(case, taken)]


def _times(case: Case, runs: list[list[Move]]) -> list[Row]:
    firsts = [[move.first_ms for move in run] for run in runs]
    p50, p99 = GOALS.get(case.stored, ("", "")) if case.real and not case.far else ("", "")
    rows = [
        Row(f"{case.name}: p50", "ms", tuple(quantile(run, 0.5) for run in firsts), p50),
        Row(f"{case.name}: p99", "ms", tuple(quantile(run, 0.99) for run in firsts), p99),
    ]
    if case.stored == MANY:
        pauses = tuple(move.pause_ms for run in runs for move in run)
        gaps = tuple(move.gap_ms for run in runs for move in run)
        rows.append(Row(f"{case.name}: longest gap at the move", "ms", pauses, p50))
        rows.append(Row(f"{case.name}: longest gap of all", "ms", gaps))
    return rows


def _amounts(case: Case, moves: list[Move]) -> list[Row]:
    if not case.stored:
        return []
    amounts = tuple(move.wire_bytes / case.stored for move in moves)
    return [Row(f"{case.name}: between proxies", "bytes each", amounts)]


class Roamer:
    """A client that moves, and keeps its state."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._body = Notification({"kind": name, "text": "x" * 160})
        self.position = waypost.ReceiverState()

    async def begin(self, proxy: ProxyProcess, origins: list[str]) -> None:
        """Attach and subscribe at a proxy, until the subscription is effective at the origins; then leave."""
        async with waypost.attach(self._name, proxy=proxy.url, state=self.position) as session:
            await session.wait_effective(await session.subscribe(f'kind == "{self._name}"'), origins)

    async def be_owed(self, producer: waypost.Producer, owner: ProxyProcess, count: int) -> None:
        """Publish `count` notifications while the client is away, and wait until the session's owner has read them."""
        if count:
            waiting = [await producer.publish_soon(self._body) for _ in range(count)]
            safe = await asyncio.gather(*waiting)
            async with asyncio.timeout(STORE_S):
                while not await asyncio.to_thread(_has_read, owner, safe[-1]):
                    await asyncio.sleep(0.01)
        await asyncio.sleep(QUIET_S)

    async def move(self, target: ProxyProcess, owed: int) -> tuple[float, float, float]:
        """Attach at another proxy, receive what is owed, and leave.

        Args:
            target: the proxy.
            owed: the number of notifications to receive; 0: none.

        Returns:
            Milliseconds: from the attach to the first delivery, or to the attach's answer if nothing is owed; the
            longest gap between deliveries of all; and the longest one near the move.
        """
        came: list[float] = []
        let_in: list[float] = []

        def on_event(event: object) -> None:
            if isinstance(event, Attached):
                let_in.append(time.perf_counter())

        began, got = time.perf_counter(), 0
        async with waypost.attach(self._name, proxy=target.url, state=self.position, on_event=on_event) as session:
            await session.wait_attached()
            came.append(time.perf_counter())
            batches = session.batches()
            while got < owed:
                got += len(await anext(batches))
                came.append(time.perf_counter())
        first = came[1] if owed else came[0]
        gaps = [(after - before, before, after) for before, after in pairwise(came[1:])]
        at_the_move = [gap for gap, before, after in gaps if before - NEAR_S < let_in[-1] < after + NEAR_S]
        longest = max((gap for gap, _, _ in gaps), default=0.0)
        return (first - began) * 1000, longest * 1000, max(at_the_move, default=0.0) * 1000

    async def read(self, proxy: ProxyProcess, owed: int) -> int:
        """Attach at a proxy, receive until `owed` notifications came, and leave; return how many came, with the last
        batch.
        """
        got = 0
        async with waypost.attach(self._name, proxy=proxy.url, state=self.position, timeout_s=60) as session:
            batches = session.batches()
            while got < owed:
                got += len(await anext(batches))
        return got


async def _wire_bytes(*proxies: ProxyProcess) -> int:
    statuses = [await asyncio.to_thread(proxy.request, "/v1/status") for proxy in proxies]
    return sum(int(statuse["peer_bytes"]) for statuse in statuses)


def _has_read(proxy: ProxyProcess, coordinate: Coordinate) -> bool:
    return bool(proxy.request("/v1/status")["frontier"].get(coordinate.origin, -1) >= coordinate.offset)
