"""Lines of our own log of which there may be many alike: a few of them are written, and then their number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from waypost.clock import Clock
from waypost.limits import LOG_LINES_ALIKE, LOG_LINES_MS


class RateLimitedLog:
    """Writes at most LOG_LINES_ALIKE lines of each event and kind in LOG_LINES_MS, then how many more there were."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kinds: dict[object, _Kind] = {}

    def write(self, method: Callable[..., Any], event: str, kind: object = None, **fields: object) -> None:
        """Write a line, unless LOG_LINES_ALIKE lines of its event and kind were written within LOG_LINES_MS; then count
        it.

        Args:
            method: the logger's method, which gives the level.
            event: the text of the line.
            kind: what is counted apart within the event; any hashable value.
            fields: of the line.
        """
        self.report_suppressed()
        known = self._kinds.setdefault((event, kind), _Kind(method, event, self._clock.now_ms()))
        known.count += 1
        if known.count <= LOG_LINES_ALIKE:
            method(event, **fields)

    def report_suppressed(self, *, at_once: bool = False) -> None:
        """Write how many lines of each kind were suppressed, once LOG_LINES_MS are over, or now with `at_once`.

        Call it now and then: otherwise only the next :meth:`write` writes the counts.
        """
        if not self._kinds:
            return
        over_ms = self._clock.now_ms() - LOG_LINES_MS
        for kind, known in list(self._kinds.items()):
            if at_once or known.began_ms <= over_ms:
                del self._kinds[kind]
                if known.count > LOG_LINES_ALIKE:
                    known.write(f"{known.event}, more of the same", count=known.count - LOG_LINES_ALIKE)


@dataclass(slots=True)
class _Kind:
    write: Callable[..., Any]
    event: str
    began_ms: int
    count: int = 0
