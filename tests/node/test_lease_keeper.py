"""When a lease is renewed, and how long another holder of a name is waited for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from node.machines.lease_keeper import NAME_MARGIN_MS, LeaseKeeper, NameWait

TTL = 9_000
DELAY = st.integers(min_value=0, max_value=TTL)


def test_a_lease_counts_from_when_its_renewal_was_asked_for() -> None:
    keeper = LeaseKeeper(TTL, 100)
    assert keeper.next_deadline() == 100 + TTL // 3
    assert keeper.renewed(3_100) == 3_100 + TTL
    assert keeper.next_deadline() == 3_100 + TTL // 3


def test_a_renewal_that_failed_is_tried_again_soon_and_prolongs_nothing() -> None:
    keeper = LeaseKeeper(TTL, 0)
    keeper.failed(5_000)
    assert keeper.next_deadline() == 5_000 + TTL // 30


@given(st.lists(st.tuples(st.sampled_from(["renewed", "failed", "postponed"]), DELAY), max_size=20))
def test_whatever_happens_the_next_renewal_is_due_within_a_third_of_the_lease(events: list[tuple[str, int]]) -> None:
    now, keeper, until = 0, LeaseKeeper(TTL, 0), TTL
    for event, delay in events:
        now = max(now, keeper.next_deadline())
        began, now = now, now + delay
        if event == "renewed":
            until = keeper.renewed(began)
            assert until == began + TTL
        elif event == "failed":
            keeper.failed(now)
        else:
            keeper.postponed(now)
        assert keeper.next_deadline() <= now + TTL // 3


def test_a_holder_of_the_name_is_waited_for_until_a_lease_that_nobody_renews_has_certainly_ended() -> None:
    wait = NameWait(TTL)
    assert not wait.is_over(1_000, 3_000)
    assert not wait.is_over(1_000 + TTL + NAME_MARGIN_MS - 1, 3_000)
    assert wait.is_over(1_000 + TTL + NAME_MARGIN_MS, 3_000)


def test_a_holder_with_a_longer_lease_is_waited_for_longer() -> None:
    wait = NameWait(TTL)
    assert not wait.is_over(0, 2 * TTL)
    assert not wait.is_over(TTL + NAME_MARGIN_MS, 2 * TTL)
    assert wait.is_over(2 * TTL + NAME_MARGIN_MS, 2 * TTL)
