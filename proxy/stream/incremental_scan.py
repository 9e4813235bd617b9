"""A scan of many elements in batches: a walk over all of them at once would hold up everything else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class IncrementalScan(Generic[T]):
    """Goes through a changing collection, round after round. A round sees the elements that there were at its begin.

    Args:
        least: the least number of elements in a batch, as long as there are so many.
        rounds: the greatest number of batches in which all elements are seen once; None: each batch has `least`.
    """

    def __init__(self, least: int, rounds: int | None = None) -> None:
        self._least = least
        self._rounds = rounds
        self._left: list[T] = []
        self._max_items = least

    def next_batch(self, elements: Iterable[T]) -> list[T]:
        """Return the next batch; empty: there are no elements.

        Args:
            elements: all that there are now; they are looked at only when a new round begins.
        """
        if not self._left:
            self._left = list(elements)
            if self._rounds is not None:
                self._max_items = max(self._least, -(-len(self._left) // self._rounds))
        taken, self._left = self._left[: self._max_items], self._left[self._max_items :]
        return taken
