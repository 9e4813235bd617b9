"""When operators may forget a site: no session has its last checkpoint there alone. Pure.

The proxies of the site are gone, and each session has an owner that runs, at another site. As long as its changelog
answers, an owner writes a checkpoint of each of its sessions at its own site within a second of taking it. So when a
session has had one owner for a while, it has a checkpoint elsewhere, and each later owner had that one to begin from.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from waypost.identity import Ownership, ProxyId, SessionId

OWNED_MS = 5_000
"""Time after which an owner has written a checkpoint of a session that it took, if its changelog answers, in ms."""
LOOK_MS = 500
"""The interval at which the registry's rows are looked at, in ms."""


class OwnershipStability:
    """Tells whether every session that there was at first has had one owner for OWNED_MS. Later ones begin with a
    checkpoint elsewhere.

    Args:
        owners: the registry's rows of sessions.
    """

    def __init__(self, owners: Mapping[SessionId, Ownership], now_ms: int) -> None:
        self.unserved: list[SessionId] = []
        """The sessions whose owner had no lease at the last look, in order of name."""
        self._waiting = {session: (row, now_ms) for session, row in owners.items() if not row.deleted}
        """Each session that has not had one owner for so long: the owner, and since when it is known."""

    @property
    def waiting(self) -> list[SessionId]:
        """The sessions of the beginning that have not had one owner at one epoch for OWNED_MS, in order of name. Those
        deleted since are left out; before the first :meth:`look` there are all.
        """
        return sorted(self._waiting)

    def look(self, owners: Mapping[SessionId, Ownership], live: Collection[ProxyId], now_ms: int) -> bool:
        """Look at the registry's rows as they are at `now_ms`; return whether the site may be forgotten: no session
        waits or is unserved.

        Args:
            owners: the rows of sessions.
            live: the proxies with a lease.
            now_ms: by the caller's clock, which never steps back.
        """
        self.unserved = sorted(session for session, row in owners.items() if not row.deleted and row.proxy not in live)
        for session, (row, since_ms) in list(self._waiting.items()):
            present = owners.get(session)
            if present is None or present.deleted:
                del self._waiting[session]
            elif present != row:
                self._waiting[session] = (present, now_ms)
            elif now_ms - since_ms >= OWNED_MS:
                del self._waiting[session]
        return not self._waiting and not self.unserved
