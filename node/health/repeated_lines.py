"""Lines that libraries log again and again at somebody else's will: once in a while, with how many were left out."""

from __future__ import annotations

import logging
from collections.abc import Callable

EVERY_S = 10.0
"""Pause between two lines of one text, in seconds."""
REMEMBERED = 256
"""Texts that are remembered; past it, all are forgotten."""


class RepeatedLines(logging.Filter):
    """Passes the first line of a text, and another one EVERY_S later that says how many came in between.

    Args:
        now_s: returns a monotonic time in seconds.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        super().__init__()
        self._now_s = now_s
        self._since: dict[str, tuple[float, int]] = {}
        """Text -> when it was last passed, and how many were left out since."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether the line is written: not if one of the same text was written less than EVERY_S seconds ago; then
        it is counted. The count of lines left out before is added to the text of `record`.
        """
        text, now_s = record.getMessage(), self._now_s()
        last_s, left_out = self._since.get(text, (now_s - EVERY_S, 0))
        if now_s < last_s + EVERY_S:
            self._since[text] = (last_s, left_out + 1)
            return False
        if len(self._since) >= REMEMBERED:
            self._since.clear()
        self._since[text] = (now_s, 0)
        if left_out:
            record.msg, record.args = f"{text} ({left_out} more of them since the last line)", None
        return True
