"""Looking after many things in turn, so many at a time: a walk over all of them would hold up everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class IncrementalScan(Generic[T]):
    """Goes round what there is. What comes or goes meanwhile is in the next round.

    Args:
        all_of_them: returns what there is now.
        least: so many at least are taken at a time.
        parts: all of them are taken in so many times at most.
    """

    def __init__(self, all_of_them: Callable[[], Iterable[T]], least: int, parts: int) -> None:
        self._all = all_of_them
        self._least = least
        self._parts = parts
        self._left: list[T] = []
        self._most = least

    def take(self) -> list[T]:
        """Return the next ones."""
        if not self._left:
            self._left = list(self._all())
            self._most = max(self._least, -(-len(self._left) // self._parts))
        taken, self._left = self._left[: self._most], self._left[self._most :]
        return taken
