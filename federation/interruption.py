"""Whether a handle of the log may append and read: not from a loss of its server on, until the log was looked at.

A log that has lost its end grows again. Whoever has read less than others have does not notice: what is appended then
is acknowledged at offsets that others take for repeats (handover rule 27).
"""

from __future__ import annotations

import asyncio

from waypost.errors import LogUnavailable


class Interruption:
    """Of one handle."""

    def __init__(self) -> None:
        self.applied_below = 0
        """Below this offset every record was read and taken in, or its append was answered."""
        self.yielded_below = 0
        """Below this offset every record was given to whoever reads."""
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._interrupted = asyncio.Event()
        self._closed = False
        self._never_ends = False
        """It was closed while one lasted: what waits for its end is not done any more."""

    @property
    def is_interrupted(self) -> bool:
        return not self._resumed.is_set()

    @property
    def seen_below(self) -> int:
        """Below this offset every record was given, or its append was answered."""
        return max(self.applied_below, self.yielded_below)

    def saw(self, below: int) -> None:
        """All below this offset was taken in, or answered."""
        self.applied_below = max(self.applied_below, below)

    def interrupt(self) -> None:
        if not self._closed:
            self._resumed.clear()
            self._interrupted.set()

    async def wait_interrupted(self) -> None:
        """Wait until one has begun, and not been asked for."""
        await self._interrupted.wait()
        self._interrupted.clear()

    def resume(self) -> None:
        """Go on, unless another one has begun since."""
        if not self._interrupted.is_set():
            self._resumed.set()

    async def wait_resumed(self) -> None:
        """Wait until none lasts. Raises LogUnavailable: it was closed before that."""
        await self._resumed.wait()
        if self._never_ends:
            raise LogUnavailable("this handle of the log is closed")

    def close(self) -> None:
        """Nobody waits any more."""
        self._closed = True
        self._never_ends = self._never_ends or self.is_interrupted
        self._resumed.set()
