"""Cutting of a sequence into batches that are bounded in count and in size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def batches(
    items: Sequence[Item], size: Callable[[Item], int], *, max_items: int, max_bytes: int
) -> Iterator[Sequence[Item]]:
    """Yield the items in order, in batches within both bounds; an item that is too large goes alone.

    Args:
        items: to be cut.
        size: of an item, in the unit of `max_bytes`: bytes, or another measure.
        max_items: of one batch.
        max_bytes: the sum of the sizes in one batch.
    """
    for batch, _ in sized_batches(items, size, max_items=max_items, most_bytes=max_bytes):
        yield batch


def sized_batches(
    items: Sequence[Item], size: Callable[[Item], int], *, max_items: int, most_bytes: int
) -> Iterator[tuple[Sequence[Item], int]]:
    """Yield the items in order, in batches as those of :func:`batches`, each with the sum of its sizes.

    Args:
        items: to be cut.
        size: returns the size of an item, in the unit of `most_bytes`.
        max_items: the most items in one batch.
        most_bytes: the largest sum of the sizes in one batch; an item that is larger goes alone.
    """
    begin, total = 0, 0
    for index, item in enumerate(items):
        own = size(item)
        if index > begin and (index - begin >= max_items or total + own > most_bytes):
            yield items[begin:index], total
            begin, total = index, 0
        total += own
    if begin < len(items):
        yield items[begin:], total
