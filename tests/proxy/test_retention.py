"""What policies hold, beside a dumber model that keeps every entry with the time at which it was taken."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from proxy.session.retention import GRAIN_MS, Mark, Retention, Window
from proxy.session.subscription import Subscription
from waypost.facts import RemovalPolicy
from waypost.identity import SubscriptionId
from waypost.subscription import parse

X, Y, Z = SubscriptionId("x"), SubscriptionId("y"), SubscriptionId("z")
POLICIES = st.tuples(st.none() | st.integers(1, 6), st.none() | st.integers(1, 4))


def subscription(identity: SubscriptionId, ttl_s: int | None = None, max_count: int | None = None) -> Subscription:
    return Subscription(
        id=identity, expression=parse("n > 0"), start={}, promise_floor={}, ttl_s=ttl_s, max_count=max_count
    )


def known(*subscriptions: Subscription) -> Retention:
    retention = Retention()
    retention.set_subscriptions(subscriptions)
    return retention


@dataclass
class Entry:
    number: int
    matched: tuple[SubscriptionId, ...]
    taken_ms: int


@dataclass
class Model:
    """Every entry, for ever."""

    policies: dict[SubscriptionId, tuple[int | None, int | None]]
    entries: list[Entry] = field(default_factory=list)
    first: int = 1

    def displaced(self, identity: SubscriptionId, entry: Entry) -> bool:
        most = self.policies[identity][1]
        numbers = [entry.number for entry in self.entries if identity in entry.matched and entry.number >= self.first]
        newer = [number for number in numbers if number > entry.number]
        return most is not None and len(newer) >= most

    def age_allows(self, identity: SubscriptionId, entry: Entry, now: int, grain: int = 0) -> bool:
        ttl_s = self.policies[identity][0]
        return ttl_s is None or now - entry.taken_ms < ttl_s * 1_000 + grain


class Policies(RuleBasedStateMachine):
    """Entries come, time passes, receivers acknowledge; marks are made every second, as a proxy does."""

    @initialize(policies=st.tuples(POLICIES, POLICIES, POLICIES))
    def begin(self, policies: tuple[tuple[int | None, int | None], ...]) -> None:
        self.now = 10_000
        self.marked_at = self.now
        self.next = 1
        self.model = Model(dict(zip((X, Y, Z), policies, strict=True)))
        self.subscriptions = [subscription(identity, *policy) for identity, policy in self.model.policies.items()]
        self.retention = known(*self.subscriptions)
        self.displaced: set[tuple[SubscriptionId, int]] = set()

    @rule(matched=st.sets(st.sampled_from([X, Y, Z]), min_size=1))
    def come(self, matched: set[SubscriptionId]) -> None:
        self.model.entries.append(Entry(self.next, tuple(sorted(matched)), self.now))
        self.retention.add(self.next, tuple(sorted(matched)))
        self.next += 1
        self.retention.displace()
        self.displaced |= {(s, e.number) for e in self.model.entries for s in e.matched if self.model.displaced(s, e)}

    @rule(milliseconds=st.integers(1, 3_000))
    def pass_time(self, milliseconds: int) -> None:
        for _ in range(milliseconds):
            self.now += 1
            if self.now >= self.marked_at + GRAIN_MS:
                self.marked_at = self.now
                self.retention.mark(self.now, self.next)
        self.retention.expire(self.now)

    @rule(many=st.integers(1, 3))
    def all_receivers_get_some(self, many: int) -> None:
        self.model.first = min(self.model.first + many, self.next)
        self.retention.remove(self.model.first)

    @invariant()
    def a_policy_lets_go_of_what_it_must_and_of_nothing_else(self) -> None:
        for entry in self.model.entries:
            if entry.number < self.model.first:
                continue
            held = self.retention.retained_for(entry.number, entry.matched)
            for identity in entry.matched:
                displaced = (identity, entry.number) in self.displaced
                if identity in held:
                    # A mark says no more than that all below it are here; it comes a second later at most.
                    assert not displaced and self.model.age_allows(identity, entry, self.now, 2 * GRAIN_MS)
                else:
                    assert displaced or not self.model.age_allows(identity, entry, self.now)

    @invariant()
    def windows_are_what_nobody_holds(self) -> None:
        windows = self.retention.windows(self.next)
        for entry in self.model.entries:
            lies_in = any(w.matched == entry.matched and w.start <= entry.number < w.below for w in windows)
            assert lies_in == (not self.retention.retained_for(entry.number, entry.matched))


TestPolicies = Policies.TestCase


def test_entry_of_two_subscriptions_is_retained_for_the_longer_time_to_live() -> None:
    retention = known(subscription(X, ttl_s=1), subscription(Y, ttl_s=5))
    retention.add(1, (X, Y))
    retention.mark(1_000, 2)
    retention.expire(3_000)
    assert retention.retained_for(1, (X, Y)) == (Y,)
    retention.expire(7_000)
    assert retention.retained_for(1, (X, Y)) == ()
    assert retention.removed_by(1, (X, Y)) == (RemovalPolicy.TIME_TO_LIVE,)


def test_ended_subscription_retains_entries_until_the_next_of_its_name_is_known() -> None:
    lasting, short = subscription(X), subscription(X, max_count=1)
    retention = known(lasting, short)
    for number in (1, 2, 3):
        retention.add(number, (X,))
    retention.displace()
    assert retention.retained_for(1, (X,)) == (X,)
    retention.set_subscriptions([short])
    assert [retention.retained_for(number, (X,)) for number in (1, 2, 3)] == [(), (), (X,)]
    assert retention.removed_by(1, (X,)) == (RemovalPolicy.MAX_COUNT,)


def test_copied_entries_count_for_a_subscription_that_is_known_later() -> None:
    retention = known()
    retention.copying = True
    for number in (1, 2, 3):
        retention.add(number, (X,))
    retention.copying = False
    retention.set_subscriptions([subscription(X, max_count=2)])
    assert retention.retained_for(1, (X,)) == ()
    assert retention.retained_for(2, (X,)) == (X,)


def test_a_subscription_that_is_given_a_shorter_time_lets_go_at_once() -> None:
    changed = subscription(X, ttl_s=60)
    retention = known(changed)
    retention.add(1, (X,))
    retention.mark(1_000, 2)
    retention.expire(5_000)
    assert retention.retained_for(1, (X,)) == (X,)
    changed.ttl_s = 2
    retention.set_subscriptions([changed])
    retention.expire(5_000)
    assert retention.retained_for(1, (X,)) == ()


def test_ages_from_elsewhere_never_run_backwards() -> None:
    retention = known(subscription(X, ttl_s=2))
    retention.take_marks([Mark(3, 1_000), Mark(5, 500), Mark(5, 900)])
    assert retention.marks(0, 10) == [Mark(3, 1_000), Mark(5, 1_000)]


def test_windows_are_leaving_until_the_store_has_removed_them() -> None:
    retention = known(subscription(X, max_count=1))
    for number in (1, 2, 3):
        retention.add(number, (X,))
    retention.displace()
    windows = retention.windows(10)
    assert windows == [Window((X,), 1, 3)]
    retention.schedule_removal(windows)
    assert (retention.windows(10), retention.leaving) == ([], windows)
    retention.saved([], windows)
    assert retention.leaving == []
