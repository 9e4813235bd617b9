"""Work of the loop in steps, between which others have their turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from waypost.limits import FOLD_SLICE_S


async def in_turns(steps: Iterable[None]) -> None:
    """Take the steps, and let others have their turn between some of them."""
    began = time.thread_time()
    for _ in steps:
        if time.thread_time() - began > FOLD_SLICE_S:
            await asyncio.sleep(0)
            began = time.thread_time()
