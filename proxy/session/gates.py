"""The gates of one session, and the frontier that follows from them.

A live match is stored at once, unless the session has not caught up with its origin yet: then it waits behind that
origin's gate (handover/gate.py) until what is missing was fetched. So the session's frontier is the site's, except for
gated origins, where it is what was seen of them, and for those of which a handover or a catch-up brought more than the
site's log has brought here (:attr:`Gates.seen_beyond_log`).
"""

from __future__ import annotations

from collections.abc import Mapping

from handover.gate import Gate
from proxy.session.stored_notification import StoredNotification
from proxy.session.subscription import Matched
from waypost.frontier import join
from waypost.identity import NOTHING, Origin

SessionGate = Gate[tuple[StoredNotification, Matched]]


class Gates(dict[Origin, SessionGate]):
    """The closed gates of a session, by origin, and what it has seen of origins beyond the site's log."""

    def __init__(self) -> None:
        super().__init__()
        self.seen_beyond_log: dict[Origin, int] = {}
        """By origin, an offset seen; it counts where it is above what the log of the site brings here."""

    def close(self, origin: Origin, seen: int | None, live_from: int | None = None) -> SessionGate:
        """Close a gate for an origin, and return it; it takes the place of any gate that the origin has, and matches
        that waited there are dropped: they come by catch-up.

        Args:
            seen: the last offset that the session has seen; None: not known, as of a shadow.
            live_from: the offset above which live matches come, and wait; None: above `seen`.
        """
        if live_from is None:
            live_from = NOTHING if seen is None else seen
        gate = self[origin] = Gate(seen, live_from)
        return gate

    def close_all(self, site: Mapping[Origin, int], *, seen: Mapping[Origin, int] | None) -> None:
        """Close a gate for every origin of `site` and `seen`, as :meth:`close` does.

        Args:
            site: the frontier of the site log, as read here.
            seen: the frontier up to which the session has all; None: not known (a shadow).
        """
        for origin in {**site, **(seen or {})}:
            self.close(origin, None if seen is None else seen.get(origin), site.get(origin, NOTHING))

    def frontier(self, site: Mapping[Origin, int]) -> dict[Origin, int]:
        """Return the frontier up to which the session has taken what it matched.

        Args:
            site: the frontier of the site log, as read here. The session's own differs from it for gated origins, and
                for those of which it has seen more; origins of which that is not known (a shadow) are left out.
        """
        seen = join(dict(site), self.seen_beyond_log)
        for origin, gate in self.items():
            if gate.seen is None:
                seen.pop(origin, None)
            else:
                seen[origin] = gate.seen
        return seen

    def seen_apart(self, site: Mapping[Origin, int]) -> dict[Origin, int | None]:
        """Return origin -> the last offset seen, of the origins where the session differs from the site's frontier.

        None: not known (a shadow). The store keeps these offsets; a restored session has all of these origins gated
        there.

        Args:
            site: the frontier of the site log, as read here.
        """
        further = {origin: seen for origin, seen in self.seen_beyond_log.items() if seen > site.get(origin, NOTHING)}
        return further | {origin: gate.seen for origin, gate in self.items()}
