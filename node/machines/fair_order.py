"""The order in which several with unequal work have their turns. Pure."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

REBUILT = 1_000
"""Number of outdated entries after which a heap is made anew."""


class FairOrder:
    """The order in which frames have their turn: the Fair Sojourn Protocol (Friedman and Henderson, SIGMETRICS 2003).

    Each frame is tagged with the moment, on a virtual clock, when it would be done if all connections with something
    to be done were served at once, each at the same rate; the lowest tag goes first. The clock is slower the more of
    them there are. So no connection is done later than with equal shares; one that publishes little is done at once,
    however many publish much; what a connection was given while nobody waited is not held against it; and a connection
    that waits is overtaken less and less by those that come.
    """

    def __init__(self) -> None:
        self._now = 0.0
        """The virtual clock, in nanoseconds."""
        self._finish: dict[int, float] = {}
        """The time at which each connection would be done; nothing is kept of those that are."""
        self._next: list[tuple[float, int]] = []
        """A heap of them; what is not in `_finish` any more is passed over."""

    def charge(self, connection: int, cost_ns: float) -> float:
        """Charge work to a connection; return its tag: when the connection would be done, in ns of the virtual clock.

        Args:
            connection: the number of the connection.
            cost_ns: how long the work takes; negative where it takes less than was charged before.
        """
        finish = max(self._now, self._finish.get(connection, self._now)) + cost_ns
        if finish > self._now:
            self._finish[connection] = finish
            heappush(self._next, (finish, connection))
            if len(self._next) > 2 * len(self._finish) + REBUILT:
                self._next = [(end, number) for number, end in self._finish.items()]
                heapify(self._next)
        else:
            self._finish.pop(connection, None)
        return finish

    def advance(self, cost_ns: float) -> None:
        """Move the virtual clock on for work of `cost_ns` that begins now: each connection that waits gets an equal
        share of it.
        """
        while self._finish:
            finish, connection = self._next[0]
            if self._finish.get(connection) != finish:
                heappop(self._next)
                continue
            until_done_ns = (finish - self._now) * len(self._finish)
            if until_done_ns > cost_ns:
                self._now += cost_ns / len(self._finish)
                return
            cost_ns -= until_done_ns
            self._now = finish
            del self._finish[connection]
            heappop(self._next)
        self._next.clear()
