"""An HTTP request that stands still: its client is told, and the connection ends."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from node.http import protocols
from node.http.protocols import Port, PortConfig, RequestProtocol
from node.resources.fair_share import FairQueue

STALLED_S = 0.2
HEAD = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\n"


async def read_all(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the length of the body."""
    await PlainTextResponse(str(len(await Request(scope, receive).body())))(scope, receive, send)


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(protocols, "STALLED_READER_S", STALLED_S)
    listener = socket.create_server(("127.0.0.1", 0))
    config = PortConfig(read_all, http=RequestProtocol, ws="none", lifespan="off", log_config=None)
    config.shared = Port(10, 1 << 20, FairQueue())
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    yield listener.getsockname()[1]
    server.should_exit = True
    await serving


async def answer_to(port: int, *pieces: bytes, pause_s: float = 0.0) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(pause_s)
        async with asyncio.timeout(20):
            return await reader.read()
    finally:
        writer.close()


async def test_client_whose_body_does_not_end_is_told_before_the_connection_ends(port: int) -> None:
    answer = await answer_to(port, HEAD, b"half of it")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert "no more of the body came" in json.loads(body)["error"]["message"]


async def test_connection_without_a_request_ends_without_an_answer(port: int) -> None:
    assert await answer_to(port, b"POST / HT") == b""
