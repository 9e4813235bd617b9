"""A receiver may attach at any proxy; where its session stays, because others are attached at its home, it is relayed.

The near proxy passes what the client says of its session to the home, and what the home answers to the client; for the
home the receiver is one more connection, with a negative number. Both ways messages are numbered from 1. What comes
out of order waits a moment; what does not come at all, or a silence, ends the relay, and the client attaches again:
nothing is lost by it, because the receiver's cursor is the home's.

What another proxy says wrong is refused by name and counted; what is late, of a relay that has ended, is not wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from handover.messages import RelayDown, RelayEnd, RelayMessage, RelayUp
from proxy.context import Context
from proxy.effects import Effect, Hangup, Send, SendPeer
from waypost.clock import NEVER
from waypost.errors import Refused
from waypost.identity import Incarnation, ProxyId, SessionId
from waypost.limits import REFUSAL_DETAIL, RELAY_OUT_OF_ORDER, RELAYS_REMEMBERED
from waypost.messages import (
    VERSION,
    Acknowledge,
    Attach,
    ClientMessage,
    Delete,
    Detach,
    Hello,
    SetAccess,
    Subscribe,
    Unsubscribe,
    Wait,
    decode_client_message,
    encode_message,
)

BEAT_MS = 1_000
"""A home says so often that it is there, if it has nothing else to say."""
SILENCE_MS = 3_500
PASSED_ON = Hello | Attach | Subscribe | Unsubscribe | Acknowledge | Detach | Delete | SetAccess
"""What a client says of its session; the rest is the near proxy's own business."""


@dataclass(slots=True)
class _Line:
    """One direction's numbering at each end: what was sent, and what came, in order."""

    sent: int = 0
    taken: int = 0
    early: dict[int, bytes] = field(default_factory=dict)
    heard_ms: int = 0
    said_ms: int = 0
    confirmed: int = 0
    unconfirmed_ms: int = 0
    """Since when something that was sent is not confirmed."""

    def next(self, now: int) -> int:
        if self.confirmed == self.sent:
            self.unconfirmed_ms = now
        self.sent += 1
        self.said_ms = now
        return self.sent

    def confirm(self, taken: int, now: int) -> None:
        if taken > self.confirmed:
            self.confirmed, self.unconfirmed_ms = taken, now

    def due_ms(self) -> int:
        """Return when to look whether it is broken."""
        unheard = [self.unconfirmed_ms] if self.confirmed < self.sent else []
        return min([self.heard_ms, *unheard]) + SILENCE_MS

    def broken(self, now: int) -> bool:
        """Tell whether the other side is silent, or does not hear us."""
        unheard = self.confirmed < self.sent and now >= self.unconfirmed_ms + SILENCE_MS
        return unheard or now >= self.heard_ms + SILENCE_MS

    def take(self, number: int, frame: bytes, now: int) -> list[bytes] | None:
        """Return what is next in order now; None: too much is missing. A repeat brings nothing."""
        if number <= self.taken:
            return []
        self.early[number] = frame
        frames = []
        while (following := self.early.pop(self.taken + 1, None)) is not None:
            self.taken += 1
            frames.append(following)
        if frames:
            self.heard_ms = now
        return None if len(self.early) > RELAY_OUT_OF_ORDER else frames


@dataclass(slots=True)
class _Near:
    """A client's connection here, whose session is served by `home`."""

    relay: str
    home: ProxyId
    session: SessionId
    line: _Line


@dataclass(slots=True)
class _Far:
    """A receiver's connection at another proxy, whose session is served here."""

    proxy: ProxyId
    relay: str
    line: _Line
    session: str = ""

    def is_of(self, life: Incarnation) -> bool:
        """Tell whether the other proxy began it in this life (handover rule 24)."""
        return self.relay.startswith(f"{life}/")


class Relays:
    """Both ends of all relays of this proxy.

    Args:
        connected, disconnected, message: the door, for receivers whose connection is at another proxy.
    """

    def __init__(
        self,
        context: Context,
        connected: Callable[[int], None],
        disconnected: Callable[[int], None],
        message: Callable[[int, ClientMessage], None],
    ) -> None:
        self._context = context
        self._connected = connected
        self._disconnected = disconnected
        self._message = message
        self._near: dict[int, _Near] = {}
        self._connections: dict[str, int] = {}
        """Relay -> the client's connection here."""
        self._begun = 0
        self._far: dict[int, _Far] = {}
        self._numbers: dict[tuple[ProxyId, str], int] = {}
        """(proxy, relay) -> our own number of a receiver's connection there."""
        self._last = 0
        self._over: dict[tuple[ProxyId, str], None] = {}
        """(the other proxy, relay) of those that ended lately: more may be under way."""

    def early(self) -> list[int]:
        """Return how many messages wait for one before them, of each relay."""
        lines = [near.line for near in self._near.values()] + [far.line for far in self._far.values()]
        return [len(line.early) for line in lines]

    @property
    def near(self) -> int:
        """How many clients here are relayed to their session's home."""
        return len(self._near)

    @property
    def far(self) -> int:
        """How many receivers at other proxies are served here."""
        return len(self._far)

    def _remember(self, proxy: ProxyId, relay: str) -> None:
        self._over[proxy, relay] = None
        if len(self._over) > RELAYS_REMEMBERED:
            del self._over[next(iter(self._over))]

    def _refuse(self, name: str, sender: ProxyId, message: RelayMessage) -> None:
        """Count a message that is wrong, by the name of what is wrong with it; one that is only late is not."""
        if (sender, message.relay) not in self._over:
            detail = f"{type(message).__name__} of relay {message.relay}"
            self._context.refused.note(name, sender, detail[:REFUSAL_DETAIL])

    def _refuse_stray(self, near: _Near | None, sender: ProxyId, message: RelayMessage) -> None:
        """Refuse a message of no relay between the two of us."""
        self._refuse("wrong sender" if near else "unknown relay", sender, message)

    def proxy_of(self, connection: int) -> ProxyId | None:
        """Return at which proxy a receiver's connection is, if it is relayed to here."""
        far = self._far.get(connection)
        return far.proxy if far else None

    def sessions(self) -> set[str]:
        """Return the sessions served here that have receivers at other proxies."""
        return {far.session for far in self._far.values() if far.session}

    def is_relayed(self, connection: int) -> bool:
        return connection in self._near

    # ------------------------------------------------------------ where the client is

    def begin(self, connection: int, client: str, attach: Attach, home: ProxyId) -> None:
        """Relay the client's session from now on."""
        now = self._context.clock.now_ms()
        self._begun += 1
        relay = f"{self._context.incarnation}/{self._begun}"
        self._near[connection] = _Near(relay, home, SessionId(attach.session), _Line(heard_ms=now))
        self._connections[relay] = connection
        self.up(connection, Hello(VERSION, client))
        self.up(connection, attach)

    def up(self, connection: int, message: ClientMessage) -> None:
        """Pass on what the client says."""
        near = self._near[connection]
        number = near.line.next(self._context.clock.now_ms())
        self._context.emit(SendPeer(near.home, RelayUp(near.relay, number, encode_message(message))))

    def leave(self, connection: int) -> None:
        """The client is gone, or attaches anew."""
        near = self._near.pop(connection, None)
        if near is not None:
            del self._connections[near.relay]
            self._remember(near.home, near.relay)
            self._context.emit(SendPeer(near.home, RelayEnd(near.relay, home=False)))

    def come_home(self, session: SessionId) -> None:
        """The session is served here from now on: who was relayed is to attach at once, on the same connection.

        Its old home would say so too, but later; what comes of it until then the client's frontier settles.
        """
        for connection in [each for each, near in self._near.items() if near.session == session]:
            self.leave(connection)
            self._context.emit(Send(connection, Wait("the session has come to this proxy", 0)))

    def _down(self, sender: ProxyId, message: RelayDown) -> None:
        connection = self._connections.get(message.relay, 0)
        near = self._near.get(connection)
        if near is None or near.home != sender:
            self._refuse_stray(near, sender, message)
            self._context.emit(SendPeer(sender, RelayEnd(message.relay, home=False)))
            return
        if message.number < 1 or not 0 <= message.taken <= near.line.sent:
            self._refuse("wrong number of a relay", sender, message)
            return
        now = self._context.clock.now_ms()
        near.line.confirm(message.taken, now)
        frames = near.line.take(message.number, message.frame, now)
        if frames is None:
            self._break_near(connection)
            return
        for frame in frames:
            if frame:
                self._context.emit(Send(connection, msgspec.Raw(frame)))

    def _break_near(self, connection: int) -> None:
        """The relay is broken: the client is to attach again."""
        self.leave(connection)
        wait = Wait("the session's home does not answer through this proxy", self._context.settings.retry_ms)
        self._context.emit(Send(connection, wait))

    # ------------------------------------------------------------ where the session is

    def _up(self, sender: ProxyId, message: RelayUp) -> None:
        if message.number < 1:
            self._refuse("wrong number of a relay", sender, message)
            return
        key = (sender, message.relay)
        if key in self._over:
            self._context.emit(SendPeer(sender, RelayEnd(message.relay, home=True)))
            return
        if key not in self._numbers:
            self._last -= 1
            self._numbers[key] = self._last
            now = self._context.clock.now_ms()
            self._far[self._last] = _Far(sender, message.relay, _Line(heard_ms=now, said_ms=now))
            self._connected(self._last)
        number = self._numbers[key]
        frames = self._far[number].line.take(message.number, message.frame, self._context.clock.now_ms())
        if frames is None:
            self._break_far(number)
            return
        for frame in frames:
            decoded = _decoded(frame)
            if decoded is None:
                self._refuse("relay of what is not of a session", sender, message)
                self._break_far(number)
                return
            if isinstance(decoded, Attach):
                self._far[number].session = decoded.session
            self._message(number, decoded)

    def _break_far(self, number: int) -> None:
        far = self._far.get(number)
        if far is not None:
            self._context.emit(SendPeer(far.proxy, RelayEnd(far.relay, home=True)))
            self._forget_far(number)

    def _forget_far(self, number: int) -> None:
        far = self._far.pop(number)
        self._remember(far.proxy, far.relay)
        del self._numbers[far.proxy, far.relay]
        self._disconnected(number)

    def translated(self, effects: list[Effect]) -> list[Effect]:
        """Return the effects, with what goes to a connection at another proxy addressed to that proxy."""
        if not self._last:
            return effects
        return [each for effect in effects if (each := self._translated(effect)) is not None]

    def _translated(self, effect: Effect) -> Effect | None:
        if not isinstance(effect, Send | Hangup) or effect.connection >= 0:
            return effect
        far = self._far.get(effect.connection)
        if far is None:
            return None
        if isinstance(effect, Hangup):
            return SendPeer(far.proxy, RelayEnd(far.relay, home=True))
        return self._say_down(far, encode_message(effect.message))

    def _say_down(self, far: _Far, frame: bytes) -> SendPeer:
        number = far.line.next(self._context.clock.now_ms())
        return SendPeer(far.proxy, RelayDown(far.relay, number, frame, far.line.taken))

    # ------------------------------------------------------------ both

    def peer_message(self, sender: ProxyId, message: RelayMessage) -> None:
        match message:
            case RelayUp():
                self._up(sender, message)
            case RelayDown():
                self._down(sender, message)
            case RelayEnd(home=True):
                connection = self._connections.get(message.relay, 0)
                near = self._near.get(connection)
                if near is not None and near.home == sender:
                    self._break_near(connection)
                else:
                    self._refuse_stray(near, sender, message)
            case RelayEnd():
                number = self._numbers.get((sender, message.relay))
                if number is not None:
                    self._forget_far(number)
                else:
                    self._refuse_stray(None, sender, message)

    def proxy_gone(self, proxy: ProxyId, life: Incarnation) -> None:
        """That life of the proxy has ended. The watch may be late: what the next one relays already goes on."""
        for connection in [each for each, near in self._near.items() if near.home == proxy]:
            self._break_near(connection)
        for number in [each for each, far in self._far.items() if far.proxy == proxy and far.is_of(life)]:
            self._forget_far(number)

    def fence(self) -> None:
        """Our lease may have ended: relay nothing."""
        for connection in list(self._near):
            self._break_near(connection)
        for number in list(self._far):
            self._break_far(number)

    def tick(self) -> None:
        now = self._context.clock.now_ms()
        for connection in [each for each, near in self._near.items() if near.line.broken(now)]:
            self._break_near(connection)
        for far in self._far.values():
            if now >= far.line.said_ms + BEAT_MS:
                self._context.emit(self._say_down(far, b""))

    def next_deadline(self) -> int:
        if not self._near and not self._far:
            return NEVER
        near = [each.line.due_ms() for each in self._near.values()]
        far = [each.line.said_ms + BEAT_MS for each in self._far.values()]
        return min([*near, *far])


def _decoded(frame: bytes) -> PASSED_ON | None:
    """Return what a client says of its session; None: it is nothing of that sort."""
    try:
        message = decode_client_message(frame)
    except Refused:
        return None
    return message if isinstance(message, PASSED_ON) else None
