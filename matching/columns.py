"""The bounds of all rows as columns, so that many rows are compared at once.

A row has room for :data:`WIDTH` conditions: a slot, and the bounds of its number. Each indexed attribute has two slots,
one for its number and one for its string, as the number of the literal that it equals. The slot of the other type is
NaN, which is within no bounds; an unused condition refers to slot 0, which is always zero. Integers are rounded to
doubles; `matching.needs` makes bounds only of literals where that changes no result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy
from numpy.typing import NDArray

from matching.needs import Text, Within
from matching.postings import Posting
from waypost.notification import Int64, Value

WIDTH = 2
_NUMBERS = frozenset({int, Int64, float})
_FIRST_ROWS = 64

Condition = Text | Within


class _Numbering:
    """Numbers from 0 for the names in use; a number that is no longer used is assigned again."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._uses: dict[str, int] = {}
        self._free: list[int] = []

    def take(self, name: str) -> int:
        self._uses[name] = self._uses.get(name, 0) + 1
        if name not in self.numbers:
            self.numbers[name] = self._free.pop() if self._free else len(self.numbers)
        return self.numbers[name]

    def drop(self, name: str) -> None:
        self._uses[name] -= 1
        if not self._uses[name]:
            del self._uses[name]
            self._free.append(self.numbers.pop(name))


class _Slot:
    """One condition of each row: its slot and its bounds."""

    def __init__(self) -> None:
        self.slots: NDArray[numpy.int64] = numpy.zeros(_FIRST_ROWS, dtype=numpy.int64)
        self.low: NDArray[numpy.float64] = numpy.full(_FIRST_ROWS, -math.inf)
        self.high: NDArray[numpy.float64] = numpy.full(_FIRST_ROWS, math.inf)

    def put(self, row: int, slot: int = 0, low: float = -math.inf, high: float = math.inf) -> None:
        self.slots[row], self.low[row], self.high[row] = slot, low, high

    def grow(self) -> None:
        more = len(self.slots)
        self.slots = numpy.concatenate([self.slots, numpy.zeros(more, dtype=numpy.int64)])
        self.low = numpy.concatenate([self.low, numpy.full(more, -math.inf)])
        self.high = numpy.concatenate([self.high, numpy.full(more, math.inf)])


class Columns:
    """The conditions and the marks of all rows, as arrays."""

    def __init__(self) -> None:
        self._names = _Numbering()
        self._texts = _Numbering()
        self._values: NDArray[numpy.float64] = numpy.full(1, 0.0)
        self._slots = [_Slot() for _ in range(WIDTH)]
        self._marks: NDArray[numpy.bool_] = numpy.zeros(_FIRST_ROWS, dtype=numpy.bool_)

    def put(self, row: int, conditions: Sequence[Condition], *, marked: bool) -> None:
        """Set the conditions of a row that has none, and its mark.

        Args:
            row: its number: the next one from 0, or that of a row that was dropped.
            conditions: at most :data:`WIDTH`.
            marked: rows with and without a mark are returned apart by :meth:`passing`.
        """
        if row >= len(self._marks):
            self._marks = numpy.concatenate([self._marks, numpy.zeros(len(self._marks), dtype=numpy.bool_)])
            for column in self._slots:
                column.grow()
        self._marks[row] = marked
        for column, condition in zip(self._slots, conditions, strict=False):
            slot = 1 + 2 * self._names.take(condition.name)
            if slot + 2 > len(self._values):
                self._values = numpy.concatenate([self._values, numpy.full(len(self._values) + 2, math.nan)])
            if isinstance(condition, Text):
                number = self._texts.take(condition.value)
                column.put(row, slot + 1, number, number)
            else:
                column.put(row, slot, condition.low, condition.high)

    def drop(self, row: int, conditions: Sequence[Condition]) -> None:
        """Remove the conditions of a row; the row counts as meeting all conditions until the next :meth:`put`.

        Args:
            row: its number.
            conditions: the same that :meth:`put` got for the row.
        """
        for column, condition in zip(self._slots, conditions, strict=False):
            self._names.drop(condition.name)
            if isinstance(condition, Text):
                self._texts.drop(condition.value)
            column.put(row)

    def passing(
        self, postings: Sequence[Posting], attributes: Mapping[str, Value]
    ) -> tuple[list[int], list[int]] | None:
        """Return those rows of the postings whose conditions hold for a notification. A row in several postings is
        returned as often.

        Args:
            postings: the numbers of the candidate rows; at least one posting.
            attributes: of the notification.

        Returns:
            (rows without a mark, rows with a mark). None: an indexed attribute is NaN, for which the bounds may be
            wrong; the caller tests the rows one by one.
        """
        read = self._read(attributes)
        if read is None:
            return None
        rows: NDArray[numpy.int64] = numpy.frombuffer(b"".join(postings), dtype=numpy.int64)
        slots = numpy.array(read[0], dtype=numpy.int64)
        self._values[slots] = read[1]
        for column in self._slots:
            value = self._values[column.slots[rows]]
            rows = rows[(value >= column.low[rows]) & (value <= column.high[rows])]
        self._values[slots] = math.nan
        marks = self._marks[rows]
        marked = rows[marks].tolist()
        return (rows[~marks] if marked else rows).tolist(), marked

    def _read(self, attributes: Mapping[str, Value]) -> tuple[list[int], list[float]] | None:
        slots: list[int] = []
        values: list[float] = []
        names, texts = self._names.numbers, self._texts.numbers
        for name, value in attributes.items():
            number = names.get(name)
            if number is None:
                continue
            kind = type(value)
            if kind is str:
                text = texts.get(value)  # type: ignore[arg-type]
                if text is not None:
                    slots.append(2 * number + 2)
                    values.append(text)
            elif kind in _NUMBERS:
                if value != value:
                    return None
                slots.append(2 * number + 1)
                values.append(value)  # type: ignore[arg-type]
        return slots, values


class Weights:
    """The costs of rows: one for each row, and one for each entry, which counts once for all its rows."""

    def __init__(self) -> None:
        self._first: NDArray[numpy.int64] = numpy.zeros(_FIRST_ROWS, dtype=numpy.int64)
        """The first row of each row's entry."""
        self._each: NDArray[numpy.float64] = numpy.zeros(_FIRST_ROWS)
        """The cost of each row."""
        self._once: NDArray[numpy.float64] = numpy.zeros(_FIRST_ROWS)
        """The cost of each entry, at its first row."""
        self._total_each = self._total_once = 0.0

    def max(self, factor: float) -> float:
        """Return the cost of all rows, in nanoseconds, with the costs of the entries multiplied by `factor`.

        It is an upper bound of :meth:`of`.
        """
        return self._total_each + factor * self._total_once

    def set(self, rows: Sequence[int], each: float, once: float) -> None:
        """Set the costs of one entry. A row that was never set has none.

        Args:
            rows: the indices of the rows of one indexed expression.
            each: the cost of testing all of these rows, in ns.
            once: the cost that is paid once, whichever of the rows are tested, in ns.
        """
        if not rows:
            return
        while max(rows) >= len(self._first):
            self._first = numpy.concatenate([self._first, numpy.zeros_like(self._first)])
            self._each = numpy.concatenate([self._each, numpy.zeros_like(self._each)])
            self._once = numpy.concatenate([self._once, numpy.zeros_like(self._once)])
        first, each_row = rows[0], each / len(rows)
        self._total_once += once - self._once.item(first)
        self._once[first] = once
        # One at a time: an entry has few rows, mostly one, and numpy takes longer to begin than for all of them.
        for row in rows:
            self._total_each += each_row - self._each.item(row)
            self._first[row], self._each[row] = first, each_row

    def of(self, postings: Sequence[Posting], factor: float, *, repeating: bool) -> float:
        """Return the estimated time to evaluate what these postings hit, in nanoseconds; 0 if no row has a cost.

        Args:
            postings: the rows that are hit.
            factor: how much longer an entry takes than with a small notification; what a row costs stays the same.
            repeating: whether several rows of one entry may be among them, or one row several times. False: the cost of
                an entry is not made to count once.
        """
        if not postings or not self.max(1):
            return 0.0
        rows: NDArray[numpy.int64] = numpy.frombuffer(b"".join(postings), dtype=numpy.int64)
        rows = rows[rows < len(self._first)]
        if repeating:
            rows = numpy.unique(rows)
        first = self._first[rows]
        once = self._once[numpy.unique(first) if repeating else first].sum()
        return float(self._each[rows].sum() + factor * once)
