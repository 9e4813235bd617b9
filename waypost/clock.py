"""Time and chance as ports, so that a simulator can own them."""

from __future__ import annotations

import random
import time
from typing import Protocol

NEVER = 1 << 62
"""The time of what is not due."""


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds on a clock that never steps; only differences mean anything."""
        ...

    def unix_ms(self) -> int:
        """Milliseconds since 1970, for people and logs; never for decisions."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        """Return milliseconds of the monotonic clock."""
        return time.monotonic_ns() // 1_000_000

    def unix_ms(self) -> int:
        """Return Unix time in milliseconds."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that moves when told to."""

    def __init__(self, start_ms: int = 0) -> None:
        self.time_ms = start_ms

    def now_ms(self) -> int:
        """Return the time that was set, in milliseconds."""
        return self.time_ms

    def unix_ms(self) -> int:
        """Return the same: Unix time begins with this clock."""
        return self.time_ms

    def advance(self, milliseconds: int) -> None:
        """Let time go on."""
        self.time_ms += milliseconds


def full_jitter_ms(attempt: int, rng: random.Random, *, base_ms: int = 50, cap_ms: int = 5_000) -> int:
    """Return how long to wait before the next try: uniform in [base, min(cap, base * 2**attempt)]."""
    return rng.randint(base_ms, max(base_ms, min(cap_ms, base_ms << min(attempt, 20))))
