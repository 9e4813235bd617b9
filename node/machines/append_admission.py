"""Bounds the work that is appended and not yet folded, and gives each producer its share of it.

A notification is folded after all that was appended before it. So a frame that takes long to be matched is appended in
parts, and a part waits while too much is ahead. Parts that wait have their turns (:class:`FairOrder`): a frame of a
thousand costly notifications does not hold up a producer that publishes little.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, NamedTuple

from proxy.core.effects import Append
from waypost.errors import LogUnavailable
from waypost.limits import (
    ADMISSION_BATCH_S,
    ADMITTED_BYTES,
    ADMITTED_S,
    MESSAGE_BYTES,
    WAITING_BYTES,
    WAITING_BYTES_PER_CONNECTION,
)
from waypost.records import Published, Record

Records = Sequence[Record]
AppendPart = Callable[[Records], Awaitable[Any]]
"""Appends records; returns the list of their offsets, or an error."""
REBUILT = 1_000
"""Number of outdated entries after which a heap is made anew."""
MEASURED_NS = 1_000_000
"""What is foreseen to take less says nothing of what it takes."""
LEAST_MEASURED, MEASURED_SHARE = 0.05, 0.5
"""What folding takes of what was foreseen, at least; and how much the last measurement counts."""
LOOKED_AT = 16
"""Notifications whose cost is estimated at one time, without others having their turn."""
LOOKED_AT_BYTES = 64 * 1024
"""The size of their bodies; the last one may go beyond."""


class _Part(NamedTuple):
    """Notifications that were admitted together: their bytes, what was foreseen, and for how long they count, in ns."""

    size: int
    foreseen_ns: int
    ns: int


class FairOrder:
    """The order in which frames have their turn: the Fair Sojourn Protocol (Friedman and Henderson, SIGMETRICS 2003).

    Each frame is tagged with the moment, on a virtual clock, when it would be done if all connections with something
    to be done were served at once, each at the same rate; the lowest tag goes first. The clock is slower the more of
    them there are. So no connection is done later than with equal shares; one that publishes little is done at once,
    however many publish much; what a connection was given while nobody waited is not held against it; and a connection
    that waits is overtaken less and less by those that come.
    """

    def __init__(self) -> None:
        self._now = 0.0
        """The virtual clock, in nanoseconds."""
        self._finish: dict[int, float] = {}
        """The time at which each connection would be done; nothing is kept of those that are."""
        self._next: list[tuple[float, int]] = []
        """A heap of them; what is not in `_finish` any more is passed over."""

    def charge(self, connection: int, cost_ns: float) -> float:
        """Charge work to a connection; return its tag: when the connection would be done, in ns of the virtual clock.

        Args:
            connection: the number of the connection.
            cost_ns: how long the work takes; negative where it takes less than was charged before.
        """
        finish = max(self._now, self._finish.get(connection, self._now)) + cost_ns
        if finish > self._now:
            self._finish[connection] = finish
            heappush(self._next, (finish, connection))
            if len(self._next) > 2 * len(self._finish) + REBUILT:
                self._next = [(end, number) for number, end in self._finish.items()]
                heapify(self._next)
        else:
            self._finish.pop(connection, None)
        return finish

    def advance(self, cost_ns: float) -> None:
        """Move the virtual clock on for work of `cost_ns` that begins now: each connection that waits gets an equal
        share of it.
        """
        while self._finish:
            finish, connection = self._next[0]
            if self._finish.get(connection) != finish:
                heappop(self._next)
                continue
            until_done_ns = (finish - self._now) * len(self._finish)
            if until_done_ns > cost_ns:
                self._now += cost_ns / len(self._finish)
                return
            cost_ns -= until_done_ns
            self._now = finish
            del self._finish[connection]
            heappop(self._next)
        self._next.clear()


class AppendAdmission:
    """Bounds the notifications that are on their way to the log, or lie in it beyond what was folded.

    Args:
        foreseen_ns: returns an estimate for each body: how long it takes to be matched and delivered, in nanoseconds.
            It takes each subscription for itself; many together take less, and how much less is measured.
    """

    def __init__(self, foreseen_ns: Callable[[Sequence[bytes]], list[int]]) -> None:
        self._foreseen_ns = foreseen_ns
        self._bytes = self._ns = 0
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
        self._spent_ns = self._foreseen = 0.0
        """What folding has taken, and what had been foreseen of it, since the last measurement."""
        self._order = FairOrder()
        self._numbers = count()
        self._waiting: list[tuple[float, int, int, asyncio.Future[None]]] = []
        """Parts for which there is no room: their tag, a number, their nanoseconds, and who waits."""

    def has_room(self, connection: int) -> bool:
        """Tell whether a connection may publish more.

        It may not while more than WAITING_BYTES_PER_CONNECTION of its notifications wait; where all connections have
        more than WAITING_BYTES waiting together, while any of its own wait. None may while too much is admitted and not
        folded yet.

        Args:
            connection: the number of the client's connection.
        """
        total, mine = self._waiting_total, self._waiting_bytes[connection]
        most = WAITING_BYTES_PER_CONNECTION if total <= WAITING_BYTES else 0
        return self._bytes <= ADMITTED_BYTES and mine <= most and total <= 2 * WAITING_BYTES

    @property
    def waiting(self) -> int:
        """The number of parts that wait for room."""
        return len(self._waiting)

    def wanted(self, effect: Append) -> None:
        """Count the records of an effect as waiting; a call of :meth:`append` with the same effect has to follow."""
        self._count_waiting(effect.connection, sum(map(_size, effect.records)))

    async def append(self, effect: Append, append: AppendPart) -> Any:
        """Append the records of an effect that was counted by :meth:`wanted`, in parts if they take long to be matched.

        The call waits for room. Where a part fails, the parts before it are in the log. Where the producer has gone,
        the rest is not appended: the producer sends it again, and behind newer notifications it would be out of order.

        Args:
            append: appends one part; returns the list of its offsets, or an error.

        Returns:
            The offsets of all records; or the answer to the first part that failed, an error, LogUnavailable if the
            producer has gone.
        """
        records = effect.records
        published = [record for record in records if isinstance(record, Published)]
        left = sum(map(_size, published))
        offsets: list[int] = []
        costs: deque[int] = deque()
        tag = charged_ns = appended_ns = 0.0
        try:
            if len(published) < len(records) or not published:
                # What the proxy itself has to say waits for nobody.
                return await append(records)
            while len(offsets) < len(published):
                part, foreseen_ns, part_ns = await self._part(published, len(offsets), costs)
                each_ns = (part_ns + sum(costs) * self._measured) / (len(part) + len(costs))
                more_ns = each_ns * (len(published) - len(offsets) - len(part))
                change_ns = appended_ns + part_ns + more_ns - charged_ns
                finish = self._order.charge(effect.connection, change_ns)
                tag = tag + change_ns if charged_ns else finish
                charged_ns += change_ns
                await self._room_for(tag, part_ns)
                size = sum(map(_size, part))
                left -= size
                self._count_waiting(effect.connection, -size)
                self._bytes += size
                answer = None
                try:
                    answer = await append(part) if effect.is_wanted() else LogUnavailable("its producer has gone")
                finally:
                    self._answered(answer, _Part(size, foreseen_ns, part_ns))
                if not isinstance(answer, list):
                    return answer
                offsets += answer
                appended_ns += part_ns
        finally:
            self._count_waiting(effect.connection, -left)
            self._order.charge(effect.connection, appended_ns - charged_ns)
        return offsets

    def read(self, position: int, spent_s: float) -> None:
        """Note that the log is folded below the offset `position`; let in the parts that fit now.

        Args:
            spent_s: the processor time of what was folded since the last call, in seconds.
        """
        self._position = position
        self._spent_ns += spent_s * 1e9
        while self._appended and self._appended[0][0] < position:
            _, part = self._appended.popleft()
            self._foreseen += part.foreseen_ns
            self._gone(part)
        if self._foreseen > MEASURED_NS:
            measured = min(1.0, max(LEAST_MEASURED, self._spent_ns / self._foreseen))
            self._spent_ns = self._foreseen = 0.0
            # What takes longer than it was foreseen counts at once, what takes less only after a while.
            self._measured += (measured - self._measured) * (1 if measured > self._measured else MEASURED_SHARE)
        self._let_in()

    async def _part(
        self, records: Sequence[Published], begin: int, costs: deque[int]
    ) -> tuple[Sequence[Published], int, int]:
        """Return the next records that may go together, and in ns what is foreseen, and for how long they count.

        Args:
            costs: the estimates of records from `begin` on: few, for each subscription changes the estimates.
        """
        known_ns = sum(costs) * self._measured
        while known_ns <= self._max_ns() and begin + len(costs) < len(records):
            if costs:
                await asyncio.sleep(0)
            estimated = self._foreseen_ns(_looked_at(records, begin + len(costs)))
            costs.extend(estimated)
            known_ns += sum(estimated) * self._measured
        # Looked at again: all others may have come meanwhile.
        most_ns, foreseen_ns, end = self._max_ns() / self._measured, 0, begin
        while costs and (end == begin or foreseen_ns + costs[0] <= most_ns):
            foreseen_ns += costs.popleft()
            end += 1
        return records[begin:end], foreseen_ns, int(foreseen_ns * self._measured)

    def _max_ns(self) -> float:
        """Return the ns that records which go together may take: few where they wait or others do."""
        return max(ADMISSION_BATCH_S * 1e9, 0 if self._waiting else ADMITTED_S * 1e9 - self._ns)

    async def _room_for(self, tag: float, part_ns: int) -> None:
        if not self._waiting and not self._is_late():
            self._order.advance(part_ns)
            self._ns += part_ns
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (tag, next(self._numbers), part_ns, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._ns -= part_ns
                self._let_in()
            raise

    def _let_in(self) -> None:
        while self._waiting and not self._is_late():
            _, _, part_ns, turn = heappop(self._waiting)
            if not turn.done():
                self._order.advance(part_ns)
                self._ns += part_ns
                turn.set_result(None)

    def _is_late(self) -> bool:
        return self._ns > ADMITTED_S * 1e9

    def _answered(self, answer: Any, part: _Part) -> None:
        if isinstance(answer, list) and answer and answer[-1] >= self._position:
            self._appended.append((answer[-1], part))
        else:
            self._gone(part)
            self._let_in()

    def _count_waiting(self, connection: int, size: int) -> None:
        self._waiting_total += size
        self._waiting_bytes[connection] += size
        if not self._waiting_bytes[connection]:
            del self._waiting_bytes[connection]

    def _gone(self, part: _Part) -> None:
        self._bytes -= part.size
        self._ns -= part.ns


def _looked_at(records: Sequence[Published], begin: int) -> list[bytes]:
    """Return the bodies of the next records that are estimated together."""
    bodies, size = [], 0
    for record in records[begin : begin + LOOKED_AT]:
        bodies.append(record.body)
        size += len(record.body)
        if size > LOOKED_AT_BYTES:
            break
    return bodies


def _size(record: Record) -> int:
    return len(record.body) + MESSAGE_BYTES if isinstance(record, Published) else 0
