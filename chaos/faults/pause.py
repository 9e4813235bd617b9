"""SIGSTOP of one process, and SIGCONT: a machine that is suspended. Its connections stay open."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Pausable(Protocol):
    """A process or a server."""

    def pause(self) -> None:
        """Stop the process where it is."""

    def resume(self) -> None:
        """Let the process go on."""


class Pause:
    """Pauses and resumes one process."""

    def __init__(self, process: Pausable) -> None:
        self._process = process

    async def inject(self) -> None:
        """Stop the process where it is."""
        await asyncio.to_thread(self._process.pause)

    async def heal(self) -> None:
        """Let the process go on."""
        await asyncio.to_thread(self._process.resume)
