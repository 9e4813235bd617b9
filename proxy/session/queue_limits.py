"""The bounds of a session's queue: which stored entries are discarded when there are more than it allows. Pure.

The proxy that serves chooses them, whenever there are too many; another one, after a handover or a crash, chooses by
itself among those that it has then. A chosen entry is delivered no more (proxy/session/retention.py, `discard`), and
gone when the journal has it (proxy/stream/expiry.py). That some receiver was given it before is no contradiction.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from itertools import chain, islice
from typing import NamedTuple

from proxy.session.stored_notification import Entry
from proxy.session.subscription import Matched
from waypost.clock import NEVER
from waypost.facts import RemovalPolicy
from waypost.identity import Origin
from waypost.queue import Queue, deadline_of, priority_of

SLACK = 64
"""Entries that are gone of which a heap may have as many more."""


class QueuedEntry(NamedTuple):
    """The properties of a stored entry by which a queue policy chooses it for removal.

    Args:
        number: of the entry, in its session.
        origin: where it was published.
        offset: in the log of its origin.
        matched: the subscriptions that it matched.
        size: in bytes.
        priority: of the notification; entries of a higher one stay longer.
    """

    number: int
    origin: Origin
    offset: int
    matched: Matched
    size: int
    priority: int = 0
    deadline_ms: int = NEVER
    """Unix time."""


class QueueLimits:
    """Chooses the entries of one session that are discarded because its queue is over a bound.

    Entries that were stored before this process began are counted by :meth:`prepend`; until all are (`known`), nothing
    is chosen. `bytes`: the size of all that are counted.

    Args:
        queue: the bounds, in entries and in bytes, and which entry goes first.
    """

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.known = False
        self.bytes = 0
        self._entries: OrderedDict[int, QueuedEntry] = OrderedDict()
        """By number, in ascending order."""
        self.discarding: dict[int, tuple[QueuedEntry, RemovalPolicy]] = {}
        """What was chosen, and by which policy, and is stored until the journal has it."""
        self._unheld: set[int] = set()
        """What another policy let go of, and is stored until it is swept."""
        self._is_purged = False
        """Whether :meth:`purge` was called since all entries are known."""
        self._first: list[tuple[int, int]] = []
        """A heap of who goes first, by what `discard` says of it, and number; with some that are gone."""
        self._soonest: list[tuple[int, int]] = []
        """A heap of deadlines, and numbers; with some that are gone."""

    @property
    def count(self) -> int:
        """The number of stored entries that count for the bounds; those from before this process only once all are
        known.
        """
        return len(self._entries)

    @property
    def lowest(self) -> int | None:
        """The number of the oldest counted entry, those included that are about to be removed; None: there are none.
        Note that entries from before this process are left out until all are :attr:`known`.
        """
        return min(chain(islice(self._entries, 1), self.discarding, self._unheld), default=None)

    def add(self, entry: Entry) -> None:
        """Count the session's newest entry."""
        self._add(self.measure(entry))

    def prepend(self, entries: Iterable[QueuedEntry], first: int) -> None:
        """Count the entries that were stored before those added so far; from now on all are known.

        Args:
            entries: in ascending order of number.
            first: entries below this number are gone by now.
        """
        later, self._entries, self.bytes = self._entries, OrderedDict(), 0
        self._first.clear()
        self._soonest.clear()
        for kept in entries:
            if kept.number >= first and kept.number not in later and kept.number not in self.discarding:
                self._add(kept)
        for kept in later.values():
            self._add(kept)
        self.known, self._is_purged = True, False

    def measure(self, entry: Entry) -> QueuedEntry:
        """Return the properties of an entry by which the queue chooses; it is not counted.

        Its attributes are read only if the queue chooses by them; else priority and deadline have their defaults.
        """
        number, stored, matched = entry
        kept = QueuedEntry(number, stored.origin, stored.offset, matched, stored.size)
        if not self.queue.uses_attributes:
            return kept
        attributes, at_ms = stored.read()
        return kept._replace(priority=priority_of(attributes), deadline_ms=deadline_of(attributes, at_ms))

    def _add(self, kept: QueuedEntry) -> None:
        self._entries[kept.number] = kept
        self.bytes += kept.size
        if self.queue.discard == "priority":
            self._push(self._first, kept.priority, kept.number)
        elif self.queue.discard == "deadline":
            self._push(self._first, kept.deadline_ms, kept.number)
        if self.queue.deadlines and kept.deadline_ms != NEVER:
            self._push(self._soonest, kept.deadline_ms, kept.number)

    def _push(self, heap: list[tuple[int, int]], rank: int, number: int) -> None:
        heappush(heap, (rank, number))
        if len(heap) > 2 * len(self._entries) + SLACK:
            # Most of it is gone, and was never chosen.
            heap[:] = [ranked for ranked in heap if ranked[1] in self._entries]
            heapify(heap)

    # ------------------------------------------------------------ what goes

    def remove(self, first: int) -> None:
        """Count the entries below `first` no more: all receivers have them."""
        while self._entries and (number := next(iter(self._entries))) < first:
            self._remove(number)
        for number in [number for number in self.discarding if number < first]:
            del self.discarding[number]
        if self._unheld:
            self._unheld = {number for number in self._unheld if number >= first}

    def forget(self, numbers: Iterable[int]) -> None:
        """Count these entries no more: another policy has removed them, or the journal has it that they
        were discarded.
        """
        for number in numbers:
            self.discarding.pop(number, None)
            self._unheld.discard(number)
            if number in self._entries:
                self._remove(number)

    def purge(self, let_go: Iterable[int] | None, is_retained: Callable[[QueuedEntry], bool]) -> None:
        """Count those entries no more that no subscription holds; they are stored until they are swept.

        Args:
            let_go: numbers among which are all that subscriptions have let go of since the last call; None: they may be
                any. The first call looks at all entries.
            is_retained: tells whether a subscription still holds the entry.
        """
        candidates = self._entries if let_go is None or not self._is_purged else let_go
        self._is_purged = True
        for number in list(candidates):
            kept = self._entries.get(number)
            if kept is not None and not is_retained(kept):
                self._remove(number)
                self._unheld.add(number)

    def _remove(self, number: int) -> QueuedEntry:
        kept = self._entries.pop(number)
        self.bytes -= kept.size
        return kept

    def surplus(self) -> list[QueuedEntry]:
        """Choose entries to discard, by the queue's `discard`, until the rest is within the bounds; return them.

        The chosen ones count no more, and stay in :attr:`discarding` until :meth:`forget`. Nothing is chosen before all
        entries are :attr:`known`.
        """
        discarding: list[QueuedEntry] = []
        while self.known and self._entries and self.is_too_much:
            discarding.append(self._choose(self._next(), RemovalPolicy.MAX_QUEUE))
        return discarding

    def _choose(self, number: int, policy: RemovalPolicy) -> QueuedEntry:
        kept = self._remove(number)
        self.discarding[number] = kept, policy
        return kept

    @property
    def is_too_much(self) -> bool:
        """Whether the counted entries are more than a bound of the queue allows, in number or in bytes."""
        most, most_bytes = self.queue.max_count, self.queue.max_bytes
        return (most is not None and self.count > most) or (most_bytes is not None and self.bytes > most_bytes)

    def _next(self) -> int:
        match self.queue.discard:
            case "lifo":
                return next(reversed(self._entries))
            case "priority" | "deadline":
                while (number := heappop(self._first)[1]) not in self._entries:
                    pass
                return number
            case _:
                return next(iter(self._entries))

    def expired(self, unix_ms: int) -> list[QueuedEntry]:
        """Choose the entries whose deadline is over, and return them; none if the queue does not go by deadlines
        (`queue.deadlines`).

        The chosen ones count no more, and stay in :attr:`discarding` until :meth:`forget`. Nothing is chosen before all
        entries are :attr:`known`.

        Args:
            unix_ms: the time now, in Unix time.
        """
        discarding: list[QueuedEntry] = []
        while self.known and self._soonest and self._soonest[0][0] <= unix_ms:
            _, number = heappop(self._soonest)
            if number in self._entries:
                discarding.append(self._choose(number, RemovalPolicy.DEADLINE))
        return discarding
