"""The recording of a run for a picture: notes and messages in lanes, and the conditions of each proxy over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

STEPS, VIOLATED, REGISTRY = "steps", "wrong", "registry"


def log_lane(site: str) -> str:
    """Return the name of the lane in which a picture shows a site's log."""
    return f"log {site}"


class Note(NamedTuple):
    """A line of text in the picture of a run.

    Args:
        at_ms: when, in simulated milliseconds.
        lane: whose lane it stands in.
        text: the line.
    """

    at_ms: int
    lane: str
    text: str


class Message(NamedTuple):
    """An arrow in the picture of a run: a message from one lane to another.

    Args:
        sent_ms: when it was sent, in simulated milliseconds.
        sender: the lane of the sender.
        to: the lane of the receiver.
        kind: its kind, for people.
        arrives_ms: when it arrives; None: it was lost.
    """

    sent_ms: int
    sender: str
    to: str
    kind: str
    arrives_ms: int | None


@dataclass(slots=True, kw_only=True)
class Span:
    """The time that a lane was in one condition. `of`: a session, or a part or way of the process that is at fault; "":
    the process itself. `until_ms` None: to the end.
    """

    lane: str
    of: str
    condition: str
    epoch: int
    from_ms: int
    until_ms: int | None = None


Conditions = Mapping[tuple[str, str], tuple[str, int]]
"""(lane, a session or what is at fault there) -> condition and epoch."""


class Recording:
    """Records a run while it is played.

    Args:
        conditions: returns the present conditions of all proxies and their sessions.
    """

    def __init__(self, conditions: Callable[[], Conditions]) -> None:
        self.notes: list[Note] = []
        self.messages: list[Message] = []
        self.spans: list[Span] = []
        self._conditions = conditions
        self._open: dict[tuple[str, str], Span] = {}

    def note(self, now_ms: int, lane: str, text: str) -> None:
        """Record a line of text in a lane, at the time `now_ms` of the world."""
        self.notes.append(Note(now_ms, lane, text))

    def carries(self, now_ms: int, sender: str, to: str, kind: str, wait_ms: int | None) -> None:
        """Record a message that is sent at `now_ms`.

        Args:
            now_ms: the time of the world.
            sender: the lane of the sender.
            to: the lane of the addressee.
            kind: the name of the message.
            wait_ms: how long the message is under way; None: it is lost.
        """
        arrives_ms = None if wait_ms is None else now_ms + wait_ms
        self.messages.append(Message(now_ms, sender, to, kind, arrives_ms))

    def observe(self, now_ms: int) -> None:
        """Record as spans which conditions of lanes have begun or ended since the last call.

        A condition that begins and ends at the same `now_ms` leaves no span.
        """
        now = self._conditions()
        for key, span in list(self._open.items()):
            if now.get(key) != (span.condition, span.epoch):
                span.until_ms = now_ms
                del self._open[key]
                if span.from_ms == now_ms:
                    self.spans.remove(span)
        for key, (condition, epoch) in now.items():
            if key not in self._open:
                span = self._open[key] = Span(lane=key[0], of=key[1], condition=condition, epoch=epoch, from_ms=now_ms)
                self.spans.append(span)
