"""Beside Mosquitto and NATS, on the same work in the same run: their clients in C and Go, ours with ours.

One producer, ten receivers with sessions that outlive their connections, 200-byte notifications, acknowledged by all,
all of it on this machine. Where every receiver wants all, what counts is deliveries; where each wants one in a hundred
by content, it is notifications: a receiver of a topic has to take all of them and throw the others away, so a peer's
figure there is what it did for all, over ten.

Mosquitto has QoS 1 and persistent sessions, NATS a JetStream in files with durable consumers. What Mosquitto or NATS as
it comes has acknowledged to a producer, a power cut may take; NATS `durable` syncs it first, as our site log does.
Goals: 3 times and 10 times Mosquitto, 10 times NATS. Needs `mosquitto` and its clients, of Debian's packages of that
name, and Go.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop

import waypost
from bench import delivery
from bench.delivery import COUNT, FILL, RECEIVERS, REPEATS, TIMEOUT_S
from bench.measurement import Row
from chaos.cluster import Cluster, ProxySpec
from chaos.servers.process import LOOPBACK, free_port
from waypost.errors import NotFound

ONE_IN = 100
PUBLISHED = 100_000
"""Where receivers want some: so many, because it goes faster."""
IDLE_S = 1.0
"""A generous time until subscribers are subscribed; their clients do not say when they are."""
TOPIC = "bench"
NATS = Path(__file__).parent / "nats_main"
BUILT = Path(__file__).parents[1] / ".parts" / "bench"
ALL_GOALS = {"Mosquitto": ">= 3"}


def run() -> list[Row]:
    """Measure the peers and Waypost in turn. Raises NotFound: there is no Mosquitto."""
    if shutil.which("mosquitto_sub") is None:
        raise NotFound("there is no mosquitto here", hint="apt-get install mosquitto mosquitto-clients")
    nats = _build_nats()
    peers: dict[str, Callable[[Path], float]] = {
        "Mosquitto": _mosquitto,
        "NATS": partial(_nats, nats, COUNT, False),
        "NATS, durable": partial(_nats, nats, COUNT // 4, True),
    }
    theirs: dict[str, list[float]] = {name: [] for name in peers}
    ours, some = [], []
    for _ in range(REPEATS):
        for name, measure in peers.items():
            with tempfile.TemporaryDirectory() as root:
                theirs[name].append(measure(Path(root)))
        with tempfile.TemporaryDirectory() as root, _proxy(Path(root)) as url:
            ours.append(delivery.once(delivery.receive, delivery.publish, (url, False), COUNT, 0).rate)
            some.append(
                delivery.once(_receive_some, delivery.publish, (url, False), PUBLISHED, 0).rate * ONE_IN / RECEIVERS
            )
    rows = [Row("all wanted by 10: ours", "deliveries/s", tuple(ours))]
    rows += [Row("1% wanted by each of 10: ours", "notifications/s", tuple(some))]
    for name, rates in theirs.items():
        notifications = [rate / RECEIVERS for rate in rates]
        rows += [
            Row(f"all wanted by 10: {name}", "deliveries/s", tuple(rates)),
            Row(f"all wanted by 10: ours over {name}", "times", _over(ours, rates), ALL_GOALS.get(name, "")),
            Row(f"1% wanted by each of 10: ours over {name}", "times", _over(some, notifications), ">= 10"),
        ]
    return rows


def _over(ours: list[float], theirs: list[float]) -> tuple[float, ...]:
    return tuple(our_rate / their_rate for our_rate, their_rate in zip(ours, theirs, strict=True))


def _build_nats() -> Path:
    """Build the program that has a NATS server and its clients in it; return its path."""
    program = BUILT / "nats"
    BUILT.mkdir(parents=True, exist_ok=True)
    subprocess.run(["go", "build", "-o", program, "."], cwd=NATS, check=True)
    return program


def _nats(program: Path, count: int, durable: bool, root: Path) -> float:
    """Return deliveries a second, from the first publish until all is acknowledged."""
    words = [str(program), "-dir", str(root), "-receivers", str(RECEIVERS), "-count", str(count)]
    words += ["-durable"] if durable else []
    return float(subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout)


@contextmanager
def _proxy(root: Path) -> Iterator[str]:
    with Cluster([ProxySpec("a1", "A", {"no-discovery": ""})], [], root) as cluster:
        yield cluster.proxies["a1"].url


def _mosquitto(root: Path) -> float:
    """Return deliveries a second, from the first publish until the last receiver has the last one."""
    port = free_port()
    settings = root / "mosquitto.conf"
    settings.write_text(
        f"listener {port} {LOOPBACK}\nallow_anonymous true\npersistence true\npersistence_location {root}/\n"
        "max_queued_messages 0\nmax_inflight_messages 0\n"
    )
    messages = root / "messages"
    messages.write_text("\n".join(f"{number:010} {FILL:<189}" for number in range(COUNT)) + "\n")
    options = ["-h", LOOPBACK, "-p", str(port), "-q", "1", "-t", TOPIC]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    broker = subprocess.Popen(["mosquitto", "-c", str(settings)], **quiet)  # type: ignore[call-overload]
    receivers: list[subprocess.Popen[bytes]] = []
    try:
        time.sleep(IDLE_S)
        for index in range(RECEIVERS):
            words = ["mosquitto_sub", *options, "-c", "-i", f"r{index}", "-C", str(COUNT)]
            receivers.append(subprocess.Popen(words, **quiet))  # type: ignore[call-overload]
        time.sleep(IDLE_S)
        began = time.monotonic()
        with messages.open("rb") as lines:
            subprocess.run(["mosquitto_pub", *options, "-l"], stdin=lines, timeout=TIMEOUT_S, check=True)
        for receiver in receivers:
            receiver.wait(TIMEOUT_S)
        return COUNT * RECEIVERS / (time.monotonic() - began)
    finally:
        for process in (*receivers, broker):
            process.terminate()
            process.wait(TIMEOUT_S)


def _receive_some(pipe: Connection, url: str, _of_one: bool, count: int) -> None:
    uvloop.run(_receiving_some(pipe, url, count))


async def _receiving_some(pipe: Connection, url: str, count: int) -> None:
    incarnation = f"{time.time_ns():x}"
    sessions = [waypost.attach(f"bench/{incarnation}-{index}", proxy=url) for index in range(RECEIVERS)]
    for index, session in enumerate(sessions):
        await session.__aenter__()
        await session.wait_effective(await session.subscribe(f"n % {ONE_IN} == {index}"), ["A/0"])
    pipe.send(("ready", None))
    await asyncio.gather(*(delivery.take(session, count // ONE_IN) for session in sessions))
    ended = time.time()
    for session in sessions:
        await session.close(forget=True)
    pipe.send(("done", (ended, RECEIVERS * (count // ONE_IN), [])))
