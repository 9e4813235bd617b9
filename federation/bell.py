"""Wakes tasks that wait for something to change. A ring that comes just before the wait is not lost."""

from __future__ import annotations

import asyncio


class Bell:
    """Read `rung` before you look, look, and wait only if nothing was there:

        seen = bell.rung
        if not look():
            await bell.wait(seen)

    A ring between the look and the wait ends the wait at once. Belongs to one event loop at a time.
    """

    def __init__(self) -> None:
        self.rung = 0
        # A dict and not a set, so that waiters wake in the order in which they came, run after run.
        self._waiting: dict[asyncio.Future[None], None] = {}

    def ring(self) -> None:
        self.rung += 1
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, seen: int, timeout_s: float | None = None) -> None:
        """Return once the bell has rung after `seen` was read, or after `timeout_s`."""
        if self.rung != seen:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = None
        try:
            await asyncio.wait((waiter,), timeout=timeout_s)
        finally:
            self._waiting.pop(waiter, None)
