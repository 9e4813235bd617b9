"""The one port of a node: clients and peers by WebSocket, operators by HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from node.http.api import not_routed, routes
from node.http.policy import WebPolicy, WebPolicyMiddleware
from node.http.protocols import Port, PortConfig, RequestProtocol, SocketProtocol, shown_by
from node.peers.peers import (
    PeerChallenge,
    PeerHello,
    PeerWelcome,
    decode_introduction,
    decode_peer_message,
    encode_introduction,
    name_of,
)
from node.resources.fair_share import BufferedBytes, FairQueue, Turns
from node.resources.rate_limit import RateLimits, network_of
from node.security.seal import Opener, new_nonce
from node.security.tls import Tls, vouched
from node.shell.client_connections import Connection
from node.shell.node import Node
from proxy.clients.publish import has_too_many_attributes
from proxy.core.refusals import NOBODY_PROVEN
from proxy.engine import Engine
from waypost.errors import BadMessage, Refused, Unproven
from waypost.frames import decode_client_message, encode_message
from waypost.limits import (
    CAUSED_COST_FACTOR,
    CHEAP_BYTES,
    CLIENT_PING_EVERY_S,
    CLIENT_PONG_WITHIN_S,
    CONNECTION_QUEUE_BYTES,
    DESCRIBED_S,
    HANG_UP_WITHIN_S,
    HARD_FRAME_BYTES,
    HELLO_WITHIN_S,
    LONG_DECODING_S,
    LONG_EXPRESSION,
    LONG_WRITE_BYTES,
    MESSAGE_BYTES,
    PACED_BYTES,
    PARSE_S,
    PEER_HELLO_WITHIN_S,
    RECEIVE_S,
    REFUSAL_DETAIL,
    REPLIES_BYTES,
    REPLIES_WITHIN_S,
    UNFINISHED_SHARE,
    WRITE_S,
)
from waypost.messages import Acknowledge, ClientMessage, Detach, Problem, Publish, Subscribe
from waypost.notification import decoding_cost_ns

LOST_SEEN_WITHIN_S = 0.5
GOING_AWAY, UNACCEPTABLE, TOO_SLOW, TRY_LATER = 1001, 1003, 1008, 1013


class Socket:
    """A client's WebSocket with a queue of bounded size in front of it.

    Args:
        unsent: the bytes that all sockets have queued; past its bound the largest is hung up on.
        writes: the line in which large frames of all sockets wait.
    """

    def __init__(self, socket: WebSocket, unsent: BufferedBytes[Any], writes: FairQueue) -> None:
        self._socket = socket
        self._writes = writes
        self._unsent = unsent
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._due = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._end: tuple[int, str] | None = None

    def send(self, message: msgspec.Struct | msgspec.Raw) -> None:
        """Queue a message for the client. Past CONNECTION_QUEUE_BYTES the client is hung up on; it resumes from its
        frontier.
        """
        frame = encode_message(message)
        self._frames.append(frame)
        self._count(len(frame) + MESSAGE_BYTES)
        if self._bytes > CONNECTION_QUEUE_BYTES:
            self._give_up()
        self._due.set()

    def _count(self, more: int) -> None:
        self._bytes += more
        if self._bytes <= REPLIES_BYTES:
            self._has_room.set()
        else:
            self._has_room.clear()
        largest = self._unsent.note(self, self._bytes)
        if largest is not None:
            largest._give_up()

    def _give_up(self) -> None:
        self.hang_up("too slow for what it asked for", TOO_SLOW)
        # The client gets what it has not read on its next connection.
        self._frames.clear()
        self._bytes = 0
        self._unsent.forget(self)

    def unsent(self) -> int:
        """Return how many bytes are queued for the client."""
        return self._bytes

    async def room(self) -> None:
        """Wait until at most REPLIES_BYTES are queued; a client that does not read so much within REPLIES_WITHIN_S is
        hung up on.
        """
        if self._has_room.is_set():
            return
        try:
            async with asyncio.timeout(REPLIES_WITHIN_S):
                await self._has_room.wait()
        except TimeoutError:
            self._give_up()

    def hang_up(self, reason: str, code: int = GOING_AWAY) -> None:
        """Close the connection, after what is queued was sent; within HANG_UP_WITHIN_S seconds in any case.

        Args:
            reason: for the client, in the close frame.
            code: of the close frame (RFC 6455). With TOO_SLOW, what is queued is not sent.
        """
        self._end = (code, reason)
        self._due.set()
        # A client that reads nothing does not read the close either, and would keep its connection.
        asyncio.get_running_loop().call_later(HANG_UP_WITHIN_S, self._socket.scope["extensions"]["abort"]["now"])

    async def write(self) -> None:
        """Write what is queued, until :meth:`hang_up` is called; then the rest of it, but for TOO_SLOW, and the close.
        To be run as a task.

        Raises:
            WebSocketDisconnect: the connection is gone.
            RuntimeError: so it was at an earlier write.
        """
        while True:
            await self._due.wait()
            self._due.clear()
            while self._frames and (self._end is None or self._end[0] != TOO_SLOW):
                frame = self._frames.popleft()
                self._count(-len(frame) - MESSAGE_BYTES)
                if len(frame) > LONG_WRITE_BYTES:
                    await asyncio.sleep(self._writes.turn_s(len(frame) * WRITE_S, time.monotonic()))
                await self._socket.send_bytes(frame)
            if self._end is not None:
                await self._socket.close(*self._end)
                return

    def closed(self) -> None:
        """Drop what is queued: the connection is gone."""
        self._unsent.forget(self)
        self._frames.clear()
        self._bytes = 0


async def _frame(socket: WebSocket) -> bytes | str:
    """Return the next frame; raises WebSocketDisconnect."""
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1005))
    data: bytes | str | None = message.get("bytes")
    return data if data is not None else str(message.get("text") or "")


class _FrameReader:
    """The frames of a client, one by one."""

    def __init__(self, socket: WebSocket, is_lost: Callable[[], bool]) -> None:
        self._socket = socket
        self._is_lost = is_lost
        self._waiting: deque[bytes | str] = deque()
        """Frames received during a pause."""
        self._waiting_bytes = 0
        self._is_gone = False
        """The connection ended during a pause. The exception that said so is not kept: its traceback holds the messages
        of whoever catches it, in a circle that nobody looks for as long as the proxy has little to do.
        """

    async def next(self, until_s: float | None = None) -> bytes | str:
        """Return the next frame.

        Args:
            until_s: when to give up, by the event loop's clock; None: never.

        Raises:
            WebSocketDisconnect, RuntimeError: the connection is gone.
            TimeoutError: no frame came in time, or not the whole of it.
        """
        if self._waiting:
            frame = self._waiting.popleft()
            self._waiting_bytes -= len(frame) + MESSAGE_BYTES
            return frame
        if self._is_gone:
            raise WebSocketDisconnect
        if until_s is None:
            return await _frame(self._socket)
        async with asyncio.timeout_at(until_s):
            return await _frame(self._socket)

    async def pause(self, wait_s: float, handle: Callable[[bytes | str], bool]) -> None:
        """Keep frames from being handled for `wait_s` seconds, or until the client leaves; with 0, let others have a
        turn.

        Frames received meanwhile are kept for :meth:`next`, up to PACED_BYTES: a connection that is not read at all
        answers no ping, and the client takes it for lost.

        Args:
            handle: handles a frame that need not wait; returns whether it was one.
        """
        if not wait_s or self._is_gone:
            await asyncio.sleep(0)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while self._waiting_bytes < PACED_BYTES:
                    try:
                        frame = await _frame(self._socket)
                    except (WebSocketDisconnect, RuntimeError):
                        self._is_gone = True
                        return
                    if not handle(frame):
                        self._waiting.append(frame)
                        self._waiting_bytes += len(frame) + MESSAGE_BYTES
                await _sleep(wait_s, self._is_lost)


HANDLED_AFTER_DISCONNECT = (Publish, Acknowledge, Detach)
"""Messages that are handled although the client has gone."""


async def serve_client(socket: WebSocket, node: Node) -> None:
    """Serve one client until it leaves; a client that there is no room for is closed at once, with the reason.

    A bad message is answered with a Problem, and the connection goes on.
    """
    await socket.accept()
    address = network_of(socket.client.host) if socket.client else ""
    refusal = "starting" if node.engine is None else node.refusal(address)
    if node.engine is None or refusal:
        await socket.close(TRY_LATER, refusal)
        return
    await _ConnectedClient(socket, node, node.engine, address).serve()


@dataclass(slots=True)
class _Cost:
    """The cost of one frame, as it becomes known."""

    began_s: float
    """Time of the thread at which its handling began, what was waited for not counted."""
    is_change: bool = False
    is_cheap: bool = False
    foreseen_s: float = 0.0
    """The part of the time that the client has waited for before."""
    rate_wait_s: float | None = None
    """The pause until the next frame, by the rates; None: the frame was refused."""


class _ConnectedClient:
    """One client: its frames are handled one by one, each once the client may have it handled."""

    def __init__(self, socket: WebSocket, node: Node, engine: Engine, address: str) -> None:
        self._node = node
        self._engine = engine
        self._address = address
        self._extensions = socket.scope["extensions"]
        self._is_lost: Callable[[], bool] = self._extensions["abort"]["is_lost"]
        self._socket = Socket(socket, node.shares.unsent, node.shares.writes)
        self._reader = _FrameReader(socket, self._is_lost)
        self._principal = shown_by(self._extensions)
        connection = Connection(address, self._socket.send, self._socket.hang_up, self._socket.unsent, self._is_lost)
        self._number = node.connect(connection)
        self._rates = RateLimits(node.config.publish_rate, node.config.change_rate, time.monotonic())
        self._turns = Turns(node.shares.requests, time.monotonic())
        self._hello_until_s: float | None = asyncio.get_running_loop().time() + HELLO_WITHIN_S
        self._has_room = True
        """Whether there was room for what it publishes when it was last waited for."""

    async def serve(self) -> None:
        """Handle the client's frames one by one until the client leaves, then tell the engine."""
        writer = asyncio.create_task(self._socket.write())
        try:
            # Also when nothing can be written any more: what the client said before it left still counts.
            while True:
                try:
                    frame = await self._reader.next(self._hello_until_s)
                except (WebSocketDisconnect, RuntimeError):
                    return
                except TimeoutError:
                    await _close_silent(self._socket, writer)
                    return
                await self._take(frame)
        finally:
            self._node.disconnect(self._number)
            self._socket.closed()
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    async def _take(self, frame: bytes | str) -> None:
        """Handle a frame, and wait until the next one may be handled."""
        cost = _Cost(time.thread_time())
        try:
            message = decode_client_message(frame)
            if not await self._may_be_handled(message, cost):
                return
            self._handle(message, len(frame), cost)
        except Refused as error:
            self._node.refused_client(error)
            self._socket.send(Problem(error.code, error.message, error.field))
        # Before anything is awaited: what the loop does for others meanwhile is not this client's.
        spent_s = max(0.0, time.thread_time() - cost.began_s - cost.foreseen_s)
        await self._pause(cost, spent_s)

    async def _may_be_handled(self, message: ClientMessage, cost: _Cost) -> bool:
        """Wait for the turn of a message; return False: the client has left, and nothing was promised of it."""
        if not isinstance(message, Publish | Acknowledge):
            cost.is_change = True
            await self._node.shares.changes.room()
            cost.began_s = time.thread_time()
        if isinstance(message, Publish) and not self._has_room:
            # It would be dropped with what waits when we come to the end of what was said.
            return False
        if self._is_lost() and not isinstance(message, HANDLED_AFTER_DISCONNECT):
            # Nobody hears the answer, and until there is one nothing was promised.
            return False
        if self._hello_until_s is not None:
            # Whatever it is, the engine refuses it at once unless it is a Hello, which costs little.
            return True
        cost.foreseen_s = _foreseen_s(message)
        if cost.foreseen_s > 0:
            # Many at once, each by a connection of its own, would hold up everybody else.
            turn_s = self._node.shares.requests.turn_s(cost.foreseen_s, time.monotonic())
            if not await _sleep(turn_s, self._is_lost):
                self._node.shares.requests.give_back(cost.foreseen_s)
                return False
            cost.began_s = time.thread_time()
        return True

    def _handle(self, message: ClientMessage, size: int, cost: _Cost) -> None:
        """Give a message to the engine. Raises Refused."""
        node = self._node
        if self._principal:
            key, unix_ms = self._engine.env.cluster.token_key, node.clock.unix_ms()
            message = vouched(message, self._principal, key, unix_ms)
        node.client_message(self._number, message)
        if self._hello_until_s is not None and node.introduced(self._number):
            self._hello_until_s = None
            self._extensions["proven"]["note"]()
        # A publish has its own rate, and waits for the log.
        is_small = size <= CHEAP_BYTES
        cost.is_cheap = isinstance(message, Publish) or (isinstance(message, Acknowledge) and is_small)
        cost.rate_wait_s = self._rates.charge(message, time.monotonic())
        if cost.rate_wait_s is not None:
            of_address_s = node.shares.address_rates.charge(self._address, message, time.monotonic())
            cost.rate_wait_s = max(cost.rate_wait_s, of_address_s)

    async def _pause(self, cost: _Cost, spent_s: float) -> None:
        """Wait as long as rates, the client's share of the loop, and what is queued ask for."""
        if cost.is_change:
            self._node.shares.changes.spent(spent_s * CAUSED_COST_FACTOR)
        if not cost.is_cheap:
            # Each change is written with all of its session.
            spent_s += self._engine.dispatcher.written_bytes(self._number) * DESCRIBED_S
        if cost.rate_wait_s is not None:
            await self._reader.pause(cost.rate_wait_s, self._handle_acknowledgement)
        if not cost.is_cheap:
            await _sleep(self._turns.spent(spent_s, time.monotonic()), self._is_lost)
            await self._socket.room()
        self._has_room = await self._node.room(self._number)

    def _handle_acknowledgement(self, frame: bytes | str) -> bool:
        """Handle a frame during a pause if it is an acknowledgement; return whether it was one.

        A client that publishes too fast still gets its deliveries.
        """
        with contextlib.suppress(Refused):
            message = decode_client_message(frame)
            if isinstance(message, Acknowledge) and not message.attestations:
                self._node.client_message(self._number, message)
                return True
        return False


async def _sleep(wait_s: float, is_lost: Callable[[], bool]) -> bool:
    """Wait, but no longer than the client is there: its message takes memory. Tell whether the wait was complete."""
    until_s = time.monotonic() + wait_s
    while wait_s > LOST_SEEN_WITHIN_S:
        await asyncio.sleep(LOST_SEEN_WITHIN_S)
        wait_s = until_s - time.monotonic()
        if is_lost():
            return False
    await asyncio.sleep(max(0.0, wait_s))
    return True


def _foreseen_s(message: ClientMessage) -> float:
    """Return the seconds for which a message is going to hold up the loop, by estimate; 0: few."""
    match message:
        case Subscribe(expression=expression) if len(expression) > LONG_EXPRESSION:
            return len(expression) * PARSE_S
        case Publish(bodies=bodies) if has_too_many_attributes(message):
            # It is refused, but it was received.
            return sum(map(len, bodies)) * RECEIVE_S
        case Publish(bodies=bodies) if (decoding_s := sum(map(decoding_cost_ns, bodies)) / 1e9) > LONG_DECODING_S:
            return decoding_s
    return 0.0


async def _close_silent(line: Socket, writer: asyncio.Task[None]) -> None:
    """Close a connection whose hello did not come in time."""
    line.hang_up(f"no hello within {HELLO_WITHIN_S:g} s", TOO_SLOW)
    await asyncio.wait((writer,), timeout=HELLO_WITHIN_S)


async def serve_peer(socket: WebSocket, node: Node) -> None:
    """Accept a peer's connection, receive the peer's messages until it leaves, and pass them on to the node, once both
    are proven (node/security/seal.py). While the node has no secret yet, the peer is told to try later.

    A message that is refused ends the connection and is counted; nothing is raised for it.
    """
    await socket.accept()
    secret = node.directory.secret
    if secret is None:
        await socket.close(TRY_LATER, "starting")
        return
    peer = NOBODY_PROVEN
    try:
        if node.tls is not None and shown_by(socket.scope["extensions"]) is None:
            raise Unproven("no certificate")
        hello, opener = await _introduced(socket, node, secret)
        peer = hello.proxy
        socket.scope["extensions"]["proven"]["note"]()
        while True:
            frame = await _frame(socket)
            if isinstance(frame, str):
                raise BadMessage("a text frame; proxies speak in binary frames")
            await node.peer_message(peer, decode_peer_message(opener.open(frame)))
    except WebSocketDisconnect:
        pass
    except Refused as error:
        node.directory.refused(name_of(error), peer, f"{_address(socket)}: {error}"[:REFUSAL_DETAIL])
        # A client that is refused may have gone already.
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await socket.close(UNACCEPTABLE, str(error).encode()[:120].decode(errors="ignore"))


def _address(socket: WebSocket) -> str:
    return f"{socket.client.host}:{socket.client.port}" if socket.client else "?"


async def _introduced(socket: WebSocket, node: Node, secret: bytes) -> tuple[PeerHello, Opener]:
    """Return the peer's hello, and the opener of its frames. Raises WrongVersion, Unproven, BadMessage."""
    challenge = new_nonce()
    await socket.send_bytes(encode_introduction(PeerChallenge(challenge)))
    hello = await _hello(socket)
    introduction = hello.proven(challenge, node.proxy, secret)
    await _until_known(node, hello)
    await socket.send_bytes(encode_introduction(PeerWelcome(introduction.callees_proof(secret))))
    return hello, Opener(introduction.frame_key(secret))


async def _hello(socket: WebSocket) -> PeerHello:
    try:
        async with asyncio.timeout(PEER_HELLO_WITHIN_S):
            hello = decode_introduction(await _frame(socket))
    except TimeoutError:
        raise Unproven("no hello in time") from None
    if not isinstance(hello, PeerHello):
        raise BadMessage("say hello first")
    return hello


async def _until_known(node: Node, hello: PeerHello) -> None:
    """Wait until the registry has named the peer's incarnation, which may be a moment later than its hello."""
    try:
        async with asyncio.timeout(PEER_HELLO_WITHIN_S):
            while not node.knows(hello.proxy, hello.incarnation):
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise Unproven("unknown incarnation") from None


# ---------------------------------------------------------------- the port


def make_app(node: Node) -> Starlette:
    """Return the node's web application: WebSockets of clients and peers, and the pages for operators."""

    async def client(socket: WebSocket) -> None:
        await serve_client(socket, node)

    async def peer(socket: WebSocket) -> None:
        await serve_peer(socket, node)

    sockets = [WebSocketRoute("/v1/client", client), WebSocketRoute("/v1/peer", peer)]
    middleware = [Middleware(WebPolicyMiddleware, policy=WebPolicy.of(node.config), refused=node.refused_client)]
    if node.config.allow_origins:
        middleware.append(
            Middleware(
                CORSMiddleware,
                allow_origins=node.config.allow_origins,
                allow_methods=("GET", "POST"),
                allow_headers=("authorization", "content-type"),
            )
        )
    return Starlette(
        routes=[*sockets, *routes(node)], middleware=middleware, exception_handlers={HTTPException: not_routed}
    )


class Server(uvicorn.Server):
    """uvicorn inside our own event loop; signals are handled by node/service.py."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Return a context that does nothing: the signal handlers of the process stay as they are."""
        yield


def make_server(node: Node, host: str) -> Server:
    """Return the server of a node's port, to be run on a socket that listens already.

    Args:
        host: as in the configuration.
    """
    config = PortConfig(
        make_app(node),
        host=host,
        http=RequestProtocol,
        ws=SocketProtocol,
        ws_max_size=HARD_FRAME_BYTES,
        ws_per_message_deflate=False,
        ws_ping_interval=CLIENT_PING_EVERY_S,
        ws_ping_timeout=CLIENT_PONG_WITHIN_S,
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=2,
        ssl_context_factory=None if node.tls is None else partial(_context, node.tls),
    )
    config.shared = Port(node.config.max_connections, node.config.memory // UNFINISHED_SHARE, node.shares.requests)
    return Server(config)


def _context(tls: Tls, _config: uvicorn.Config, _default: object) -> ssl.SSLContext:
    return tls.port
