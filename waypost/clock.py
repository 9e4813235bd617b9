"""Time as a port, so that a simulator can own it; and the jitter of retries."""

from __future__ import annotations

import random
import time
from typing import Protocol

NEVER = 1 << 62
"""The deadline of something that is not due."""


class Clock(Protocol):
    """The port to time: monotonic milliseconds for decisions, Unix time for people."""

    def now_ms(self) -> int:
        """Return milliseconds of a clock that never steps; only differences have a meaning."""
        ...

    def unix_ms(self) -> int:
        """Return milliseconds of Unix time, for people and logs; never for decisions."""
        ...


class SystemClock:
    """The clock of the operating system."""

    def now_ms(self) -> int:
        """Return milliseconds of the monotonic clock."""
        return time.monotonic_ns() // 1_000_000

    def unix_ms(self) -> int:
        """Return Unix time in milliseconds."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock for tests, which :meth:`advance` moves."""

    def __init__(self, start_ms: int = 0) -> None:
        self.time_ms = start_ms

    def now_ms(self) -> int:
        """Return the time that was set, in milliseconds."""
        return self.time_ms

    def unix_ms(self) -> int:
        """Return the time that was set, in milliseconds, as :meth:`now_ms` does: the Unix time of this clock begins at
        0.
        """
        return self.time_ms

    def advance(self, milliseconds: int) -> None:
        """Move the clock forward."""
        self.time_ms += milliseconds


LEAST_WAIT_MS = 50


def full_jitter_ms(attempt: int, rng: random.Random, *, cap_ms: int = 5_000) -> int:
    """Return how long to wait before the next try, in ms: uniform in [least, min(cap, least * 2**attempt)], where the
    least is :data:`LEAST_WAIT_MS`.

    Args:
        attempt: failures so far, from 0.
        rng: the source of randomness.
        cap_ms: the bound of the longest wait.
    """
    return rng.randint(LEAST_WAIT_MS, max(LEAST_WAIT_MS, min(cap_ms, LEAST_WAIT_MS << min(attempt, 20))))
