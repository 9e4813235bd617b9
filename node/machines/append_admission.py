"""Bounds the work that is appended and not yet folded, and gives each producer its share of it. Pure.

A notification is folded after all that was appended before it. So a frame that takes long to be matched is appended in
parts, and a part waits while too much is admitted. Parts that wait have their turns
(:class:`node.machines.fair_order.FairOrder`): a frame of a thousand costly notifications does not hold up a producer
that publishes little.

What the log does not take ends its frame, and so does the end of its producer: the parts before it are in the log, the
rest is not appended, for behind newer notifications it would be out of order. The producer publishes it again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any, assert_never

from node.machines.fair_order import FairOrder
from proxy.core.effects import Append
from waypost.clock import NEVER
from waypost.errors import LogUnavailable
from waypost.limits import (
    ADMISSION_BATCH_S,
    ADMITTED_BYTES,
    ADMITTED_S,
    APPENDS_UNDER_WAY,
    MESSAGE_BYTES,
    WAITING_BYTES,
    WAITING_BYTES_PER_CONNECTION,
)
from waypost.records import Published, Record

MEASURED_NS = 1_000_000
"""What is foreseen to take less says nothing of what it takes."""
LEAST_MEASURED, MEASURED_SHARE = 0.05, 0.5
"""What folding takes of what was foreseen, at least; and how much the last measurement counts."""
ESTIMATED = 16
"""Notifications whose cost is estimated at one time, without others having their turn."""
ESTIMATED_BYTES = 64 * 1024
"""The size of their bodies; the last one may go beyond."""


# ---------------------------------------------------------------- inputs


@dataclass(frozen=True, slots=True)
class AppendRequested:
    """Input: records are to be appended, in parts if they take long to be matched.

    Args:
        append: the engine's effect, which AppendCompleted answers.
    """

    append: Append


@dataclass(frozen=True, slots=True)
class Estimated:
    """Input, the answer to EstimateCosts. Each subscription is estimated for itself; many together take less, and how
    much less is measured.

    Args:
        number: of the EstimateCosts.
        costs_ns: how long each of its notifications takes to be matched and delivered, in nanoseconds.
    """

    number: int
    costs_ns: Sequence[int]


@dataclass(frozen=True, slots=True)
class PartAppended:
    """Input, the answer to AppendPart.

    Args:
        number: of the AppendPart.
        answer: the offsets of its records, or a WaypostError.
    """

    number: int
    answer: Any


@dataclass(frozen=True, slots=True)
class LogFolded:
    """Input: the log is folded further.

    Args:
        position: everything below this offset is folded.
        spent_s: how much processor time what was folded since the last such input took, in seconds.
    """

    position: int
    spent_s: float


# ---------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class EstimateCosts:
    """Effect: estimate what the matching of notifications takes; answered with Estimated.

    Args:
        number: of this estimate; the answer has it too.
        bodies: their encoded attributes.
        is_first: whether it is the first estimate of its frame; before another one others have their turn.
    """

    number: int
    bodies: Sequence[bytes]
    is_first: bool


@dataclass(frozen=True, slots=True)
class AppendPart:
    """Effect: append records to the log; answered with PartAppended.

    Args:
        number: of this part; the answer has it too.
        records: of one client's frame, in their order.
    """

    number: int
    records: Sequence[Record]


@dataclass(frozen=True, slots=True)
class AppendCompleted:
    """Effect, without an answer: tell the engine what became of its Append.

    Args:
        append: the engine's effect.
        answer: the offsets of all its records, or the error of the part that failed.
    """

    append: Append
    answer: Any


AdmissionInput = AppendRequested | Estimated | PartAppended | LogFolded
AdmissionEffect = EstimateCosts | AppendPart | AppendCompleted


@dataclass(frozen=True, slots=True)
class _Part:
    """Notifications that were admitted together: their bytes, what was foreseen, and for how long they count, in ns."""

    size: int
    foreseen_ns: int
    ns: int


@dataclass(slots=True, kw_only=True)
class _Frame:
    """The records of an effect whose append is under way."""

    append: Append
    left: int
    """Bytes of what is not admitted yet."""
    offsets: list[int] = field(default_factory=list)
    costs_ns: deque[int] = field(default_factory=deque)
    """Estimates of the next records: few, for each subscription changes the estimates."""
    part: _Part | None = None
    """The part that waits, or is appended."""
    part_records: Sequence[Record] = ()
    tag: float = 0.0
    charged_ns: float = 0.0
    appended_ns: float = 0.0


class AppendAdmission:
    """Bounds the notifications that are on their way to the log, or lie in it beyond what was folded."""

    def __init__(self) -> None:
        self._frames: dict[int, _Frame] = {}
        self._numbers = count()
        self._admitted_bytes = self._admitted_ns = 0
        """The size of the parts that were admitted and are not folded yet."""
        self._waiting_bytes: Counter[int] = Counter()
        """The size of the parts that are not admitted yet, by connection."""
        self._waiting_total = 0
        """All of them: every message of a client asks for it."""
        self._position = 0
        self._measured = 1.0
        """What folding took lately of what had been foreseen, between LEAST_MEASURED and 1."""
        self._appended: deque[tuple[int, _Part]] = deque()
        """The last offset of each append, and what was appended, as they were answered."""
        self._spent_ns = self._foreseen_ns = 0.0
        """What folding has taken, and what had been foreseen of it, since the last measurement."""
        self._order = FairOrder()
        self._turns = count()
        self._waiting: list[tuple[float, int, int]] = []
        """A heap of the parts for which there is no room: their tag, a number in order, and the frame's number."""

    # ------------------------------------------------------------ what is known

    def has_room(self, connection: int) -> bool:
        """Tell whether a connection may publish more.

        It may not while more than WAITING_BYTES_PER_CONNECTION of its notifications wait; where all connections have
        more than WAITING_BYTES waiting together, while any of its own wait. None may while twice as much waits, while
        too much is admitted and not folded yet, or while APPENDS_UNDER_WAY appends are under way.

        Args:
            connection: the number of the client's connection.
        """
        total, own = self._waiting_total, self._waiting_bytes[connection]
        allowed = WAITING_BYTES_PER_CONNECTION if total <= WAITING_BYTES else 0
        is_full = self._admitted_bytes > ADMITTED_BYTES or self.under_way >= APPENDS_UNDER_WAY
        return not is_full and own <= allowed and total <= 2 * WAITING_BYTES

    @property
    def waiting(self) -> int:
        """The number of parts that wait for room."""
        return len(self._waiting)

    @property
    def under_way(self) -> int:
        """The number of appends that are under way, without those that wait for room."""
        return len(self._frames) - len(self._waiting)

    # ------------------------------------------------------------ the machine

    def step(self, input: AdmissionInput, now_ms: int) -> list[AdmissionEffect]:
        """Take one input; return the effects, to be performed in order. `now_ms` does not count."""
        match input:
            case AppendRequested(append=append):
                return self._request(append)
            case Estimated(number=number, costs_ns=costs_ns):
                frame = self._frames[number]
                frame.costs_ns.extend(costs_ns)
                return self._advance(number, frame)
            case PartAppended(number=number, answer=answer):
                return self._part_appended(number, answer)
            case LogFolded(position=position, spent_s=spent_s):
                return self._folded(position, spent_s)
            case _:
                assert_never(input)

    def tick(self, now_ms: int) -> list[AdmissionEffect]:
        """Return the effects that are due at `now_ms`: none ever are."""
        return []

    def next_deadline(self) -> int:
        """Return when :meth:`tick` is due: NEVER."""
        return NEVER

    def _request(self, append: Append) -> list[AdmissionEffect]:
        number, size = next(self._numbers), sum(map(_size, append.records))
        frame = self._frames[number] = _Frame(append=append, left=size)
        self._count_waiting(append.connection, size)
        if not append.records or not all(isinstance(record, Published) for record in append.records):
            # The proxy's own appends wait for nobody.
            frame.part, frame.part_records = _Part(0, 0, 0), append.records
            return [AppendPart(number, append.records)]
        return self._advance(number, frame)

    def _advance(self, number: int, frame: _Frame) -> list[AdmissionEffect]:
        """Have more of a frame estimated; or where enough is, append its next part, or have that wait."""
        records, begin = frame.append.records, len(frame.offsets)
        known_ns = sum(frame.costs_ns) * self._measured
        if known_ns <= self._max_ns() and begin + len(frame.costs_ns) < len(records):
            bodies = _bodies(records, begin + len(frame.costs_ns))
            return [EstimateCosts(number, bodies, is_first=not frame.charged_ns and not frame.costs_ns)]
        most_ns, foreseen_ns, end = self._max_ns() / self._measured, 0, begin
        while frame.costs_ns and (end == begin or foreseen_ns + frame.costs_ns[0] <= most_ns):
            foreseen_ns += frame.costs_ns.popleft()
            end += 1
        frame.part_records = records[begin:end]
        part = frame.part = _Part(sum(map(_size, frame.part_records)), foreseen_ns, int(foreseen_ns * self._measured))
        self._charge(frame, part)
        if self._waiting or self._is_late():
            heappush(self._waiting, (frame.tag, next(self._turns), number))
            return []
        return self._admit(number, frame)

    def _charge(self, frame: _Frame, part: _Part) -> None:
        """Charge the frame to its connection, by what is known of it now: its part, and all behind that."""
        known = len(frame.part_records) + len(frame.costs_ns)
        each_ns = (part.ns + sum(frame.costs_ns) * self._measured) / known
        more_ns = each_ns * (len(frame.append.records) - len(frame.offsets) - len(frame.part_records))
        change_ns = frame.appended_ns + part.ns + more_ns - frame.charged_ns
        finish = self._order.charge(frame.append.connection, change_ns)
        frame.tag = frame.tag + change_ns if frame.charged_ns else finish
        frame.charged_ns += change_ns

    def _max_ns(self) -> float:
        """Return the ns that records which go together may take: few where they wait or others do."""
        return max(ADMISSION_BATCH_S * 1e9, 0 if self._waiting else ADMITTED_S * 1e9 - self._admitted_ns)

    def _is_late(self) -> bool:
        return self._admitted_ns > ADMITTED_S * 1e9

    def _admit(self, number: int, frame: _Frame) -> list[AdmissionEffect]:
        """Append the part of a frame for which there is room now; complete the frame if its producer has gone."""
        part = frame.part
        assert part is not None
        if not frame.append.is_wanted():
            return self._complete(number, frame, LogUnavailable("its producer has gone"))
        self._order.advance(part.ns)
        self._admitted_ns += part.ns
        self._admitted_bytes += part.size
        frame.left -= part.size
        self._count_waiting(frame.append.connection, -part.size)
        return [AppendPart(number, frame.part_records)]

    def _part_appended(self, number: int, answer: Any) -> list[AdmissionEffect]:
        frame = self._frames[number]
        part, frame.part = frame.part, None
        assert part is not None
        if isinstance(answer, list) and answer and answer[-1] >= self._position:
            self._appended.append((answer[-1], part))
        else:
            self._remove(part)
        admitted = self._let_in()
        if not isinstance(answer, list):
            return [*admitted, *self._complete(number, frame, answer)]
        frame.offsets += answer
        frame.appended_ns += part.ns
        if len(frame.offsets) < len(frame.append.records):
            return [*admitted, *self._advance(number, frame)]
        return [*admitted, *self._complete(number, frame, frame.offsets)]

    def _complete(self, number: int, frame: _Frame, answer: Any) -> list[AdmissionEffect]:
        del self._frames[number]
        self._count_waiting(frame.append.connection, -frame.left)
        self._order.charge(frame.append.connection, frame.appended_ns - frame.charged_ns)
        return [AppendCompleted(frame.append, answer)]

    def _folded(self, position: int, spent_s: float) -> list[AdmissionEffect]:
        self._position = position
        self._spent_ns += spent_s * 1e9
        while self._appended and self._appended[0][0] < position:
            _, part = self._appended.popleft()
            self._foreseen_ns += part.foreseen_ns
            self._remove(part)
        if self._foreseen_ns > MEASURED_NS:
            measured = min(1.0, max(LEAST_MEASURED, self._spent_ns / self._foreseen_ns))
            self._spent_ns = self._foreseen_ns = 0.0
            # An append that takes longer than foreseen counts at once, one that takes less only after a while.
            self._measured += (measured - self._measured) * (1 if measured > self._measured else MEASURED_SHARE)
        return self._let_in()

    def _let_in(self) -> list[AdmissionEffect]:
        """Admit the parts that fit now, in the order of their tags."""
        effects: list[AdmissionEffect] = []
        while self._waiting and not self._is_late():
            _, _, number = heappop(self._waiting)
            effects += self._admit(number, self._frames[number])
        return effects

    def _count_waiting(self, connection: int, size: int) -> None:
        self._waiting_total += size
        self._waiting_bytes[connection] += size
        if not self._waiting_bytes[connection]:
            del self._waiting_bytes[connection]

    def _remove(self, part: _Part) -> None:
        self._admitted_bytes -= part.size
        self._admitted_ns -= part.ns


def _bodies(records: Sequence[Record], begin: int) -> list[bytes]:
    """Return the bodies of the next records that are estimated together."""
    bodies, size = [], 0
    for record in records[begin : begin + ESTIMATED]:
        assert isinstance(record, Published)
        bodies.append(record.body)
        size += len(record.body)
        if size > ESTIMATED_BYTES:
            break
    return bodies


def _size(record: Record) -> int:
    return len(record.body) + MESSAGE_BYTES if isinstance(record, Published) else 0
