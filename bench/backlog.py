"""A session with a very large backlog: it is moved by a drain while nobody is attached, and then read to its end.

What may grow with the backlog is the disk. The memory of both proxies must not: rows say by how much each one's
resident memory was ever higher, during the move and during the reading, than it was before the move.
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
    """What came of one: times in seconds, growth of the resident memory in MB, source first."""

    moved_s: float
    read_s: float
    read: int
    moving_mb: tuple[float, float]
    reading_mb: tuple[float, float]


def run() -> list[Row]:
    """Move and read a million, on real parts."""
    places = [ProxySpec("a1", "A", FLAGS), ProxySpec("a2", "A", FLAGS)]
    with tempfile.TemporaryDirectory() as root, Cluster(places, [], Path(root), real=True) as cluster:
        found = asyncio.run(measure(cluster, STORED))
    name = f"backlog of {STORED:,}"
    return [
        Row(f"{name}: moved", "s", (found.moved_s,)),
        Row(f"{name}: read", "s", (found.read_s,), note=f"{found.read:,} notifications"),
        Row(f"{name}: memory of the source while it is moved", "MB more", (found.moving_mb[0],)),
        Row(f"{name}: memory of the target while it is moved", "MB more", (found.moving_mb[1],)),
        Row(f"{name}: memory of the owner while it is read", "MB more", (found.reading_mb[1],)),
    ]


async def measure(cluster: Cluster, stored: int) -> Backlog:
    """Store so many at a1 and drain it, with nothing else there, to a2; then read them all there."""
    source, target = cluster.proxies["a1"], cluster.proxies["a2"]
    roamer = Roamer("bench/backlog")
    await roamer.begin(source, ["A/0"])
    async with waypost.produce("bench", proxy=source.url, timeout_s=60) as producer:
        for begin in range(0, stored, AT_ONCE):
            await roamer.be_owed(producer, source, min(AT_ONCE, stored - begin))
    await asyncio.sleep(IDLE_S)

    before = [resident_mb(each) for each in (source, target)]
    began = time.monotonic()
    await asyncio.to_thread(request, source.url, "/v1/drains", {"proxy": source.name, "rate": 100})
    async with asyncio.timeout(TIMEOUT_S):
        while (await asyncio.to_thread(request, target.url, "/v1/status"))["stored"] < stored or _sessions(source):
            await asyncio.sleep(0.05)
    moved_s = time.monotonic() - began
    await asyncio.sleep(IDLE_S)
    moving = [peak_mb(each) - rest for each, rest in zip((source, target), before, strict=True)]

    began = time.monotonic()
    read = await roamer.read(target, stored)
    read_s = time.monotonic() - began
    reading = [peak_mb(each) - rest for each, rest in zip((source, target), before, strict=True)]
    return Backlog(moved_s, read_s, read, (moving[0], moving[1]), (reading[0], reading[1]))


def _sessions(proxy: ProxyProcess) -> int:
    return int(request(proxy.url, "/v1/status")["sessions"])


def resident_mb(proxy: ProxyProcess) -> float:
    """Return what is resident now; the peak counts from here on."""
    Path(f"/proc/{proxy.process.pid}/clear_refs").write_text("5")
    return _megabytes(proxy, RESIDENT)


def peak_mb(proxy: ProxyProcess) -> float:
    """Return the most that was resident since then."""
    return _megabytes(proxy, PEAK)


def _megabytes(proxy: ProxyProcess, line: re.Pattern[str]) -> float:
    found = line.search(Path(f"/proc/{proxy.process.pid}/status").read_text())
    assert found is not None, "the kernel does not say how much memory a process has"
    return int(found[1]) / 1024
