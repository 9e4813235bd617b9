"""The interruption of a handle of a log: after an outage of its server it neither appends nor reads until the log was
checked.

A log that has lost its end grows again. A proxy that has read less than others does not notice: what it appends then is
acknowledged at offsets that others drop as duplicates (handover rule 27).
"""

from __future__ import annotations

import asyncio

from waypost.errors import LogUnavailable


class Interruption:
    """The state of one handle."""

    def __init__(self) -> None:
        self.applied_below = 0
        """The offset below which every record was read and applied, or its append was answered."""
        self.yielded_below = 0
        """The offset below which every record was yielded to the reader."""
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._interrupted = asyncio.Event()
        self._closed = False
        self._never_ends = False
        """Whether it was closed while interrupted: calls that wait for the end fail."""

    @property
    def is_interrupted(self) -> bool:
        """Whether the handle may now neither append nor follow the log, because of an interruption; False also once it
        is closed.
        """
        return not self._resumed.is_set()

    @property
    def seen_below(self) -> int:
        """The offset below which every record was yielded, or its append was answered."""
        return max(self.applied_below, self.yielded_below)

    def saw(self, below: int) -> None:
        """Record that everything below the offset `below` was applied, or its append was answered; a lower one changes
        nothing.
        """
        self.applied_below = max(self.applied_below, below)

    def interrupt(self) -> None:
        """Begin an interruption, in which the handle neither appends nor follows the log; no effect on a closed one."""
        if not self._closed:
            self._resumed.clear()
            self._interrupted.set()

    async def wait_interrupted(self) -> None:
        """Wait for an interruption that was not reported yet, which may have begun already; each is reported once.

        Interruptions that begin before one is reported count as one. After :meth:`close` none begins any more, and the
        call may wait for ever.
        """
        await self._interrupted.wait()
        self._interrupted.clear()

    def resume(self) -> None:
        """End the interruption: the handle may append and follow the log again. No effect if another interruption, not
        reported yet, has begun since.
        """
        if not self._interrupted.is_set():
            self._resumed.set()

    async def wait_resumed(self) -> None:
        """Return once the handle is not interrupted; at once if it is not. Raises LogUnavailable: it was closed before
        that.
        """
        await self._resumed.wait()
        if self._never_ends:
            raise LogUnavailable("this handle of the log is closed")

    def close(self) -> None:
        """Close the handle: calls of :meth:`wait_resumed` end, with LogUnavailable if the handle is interrupted."""
        self._closed = True
        self._never_ends = self._never_ends or self.is_interrupted
        self._resumed.set()
