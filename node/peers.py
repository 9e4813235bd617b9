"""Connections to other proxies. Each side sends on a connection of its own, and hears on the other's.

Who a peer is, its first frame says; that it is, the registry proves: only the proxy itself knows the name of its
present life before the registry tells it to other proxies.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import msgspec
import websockets
from websockets.asyncio.client import connect

from federation.messages import FederationMessage
from federation.ports import ProxyRow
from handover.messages import Give, Offer, ToSource, ToTarget
from proxy.relay import RelayMessage
from waypost.identity import Incarnation, ProxyId
from waypost.limits import MAX_FRAME_BYTES, PEER_QUEUE
from waypost.messages import VERSION, decode_frame


class PeerHello(msgspec.Struct, frozen=True, tag="peer-hello"):
    """The first frame of a connection between proxies."""

    version: int
    proxy: ProxyId
    incarnation: Incarnation


PeerMessage = PeerHello | ToSource | ToTarget | Offer | Give | RelayMessage | FederationMessage
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[PeerMessage] = msgspec.msgpack.Decoder(PeerMessage)


def decode_peer_message(frame: bytes) -> PeerMessage:
    """Decode what a proxy sent. Raises BadMessage."""
    return decode_frame(_decoder, frame)


class Peers:
    """Sends messages to proxies by name. A message may be lost; those of one peer keep their order.

    Args:
        row: looks up a live proxy.
        life: names our present life.
    """

    def __init__(
        self,
        proxy: ProxyId,
        row: Callable[[ProxyId], ProxyRow | None],
        life: Callable[[], Incarnation],
    ) -> None:
        self._proxy = proxy
        self._row = row
        self._life = life
        self._lines: dict[ProxyId, asyncio.Queue[msgspec.Struct]] = {}
        self._tasks: dict[ProxyId, asyncio.Task[None]] = {}

    def send(self, proxy: ProxyId, message: msgspec.Struct) -> None:
        """Send if the peer can be reached; past the bound of its queue messages are lost, as by a network."""
        if proxy not in self._lines:
            self._lines[proxy] = asyncio.Queue(PEER_QUEUE)
            self._tasks[proxy] = asyncio.create_task(self._serve(proxy), name=f"peer {proxy}")
        with contextlib.suppress(asyncio.QueueFull):
            self._lines[proxy].put_nowait(message)

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _serve(self, proxy: ProxyId) -> None:
        line = self._lines[proxy]
        while True:
            first = await line.get()
            row = self._row(proxy)
            if row is None:
                continue
            with contextlib.suppress(OSError, websockets.WebSocketException, TimeoutError):
                await self._talk(row, line, first)

    async def _talk(self, row: ProxyRow, line: asyncio.Queue[msgspec.Struct], first: msgspec.Struct) -> None:
        """Speak on one connection until it breaks, or the peer begins another life."""
        life = self._life()
        async with connect(
            f"{row.url}/v1/peer", max_size=MAX_FRAME_BYTES, compression=None, open_timeout=2, close_timeout=1
        ) as socket:
            await socket.send(_encoder.encode(PeerHello(VERSION, self._proxy, life)))
            message = first
            hear = asyncio.create_task(socket.wait_closed())
            try:
                while life == self._life() and self._row(row.proxy) == row:
                    await socket.send(_encoder.encode(message))
                    following = await _next(line, hear)
                    if following is None:
                        return
                    message = following
            finally:
                hear.cancel()


async def _next(line: asyncio.Queue[msgspec.Struct], closed: asyncio.Task[None]) -> msgspec.Struct | None:
    """Return the next message, or None once the connection is closed. Nothing waits on, also if we are cancelled."""
    taken = asyncio.create_task(line.get())
    try:
        await asyncio.wait({taken, closed}, return_when=asyncio.FIRST_COMPLETED)
        return taken.result() if taken.done() else None
    finally:
        taken.cancel()
