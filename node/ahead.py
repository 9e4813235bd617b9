"""What this proxy appends, until it has read it of the log again: so much does what others publish wait behind.

What takes long to be matched is appended in parts, and each part waits until there is room for it. Whoever has cost
the least lately goes first: a frame of a thousand such notifications does not stand before what others publish
meanwhile, however many connections send them.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any

from waypost.identity import Incarnation
from waypost.limits import AHEAD_BYTES, AHEAD_PART_S, AHEAD_S
from waypost.records import Published, Record

Records = Sequence[Record]
AppendPart = Callable[[Records], Awaitable[Any]]
"""Appends records; returns their offsets, or an error."""
Life = tuple[str, Incarnation]
"""A producer and its incarnation."""
REMEMBERED = 1_000
"""Lives of producers of which it is known what they cost; the longest ago go first."""
LOOKED_AT = 64
"""Notifications of which it is foreseen in one go what they cost."""
HALF_LIFE_S = 1.0
"""After so long, half of what one cost counts."""


class Spent:
    """What each life of a producer has cost lately."""

    def __init__(self) -> None:
        self._of: dict[Life, tuple[float, float]] = {}

    def add(self, life: Life, cost: float, now_s: float) -> float:
        """Add a cost; return what it has cost with that."""
        before, at_s = self._of.pop(life, (0.0, now_s))
        spent = before * math.exp2((at_s - now_s) / HALF_LIFE_S) + cost
        self._of[life] = spent, now_s
        if len(self._of) > REMEMBERED:
            del self._of[next(iter(self._of))]
        return spent


class Ahead:
    """Notifications that are on their way to the log, or lie in it beyond what was read.

    Args:
        foreseen_ns: returns for each body what it may take to be matched, in nanoseconds.
    """

    def __init__(self, foreseen_ns: Callable[[Sequence[bytes]], list[int]]) -> None:
        self._foreseen_ns = foreseen_ns
        self._bytes = self._ns = 0
        self._position = 0
        self._appended: deque[tuple[int, int, int]] = deque()
        """The last offset, the bytes and the nanoseconds of each append, as they were answered."""
        self._spent = Spent()
        self._numbers = count()
        self._waiting: list[tuple[float, int, int, asyncio.Future[None]]] = []
        """Parts for which there is no room: what their life has cost, a number, their cost, and who waits."""

    @property
    def is_large(self) -> bool:
        """Tell whether so many bytes are ahead that nobody is to publish more."""
        return self._bytes > AHEAD_BYTES

    @property
    def waiting(self) -> int:
        """How many of the appends wait for room."""
        return len(self._waiting)

    def wanted(self, records: Records) -> None:
        """These are going to be appended."""
        self._bytes += sum(map(_size, records))

    async def append(self, records: Records, append: AppendPart) -> Any:
        """Append what is :meth:`wanted`, in parts if it takes long; return the offsets, or the first part's error.

        What stands before a part that failed is in the log then.
        """
        published = [record for record in records if isinstance(record, Published)]
        if len(published) < len(records) or not published:
            # What the proxy itself has to say waits for nobody.
            try:
                return await append(records)
            finally:
                self._bytes -= sum(map(_size, published))
        life = published[0].producer, published[0].incarnation
        left = sum(map(_size, published))
        offsets: list[int] = []
        try:
            while len(offsets) < len(published):
                part, part_ns = self._part(published, len(offsets))
                await self._room_for(life, part_ns)
                size = sum(map(_size, part))
                left -= size
                answer = None
                try:
                    answer = await append(part)
                finally:
                    self._answered(answer, size, part_ns)
                if not isinstance(answer, list):
                    return answer
                offsets += answer
        finally:
            self._bytes -= left
        return offsets

    def read(self, position: int) -> None:
        """The log was read up to there."""
        self._position = position
        while self._appended and self._appended[0][0] < position:
            self._gone(*self._appended.popleft()[1:])
        self._let_in()

    def _part(self, records: Sequence[Published], begin: int) -> tuple[Sequence[Published], int]:
        """Return the next ones that may go together, and what they may take: that may have changed since the last."""
        end, part_ns = begin, 0
        most_ns = max(AHEAD_PART_S * 1e9, 0 if self._waiting else AHEAD_S * 1e9 - self._ns)
        while end < len(records):
            for cost_ns in self._foreseen_ns([each.body for each in records[end : end + LOOKED_AT]]):
                if end > begin and part_ns + cost_ns > most_ns:
                    return records[begin:end], part_ns
                end, part_ns = end + 1, part_ns + cost_ns
        return records[begin:], part_ns

    async def _room_for(self, life: Life, part_ns: int) -> None:
        loop = asyncio.get_running_loop()
        spent = self._spent.add(life, part_ns, loop.time())
        if not self._waiting and not self._is_late():
            self._ns += part_ns
            return
        turn: asyncio.Future[None] = loop.create_future()
        heappush(self._waiting, (spent, next(self._numbers), part_ns, turn))
        await turn

    def _let_in(self) -> None:
        while self._waiting and not self._is_late():
            _, _, part_ns, turn = heappop(self._waiting)
            if not turn.done():
                self._ns += part_ns
                turn.set_result(None)

    def _is_late(self) -> bool:
        return self._ns > AHEAD_S * 1e9

    def _answered(self, answer: Any, size: int, ns: int) -> None:
        if isinstance(answer, list) and answer and answer[-1] >= self._position:
            self._appended.append((answer[-1], size, ns))
        else:
            self._gone(size, ns)
            self._let_in()

    def _gone(self, size: int, ns: int) -> None:
        self._bytes -= size
        self._ns -= ns


def _size(record: Record) -> int:
    return len(record.body) if isinstance(record, Published) else 0
