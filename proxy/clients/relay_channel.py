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
    """One end of a relay: the numbers of messages sent and received. Times in ms of the engine's clock."""

    sent: int = 0
    received: int = 0
    early: dict[int, bytes] = field(default_factory=dict)
    last_received_ms: int = 0
    last_sent_ms: int = 0
    confirmed: int = 0
    unconfirmed_ms: int = 0
    """Since when something that was sent is not confirmed."""

    def next(self, now: int) -> int:
        """Return the number of the next message, and note that it is sent now."""
        if self.confirmed == self.sent:
            self.unconfirmed_ms = now
        self.sent += 1
        self.last_sent_ms = now
        return self.sent

    def confirm(self, received: int, now: int) -> None:
        """Note that the other end has all messages up to the number `received`."""
        if received > self.confirmed:
            self.confirmed, self.unconfirmed_ms = received, now

    def due_ms(self) -> int:
        """Return when the relay is broken, unless the other end sends or confirms something until then."""
        unheard = [self.unconfirmed_ms] if self.confirmed < self.sent else []
        return min([self.last_received_ms, *unheard]) + SILENCE_MS

    def broken(self, now: int) -> bool:
        """Tell whether the other end has been silent, or has confirmed nothing, for SILENCE_MS."""
        return now >= self.due_ms()

    def receive(self, number: int, frame: bytes, now: int) -> list[bytes] | None:
        """Return the frames that are next in order now; empty: one before them is missing, or it is a repeat.

        Returns:
            None: more than RELAY_OUT_OF_ORDER frames wait for a missing one; the relay is to be ended.
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
    """Relays that ended lately, by the other proxy and their name: late messages of them are no violation."""

    def __init__(self, refused: Refusals) -> None:
        self._refused = refused
        self._ended: dict[tuple[ProxyId, str], None] = {}

    def __contains__(self, relay: tuple[ProxyId, str]) -> bool:
        return relay in self._ended

    def note(self, proxy: ProxyId, relay: str) -> None:
        """Remember that the relay of that proxy has ended; the oldest ones are forgotten."""
        self._ended[proxy, relay] = None
        if len(self._ended) > RELAYS_REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def refuse(self, name: str, sender: ProxyId, message: RelayMessage) -> None:
        """Count a refused message by the name of its violation; one of a relay that ended lately is not counted."""
        if (sender, message.relay) not in self._ended:
            detail = f"{type(message).__name__} of relay {message.relay}"
            self._refused.note(name, sender, detail[:REFUSAL_DETAIL])
