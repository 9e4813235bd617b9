"""The process of a node: whatever ends it is told, and an announcement is not worth ending for."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from discovery import announce
from discovery.announce import Announcement
from node import service
from node.configuration.config import NodeConfig, load_config
from node.http.server import Server
from node.shell.node import Node
from waypost.errors import Internal, LogReplaced, Unreachable

WAIT_S = 10


def configuration(tmp_path: Path, **settings: object) -> NodeConfig:
    return load_config({"data": tmp_path, "discovery": False, "durable": False, **settings}, None)


async def serve(config: NodeConfig, stop: asyncio.Event) -> str:
    """Serve until stopped; return the address."""
    urls: list[str] = []
    async with asyncio.timeout(WAIT_S):
        await service.serve(config, urls.append, stop)
    return urls[0]


async def test_a_port_that_fails_ends_the_node_with_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: Server, sockets: list[socket.socket]) -> None:
        sockets[0].close()
        raise RuntimeError("no more sockets")

    monkeypatch.setattr(Server, "serve", fail)
    with pytest.raises(Internal, match="RuntimeError: no more sockets") as failure:
        await serve(configuration(tmp_path), asyncio.Event())
    assert failure.value.exit_status == 70


async def test_a_port_that_closes_by_itself_ends_the_node_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def end(self: Server, sockets: list[socket.socket]) -> None:
        sockets[0].close()

    monkeypatch.setattr(Server, "serve", end)
    with pytest.raises(Internal, match="the port was closed"):
        await serve(configuration(tmp_path), asyncio.Event())


async def test_a_node_that_fails_ends_with_its_own_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: Node) -> None:
        raise ExceptionGroup("inner", [Unreachable("gone", field="log")])

    monkeypatch.setattr(Node, "run", fail)
    with pytest.raises(Unreachable, match="log: gone"):
        await serve(configuration(tmp_path), asyncio.Event())


async def test_a_node_that_cannot_be_announced_serves_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = asyncio.Event()

    async def fail(current: Callable[[], Announcement]) -> None:
        asyncio.get_running_loop().call_later(0.2, stop.set)
        raise Unreachable("no multicast here", field="discovery")

    monkeypatch.setattr(announce, "announce", fail)
    assert (await serve(configuration(tmp_path, discovery=True), stop)).startswith("ws://127.0.0.1:")


async def test_announcement_has_the_advertised_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = asyncio.Event()
    announced: list[Any] = []

    async def hear(current: Callable[[], Announcement]) -> None:
        announced.append(current())
        stop.set()

    monkeypatch.setattr(announce, "announce", hear)
    settings = {"discovery": True, "name": "n", "site": "S", "advertise": "wss://proxy.example:443"}
    assert await serve(configuration(tmp_path, **settings), stop) == "wss://proxy.example:443"
    assert announced == [Announcement("n", "S", "wss://proxy.example:443")]


def test_a_node_imports_no_client_of_servers_that_it_does_not_use() -> None:
    """Each would lengthen the start of every node."""
    code = "import sys, node.service; print(sorted({'aiokafka', 'grpc', 'zeroconf', 'pyspark'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


async def test_a_network_that_comes_later_has_the_announcement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop, tries = asyncio.Event(), 0

    async def fail_at_first(current: Callable[[], Announcement]) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise Unreachable("no multicast here", field="discovery")
        stop.set()

    monkeypatch.setattr(announce, "announce", fail_at_first)
    monkeypatch.setattr(service, "ANNOUNCE_AGAIN_S", 0.05)
    await serve(configuration(tmp_path, discovery=True), stop)
    assert tries >= 3


@pytest.mark.parametrize("json", [True, False])
def test_log_line_of_a_library_has_a_timestamp(json: bool) -> None:
    script = f"""
import logging
from node.service import set_up_logging
set_up_logging(json={json})
logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    (line,) = done.stderr.splitlines()
    assert "Invalid HTTP request received." in line
    assert re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", line)
    assert "warning" in line


async def test_a_node_that_ends_again_and_again_right_after_its_start_begins_ever_more_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where whatever ended it stands, its proxy would keep a processor, and the log of its process would overflow."""
    begun, stop, pauses = [], asyncio.Event(), []

    async def fail(config: NodeConfig, started: Callable[[str, int], None], *_: object) -> None:
        started("http://127.0.0.1:1", 1)
        begun.append(config.port)
        if len(begun) == 6:
            stop.set()
            return
        raise LogReplaced("the log ends at 1, and was read up to 2")

    def pause_ms(attempt: int, rng: object) -> int:
        pauses.append(attempt)
        return 1

    monkeypatch.setattr(service, "_serve_once", fail)
    monkeypatch.setattr(service, "full_jitter_ms", pause_ms)
    await serve(configuration(tmp_path), stop)
    assert pauses == [2, 3, 4, 5]
    assert begun[1:] == [1] * 5
