"""What the client library says of a connection that is lost, at a real WebSocket server."""

from __future__ import annotations

import pytest
import websockets
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from waypost.client import transport

URL = "ws://a1"


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (None, "ws://a1: the connection broke off"),
        ("", "ws://a1: the connection broke off"),
        ("the session was deleted", "ws://a1 closed the connection: the session was deleted"),
    ],
)
async def test_lost_connection_is_named_without_words_of_the_protocol(reason: str | None, text: str) -> None:
    async def lose(socket: ServerConnection) -> None:
        if reason is None:
            socket.transport.abort()
        else:
            await socket.close(1011, reason)

    async with serve(lose, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(websockets.ConnectionClosed) as caught:
            async with connect(f"ws://127.0.0.1:{port}") as socket:
                await socket.recv()
    assert (await transport._lost(URL, caught.value, may_ask=False)).reason == text
