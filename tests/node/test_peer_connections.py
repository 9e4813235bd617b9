"""Connections between proxies: what ends one leaves nothing behind."""

from __future__ import annotations

import asyncio

import pytest
from websockets.asyncio.server import ServerConnection, serve

from federation.ports import ProxyRow
from handover.messages import Offer
from node.peers import PeerChallenge, PeerHello, Peers, PeerWelcome, decode_introduction, encode_introduction
from node.seal import new_nonce
from waypost.identity import Epoch, Incarnation, ProxyId, SessionId, SiteId

ME, OTHER = ProxyId("me"), ProxyId("other")
LIFE = Incarnation("life")
SECRET = b"s" * 32


def waiting() -> list[str]:
    return [str(task) for task in asyncio.all_tasks() if "Queue.get" in str(task)]


@pytest.mark.parametrize("who_ends_it", ["we", "the peer"])
async def test_a_connection_that_ends_leaves_nobody_waiting_for_a_message(who_ends_it: str) -> None:
    heard: asyncio.Queue[ServerConnection] = asyncio.Queue()

    async def hear(socket: ServerConnection) -> None:
        challenge = new_nonce()
        await socket.send(encode_introduction(PeerChallenge(challenge)))
        hello = decode_introduction(await socket.recv())
        assert isinstance(hello, PeerHello)
        proof = hello.introduction(challenge).callees_proof(SECRET)
        await socket.send(encode_introduction(PeerWelcome(proof)))
        async for _ in socket:
            heard.put_nowait(socket)

    async with serve(hear, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        row = ProxyRow(proxy=OTHER, incarnation=LIFE, site=SiteId("A"), url=f"ws://127.0.0.1:{port}")
        peers = Peers(ME, lambda proxy: row, lambda: LIFE, lambda: SECRET, lambda *_: None)
        peers.send(OTHER, Offer(SessionId("s"), Epoch(1), "drain"))
        async with asyncio.timeout(5):
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
