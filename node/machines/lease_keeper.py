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
        """Tell whether to give up: the holder has kept the name for longer than a lease lasts that nobody renews.

        The first call begins the wait; call it again whenever the registry answers that the name is still in use.

        Args:
            asked_ms: when the registry was asked whether the name is in use, in ms of the clock.
            holder_ttl_ms: the time to live of the holder's lease, in ms; only that of the first call counts.
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
        """Note that nothing is renewed this time, because what serves under the lease stands still. The next renewal is
        due a third of the lease's time to live after `now_ms`.
        """
        self._due_ms = now_ms + self._ttl_ms // RENEWALS

    def renewed(self, began_ms: int) -> int:
        """Note that the registry has renewed the lease; return until when the lease holds, in ms of the clock.

        Args:
            began_ms: when the request began that renewed the lease, in ms of the clock: the lease counts from then.
        """
        self._due_ms = began_ms + self._ttl_ms // RENEWALS
        return began_ms + self._ttl_ms

    def failed(self, now_ms: int) -> None:
        """Note at `now_ms` that the registry did not answer a renewal, which is tried again soon. The registry may have
        renewed the lease all the same; that is not relied on.
        """
        self._due_ms = now_ms + self._ttl_ms // (RENEWALS * RETRIES)
