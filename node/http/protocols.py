"""Protocols between a proxy's port and its web application: bytes and frames of clients that are not proven yet.

A connection counts from its first byte, whether it is an HTTP request or a WebSocket. A client that has not proven who
it is may send little. Bytes are parsed in small pieces, so that a million tiny frames do not hold up the loop. What
waits here - messages of which the end is missing, answers that nobody reads - is bounded by bytes and by time.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from typing import Any

import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

from node.http.parsing import Cost, ParsingTurns, UnreadBytes
from node.resources.fair_share import BufferedBytes, FairQueue, Turns
from node.security.tls import Certified, certified
from waypost.errors import LimitExceeded
from waypost.limits import (
    BODY_PIECE_BYTES,
    CONNECTIONS_RESERVED,
    FEW_CONTROLS,
    LONG_READ_BYTES,
    PIECE_BYTES,
    PONG_BYTES,
    SLICE_S,
    SMALL_PIECE_BYTES,
    STALLED_READER_S,
    TINY_SLICE_S,
    UNPROVEN_BYTES,
    WAITING_MESSAGES,
)

_WHY = json.dumps(
    {"v": 1, "error": {"code": LimitExceeded.code, "message": f"no more of the body came for {STALLED_READER_S:g} s"}}
)
TIMED_OUT = (
    "HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: application/json\r\n"
    f"content-length: {len(_WHY)}\r\n\r\n{_WHY}"
).encode()
"""The answer to a request that stands still."""
BAD_HANDSHAKE = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
"""The answer to a WebSocket handshake that cannot be read."""


class Port:
    """The state that all connections of a port share.

    Args:
        connections: the most that clients may have; a few more are kept for operators and other proxies.
        unfinished_bytes: the most bytes of all messages and requests together of which the end has not come, or the
            answer is not sent.
        line: the queue of connections that cost much processor time.

    Attributes:
        reads: the queue of connections whose messages are long.
    """

    def __init__(self, connections: int, unfinished_bytes: int, line: FairQueue) -> None:
        self.line = line
        self.reads = FairQueue()
        self.unfinished: BufferedBytes[SocketProtocol | RequestProtocol] = BufferedBytes(unfinished_bytes)
        self.max_connections = connections + CONNECTIONS_RESERVED
        self.turns = ParsingTurns()


class PortConfig(uvicorn.Config):
    """uvicorn's configuration of one port.

    Args:
        shared: the state that all connections of the port share.
        context: the TLS context; None: the port speaks plain text.
    """

    shared: Port
    context: ssl.SSLContext | None = None


class RequestProtocol(H11Protocol):
    """uvicorn's HTTP within bounds. A connection beyond the port's most is closed at once; so is one whose client
    has made no progress for STALLED_READER_S, with its request or with reading the answer. A body in chunks is parsed
    in small pieces: they may have one byte each.
    """

    config: PortConfig

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._port = self.config.shared
        self._owed: object = None
        self._looking: asyncio.TimerHandle | None = None
        self._came = 0
        """Bytes received since the last answer."""
        self._unread = UnreadBytes()
        self._is_waiting = False
        """Whether the rest is parsed in a later turn of the loop, or after a pause."""
        self._is_over = False
        """Whether the connection is lost, or another protocol's."""
        self._sends_no_more = False
        """Whether the client has ended its side of the connection."""
        self._turns: Turns | None = None
        """The turns of a connection that has sent chunks; None: it has sent none."""
        self._seen: object = None
        self._has_chunks = False
        """Whether the body of the request `_seen` comes in chunks."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to watch the connection's progress; one beyond the port's `max_connections` is closed at once."""
        super().connection_made(transport)
        if len(self.connections) > self.config.shared.max_connections:
            transport.abort()
            return
        self._looking = self.loop.call_later(STALLED_READER_S, self._check_stall)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, unless earlier ones wait: then these wait behind them. Past the port's bound of bytes
        of unfinished requests, the connection with the most is closed, which may be this one.
        """
        self._came += len(data)
        largest = self._port.unfinished.note(self, self._came if self._came > PIECE_BYTES else 0)
        if largest is not None:
            largest.transport.abort()
        if largest is self:
            return
        self._unread.append(data)
        if self._is_waiting:
            self.flow.pause_reading()
        else:
            self._feed()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Return whether the connection stays open although the client has ended its side: True as long as its whole
        request is not answered; over TLS always False.
        """
        cycle = self.cycle
        is_owed = cycle is not None and not cycle.more_body and not cycle.response_complete
        self._sends_no_more = bool(self._unread) or is_owed
        return self._sends_no_more and self.transport.get_extra_info("sslcontext") is None

    @property
    def _is_in_body(self) -> bool:
        cycle = self.cycle
        return cycle is not None and cycle.more_body and not cycle.response_complete

    @property
    def _is_in_chunks(self) -> bool:
        """Whether the rest of a body is missing that comes in chunks. A body of one length is parsed in one go."""
        if self.cycle is not self._seen:
            self._seen = self.cycle
            self._has_chunks = any(name == b"transfer-encoding" for name, _ in self.headers)
        return self._has_chunks and self._is_in_body

    def _feed(self) -> None:
        """Parse what was received, for a moment; then other connections have their turn."""
        self._is_waiting = False
        if self._is_over:
            return
        tiny = self._is_in_chunks
        if not self._port.turns.has_turn(tiny=tiny):
            self._pause()
            self._port.turns.wait_turn(self._feed, self.loop, Cost.of(len(self._unread), tiny=tiny))
            return
        spent = self._unread.parse(self._parse, self._piece_bytes, TINY_SLICE_S)
        self._port.turns.parsed(spent, self.loop)
        if self._is_over:
            return
        wait_s = 0.0
        if tiny:
            now_s = time.monotonic()
            self._turns = self._turns or Turns(self._port.line, now_s)
            wait_s = self._turns.spent(spent, now_s)
        if wait_s or self._unread:
            self._pause()
            self.loop.call_later(wait_s, self._feed)
        elif self._may_read():
            self.flow.resume_reading()

    def _piece_bytes(self) -> int:
        if self._is_over:
            return 0
        if self._is_in_body:
            return SMALL_PIECE_BYTES if self._is_in_chunks else BODY_PIECE_BYTES
        return PIECE_BYTES

    def _parse(self, piece: bytes) -> None:
        super().data_received(piece)

    def _pause(self) -> None:
        self._is_waiting = True
        self.flow.pause_reading()

    def _may_read(self) -> bool:
        """Tell whether uvicorn itself wants to read on: it has no request that waits, and no long body."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return True
        return cycle.more_body and len(cycle.body) <= HIGH_WATER_LIMIT

    def on_response_complete(self) -> None:
        """Count received bytes anew for the next request of the connection; close it if the client has ended its side
        and nothing is left to answer.
        """
        self._came = 0
        self._port.unfinished.forget(self)
        super().on_response_complete()
        if self._sends_no_more and not self._unread and self.cycle is not None and self.cycle.response_complete:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching the connection, and free what it held."""
        self._end()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, and close the connection; nothing that comes after it is parsed."""
        self._is_over = True
        self._unread.clear()
        super().send_400_response(msg)

    def handle_websocket_upgrade(self, event: Any) -> None:
        """Stop parsing requests, and leave the connection to :class:`SocketProtocol`."""
        self._end()
        self.flow.resume_reading()
        super().handle_websocket_upgrade(event)

    def _end(self) -> None:
        self._is_over = True
        self._unread.clear()
        self._stop_looking()
        self._port.unfinished.forget(self)

    def _stop_looking(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def _check_stall(self) -> None:
        """Close what has stood as it is since the last look, if it is the client's turn."""
        owed = self._owes()
        if owed is not None and owed == self._owed:
            self._give_up()
            return
        self._owed = owed
        self._looking = self.loop.call_later(STALLED_READER_S, self._check_stall)

    def _give_up(self) -> None:
        """Close the connection; a client whose request has begun, and does not end, is told why."""
        if self._is_in_body and self.cycle is not None and not self.cycle.response_started:
            self.transport.write(TIMED_OUT)
            self.transport.close()
        else:
            self.transport.abort()

    def _owes(self) -> object:
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return "a request", id(cycle)
        if cycle.more_body or self.flow.write_paused:
            return "the rest of it, or to read", id(cycle)
        return None


class SocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket within bounds.

    ASGI extensions of its scope: "tls" has the client's verified certificate (:func:`shown_by`); the application calls
    "proven" when it knows the client; "abort" ends the connection at once, and tells whether it is lost.
    """

    config: PortConfig

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._port = self.config.shared
        self._turns = Turns(self._port.line, time.monotonic())
        self._unread = UnreadBytes()
        self._feeding: asyncio.Handle | None = None
        self._is_queued = False
        """Whether it waits for a turn of the loop with time for it."""
        self._unproven: int | None = 0
        """Bytes received before the client was proven; None: it is."""
        self._owed_since_s: float | None = None
        """The time since which the end of a message is missing."""
        self._looking: asyncio.TimerHandle | None = None
        self._upgrading: asyncio.TimerHandle | None = None
        """The timer that runs until the handshake is complete."""
        self._controls = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin the handshake, which is given up after STALLED_READER_S."""
        super().connection_made(transport)
        self._upgrading = self.loop.call_later(STALLED_READER_S, self._give_up_handshake)

    def _give_up_handshake(self) -> None:
        if not self.handshake_complete:
            self.transport.abort()

    def _proven(self) -> None:
        self._unproven = None

    def _takes_more(self) -> bool:
        """Tell whether the application waits for more messages. Before the client is proven it takes one at a time.

        Once we have closed, nothing gets to the application, and only the answer to the close is awaited.
        """
        if self.close_sent:
            return True
        return self.queue.qsize() < (1 if self._unproven is not None else WAITING_MESSAGES)

    async def run_asgi(self) -> None:
        """Run the application, with the extensions of this class in its scope."""
        certificate = self.transport.get_extra_info("peercert") or {}
        self.scope["extensions"]["tls"] = {"client_cert": certified(certificate) if certificate else None}
        self.scope["extensions"]["proven"] = {"note": self._proven}
        self.scope["extensions"]["abort"] = {"now": self.transport.abort, "is_lost": self.transport.is_closing}
        await super().run_asgi()

    def connection_lost(self, exc: Exception | None) -> None:
        """Free what the connection held, and end its timers."""
        # Now, and not when somebody looks for garbage: it may be much.
        self._unread.clear()
        self.conn.reader.buffer.clear()
        self.frames.clear()
        self._port.unfinished.forget(self)
        for timer in (self._feeding, self._looking, self._upgrading):
            if timer is not None:
                timer.cancel()
        self._feeding = self._looking = self._upgrading = None
        self._is_queued = False
        super().connection_lost(exc)

    # ------------------------------------------------------------ what comes

    def data_received(self, data: bytes) -> None:
        """Take bytes of the connection, and parse them now, unless earlier ones wait."""
        self._unread.append(data)
        if not self._will_feed:
            self._feed()

    @property
    def _will_feed(self) -> bool:
        return self._is_queued or self._feeding is not None

    @property
    def _unparsed(self) -> int:
        return len(self._unread) + len(self.conn.reader.buffer)

    def _take_turn(self) -> None:
        if self._is_queued:
            self._is_queued = False
            self._feed_on()

    def _refuse(self, reason: str) -> None:
        if self.handshake_complete and not self.close_sent:
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
        self.transport.close()

    def _feed(self) -> None:
        """Parse what was received, for a moment; then other connections have their turn."""
        self._feeding = None
        tiny = self._controls > FEW_CONTROLS
        if not self._port.turns.has_turn(tiny=tiny):
            self.transport.pause_reading()
            self._is_queued = True
            self._port.turns.wait_turn(self._take_turn, self.loop, Cost.of(self._unparsed, tiny=tiny))
            return
        self._controls = 0
        piece_bytes, slice_s = (SMALL_PIECE_BYTES, TINY_SLICE_S) if tiny else (PIECE_BYTES, SLICE_S)
        spent = self._unread.parse(self._parse, lambda: piece_bytes if self._takes_more() else 0, slice_s)
        self._port.turns.parsed(spent, self.loop)
        # Messages to the application are charged there; those that never get to it, here.
        wait_s = self._turns.spent(spent, time.monotonic()) if self._controls else 0.0
        if spent and len(self.conn.reader.buffer) > LONG_READ_BYTES:
            # Hundreds of long messages at once would hold up the loop, before there is anything to be charged.
            wait_s = max(wait_s, self._port.reads.wait_s(spent, time.monotonic()))
            if self._owed_since_s is not None:
                self._owed_since_s += wait_s
        if (self._unread or wait_s) and not self.disconnected:
            self.transport.pause_reading()
            if wait_s or self._takes_more():
                self._feeding = self.loop.call_later(wait_s, self._feed_on)
        self._note_unfinished()

    def _parse(self, piece: bytes) -> None:
        if self._unproven is not None:
            self._unproven += len(piece)
            if self._unproven > UNPROVEN_BYTES:
                self._unread.clear()
                self._refuse(f"more than {UNPROVEN_BYTES} bytes before a hello")
                return
        super().data_received(piece)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            # websockets drops from here on whatever comes, and says nothing to anybody.
            self._unread.clear()
            self.transport.write(BAD_HANDSHAKE)
            self.transport.close()

    def _feed_on(self) -> None:
        self._feed()
        if not self._unread and not self._will_feed and not self.read_paused and not self.disconnected:
            self.transport.resume_reading()

    async def send(self, message: Any) -> None:
        """Send an ASGI message of the application to the client.

        After a close, what was received behind it is read for the client's answer to the close.
        """
        await super().send(message)
        # Also by an answer of HTTP, after which uvicorn would log an error.
        self.handshake_complete |= self.close_sent
        if self.close_sent and self._unread and not self._will_feed:
            self._feeding = self.loop.call_soon(self._feed_on)

    async def receive(self) -> Any:
        """Return the next ASGI message for the application, and have more bytes parsed in the loop's next turn."""
        message = await super().receive()
        if (self._unread or self._will_feed) and not self.disconnected:
            self.transport.pause_reading()
            if not self._will_feed:
                self._feeding = self.loop.call_soon(self._feed_on)
        return message

    def _note_unfinished(self) -> None:
        """Count the bytes that wait for the rest of their message; past the port's bound the largest is closed."""
        held = self._unparsed + (self.conn.current_size or 0)
        largest = self._port.unfinished.note(self, held if held > PIECE_BYTES else 0)
        if largest is not None:
            largest.transport.abort()
        if not held:
            self._owed_since_s = None
        elif self._owed_since_s is None:
            self._owed_since_s = self.loop.time()
            if self._looking is None:
                self._looking = self.loop.call_later(STALLED_READER_S, self._check_stall)

    # websockets remembers the last frame of each connection until the next one comes: not its data.

    def handle_cont(self, event: Frame) -> None:
        """Add a frame that continues a message to the message; all but the last one count as tiny."""
        self._controls += not event.fin
        super().handle_cont(event)
        event.data = b""

    def handle_text(self, event: Frame) -> None:
        """Begin a message of text with its first frame."""
        super().handle_text(event)
        event.data = b""

    def handle_bytes(self, event: Frame) -> None:
        """Begin a message of bytes with its first frame."""
        super().handle_bytes(event)
        event.data = b""

    def send_receive_event_to_app(self) -> None:
        """Queue a complete message for the application."""
        self._owed_since_s = None
        super().send_receive_event_to_app()

    def _check_stall(self) -> None:
        self._looking = None
        if self._owed_since_s is None:
            return
        # While we are behind with what it has sent, the rest may be there already.
        left_s = STALLED_READER_S if self._unread else self._owed_since_s + STALLED_READER_S - self.loop.time()
        if left_s <= 0:
            self.transport.abort()
        else:
            self._looking = self.loop.call_later(left_s, self._check_stall)

    # ------------------------------------------------------------ what is answered

    def handle_ping(self) -> None:
        """Answer a ping; while PONG_BYTES of answers wait to be read, no other is queued."""
        self._controls += 1
        if self.transport.get_write_buffer_size() > PONG_BYTES:
            self.conn.data_to_send()
        else:
            super().handle_ping()

    def handle_pong(self, event: Any) -> None:
        """Take the answer to a ping of this side, which counts as a tiny frame."""
        self._controls += 1
        super().handle_pong(event)


def shown_by(extensions: Any) -> Certified | None:
    """Return the verified certificate of a WebSocket's client; None: it has shown none.

    Args:
        extensions: of the ASGI scope that :class:`SocketProtocol` has made.
    """
    found: Certified | None = extensions["tls"]["client_cert"]
    return found
