"""Telling a cancellation of the current task from one that a library leaked.

A library may raise ``CancelledError`` although the task that awaits it was not cancelled: aiokafka cancels tasks of its
own when it stops, gRPC cancels the calls of a channel that is closed. asyncio cannot tell them apart: a task that lets
such an error out counts as cancelled, and a task group takes that for a normal end. So every adapter turns it into an
error of its port.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def is_requested() -> bool:
    """Return whether a cancellation of the current task was requested (also by ``asyncio.timeout`` and task groups);
    False: not, or no task runs. Call it on an event loop.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


@contextmanager
def translated(error: Callable[[BaseException], Exception]) -> Iterator[None]:
    """Return a context that raises another error in the place of a ``CancelledError`` of its block, unless a
    cancellation of the current task was requested.

    Args:
        error: called with the ``CancelledError``, returns the error to be raised from it.
    """
    try:
        yield
    except asyncio.CancelledError as cancellation:
        if is_requested():
            raise
        raise error(cancellation) from cancellation
