"""The postings of one attribute: the rows that a value of it hits. Rows are numbers, which the caller assigns.

=========  ==========================================================================================
key        found by
=========  ==========================================================================================
equality   a dictionary of values. Numbers of all types hash alike
prefix     a dictionary for each length in use
range      a dictionary of cells for each width class: a cell is as wide as the widest range of its class, so that a
           range lies in three cells at most, and a value in one
one bound  a list in the order of the bounds, cut where the value stands
presence   a list
=========  ==========================================================================================

A range is also hit by values near it, and a prefix by what has its first :data:`PREFIX` characters; all other keys are
hit exactly.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Iterable
from typing import TypeAlias, TypeVar, assert_never

from matching.needs import Key, Prefix, Present, Text, Within
from waypost.notification import Int64, Value

Posting: TypeAlias = "array[int]"
"""Numbers of rows, ascending."""
K = TypeVar("K", bound=Hashable)
L = TypeVar("L", bound=Hashable)
_NUMBERS = frozenset({int, Int64, float})
_FARTHEST_CELL = 2.0**50
PREFIX = 16
"""Characters of a prefix that are looked up."""


def is_sharp(key: Key) -> bool:
    """Tell whether only values that meet the key hit its rows. False: a long prefix or a range is also hit by other
    values, and the caller has to test each hit.
    """
    if isinstance(key, Prefix):
        return len(key.text) <= PREFIX
    return not isinstance(key, Within) or key.is_point or math.isinf(key.low) or math.isinf(key.high)


class _Bounds:
    """Rows in the order of their bounds, one each."""

    __slots__ = ("bounds", "rows")

    def __init__(self) -> None:
        self.bounds: list[float] = []
        self.rows: Posting = array("q")

    def put(self, bound: float, row: int) -> None:
        index = bisect_right(self.bounds, bound)
        self.bounds.insert(index, bound)
        self.rows.insert(index, row)

    def drop(self, bound: float, row: int) -> None:
        index = self.rows.index(row, bisect_left(self.bounds, bound))
        del self.bounds[index], self.rows[index]


class Attribute:
    """The postings of one attribute. The caller looks up `equal` itself, and calls :meth:`collect` for all others."""

    __slots__ = ("_above", "_below", "_cells", "_nan", "_prefixes", "_present", "equal", "more")

    def __init__(self) -> None:
        self.equal: dict[Value, Posting] = {}
        self.more = False
        """Whether :meth:`collect` may find anything."""
        self._prefixes: dict[int, dict[str, Posting]] = {}
        self._cells: dict[float, dict[int, Posting]] = {}
        """Rows by cell, by the number of cells to one."""
        self._above = _Bounds()
        self._below = _Bounds()
        self._nan: Posting = array("q")
        """Rows with a bound that NaN meets too."""
        self._present: Posting = array("q")

    def __bool__(self) -> bool:
        return self.more or bool(self.equal)

    def collect(self, value: Value, found: list[Posting]) -> None:
        """Append to `found` the postings that this value hits, except those of an equality, which the caller looks up
        in :attr:`equal`. There is something to find only if :attr:`more` is True.
        """
        if self._present:
            found.append(self._present)
        if type(value) is str:
            for length, table in self._prefixes.items():
                posting = table.get(value[:length])
                if posting is not None:
                    found.append(posting)
        elif type(value) in _NUMBERS:
            self._collect_number(float(value), found)

    def _collect_number(self, number: float, found: list[Posting]) -> None:
        if number != number:
            if self._nan:
                found.append(self._nan)
            return
        for scale, table in self._cells.items():
            position = number * scale
            if -_FARTHEST_CELL < position < _FARTHEST_CELL:
                posting = table.get(math.floor(position))
                if posting is not None:
                    found.append(posting)
        if self._above.bounds:
            end = bisect_right(self._above.bounds, number)
            if end:
                found.append(self._above.rows[:end])
        if self._below.bounds:
            start = bisect_left(self._below.bounds, number)
            if start < len(self._below.bounds):
                found.append(self._below.rows[start:])

    def size(self, key: Key) -> float:
        """Return about how many rows are found by this key already; of two keys of a kind the rarer is the better.

        The number is exact for equality and presence. That of a prefix counts all rows with the same first
        :data:`PREFIX` characters, that of a range the rows in the cell of its lower bound, and that of one bound all
        rows with a bound on that side.
        """
        match key:
            case Text(value=value):
                return len(self.equal.get(value, ()))
            case Within(low=low) if key.is_point:
                return len(self.equal.get(low, ()))
            case Prefix(text=text):
                return len(self._prefixes.get(min(len(text), PREFIX), {}).get(text[:PREFIX], ()))
            case Within(low=low, high=high) if key.is_range:
                scale = _scale(low, high)
                return len(self._cells.get(scale, {}).get(math.floor(low * scale), ()))
            case Within(low=low, high=high):
                return len(self._side(low, high)[0].bounds)
            case _:
                pass
        return len(self._present)

    def put(self, key: Key, row: int) -> None:
        """Add a row under a key of this attribute.

        Args:
            key: what a value has to meet to hit the row.
            row: its number, chosen by the caller; not under this key yet.
        """
        match key:
            case Text(value=value):
                insort(self.equal.setdefault(value, array("q")), row)
            case Within(low=low) if key.is_point:
                insort(self.equal.setdefault(low, array("q")), row)
            case Prefix(text=text):
                prefixes = self._prefixes.setdefault(min(len(text), PREFIX), {})
                insort(prefixes.setdefault(text[:PREFIX], array("q")), row)
            case Within(low=low, high=high) if key.is_range:
                scale = _scale(low, high)
                table = self._cells.setdefault(scale, {})
                for cell in _cells_of(low, high, scale):
                    insort(table.setdefault(cell, array("q")), row)
            case Within(low=low, high=high):
                bounds, bound = self._side(low, high)
                bounds.put(bound, row)
            case Present():
                insort(self._present, row)
            case _:
                assert_never(key)
        if isinstance(key, Within) and key.or_nan:
            insort(self._nan, row)
        self._note()

    def drop(self, key: Key, row: int) -> None:
        """Remove a row from under a key.

        Args:
            key: the key under which :meth:`put` has added the row.
            row: its number; it must be there.
        """
        match key:
            case Text(value=value):
                _drop(self.equal, value, row)
            case Within(low=low) if key.is_point:
                _drop(self.equal, low, row)
            case Prefix(text=text):
                _drop_from(self._prefixes, min(len(text), PREFIX), [text[:PREFIX]], row)
            case Within(low=low, high=high) if key.is_range:
                scale = _scale(low, high)
                _drop_from(self._cells, scale, _cells_of(low, high, scale), row)
            case Within(low=low, high=high):
                bounds, bound = self._side(low, high)
                bounds.drop(bound, row)
            case Present():
                del self._present[bisect_left(self._present, row)]
            case _:
                assert_never(key)
        if isinstance(key, Within) and key.or_nan:
            del self._nan[bisect_left(self._nan, row)]
        self._note()

    def _side(self, low: float, high: float) -> tuple[_Bounds, float]:
        """Return the list for a key with one bound, and that bound; a lower bound may be infinite itself."""
        return (self._above, low) if low > -math.inf else (self._below, high)

    def _note(self) -> None:
        bounded = self._above.bounds or self._below.bounds
        self.more = bool(self._prefixes or self._cells or bounded or self._present)


def _drop(table: dict[K, Posting], key: K, row: int) -> None:
    posting = table[key]
    del posting[bisect_left(posting, row)]
    if not posting:
        del table[key]


def _drop_from(tables: dict[L, dict[K, Posting]], group: L, keys: Iterable[K], row: int) -> None:
    table = tables[group]
    for key in keys:
        _drop(table, key, row)
    if not table:
        del tables[group]


def _scale(low: float, high: float) -> float:
    """Return how many cells there are to one: a power of four, such that a cell is no narrower than the range.

    Nor so narrow that bounds far from zero would fall into cells without number.
    """
    _, width = math.frexp(high - low)
    _, size = math.frexp(max(abs(low), abs(high)))
    exponent = max(width, size - 40, -1000)
    return math.ldexp(1.0, -(exponent + exponent % 2))


def _cells_of(low: float, high: float, scale: float) -> range:
    """Return the cells that a range touches. Scaling keeps the order, so a value between lies in one of them."""
    return range(math.floor(low * scale), math.floor(high * scale) + 1)
