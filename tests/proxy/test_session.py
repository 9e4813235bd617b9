"""A session's numbers, against a list that forgets nothing; and its cursors."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.session.receivers import check_overtaking
from proxy.session.role import Role
from proxy.session.session import Session
from proxy.session.stored_notification import StoredNotification
from proxy.session.subscription import Subscription
from waypost.errors import LimitExceeded
from waypost.identity import Epoch, Origin, ReceiverId, SessionId, SubscriptionId
from waypost.limits import MAX_OUT_OF_ORDER
from waypost.messages import Attach
from waypost.subscription import parse

A, B = Origin("A/0"), Origin("B/0")
X = SubscriptionId("x")


def session(role: Role = Role.SERVING) -> Session:
    made = Session(SessionId("s"), Epoch(1), role)
    made.subscriptions[X] = Subscription(id=X, expression=parse("n > 0"), start={}, promise_floor={})
    return made


def stored(offset: int, origin: Origin = A) -> StoredNotification:
    return StoredNotification(origin, offset, b"\x90")


STEPS = st.lists(
    st.one_of(
        st.just(("accept", 0)),
        st.tuples(st.just("save"), st.integers(0, 12)),
        st.tuples(st.just("acknowledge"), st.integers(0, 12)),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(STEPS, st.integers(0, 14), st.integers(1, 5))
def test_numbers_agree_with_a_list_that_forgets_nothing(steps: list[tuple[str, int]], after: int, limit: int) -> None:
    real, model, saved = session(), [0], 0
    receiver = real.join(ReceiverId("r"))
    for what, number in steps:
        if what == "accept":
            real.accept(stored(len(model)), (X,))
            model.append(len(model))
        elif what == "save":
            saved = max(saved, min(number, len(model) - 1))
            real.entries.saved(saved, 3)
        else:
            receiver.acknowledged = max(receiver.acknowledged, min(number, len(model) - 1))
            real.remove_acknowledged()
        assert real.entries.last_number == len(model) - 1
        assert real.entries.count == len(model) - 1 - receiver.acknowledged
        assert [entry[0] for entry in real.unsaved(10)[0]] == model[max(saved, receiver.acknowledged) + 1 :]
    begin = max(after, receiver.acknowledged)
    found = real.entries.after(after, limit)
    if found is None:
        assert begin < saved, "only what is in the store may have left memory"
    else:
        assert [each[0] for each in found] == model[begin + 1 : begin + 1 + limit]


def test_an_entry_goes_when_all_receivers_have_it() -> None:
    made = session()
    first, second = made.join(ReceiverId("1")), made.join(ReceiverId("2"))
    made.accept(stored(0), (X,))
    first.acknowledged = 1
    made.remove_acknowledged()
    assert made.entries.count == 1
    second.acknowledged = 1
    made.remove_acknowledged()
    assert made.entries.count == 0


def test_without_receivers_everything_is_kept() -> None:
    made = session()
    made.accept(stored(0), (X,))
    made.remove_acknowledged()
    assert made.entries.count == 1


def test_entries_below_the_reported_frontier_are_acknowledged_and_not_sent() -> None:
    made = session()
    receiver = made.join(ReceiverId("r"))
    for offset in range(3):
        made.accept(stored(offset), (X,))
    receiver.connect(1, Attach(session="s", receiver="r", incarnation="i", frontier={A: 2}, window=10), {A: 2}, {})
    entries = made.entries.after(receiver.window.sent, 10)
    assert entries is not None and made.next_delivery(receiver, entries) is None
    assert receiver.acknowledged == 3
    assert made.entries.count == 0


def test_a_window_bounds_what_is_under_way() -> None:
    made = session()
    receiver = made.join(ReceiverId("r"))
    made.accept(stored(0), (X,))
    made.accept(stored(1), (X,))
    receiver.connect(1, Attach(session="s", receiver="r", incarnation="i", frontier={}, window=1), {}, {})
    entries = made.entries.after(0, receiver.room())
    assert entries is not None
    made.next_delivery(receiver, entries)
    assert receiver.room() == 0
    receiver.acknowledge(1)
    assert receiver.room() == 1
    assert receiver.frontier == {A: 0}


def test_oldest_missing_entry_is_sent_alone_when_too_many_have_overtaken_it() -> None:
    made = session()
    receiver = made.join(ReceiverId("r"))
    for offset in range(MAX_OUT_OF_ORDER + 3):
        made.accept(stored(offset), (X,))
    receiver.connect(
        1,
        Attach(
            session="s",
            receiver="r",
            incarnation="i",
            frontier={},
            order="priority",
            selective={A: [*range(1, MAX_OUT_OF_ORDER + 1)]},
        ),
        {},
        {A: [*range(1, MAX_OUT_OF_ORDER + 1)]},
    )
    entries = made.entries.after(receiver.window.sent, receiver.room())
    assert entries is not None and [number for number, *_ in entries] == [1]
    assert made.next_delivery(receiver, entries) is not None
    assert receiver.room() == 0
    receiver.acknowledge(1)
    made.remove_acknowledged()
    assert receiver.room() == 1
    while entries := made.entries.after(receiver.window.sent, receiver.room()):
        made.next_delivery(receiver, entries)
    assert sum(flight.count for flight in receiver.window.flights) == 2
    with pytest.raises(LimitExceeded):
        check_overtaking(receiver.selective, {A: [*range(3 * MAX_OUT_OF_ORDER + 1)]})


def test_a_frozen_session_keeps_an_origin_it_never_saw_behind_a_gate() -> None:
    made = session()
    made.freeze({A: 3})
    made.arrive(stored(9, B), (X,))
    assert made.entries.last_number == 0
    assert set(made.gates) == {A, B}


def test_the_frontier_of_a_gated_origin_is_what_was_seen_of_it() -> None:
    made = session()
    made.gates.close(A, 4)
    assert made.frontier({A: 9, B: 2}) == {A: 4, B: 2}


def test_a_merge_takes_the_numbers_of_the_source() -> None:
    shadow = session(Role.SHADOW)
    shadow.gates.close_all({A: 5}, seen=None)
    shadow.take_entries([(n, stored(n), (X,)) for n in (4, 5, 6)])
    shadow.arrive(stored(7), (X,))
    shadow.merge({A: 6}, {A: 7}, oldest=5, following=7)
    assert [entry[0] for entry in shadow.unsaved(10)[0]] == [5, 6]
    shadow.open_gate(A)
    assert [(entry[0], entry[1].offset) for entry in shadow.unsaved(10)[0]] == [(5, 5), (6, 6), (7, 7)]


def test_a_subscription_is_an_interval_of_every_origin() -> None:
    interest = Subscription(id=X, expression=parse("n > 0"), start={A: 3}, promise_floor={})
    assert not interest.wants(A, 3) and interest.wants(A, 4) and interest.wants(B, 0)
    interest.end = {A: 5}
    assert interest.wants(A, 5) and not interest.wants(A, 6) and not interest.wants(B, 0)


def test_acknowledged_frontier_names_promised_origins_that_a_receiver_never_received_from() -> None:
    """Else a failover opens that origin's gate at the live stream, and what lies below is lost."""
    made = session()
    made.created_at = {A: 0}
    receiver = made.join(ReceiverId("r"))
    made.subscriptions[X].promised = {A: 0, B: 4}
    made.accept(stored(5, B), (X,))
    assert receiver.acknowledged < made.entries.last_number
    assert made.acknowledged_frontier({A: 0, B: 5}).get(B) is not None


@pytest.mark.parametrize("role", [Role.FROZEN, Role.DORMANT])
def test_copy_that_serves_no_more_takes_all_that_may_lie_below_the_end_of_a_subscription(role: Role) -> None:
    """How far the log went was asked for while it served; whoever serves it next asks anew (handover rule 7)."""
    made = session()
    ended = made.end_subscription(X, {})
    ended.limit({A: 5})
    assert ended.wants(A, 5) and not ended.wants(A, 6)
    made.become(role)
    assert ended.wants(A, 6)
