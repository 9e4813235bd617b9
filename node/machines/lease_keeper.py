"""How a proxy holds its name: it waits until another holder has ended, and renews its lease until that has ended. Pure.

A lease counts from the beginning of the request that the registry granted, and not from its answer: the answer may have
been long on its way, and others count from when the registry had the request (handover rule 1).
"""

from __future__ import annotations

RENEWALS = 3
"""Renewals in the time of a lease."""
RETRIES = 10
"""A renewal that failed is tried so much sooner: another member of the registry may answer while the lease lasts."""
NAME_MARGIN_MS = 2_500
"""Delay with which leases may end, in ms: etcd counts in seconds, and looks for ended ones twice a second."""


class NameWait:
    """The wait for another holder of the name: for as long as a lease may last that nobody renews.

    Args:
        ttl_ms: of the own lease, in ms.
    """

    def __init__(self, ttl_ms: int) -> None:
        self._ttl_ms = ttl_ms
        self._until_ms: int | None = None

    def is_over(self, asked_ms: int, holder_ttl_ms: int) -> bool:
        """Tell whether the holder goes on: it has the name for longer than a lease that was not renewed lasts.

        Args:
            asked_ms: when the registry was asked that says that the name is in use, in ms of the clock.
            holder_ttl_ms: of the holder's lease, in ms.
        """
        if self._until_ms is None:
            self._until_ms = asked_ms + max(holder_ttl_ms, self._ttl_ms) + NAME_MARGIN_MS
        return asked_ms >= self._until_ms


class LeaseKeeper:
    """The renewals of one lease.

    Args:
        ttl_ms: of the lease, in ms.
        now_ms: when it began, in ms of the clock.
    """

    def __init__(self, ttl_ms: int, now_ms: int) -> None:
        self._ttl_ms = ttl_ms
        self._due_ms = now_ms + ttl_ms // RENEWALS

    def next_deadline(self) -> int:
        """Return when the next renewal is due, in ms of the clock."""
        return self._due_ms

    def postponed(self, now_ms: int) -> None:
        """Nothing is renewed this time: whoever serves under the lease stands still."""
        self._due_ms = now_ms + self._ttl_ms // RENEWALS

    def renewed(self, began_ms: int) -> int:
        """Return until when the lease holds, in ms of the clock, now that the registry has renewed it.

        Args:
            began_ms: when the renewal was asked for.
        """
        self._due_ms = began_ms + self._ttl_ms // RENEWALS
        return began_ms + self._ttl_ms

    def failed(self, now_ms: int) -> None:
        """The registry did not answer; it may have renewed the lease, which is not relied on."""
        self._due_ms = now_ms + self._ttl_ms // (RENEWALS * RETRIES)
