"""A session with a very large backlog: it is moved by a drain while no receiver is attached, and then read to its end.

The disk may grow with the backlog. The memory of both proxies must not: rows have the most by which the resident memory
of each was higher, during the move and during the reading, than before the move.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import waypost
from bench.handover import FLAGS, Roamer
from bench.measurement import Row
from chaos.cluster import Cluster, ProxyProcess, ProxySpec
from node.cli.commands.proxy_client import request

STORED = 1_000_000
AT_ONCE = 20_000
TIMEOUT_S = 600.0
IDLE_S = 3.0
PEAK = re.compile(r"VmHWM:\s+(\d+) kB")
RESIDENT = re.compile(r"VmRSS:\s+(\d+) kB")


@dataclass(frozen=True, slots=True)
class Backlog:
    """The result.

    Args:
        moved_s: seconds from the order to drain until the target has all, and the source no session.
        read_s: seconds until the last notification was read.
        read: how many notifications were read.
        moving_mb: by how many MiB the resident memory was higher while it moved than before, at most: source, target.
        reading_mb: the same during the reading, also above that before the move.
    """

    moved_s: float
    read_s: float
    read: int
    moving_mb: tuple[float, float]
    reading_mb: tuple[float, float]


def run() -> list[Row]:
    """Move a session with a million stored notifications, and read them, on Kafka and etcd; return the rows of times
    and memory.
    """
    places = [ProxySpec("a1", "A", FLAGS), ProxySpec("a2", "A", FLAGS)]
    with tempfile.TemporaryDirectory() as root, Cluster(places, [], Path(root), real=True) as cluster:
        found = asyncio.run(measure(cluster, STORED))
    name = f"backlog of {STORED:,}"
    return [
        Row(f"{name}: moved", "s", (found.moved_s,)),
        Row(f"{name}: read", "s", (found.read_s,), note=f"{found.read:,} notifications"),
        Row(f"{name}: memory of the source while it is moved", "MiB more", (found.moving_mb[0],)),
        Row(f"{name}: memory of the target while it is moved", "MiB more", (found.moving_mb[1],)),
        Row(f"{name}: memory of the owner while it is read", "MiB more", (found.reading_mb[1],)),
    ]


async def measure(cluster: Cluster, stored: int) -> Backlog:
    """Store `stored` notifications at proxy a1, drain their session to a2, and read them there; return what that took.
    Both proxies are idle otherwise.
    """
    source, target = cluster.proxies["a1"], cluster.proxies["a2"]
    roamer = Roamer("bench/backlog")
    await roamer.begin(source, ["A/0"])
    async with waypost.produce("bench", proxy=source.url, timeout_s=60) as producer:
        for begin in range(0, stored, AT_ONCE):
            await roamer.be_owed(producer, source, min(AT_ONCE, stored - begin))
    await asyncio.sleep(IDLE_S)

    before = [resident_mb(proxy) for proxy in (source, target)]
    began = time.monotonic()
    await asyncio.to_thread(request, source.url, "/v1/drains", {"proxy": source.name, "rate": 100})
    async with asyncio.timeout(TIMEOUT_S):
        while (await asyncio.to_thread(request, target.url, "/v1/status"))["stored"] < stored or _sessions(source):
            await asyncio.sleep(0.05)
    moved_s = time.monotonic() - began
    await asyncio.sleep(IDLE_S)
    moving = [peak_mb(proxy) - rest for proxy, rest in zip((source, target), before, strict=True)]

    for proxy in (source, target):
        resident_mb(proxy)
    began = time.monotonic()
    read = await roamer.read(target, stored)
    read_s = time.monotonic() - began
    reading = [peak_mb(proxy) - rest for proxy, rest in zip((source, target), before, strict=True)]
    return Backlog(moved_s, read_s, read, (moving[0], moving[1]), (reading[0], reading[1]))


def _sessions(proxy: ProxyProcess) -> int:
    return int(request(proxy.url, "/v1/status")["sessions"])


def resident_mb(proxy: ProxyProcess) -> float:
    """Return the resident memory of a proxy now, in MiB, and reset its peak: :func:`peak_mb` counts from here on."""
    Path(f"/proc/{proxy.process.pid}/clear_refs").write_text("5")
    return _megabytes(proxy, RESIDENT)


def peak_mb(proxy: ProxyProcess) -> float:
    """Return the highest resident memory of a proxy since the last :func:`resident_mb`, in MiB."""
    return _megabytes(proxy, PEAK)


def _megabytes(proxy: ProxyProcess, line: re.Pattern[str]) -> float:
    found = line.search(Path(f"/proc/{proxy.process.pid}/status").read_text())
    assert found is not None, "the kernel does not say how much memory a process has"
    return int(found[1]) / 1024
