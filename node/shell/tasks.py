"""The tasks that a node starts and does not wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from node.health.rate_limited_log import RateLimitedLog

log = structlog.get_logger("waypost")


class Tasks:
    """Tasks of a node that end by themselves, or with the node. One that fails is seen in the log of the process."""

    def __init__(self, rate_limited: RateLimitedLog) -> None:
        self._rate_limited = rate_limited
        self._running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task; an exception that leaves it is logged."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)

    def log_failure(self, what: str, error: BaseException | None) -> None:
        """Log an error within the node, with its traceback; `what` says in words what failed."""
        self._rate_limited.write(log.error, what, exc_info=error)

    async def cancel(self) -> None:
        """Cancel the tasks that run, and wait for their end."""
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.log_failure("a task failed", task.exception())
