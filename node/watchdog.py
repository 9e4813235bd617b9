"""Watches that what must move does move: a loop that stands still without an error is seen here, and only here.

Each thing watched has a *place*, any value that changes with its progress, and is *pending* while it should move on.
What is pending and has not moved for its bound is stalled. The watchdog knows no ports; the node asks it every
:data:`INTERVAL_S` and tells the dependency's health what it finds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one thing is.

    Args:
        name: what it is, for operators: "log", "watch", "journal", "link from B".
        place: any value that is another one after progress.
        pending: it should move on.
        within_ms: how long it may stand still while it is pending.
        vital: without it the node serves nobody well, and is not ready.
    """

    name: str
    position: object
    pending: bool
    within_ms: int
    vital: bool = True


@dataclass(slots=True)
class _Watched:
    position: object
    since_ms: int


class Watchdog:
    """Remembers since when each thing stands where it is."""

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}
        self.stalled: dict[str, Progress] = {}
        """What stands still although it should move, by name, as of the last look."""

    def check(self, seen: Iterable[Progress], now_ms: int) -> list[Progress]:
        """Take what was seen; return what stands still. What is not seen any more is forgotten."""
        watched, self._watched = self._watched, {}
        self.stalled = {}
        for progress in seen:
            known = watched.get(progress.name)
            if known is None or not progress.pending or known.position != progress.position:
                known = _Watched(progress.position, now_ms)
            self._watched[progress.name] = known
            if now_ms - known.since_ms >= progress.within_ms:
                self.stalled[progress.name] = progress
        return list(self.stalled.values())

    def standing_ms(self, name: str, now_ms: int) -> int:
        """Return for how long it has not moved."""
        known = self._watched.get(name)
        return 0 if known is None else now_ms - known.since_ms

    @property
    def why_not_ready(self) -> str:
        """Which vital thing stands still, in words; empty: none."""
        names = [progress.name for progress in self.stalled.values() if progress.vital]
        return f"no progress of {', '.join(names)}" if names else ""
