"""The publish buffer of a producer: notifications to be sent, in flight, and answered. Pure.

Theory
------
Notifications are numbered within this incarnation of the producer, and cut into frames when they are sent. A frame
stays in flight until it is acknowledged or refused for good; on every new connection all frames in flight are sent
again, in order, to whichever proxy. So a publish may be appended twice, at two origins: receivers' libraries recognise
it by its number (handover rules 17 and 18).

The keys that go with all notifications change between two of them: the change is sent again in its position among the
frames.
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
    """The answer to one publish.

    Args:
        sequence: the number that :meth:`PublishBuffer.publish` returned.
        coordinate: of the notification, which is durable; None: it was refused.
        error: the refusal; None: there is none.
    """

    sequence: int
    coordinate: Coordinate | None
    error: WaypostError | None


class PublishBuffer:
    """The publishes of one incarnation of a producer.

    Args:
        producer: its name.
        secret: of the incarnation; None: it is a new one.
    """

    def __init__(self, producer: str, secret: str | None = None) -> None:
        self._producer = producer
        self._secret = secret or new_secret()
        self._incarnation = producer_incarnation(producer, self._secret)
        self._next_sequence = 0
        self._unsent: list[bytes] = []
        self._keys: tuple[list[Key] | None, bool] = (None, True)
        """The keys of `_unsent`, and whether those may be delivered where no keys meet."""
        self._cut: list[Publish | PublishWith] = []
        """Frames that were cut and not sent yet."""
        self._with = PublishWith([])
        """The keys that go with all notifications, as they were before the first of `_in_flight`."""
        self._in_flight: deque[Publish | PublishWith] = deque()
        self._outstanding = 0
        """The number of notifications without an answer."""

    @property
    def room(self) -> int:
        """The number of notifications that may be published now; 0 or less: none. The caller keeps to it."""
        return PUBLISH_WINDOW - self._outstanding

    @property
    def next_id(self) -> NotificationId:
        """The id of the next notification to be published."""
        return NotificationId(self._producer, self._incarnation, self._next_sequence)

    def publish(
        self, body: bytes, keys: list[Key] | None = None, *, insecure: bool = True, sequence: int | None = None
    ) -> int:
        """Add a notification; return its sequence number. It is sent at the next flush.

        Args:
            body: the encoded notification.
            keys: that go with it alone; None: none.
            insecure: whether it is delivered also where no keys meet.
            sequence: its number, above all before it; None: the next one.
        """
        if sequence is not None and sequence != self._next_sequence:
            self._cut_frames()
            self._next_sequence = sequence
        if (keys, insecure) != self._keys:
            self._cut_frames()
            self._keys = (keys, insecure)
        sequence = self._next_sequence
        self._next_sequence += 1
        self._outstanding += 1
        self._unsent.append(body)
        return sequence

    def publish_with(self, keys: list[Key]) -> None:
        """Set the keys that go with every notification added later, beside its own; they replace those set before. The
        change is a frame of its own at the next :meth:`flush`.

        Args:
            keys: raw for the producer's side, public for the consumer's; empty: none.
        """
        self._cut_frames()
        self._cut.append(PublishWith(keys))

    def _cut_frames(self) -> None:
        """Cut the unsent notifications into frames of bounded size."""
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
        """Return what was added since the last flush, in frames of bounded size, and count it as in flight."""
        self._cut_frames()
        frames, self._cut = self._cut, []
        self._in_flight.extend(frames)
        self._apply_keys()
        return frames

    def _apply_keys(self) -> None:
        """Take changes of keys at the front of what is in flight as the keys that the next connection begins with."""
        while self._in_flight and isinstance(first := self._in_flight[0], PublishWith):
            self._with = first
            self._in_flight.popleft()

    def in_flight(self) -> list[Publish | PublishWith]:
        """Return all that was sent and not answered, in order, for a connection that knows nothing of this producer;
        before it, the keys that are published with, if there are any, or had been others.
        """
        changed = any(isinstance(frame, PublishWith) for frame in self._in_flight)
        return [*([self._with] if self._with.keys or changed else []), *self._in_flight]

    @property
    def oldest(self) -> int | None:
        """The sequence number at which the oldest frame in flight begins; None: none is in flight."""
        first = self._in_flight[0] if self._in_flight else None
        return first.first if isinstance(first, Publish) else None

    def refused(self, first: int, error: WaypostError) -> list[Published]:
        """Remove a frame that was refused for good; return the answer to each of its notifications. Empty: the frame
        was answered before.

        Args:
            first: the sequence number at which the frame begins.
            error: the refusal.
        """
        frame = self._land(first)
        bodies = frame.bodies if frame else []
        return [Published(first + index, None, error) for index in range(len(bodies))]

    def acknowledged(self, message: Acknowledged) -> list[Published]:
        """Remove a frame that is durable; return the answer to each of its notifications, with the coordinate. Empty:
        the frame was answered before.
        """
        if self._land(message.first) is None:
            return []
        return [
            Published(message.first + index, Coordinate(message.origin, offset), None)
            for index, offset in enumerate(message.offsets)
        ]

    def _land(self, first: int) -> Publish | None:
        """Remove the frame that begins at `first` from those in flight, and return it; None: it was answered before."""
        for index, frame in enumerate(self._in_flight):
            if isinstance(frame, Publish) and frame.first == first:
                del self._in_flight[index]
                self._outstanding -= len(frame.bodies)
                self._apply_keys()
                return frame
        return None


def framed(bodies: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Yield the bodies in order, in lists that fit one frame each: by count, bytes and attributes."""
    for batch in batches(bodies, len, max_items=MAX_PUBLISH_BATCH, max_bytes=PUBLISH_BYTES):
        for part in batches(batch, attribute_count, max_items=MAX_PUBLISH_BATCH, max_bytes=FRAME_ATTRIBUTES):
            yield list(part)
