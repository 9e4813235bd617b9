"""What is wrong is answered by name, and the connection goes on; nothing is acknowledged before it is safe."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core import effects
from proxy.session.session import Role
from tests.helpers.alone import SESSION, Alone
from waypost.checksum import checksum
from waypost.errors import LogUnavailable, StoreFailed
from waypost.frames import decode_proxy_message, encode_message
from waypost.identity import GENERATION, Epoch, Incarnation, Origin, SubscriptionId
from waypost.limits import MAX_SUBSCRIPTIONS_PER_SESSION
from waypost.messages import (
    VERSION,
    AboutPublish,
    AboutSubscription,
    Acknowledge,
    Acknowledged,
    Attach,
    Attached,
    BecameEffective,
    ClientMessage,
    Deliver,
    DeliverEncoded,
    Detach,
    Forgotten,
    Hello,
    Left,
    Problem,
    Publish,
    Subscribe,
    Subscribed,
    SubscriptionChanged,
    SubscriptionSettings,
    Unsubscribe,
    Unsubscribed,
    Wait,
    Welcome,
)
from waypost.notification import Notification
from waypost.records import Published


def body(number: int) -> bytes:
    return Notification({"n": number}).body


def serving(*expressions: str) -> Alone:
    """Serve one receiver, subscribed to these."""
    alone = Alone()
    alone.serve()
    for number, expression in enumerate(expressions):
        alone.says(1, Subscribe(subscription=f"x{number}", expression=expression))
        alone.keep()
        alone.read_log()
    alone.heard()
    return alone


def kinds(messages: list[Any]) -> list[type]:
    return [type(message) for message in messages]


def delivered(messages: list[Any]) -> list[object]:
    found = [decode_proxy_message(encode_message(each)) for each in messages if isinstance(each, DeliverEncoded)]
    return [
        Notification.from_body(entry.body)["n"] for each in found if isinstance(each, Deliver) for entry in each.entries
    ]


@pytest.mark.parametrize(
    ("message", "code", "field"),
    [
        (Hello(99, "c"), "WRONG_VERSION", "version"),
        (Subscribe(subscription="y", expression="n >"), "PARSE_ERROR", None),
        (Subscribe(subscription="x0", expression="n > 1"), "REFUSED", "subscription"),
        (Publish(producer="p", secret="i", first=0, bodies=[b"\xc1"]), "BAD_NOTIFICATION", "bodies[0]"),
        (
            Publish(producer="p", secret="i", first=0, bodies=[body(1), Notification({}).body[:0]]),
            "BAD_NOTIFICATION",
            "bodies[1]",
        ),
        (Acknowledge(7), "BAD_MESSAGE", "through"),
    ],
)
def test_bad_input_is_refused_by_name_and_the_connection_goes_on(
    message: ClientMessage, code: str, field: str | None
) -> None:
    alone = serving("n > 0")
    alone.says(1, message)
    (problem,) = alone.heard()
    assert isinstance(problem, Problem)
    assert (problem.code, problem.field) == (code, field)
    alone.says(1, Publish(producer="p", secret="i", first=0, bodies=[body(1)]))
    assert kinds(alone.heard()) == [Acknowledged]


def test_hello_comes_first() -> None:
    alone = Alone()
    alone.engine.client_connected(1)
    alone.engine.client_message(1, Subscribe(subscription="x", expression="n > 0"))
    alone.settle()
    assert [each.code for each in alone.heard() if isinstance(each, Problem)] == ["BAD_MESSAGE"]
    alone.engine.client_message(1, Hello(VERSION, "c"))
    alone.settle()
    assert kinds(alone.heard()) == [Welcome]


def test_a_subscription_without_a_session_is_refused() -> None:
    alone = Alone()
    alone.says(1, Subscribe(subscription="x", expression="n > 0"))
    assert [each.code for each in alone.heard() if isinstance(each, Problem)] == ["NOT_SERVED"]


def test_a_publish_that_the_log_did_not_take_says_which() -> None:
    alone = Alone()
    alone.engine.client_connected(1)
    alone.engine.client_message(1, Hello(VERSION, "c"))
    alone.engine.client_message(1, Publish(producer="p", secret="i", first=5, bodies=[body(1)]))
    (append,) = [each for each in alone.engine.take_effects() if isinstance(each, effects.Append)]
    append.on_done(LogUnavailable("gone"))
    alone.settle()
    problems = [each for each in alone.heard() if isinstance(each, Problem)]
    assert [(each.code, each.about) for each in problems] == [("LOG_UNAVAILABLE", AboutPublish(5))]


def test_nothing_of_a_producer_is_appended_before_what_failed_comes_again() -> None:
    alone = Alone()
    alone.engine.client_connected(1)
    alone.engine.client_message(1, Hello(VERSION, "c"))
    alone.engine.client_message(1, Publish(producer="p", secret="i", first=5, bodies=[body(1)]))
    (append,) = [each for each in alone.engine.take_effects() if isinstance(each, effects.Append)]
    append.on_done(LogUnavailable("gone"))
    alone.says(1, Publish(producer="p", secret="i", first=6, bodies=[body(2)]))
    alone.says(1, Publish(producer="other", secret="i", first=6, bodies=[body(3)]))
    alone.says(1, Publish(producer="p", secret="i", first=5, bodies=[body(1)]))
    alone.says(1, Publish(producer="p", secret="i", first=6, bodies=[body(2)]))
    said = [(record.producer, record.sequence) for record in alone.log if isinstance(record, Published)]
    assert said == [("other", 6), ("p", 5), ("p", 6)]


def test_what_was_altered_on_its_way_to_the_door_is_refused_with_all_behind_it_until_it_comes_again() -> None:
    alone = serving()
    first, second = body(1), body(2)
    alone.says(1, Publish(producer="p", secret="i", first=5, bodies=[b"\x80"], checks=[checksum(first)]))
    alone.says(1, Publish(producer="p", secret="i", first=6, bodies=[second], checks=[checksum(second)]))
    problems = [(each.code, each.about) for each in alone.heard() if isinstance(each, Problem)]
    assert problems == [("ALTERED", AboutPublish(5)), ("LOG_UNAVAILABLE", AboutPublish(6))]
    assert alone.engine.context.counters.altered == 1
    alone.says(1, Publish(producer="p", secret="i", first=5, bodies=[first], checks=[checksum(first)]))
    alone.says(1, Publish(producer="p", secret="i", first=6, bodies=[second], checks=[checksum(second)]))
    said = [(record.sequence, record.check) for record in alone.log if isinstance(record, Published)]
    assert said == [(5, checksum(first)), (6, checksum(second))]


def test_there_are_as_many_checksums_as_bodies() -> None:
    alone = serving()
    alone.says(1, Publish(producer="p", secret="i", first=5, bodies=[body(1)], checks=[1, 2]))
    problems = [(each.code, each.field) for each in alone.heard() if isinstance(each, Problem)]
    assert problems == [("BAD_MESSAGE", "checks")]


def test_nothing_is_subscribed_before_store_and_changelog_have_it() -> None:
    alone = serving()
    alone.says(1, Subscribe(subscription="x", expression="n > 0"))
    alone.answer_all(effects.PutCheckpoint, None)
    assert alone.heard() == []
    alone.keep()
    assert kinds(alone.heard()) == [Subscribed]


@pytest.mark.parametrize("store_first", [True, False])
@pytest.mark.parametrize("failing", [effects.Save, effects.PutCheckpoint])
def test_a_write_that_failed_is_told_once_and_is_no_yes(store_first: bool, failing: type) -> None:
    alone = serving()
    alone.says(1, Subscribe(subscription="x", expression="n > 0"))
    order = [effects.Save, effects.PutCheckpoint] if store_first else [effects.PutCheckpoint, effects.Save]
    for kind in order:
        alone.answer_all(kind, StoreFailed("full") if kind is failing else None)
    assert alone.heard() == [Problem("STORE_FAILED", "full", None, AboutSubscription(SubscriptionId("x")))]
    for _ in range(20):
        alone.pass_time(500)
        alone.keep()
    assert alone.heard() == []
    alone.says(1, Subscribe(subscription="x", expression="n > 0"))
    alone.keep()
    assert kinds(alone.heard()) == [Subscribed]


def test_a_promise_is_made_once_the_hold_is_read_and_the_changelog_has_the_promise() -> None:
    alone = serving()
    alone.says(1, Subscribe(subscription="x", expression="n > 0"))
    alone.keep()
    assert BecameEffective not in kinds(alone.heard())
    alone.read_log()
    assert BecameEffective not in kinds(alone.heard())
    alone.keep()
    assert kinds(alone.heard()) == [BecameEffective]


def test_a_subscription_said_twice_is_one() -> None:
    alone = serving("n > 0")
    alone.says(1, Subscribe(subscription="x0", expression="n > 0"))
    alone.keep()
    assert kinds(alone.heard()).count(Subscribed) == 1
    assert list(alone.engine.context.sessions[SESSION].subscriptions) == ["x0"]


def test_an_unknown_subscription_is_unsubscribed_already() -> None:
    alone = serving()
    alone.says(1, Unsubscribe("never"))
    alone.keep()
    assert kinds(alone.heard()) == [Unsubscribed]


def test_a_thousand_times_on_and_off_is_not_too_many_subscriptions() -> None:
    alone = serving()
    for number in range(MAX_SUBSCRIPTIONS_PER_SESSION + 1):
        alone.says(1, Subscribe(subscription=f"x{number}", expression="n > 0"))
        alone.keep()
        alone.says(1, Unsubscribe(f"x{number}"))
        alone.keep()
        alone.read_log()
    heard = kinds(alone.heard())
    assert heard == [Subscribed, Unsubscribed] * (MAX_SUBSCRIPTIONS_PER_SESSION + 1)


def test_one_subscription_past_the_limit_is_refused() -> None:
    alone = serving()
    for number in range(MAX_SUBSCRIPTIONS_PER_SESSION + 1):
        alone.says(1, Subscribe(subscription=f"x{number}", expression="n > 0"))
    alone.keep()
    heard = alone.heard()
    assert [(each.code, each.about) for each in heard if isinstance(each, Problem)] == [
        ("LIMIT_EXCEEDED", AboutSubscription(SubscriptionId(f"x{MAX_SUBSCRIPTIONS_PER_SESSION}")))
    ]
    assert kinds(heard).count(Subscribed) == MAX_SUBSCRIPTIONS_PER_SESSION


def test_the_other_receivers_are_told_of_a_change() -> None:
    alone = serving()
    alone.attach(2, "other")
    alone.heard(2)
    alone.says(1, Subscribe(subscription="x", expression="n > 0"))
    alone.keep()
    assert alone.heard(2) == [SubscriptionChanged("x", SubscriptionSettings(expression="n > 0", owner="r"))]  # type: ignore[arg-type]


def test_what_is_published_is_delivered_to_every_receiver_until_acknowledged() -> None:
    alone = serving("n > 0")
    alone.attach(2, "other")
    alone.heard(2)
    alone.says(1, Publish(producer="p", secret="i", first=0, bodies=[body(1), body(-1), body(2)]))
    alone.read_log()
    assert delivered(alone.heard(1)) == [1, 2]
    assert delivered(alone.heard(2)) == [1, 2]
    alone.says(1, Acknowledge(2))
    alone.attach(1)
    alone.attach(2, "other")
    assert delivered(alone.heard(1)) == []
    assert delivered(alone.heard(2)) == [1, 2]


def test_a_receiver_that_attaches_again_elsewhere_takes_its_own_place() -> None:
    alone = serving("n > 0")
    alone.attach(2, "r")
    assert [each.code for each in alone.heard(1) if isinstance(each, Problem)] == ["RECEIVER_TAKEN"]
    alone.says(1, Publish(producer="p", secret="i", first=0, bodies=[body(1)]))
    alone.read_log()
    assert delivered(alone.heard(1)) == []
    assert delivered(alone.heard(2)) == [1]


def test_the_end_of_an_earlier_connection_does_not_put_the_receiver_out() -> None:
    alone = serving("n > 0")
    alone.attach(2, "r")
    alone.heard(2)
    alone.engine.client_disconnected(1)
    alone.says(2, Publish(producer="p", secret="i", first=0, bodies=[body(1)]))
    alone.read_log()
    assert delivered(alone.heard(2)) == [1]


def test_a_receiver_that_leaves_hears_that_its_last_word_counts() -> None:
    alone = serving("n > 0")
    alone.says(1, Publish(producer="p", secret="i", first=0, bodies=[body(1)]))
    alone.read_log()
    alone.says(1, Detach(frontier=dict(alone.engine.state.frontier)))
    assert alone.heard(1)[-1] == Left("r")
    assert alone.engine.context.sessions[SESSION].entries.count == 0


def test_a_receiver_that_leaves_while_the_session_stands_still_is_to_say_so_again() -> None:
    """The cut is made: the next owner would give it once more what it had."""
    alone = serving("n > 0")
    alone.engine.context.sessions[SESSION].freeze({})
    alone.says(1, Detach())
    assert isinstance(alone.heard(1)[-1], Wait)
    assert not any(isinstance(each, Left) for each in alone.heard(1))


def test_a_receiver_that_is_forgotten_holds_nothing_back() -> None:
    alone = serving("n > 0")
    alone.attach(2, "other")
    alone.says(1, Publish(producer="p", secret="i", first=0, bodies=[body(1)]))
    alone.read_log()
    alone.says(1, Acknowledge(1))
    assert alone.engine.context.sessions[SESSION].entries.count == 1
    alone.says(2, Detach(forget=True))
    assert alone.engine.context.sessions[SESSION].entries.count == 0
    assert not any(isinstance(each, Forgotten) for each in alone.heard(2))
    alone.keep()
    assert alone.heard(2)[-1] == Forgotten("other")


def test_a_receiver_that_is_forgotten_while_the_session_stands_still_is_so_when_it_is_served_again() -> None:
    alone = serving("n > 0")
    alone.attach(2, "other")
    session = alone.engine.context.sessions[SESSION]
    session.freeze({})
    alone.says(2, Detach(forget=True))
    assert set(session.receivers) == {"r", "other"}
    session.become(Role.SERVING)
    alone.engine.dispatcher.served(session)
    alone.settle()
    alone.keep()
    assert set(session.receivers) == {"r"}
    assert alone.heard(2)[-1] == Forgotten("other")


def test_a_receiver_that_was_forgotten_at_an_epoch_that_is_over_is_told_to_come_again() -> None:
    """Whoever served since may know nothing of it, and keep what it waits for."""
    alone = serving("n > 0")
    alone.attach(2, "other")
    alone.says(2, Detach(forget=True))
    alone.engine.context.sessions[SESSION].epoch = Epoch(7)
    alone.heard(2)
    alone.keep()
    assert kinds(alone.heard(2)) == [Wait]


def test_who_was_in_a_session_that_was_deleted_has_no_place_in_the_next_one() -> None:
    """The attach may be late, of a receiver that has left that one for good."""
    alone = serving("n > 0")
    session = alone.engine.context.sessions[SESSION]
    session.epoch = Epoch(GENERATION + 1)
    alone.says(2, Attach(session=SESSION, receiver="other", incarnation="i2", frontier={}, create=False, epoch=1))
    assert [each.code for each in alone.heard(2) if isinstance(each, Problem)] == ["NOT_FOUND"]
    assert set(session.receivers) == {"r"}
    for attach in (
        Attach(session=SESSION, receiver="a", incarnation="i3", frontier={}, epoch=1),
        Attach(session=SESSION, receiver="b", incarnation="i4", frontier={}, create=False),
    ):
        alone.says(3 + len(session.receivers), attach)
        alone.keep()
    assert set(session.receivers) == {"r", "a", "b"}


def test_a_change_whose_answer_is_due_at_another_epoch_is_not_made_a_second_time() -> None:
    alone = serving("n > 0")
    session = alone.engine.context.sessions[SESSION]
    alone.says(1, Subscribe(subscription="y", expression="n > 1"))
    session.epoch = Epoch(7)
    alone.says(
        1, Attach(session=SESSION, receiver="r", incarnation="i1", frontier={}, create=False, epoch=1, attach_seq=2)
    )
    alone.says(1, Unsubscribe("y"))
    alone.heard()
    alone.keep()
    assert set(session.subscriptions) == {SubscriptionId("x0")}
    assert [each for each in alone.heard() if isinstance(each, Subscribed | Unsubscribed)] == [
        Unsubscribed(SubscriptionId("y"))
    ]


def test_a_change_is_answered_where_the_session_is_served_on_under_another_epoch() -> None:
    alone = serving("n > 0")
    alone.says(1, Subscribe(subscription="y", expression="n > 1"))
    alone.engine.context.sessions[SESSION].epoch = Epoch(7)
    alone.heard()
    alone.keep()
    assert Subscribed(SubscriptionId("y")) in alone.heard()


def test_whose_session_is_not_served_any_more_is_told_so() -> None:
    alone = serving("n > 0")
    alone.says(1, Subscribe(subscription="y", expression="n > 1"))
    alone.engine.context.sessions[SESSION].become(Role.DORMANT)
    alone.heard()
    alone.keep()
    assert [(each.code, each.about) for each in alone.heard() if isinstance(each, Problem)] == [
        ("NOT_SERVED", AboutSubscription(SubscriptionId("y")))
    ]


def test_changes_that_a_standstill_overtakes_are_answered_in_their_order_when_it_is_over() -> None:
    alone = serving("n > 0")
    session = alone.engine.context.sessions[SESSION]
    alone.says(1, Subscribe(subscription="y", expression="n > 1"))
    session.freeze({})
    alone.says(1, Unsubscribe("y"))
    alone.heard()
    alone.keep()
    assert not any(isinstance(each, Subscribed | Unsubscribed) for each in alone.heard())
    session.become(Role.SERVING)
    alone.engine.dispatcher.served(session)
    alone.settle()
    alone.keep()
    assert set(session.subscriptions) == {SubscriptionId("x0")}
    assert [each for each in alone.heard() if isinstance(each, Subscribed | Unsubscribed)] == [
        Subscribed(SubscriptionId("y")),
        Unsubscribed(SubscriptionId("y")),
    ]


def test_a_session_that_is_not_there_is_not_found_unless_it_may_be_made() -> None:
    alone = Alone()
    alone.says(1, Attach(session=SESSION, receiver="r", incarnation="i", frontier={}, create=False))
    alone.answer(effects.ReadRow, None)
    assert [each.code for each in alone.heard() if isinstance(each, Problem)] == ["NOT_FOUND"]


def test_a_proxy_that_loses_its_lease_delivers_no_more_and_says_so() -> None:
    alone = serving("n > 0")
    alone.engine.lease_lost()
    alone.says(1, Publish(producer="p", secret="i", first=0, bodies=[body(1)]))
    alone.read_log()
    assert kinds(alone.heard()) == [Wait, Acknowledged]


def test_a_new_receiver_is_let_in_once_store_and_changelog_know_of_it() -> None:
    alone = serving("n > 0")
    alone.keep()
    alone.says(2, Attach(session=SESSION, receiver="new", incarnation="i", frontier={}))
    alone.answer_all(effects.Save, None)
    assert Attached not in kinds(alone.heard(2))
    alone.answer_all(effects.PutCheckpoint, None)
    assert Attached in kinds(alone.heard(2))


def test_a_new_receiver_that_cannot_be_put_on_record_is_told_to_try_again() -> None:
    alone = serving("n > 0")
    alone.keep()
    alone.says(2, Attach(session=SESSION, receiver="new", incarnation="i", frontier={}))
    alone.answer_all(effects.Save, None)
    alone.answer_all(effects.PutCheckpoint, LogUnavailable("gone"))
    assert kinds(alone.heard(2))[-1] is Wait


def test_an_acknowledgement_after_the_lease_brings_nothing_more() -> None:
    """A process that was stopped for a while hears it before it looks at its clock."""
    alone = Alone(lease=False)
    alone.engine.lease_granted(Incarnation("me#1"), alone.clock.now_ms() + 5_000)
    alone.settle()
    alone.serve()
    alone.says(1, Subscribe(subscription="x", expression="n > 0"))
    alone.keep()
    alone.read_log()
    alone.says(1, Attach(session=SESSION, receiver="r", incarnation="i1", frontier={}, window=1))
    alone.says(2, Publish(producer="p", secret="i", first=0, bodies=[body(1), body(2)]))
    alone.read_log()
    assert delivered(alone.heard()) == [1]
    alone.clock.advance(5_000)
    alone.says(1, Acknowledge(1))
    assert delivered(alone.heard()) == []


def given_three() -> tuple[Alone, list[int]]:
    """One delivery of three is under way; return their offsets too."""
    alone = serving("n > 0")
    alone.says(1, Publish(producer="p", secret="i", first=0, bodies=[body(number) for number in (1, 2, 3)]))
    alone.read_log()
    assert delivered(alone.heard()) == [1, 2, 3]
    offsets = [offset for offset, record in enumerate(alone.log) if isinstance(record, Published)]
    return alone, offsets


def test_a_place_in_the_middle_of_a_delivery_counts_though_the_rest_is_not_acknowledged() -> None:
    alone, offsets = given_three()
    alone.says(1, Acknowledge(0, frontier={Origin("A/0"): offsets[1]}))
    session = alone.engine.context.sessions[SESSION]
    assert session.entries.count == 1
    alone.engine.client_disconnected(1)
    alone.attach(2)
    assert delivered(alone.heard(2)) == [3]


def test_the_rest_of_a_delivery_is_acknowledged_as_if_nothing_had_been_said_before() -> None:
    alone, offsets = given_three()
    alone.says(1, Acknowledge(0, frontier={Origin("A/0"): offsets[0]}))
    alone.says(1, Acknowledge(alone.engine.context.sessions[SESSION].entries.last_number))
    assert alone.engine.context.sessions[SESSION].entries.count == 0
    alone.says(1, Publish(producer="p", secret="i", first=3, bodies=[body(4)]))
    alone.read_log()
    assert delivered(alone.heard()) == [4]


@pytest.mark.parametrize("frontier", [{Origin("A/0"): 1_000}, {Origin("B/0"): 0}], ids=["beyond", "another origin"])
def test_a_place_behind_what_was_delivered_is_refused_and_changes_nothing(frontier: dict[Origin, int]) -> None:
    alone, _ = given_three()
    alone.says(1, Acknowledge(0, frontier=frontier))
    (refused,) = alone.heard()
    assert (refused.code, refused.field) == ("BAD_MESSAGE", "frontier")
    assert alone.engine.context.sessions[SESSION].entries.count == 3
