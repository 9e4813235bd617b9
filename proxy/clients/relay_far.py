"""The far end of relays: receivers whose connections are at other proxies, and whose sessions are served here.

For the dispatcher such a receiver is one more connection, with a negative number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from handover.messages import RelayDown, RelayEnd, RelayUp
from proxy.clients.connection import OfSession
from proxy.clients.relay_channel import BEAT_MS, OUT_OF_SEQUENCE, EndedRelays, RelayChannel
from proxy.core.effects import Effect, Hangup, Send, SendPeer
from proxy.core.environment import Environment
from proxy.core.events import FarRelayBegun, FarRelayEnded, FarRelayMessage
from proxy.core.output import Output
from waypost.clock import NEVER
from waypost.errors import Refused
from waypost.frames import decode_client_message, encode_message
from waypost.identity import Incarnation, ProxyId
from waypost.messages import Attach, Hello

PASSED_ON = Hello | Attach | OfSession
"""What a client says of its session; the rest is the near proxy's own business."""


@dataclass(slots=True)
class _FarRelay:
    """A receiver's connection at another proxy."""

    proxy: ProxyId
    relay: str
    channel: RelayChannel
    session: str = ""

    def is_of(self, incarnation: Incarnation) -> bool:
        """Tell whether the other proxy began it in this incarnation (handover rule 24)."""
        return self.relay.startswith(f"{incarnation}/")


class FarRelays:
    """Passes the messages of receivers at other proxies to the dispatcher, and the answers back to those proxies."""

    def __init__(self, env: Environment, output: Output, ended: EndedRelays) -> None:
        self._env = env
        self._output = output
        self._ended = ended
        self._far: dict[int, _FarRelay] = {}
        self._numbers: dict[tuple[ProxyId, str], int] = {}
        """(proxy, relay) -> our own number of a receiver's connection there."""
        self._last = 0

    def __len__(self) -> int:
        return len(self._far)

    def channels(self) -> Iterator[RelayChannel]:
        """Yield the channels of all relays of sessions here."""
        return (far_relay.channel for far_relay in self._far.values())

    def sessions(self) -> set[str]:
        """Return the sessions to which receivers at other proxies attach by relay."""
        return {far_relay.session for far_relay in self._far.values() if far_relay.session}

    def connection_of(self, proxy: ProxyId, relay: str) -> int | None:
        """Return our own number, below 0, of a receiver's connection at another proxy; None: there is no such relay."""
        return self._numbers.get((proxy, relay))

    # ------------------------------------------------------------ what comes

    def up(self, sender: ProxyId, message: RelayUp) -> None:
        """Take a relayed message of a receiver; the first one of a relay begins it (FarRelayBegun).

        The messages that are in order now are reported as events (FarRelayMessage). Too many that wait for a missing
        one, or one that may not be relayed, end the relay: the near proxy gets RelayEnd, and FarRelayEnded is reported.
        A message of a relay that has ended lately is answered with RelayEnd. A number below 1 is refused and counted.
        """
        if message.number < 1:
            self._ended.refuse(OUT_OF_SEQUENCE, sender, message)
            return
        if (sender, message.relay) in self._ended:
            self._output.emit(SendPeer(sender, RelayEnd(message.relay, by_owner=True)))
            return
        number = self._number_of(sender, message)
        frames = self._far[number].channel.receive(message.number, message.frame, self._env.time.now_ms)
        if frames is None:
            self._break([number])
            return
        for frame in frames:
            decoded = _decoded(frame)
            if decoded is None:
                self._ended.refuse("relay of what is not of a session", sender, message)
                self._break([number])
                return
            if isinstance(decoded, Attach):
                self._far[number].session = decoded.session
            self._output.report(FarRelayMessage(number, decoded))

    def _number_of(self, sender: ProxyId, message: RelayUp) -> int:
        """Return the number of its connection; the first word of a relay makes one."""
        relay = message.relay
        if (sender, relay) not in self._numbers:
            now = self._env.time.now_ms
            self._last -= 1
            self._numbers[sender, relay] = self._last
            self._far[self._last] = _FarRelay(sender, relay, RelayChannel(last_received_ms=now, last_sent_ms=now))
            self._output.report(FarRelayBegun(self._last, sender, message.address, message.departures))
        return self._numbers[sender, relay]

    def close(self, sender: ProxyId, message: RelayEnd) -> None:
        """End a relay that the near proxy has ended. One that is not known is refused, and counted but for one that has
        ended lately.
        """
        number = self._numbers.get((sender, message.relay))
        if number is not None:
            self._forget([number])
        else:
            self._ended.refuse("unknown relay", sender, message)

    def _break(self, numbers: Iterable[int]) -> None:
        """End these relays, and say so."""
        for number in list(numbers):
            far_relay = self._far[number]
            self._output.emit(SendPeer(far_relay.proxy, RelayEnd(far_relay.relay, by_owner=True)))
            self._forget([number])

    def _forget(self, numbers: Iterable[int]) -> None:
        for number in list(numbers):
            far_relay = self._far.pop(number)
            self._ended.note(far_relay.proxy, far_relay.relay)
            del self._numbers[far_relay.proxy, far_relay.relay]
            self._output.report(FarRelayEnded(number))

    def incarnation_ended(self, proxy: ProxyId, incarnation: Incarnation) -> None:
        """End the relays that an incarnation of a proxy has begun; those of its next incarnation go on."""
        self._forget(
            number
            for number, far_relay in self._far.items()
            if far_relay.proxy == proxy and far_relay.is_of(incarnation)
        )

    def fence(self) -> None:
        """End all relays of sessions here, and tell the near proxies: there is no lease."""
        self._break(self._far)

    # ------------------------------------------------------------ what goes out

    def translated(self, effects: list[Effect]) -> list[Effect]:
        """Return the effects in order; those to a relayed connection (a number below 0) become messages to its proxy.
        Each of these takes the next number of its relay: call it once for the effects of a step.

        Effects to a relay that has ended are left out.
        """
        if not self._last:
            return effects
        return [translated for effect in effects if (translated := self._translated(effect)) is not None]

    def _translated(self, effect: Effect) -> Effect | None:
        if not isinstance(effect, Send | Hangup) or effect.connection >= 0:
            return effect
        far_relay = self._far.get(effect.connection)
        if far_relay is None:
            return None
        if isinstance(effect, Hangup):
            return SendPeer(far_relay.proxy, RelayEnd(far_relay.relay, by_owner=True))
        return self._down(far_relay, encode_message(effect.message))

    def _down(self, far_relay: _FarRelay, frame: bytes) -> SendPeer:
        number = far_relay.channel.next(self._env.time.now_ms)
        return SendPeer(far_relay.proxy, RelayDown(far_relay.relay, number, frame, far_relay.channel.received))

    # ------------------------------------------------------------ time

    def tick(self, now: int) -> None:
        """Send a sign of life on relays where nothing was sent for BEAT_MS.

        Args:
            now: in ms of the engine's clock.
        """
        for far_relay in self._far.values():
            if now >= far_relay.channel.last_sent_ms + BEAT_MS:
                self._output.emit(self._down(far_relay, b""))

    def next_deadline(self) -> int:
        """Return when the next sign of life is due, in ms of the engine's clock; NEVER: there are no relays."""
        return min([channel.last_sent_ms + BEAT_MS for channel in self.channels()], default=NEVER)


def _decoded(frame: bytes) -> PASSED_ON | None:
    """Return what a client says of its session; None: it is nothing of that sort."""
    try:
        message = decode_client_message(frame)
    except Refused:
        return None
    return message if isinstance(message, PASSED_ON) else None
