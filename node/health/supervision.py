"""Loops that run for as long as the node does: one that ends unasked ends the node, with a log line.

A task group takes a task that was cancelled for one that ended as it should, whoever cancelled it. So the end of each
loop is checked here.
"""

from __future__ import annotations

from collections.abc import Awaitable

from waypost import cancellation
from waypost.errors import Internal


async def endless(name: str, loop: Awaitable[object]) -> None:
    """Await a loop that is to run until this task is cancelled.

    Args:
        name: of the loop, for the error.

    Raises:
        Internal: the loop returned, or a library cancelled it from within.
        Exception: as raised in the loop.
    """
    with cancellation.translated(lambda _: Internal(f"the loop {name!r} was cancelled, and nobody had asked for it")):
        await loop
    raise Internal(f"the loop {name!r} has ended, and nobody had asked for it")
