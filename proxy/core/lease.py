"""The lease of this proxy: the incarnation that it was granted to, and until when it certainly holds."""

from __future__ import annotations

from proxy.core.step_time import StepTime
from waypost.identity import Incarnation


class Lease:
    """Without a lease a proxy serves nothing.

    Args:
        time: leases count on the clock of this process.
        margin_ms: the proxy fences itself so long before its lease can end.
    """

    def __init__(self, time: StepTime, margin_ms: int) -> None:
        self._time = time
        self._margin_ms = margin_ms
        self.incarnation = Incarnation("")
        """The incarnation of this proxy that holds it, or held it last; "": none has yet."""
        self.fence_at_ms: int | None = None
        """The time by which the proxy must have stopped serving, before its lease can end; None: it has none."""

    def begin(self, incarnation: Incarnation) -> None:
        """Set the incarnation of this proxy; :meth:`granted` sets the end of its lease."""
        self.incarnation = incarnation

    def granted(self, until_ms: int) -> None:
        """Set the end of a lease that was granted or renewed; the proxy fences itself by the margin earlier.

        Args:
            until_ms: in ms of the clock of this process.
        """
        self.fence_at_ms = until_ms - self._margin_ms

    def lost(self) -> None:
        """Give the lease up: it has ended, or may have."""
        self.fence_at_ms = None

    @property
    def has_ended(self) -> bool:
        """Whether a granted lease may have ended by now; False after :meth:`lost`, and if none was granted yet."""
        return self.fence_at_ms is not None and not self.may_serve()

    def may_serve(self) -> bool:
        """Tell whether the lease certainly holds at the time of the step, so that this proxy may serve: nobody else may
        act as if it were gone. False if there is none.
        """
        return self.holds_at(self._time.now_ms)

    def holds_at(self, now_ms: int) -> bool:
        """Tell whether the lease certainly holds at `now_ms` of the clock of this process."""
        return self.fence_at_ms is not None and now_ms < self.fence_at_ms
