"""The state that both ends of a relay have: messages numbered from 1 each way, and relays that ended lately."""

from __future__ import annotations

from dataclasses import dataclass, field

from handover.messages import RelayMessage
from proxy.core.refusals import Refusals
from waypost.identity import ProxyId
from waypost.limits import REFUSAL_DETAIL, RELAY_OUT_OF_ORDER, RELAYS_REMEMBERED

BEAT_MS = 1_000
"""An owner says so often that it is there, if it has nothing else to say."""
SILENCE_MS = 3_500
OUT_OF_SEQUENCE = "wrong number of a relay"


@dataclass(slots=True, kw_only=True)
class RelayChannel:
    """One end of a relay: the numbers of messages sent and received, each from 1. Times in ms of the engine's clock.

    Args:
        sent: the number of the last message that was sent.
        received: all messages up to this number have come.
        early: by number, messages that came before an earlier one.
        last_received_ms: when the last message came.
        last_sent_ms: when the last message was sent.
        confirmed: the other end has all messages up to this number.
    """

    sent: int = 0
    received: int = 0
    early: dict[int, bytes] = field(default_factory=dict)
    last_received_ms: int = 0
    last_sent_ms: int = 0
    confirmed: int = 0
    unconfirmed_ms: int = 0
    """The time since which something that was sent is not confirmed."""

    def next(self, now: int) -> int:
        """Return the number of the next message, from 1 on. Call it once for each message that is sent: the message
        counts as sent now, and waits to be confirmed.

        Args:
            now: in ms of the engine's clock.
        """
        if self.confirmed == self.sent:
            self.unconfirmed_ms = now
        self.sent += 1
        self.last_sent_ms = now
        return self.sent

    def confirm(self, received: int, now: int) -> None:
        """Note that the other end has all messages up to the number `received`; a repeat changes nothing.

        Args:
            now: in ms of the engine's clock.
        """
        if received > self.confirmed:
            self.confirmed, self.unconfirmed_ms = received, now

    def due_ms(self) -> int:
        """Return when the relay is broken, in ms of the engine's clock, unless a message that is next in order comes
        before, and something that was sent is confirmed, if any of it waits for that. Repeats, and messages that wait
        for a missing one, put off nothing.
        """
        unheard = [self.unconfirmed_ms] if self.confirmed < self.sent else []
        return min([self.last_received_ms, *unheard]) + SILENCE_MS

    def broken(self, now: int) -> bool:
        """Tell whether the other end has been silent for SILENCE_MS, or has confirmed nothing for so long while
        something that was sent waits for it.

        Args:
            now: in ms of the engine's clock.
        """
        return now >= self.due_ms()

    def receive(self, number: int, frame: bytes, now: int) -> list[bytes] | None:
        """Take a message of the other end, and return the frames that are next in order now.

        Args:
            number: of the message, from 1 on.
            now: in ms of the engine's clock.

        Returns:
            Empty: a message before it is missing, or it is a repeat. None: more than RELAY_OUT_OF_ORDER frames
            wait for a missing one; the relay is to be ended.
        """
        if number <= self.received:
            return []
        self.early[number] = frame
        frames = []
        while (following := self.early.pop(self.received + 1, None)) is not None:
            self.received += 1
            frames.append(following)
        if frames:
            self.last_received_ms = now
        return None if len(self.early) > RELAY_OUT_OF_ORDER else frames


class EndedRelays:
    """Relays that ended lately, each by the other proxy and the relay's name: late messages of them are no violation.

    Args:
        refused: counts the violations.
    """

    def __init__(self, refused: Refusals) -> None:
        self._refused = refused
        self._ended: dict[tuple[ProxyId, str], None] = {}

    def __contains__(self, relay: tuple[ProxyId, str]) -> bool:
        return relay in self._ended

    def note(self, proxy: ProxyId, relay: str) -> None:
        """Remember that a relay with that proxy has ended; past RELAYS_REMEMBERED the oldest one is forgotten."""
        self._ended[proxy, relay] = None
        if len(self._ended) > RELAYS_REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def refuse(self, name: str, sender: ProxyId, message: RelayMessage) -> None:
        """Count a refused message; one of a relay that ended lately is only late, and is not counted.

        Args:
            name: the violation, by one of a few fixed words.
        """
        if (sender, message.relay) not in self._ended:
            detail = f"{type(message).__name__} of relay {message.relay}"
            self._refused.note(name, sender, detail[:REFUSAL_DETAIL])
