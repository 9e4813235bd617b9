"""Watches the progress of loops: one that stands still without an error is seen here, and only here.

Each thing watched has a *position*, any value that changes with its progress, and is *pending* while it should move on.
One that is pending and has not moved for its bound is stalled. The watchdog knows no ports; the node asks it every
:data:`INTERVAL_S` seconds, and reports the stalled ones to :class:`node.health.dependency_health.DependencyHealth`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one watched thing is.

    Args:
        name: its name, for operators: "log", "watch", "journal", "link from B".
        position: any value that is another one after progress.
        pending: whether it should move on.
        within_ms: how long it may stand still while it is pending.
        vital: whether the node is not ready without it.
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
    """Remembers since when each thing has stood at its position."""

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}
        self.stalled: dict[str, Progress] = {}
        """What stands still although it is pending, by name, as of the last check."""

    def check(self, seen: Iterable[Progress], now_ms: int) -> list[Progress]:
        """Compare the watched things with the last check; return the stalled ones: pending, and not moved for
        `within_ms`.

        :attr:`stalled` has them by name from now on.

        Args:
            seen: all watched things as they are now; one that is not among them is forgotten.
            now_ms: by any monotonic clock, the same at each call.
        """
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
        """Return for how many ms the thing of that name has been pending and has not moved, as far as the checks saw
        it. For one that was not pending at the last check: the time since that check; 0 for one that is not watched.
        """
        known = self._watched.get(name)
        return 0 if known is None else now_ms - known.since_ms

    @property
    def why_not_ready(self) -> str:
        """The vital things that stood still at the last check, in words; empty: none."""
        names = [progress.name for progress in self.stalled.values() if progress.vital]
        return f"no progress of {', '.join(names)}" if names else ""
