"""Cutting a sequence into frames that are bounded in number and in bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def batches(
    items: Sequence[Item], size: Callable[[Item], int], *, max_items: int, max_bytes: int
) -> Iterator[Sequence[Item]]:
    """Yield the items in order, in batches within both bounds; one that is too large by itself goes alone.

    Args:
        size: in what `most_bytes` counts: bytes, or something else that each item has some of.
    """
    for batch, _ in sized_batches(items, size, max_items=max_items, most_bytes=max_bytes):
        yield batch


def sized_batches(
    items: Sequence[Item], size: Callable[[Item], int], *, max_items: int, most_bytes: int
) -> Iterator[tuple[Sequence[Item], int]]:
    """Yield what :func:`batches` yields, each with its size."""
    begin, total = 0, 0
    for index, item in enumerate(items):
        own = size(item)
        if index > begin and (index - begin >= max_items or total + own > most_bytes):
            yield items[begin:index], total
            begin, total = index, 0
        total += own
    if begin < len(items):
        yield items[begin:], total
