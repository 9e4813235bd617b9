"""Which connections share the little time that there is for tiny pieces: those that send them, and nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
import websockets
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.frames import Frame, Opcode

from node.http.parsing import ParsingTurns
from node.http.protocols import Port, PortConfig, RequestProtocol, SocketProtocol
from node.resources.fair_share import FairQueue
from tests.helpers.polling import until
from waypost.limits import FEW_CONTROLS

HEAD = b"POST / HTTP/1.1\r\nHost: here\r\n"


class RecordedTurns(ParsingTurns):
    """Tells of each turn that was asked for whether it was one of those for tiny pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.tiny: list[bool] = []

    def has_turn(self, *, tiny: bool) -> bool:
        self.tiny.append(tiny)
        return super().has_turn(tiny=tiny)


@dataclass
class Served:
    port: int
    turns: RecordedTurns = field(default_factory=RecordedTurns)
    received: list[str] = field(default_factory=list)

    async def application(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await PlainTextResponse(str(len(await Request(scope, receive).body())))(scope, receive, send)
            return
        client = WebSocket(scope, receive, send)
        await client.accept()
        scope["extensions"]["proven"]["note"]()
        with contextlib.suppress(WebSocketDisconnect):
            while True:
                self.received.append(await client.receive_text())


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    listener = socket.create_server(("127.0.0.1", 0))
    served = Served(listener.getsockname()[1])
    config = PortConfig(
        served.application,
        http=RequestProtocol,
        ws=SocketProtocol,
        lifespan="off",
        interface="asgi3",
        log_config=None,
        ws_ping_interval=None,
    )
    config.shared = Port(10, 1 << 20, FairQueue())
    config.shared.turns = served.turns
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    yield served
    server.should_exit = True
    await serving


@pytest.mark.parametrize(("pings", "is_tiny"), [(1, False), (FEW_CONTROLS, False), (FEW_CONTROLS + 1, True)])
async def test_client_that_pings_as_anybody_does_is_not_one_that_sends_tiny_pieces(
    served: Served, pings: int, is_tiny: bool
) -> None:
    async with websockets.connect(f"ws://127.0.0.1:{served.port}/", ping_interval=None) as client:
        turns = len(served.turns.tiny)
        client.transport.write(Frame(Opcode.PING, b"").serialize(mask=True) * pings)
        await until(lambda: len(served.turns.tiny) > turns, "the pings came")
        await client.send("after")
        await until(lambda: served.received == ["after"], "the message came")
    assert any(served.turns.tiny) is is_tiny


@pytest.mark.parametrize(
    ("head", "body", "is_tiny"),
    [
        (b"Content-Length: 12\r\n\r\n", b"x", False),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", True),
    ],
)
async def test_body_of_one_length_is_not_in_tiny_pieces(
    served: Served, head: bytes, body: bytes, is_tiny: bool
) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(HEAD + head)
    await until(lambda: bool(served.turns.tiny), "the head came")
    turns = len(served.turns.tiny)
    writer.write(body)
    await until(lambda: len(served.turns.tiny) > turns, "the begin of the body came")
    assert served.turns.tiny[-1] is is_tiny
    writer.close()
    await writer.wait_closed()
