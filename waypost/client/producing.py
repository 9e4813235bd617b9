"""What a producer has published, and what became of it. Pure.

Theory
------
Notifications are numbered within this life of the producer, and cut into frames when they are sent. A frame stays in
flight until it is acknowledged or refused for good; on every new connection all that is in flight is sent again, in
order, wherever that is. So a publish may be appended twice, at two origins: its number is what the receivers' libraries
know it again by (handover rules 17 and 18).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from waypost.batches import batches
from waypost.errors import WaypostError
from waypost.identity import Coordinate, NotificationId, new_incarnation
from waypost.limits import MAX_PUBLISH_BATCH, PUBLISH_BYTES, PUBLISH_WINDOW
from waypost.messages import Acknowledged, Publish


@dataclass(frozen=True, slots=True)
class Published:
    """An answer to the publish of `sequence`."""

    sequence: int
    coordinate: Coordinate | None
    error: WaypostError | None


class Producing:
    """One life of a producer."""

    def __init__(self, producer: str) -> None:
        self._producer = producer
        self._life = new_incarnation()
        self._next_sequence = 0
        self._unsent: list[bytes] = []
        self._in_flight: deque[Publish] = deque()
        self._outstanding = 0
        """Notifications that were not answered yet."""

    @property
    def room(self) -> int:
        """How many notifications may be published now."""
        return PUBLISH_WINDOW - self._outstanding

    @property
    def next_id(self) -> NotificationId:
        return NotificationId(self._producer, self._life, self._next_sequence)

    def publish(self, body: bytes) -> int:
        """Take one notification to be published; return its sequence. Sent at the next flush."""
        sequence = self._next_sequence
        self._next_sequence += 1
        self._outstanding += 1
        self._unsent.append(body)
        return sequence

    def flush(self) -> list[Publish]:
        """Return what was taken since the last flush, in frames of bounded size."""
        first, frames = self._next_sequence - len(self._unsent), []
        for batch in batches(self._unsent, len, most=MAX_PUBLISH_BATCH, most_bytes=PUBLISH_BYTES):
            bodies = list(batch)
            frames.append(Publish(self._producer, self._life, first, bodies))
            first += len(bodies)
        self._unsent = []
        self._in_flight.extend(frames)
        return frames

    def in_flight(self) -> list[Publish]:
        """Return all that was sent and not answered, in order."""
        return list(self._in_flight)

    def is_oldest(self, first: int) -> bool:
        """Tell whether nothing is in flight before the frame that begins there. With it fails all that follows it."""
        return bool(self._in_flight) and self._in_flight[0].first == first

    def refused(self, first: int, error: WaypostError) -> list[Published]:
        """A frame was refused for good: return what became of each notification in it."""
        frame = self._land(first)
        bodies = frame.bodies if frame else []
        return [Published(first + each, None, error) for each in range(len(bodies))]

    def acknowledged(self, message: Acknowledged) -> list[Published]:
        """A frame is safe: return where each notification in it is."""
        if self._land(message.first) is None:
            return []
        return [
            Published(message.first + each, Coordinate(message.origin, offset), None)
            for each, offset in enumerate(message.offsets)
        ]

    def _land(self, first: int) -> Publish | None:
        """Take the frame that begins there out of what is in flight, and return it; None: it was answered before."""
        for index, frame in enumerate(self._in_flight):
            if frame.first == first:
                del self._in_flight[index]
                self._outstanding -= len(frame.bodies)
                return frame
        return None
