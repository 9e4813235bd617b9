"""How long a session keeps what it stored: the time to live and the maximum count of each subscription.

A policy only ever moves forward, as a receiver's cursor does, because entries are numbered in the order in which they
were taken. So all that a policy has decided is one number a subscription: of its entries numbered below that, it holds
none any more. Those numbers travel with the session; two proxies cannot differ about what was dropped.

An entry is held as long as one of the subscriptions that it matched holds it, and is delivered with the ids of those
alone. What nobody holds is passed over at delivery, and goes from the store with the next sweep.

Time to live is counted from when the session took the notification, in whole seconds, by the clock of the proxy that
serves it: every second the session notes (now, next number), and everything below that number is at least as old. Ages
travel, and never deadlines, so it does not matter how clocks differ; a notification lives its time, and at most a
second and the time of its handovers longer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from proxy.session.subscription import Matched, Subscription
from waypost.clock import NEVER
from waypost.facts import RemovalPolicy
from waypost.identity import Origin, SubscriptionId
from waypost.keys import Key, Protection
from waypost.limits import LET_GO_NOTED

Policies = tuple[RemovalPolicy, ...]
"""By which an entry was removed."""
LEAST_DISCARDED = 64
"""The number of discarded entries that are noted before those that all receivers have are forgotten."""
GRAIN_MS = 1_000
"""Ages are known as exactly as this."""


class Mark(NamedTuple):
    """All entries numbered below `below` were taken at `at_ms` or before. The clock depends on where a mark is."""

    below: int
    at_ms: int


class Window(NamedTuple):
    """Entries of a session that one statement about retention speaks of.

    Args:
        matched: they matched exactly these subscriptions.
        start: the number of the first of them.
        below: their numbers are smaller than this.
    """

    matched: Matched
    start: int
    below: int


class Retention:
    """Which entries of one session each of its subscriptions still holds, by the numbers of the entries.

    Call :meth:`set_subscriptions` whenever subscriptions change, and :meth:`add` for each new entry; :meth:`displace`
    applies maximum counts. :meth:`mark` once a second and :meth:`expire` before each delivery apply times to live;
    :meth:`retained_for` then says for which subscriptions an entry is still delivered. :meth:`windows`,
    :meth:`schedule_removal` and, once that is written, :meth:`saved` remove entries from the store. It knows no clock:
    times are arguments.
    """

    def __init__(self) -> None:
        self._of: dict[SubscriptionId, list[Subscription]] = {}
        """Subscriptions by name: one is active, others may have ended and be owed still. Each of them holds entries."""
        self._highest = 0
        """The number from which on nothing was dropped yet."""
        self._let_go: list[int] | None = None
        """Numbers of entries that a subscription has let go of since :meth:`take_let_go`; None: they may be any."""
        self._marks: list[Mark] = []
        self._ripe_at = NEVER
        """A time before which no time to live ends."""
        self._newest: dict[SubscriptionId, deque[int]] = {}
        """The entries of a subscription with a maximum count, and of those not known yet: they came with a copy."""
        self._swept: dict[Matched, int] = {}
        """By generation of a subscription, the number below which the store has removed its entries."""
        self._last: dict[Matched, int] = {}
        """By the same, the number of the last entry of that kind."""
        self._counts: dict[SubscriptionId, int] = {}
        self._swept_highest = 0
        self._marks_saved = 0
        self.leaving: list[Window] = []
        """The windows that go from the store at its next write."""
        self._discarded: dict[int, RemovalPolicy] = {}
        """Single entries that nobody holds any more, and why; until the store has them no more."""
        self._discarded_left = 0
        """How many of them there were when those that all receivers have were forgotten."""
        self._discarded_below = 0
        """A number above those of all of them."""
        self.leaving_one_by_one: list[int] = []
        """Those of them that go from the store at its next write."""
        self._shortest_ms = self._longest_ms = 0
        """The shortest and the longest time to live; 0: there is none."""
        self.active = False
        """True if some subscription has a policy."""
        self.copying = False
        """True while entries come whose subscriptions may not be known yet."""

    def set_subscriptions(
        self, subscriptions: Iterable[Subscription], stored: Iterable[tuple[int, Matched]] = ()
    ) -> None:
        """Set the session's subscriptions, ended ones too, as they are now, and apply their maximum counts.

        Args:
            subscriptions: all of them; those of earlier calls count no more.
            stored: number and matched subscriptions of each entry in memory: a policy that is new works on these too.
        """
        was_active, known = self.active, self._counts.keys() | self._newest.keys()
        self._of = {}
        for subscription in subscriptions:
            self._of.setdefault(subscription.id, []).append(subscription)
        self.active = any(subscription.has_policy for held in self._of.values() for subscription in held)
        times = [
            subscription.ttl_s * 1_000 for held in self._of.values() for subscription in held if subscription.ttl_s
        ]
        self._shortest_ms, self._longest_ms = min(times, default=0), max(times, default=0)
        self._counts = {
            identity: max(subscription.max_count for subscription in held if subscription.max_count)
            for identity, held in self._of.items()
            if any(subscription.max_count for subscription in held)
        }
        self._ripe_at = 0
        if not times:
            self._marks.clear()
        if not self.copying:
            self._newest = {identity: numbers for identity, numbers in self._newest.items() if identity in self._counts}
        counted = self._counts.keys() - known
        if self.active and (counted or not was_active):
            self._catch_up(stored, counted)
        self.displace()
        self._compact()
        self._let_go = None

    def _catch_up(self, stored: Iterable[tuple[int, Matched]], counted: set[SubscriptionId]) -> None:
        """Note what was taken before there was a policy to note it for."""
        for number, matched in stored:
            self._swept.setdefault(matched, 1)
            self._last[matched] = number
            for identity in counted.intersection(matched):
                self._newest.setdefault(identity, deque()).append(number)

    def _compact(self) -> None:
        self._highest = max(
            (subscription.first_retained for held in self._of.values() for subscription in held), default=0
        )

    # ------------------------------------------------------------ what comes

    def add(self, number: int, matched: Matched) -> None:
        """Count the session's newest entry; nothing happens unless a subscription has a policy, or a copy is coming in.

        The maximum counts are applied by :meth:`displace`, after attached receivers were sent the entry.

        Args:
            number: of the entry, above all that were added before.
            matched: the subscriptions that it matches.
        """
        if not self.active and not self.copying:
            return
        self._swept.setdefault(matched, 1)
        self._last[matched] = number
        for identity in matched:
            if identity in self._counts or (self.copying and identity not in self._of):
                self._newest.setdefault(identity, deque()).append(number)

    def displace(self) -> None:
        """Apply the maximum counts: each subscription that has one holds only its newest entries from now on. Call it
        only when attached receivers were sent the entries.
        """
        for identity in self._counts:
            self._displace(identity)

    def _displace(self, identity: SubscriptionId) -> None:
        numbers, most = self._newest.get(identity), self._counts.get(identity)
        if numbers is None or most is None or len(numbers) <= most:
            return
        self._note_let_go([numbers.popleft() for _ in range(len(numbers) - most)])
        for subscription in self._of[identity]:
            # One that has ended is owed to the end, and what comes now is its successor's; but not where it only has
            # other keys now.
            if (
                (subscription.end is None or subscription.replaced)
                and subscription.max_count is not None
                and len(numbers) >= subscription.max_count
            ):
                lowest = numbers[len(numbers) - subscription.max_count]
                subscription.displaced_below = max(subscription.displaced_below, lowest)
                self._highest = max(self._highest, lowest)

    def remove(self, first: int) -> None:
        """Count the entries numbered below `first` no more: they went to all receivers, and are not stored any more.

        Args:
            first: the number of the first entry of the session's queue that stays; it is no offset.
        """
        for numbers in self._newest.values():
            while numbers and numbers[0] < first:
                numbers.popleft()
        # The last mark that is too old stays: it says how old what follows is at most.
        old = bisect_right(self._marks, first, key=_below)
        if old > 1:
            del self._marks[: old - 1]
        if len(self._discarded) > 2 * self._discarded_left + LEAST_DISCARDED:
            # Those below went to all receivers before the journal had their removal.
            self._discarded = {number: policy for number, policy in self._discarded.items() if number >= first}
            self._discarded_left = len(self._discarded)

    # ------------------------------------------------------------ time

    @property
    def aging(self) -> bool:
        """Whether a subscription has a time to live."""
        return self._longest_ms > 0

    def mark(self, now_ms: int, following: int) -> None:
        """Note that all entries below `following` were taken at `now_ms` or before; nothing is done unless a
        subscription has a time to live.

        Args:
            now_ms: by the engine's clock.
            following: the number of the next entry.
        """
        last = self._marks[-1] if self._marks else Mark(0, now_ms)
        if self.aging and last.below < following:
            self._marks.append(Mark(following, max(now_ms, last.at_ms)))
            self._ripe_at = min(self._ripe_at, now_ms + self._shortest_ms)

    def marks(self, above: int, upto: int) -> list[Mark]:
        """Return the marks that date entries numbered above `above`, up to `upto`; in ms of the engine's clock."""
        return [mark for mark in self._marks if above + 1 < mark.below <= upto + 1]

    def expire(self, now_ms: int) -> None:
        """Apply the times to live: let go of entries that are older.

        Args:
            now_ms: by the engine's clock.
        """
        if now_ms < self._ripe_at or not self.aging:
            return
        self._ripe_at = NEVER
        for held in self._of.values():
            for subscription in held:
                if subscription.ttl_s is not None:
                    self._expire(subscription, subscription.ttl_s * 1_000, now_ms)
        old = bisect_right(self._marks, now_ms - self._longest_ms, key=_at)
        del self._marks[:old]
        self._compact()

    def _expire(self, subscription: Subscription, ttl_ms: int, now_ms: int) -> None:
        ripe = bisect_right(self._marks, now_ms - ttl_ms, key=_at)
        if ripe and (below := self._marks[ripe - 1].below) > subscription.expired_below:
            self._note_let_go(range(subscription.expired_below, below))
            subscription.expired_below = below
        if ripe < len(self._marks):
            self._ripe_at = min(self._ripe_at, self._marks[ripe].at_ms + ttl_ms)

    # ------------------------------------------------------------ what is held

    def _note_let_go(self, numbers: Sequence[int]) -> None:
        if self._let_go is not None and len(self._let_go) + len(numbers) <= LET_GO_NOTED:
            self._let_go.extend(numbers)
        else:
            self._let_go = None

    def take_let_go(self) -> list[int] | None:
        """Return the numbers of entries that policies of subscriptions have let go of since the last call: all others
        that a subscription held are held still, but for those of :meth:`discard`. Another subscription may hold one of
        these. None: it is not known which.
        """
        let_go, self._let_go = self._let_go, []
        return let_go

    def retained_for(self, number: int, matched: Matched) -> Matched:
        """Return those of the subscriptions matched by an entry that hold it still; empty: do not deliver it.

        Args:
            number: of the entry.
            matched: the subscriptions that the entry matched; one that is not known here counts as holding it.
        """
        if self._discarded and number in self._discarded:
            return ()
        if number >= self._highest:
            return matched
        kept = tuple(identity for identity in matched if self._retains(identity, number))
        return matched if len(kept) == len(matched) else kept

    def _retains(self, identity: SubscriptionId, number: int) -> bool:
        known = self._of.get(identity)
        return known is None or any(subscription.first_retained <= number for subscription in known)

    def removed_by(self, number: int, matched: Matched) -> Policies:
        """Return the policies that removed an entry which no subscription holds any more, for the journal.

        Args:
            number: of the entry.
            matched: the subscriptions that the entry matched.
        """
        if number in self._discarded:
            return (self._discarded[number],)
        known = [subscription for identity in matched for subscription in self._of.get(identity, [])]
        is_expired = any(number < subscription.expired_below for subscription in known)
        is_displaced = any(number < subscription.displaced_below for subscription in known)
        aged, counted = (RemovalPolicy.TIME_TO_LIVE,) * is_expired, (RemovalPolicy.MAX_COUNT,) * is_displaced
        return aged + counted

    def young(self, matched: Matched, age_ms: int) -> Matched:
        """Return those of the matched subscriptions with a time to live above `age_ms`, with none, or not
        known here.
        """
        return tuple(identity for identity in matched if self._lasts(identity, age_ms))

    def _lasts(self, identity: SubscriptionId, age_ms: int) -> bool:
        known = self._of.get(identity)
        return known is None or any(
            subscription.ttl_s is None or age_ms < subscription.ttl_s * 1_000 for subscription in known
        )

    def secure(self, matched: Matched, origin: Origin, offset: int, keys: tuple[Key, ...]) -> Matched:
        """Return those of the matched subscriptions whose keys meet a notification's: its delivery is secure then.

        Args:
            matched: the subscriptions that the notification matched.
            origin: of the notification.
            offset: of the notification, in its origin's log.
            keys: those that came with the notification.
        """
        came = Protection(keys)
        return tuple(
            identity
            for identity in matched
            if any(
                subscription.wants(origin, offset) and subscription.protection.meets(came)
                for subscription in self._of.get(identity, ())
            )
        )

    # ------------------------------------------------------------ sweeping

    @property
    def highest(self) -> int:
        """The number from which on every entry is held: no policy has removed any of them."""
        return max(self._highest, self._discarded_below) if self._discarded else self._highest

    def discard(self, removed: Mapping[int, RemovalPolicy]) -> None:
        """Hold these single entries for no subscription any more.

        Args:
            removed: number of the entry -> the policy that discards it; not empty.
        """
        self._discarded.update(removed)
        self._discarded_below = max(self._discarded_below, 1 + max(removed))

    @property
    def overdue(self) -> int:
        """How many numbers policies have passed since the last sweep began (:meth:`sweep_begins`)."""
        return self._highest - self._swept_highest

    def windows(self, through: int) -> list[Window]:
        """Return windows of the entries, numbered up to `through`, that are held no more and are not swept yet."""
        if not self._highest:
            return []
        found = []
        for matched, start in self._swept.items():
            lowest = [
                min((subscription.first_retained for subscription in self._of.get(identity, ())), default=0)
                for identity in matched
            ]
            below = min(*lowest, through + 1)
            if below > start:
                found.append(Window(matched, start, below))
        return found

    def sweep_begins(self, first: int) -> None:
        """Note that a sweep of the session has begun: :attr:`overdue` counts from here. What was noted of entries that
        are not stored any more is forgotten.

        Args:
            first: the number of the first entry of the session's queue.
        """
        self._swept_highest = self._highest
        leaving = {window.matched for window in self.leaving}
        for matched in [kind for kind, last in self._last.items() if last < first and kind not in leaving]:
            del self._last[matched], self._swept[matched]

    def schedule_removal(self, windows: Sequence[Window]) -> None:
        """Have the entries in these windows removed from the store with its next write; the journal must have their
        removal on record before.
        """
        leaving = {window.matched: window for window in self.leaving}
        for window in windows:
            before = leaving.get(window.matched)
            leaving[window.matched] = window if before is None else before._replace(below=window.below)
        self.leaving = list(leaving.values())
        for window in windows:
            self._swept[window.matched] = max(self._swept.get(window.matched, 0), window.below)

    # ------------------------------------------------------------ the store

    def unsaved_marks(self) -> list[Mark]:
        """Return the marks of age that the store does not have yet."""
        return self._marks[bisect_right(self._marks, self._marks_saved, key=_below) :]

    def saved(self, marks: Sequence[Mark], removed: Sequence[Window], discarded: Sequence[int] = ()) -> None:
        """Note what the store has applied.

        Args:
            marks: the marks that it has now as well, in order.
            removed: windows of :attr:`leaving` whose entries it has no more.
            discarded: numbers of single entries that it has no more.
        """
        for number in discarded:
            self._discarded.pop(number, None)
        if discarded:
            gone = set(discarded)
            self.leaving_one_by_one = [number for number in self.leaving_one_by_one if number not in gone]
        if marks:
            self._marks_saved = marks[-1].below
        if removed:
            gone_windows = set(removed)
            self.leaving = [window for window in self.leaving if window not in gone_windows]

    # ------------------------------------------------------------ from elsewhere

    def restore(self, matched: Iterable[tuple[int, Matched]], marks: Sequence[Mark]) -> None:
        """Take over the state of a restored session; call :meth:`set_subscriptions` with its subscriptions before.

        Args:
            matched: number and matched subscriptions of each stored entry, in order of number.
            marks: of the store, in order of number, with times in ms of the engine's clock.
        """
        for number, subscriptions in matched:
            self.add(number, subscriptions)
        self.take_marks(marks)
        self.saved(marks, ())

    def take_marks(self, marks: Iterable[Mark]) -> None:
        """Add marks of entries that came from a store or another proxy; without a time to live they are ignored.

        Args:
            marks: in order of number, with times in ms of the engine's clock.
        """
        for mark in marks:
            self.mark(mark.at_ms, mark.below)

    def reset(self) -> None:
        """Forget all numbers and marks, because entries are numbered anew: no policy has removed any entry yet."""
        self._marks.clear()
        self._let_go = None
        self._newest.clear()
        self._swept.clear()
        self._last.clear()
        self._discarded_below = self._discarded_left = 0
        self.leaving.clear()
        self.leaving_one_by_one.clear()
        self._discarded.clear()
        self._marks_saved = self._swept_highest = 0
        for held in self._of.values():
            for subscription in held:
                subscription.expired_below = subscription.displaced_below = 0
        self._compact()


def _at(mark: Mark) -> int:
    return mark.at_ms


def _below(mark: Mark) -> int:
    return mark.below
