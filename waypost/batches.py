"""Cutting a sequence into frames that are bounded in number and in bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def batches(
    items: Sequence[Item], size: Callable[[Item], int], *, most: int, most_bytes: int
) -> Iterator[Sequence[Item]]:
    """Yield the items in order, in batches within both bounds; one that is too large by itself goes alone."""
    begin, total = 0, 0
    for index, item in enumerate(items):
        total += size(item)
        if index > begin and (index - begin >= most or total > most_bytes):
            yield items[begin:index]
            begin, total = index, size(item)
    if begin < len(items):
        yield items[begin:]
