"""What is wrong is answered by name, and the connection goes on; nothing is acknowledged before it is safe."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core import effects
from proxy.core.inputs import ClientConnected, ClientDisconnected, ClientSent, LeaseGranted, LeaseLost, SecretRead
from proxy.session.role import Role
from tests.helpers.engine_harness import SESSION, EngineHarness
from waypost.checksum import checksum
from waypost.errors import LogUnavailable, StoreFailed
from waypost.frames import decode_proxy_message, encode_message
from waypost.identity import GENERATION, Epoch, Incarnation, Origin, SubscriptionId
from waypost.limits import MAX_SUBSCRIPTIONS_PER_SESSION, PUBLISH_WINDOW
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


def serving(*expressions: str) -> EngineHarness:
    """Serve one receiver, subscribed to these."""
    harness = EngineHarness()
    harness.serve()
    for number, expression in enumerate(expressions):
        harness.send(1, Subscribe(subscription=f"x{number}", expression=expression))
        harness.complete_writes()
        harness.read_log()
    harness.received()
    return harness


def kinds(messages: list[Any]) -> list[type]:
    return [type(message) for message in messages]


def delivered(messages: list[Any]) -> list[object]:
    found = [
        decode_proxy_message(encode_message(message)) for message in messages if isinstance(message, DeliverEncoded)
    ]
    return [
        Notification.from_body(entry.body)["n"]
        for deliver in found
        if isinstance(deliver, Deliver)
        for entry in deliver.entries
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
    harness = serving("n > 0")
    harness.send(1, message)
    (problem,) = harness.received()
    assert isinstance(problem, Problem)
    assert (problem.code, problem.field) == (code, field)
    harness.send(1, Publish(producer="p", secret="i", first=0, bodies=[body(1)]))
    assert kinds(harness.received()) == [Acknowledged]


def test_hello_comes_first() -> None:
    harness = EngineHarness()
    harness.step(ClientConnected(1))
    harness.step(ClientSent(1, Subscribe(subscription="x", expression="n > 0")))
    harness.run_effects()
    assert [problem.code for problem in harness.received() if isinstance(problem, Problem)] == ["BAD_MESSAGE"]
    harness.step(ClientSent(1, Hello(VERSION, "c")))
    harness.run_effects()
    assert kinds(harness.received()) == [Welcome]


def test_producer_of_another_federation_is_refused_and_nothing_of_it_is_appended() -> None:
    harness = EngineHarness()
    harness.step(ClientConnected(1))
    harness.step(SecretRead(b"s" * 32))
    harness.step(ClientSent(1, Hello(VERSION, "c", federation="another")))
    harness.step(ClientSent(1, Publish(producer="p", secret="i", first=0, bodies=[body(1)])))
    emitted = harness.take_effects()
    first, second = (effect.message for effect in emitted if isinstance(effect, effects.Send))
    assert isinstance(first, Problem) and isinstance(second, Problem)
    assert (first.code, first.field, first.about) == ("ANOTHER_FEDERATION", "federation", None)
    assert second.code == "BAD_MESSAGE"
    assert not [effect for effect in emitted if isinstance(effect, effects.Append)]


def test_producer_is_not_let_in_before_the_proxy_knows_its_own_federation() -> None:
    harness = EngineHarness()
    harness.step(ClientConnected(1))
    harness.step(ClientSent(1, Hello(VERSION, "c", federation="mine")))
    assert [effect for effect in harness.take_effects() if isinstance(effect, effects.Hangup)]


def test_a_subscription_without_a_session_is_refused() -> None:
    harness = EngineHarness()
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    assert [problem.code for problem in harness.received() if isinstance(problem, Problem)] == ["NOT_SERVED"]


def test_a_publish_that_the_log_did_not_take_says_which() -> None:
    harness = EngineHarness()
    harness.step(ClientConnected(1))
    harness.step(ClientSent(1, Hello(VERSION, "c")))
    harness.step(ClientSent(1, Publish(producer="p", secret="i", first=5, bodies=[body(1)])))
    (append,) = [effect for effect in harness.take_effects() if isinstance(effect, effects.Append)]
    harness.finish(append, LogUnavailable("gone"))
    harness.run_effects()
    problems = [problem for problem in harness.received() if isinstance(problem, Problem)]
    assert [(problem.code, problem.about) for problem in problems] == [("LOG_UNAVAILABLE", AboutPublish(5))]


def test_notifications_of_a_producer_are_not_appended_before_its_failed_one_comes_again() -> None:
    harness = EngineHarness()
    harness.step(ClientConnected(1))
    harness.step(ClientSent(1, Hello(VERSION, "c")))
    harness.step(ClientSent(1, Publish(producer="p", secret="i", first=5, bodies=[body(1)])))
    (append,) = [effect for effect in harness.take_effects() if isinstance(effect, effects.Append)]
    harness.finish(append, LogUnavailable("gone"))
    harness.send(1, Publish(producer="p", secret="i", first=6, bodies=[body(2)]))
    harness.send(1, Publish(producer="other", secret="i", first=6, bodies=[body(3)]))
    harness.send(1, Publish(producer="p", secret="i", first=5, bodies=[body(1)]))
    harness.send(1, Publish(producer="p", secret="i", first=6, bodies=[body(2)]))
    emitted_of = [(record.producer, record.sequence) for record in harness.log if isinstance(record, Published)]
    assert emitted_of == [("other", 6), ("p", 5), ("p", 6)]


def test_producer_that_comes_back_while_its_earlier_connection_is_not_known_to_have_ended_fills_no_room() -> None:
    """The log is away: each connection sends all that was not answered, and takes the place of the one before."""
    harness = EngineHarness()
    connections = range(1, 8)
    for number in connections:
        harness.step(ClientConnected(number))
        harness.step(ClientSent(number, Hello(VERSION, "c")))
        for first in range(0, PUBLISH_WINDOW, 1000):
            bodies = [body(n) for n in range(1000)]
            harness.step(ClientSent(number, Publish(producer="p", secret="i", first=first, bodies=bodies)))
    emitted = harness.take_effects()
    (append,) = [effect for effect in emitted if isinstance(effect, effects.Append)]
    emitted_of = [(effect.connection, effect.message) for effect in emitted if isinstance(effect, effects.Send)]
    assert {message.code for _, message in emitted_of if isinstance(message, Problem)} == {"LOG_UNAVAILABLE"}
    # What an earlier connection still brings does not overtake what was dropped.
    harness.step(ClientSent(1, Publish(producer="p", secret="i", first=PUBLISH_WINDOW, bodies=[body(0)])))
    harness.step(ClientSent(1, Publish(producer="p", secret="i", first=0, bodies=[body(0)], checks=[7])))
    harness.finish(append, [*range(1000)])
    harness.run_effects()
    numbers = [record.sequence for record in harness.log if isinstance(record, Published)]
    # The first frame was on its way already.
    assert numbers == [*range(PUBLISH_WINDOW)]


def published(harness: EngineHarness, number: int, *sequences: int) -> None:
    for sequence in sequences:
        harness.step(ClientSent(number, Publish(producer="p", secret="i", first=sequence, bodies=[body(sequence)])))


def two_connections() -> EngineHarness:
    harness = EngineHarness()
    for number in (1, 2):
        harness.step(ClientConnected(number))
        harness.step(ClientSent(number, Hello(VERSION, "c")))
    return harness


def appended(harness: EngineHarness) -> list[int]:
    harness.run_effects()
    return [record.sequence for record in harness.log if isinstance(record, Published)]


def test_what_a_later_connection_has_dropped_comes_before_what_is_behind_it() -> None:
    """The later one has gone again: the earlier one goes on where its frame was dropped, and not behind it."""
    harness = two_connections()
    published(harness, 1, 0, 1)
    published(harness, 2, 0)
    harness.step(ClientDisconnected(2))
    published(harness, 1, 2)
    assert appended(harness) == [0]
    published(harness, 1, 1, 2)
    assert appended(harness) == [0, 1, 2]


def test_frame_that_is_refused_drops_nothing_of_an_earlier_connection() -> None:
    harness = two_connections()
    published(harness, 1, 0, 1)
    harness.step(ClientSent(2, Publish(producer="p", secret="i", first=0, bodies=[b"\xc1"])))
    published(harness, 1, 2)
    assert appended(harness) == [0, 1, 2]


def test_append_that_fails_for_an_ended_connection_holds_back_nothing_of_the_next_one() -> None:
    """Its producer had what failed acknowledged elsewhere, and does not send it again."""
    harness = two_connections()
    published(harness, 1, 1)
    (append,) = [effect for effect in harness.take_effects() if isinstance(effect, effects.Append)]
    harness.step(ClientDisconnected(1))
    published(harness, 2, 2)
    harness.finish(append, LogUnavailable("gone"))
    published(harness, 2, 2)
    assert appended(harness) == [2]


def test_altered_publish_and_all_later_ones_are_refused_until_it_is_sent_again() -> None:
    harness = serving()
    first, second = body(1), body(2)
    harness.send(1, Publish(producer="p", secret="i", first=5, bodies=[b"\x80"], checks=[checksum(first)]))
    harness.send(1, Publish(producer="p", secret="i", first=6, bodies=[second], checks=[checksum(second)]))
    problems = [(problem.code, problem.about) for problem in harness.received() if isinstance(problem, Problem)]
    assert problems == [("ALTERED", AboutPublish(5)), ("LOG_UNAVAILABLE", AboutPublish(6))]
    assert harness.engine.output.counters.altered == 1
    harness.send(1, Publish(producer="p", secret="i", first=5, bodies=[first], checks=[checksum(first)]))
    harness.send(1, Publish(producer="p", secret="i", first=6, bodies=[second], checks=[checksum(second)]))
    emitted_of = [(record.sequence, record.check) for record in harness.log if isinstance(record, Published)]
    assert emitted_of == [(5, checksum(first)), (6, checksum(second))]


def test_there_are_as_many_checksums_as_bodies() -> None:
    harness = serving()
    harness.send(1, Publish(producer="p", secret="i", first=5, bodies=[body(1)], checks=[1, 2]))
    problems = [(problem.code, problem.field) for problem in harness.received() if isinstance(problem, Problem)]
    assert problems == [("BAD_MESSAGE", "checks")]


def test_nothing_is_subscribed_before_store_and_changelog_have_it() -> None:
    harness = serving()
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    harness.complete_all(effects.PutCheckpoint, None)
    assert harness.received() == []
    harness.complete_writes()
    assert kinds(harness.received()) == [Subscribed]


@pytest.mark.parametrize("store_first", [True, False])
@pytest.mark.parametrize("failing", [effects.Save, effects.PutCheckpoint])
def test_failed_write_is_answered_once_with_a_problem(store_first: bool, failing: type) -> None:
    harness = serving()
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    order = [effects.Save, effects.PutCheckpoint] if store_first else [effects.PutCheckpoint, effects.Save]
    for kind in order:
        harness.complete_all(kind, StoreFailed("full") if kind is failing else None)
    assert harness.received() == [Problem("STORE_FAILED", "full", None, AboutSubscription(SubscriptionId("x")))]
    for _ in range(20):
        harness.pass_time(500)
        harness.complete_writes()
    assert harness.received() == []
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    harness.complete_writes()
    assert kinds(harness.received()) == [Subscribed]


def test_a_promise_is_made_once_the_hold_is_read_and_the_changelog_has_the_promise() -> None:
    harness = serving()
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    harness.complete_writes()
    assert BecameEffective not in kinds(harness.received())
    harness.read_log()
    assert BecameEffective not in kinds(harness.received())
    harness.complete_writes()
    assert kinds(harness.received()) == [BecameEffective]


def test_a_subscription_said_twice_is_one() -> None:
    harness = serving("n > 0")
    harness.send(1, Subscribe(subscription="x0", expression="n > 0"))
    harness.complete_writes()
    assert kinds(harness.received()).count(Subscribed) == 1
    assert list(harness.engine.sessions[SESSION].subscriptions) == ["x0"]


def test_an_unknown_subscription_is_unsubscribed_already() -> None:
    harness = serving()
    harness.send(1, Unsubscribe("never"))
    harness.complete_writes()
    assert kinds(harness.received()) == [Unsubscribed]


def test_a_thousand_times_on_and_off_is_not_too_many_subscriptions() -> None:
    harness = serving()
    for number in range(MAX_SUBSCRIPTIONS_PER_SESSION + 1):
        harness.send(1, Subscribe(subscription=f"x{number}", expression="n > 0"))
        harness.complete_writes()
        harness.send(1, Unsubscribe(f"x{number}"))
        harness.read_log()
        harness.complete_writes()
    answers = [kind for kind in kinds(harness.received()) if kind is not BecameEffective]
    assert answers == [Subscribed, Unsubscribed] * (MAX_SUBSCRIPTIONS_PER_SESSION + 1)


def test_subscription_past_the_limit_of_a_session_is_refused() -> None:
    harness = serving()
    for number in range(MAX_SUBSCRIPTIONS_PER_SESSION + 1):
        harness.send(1, Subscribe(subscription=f"x{number}", expression="n > 0"))
    harness.complete_writes()
    answers = harness.received()
    assert [(problem.code, problem.about) for problem in answers if isinstance(problem, Problem)] == [
        ("LIMIT_EXCEEDED", AboutSubscription(SubscriptionId(f"x{MAX_SUBSCRIPTIONS_PER_SESSION}")))
    ]
    assert kinds(answers).count(Subscribed) == MAX_SUBSCRIPTIONS_PER_SESSION


def test_change_of_a_subscription_is_reported_to_the_other_receivers() -> None:
    harness = serving()
    harness.attach(2, "other")
    harness.received(2)
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    harness.complete_writes()
    assert harness.received(2) == [SubscriptionChanged("x", SubscriptionSettings(expression="n > 0", owner="r"))]  # type: ignore[arg-type]


def test_notification_is_delivered_to_every_receiver_until_acknowledged() -> None:
    harness = serving("n > 0")
    harness.attach(2, "other")
    harness.received(2)
    harness.send(1, Publish(producer="p", secret="i", first=0, bodies=[body(1), body(-1), body(2)]))
    harness.read_log()
    assert delivered(harness.received(1)) == [1, 2]
    assert delivered(harness.received(2)) == [1, 2]
    harness.send(1, Acknowledge(2))
    harness.attach(1)
    harness.attach(2, "other")
    assert delivered(harness.received(1)) == []
    assert delivered(harness.received(2)) == [1, 2]


def test_a_receiver_that_attaches_again_elsewhere_takes_its_own_place() -> None:
    harness = serving("n > 0")
    harness.attach(2, "r")
    assert [problem.code for problem in harness.received(1) if isinstance(problem, Problem)] == ["RECEIVER_TAKEN"]
    harness.send(1, Publish(producer="p", secret="i", first=0, bodies=[body(1)]))
    harness.read_log()
    assert delivered(harness.received(1)) == []
    assert delivered(harness.received(2)) == [1]


def test_the_end_of_an_earlier_connection_does_not_put_the_receiver_out() -> None:
    harness = serving("n > 0")
    harness.attach(2, "r")
    harness.received(2)
    harness.step(ClientDisconnected(1))
    harness.send(2, Publish(producer="p", secret="i", first=0, bodies=[body(1)]))
    harness.read_log()
    assert delivered(harness.received(2)) == [1]


def test_a_receiver_that_leaves_hears_that_its_last_word_counts() -> None:
    harness = serving("n > 0")
    harness.send(1, Publish(producer="p", secret="i", first=0, bodies=[body(1)]))
    harness.read_log()
    harness.send(1, Detach(frontier=dict(harness.engine.state.frontier)))
    assert harness.received(1)[-1] == Left("r")
    assert harness.engine.sessions[SESSION].entries.count == 0


def test_a_receiver_that_leaves_while_the_session_stands_still_is_to_say_so_again() -> None:
    """The cut is made: the next owner would give it once more what it had."""
    harness = serving("n > 0")
    harness.engine.sessions[SESSION].freeze({})
    harness.send(1, Detach())
    assert isinstance(harness.received(1)[-1], Wait)
    assert not any(isinstance(message, Left) for message in harness.received(1))


def test_a_receiver_that_is_forgotten_holds_nothing_back() -> None:
    harness = serving("n > 0")
    harness.attach(2, "other")
    harness.send(1, Publish(producer="p", secret="i", first=0, bodies=[body(1)]))
    harness.read_log()
    harness.send(1, Acknowledge(1))
    assert harness.engine.sessions[SESSION].entries.count == 1
    harness.send(2, Detach(forget=True))
    assert harness.engine.sessions[SESSION].entries.count == 0
    assert not any(isinstance(message, Forgotten) for message in harness.received(2))
    harness.complete_writes()
    assert harness.received(2)[-1] == Forgotten("other")


def test_a_receiver_that_is_forgotten_while_the_session_stands_still_is_so_when_it_is_served_again() -> None:
    harness = serving("n > 0")
    harness.attach(2, "other")
    session = harness.engine.sessions[SESSION]
    session.freeze({})
    harness.send(2, Detach(forget=True))
    assert set(session.receivers) == {"r", "other"}
    session.become(Role.SERVING)
    harness.engine.dispatcher.served(session)
    harness.run_effects()
    harness.complete_writes()
    assert set(session.receivers) == {"r"}
    assert harness.received(2)[-1] == Forgotten("other")


def test_receiver_unregistered_at_an_ended_epoch_is_answered_wait() -> None:
    """Whoever served since may know nothing of it, and keep what it waits for."""
    harness = serving("n > 0")
    harness.attach(2, "other")
    harness.send(2, Detach(forget=True))
    harness.engine.sessions[SESSION].epoch = Epoch(7)
    harness.received(2)
    harness.complete_writes()
    assert kinds(harness.received(2)) == [Wait]


def test_receiver_of_a_deleted_session_is_not_registered_in_the_next_session_of_its_name() -> None:
    """The attach may be late, of a receiver that has left that one for good."""
    harness = serving("n > 0")
    session = harness.engine.sessions[SESSION]
    session.epoch = Epoch(GENERATION + 1)
    harness.send(2, Attach(session=SESSION, receiver="other", incarnation="i2", frontier={}, create=False, epoch=1))
    assert [problem.code for problem in harness.received(2) if isinstance(problem, Problem)] == ["NOT_FOUND"]
    assert set(session.receivers) == {"r"}
    for attach in (
        Attach(session=SESSION, receiver="a", incarnation="i3", frontier={}, epoch=1),
        Attach(session=SESSION, receiver="b", incarnation="i4", frontier={}, create=False),
    ):
        harness.send(3 + len(session.receivers), attach)
        harness.complete_writes()
    assert set(session.receivers) == {"r", "a", "b"}


def test_a_change_whose_answer_is_due_at_another_epoch_is_not_made_a_second_time() -> None:
    harness = serving("n > 0")
    session = harness.engine.sessions[SESSION]
    harness.send(1, Subscribe(subscription="y", expression="n > 1"))
    session.epoch = Epoch(7)
    harness.send(
        1, Attach(session=SESSION, receiver="r", incarnation="i1", frontier={}, create=False, epoch=1, attach_seq=2)
    )
    harness.send(1, Unsubscribe("y"))
    harness.received()
    harness.read_log()
    harness.complete_writes()
    assert set(session.subscriptions) == {SubscriptionId("x0")}
    assert [message for message in harness.received() if isinstance(message, Subscribed | Unsubscribed)] == [
        Unsubscribed(SubscriptionId("y"))
    ]


def test_a_change_is_answered_where_the_session_is_served_on_under_another_epoch() -> None:
    harness = serving("n > 0")
    harness.send(1, Subscribe(subscription="y", expression="n > 1"))
    harness.engine.sessions[SESSION].epoch = Epoch(7)
    harness.received()
    harness.complete_writes()
    assert Subscribed(SubscriptionId("y")) in harness.received()


def test_request_is_answered_not_served_when_the_session_becomes_dormant_meanwhile() -> None:
    harness = serving("n > 0")
    harness.send(1, Subscribe(subscription="y", expression="n > 1"))
    harness.engine.sessions[SESSION].become(Role.DORMANT)
    harness.received()
    harness.complete_writes()
    assert [(problem.code, problem.about) for problem in harness.received() if isinstance(problem, Problem)] == [
        ("NOT_SERVED", AboutSubscription(SubscriptionId("y")))
    ]


def test_changes_that_a_standstill_overtakes_are_answered_in_their_order_when_it_is_over() -> None:
    harness = serving("n > 0")
    session = harness.engine.sessions[SESSION]
    harness.send(1, Subscribe(subscription="y", expression="n > 1"))
    session.freeze({})
    harness.send(1, Unsubscribe("y"))
    harness.received()
    harness.complete_writes()
    assert not any(isinstance(message, Subscribed | Unsubscribed) for message in harness.received())
    session.become(Role.SERVING)
    harness.engine.dispatcher.served(session)
    harness.run_effects()
    harness.read_log()
    harness.complete_writes()
    assert set(session.subscriptions) == {SubscriptionId("x0")}
    assert [message for message in harness.received() if isinstance(message, Subscribed | Unsubscribed)] == [
        Subscribed(SubscriptionId("y")),
        Unsubscribed(SubscriptionId("y")),
    ]


def test_a_session_that_is_not_there_is_not_found_unless_it_may_be_made() -> None:
    harness = EngineHarness()
    harness.send(1, Attach(session=SESSION, receiver="r", incarnation="i", frontier={}, create=False))
    harness.complete(effects.ReadRow, None)
    assert [problem.code for problem in harness.received() if isinstance(problem, Problem)] == ["NOT_FOUND"]


def test_a_proxy_that_loses_its_lease_delivers_no_more_and_says_so() -> None:
    harness = serving("n > 0")
    harness.step(LeaseLost())
    harness.send(1, Publish(producer="p", secret="i", first=0, bodies=[body(1)]))
    harness.read_log()
    assert kinds(harness.received()) == [Wait, Acknowledged]


def test_a_new_receiver_is_let_in_once_store_and_changelog_know_of_it() -> None:
    harness = serving("n > 0")
    harness.complete_writes()
    harness.send(2, Attach(session=SESSION, receiver="new", incarnation="i", frontier={}))
    harness.complete_all(effects.Save, None)
    assert Attached not in kinds(harness.received(2))
    harness.complete_all(effects.PutCheckpoint, None)
    assert Attached in kinds(harness.received(2))


def test_new_receiver_is_answered_wait_when_its_registration_cannot_be_written() -> None:
    harness = serving("n > 0")
    harness.complete_writes()
    harness.send(2, Attach(session=SESSION, receiver="new", incarnation="i", frontier={}))
    harness.complete_all(effects.Save, None)
    harness.complete_all(effects.PutCheckpoint, LogUnavailable("gone"))
    assert kinds(harness.received(2))[-1] is Wait


def test_an_acknowledgement_after_the_lease_brings_nothing_more() -> None:
    """A process that was stopped for a while hears it before it looks at its clock."""
    harness = EngineHarness(lease=False)
    harness.step(LeaseGranted(Incarnation("me#1"), harness.clock.now_ms() + 5_000))
    harness.run_effects()
    harness.serve()
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    harness.complete_writes()
    harness.read_log()
    harness.send(1, Attach(session=SESSION, receiver="r", incarnation="i1", frontier={}, window=1))
    harness.send(2, Publish(producer="p", secret="i", first=0, bodies=[body(1), body(2)]))
    harness.read_log()
    assert delivered(harness.received()) == [1]
    harness.clock.advance(5_000)
    harness.send(1, Acknowledge(1))
    assert delivered(harness.received()) == []


def given_three() -> tuple[EngineHarness, list[int]]:
    """One delivery of three is under way; return their offsets too."""
    harness = serving("n > 0")
    harness.send(1, Publish(producer="p", secret="i", first=0, bodies=[body(number) for number in (1, 2, 3)]))
    harness.read_log()
    assert delivered(harness.received()) == [1, 2, 3]
    offsets = [offset for offset, record in enumerate(harness.log) if isinstance(record, Published)]
    return harness, offsets


def test_a_place_in_the_middle_of_a_delivery_counts_though_the_rest_is_not_acknowledged() -> None:
    harness, offsets = given_three()
    harness.send(1, Acknowledge(0, frontier={Origin("A/0"): offsets[1]}))
    session = harness.engine.sessions[SESSION]
    assert session.entries.count == 1
    harness.step(ClientDisconnected(1))
    harness.attach(2)
    assert delivered(harness.received(2)) == [3]


def test_the_rest_of_a_delivery_is_acknowledged_as_if_nothing_had_been_said_before() -> None:
    harness, offsets = given_three()
    harness.send(1, Acknowledge(0, frontier={Origin("A/0"): offsets[0]}))
    harness.send(1, Acknowledge(harness.engine.sessions[SESSION].entries.last_number))
    assert harness.engine.sessions[SESSION].entries.count == 0
    harness.send(1, Publish(producer="p", secret="i", first=3, bodies=[body(4)]))
    harness.read_log()
    assert delivered(harness.received()) == [4]


@pytest.mark.parametrize("frontier", [{Origin("A/0"): 1_000}, {Origin("B/0"): 0}], ids=["beyond", "another origin"])
def test_frontier_past_the_delivered_entries_is_refused_and_changes_nothing(frontier: dict[Origin, int]) -> None:
    harness, _ = given_three()
    harness.send(1, Acknowledge(0, frontier=frontier))
    (refused,) = harness.received()
    assert (refused.code, refused.field) == ("BAD_MESSAGE", "frontier")
    assert harness.engine.sessions[SESSION].entries.count == 3
