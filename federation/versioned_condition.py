"""A condition with a version. A notification that comes just before the wait is not lost."""

from __future__ import annotations

import asyncio


class VersionedCondition:
    """Wakes tasks that wait for a change. Read `version`, look for what you need, and wait only if it is not there.

        seen = condition.version
        if not look():
            await condition.wait(seen)

    A notification between the look and the wait ends the wait at once. It belongs to one event loop at a time.
    """

    def __init__(self) -> None:
        self.version = 0
        # A dict and not a set, so that waiters wake in the order in which they came, run after run.
        self._waiting: dict[asyncio.Future[None], None] = {}

    def notify(self) -> None:
        """Increase `version`, and wake every task that is in :meth:`wait`."""
        self.version += 1
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, seen: int, timeout_s: float | None = None) -> None:
        """Return once `version` differs from `seen`, or after `timeout_s` seconds; None: no time limit.

        Nothing tells which of the two it was, except `version` itself.

        Args:
            seen: `version`, as the caller read it before it looked for what it waits for.
            timeout_s: the longest time to wait.
        """
        if self.version != seen:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = None
        try:
            await asyncio.wait((waiter,), timeout=timeout_s)
        finally:
            self._waiting.pop(waiter, None)
