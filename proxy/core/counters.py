"""What this proxy has done so far, in plain numbers that only grow. Nothing here knows who reads them, or how.

What *is* - sessions, queues, transfers that run - is not counted here: it is looked up when somebody asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from handover.messages import Trigger
from proxy.core.transfer_record import Cause
from waypost.facts import TransferEnd

MILLISECONDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)
"""Up to these a time is counted."""
SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000, 20_000)
"""Up to these a number of things is counted."""


class Histogram:
    """How values are spread: how many are at most each bound, how many there are, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[int]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """counts[i]: values above bounds[i - 1], and at most bounds[i]; the last: above all bounds."""
        self.total = 0

    def note(self, value: int) -> None:
        """Count a value, and add it to the sum."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Handover(NamedTuple):
    """The labels under which a transfer is counted.

    Args:
        role: source or target.
        trigger: why it was begun.
        outcome: how it ended.
        cause: that of its Ending.
    """

    role: str
    trigger: Trigger
    outcome: TransferEnd
    cause: Cause


def _times() -> Histogram:
    return Histogram(MILLISECONDS)


class Counters:
    """The numbers of one engine."""

    def __init__(self) -> None:
        self.handovers: Counter[Handover] = Counter()
        self.phases: defaultdict[tuple[str, str], Histogram] = defaultdict(_times)
        """(role, phase) -> how many milliseconds transfers that have ended spent in it."""
        self.pauses: defaultdict[str, Histogram] = defaultdict(_times)
        """Outcome -> how many milliseconds the source stood still."""
        self.copied: Counter[tuple[str, str]] = Counter()
        """(role, ahead or rest) -> notifications in chunks, repeats included."""
        self.copied_bytes: Counter[tuple[str, str]] = Counter()
        self.offers: Counter[str] = Counter()
        """Trigger -> sessions offered to another proxy, repeats included."""
        self.served: Counter[str] = Counter()
        """How a session came to be served here: create, handover, thaw, restart, failover."""
        self.published = self.appended = self.failed = 0
        """Notifications taken from producers, in the log, not taken by it."""
        self.altered = 0
        """Frames of producers that were altered on their way, and are sent again."""
        self.rows_lost = 0
        """Rows of sessions that the registry had lost, and that we write again."""
        self.outdated = 0
        """Sessions of which a changelog had what counts more than what was served here."""
        self.stale_replies: Counter[str] = Counter()
        """What had changed while an answer was under way -> answers that were refused for it."""
        self.damaged: Counter[str] = Counter()
        """What was found to be damaged: records of the site's log, sessions in it, the store."""
        self.forbidden: Counter[str] = Counter()
        """Why it was not allowed -> what clients asked for and did not get."""
        self.refused: Counter[str] = Counter()
        """What is wrong, by name -> messages of clients that were answered with a problem."""
        self.acknowledged = 0
        """Notifications, once for each receiver."""
        self.delivery_sizes = Histogram(SIZES)
        """Notifications in a delivery; their sum is what was delivered, once for each receiver."""
        self.publish_sizes = Histogram(SIZES)
        """Notifications in an append."""

    @property
    def drained(self) -> int:
        """The number of sessions that have left this proxy because it was drained."""
        return self.handovers[Handover("source", Trigger.DRAIN, TransferEnd.COMMITTED, Cause.NONE)]
