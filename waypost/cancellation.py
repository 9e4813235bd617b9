"""Tells a cancellation of the current task from one that a library let out.

A library may raise ``CancelledError`` although nobody cancelled the task that awaits it: aiokafka cancels tasks of its
own when it stops, gRPC cancels the calls of a channel that is closed. To asyncio both look alike: a task that lets such
an error out counts as cancelled, and a task group takes that for a normal end. So every adapter turns it into an error
of its port.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def is_requested() -> bool:
    """Whether somebody has asked the current task to end (``asyncio.timeout`` and task groups do it too)."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


@contextmanager
def translated(error: Callable[[BaseException], Exception]) -> Iterator[None]:
    """Raise `error(cancellation)` for a ``CancelledError`` that nobody asked the current task for."""
    try:
        yield
    except asyncio.CancelledError as cancellation:
        if is_requested():
            raise
        raise error(cancellation) from cancellation
