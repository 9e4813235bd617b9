"""How fast one client may publish: a bucket that fills with time. Pure; who has to wait is simply not read any more."""

from __future__ import annotations


class Pace:
    """A bucket of `rate` notifications a second, that holds a second's worth. Rate 0: no bound."""

    def __init__(self, rate: float, now_s: float) -> None:
        self._rate = rate
        self._left = rate
        self._at_s = now_s

    def wait_s(self, count: int, now_s: float) -> float:
        """Take so many; return for how many seconds to take nothing more."""
        if not self._rate:
            return 0.0
        self._left = min(self._rate, self._left + (now_s - self._at_s) * self._rate) - count
        self._at_s = now_s
        return max(0.0, -self._left / self._rate)
