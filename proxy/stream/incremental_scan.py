"""Looking after many things in turn, so many at a time: a walk over all of them would hold up everything else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class IncrementalScan(Generic[T]):
    """Goes round what there is. What comes or goes meanwhile is in the next round.

    Args:
        least: so many at least are taken at a time.
        parts: all of them are taken in so many times at most.
    """

    def __init__(self, least: int, rounds: int) -> None:
        self._least = least
        self._rounds = rounds
        self._left: list[T] = []
        self._max_items = least

    def next_batch(self, elements: Iterable[T]) -> list[T]:
        """Return the next ones; `elements` are what there is now, from which a new round begins."""
        if not self._left:
            self._left = list(elements)
            self._max_items = max(self._least, -(-len(self._left) // self._rounds))
        taken, self._left = self._left[: self._max_items], self._left[self._max_items :]
        return taken
