"""Keys at a proxy: merged at its door, changed exactly between two notifications, and never kept raw."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from proxy.core import effects
from proxy.core.inputs import ClientDisconnected
from proxy.stream.promises import AHEAD_MS
from tests.helpers.engine_harness import SESSION, EngineHarness
from waypost.facts import FactKind, encode_fact
from waypost.identity import NOTHING, Origin, ReceiverId, SubscriptionId
from waypost.keys import Key, Keys, public_key
from waypost.messages import (
    AboutKeys,
    BecameEffective,
    DeliverEncoded,
    Delivery,
    KeysChanged,
    Problem,
    Publish,
    PublishWith,
    SetKeys,
    Subscribe,
    Subscribed,
    SubscriptionChanged,
    Unsubscribe,
)
from waypost.notification import Notification, read_body
from waypost.records import Published, encode_record

A = Origin("A/0")
PRODUCER = 9
"""The connection of a producer."""


def raw(*secrets: bytes) -> list[Key]:
    return Keys.producer(*secrets).listed()


def public(*secrets: bytes) -> list[Key]:
    return Keys.producer(*map(public_key, secrets)).listed()


class Keyed(EngineHarness):
    """A session that is served, a producer, and what the receiver of connection 1 is given."""

    def __init__(self) -> None:
        super().__init__()
        self.serve()
        self._published = 0

    def subscribe(self, *secrets: bytes, insecure: bool = False, **policy: int) -> None:
        self.send(
            1, Subscribe(subscription="x", expression="require(n)", keys=public(*secrets), insecure=insecure, **policy)
        )
        self.complete_writes()
        self.read_log()
        self.complete_writes()

    def publish(self, *secrets: bytes, insecure: bool = False) -> int:
        """Publish the next number with these raw keys; return it."""
        self._published += 1
        body = Notification({"n": self._published}).body
        self.send(
            PRODUCER,
            Publish(
                producer="p", secret="i", first=self._published, bodies=[body], keys=raw(*secrets), insecure=insecure
            ),
        )
        self.read_log()
        return self._published

    def given(self) -> list[int]:
        return [number for number, _ in self.given_secure()]

    def given_secure(self) -> list[tuple[int, bool]]:
        """Return what was given since the last time, and whether it met the keys of x."""
        found = []
        for message in self.received(1):
            if isinstance(message, DeliverEncoded):
                entries = [msgspec.msgpack.decode(entry, type=Delivery) for entry in message.entries]
                secure = [x_id() in message.secure.get(index, ()) for index in message.matched]
                numbers = [read_body(entry.body)["n"] for entry in entries]
                found += list(zip(numbers, secure, strict=True))
        return found  # type: ignore[return-value]


def x_id() -> SubscriptionId:
    return SubscriptionId("x")


def test_only_what_meets_the_keys_comes_and_is_called_secure() -> None:
    harness = Keyed()
    harness.subscribe(b"k")
    harness.publish()
    harness.publish(b"l")
    harness.publish(insecure=True)
    met = harness.publish(b"k", b"l")
    assert harness.given_secure() == [(met, True)]


def test_insecure_subscription_is_told_which_notifications_met_its_keys() -> None:
    harness = Keyed()
    harness.subscribe(b"k", insecure=True)
    other, met = harness.publish(b"l", insecure=True), harness.publish(b"k", insecure=True)
    assert harness.given_secure() == [(other, False), (met, True)]


def test_keys_change_exactly_between_two_notifications() -> None:
    harness = Keyed()
    harness.subscribe(b"k")
    before, _ = harness.publish(b"k"), harness.publish(b"l")
    harness.subscribe(b"l")
    _, after = harness.publish(b"k"), harness.publish(b"l")
    assert harness.given() == [before, after]
    first, second = (fact for fact in harness.facts if fact.kind == FactKind.SUBSCRIBED)
    (ended,) = (fact for fact in harness.facts if fact.kind == FactKind.UNSUBSCRIBED)
    assert ended.subscription_generation == first.subscription_generation != second.subscription_generation
    assert ended.frontier == second.frontier


def test_change_of_keys_keeps_backlog_of_the_old_keys_for_a_detached_receiver() -> None:
    harness = Keyed()
    harness.attach(2, "other")
    harness.received(2)
    harness.subscribe(b"k")
    harness.step(ClientDisconnected(1))
    before = harness.publish(b"k")
    harness.send(2, Subscribe(subscription="x", expression="require(n)", keys=public(b"l"), insecure=False))
    harness.complete_writes()
    after = harness.publish(b"l")
    harness.attach(1)
    assert harness.given() == [before, after]


def test_the_receivers_keys_go_with_all_that_it_subscribes() -> None:
    harness = Keyed()
    harness.subscribe()
    harness.publish(b"k")
    harness.send(1, SetKeys(5, public(b"k")))
    harness.complete_writes()
    assert [message for message in harness.received() if isinstance(message, KeysChanged)] == [KeysChanged(5)]
    met = harness.publish(b"k")
    harness.send(1, Subscribe(subscription="y", expression="n > 0", insecure=False))
    harness.complete_writes()
    also = harness.publish(b"k")
    assert harness.given() == [met, also]
    assert harness.engine.sessions[SESSION].subscriptions[SubscriptionId("y")].owner_keys == tuple(public(b"k"))


def test_another_receivers_subscription_keeps_its_keys() -> None:
    harness = Keyed()
    harness.subscribe(b"k")
    harness.attach(2, "other")
    harness.send(2, SetKeys(1, public(b"l")))
    harness.complete_writes()
    harness.publish(b"l")
    met = harness.publish(b"k")
    assert harness.given() == [met]


def test_a_change_that_changes_nothing_is_answered_and_begins_no_life() -> None:
    harness = Keyed()
    harness.subscribe(b"k")
    harness.received()
    harness.subscribe(b"k")
    assert Subscribed(x_id()) in harness.received()
    assert len([fact for fact in harness.facts if fact.kind == FactKind.SUBSCRIBED]) == 1


def test_the_connections_keys_go_with_all_that_is_published_on_it_from_there_on() -> None:
    harness = Keyed()
    harness.subscribe(b"k")
    harness.publish()
    harness.send(PRODUCER, PublishWith(raw(b"k")))
    first, second = harness.publish(), harness.publish(b"l")
    harness.send(PRODUCER, PublishWith([]))
    harness.publish()
    assert harness.given() == [first, second]


def test_the_policy_goes_on_over_a_change_of_keys() -> None:
    harness = Keyed()
    harness.subscribe(b"k", max_count=2)
    harness.step(ClientDisconnected(1))
    harness.attach(2, "other")
    harness.received(2)
    harness.publish(b"k")
    harness.publish(b"k")
    harness.send(
        2, Subscribe(subscription="x", expression="require(n)", max_count=2, keys=public(b"l"), insecure=False)
    )
    harness.complete_writes()
    kept = [harness.publish(b"l"), harness.publish(b"l")]
    harness.attach(1)
    assert harness.given() == kept


def test_another_policy_holds_for_what_came_by_the_keys_before_too() -> None:
    harness = Keyed()
    harness.subscribe(b"k")
    harness.step(ClientDisconnected(1))
    harness.attach(2, "other")
    harness.received(2)
    harness.publish(b"k")
    last = harness.publish(b"k")
    for policy in ({}, {"max_count": 1}):
        harness.send(
            2, Subscribe(subscription="x", expression="require(n)", keys=public(b"l"), insecure=False, **policy)
        )
        harness.complete_writes()
    harness.attach(1)
    assert harness.given() == [last]


def test_recreated_subscription_keeps_the_backlog_of_the_previous_one() -> None:
    harness = Keyed()
    harness.subscribe(b"k", max_count=1)
    harness.step(ClientDisconnected(1))
    harness.attach(2, "other")
    harness.received(2)
    owed = harness.publish(b"k")
    harness.send(
        2, Subscribe(subscription="x", expression="require(n)", max_count=1, keys=public(b"l"), insecure=False)
    )
    harness.send(2, Unsubscribe("x"))
    harness.send(2, Subscribe(subscription="x", expression="require(n)", max_count=1))
    harness.complete_writes()
    new = harness.publish(insecure=True)
    harness.attach(1)
    assert harness.given() == [owed, new]


def test_a_promise_is_made_anew_from_where_the_keys_changed() -> None:
    harness = Keyed()
    harness.subscribe(b"k")
    harness.publish(b"k")
    harness.received()
    harness.subscribe(b"l")
    promised = [message for message in harness.received() if isinstance(message, BecameEffective)]
    assert promised and promised[-1] == BecameEffective(x_id(), {A: harness.engine.state.frontier[A]})


def test_other_receivers_learn_the_number_of_keys_and_not_the_keys() -> None:
    harness = Keyed()
    harness.attach(2, "other")
    harness.received(2)
    harness.subscribe(b"k", b"l")
    harness.send(1, SetKeys(1, public(b"m")))
    harness.complete_writes()
    described = [
        subscription_changed.settings
        for subscription_changed in harness.received(2)
        if isinstance(subscription_changed, SubscriptionChanged)
    ]
    assert [
        (subscription_settings.keys, subscription_settings.insecure)
        for subscription_settings in described
        if subscription_settings
    ] == [(2, False), (3, False)]


def test_keys_that_change_too_often_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.clients.subscribe.MAX_SUBSCRIPTIONS_PER_SESSION", 5)
    harness = Keyed()
    harness.attach(2, "other")
    harness.subscribe(b"k")
    harness.step(ClientDisconnected(2))
    for number in range(4):
        harness.publish(b"%d" % (number - 1), insecure=True)
        harness.send(
            1, Subscribe(subscription="x", expression="require(n)", keys=public(b"%d" % number), insecure=False)
        )
    harness.received()
    harness.send(1, SetKeys(8, public(b"one more")))
    (refused,) = (problem for problem in harness.received() if isinstance(problem, Problem))
    assert (refused.code, refused.about) == ("LIMIT_EXCEEDED", AboutKeys(8))


def test_change_of_keys_that_makes_the_checkpoint_too_large_for_a_record_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It leaves a generation of each subscription: the session would be as large again."""
    monkeypatch.setattr("proxy.session.session.ROOM_CHECKS", 1 << 30)
    harness = Keyed()
    for number in range(20):
        harness.send(1, Subscribe(subscription=f"y{number}", expression=f"n == {number}"))
    harness.complete_writes()
    harness.received()
    session = harness.engine.sessions[SESSION]
    size = len(msgspec.json.encode(session.descriptor()))
    monkeypatch.setattr("proxy.session.session.MAX_DESCRIPTOR_BYTES", size + 1_000)
    harness.send(1, SetKeys(99, public(b"k")))
    (problem,) = (message for message in harness.received() if isinstance(message, Problem))
    assert (problem.code, problem.about) == ("LIMIT_EXCEEDED", AboutKeys(99))
    assert len(msgspec.json.encode(session.descriptor())) == size


def test_a_raw_key_is_in_nothing_that_is_written() -> None:
    secret = b"a raw key that nobody must read"
    harness = Keyed()
    written: list[Any] = []
    harness.send(1, SetKeys(1, Keys.consumer(secret).listed()))
    written += [effect for effect in harness.pending if isinstance(effect, effects.Save | effects.PutCheckpoint)]
    harness.complete_writes()
    harness.send(
        1,
        Subscribe(
            subscription="x", expression="require(n)", keys=Keys.consumer(b"!" + secret).listed(), insecure=False
        ),
    )
    written += [effect for effect in harness.pending if isinstance(effect, effects.Save | effects.PutCheckpoint)]
    harness.complete_writes()
    harness.read_log()
    harness.send(PRODUCER, PublishWith(raw(b"?" + secret)))
    harness.publish(secret)
    (record,) = (record for record in harness.log if isinstance(record, Published))
    session = harness.engine.sessions[SESSION]
    assert len(written) == 4 and len(record.protection.keys) == 2
    assert session.receivers[ReceiverId("r")].keys == tuple(Keys.consumer(public_key(secret)).listed())
    texts = [encode_record(record), *map(encode_fact, harness.facts), msgspec.json.encode(session.descriptor())]
    texts += [repr(written).encode()]
    assert not any(form in text for text in texts for form in (secret, secret.hex().encode()))


def test_promise_passes_to_the_next_generation_of_a_subscription_at_once() -> None:
    """A crash may come before anything else is written."""
    harness = Keyed()
    harness.subscribe(b"k")
    harness.publish(b"k")
    session = harness.engine.sessions[SESSION]
    assert session.subscriptions[x_id()].promised == {A: NOTHING}
    harness.send(1, Subscribe(subscription="x", expression="require(n)", keys=public(b"l"), insecure=False))
    here = harness.engine.state.frontier[A]
    assert session.subscriptions[x_id()].promised == {A: here}
    # The journal has it when store and changelog have it.
    assert [fact.subscription_generation for fact in harness.facts if fact.kind == FactKind.EFFECTIVE] == ["1/1"]
    harness.complete_writes()
    fact = [fact for fact in harness.facts if fact.kind == FactKind.EFFECTIVE][-1]
    assert (fact.subscription_generation, fact.frontier) == (session.subscriptions[x_id()].generation, {A: here})


def test_keys_change_above_what_was_read_whatever_a_receiver_reports() -> None:
    harness = Keyed()
    harness.subscribe(b"k")
    harness.attach(2, "other", {A: 100})
    harness.send(1, Subscribe(subscription="x", expression="require(n)", keys=public(b"l"), insecure=False))
    before, after = harness.engine.sessions[SESSION].subscriptions.generations(x_id())
    assert before.end == after.start == {A: NOTHING}


def test_change_of_keys_keeps_the_promise_whatever_a_receiver_reports() -> None:
    """After a failover it may have more than was read here; that is its own affair (handover rule 30)."""
    harness = Keyed()
    harness.subscribe(b"k")
    harness.attach(2, "other", {A: 100})
    harness.send(1, Subscribe(subscription="x", expression="require(n)", keys=public(b"l"), insecure=False))
    harness.complete_writes()
    (after,) = harness.engine.sessions[SESSION].subscriptions.active()
    assert after.promised == after.durable_promises == {A: NOTHING}
    harness.pass_time(AHEAD_MS)
    harness.complete_writes()
    assert after.promised == {A: NOTHING}


def test_promise_written_during_a_change_of_keys_is_not_announced_for_the_replaced_generation() -> None:
    """No checkpoint may have that life any more; the next one makes its own promise (F78)."""
    harness = EngineHarness()
    harness.serve()
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    harness.complete_writes()
    harness.read_log()
    (before,) = harness.engine.sessions[SESSION].subscriptions.active()
    assert before.unannounced
    harness.send(1, SetKeys(5, public(b"k")))
    harness.complete_writes()
    harness.read_log()
    harness.complete_writes()
    (now,) = harness.engine.sessions[SESSION].subscriptions.active()
    promised = [fact.subscription_generation for fact in harness.facts if fact.kind == "effective"]
    assert now.generation != before.generation and set(promised) == {now.generation}
    assert [type(message) for message in harness.received()].count(BecameEffective) == 1
