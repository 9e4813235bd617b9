"""One question for all who ask it at the same time: a thousand activations want to know where the changelog ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedQuestion(Generic[T]):
    """A question to a server, asked once at a time.

    Args:
        question: asks it.
    """

    def __init__(self, question: Callable[[], Awaitable[T]]) -> None:
        self._question = question
        self._asked: asyncio.Task[T] | None = None
        """The one under way, or the last one."""
        self._next: asyncio.Task[T] | None = None
        """The one that begins when that is answered."""

    async def ask(self) -> T:
        """Return the answer to a question that begins after this call, shared by all who call before it begins.

        An error of the question is raised for each of them.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._ask_after(self._asked))
            # The caller that waited for it may have given up.
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._next)

    async def _ask_after(self, before: asyncio.Task[T] | None) -> T:
        if before is not None:
            await asyncio.wait((before,))
        self._asked, self._next = self._next, None
        return await self._question()

    async def close(self) -> None:
        """Cancel the question under way and the next one, and wait for their end; calls of :meth:`ask` are cancelled
        too.
        """
        tasks = [task for task in (self._asked, self._next) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
