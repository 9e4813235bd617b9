"""What this proxy appends, until it has read it of the log again: so much does what others publish wait behind."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from waypost.records import Published, Record


class Ahead:
    """Notifications that are on their way to the log, or lie in it beyond what was read, and their bytes."""

    def __init__(self) -> None:
        self.bytes = self.count = 0
        self._appended: deque[tuple[int, int, int]] = deque()
        """The last offset, the bytes and the notifications of each append, as they were answered."""

    def begin(self, records: Sequence[Record]) -> None:
        """These go to the log."""
        self.bytes += _size(records)
        self.count += _count(records)

    def done(self, records: Sequence[Record], answer: Any, position: int) -> None:
        """The log has answered with their offsets, or an error."""
        size, count = _size(records), _count(records)
        if isinstance(answer, list) and answer and answer[-1] >= position:
            self._appended.append((answer[-1], size, count))
        else:
            self.bytes -= size
            self.count -= count

    def read(self, position: int) -> None:
        """The log was read up to there."""
        while self._appended and self._appended[0][0] < position:
            _, size, count = self._appended.popleft()
            self.bytes -= size
            self.count -= count


def _count(records: Sequence[Record]) -> int:
    return sum(isinstance(record, Published) for record in records)


def _size(records: Sequence[Record]) -> int:
    return sum(len(record.body) for record in records if isinstance(record, Published))
