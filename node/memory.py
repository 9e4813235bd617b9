"""Memory that is free again goes back to the system: the C library would keep it, in case that it is wanted soon."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from pathlib import Path

LOOK_S = 10.0
GROWN_BYTES = 16 * 1024**2
"""With no more than so much and a tenth above the least that there was, no look at the heap is worth its time.

What is in use at one look may be free at the next one without any growth in between, so the least is never raised: the
heap is looked at as long as there is more. That is cheap; it costs time for what is free, not for what is in use.
"""
STATM = Path("/proc/self/statm")


async def give_back(look_s: float = LOOK_S) -> None:
    """Give back what is free, each time after so many seconds, for ever; where the system does not know how, wait."""
    trim = _trimmer()
    lowest = resident_bytes()
    while True:
        await asyncio.sleep(look_s)
        now = resident_bytes()
        if trim is not None and now > lowest * 1.1 + GROWN_BYTES:
            await asyncio.to_thread(trim, 0)
        lowest = min(lowest, resident_bytes())


def resident_bytes() -> int:
    """Return how much memory this process has; 0: the system does not say."""
    try:
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _trimmer() -> Callable[[int], int] | None:
    """Return glibc's malloc_trim; other C libraries have none."""
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return trim
