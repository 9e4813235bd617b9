"""Long work on the event loop, in steps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from waypost.limits import FOLD_SLICE_S


async def in_turns(steps: Iterable[None]) -> None:
    """Iterate over the steps, and yield to the event loop after each FOLD_SLICE_S seconds of processor time.

    Args:
        steps: a lazy iterable; each item is a piece of work, done when it is asked for.
    """
    began = time.thread_time()
    for _ in steps:
        if time.thread_time() - began > FOLD_SLICE_S:
            await asyncio.sleep(0)
            began = time.thread_time()
