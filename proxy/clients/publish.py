"""What producers publish, appended to the site log in each one's order (P3).

Of one incarnation of a producer one append is under way at a time; what comes meanwhile makes up the next one, so
nothing can overtake what fails. When an append fails, nobody knows whether it was done: what waited behind it is
refused with it, and so is all that follows until what failed comes again. The library sends everything again from
there; that an earlier try had been appended after all, only the receiver's library can tell.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from proxy.clients.connection import problem
from proxy.core.effects import Append, Send
from proxy.core.environment import Environment
from proxy.core.output import Output
from waypost.checksum import checksum
from waypost.errors import Altered, BadMessage, LimitExceeded, LogUnavailable, Refused, WaypostError
from waypost.facts import FactKind
from waypost.identity import Incarnation, producer_incarnation
from waypost.keys import PRODUCER, Key, Protection, primed
from waypost.limits import FRAME_ATTRIBUTES, MAX_PUBLISH_BATCH, PRODUCER_QUEUE, PRODUCERS_PER_CONNECTION
from waypost.messages import LARGEST, Acknowledged, Publish
from waypost.notification import attribute_count, check_size, decode_body
from waypost.records import Published

ProducerIncarnation = tuple[str, Incarnation]
"""A producer and its incarnation."""


@dataclass(frozen=True, slots=True)
class _Frame:
    connection: int
    message: Publish
    records: Sequence[Published]


@dataclass(slots=True)
class _Producer:
    waiting: deque[_Frame] = field(default_factory=deque)
    queued: int = 0
    """Notifications in `waiting`."""
    under_way: bool = False
    connections: dict[int, int | None] = field(default_factory=dict)
    """Those that publish as it, the latest one last; each with the first sequence of what was not taken on it: nothing
    behind that is taken on it before that comes again. None: all was taken."""

    def reject(self, connection: int, first: int) -> None:
        """Note that what begins at sequence `first` was not taken on a connection."""
        if connection in self.connections:
            failed = self.connections[connection]
            self.connections[connection] = first if failed is None else min(failed, first)


class PublishHandler:
    """Appends the notifications of all producers at this proxy to the site log, in the order of each (P3)."""

    def __init__(self, env: Environment, output: Output) -> None:
        self._env = env
        self._output = output
        self._producers: dict[ProducerIncarnation, _Producer] = {}
        self._producers_of: dict[int, set[ProducerIncarnation]] = {}
        """The producers of each connection."""
        self._unanswered: Counter[int] = Counter()
        """Notifications of each connection."""

    def waiting(self) -> list[int]:
        """Return the number of notifications that wait for an append, for each producer."""
        return [producer.queued for producer in self._producers.values()]

    def unanswered(self, connection: int) -> int:
        """Return how many notifications of a connection are neither acknowledged nor refused; 0 for an unknown one."""
        return self._unanswered[connection]

    def publish(self, connection: int, message: Publish, keys: tuple[Key, ...] = ()) -> None:
        """Append the notifications of a publish; the client gets Acknowledged once the site log has them, or a Problem.

        If an error is raised, nothing of the publish is taken. The first publish on a later connection of a producer
        takes its place: what waits of earlier connections is refused, and comes again.

        Args:
            connection: the number of the client's connection.
            keys: the public keys that go with all that is published on the connection.

        Raises:
            BadNotification: one of the bodies is malformed or too large.
            BadMessage: there are not as many checksums as bodies, or a sequence would be above LARGEST.
            Altered: a checksum does not fit its body; all from there on is to come again.
            LogUnavailable: something before it failed, and has not come again; or a later connection of the producer
                has taken the place of this one.
            LimitExceeded: more is waiting already than a producer's window allows, the publish has too many attributes,
                or the connection too many producers.
        """
        if has_too_many_attributes(message):
            most = f"a frame has {FRAME_ATTRIBUTES} attributes at most; publish it in smaller ones"
            raise LimitExceeded(most, field="bodies")
        if message.checks and len(message.checks) != len(message.bodies):
            raise BadMessage(f"{len(message.checks)} for {len(message.bodies)} bodies", field="checks")
        checks = [checksum(body) for body in message.bodies]
        identity = (message.producer, producer_incarnation(message.producer, message.secret))
        known = self._producers_of.get(connection, ())
        if identity not in known and len(known) >= PRODUCERS_PER_CONNECTION:
            raise LimitExceeded(
                f"over {PRODUCERS_PER_CONNECTION} incarnations of producers on one connection", field="secret"
            )
        if message.checks and message.checks != checks:
            self._altered(connection, identity, message)
        protection = Protection.of(keys, primed(PRODUCER, message.keys), insecure=message.insecure)
        records = self._records(identity, message, checks, protection)
        producer = self._producers.setdefault(identity, _Producer())
        self._supersede(connection, producer, message)
        failed = producer.connections.get(connection)
        if failed is not None and message.first > failed:
            raise LogUnavailable(f"publish {failed} failed; send again from there")
        if producer.queued + len(records) > PRODUCER_QUEUE:
            why = f"over {PRODUCER_QUEUE} notifications wait for the log; wait for answers, then publish again"
            raise LimitExceeded(why, field="bodies")
        producer.waiting.append(_Frame(connection, message, records))
        producer.queued += len(records)
        self._unanswered[connection] += len(records)
        self._output.counters.published += len(records)
        self._register_producer(connection, identity, producer)
        producer.connections[connection] = None
        if not producer.under_way:
            self._append(identity, producer)

    def _supersede(self, connection: int, producer: _Producer, message: Publish) -> None:
        """Have a later connection of a producer take the place of earlier ones: that those have ended may not be known.

        What waits of those is dropped: it comes again, from its oldest on. Otherwise each connection would add to what
        waits for a log that is away, in the end more than may; and what an earlier one still brings could overtake what
        was dropped, against the producer's order.

        Raises:
            LogUnavailable: a later connection has taken the place of this one.
        """
        again = "its producer publishes on a later connection"
        if connection in producer.connections:
            if connection != next(reversed(producer.connections)):
                producer.reject(connection, message.first)
                raise LogUnavailable(again)
            return
        self._reject(producer, list(producer.waiting), LogUnavailable(again))
        producer.waiting.clear()
        producer.queued = 0

    def _reject(self, producer: _Producer, frames: list[_Frame], error: WaypostError) -> None:
        """Tell the connections of frames that they were not taken; nothing behind them is before they come again."""
        for frame in frames:
            producer.reject(frame.connection, frame.message.first)
            self._answered(frame)
            self._output.emit(Send(frame.connection, problem(error, frame.message)))

    def _register_producer(self, connection: int, identity: ProducerIncarnation, producer: _Producer) -> None:
        """Note that a connection publishes as this producer."""
        producer.connections.setdefault(connection, None)
        self._producers_of.setdefault(connection, set()).add(identity)

    def _altered(self, connection: int, identity: ProducerIncarnation, message: Publish) -> None:
        """Refuse what is not what was sent, and all behind it, until it comes again."""
        producer = self._producers.setdefault(identity, _Producer())
        self._supersede(connection, producer, message)
        self._register_producer(connection, identity, producer)
        producer.reject(connection, message.first)
        self._output.counters.altered += 1
        raise Altered("a notification is not what its producer sent", field="bodies")

    def disconnected(self, connection: int) -> None:
        """Drop the publishes of a connection that has ended, unless they are being appended; they come again."""
        self._unanswered.pop(connection, None)
        for identity in self._producers_of.pop(connection, ()):
            producer = self._producers[identity]
            producer.connections.pop(connection, None)
            producer.waiting = deque(frame for frame in producer.waiting if frame.connection != connection)
            producer.queued = sum(len(frame.records) for frame in producer.waiting)
            self._forget_disconnected(identity, producer)

    def _forget_disconnected(self, identity: ProducerIncarnation, producer: _Producer) -> None:
        if not producer.connections and not producer.under_way:
            del self._producers[identity]

    def _records(
        self, identity: ProducerIncarnation, message: Publish, checks: list[int], protection: Protection
    ) -> list[Published]:
        if message.first + len(message.bodies) - 1 > LARGEST:
            raise BadMessage(f"sequences end at {LARGEST}; begin another incarnation of the producer", field="first")
        at_ms = self._env.time.unix_ms
        records = []
        for index, body in enumerate(message.bodies):
            try:
                check_size(body, len(decode_body(body)))
            except Refused as error:
                error.field = f"bodies[{index}]" + (f".{error.field}" if error.field else "")
                raise
            number = message.first + index
            records.append(
                Published(
                    producer=identity[0],
                    incarnation=identity[1],
                    sequence=number,
                    at_ms=at_ms,
                    body=body,
                    protection=protection,
                    check=checks[index],
                )
            )
        return records

    def _append(self, identity: ProducerIncarnation, producer: _Producer) -> None:
        frames: list[_Frame] = []
        count = 0
        while producer.waiting and (not frames or count + len(producer.waiting[0].records) <= MAX_PUBLISH_BATCH):
            frames.append(producer.waiting.popleft())
            count += len(frames[-1].records)
        producer.queued -= count
        producer.under_way = True

        def on_done(answer: list[int] | WaypostError) -> None:
            producer.under_way = False
            if isinstance(answer, WaypostError):
                self._failed(producer, [*frames, *producer.waiting], answer)
            else:
                self._acknowledge(frames, answer)
            if producer.waiting:
                self._append(identity, producer)
            else:
                self._forget_disconnected(identity, producer)

        records = [record for frame in frames for record in frame.records]
        self._output.emit(Append(records, on_done, frames[0].connection, lambda: bool(producer.connections)))

    def _failed(self, producer: _Producer, frames: list[_Frame], error: WaypostError) -> None:
        producer.waiting.clear()
        producer.queued = 0
        self._output.counters.failed += sum(len(frame.records) for frame in frames)
        self._reject(producer, frames, error)

    def _answered(self, frame: _Frame) -> None:
        if frame.connection in self._unanswered:
            self._unanswered[frame.connection] -= len(frame.records)

    def _acknowledge(self, frames: list[_Frame], offsets: list[int]) -> None:
        for origin, appended in self._env.state.by_origin(offsets):
            self._output.journal.attest(FactKind.ACKNOWLEDGED, origin=origin, offsets=appended)
        self._output.counters.appended += len(offsets)
        self._output.counters.publish_sizes.note(len(offsets))
        done = 0
        for frame in frames:
            accepted = offsets[done : done + len(frame.records)]
            done += len(accepted)
            self._answered(frame)
            first = frame.message.first
            for origin, appended in self._env.state.by_origin(accepted):
                self._output.emit(Send(frame.connection, Acknowledged(first, origin, appended)))
                first += len(appended)


def has_too_many_attributes(message: Publish) -> bool:
    """Tell whether a publish of several notifications has more than FRAME_ATTRIBUTES attributes; no body is decoded."""
    return len(message.bodies) > 1 and sum(map(attribute_count, message.bodies)) > FRAME_ATTRIBUTES
