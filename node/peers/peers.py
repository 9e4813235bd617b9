"""Connections to other proxies. Each side sends on a connection of its own, and receives on the peer's.

What is for a proxy of another site that is not reached directly goes over the sites between (node/peers/routes.py), but
for the messages of links.

The two first name themselves, and prove it by the federation's secret (node/security/seal.py); the registry knows which
incarnation of a proxy is the present one. Every frame after that is sealed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, NamedTuple

import msgspec
import structlog
import websockets
from websockets.asyncio.client import ClientConnection, connect

from federation.messages import FederationMessage, LinkMessage
from federation.ports import ProxyRow
from handover.messages import HandoverOffer, MoveRequest, RelayMessage, ToSource, ToTarget
from node.health.self_check import Unreached
from node.peers.directory import Directory
from node.peers.routes import Routed
from node.security.seal import NONCE_BYTES, Introduction, Sealer, check_proof, new_nonce
from waypost import cancellation
from waypost.clock import Clock
from waypost.errors import BadMessage, Refused, Unproven, WrongVersion
from waypost.frames import decode_frame
from waypost.identity import Incarnation, ProxyId
from waypost.limits import MAX_FRAME_BYTES, PEER_QUEUE, PEER_QUEUE_BYTES, PING_EVERY_S, PONG_WITHIN_S
from waypost.messages import VERSION

log = structlog.get_logger("waypost")
INTRODUCTION_S = 4.0
"""More than the other side waits for its registry to know us."""
PAUSE_S = 0.2
"""After an introduction that failed; what waits for the peer would begin the next one at once."""
QUIET_MS = 15_000
"""A peer that nobody tried to reach for so long may have been there meanwhile."""
PROBE_MS = 5_000
"""Pause between two attempts to reach a peer directly to which messages are routed."""
ROUTED_BYTES = MAX_FRAME_BYTES - 4_096
"""The largest message that is routed: it has to fit into a frame of its own."""
STALE_SENDER = "routed, of an earlier incarnation"
NOT_ROUTED = "routed, and may not be"
QUEUE_FULL, NOT_THERE, CONNECTION = LOSSES = ("queue full", "not there", "connection")
"""Why a message did not go out."""
IN_THE_CLEAR = "not encrypted"
"""Why a proxy that speaks TLS does not connect to another one: all of a federation do, or none."""

Nonce = Annotated[bytes, msgspec.Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]


class PeerChallenge(msgspec.Struct, frozen=True, tag="peer-challenge"):
    """The first frame of a connection between proxies, from the one that was called.

    Args:
        nonce: random, of this connection alone; the proof in :class:`PeerHello` is over it, so that no proof of an
            earlier connection counts again.
    """

    nonce: Nonce


class PeerHello(msgspec.Struct, frozen=True, tag="peer-hello", kw_only=True):
    """The caller's answer to a :class:`PeerChallenge`: who it is, whom it wants, and its proof of both.

    Args:
        version: of the protocol between proxies.
        proxy: the name of the caller.
        incarnation: of the caller.
        callee: the name of the proxy that it wants.
        nonce: a random number of the caller, for the callee's proof.
        proof: the keyed digest of all this and the callee's nonce.
    """

    version: int
    proxy: ProxyId
    incarnation: Incarnation
    callee: ProxyId
    nonce: Nonce
    proof: bytes

    def introduction(self, challenge: bytes) -> Introduction:
        """Return what both proofs are made over: this hello, and the nonce of the callee.

        Args:
            challenge: the nonce that the callee sent on this connection.
        """
        return Introduction(
            challenge=challenge,
            nonce=self.nonce,
            version=self.version,
            caller=self.proxy,
            incarnation=self.incarnation,
            callee=self.callee,
        )

    @classmethod
    def of(cls, introduction: Introduction, secret: bytes) -> PeerHello:
        """Return the caller's hello of an introduction, with the caller's proof under the federation's `secret`."""
        proof = introduction.callers_proof(secret)
        return cls(
            version=introduction.version,
            proxy=introduction.caller,
            incarnation=introduction.incarnation,
            callee=introduction.callee,
            nonce=introduction.nonce,
            proof=proof,
        )

    def proven(self, challenge: bytes, here: ProxyId, secret: bytes, version: int = VERSION) -> Introduction:
        """Return the introduction of both sides, once the caller has proven it.

        Args:
            challenge: the nonce that the callee sent on this connection.
            here: the callee, this proxy.
            secret: the federation's.
            version: the version of the protocol that the callee speaks.

        Raises:
            WrongVersion: the caller speaks another version.
            Unproven: the proof is wrong, or the hello is meant for another proxy.
        """
        if self.version != version:
            raise WrongVersion(f"proxy {self.proxy} speaks version {self.version}; this one speaks {version}")
        introduction = self.introduction(challenge)
        check_proof(introduction.callers_proof(secret), self.proof)
        if self.callee != here:
            raise Unproven("meant for another proxy")
        return introduction


class PeerWelcome(msgspec.Struct, frozen=True, tag="peer-welcome"):
    """The answer of the proxy that was called, by which it proves who it is. Sealed frames follow, from the caller
    alone.

    Args:
        proof: the keyed digest of the whole :class:`node.security.seal.Introduction`.
    """

    proof: bytes


IntroductionMessage = PeerChallenge | PeerHello | PeerWelcome
PeerMessage = ToSource | ToTarget | HandoverOffer | MoveRequest | RelayMessage | FederationMessage | Routed
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[PeerMessage] = msgspec.msgpack.Decoder(PeerMessage)
_introductions: msgspec.msgpack.Decoder[IntroductionMessage] = msgspec.msgpack.Decoder(IntroductionMessage)
encode_introduction: Callable[[IntroductionMessage], bytes] = _encoder.encode


def decode_peer_message(frame: bytes) -> PeerMessage:
    """Return the message in a frame of another proxy; the frame is opened already (node/security/seal.py).

    Raises:
        BadMessage: the frame is no such message.
    """
    return decode_frame(_decoder, frame)


def decode_introduction(frame: bytes | str) -> IntroductionMessage:
    """Return the message in a frame of the introduction, before anything is proven. Raises BadMessage: it is none."""
    return decode_frame(_introductions, frame)


def name_of(error: Refused) -> str:
    """Return the name under which a refusal is counted: one of a few, never text that the peer made up."""
    return error.message if isinstance(error, Unproven) else error.kind


class _QueuedMessage(NamedTuple):
    """What waits for a peer: the frame's content; and what goes over other sites if the peer is not reached."""

    data: bytes
    routed: Routed | None


class Peers:
    """Sends messages to proxies by name. A message may be lost; where its way changes, it may also come twice, and
    overtake others. Those to one peer on one connection keep their order.

    Args:
        proxy: the name of this proxy.
        directory: of the node: who lives where, and the federation's secret.
        clock: of the node.
        tls: for connections to peers at wss://, and required of them all; None: system defaults at wss://, ws:// too.

    Attributes:
        unreached: peers that messages were for, and that cannot be reached at the address that the registry names.
    """

    def __init__(
        self,
        proxy: ProxyId,
        directory: Directory,
        *,
        clock: Clock,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._tls = tls
        self._clock = clock
        self.unreached: dict[ProxyId, Unreached] = {}
        self._proxy = proxy
        self._directory = directory
        self._lines: dict[ProxyId, asyncio.Queue[_QueuedMessage]] = {}
        self._bytes: Counter[ProxyId] = Counter()
        """The size of the messages that wait, by peer."""
        self._tasks: dict[ProxyId, asyncio.Task[None]] = {}
        self._left_over: dict[ProxyId, _QueuedMessage] = {}
        """By peer, the message that a connection did not send, because one of the two had begun another incarnation."""
        self._probes: dict[ProxyId, asyncio.Task[bool]] = {}
        """Attempts to reach peers directly to which messages are routed."""
        self.routed = 0
        """Messages that went over other sites, those of others that passed here among them."""
        self.lost: Counter[str] = Counter()
        """Reason, one of LOSSES -> messages that did not go out. One lost on its way is not counted."""
        self.sent_bytes = 0
        """The size of sealed frames sent to all peers."""

    def send(self, proxy: ProxyId, message: msgspec.Struct) -> None:
        """Queue a message for another proxy; return at once. It is sent if that proxy is live and can be reached,
        directly or over other sites, else it is lost. Messages of links, and those of more than ROUTED_BYTES, go
        directly only.

        Past PEER_QUEUE messages or PEER_QUEUE_BYTES that wait for the same proxy, it is lost too. The caller gets no
        error. Losses before a message went out are counted in :attr:`lost`; one on its way is not.
        """
        data, routed = _encoder.encode(message), None
        if not isinstance(message, LinkMessage) and len(data) <= ROUTED_BYTES:
            routed = Routed(
                target=proxy, sender=self._proxy, incarnation=self._directory.incarnation, passed=0, data=data
            )
        self._put(proxy, _QueuedMessage(data, routed))

    def _put(self, proxy: ProxyId, queued: _QueuedMessage) -> None:
        if proxy not in self._lines:
            self._lines[proxy] = asyncio.Queue()
            self._tasks[proxy] = asyncio.create_task(self._serve(proxy), name=f"peer {proxy}")
        line, size = self._lines[proxy], len(queued.data)
        # The first one has room whatever its size.
        if line.qsize() >= PEER_QUEUE or (line.qsize() and self._bytes[proxy] + size > PEER_QUEUE_BYTES):
            self.lost[QUEUE_FULL] += 1
            return
        self._bytes[proxy] += size
        line.put_nowait(queued)

    def receive(self, peer: ProxyId, routed: Routed) -> tuple[ProxyId, PeerMessage] | None:
        """Return the sender and the message, if a routed message is for this proxy; None: it was passed on, or refused,
        which is counted.

        Args:
            peer: the proxy that has brought it.
        """
        if routed.target != self._proxy:
            self.routed += 1
            self._put(routed.target, _QueuedMessage(_encoder.encode(routed), routed))
            return None
        row = self._directory.row(routed.sender)
        if row is None or row.incarnation != routed.incarnation:
            self._directory.refused(STALE_SENDER, peer, f"it names {routed.sender}, {routed.incarnation}")
            return None
        try:
            message = decode_peer_message(routed.data)
        except BadMessage as error:
            self._directory.refused(name_of(error), peer, f"routed, of {routed.sender}: {error}")
            return None
        if isinstance(message, Routed | LinkMessage):
            self._directory.refused(NOT_ROUTED, peer, f"{type(message).__name__} of {routed.sender}")
            return None
        return routed.sender, message

    def unroutable(self) -> dict[ProxyId, Unreached]:
        """Return the peers that cannot be reached, directly or over other sites."""
        return {
            proxy: failed
            for proxy, failed in self.unreached.items()
            if self._way(self._directory.row(proxy), 0) is None
        }

    def waiting(self) -> list[int]:
        """Return the number of messages that wait, one number for each peer to which something was sent."""
        return [line.qsize() for line in self._lines.values()]

    async def close(self) -> None:
        """Close all connections; queued messages are dropped."""
        tasks = [*self._tasks.values(), *self._probes.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, proxy: ProxyId) -> None:
        line = self._lines[proxy]
        while True:
            queued = self._left_over.pop(proxy, None)
            if queued is None:
                queued = await line.get()
                self._bytes[proxy] -= len(queued.data)
            row = self._directory.row(proxy)
            if row is None:
                self.lost[NOT_THERE] += 1
                if line.empty():
                    # Nothing is kept of a name that nobody has: names come and go, and a message may name any.
                    self._forget(proxy)
                    return
                continue
            if proxy in self.unreached and self._send_routed(row, queued):
                self._probe(row)
                continue
            left = await self._send_connected(row, line, queued)
            if left is not None and not self._send_routed(row, left):
                self.lost[CONNECTION] += 1

    def _forget(self, proxy: ProxyId) -> None:
        for kept in (self._lines, self._tasks, self._bytes, self.unreached):
            kept.pop(proxy, None)

    async def _send_connected(
        self, row: ProxyRow, line: asyncio.Queue[_QueuedMessage], first: _QueuedMessage
    ) -> _QueuedMessage | None:
        """Send on one connection; return the message that was taken out of the line and did not surely go out."""
        taken = [first]
        return None if await self._attempt(row, self._talk(row, line, taken)) else taken[0]

    async def _attempt(self, row: ProxyRow, talk: Awaitable[bool]) -> bool:
        """Return what a talk on a connection to a peer returns; False: it failed.

        Whatever a library raises ends the connection and not its caller: nothing would reach that peer any more.
        """
        try:
            with cancellation.translated(lambda _: ConnectionAbortedError("broken off")):
                return await talk
        except (OSError, websockets.WebSocketException, TimeoutError) as error:
            self._unreached(row, str(error) or "no answer")
        except Exception:
            log.exception("a connection to a peer failed in a way that it must not", peer=row.proxy)
            await asyncio.sleep(PAUSE_S)
        return False

    # ------------------------------------------------------------ over other sites

    def _way(self, target: ProxyRow | None, passed: int) -> ProxyRow | None:
        return None if target is None else self._directory.next_proxy(target, self.unreached, passed)

    def _send_routed(self, row: ProxyRow, queued: _QueuedMessage) -> bool:
        """Send a message over other sites; False: it may not go there, or there is no way."""
        if queued.routed is None or (way := self._way(row, queued.routed.passed)) is None:
            return False
        routed = msgspec.structs.replace(queued.routed, passed=queued.routed.passed + 1)
        if queued.routed.sender == self._proxy:
            self.routed += 1
        self._put(way.proxy, _QueuedMessage(_encoder.encode(routed), None))
        return True

    def _probe(self, row: ProxyRow) -> None:
        """Try to reach a peer directly again, beside all that is routed to it, if it was not tried for a while."""
        failed, running = self.unreached[row.proxy], self._probes.get(row.proxy)
        if (running is None or running.done()) and self._clock.now_ms() - failed.last_ms >= PROBE_MS:
            probe = self._attempt(row, self._probe_connection(row))
            self._probes[row.proxy] = asyncio.create_task(probe, name=f"probe {row.proxy}")

    def probe_unreached(self) -> None:
        """Try to reach again the live peers that could not be reached, whether anything is sent to them or not; each at
        most once in PROBE_MS, beside all that is sent.
        """
        for row in filter(None, map(self._directory.row, list(self.unreached))):
            self._probe(row)

    # ------------------------------------------------------------ connections

    def _unreached(self, row: ProxyRow, why: str) -> None:
        now_ms = self._clock.now_ms()
        before = self.unreached.get(row.proxy)
        goes_on = before is not None and now_ms - before.last_ms < QUIET_MS
        since_ms = before.since_ms if before is not None and goes_on else now_ms
        self.unreached[row.proxy] = Unreached(since_ms, now_ms, f"{row.url}: {why}")

    async def _probe_connection(self, row: ProxyRow) -> bool:
        """Make a connection, and close it again; tell whether the peer has proven who it is."""
        async with self._connection(row, self._directory.incarnation) as made:
            return made is not None

    async def _talk(self, row: ProxyRow, line: asyncio.Queue[_QueuedMessage], taken: list[_QueuedMessage]) -> bool:
        """Send on one connection until it breaks, or one of the two begins another incarnation.

        Tell whether all that was taken out of the line went out, or is left over for the next connection; else, and if
        this raises, the last one did not.

        Args:
            taken: the first message; it is replaced by each that is taken.
        """
        incarnation = self._directory.incarnation
        async with self._connection(row, incarnation) as made:
            if made is None:
                return False
            socket, sealer = made
            closing = asyncio.create_task(socket.wait_closed())
            try:
                while incarnation == self._directory.incarnation and self._directory.row(row.proxy) == row:
                    frame = sealer.seal(taken[0].data)
                    await socket.send(frame)
                    self.sent_bytes += len(frame)
                    following = await _next(line, closing)
                    if following is None:
                        return True
                    taken[0] = following
                    self._bytes[row.proxy] -= len(following.data)
                # It goes on the next connection, to whom the peer is by then.
                self._left_over[row.proxy] = taken[0]
                return True
            finally:
                closing.cancel()

    @asynccontextmanager
    async def _connection(
        self, row: ProxyRow, incarnation: Incarnation
    ) -> AsyncIterator[tuple[ClientConnection, Sealer] | None]:
        """Return the context of a connection on which both sides have proven who they are; None: they have not."""
        encrypted = row.url.startswith("wss:")
        if self._tls is not None and not encrypted:
            self._directory.refused(IN_THE_CLEAR, row.proxy, f"it is reached at {row.url}")
            await asyncio.sleep(PAUSE_S)
            yield None
            return
        async with connect(
            f"{row.url}/v1/peer",
            max_size=MAX_FRAME_BYTES,
            compression=None,
            open_timeout=2,
            close_timeout=1,
            ping_interval=PING_EVERY_S,
            ping_timeout=PONG_WITHIN_S,
            # Without a certificate of ours: somebody else ends TLS in front of the other one.
            ssl=(self._tls or True) if encrypted else None,
        ) as socket:
            sealer = await self._introduced(socket, row, incarnation)
            if sealer is None:
                self._unreached(row, "it and this proxy did not prove to each other who they are")
                await asyncio.sleep(PAUSE_S)
                yield None
            else:
                self.unreached.pop(row.proxy, None)
                yield socket, sealer

    async def _introduced(self, socket: ClientConnection, row: ProxyRow, incarnation: Incarnation) -> Sealer | None:
        """Return the sealer, once both sides have proven who they are; None: they have not."""
        secret = self._directory.secret
        if secret is None:
            return None
        try:
            async with asyncio.timeout(INTRODUCTION_S):
                return await _introduce(socket, self._proxy, incarnation, row.proxy, secret)
        except Refused as error:
            self._directory.refused(name_of(error), row.proxy, f"said by whoever answers at {row.url}")
        except (websockets.WebSocketException, TimeoutError):
            pass
        return None


async def _introduce(
    socket: ClientConnection, caller: ProxyId, incarnation: Incarnation, callee: ProxyId, secret: bytes
) -> Sealer:
    """Return the sealer of frames to the callee. Raises Unproven, BadMessage."""
    challenge = decode_introduction(await socket.recv())
    if not isinstance(challenge, PeerChallenge):
        raise BadMessage("a challenge comes first")
    introduction = Introduction(
        challenge=challenge.nonce,
        nonce=new_nonce(),
        version=VERSION,
        caller=caller,
        incarnation=incarnation,
        callee=callee,
    )
    await socket.send(encode_introduction(PeerHello.of(introduction, secret)))
    welcome = decode_introduction(await socket.recv())
    if not isinstance(welcome, PeerWelcome):
        raise BadMessage("a welcome comes after hello")
    check_proof(introduction.callees_proof(secret), welcome.proof)
    return Sealer(introduction.frame_key(secret))


async def _next(line: asyncio.Queue[_QueuedMessage], closed: asyncio.Task[None]) -> _QueuedMessage | None:
    """Return the next message, or None once the connection is closed. Nothing waits on, also if we are cancelled."""
    if not closed.done() and not line.empty():
        return line.get_nowait()
    taken = asyncio.create_task(line.get())
    try:
        await asyncio.wait({taken, closed}, return_when=asyncio.FIRST_COMPLETED)
        return taken.result() if taken.done() else None
    finally:
        taken.cancel()
