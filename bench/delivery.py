"""Publish to delivery through one proxy process, and beside it a bare sketch without sessions.

One producer process, one process with ten receivers, 200-byte notifications, embedded durable log; a receiver counts
what it has taken over and acknowledges it. Ten sessions with one receiver each, and one session with ten.
Goal: >= 100,000 deliveries/s. Latency is that of single notifications at a moderate rate, published to taken.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import uvloop

import waypost
from bench import sketch
from bench.measurement import Row, quantile
from chaos.cluster import Cluster, ProxySpec
from waypost.notification import Notification

RECEIVERS = 10
COUNT = 20_000
REPEATS = 3
RATE = 200
PROBES = 600
FILL = "x" * 130
TIMEOUT_S = 60.0


def run() -> list[Row]:
    """Measure ten sessions, one session with ten receivers, and the bare sketch, in turn, each as fast as possible and
    at RATE; return the rows.
    """
    rows: list[Row] = []
    for name, of_one in (("10 sessions", False), ("1 session, 10 receivers", True)):
        with tempfile.TemporaryDirectory() as root, _proxy(Path(root)) as cluster:
            url = cluster.proxies["a1"].url
            rows += _measure(f"delivery, {name}", receive, publish, (url, of_one))
    with tempfile.TemporaryDirectory() as root, sketch.serving(Path(root) / "log.db") as url:
        rows += _measure("delivery, bare sketch", sketch.receive, sketch.publish, (url, False))
    ratio = rows[0].median / rows[-3].median
    return [*rows, Row("delivery, 10 sessions over bare sketch", "ratio", (ratio,))]


def _proxy(root: Path) -> Cluster:
    return Cluster([ProxySpec("a1", "A", {"no-discovery": ""})], [], root)


def _measure(name: str, receive: Any, publish: Any, target: tuple[str, bool]) -> list[Row]:
    fast = [once(receive, publish, target, COUNT, 0) for _ in range(REPEATS)]
    slow = once(receive, publish, target, PROBES, RATE)
    delays = slow.delays_ms
    return [
        Row(name, "deliveries/s", tuple(outcome.rate for outcome in fast), ">= 100,000"),
        Row(f"{name}, {RATE}/s: latency p50", "ms", (quantile(delays, 0.5),)),
        Row(f"{name}, {RATE}/s: latency p99", "ms", (quantile(delays, 0.99),)),
    ]


class Outcome:
    """The deliveries a second of all receivers, and the latency of one notification of each batch in ms."""

    def __init__(self, began: float, ended: float, delivered: int, delays_ms: list[float]) -> None:
        self.rate = delivered / (ended - began)
        self.delays_ms = delays_ms


def once(receive: Any, publish: Any, where: tuple[str, bool], count: int, rate: int) -> Outcome:
    """Start receivers, and the producer once they are ready; wait for both, and return the rate and the latencies.

    Args:
        receive: the main function of the process of receivers, as :func:`receive`.
        publish: that of the producer, as :func:`publish`.
        where: the address, and whether all receivers are of one session.
        count: notifications.
        rate: notifications a second; 0: as fast as possible.

    Raises:
        TimeoutError: a process did not answer within TIMEOUT_S.
    """
    received, listener = _start(receive, (*where, count))
    _expect(received, "ready")
    began = time.time()
    done, producer = _start(publish, (where[0], count, rate))
    ended, delivered, delays = _expect(received, "done")
    began = _expect(done, "began")
    for process in (listener, producer):
        process.join(TIMEOUT_S)
    return Outcome(began, ended, delivered, delays)


def _start(target: Callable[..., None], arguments: tuple[Any, ...]) -> tuple[Connection, SpawnProcess]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    return ours, process


def _expect(pipe: Connection, word: str) -> Any:
    if not pipe.poll(TIMEOUT_S):
        raise TimeoutError(f"no {word!r} within {TIMEOUT_S:g} s")
    word_back, value = pipe.recv()
    if word_back != word:
        raise RuntimeError(f"{word_back!r} in place of {word!r}: {value}")
    return value


# ---------------------------------------------------------------- in the processes


def publish(pipe: Connection, url: str, count: int, rate: int) -> None:
    """Publish `count` notifications; send ("began", Unix time) when all are safe."""
    uvloop.run(_publishing(pipe, url, count, rate))


async def _publishing(pipe: Connection, url: str, count: int, rate: int) -> None:
    async with waypost.produce("bench", proxy=url) as producer:
        began = time.time()
        for number in range(count):
            if rate:
                await asyncio.sleep(max(0.0, began + number / rate - time.time()))
            last = await producer.publish_soon(Notification({"n": number, "at": time.time(), "fill": FILL}))
        await last
        pipe.send(("began", began))


def receive(pipe: Connection, url: str, of_one: bool, count: int) -> None:
    """Attach RECEIVERS receivers, as the main function of a process; send ("ready", None), and ("done", (Unix time,
    deliveries, delays in ms)) when each has all.

    Args:
        pipe: to the process that measures.
        url: of the proxy.
        of_one: whether all are receivers of one session; False: each is of a session of its own.
        count: the notifications that each receives.
    """
    uvloop.run(_receiving(pipe, url, of_one, count))


async def _receiving(pipe: Connection, url: str, of_one: bool, count: int) -> None:
    incarnation = f"{time.time_ns():x}"
    sessions = [
        waypost.attach(f"bench/{incarnation}-{0 if of_one else index}", receiver=f"r{index}", proxy=url)
        for index in range(RECEIVERS)
    ]
    for session in sessions:
        await session.__aenter__()
        await session.wait_effective(await session.subscribe("require(n)"), ["A/0"])
    pipe.send(("ready", None))
    delays = await asyncio.gather(*(take(session, count) for session in sessions))
    ended = time.time()
    for number, session in enumerate(sessions):
        await session.unsubscribe("require(n)") if number == 0 or not of_one else None
        await session.close(forget=True)
    pipe.send(("done", (ended, RECEIVERS * count, [delay for of_receiver in delays for delay in of_receiver])))


async def take(session: waypost.Receiver, count: int) -> list[float]:
    """Receive `count` notifications; return the delay in ms of the last one of each batch."""
    got, delays = 0, list[float]()
    async for batch in session.batches():
        got += len(batch)
        # One of a batch is enough for the latency; reading all attributes would be measured too.
        delays.append((time.time() - float(batch[-1]["at"])) * 1000)
        if got >= count:
            break
    if got != count:
        print(f"got {got} of {count}", file=sys.stderr)
    return delays
