"""The lease of one direction of a link, granted by the neighbour and renewed while both sides can act. Pure.

Only who holds it leads the link, or stands for its election: so the registry's row of the leader says that the link is
up. The propagate service of JXTA has such leases of its peers (LeaseRequest, LeaseGranted). One that is not renewed
takes the link out of the dispatching tree, and with that all that is held for the neighbour.
"""

from __future__ import annotations

from waypost.clock import NEVER

RENEWALS = 4
"""Requests in the time of a lease."""


class LinkLease:
    """The lease as its holder knows it.

    Args:
        lease_ms: how long it lasts after the beginning of the request that was granted last.
    """

    def __init__(self, lease_ms: int) -> None:
        self.lease_ms = lease_ms
        self.number = 0
        """The number of the last request."""
        self._sent_ms: dict[int, int] = {}
        self._until_ms = NEVER
        self._due_ms = NEVER

    def begin(self, now_ms: int) -> None:
        """Begin to hold the lease at `now_ms`: the first time without a grant, because the neighbour was not asked yet.

        The first request is due at once.
        """
        self._sent_ms.clear()
        self._until_ms, self._due_ms = now_ms + self.lease_ms, now_ms

    def end(self) -> None:
        """Give the lease up: no request is due, and no grant counts, until :meth:`begin`."""
        self._until_ms = self._due_ms = NEVER

    def is_held(self, now_ms: int) -> bool:
        """Tell whether the lease has not ended at `now_ms`. Call it only between :meth:`begin` and :meth:`end`: outside
        of them it is always True.
        """
        return now_ms < self._until_ms

    def is_due(self, now_ms: int) -> bool:
        """Tell whether the next request to the neighbour is to be sent at `now_ms`."""
        return now_ms >= self._due_ms

    def requested(self, now_ms: int) -> int:
        """Note that a request to the neighbour is sent at `now_ms`; return the number that it is to have."""
        self.number += 1
        self._sent_ms[self.number] = now_ms
        self._sent_ms.pop(self.number - RENEWALS, None)
        self._due_ms = now_ms + self.lease_ms // RENEWALS
        return self.number

    def granted(self, number: int) -> None:
        """Note that the neighbour granted the request of this number; one that is too old, or was not sent, grants
        nothing.

        The lease lasts from when that request was sent.
        """
        sent_ms = self._sent_ms.get(number)
        if sent_ms is not None and self._until_ms != NEVER:
            self._until_ms = max(self._until_ms, sent_ms + self.lease_ms)

    def next_deadline(self, *, is_lost: bool) -> int:
        """Return when the next request is due or the lease ends, in ms of the caller's clock; NEVER: :meth:`begin` was
        not called, or :meth:`end` was.

        Args:
            is_lost: whether the lease is known to have ended; then its end is not waited for, and the next request is.
        """
        return self._due_ms if is_lost else min(self._due_ms, self._until_ms)
