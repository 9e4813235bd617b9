"""What a producer has published, and what became of it. Pure.

Theory
------
Notifications are numbered within this life of the producer, and cut into frames when they are sent. A frame stays in
flight until it is acknowledged or refused for good; on every new connection all that is in flight is sent again, in
order, wherever that is. So a publish may be appended twice, at two origins: its number is what the receivers' libraries
know it again by (handover rules 17 and 18).

Keys that go with all that is published change between two notifications, and stay there: the change is sent again in
its place among the frames.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from waypost.batches import batches
from waypost.checksum import checksum
from waypost.errors import WaypostError
from waypost.identity import Coordinate, NotificationId, new_secret, producer_incarnation
from waypost.keys import Key
from waypost.limits import FRAME_ATTRIBUTES, MAX_PUBLISH_BATCH, PUBLISH_BYTES, PUBLISH_WINDOW
from waypost.messages import Acknowledged, Publish, PublishWith
from waypost.notification import attribute_count


@dataclass(frozen=True, slots=True)
class Published:
    """An answer to the publish of `sequence`."""

    sequence: int
    coordinate: Coordinate | None
    error: WaypostError | None


class PublishBuffer:
    """One life of a producer."""

    def __init__(self, producer: str) -> None:
        self._producer = producer
        self._secret = new_secret()
        self._incarnation = producer_incarnation(producer, self._secret)
        self._next_sequence = 0
        self._unsent: list[bytes] = []
        self._keys: tuple[list[Key] | None, bool] = (None, True)
        """Those of `_unsent`, and whether it may go where none meet."""
        self._cut: list[Publish | PublishWith] = []
        """Frames that were cut and not sent yet."""
        self._with = PublishWith([])
        """The keys that go with all that is published, before the first of `_in_flight`."""
        self._in_flight: deque[Publish | PublishWith] = deque()
        self._outstanding = 0
        """Notifications that were not answered yet."""

    @property
    def room(self) -> int:
        """How many notifications may be published now."""
        return PUBLISH_WINDOW - self._outstanding

    @property
    def next_id(self) -> NotificationId:
        """The id of the next notification that is published."""
        return NotificationId(self._producer, self._incarnation, self._next_sequence)

    def publish(self, body: bytes, keys: list[Key] | None = None, *, insecure: bool = True) -> int:
        """Take one notification to be published; return its sequence. Sent at the next flush."""
        if (keys, insecure) != self._keys:
            self._cut_frames()
            self._keys = (keys, insecure)
        sequence = self._next_sequence
        self._next_sequence += 1
        self._outstanding += 1
        self._unsent.append(body)
        return sequence

    def publish_with(self, keys: list[Key]) -> None:
        """Let these keys go with all that is published from here on."""
        self._cut_frames()
        self._cut.append(PublishWith(keys))

    def _cut_frames(self) -> None:
        """Put what was taken into frames of bounded size."""
        first = self._next_sequence - len(self._unsent)
        keys, insecure = self._keys
        for bodies in framed(self._unsent):
            checks = [checksum(body) for body in bodies]
            self._cut.append(
                Publish(
                    producer=self._producer,
                    secret=self._secret,
                    first=first,
                    bodies=bodies,
                    keys=keys or [],
                    insecure=insecure,
                    checks=checks,
                )
            )
            first += len(bodies)
        self._unsent = []

    def flush(self) -> list[Publish | PublishWith]:
        """Return what was taken since the last flush, in frames of bounded size."""
        self._cut_frames()
        frames, self._cut = self._cut, []
        self._in_flight.extend(frames)
        self._apply_keys()
        return frames

    def _apply_keys(self) -> None:
        """A change of keys before which nothing is in flight any more is what the next connection begins with."""
        while self._in_flight and isinstance(first := self._in_flight[0], PublishWith):
            self._with = first
            self._in_flight.popleft()

    def in_flight(self) -> list[Publish | PublishWith]:
        """Return all that was sent and not answered, in order, on a connection that knows nothing of us yet, or not
        any more.
        """
        changed = any(isinstance(each, PublishWith) for each in self._in_flight)
        return [*([self._with] if self._with.keys or changed else []), *self._in_flight]

    def is_oldest(self, first: int) -> bool:
        """Tell whether nothing is in flight before the frame that begins there. With it fails all that follows it."""
        oldest = self._in_flight[0] if self._in_flight else None
        return isinstance(oldest, Publish) and oldest.first == first

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
            if isinstance(frame, Publish) and frame.first == first:
                del self._in_flight[index]
                self._outstanding -= len(frame.bodies)
                self._apply_keys()
                return frame
        return None


def framed(bodies: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Yield the bodies in order, as many at a time as may go in one frame."""
    for batch in batches(bodies, len, max_items=MAX_PUBLISH_BATCH, max_bytes=PUBLISH_BYTES):
        for part in batches(batch, attribute_count, max_items=MAX_PUBLISH_BATCH, max_bytes=FRAME_ATTRIBUTES):
            yield list(part)
