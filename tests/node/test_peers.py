"""Connections between proxies: what ends one leaves nothing behind."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from websockets.asyncio.server import ServerConnection, serve

from federation.ports import ProxyRow
from node.peers import PeerHello, Peers
from waypost.identity import Incarnation, ProxyId, SiteId

ME, OTHER = ProxyId("me"), ProxyId("other")
LIFE = Incarnation("life")


def waiting() -> list[str]:
    return [str(task) for task in asyncio.all_tasks() if "Queue.get" in str(task)]


@pytest.mark.parametrize("who_ends_it", ["we", "the peer"])
async def test_a_connection_that_ends_leaves_nobody_waiting_for_a_message(who_ends_it: str) -> None:
    heard: asyncio.Queue[ServerConnection] = asyncio.Queue()

    async def hear(socket: ServerConnection) -> None:
        async for _ in socket:
            heard.put_nowait(socket)

    async with serve(hear, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        row = ProxyRow(proxy=OTHER, incarnation=LIFE, site=SiteId("A"), url=f"ws://127.0.0.1:{port}")
        peers = Peers(ME, lambda proxy: row, lambda: LIFE)
        message: msgspec.Struct = PeerHello(1, ME, LIFE)
        peers.send(OTHER, message)
        async with asyncio.timeout(5):
            await heard.get()
            socket = await heard.get()
            while not waiting():
                await asyncio.sleep(0.01)
            if who_ends_it == "the peer":
                await socket.close()
                while waiting():
                    await asyncio.sleep(0.01)
        await peers.close()
        # Who was cancelled has its turn, and ends.
        await asyncio.sleep(0.01)
        assert waiting() == []
