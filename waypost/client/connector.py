"""A client's line to the federation: one connection at a time, to whichever proxy serves it.

Receive, step, send: what a proxy says goes to the machine, what the machine has to say goes out. A connection that ends
is followed by another one: at the address that we were told, or else at the next one that is known, after a pause with
full jitter.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

import websockets
from websockets.asyncio.client import ClientConnection, connect

from waypost import cancellation
from waypost.client.events import ClientEvent, PublishFailed, Redirected, Retry
from waypost.client.machine import ClientMachine
from waypost.client.tls import tls_from_environment
from waypost.clock import full_jitter_ms
from waypost.errors import Altered, Refused, WaypostError
from waypost.frames import decode_proxy_message, encode_message
from waypost.limits import MAX_FRAME_BYTES, PING_EVERY_S, PONG_WITHIN_S
from waypost.messages import Attached, Detach, Welcome

log = logging.getLogger("waypost")
FAREWELL_S = 2.0
"""How long leaving in order may take."""

LONGEST_WAIT_MS = 2_000
"""Between two questions for a session that cannot be had at the moment."""

Finder = Callable[[], Awaitable[Sequence[str]]]
"""Returns the addresses of proxies, best first."""


def check_address(url: object) -> str:
    """Return the address of a proxy. Raises Refused: it is none."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        is_one = parts is not None and parts.scheme in ("ws", "wss") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one:
        raise Refused(f"{url!r:.80} is no address of a proxy; it is written as ws://host:7301", field="proxy")
    return str(url)


class Connector:
    """Keeps a client connected until it is over.

    Args:
        addresses: of proxies; without any, they are found.
        hear: called with all that happens.
        news: set when there is something for the application.
        tls: how a ``wss://`` address is spoken to; None: as the environment says.
    """

    def __init__(
        self,
        machine: ClientMachine,
        addresses: Sequence[str] | None,
        find: Finder | None,
        on_event: Callable[[ClientEvent], None],
        news: asyncio.Event,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._tls = tls
        self._machine = machine
        self._addresses = list(addresses or [])
        self._find = find
        self._on_event = on_event
        self._news = news
        self._rng = random.Random()
        self._next_url: str | None = None
        self._attempt = 0
        self._waits = 0
        """So often a proxy had us wait since it last let us in."""
        self._next_index = 0
        self._socket: ClientConnection | None = None
        self._output_ready = asyncio.Event()
        self._message_received = asyncio.Event()
        """A message has come, or the connection has ended."""
        self.over = False
        """Nobody connects any more."""
        self.trouble = ""
        """Why there is no connection, to be said behind what came of that."""

    @property
    def connected(self) -> bool:
        """There is a connection to a proxy."""
        return self._socket is not None

    def flush_soon(self) -> None:
        """The machine may have something to say."""
        self._output_ready.set()

    # ------------------------------------------------------------ leaving one proxy

    async def move(self, url: str) -> None:
        """Connect there from now on."""
        self._next_url = url
        if self._socket is not None:
            await self._socket.close()

    async def leave(self, farewell: Detach) -> bool:
        """Say what is left to say, and that we go; tell whether a proxy heard it that serves the session to us."""
        socket = self._socket
        if socket is None:
            return False
        with contextlib.suppress(websockets.ConnectionClosed, TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await self._send_all(socket)
                await socket.send(encode_message(farewell))
                while self._machine.attached:
                    self._message_received.clear()
                    await self._message_received.wait()
                await socket.close()
        return self._machine.is_left

    def break_off(self) -> None:
        """Vanish without a word."""
        if self._socket is not None:
            self._socket.transport.abort()

    # ------------------------------------------------------------ one connection after the other

    async def run(self) -> None:
        """Connect, and connect again with growing pauses, until the machine is over."""
        while not self.over:
            url: str | None = None
            try:
                with cancellation.translated(lambda _: ConnectionAbortedError("broken off")):
                    url = await self._choose()
                    if url is None:
                        await self._pause("no proxy is known")
                        continue
                    await self._serve(url)
            except Altered as error:
                log.warning("what came from %s was altered on its way, and is asked for again: %s", url, error.message)
                await self._pause(f"{url}: {error}")
            except (OSError, websockets.WebSocketException, TimeoutError, WaypostError) as error:
                await self._pause(f"{url or 'finding a proxy'}: {error or type(error).__name__}")

    async def _choose(self) -> str | None:
        if self._next_url is not None:
            url, self._next_url = self._next_url, None
            return url
        if not self._addresses and self._find is not None:
            found = list(await self._find())
            return found[self._next_index % len(found)] if found else None
        return self._addresses[self._next_index % len(self._addresses)] if self._addresses else None

    async def _pause(self, reason: str) -> None:
        self._attempt += 1
        self._next_index += 1
        self.trouble = f": {reason}"
        wait_ms = full_jitter_ms(self._attempt, self._rng)
        self._on_event(Retry(reason, wait_ms))
        await asyncio.sleep(wait_ms / 1000)

    def _security(self, url: str) -> ssl.SSLContext | None:
        """Return how this address is spoken to. Raises BadConfiguration."""
        if not url.startswith("wss:"):
            return None
        self._tls = self._tls or tls_from_environment()
        return self._tls

    async def _serve(self, url: str) -> None:
        """Live on one connection until it ends."""
        async with connect(
            f"{url.rstrip('/')}/v1/client",
            max_size=MAX_FRAME_BYTES,
            compression=None,
            open_timeout=3,
            close_timeout=1,
            ping_interval=PING_EVERY_S,
            ping_timeout=PONG_WITHIN_S,
            ssl=self._security(url),
        ) as socket:
            self._socket, self.trouble = socket, ""
            self._machine.connected()
            self._output_ready.set()
            writer = asyncio.create_task(self._write(socket))
            try:
                async for frame in socket:
                    self._machine.message(decode_proxy_message(frame))
                    self._message_received.set()
                    for event in self._machine.take_events():
                        await self._follow(event, socket)
                        self._on_event(event)
                    self._output_ready.set()
                    if self._machine.waiting:
                        self._news.set()
            finally:
                self._socket = None
                self._machine.disconnected()
                self._message_received.set()
                writer.cancel()
                with contextlib.suppress(asyncio.CancelledError, websockets.ConnectionClosed):
                    await writer
        if self._next_url is None and not self.over:
            await self._pause(f"{url} closed the connection")

    async def _write(self, socket: ClientConnection) -> None:
        """Write until cancelled; when this ends by itself, so does the connection: it would be mute."""
        try:
            while True:
                await self._output_ready.wait()
                self._output_ready.clear()
                self._machine.flush()
                await self._send_all(socket)
        finally:
            if not cancellation.is_requested():
                socket.transport.abort()

    async def _send_all(self, socket: ClientConnection) -> None:
        for message in self._machine.take_messages():
            await socket.send(encode_message(message))

    async def _follow(self, event: ClientEvent, socket: ClientConnection) -> None:
        """Go where the session is, and ask again when it is there."""
        match event:
            case Redirected():
                self._next_url = event.url
                await socket.close()
            case Retry():
                # A proxy says how long it takes at least; where it takes longer, thousands need not ask every time.
                longer_ms = full_jitter_ms(self._waits, self._rng, cap_ms=LONGEST_WAIT_MS)
                self._waits += 1
                wait_ms = max(event.after_ms, longer_ms)
                asyncio.get_running_loop().call_later(wait_ms / 1000, self._attach_again, socket)
            case PublishFailed():
                wait_ms = full_jitter_ms(event.attempts, self._rng)
                asyncio.get_running_loop().call_later(wait_ms / 1000, self._publish_again, socket)
            case Attached():
                self._attempt = self._waits = 0
            case Welcome() if self._machine.session is None:
                self._attempt = 0

    def _publish_again(self, socket: ClientConnection) -> None:
        if self._socket is socket:
            self._machine.publish_again()
            self._output_ready.set()

    def _attach_again(self, socket: ClientConnection) -> None:
        if self._socket is socket:
            self._machine.attach_again()
            self._output_ready.set()
