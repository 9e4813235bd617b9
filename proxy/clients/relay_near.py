"""The near end of relays: clients whose connections are here, and whose sessions stay at their owners."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from handover.messages import RelayDown, RelayEnd, RelayMessage, RelayUp
from proxy.clients.connection import Connection
from proxy.clients.relay_channel import OUT_OF_SEQUENCE, EndedRelays, RelayChannel
from proxy.core.effects import Send, SendPeer
from proxy.core.environment import Environment
from proxy.core.output import Output
from waypost.clock import NEVER
from waypost.frames import encode_message
from waypost.identity import ProxyId, SessionId
from waypost.messages import VERSION, Attach, ClientMessage, Hello, Wait, WaitCause


@dataclass(slots=True, kw_only=True)
class _NearRelay:
    """A client's connection here, whose session is served by `owner`."""

    relay: str
    owner: ProxyId
    session: SessionId
    address: str
    channel: RelayChannel
    departures: int


class NearRelays:
    """Passes the messages of relayed clients to the owners of their sessions, and the answers back."""

    def __init__(self, env: Environment, output: Output, ended: EndedRelays) -> None:
        self._env = env
        self._output = output
        self._ended = ended
        self._near: dict[int, _NearRelay] = {}
        self._connections: dict[str, int] = {}
        """Relay -> the client's connection here."""
        self._relay_count = 0

    def __len__(self) -> int:
        return len(self._near)

    def __contains__(self, connection: int) -> bool:
        return connection in self._near

    def channels(self) -> Iterator[RelayChannel]:
        """Yield the channels of all relays of clients here."""
        return (near_relay.channel for near_relay in self._near.values())

    # ------------------------------------------------------------ the client

    def begin(self, connection: Connection, attach: Attach, owner: ProxyId, departures: int) -> None:
        """Relay a client to the owner of its session from now on, under a name that no relay had (handover rule 24).

        Hello and attach are sent to the owner, which answers the client.

        Args:
            connection: the client's; it is not relayed yet.
            attach: the client's attach.
            owner: the proxy that owns the session.
            departures: how many receivers had left for good there, as the owner has named it.
        """
        now = self._env.time.now_ms
        self._relay_count += 1
        relay = f"{self._env.lease.incarnation}/{self._relay_count}"
        number, channel = connection.number, RelayChannel(last_received_ms=now)
        self._near[number] = _NearRelay(
            relay=relay,
            owner=owner,
            session=SessionId(attach.session),
            address=connection.address,
            channel=channel,
            departures=departures,
        )
        self._connections[relay] = number
        self.up(number, Hello(VERSION, connection.client))
        self.up(number, attach)

    def up(self, connection: int, message: ClientMessage) -> None:
        """Pass a message of a relayed client to the owner of its session.

        Args:
            connection: the number of the client's connection.

        Raises:
            KeyError: the connection is not relayed.
        """
        near_relay = self._near[connection]
        number = near_relay.channel.next(self._env.time.now_ms)
        up = RelayUp(near_relay.relay, number, encode_message(message), near_relay.address, near_relay.departures)
        self._output.emit(SendPeer(near_relay.owner, up))

    def leave(self, connection: int) -> None:
        """End the relay of a connection, if there is one, and tell the owner; the client itself is told nothing."""
        near_relay = self._near.pop(connection, None)
        if near_relay is not None:
            del self._connections[near_relay.relay]
            self._ended.note(near_relay.owner, near_relay.relay)
            self._output.emit(SendPeer(near_relay.owner, RelayEnd(near_relay.relay, by_owner=False)))

    def end_of_acquired(self, session: SessionId) -> None:
        """End the relays of a session that is served here from now on: their clients are told to attach again.

        The owner before would say so too, but later. What that owner delivers until then, the client's library drops by
        its frontier.
        """
        for connection in [number for number, near_relay in self._near.items() if near_relay.session == session]:
            self.leave(connection)
            self._output.emit(Send(connection, Wait(WaitCause.MOVED, "the session has come to this proxy", 0)))

    def _break(self, connections: Iterable[int]) -> None:
        """These relays are broken: their clients are to attach again."""
        for connection in list(connections):
            self.leave(connection)
            wait = Wait(
                WaitCause.OWNER_SILENT,
                "the session's owner does not answer through this proxy",
                self._env.settings.retry_ms,
            )
            self._output.emit(Send(connection, wait))

    # ------------------------------------------------------------ the owner

    def _of(self, sender: ProxyId, message: RelayMessage) -> int | None:
        """Return the connection that is meant; None: there is no such relay between the two of us, which is counted."""
        connection = self._connections.get(message.relay)
        if connection is not None and self._near[connection].owner == sender:
            return connection
        self._ended.refuse("unknown relay" if connection is None else "wrong sender", sender, message)
        return None

    def down(self, sender: ProxyId, message: RelayDown) -> None:
        """Take a message of the owner: a frame for the client, or a sign of life with an empty frame.

        A message of no relay of that owner is answered with RelayEnd, and refused. A wrong number, also of what the
        owner has received, is refused. What is refused is counted, but for messages of a relay that has ended lately.
        Too many that wait for a missing one end the relay, and the client is told to attach again.
        """
        connection = self._of(sender, message)
        if connection is None:
            self._output.emit(SendPeer(sender, RelayEnd(message.relay, by_owner=False)))
            return
        channel = self._near[connection].channel
        if message.number < 1 or not 0 <= message.received <= channel.sent:
            self._ended.refuse(OUT_OF_SEQUENCE, sender, message)
            return
        now = self._env.time.now_ms
        channel.confirm(message.received, now)
        frames = channel.receive(message.number, message.frame, now)
        if frames is None:
            self._break([connection])
            return
        for frame in frames:
            if frame:
                self._output.emit(Send(connection, msgspec.Raw(frame)))

    def close(self, sender: ProxyId, message: RelayEnd) -> None:
        """End a relay that its owner has ended: the client is told to attach again. A message of no relay of that owner
        is refused, and counted but for one of a relay that has ended lately.
        """
        connection = self._of(sender, message)
        if connection is not None:
            self._break([connection])

    def owner_gone(self, owner: ProxyId) -> None:
        """End all relays to a proxy whose lease has ended: their clients are told to attach again."""
        self._break(number for number, near_relay in self._near.items() if near_relay.owner == owner)

    def fence(self) -> None:
        """End all relays of clients here, because there is no lease: the clients are told to attach again."""
        self._break(self._near)

    # ------------------------------------------------------------ time

    def tick(self, now: int) -> None:
        """End relays whose owner is silent for too long: their clients are told to attach again.

        Args:
            now: in ms of the engine's clock.
        """
        self._break(number for number, near_relay in self._near.items() if near_relay.channel.broken(now))

    def next_deadline(self) -> int:
        """Return when :meth:`tick` has something to do, in ms of the engine's clock; NEVER: nothing."""
        return min([channel.due_ms() for channel in self.channels()], default=NEVER)
