"""The lease of this proxy: the incarnation that it was granted to, and until when it certainly holds."""

from __future__ import annotations

from waypost.clock import Clock
from waypost.identity import Incarnation


class Lease:
    """Without a lease a proxy serves nothing.

    Args:
        clock: of this process; leases count on it.
        margin_ms: the proxy fences itself so long before its lease can end.
    """

    def __init__(self, clock: Clock, margin_ms: int) -> None:
        self._clock = clock
        self._margin_ms = margin_ms
        self.incarnation = Incarnation("")
        self.fence_at_ms: int | None = None
        """When the proxy must have stopped serving: before its lease can end; None: it has none."""

    def granted(self, until_ms: int) -> None:
        """Set the end of the lease, granted or renewed, in ms of the clock of this process."""
        self.fence_at_ms = until_ms - self._margin_ms

    def lost(self) -> None:
        """Give the lease up: it has ended, or may have."""
        self.fence_at_ms = None

    @property
    def has_ended(self) -> bool:
        """Whether a lease was granted, and may have ended since without :meth:`lost`."""
        return self.fence_at_ms is not None and not self.may_serve()

    def may_serve(self) -> bool:
        """Tell whether the lease certainly holds: nobody else may act as if this proxy were gone."""
        return self.fence_at_ms is not None and self._clock.now_ms() < self.fence_at_ms
