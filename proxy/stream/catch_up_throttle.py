"""How much history is asked for at one time: of each site a few pieces, and less often while it does not answer.

After a fault a thousand sessions may miss something of one site. Asked for all at once, the site answers most of them
too late, for somebody who has asked again by then, and gets nowhere (P6). So the others wait in line.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.session.session import Session
from waypost.clock import NEVER
from waypost.identity import Origin, SessionId, SiteId
from waypost.limits import CATCH_UP_MAX_PAUSE_MS, CATCH_UPS_AT_ONCE

Piece = tuple[SessionId, Origin]


@dataclass(slots=True)
class _Slot:
    under_way: int = 0
    failures: int = 0
    again_at: int = 0
    waiting: dict[Piece, Session] = field(default_factory=dict)
    """The first to come first."""


class CatchUpThrottle:
    """The catch-ups under way at each site, and the line of those that wait. `now_ms` is of the engine's clock.

    Args:
        pause_ms: the pause after a first failure of a site; it doubles up to CATCH_UP_MAX_PAUSE_MS.
    """

    def __init__(self, pause_ms: int) -> None:
        self._pause_ms = pause_ms
        self._lines: dict[SiteId, _Slot] = {}

    def begin(self, site: SiteId, session: Session, origin: Origin, now_ms: int) -> bool:
        """Count a catch-up as under way if its site has room for it now; otherwise put it in line.

        Args:
            site: the site that is asked.
            session: the session that catches up.
            origin: the origin that the session catches up with.
            now_ms: by the engine's clock.

        Returns:
            False: the catch-up waits in line until :meth:`try_start` returns its session.
        """
        line = self._lines.setdefault(site, _Slot())
        piece = (session.id, origin)
        if line.under_way >= CATCH_UPS_AT_ONCE or now_ms < line.again_at:
            line.waiting[piece] = session
            return False
        line.waiting.pop(piece, None)
        line.under_way += 1
        return True

    def ended(self, site: SiteId, now_ms: int, *, well: bool) -> None:
        """Count a catch-up of a site as ended. Call it once for each catch-up for which :meth:`begin` returned True.

        Args:
            now_ms: by the engine's clock.
            well: whether the site has answered; if not, no other catch-up of it begins before a pause, which doubles.
        """
        line = self._lines[site]
        line.under_way -= 1
        if well:
            line.failures = line.again_at = 0
        else:
            line.failures = min(line.failures + 1, 10)
            line.again_at = now_ms + min(self._pause_ms << (line.failures - 1), CATCH_UP_MAX_PAUSE_MS)

    def try_start(self, now_ms: int) -> list[Session]:
        """Remove the catch-ups from the lines for which there is room now, and return their sessions.

        A session comes once for each origin that it waited for. The caller calls :meth:`begin` again for what it
        misses.

        Args:
            now_ms: by the engine's clock.
        """
        due = []
        for line in self._lines.values():
            room = CATCH_UPS_AT_ONCE - line.under_way if now_ms >= line.again_at else 0
            for piece in list(line.waiting)[: max(0, room)]:
                due.append(line.waiting.pop(piece))
        return due

    def next_deadline(self) -> int:
        """Return when :meth:`try_start` is due, in ms of the engine's clock; NEVER: not before a catch-up ends."""
        due = NEVER
        for line in self._lines.values():
            if line.waiting and line.under_way < CATCH_UPS_AT_ONCE:
                due = min(due, line.again_at)
        return due
