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
    """Return whether a cancellation of the current task was requested (also by ``asyncio.timeout`` and task groups)."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


@contextmanager
def translated(error: Callable[[BaseException], Exception]) -> Iterator[None]:
    """Raise another error for a ``CancelledError`` that is no cancellation of the current task.

    Args:
        error: makes the error to be raised from the ``CancelledError``.
    """
    try:
        yield
    except asyncio.CancelledError as cancellation:
        if is_requested():
            raise
        raise error(cancellation) from cancellation
