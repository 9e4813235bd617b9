"""Waiting for what must come, and no longer than it may take."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from waypost.errors import Unreachable

TIMEOUT_S = 60.0
POLL_S = 0.02


async def until(true: Callable[[], bool], what: str, within_s: float = TIMEOUT_S) -> float:
    """Return after how many seconds it came true. Fails with `what` if it does not within the bound."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < within_s, f"not within {within_s:g} s: {what}"
        await asyncio.sleep(POLL_S)
    return time.monotonic() - began


async def assert_waiting(task: asyncio.Task[object], for_s: float) -> None:
    """Assert that the task neither ends nor fails for so long; say at once how it has."""
    done, _ = await asyncio.wait((task,), timeout=for_s)
    assert not done, task


async def until_seen(look: Callable[[], bool], what: str, within_s: float = TIMEOUT_S) -> None:
    """Return when `look`, which asks a process, has come true. Who does not answer has not been seen."""
    deadline = time.monotonic() + within_s
    while not await asyncio.to_thread(_seen, look):
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        await asyncio.sleep(POLL_S)


async def until_still(count: Callable[[], int], for_s: float = 1.0, within_s: float = TIMEOUT_S) -> int:
    """Return the count once it has not changed for so long: what was on its way has come."""
    began = changed = time.monotonic()
    last = count()
    while time.monotonic() < changed + for_s:
        assert time.monotonic() < began + within_s, f"still changing after {within_s:g} s"
        await asyncio.sleep(POLL_S)
        if count() != last:
            last, changed = count(), time.monotonic()
    return last


def _seen(look: Callable[[], bool]) -> bool:
    try:
        return look()
    except Unreachable:
        return False
