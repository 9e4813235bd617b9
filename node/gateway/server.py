"""The port of a gateway: peers of a propagate service by WebSocket, each with a session of the federation.

A peer that asks for a lease gets one, and a session for as long as the lease lasts: what is propagated while the peer
is away waits there, and follows the peer to the gateway at which it turns up next. A lease that is not renewed, or is
cancelled, ends the session with all that is stored for the peer.

A frame of text is one of two things. A message about a lease is an XML document by itself. A propagated message is a
JSON object of its elements: JxtaPropagate is the header, as XML, and Notification has the attributes, as `waypost pub`
reads them.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import structlog
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

import waypost
from node.gateway.propagate_messages import LeaseMessage, LeaseMessageType, PropagateHeader, decode, encode
from node.gateway.propagation import NotPassedOn, Policy, as_attributes, check_unreserved
from waypost.client.received_notification import Received
from waypost.errors import BadConfiguration, BadMessage, InUse, WaypostError
from waypost.identity import SubscriptionId
from waypost.limits import MAX_ID_LENGTH
from waypost.notification import Notification
from waypost.subscription.batch import NotJson, notification_as_json, notification_from_json, read_json

log = structlog.get_logger("waypost.gateway")
SESSIONS = "propagate/"
"""Begins the id of a peer's session."""
MAX_FRAME = 1_048_576
BATCH = 100
"""Notifications that are sent to a peer before it is asked whether they have arrived."""
ARRIVED_S = 20.0
"""How long a peer may take for what was sent to it."""
ATTACH_S = 10.0
GRACE_S = 1.0
"""How long a lease holds on after a publish that kept its renewal from being read, in seconds."""
KNOWN_IDS = 10_000
"""Ids of messages that are remembered: one that comes again is not published again."""
CLOSE_REASON = 120
"""Bytes of the reason for which a connection is closed."""
BAD_FRAME, TRY_AGAIN = 1008, 1013


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """What a gateway is started with.

    Args:
        policy: how it propagates; its id is in that.
        expression: what is propagated to peers, in the subscription language.
        host, port: where it listens; port 0: any free one.
        lease_s: for how long a lease is granted, in seconds.
        peers: the most that may have a lease of this gateway at once.
        proxy: the URL of a proxy; None: one found by mDNS.
        token: returns the token that proves the gateway to proxies; "": none.
    """

    policy: Policy
    expression: str
    host: str
    port: int
    lease_s: int
    peers: int
    proxy: str | None
    token: Callable[[], str]


@dataclass(slots=True)
class Counts:
    """What a gateway has done since it started: numbers of messages."""

    granted: int = 0
    """Leases that were granted or renewed."""
    published: int = 0
    """Messages of peers that were published as notifications."""
    propagated: int = 0
    """Notifications that were sent to peers, once for each peer."""
    refused: int = 0
    """Frames that no peer may send; each has cost its connection."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Messages that went no further, by cause."""

    def as_json(self) -> dict[str, object]:
        """Return the counts by name, for the page `/status`."""
        return {name: getattr(self, name) for name in ("granted", "published", "propagated", "refused")} | {
            "dropped": dict(self.dropped)
        }


class Gateway:
    """A gateway that runs. Use :meth:`run`."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self.counts = Counts()
        self.leased: dict[str, Peer] = {}
        """The peers with a lease, by id."""
        self._ids: OrderedDict[str, None] = OrderedDict()
        self._producer: waypost.Producer | None = None
        self._publishing: set[asyncio.Task[None]] = set()

    async def run(self, started: Callable[[str], None]) -> None:
        """Serve peers until cancelled.

        Args:
            started: called with the address, ws://host:port, once the gateway listens there.

        Raises:
            InUse, BadConfiguration: the gateway cannot listen at the host and port of its settings.
            WaypostError: no proxy lets the gateway in.
        """
        self._producer = await self._new_producer().__aenter__()
        try:
            async with await self._listen() as server:
                host, port = server.sockets[0].getsockname()[:2]
                started(f"ws://{host}:{port}")
                await server.serve_forever()
        finally:
            for publishing in self._publishing:
                publishing.cancel()
            await self._producer.close()

    def _new_producer(self) -> waypost.Producer:
        settings = self.settings
        name = f"gateway/{settings.policy.gateway}"[:MAX_ID_LENGTH]
        return waypost.produce(name, proxy=settings.proxy, token=settings.token, timeout_s=ATTACH_S)

    async def _working_producer(self) -> waypost.Producer:
        """Return the producer; another one where it has ended for good, as with a token that had ended: the file may
        have a new one by now.
        """
        assert self._producer is not None
        if self._producer.failure is not None:
            ended, self._producer = self._producer, self._new_producer()
            self._producer.begin()
            await ended.close()
        return self._producer

    async def _listen(self) -> Server:
        try:
            return await serve(
                self._connected,
                self.settings.host,
                self.settings.port,
                # No page of a browser is a peer.
                origins=[None],
                max_size=MAX_FRAME,
                process_request=self._answer_http,
            )
        except OSError as error:
            where, why = f"{self.settings.host}:{self.settings.port}", os.strerror(error.errno or 0)
            kind = InUse if error.errno == errno.EADDRINUSE else BadConfiguration
            raise kind(f"cannot listen on {where}: {why}", field="port") from None

    def _answer_http(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.path != "/status":
            return None
        body = {"v": 1, "gateway": self.settings.policy.gateway, "leases": len(self.leased), **self.counts.as_json()}
        return connection.respond(200, json.dumps(body) + "\n")

    async def _connected(self, connection: ServerConnection) -> None:
        peer = Peer(self, connection)
        try:
            async for frame in connection:
                await peer.on_frame(frame)
        except ConnectionClosed:
            pass
        except BadMessage as error:
            self.counts.refused += 1
            name = peer.id or ":".join(map(str, connection.remote_address[:2]))
            log.warning("a peer was refused", peer=name, why=str(error))
            await _close(connection, BAD_FRAME, str(error))
        except WaypostError as error:
            log.warning("a peer cannot be served now", peer=peer.id, why=str(error))
            await _close(connection, TRY_AGAIN, str(error))
        finally:
            await peer.leave()

    def begin_publish(self, header: PropagateHeader, notification: Notification, sender: str) -> asyncio.Task[None]:
        """Return a task of its own that publishes a message (:meth:`publish`): the connection that has brought the
        message may end meanwhile.
        """
        publishing = asyncio.create_task(self.publish(header, notification, sender), name=f"publish for {sender}")
        self._publishing.add(publishing)
        publishing.add_done_callback(self._published)
        return publishing

    def _published(self, publishing: asyncio.Task[None]) -> None:
        self._publishing.discard(publishing)
        if not publishing.cancelled():
            # Whoever still waits for it is told; a peer that has gone sends the message again.
            publishing.exception()

    async def publish(self, header: PropagateHeader, notification: Notification, sender: str) -> None:
        """Publish a message of a peer, once; a message that goes no further is counted by its cause and dropped,
        without error. Call it only while :meth:`run` runs.

        "Once" is by the id: of the last KNOWN_IDS ids a message that comes again is dropped, also while the first one
        is still being published. A message without an id is published each time.

        Args:
            header: as the message came.
            sender: the id of the peer.

        Raises:
            BadNotification: with its header the message is larger than a notification may be.
            Refused: a proxy has refused the notification.
            WaypostError: it is not known that the message is safe; the peer may send it again.
        """
        incoming = self.settings.policy.incoming_header(header, sender)
        if not isinstance(incoming, NotPassedOn) and header.id in self._ids:
            incoming = NotPassedOn.REPEATED
        if isinstance(incoming, NotPassedOn):
            self.counts.dropped[incoming] += 1
            return
        if header.id is not None:
            self._ids[header.id] = None
            if len(self._ids) > KNOWN_IDS:
                self._ids.popitem(last=False)
        try:
            producer = await self._working_producer()
            await producer.publish(Notification({**notification, **as_attributes(incoming)}))
        except WaypostError:
            # Its peer may send it again.
            self._ids.pop(header.id or "", None)
            raise
        self.counts.published += 1


class Peer:
    """A connection of a peer, and the lease that the peer has."""

    def __init__(self, gateway: Gateway, connection: ServerConnection) -> None:
        self._gateway, self._connection = gateway, connection
        self.id = ""
        """The peer's id; "": it has no lease."""
        self._receiver: waypost.Receiver | None = None
        self._subscription = SubscriptionId("")
        self._propagating: asyncio.Task[None] | None = None
        self._is_publishing = False
        """Frames behind the one that is published are not read: a request for the lease may be among them."""
        self._is_over = False
        """The lease was not renewed in time: the connection is about to be closed, and nothing of it counts."""
        self._end: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    async def on_frame(self, frame: str | bytes) -> None:
        """Do what a frame of the peer requests: grant or cancel its lease, or publish its message. Call it for one
        frame after the other.

        A request for a lease is answered by LeaseCancelled where another connection has that peer's lease, or as many
        peers as may have one have it. A message of a peer without a lease is answered so, too, and dropped. The end of
        its lease deletes the peer's session. What comes after the end is dropped: the connection is closed.

        Raises:
            BadMessage: no peer may send such a frame.
            ConnectionClosed: the connection has ended before it was answered.
            WaypostError: no proxy serves the peer, or its message is not known to be safe.
        """
        if self._is_over:
            return
        if isinstance(frame, bytes):
            raise BadMessage("a frame is text: a document about a lease, or the elements of a message")
        if frame.lstrip().startswith("<"):
            message = decode(frame)
            if not isinstance(message, LeaseMessage):
                raise BadMessage("a header comes with its message, as JxtaPropagate beside Notification")
            await self._about_lease(message)
            return
        header, notification = _message_of(frame)
        if self._receiver is None:
            # It may not know yet that its lease has ended.
            await self._send_lease(LeaseMessageType.LEASE_CANCELLED)
            return
        await self._publish(header, notification)

    async def _publish(self, header: PropagateHeader, notification: Notification) -> None:
        """Publish a message. Where the connection ends first, that goes on without the peer."""
        self._is_publishing = True
        publishing = self._gateway.begin_publish(header, notification, self.id)
        closed = asyncio.ensure_future(self._connection.wait_closed())
        try:
            await asyncio.wait((publishing, closed), return_when=asyncio.FIRST_COMPLETED)
            if publishing.done():
                publishing.result()
        finally:
            self._is_publishing = False
            closed.cancel()

    async def _about_lease(self, message: LeaseMessage) -> None:
        match message.type:
            case LeaseMessageType.LEASE_REQUEST:
                await self._request(message.peer)
            case LeaseMessageType.LEASE_CANCEL_REQUEST if message.peer == self.id:
                await self._delete()
                await self._send_lease(LeaseMessageType.LEASE_CANCELLED)
            case LeaseMessageType.LEASE_CANCEL_REQUEST:
                raise BadMessage("the lease of another peer is not cancelled", field="Peer")
            case LeaseMessageType.LEASE_GRANTED | LeaseMessageType.LEASE_CANCELLED:
                raise BadMessage("a gateway has no lease of its peers", field="Type")

    async def _request(self, peer: str) -> None:
        settings, leased = self._gateway.settings, self._gateway.leased
        if self.id not in ("", peer):
            raise BadMessage(f"this connection has the lease of {self.id}; another peer has another one", field="Peer")
        if len(SESSIONS + peer) > MAX_ID_LENGTH:
            raise BadMessage(f"an id has {MAX_ID_LENGTH - len(SESSIONS)} characters at most", field="Peer")
        if leased.get(peer, self) is not self or (peer not in leased and len(leased) >= settings.peers):
            # The holder of the lease keeps it until it ends, or its connection does.
            await self._send_lease(LeaseMessageType.LEASE_CANCELLED)
            return
        leased[peer], self.id = self, peer
        if self._receiver is None:
            receiver = waypost.attach(
                SESSIONS + peer,
                proxy=settings.proxy,
                token=settings.token,
                session_expiry_s=settings.lease_s,
                timeout_s=ATTACH_S,
            )
            self._receiver = await receiver.__aenter__()
            self._subscription = await receiver.subscribe(settings.expression)
            self._propagating = asyncio.create_task(self._propagate(receiver), name=f"propagate to {peer}")
        if self._end is not None:
            self._end.cancel()
        self._end = asyncio.get_running_loop().call_later(settings.lease_s, self._ended)
        self._gateway.counts.granted += 1
        await self._send_lease(LeaseMessageType.LEASE_GRANTED, settings.lease_s * 1000)

    async def _send_lease(self, kind: LeaseMessageType, lease_ms: int | None = None) -> None:
        gateway = self._gateway.settings.policy.gateway
        await self._connection.send(encode(LeaseMessage(type=kind, peer=gateway, lease_ms=lease_ms)))

    async def _propagate(self, receiver: waypost.Receiver) -> None:
        try:
            while True:
                batch = await receiver.next_batch(BATCH, manual_ack=True)
                async with asyncio.timeout(ARRIVED_S):
                    # An earlier subscription of the session may have matched more.
                    for received in batch:
                        if self._subscription in received.subscriptions:
                            await self._pass(received)
                    # Messages that came back went behind all of it.
                    await (await self._connection.ping())
                receiver.acknowledge()
        except ConnectionClosed:
            pass
        except TimeoutError:
            log.warning("a peer does not read what is sent to it", peer=self.id, seconds=ARRIVED_S)
            self._connection.transport.abort()
        except StopAsyncIteration:
            await _close(self._connection, TRY_AGAIN, "the session has ended")
        except WaypostError as error:
            await _close(self._connection, TRY_AGAIN, str(error))

    async def _pass(self, received: Received) -> None:
        policy, (origin, offset) = self._gateway.settings.policy, received.coordinate
        header = policy.outgoing_header(policy.header_of(received, f"{origin}:{offset}"), self.id)
        if isinstance(header, NotPassedOn):
            self._gateway.counts.dropped[header] += 1
            return
        attributes = {name: value for name, value in received.items() if name not in as_attributes(header)}
        message = {"JxtaPropagate": encode(header), "Notification": notification_as_json(attributes)}
        frame = json.dumps(message, ensure_ascii=False)
        if len(frame.encode()) > MAX_FRAME:
            self._gateway.counts.dropped[NotPassedOn.TOO_LARGE] += 1
            return
        await self._connection.send(frame)
        self._gateway.counts.propagated += 1

    def _ended(self) -> None:
        """End a lease that was not renewed, with its connection."""
        if self._is_publishing:
            self._end = asyncio.get_running_loop().call_later(GRACE_S, self._ended)
            return

        self._is_over = True

        async def end() -> None:
            with suppress(ConnectionClosed):
                await self._send_lease(LeaseMessageType.LEASE_CANCELLED)
            with suppress(WaypostError):
                await self._delete()
            await _close(self._connection, BAD_FRAME, "the lease was not renewed")

        self._ending = asyncio.create_task(end(), name=f"end of the lease of {self.id}")

    async def _delete(self) -> None:
        """End the lease, and the session with all that is stored for the peer."""
        receiver = self._release()
        if receiver is not None:
            try:
                await receiver.delete()
            finally:
                await receiver.close()

    async def leave(self) -> None:
        """End the lease here, after the connection has ended; the session waits at its proxy for as long as a lease
        lasts.
        """
        receiver = self._release()
        if receiver is not None:
            # The caller that closes a receiver has had what it gave.
            receiver.nack()
            with suppress(WaypostError):
                await receiver.close()

    def _release(self) -> waypost.Receiver | None:
        receiver, self._receiver = self._receiver, None
        if self._gateway.leased.get(self.id) is self:
            del self._gateway.leased[self.id]
        self.id = ""
        for running in (self._end, self._propagating):
            if running is not None:
                running.cancel()
        self._end = self._propagating = None
        return receiver


def _message_of(frame: str) -> tuple[PropagateHeader, Notification]:
    """Return the header and the notification of a propagated message. Raises BadMessage."""
    try:
        elements = read_json(frame)
    except NotJson as error:
        raise BadMessage(str(error)) from None
    if not isinstance(elements, dict) or set(elements) != {"JxtaPropagate", "Notification"}:
        raise BadMessage("a message is an object of JxtaPropagate and Notification")
    header = elements["JxtaPropagate"]
    document = decode(header) if isinstance(header, str) else None
    if not isinstance(document, PropagateHeader):
        raise BadMessage("it is a jxta:PropagateMessage, as text", field="JxtaPropagate")
    try:
        notification = notification_from_json(elements["Notification"])
    except BadMessage:
        raise
    except WaypostError as error:
        raise BadMessage(error.message, field=error.field) from None
    check_unreserved(notification)
    return document, notification


async def _close(connection: ServerConnection, code: int, why: str) -> None:
    reason = why.encode()[:CLOSE_REASON].decode(errors="ignore")
    await connection.close(code, reason)
