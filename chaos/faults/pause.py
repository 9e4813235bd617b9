"""SIGSTOP of one process, and SIGCONT: a machine that is suspended. Its connections stay open."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Pausable(Protocol):
    """A process or a server."""

    def pause(self) -> None:
        """Freeze the process or server (SIGSTOP); its connections stay open."""

    def resume(self) -> None:
        """Let the process or server go on after a pause."""


class Pause:
    """Pauses and resumes one process."""

    def __init__(self, process: Pausable) -> None:
        self._process = process

    async def inject(self) -> None:
        """Freeze the process (SIGSTOP), if it runs; its connections stay open. Raises Unreachable: it does not stop."""
        await asyncio.to_thread(self._process.pause)

    async def heal(self) -> None:
        """Let the process go on after :meth:`inject`."""
        await asyncio.to_thread(self._process.resume)
