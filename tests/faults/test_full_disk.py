"""A full disk is said once, and costs the proxy what it cannot write, but not its life, and no flood of lines."""

from __future__ import annotations

import asyncio
import errno
import io
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

import waypost
from chaos.servers.process import free_port
from federation.embedded import database, journal, registry
from node import service
from node.configuration.config import NodeConfig
from node.configuration.log_output import LogOutput
from node.http.server import Server, make_server
from node.shell.node import Node

WATCHED_S = 4.0
TIMEOUT_S = 20.0


class Disk:
    """What the embedded parts write to; full while `is_full`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        write, write_all = database.write, journal._write_all

        def full_write(connection: sqlite3.Connection, action: Callable[[], Any]) -> Any:
            if self.is_full:
                raise sqlite3.OperationalError("database or disk is full")
            return write(connection, action)

        def full_write_all(file: int, data: bytes) -> None:
            if self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device")
            write_all(file, data)

        monkeypatch.setattr(database, "write", full_write)
        monkeypatch.setattr(registry, "write", full_write)
        monkeypatch.setattr(journal, "_write_all", full_write_all)


@asynccontextmanager
async def running(config: NodeConfig, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    """A node as `waypost serve` runs it, once it is ready."""
    nodes: list[Node] = []

    def remembered(node: Node, host: str) -> Server:
        nodes.append(node)
        return make_server(node, host)

    monkeypatch.setattr(service, "make_server", remembered)
    stop = asyncio.Event()
    serving = asyncio.create_task(service.serve(config, lambda url: None, stop))
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while not (nodes and nodes[0].why_not_ready == ""):
                await asyncio.sleep(0.02)
        yield nodes[0]
    finally:
        stop.set()
        await serving


async def test_a_full_disk_is_said_once_and_is_over_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, port = Disk(monkeypatch), free_port()
    config = NodeConfig(data=tmp_path, port=port, discovery=False, lease_ttl_ms=1_000, neighbours=("B",))
    async with running(config, monkeypatch) as node, waypost.attach("s/1", proxy=f"ws://127.0.0.1:{port}") as session:
        await session.subscribe("a == 1")
        with capture_logs() as lines:
            disk.is_full = True
            publishing = asyncio.create_task(_publish(f"ws://127.0.0.1:{port}"))
            await asyncio.sleep(WATCHED_S)
            missing = set(node.health.now)
        assert {"registry"} <= missing
        counter = Counter((line["event"], line.get("dependency")) for line in lines)
        assert len(lines) < 12, counter
        assert max(counter.values()) <= 1, counter
        disk.is_full = False
        async with asyncio.timeout(TIMEOUT_S):
            await publishing
            while node.health.now or node.why_not_ready:
                await asyncio.sleep(0.05)


async def _publish(url: str) -> None:
    async with waypost.produce("p", proxy=url) as producer:
        for _ in range(200):
            await producer.publish({"a": 1})


# ---------------------------------------------------------------- the log itself


class Full(io.StringIO):
    """A stream that takes nothing while it is full."""

    is_full = False

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_lines_that_the_log_does_not_take_are_counted_in_the_next_one() -> None:
    stream = Full()
    output = LogOutput(stream)
    output.write("one\n")
    stream.is_full = True
    output.write("two\n")
    output.write("three\n")
    stream.is_full = False
    output.write("four\n")
    output.write("five\n")
    assert stream.getvalue() == "one\n\n2 log lines could not be written here\nfour\nfive\n"


def test_a_proxy_whose_log_is_on_a_full_disk_serves_all_the_same(tmp_path: Path) -> None:
    port = free_port()
    waypost_ = str(Path(sys.executable).with_name("waypost"))
    command = [waypost_, "serve", f"--data={tmp_path}", f"--port={port}", "--no-discovery"]
    with Path("/dev/full").open("w") as full, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=full) as process:
        try:
            deadline = time.monotonic() + TIMEOUT_S
            while not _ready(port):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            process.terminate()
        assert process.wait(TIMEOUT_S) == 0


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
