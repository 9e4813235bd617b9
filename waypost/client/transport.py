"""A client's transport on asyncio and websockets: it performs the effects of the connector (connector.py).

Receive, step, send: a proxy's messages go to the connector, the messages of the client's protocol go out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import socket
import ssl
from collections.abc import Callable, Coroutine, Sequence
from http import HTTPStatus
from typing import Any, assert_never
from urllib.parse import urlsplit

import websockets
from websockets.asyncio.client import ClientConnection

from waypost import cancellation
from waypost.client.connector import (
    Close,
    Connector,
    Effect,
    Find,
    Found,
    Input,
    Lost,
    Measure,
    Measured,
    MoveTo,
    Open,
    Opened,
    Received,
    Report,
    SendPending,
    Start,
    Stop,
)
from waypost.client.events import ClientEvent
from waypost.client.options import ConnectOptions
from waypost.client.protocol import ClientProtocol
from waypost.client.round_trip import DirectConnect, round_trips
from waypost.client.tls import speaks_tls, tls_from_environment, wrong_tls
from waypost.clock import NEVER, SystemClock
from waypost.errors import BadConfiguration, WaypostError
from waypost.frames import decode_proxy_message, encode_message
from waypost.limits import MAX_FRAME_BYTES, PING_EVERY_S, PONG_WITHIN_S
from waypost.messages import Detach

log = logging.getLogger("waypost")
DETACH_S = 2.0
"""The time limit of leaving in order, in seconds."""
REFUSING = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)
"""With these a server refuses a handshake for ever."""


class Transport:
    """Performs the effects of a connector, on one websocket at a time.

    Args:
        protocol: the client's.
        options: where and how to connect.
        on_event: called with each event of the protocol and the connector.
        news: set when notifications wait for the application.
    """

    def __init__(
        self,
        protocol: ClientProtocol,
        options: ConnectOptions,
        on_event: Callable[[ClientEvent], None],
        news: asyncio.Event,
    ) -> None:
        self._connector = Connector(protocol, options.addresses, random.Random(), options.roaming)
        self._protocol = protocol
        self._find = options.find
        self._on_event = on_event
        self._news = news
        self._tls = options.tls
        self._clock = SystemClock()
        self._tasks: asyncio.TaskGroup | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._socket: ClientConnection | None = None
        self._has_opened = False
        self._output_ready = asyncio.Event()
        self._message_received = asyncio.Event()
        """Set when a message was received, or the connection has ended."""
        self.over = False
        """Whether it was stopped: it does not connect any more."""

    @property
    def connected(self) -> bool:
        """Whether there is a connection to a proxy."""
        return self._socket is not None

    @property
    def trouble(self) -> str:
        """The reason why there is no connection, as a suffix of an error message (": ..."); "": there is one, or none
        was tried in vain yet. It stays while the next connection is being opened.
        """
        return self._connector.trouble

    def flush_soon(self) -> None:
        """Wake the writer: the protocol may have messages to send."""
        self._output_ready.set()

    # ------------------------------------------------------------ leaving one proxy

    def move(self, url: str) -> None:
        """Connect to the proxy at `url` from now on."""
        self._step(MoveTo(url))

    async def leave(self, detach: Detach) -> bool:
        """Send the messages that the protocol has ready, then the detach, and close the connection; wait for the answer
        for at most DETACH_S. Publishes that were not flushed (:meth:`ClientProtocol.flush`) stay unsent.

        Args:
            detach: the protocol's last message, from :meth:`ClientProtocol.detach`.

        Returns:
            Whether the proxy that serves the session has confirmed the detach. False without a connection, and for a
                producer.
        """
        socket = self._socket
        if socket is None:
            return False
        with contextlib.suppress(websockets.ConnectionClosed, TimeoutError):
            async with asyncio.timeout(DETACH_S):
                await self._send_all(socket)
                await socket.send(encode_message(detach))
                while self._protocol.attached:
                    self._message_received.clear()
                    await self._message_received.wait()
                await socket.close()
        return self._protocol.is_left

    def break_off(self) -> None:
        """Abort the connection, if there is one, without a word to the proxy."""
        if self._socket is not None:
            self._socket.transport.abort()

    def stop(self) -> None:
        """End the connection, and do not connect any more."""
        self.over = True
        self._step(Stop())

    # ------------------------------------------------------------ the connector

    async def run(self) -> None:
        """Stay connected until cancelled. Raises an exception only by a defect of ours or of a library."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                if not self.over:
                    self._step(Start())
                await asyncio.get_running_loop().create_future()
            finally:
                # A connection that ends from here on begins nothing any more, and nor does a timer.
                self._tasks = None
                self._arm()

    def _step(self, input: Input) -> None:
        self._perform(self._connector.step(input, self._clock.now_ms()))

    def _tick(self) -> None:
        try:
            self._perform(self._connector.tick(self._clock.now_ms()))
        except Exception as error:
            # The application's `token` has failed. On the next connection it is asked again, and its error is reported.
            log.warning("the connection is made anew: %s: %s", type(error).__name__, error)
            self.break_off()
            self._arm()

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Find(search=search):
                    self._spawn(self._find_proxies(search))
                case Measure():
                    self._spawn(self._measure(effect))
                case Open(url=url):
                    self._spawn(self._serve(url))
                case Close(altered=altered):
                    if altered:
                        log.warning("what came was altered on its way, and is asked for again: %s", altered)
                    if self._socket is not None:
                        self._spawn(self._socket.close())
                case SendPending():
                    self._output_ready.set()
                case Report(event=event):
                    self._on_event(event)
                case _:
                    assert_never(effect)
        self._arm()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if self._tasks is not None:
            self._tasks.create_task(work)
        else:
            work.close()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._connector.next_deadline()
        if due != NEVER and self._tasks is not None:
            wait_s = max(0, due - self._clock.now_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._tick)

    # ------------------------------------------------------------ one connection

    async def _find_proxies(self, search: int) -> None:
        try:
            with cancellation.translated(lambda _: ConnectionAbortedError("broken off")):
                found = list(await self._find()) if self._find is not None else []
        except (OSError, TimeoutError, WaypostError) as error:
            self._step(Lost(f"finding a proxy: {str(error) or type(error).__name__}", search=search))
            return
        self._step(Found(found, search=search) if found else Lost("no proxy is known", search=search))

    async def _measure(self, effect: Measure) -> None:
        self._step(Measured(effect.number, await round_trips(effect.addresses, self._security)))

    def _security(self, url: str) -> ssl.SSLContext | None:
        """Return the TLS context for this address; None: it is no ``wss://`` one. Raises BadConfiguration."""
        if not url.startswith("wss:"):
            return None
        self._tls = self._tls or tls_from_environment()
        return self._tls

    async def _serve(self, url: str) -> None:
        """Run one connection until it ends."""
        lost = Lost(f"{url} closed the connection")
        try:
            with cancellation.translated(lambda _: ConnectionAbortedError("broken off")):
                await self._talk(url)
        except (OSError, websockets.WebSocketException, TimeoutError, WaypostError, ValueError) as error:
            # A ValueError: an address that no name server could be asked about, given to us or in a redirection.
            lost = await _lost(url, error, may_ask=not self._has_opened)
        finally:
            self._socket = None
            self._step(lost)
            self._message_received.set()

    async def _talk(self, url: str) -> None:
        async with DirectConnect(
            f"{url.rstrip('/')}/v1/client",
            max_size=MAX_FRAME_BYTES,
            compression=None,
            open_timeout=3,
            close_timeout=1,
            ping_interval=PING_EVERY_S,
            ping_timeout=PONG_WITHIN_S,
            ssl=self._security(url),
        ) as socket:
            self._socket, self._has_opened = socket, True
            self._step(Opened())
            writer = asyncio.create_task(self._write(socket))
            try:
                async for frame in socket:
                    self._step(Received(decode_proxy_message(frame)))
                    self._message_received.set()
                    if self._protocol.waiting:
                        self._news.set()
            finally:
                writer.cancel()
                with contextlib.suppress(asyncio.CancelledError, websockets.ConnectionClosed):
                    await writer

    async def _write(self, socket: ClientConnection) -> None:
        """Write until cancelled. If this ends otherwise, it aborts the connection, which could not send any more."""
        try:
            while True:
                await self._output_ready.wait()
                self._output_ready.clear()
                self._protocol.flush()
                await self._send_all(socket)
        finally:
            if not cancellation.is_requested():
                socket.transport.abort()

    async def _send_all(self, socket: ClientConnection) -> None:
        for message in self._protocol.take_messages():
            await socket.send(encode_message(message))


async def _lost(url: str, error: Exception, *, may_ask: bool) -> Lost:
    """Return how a connection was lost; the error may tell which configuration is wrong.

    Args:
        url: the address.
        error: with which it was lost.
        may_ask: look what speaks there, where the error does not tell.
    """
    misconfigured = _wrong(url, error)
    if misconfigured is not None:
        return Lost(misconfigured.message, misconfigured)
    if isinstance(error, websockets.InvalidMessage):
        if may_ask and url.startswith("ws:") and await speaks_tls(url):
            what = f"{url}: what listens there speaks TLS"
            return Lost(what, BadConfiguration(what, hint="the address of a proxy with TLS begins with wss:"))
        # So it ends, too, where a proxy does not accept a certificate: the alert of TLS is lost with the connection.
        is_tls = url.startswith("wss:")
        ask = "does it accept the client's certificate, if it has one" if is_tls else "does it speak TLS, at wss:"
        return Lost(f"{url}: {error}; is that the port of a proxy, and {ask}?")
    if isinstance(error, websockets.ConnectionClosed):
        why = error.rcvd.reason if error.rcvd is not None else ""
        return Lost(f"{url} closed the connection: {why}" if why else f"{url}: the connection broke off")
    return Lost(f"{url}: {str(error) or type(error).__name__}")


def _wrong(url: str, error: BaseException | None) -> BadConfiguration | None:
    """Return what has to be configured otherwise, by an error or one of its causes; None: nothing, as far as is known.

    A proxy that restarts answers with none of these.
    """
    while error is not None:
        match error:
            case BadConfiguration():
                return error
            case ssl.SSLError():
                return wrong_tls(url, error)
            case socket.gaierror(errno=socket.EAI_NONAME):
                return BadConfiguration(
                    f"{url}: no host of that name has an address", field="proxy", hint="is it spelt right?"
                )
            case websockets.InvalidStatus(response=response) if response.status_code in REFUSING:
                return _wrong_address(url, bytes(response.body or b""))
            case _:
                error = error.__cause__
    return None


def _wrong_address(url: str, body: bytes) -> BadConfiguration | None:
    """Return why a handshake was answered by HTTP; None: for no reason that the address has."""
    try:
        reason = str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        if urlsplit(url).path.strip("/"):
            hint = "the address of a proxy is ws://host:port, without a path"
            return BadConfiguration(f"{url}: there is no proxy at this path", field="proxy", hint=hint)
        return None
    hint = "name the proxy as it is advertised, or start it with --host-names"
    return BadConfiguration(f"{url}: the proxy does not accept the handshake: {reason}", field="proxy", hint=hint)
