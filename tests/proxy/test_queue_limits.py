"""What goes when a session stores more than it may: by a dumber model, and at a proxy."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.ports import Claimed
from proxy.core import effects
from proxy.core.inputs import ClientDisconnected, LeaseLost
from proxy.core.settings import EngineBounds
from proxy.session.queue_limits import SLACK, QueueLimits
from proxy.session.retention import Retention
from proxy.session.stored_notification import Entry, StoredNotification
from tests.helpers.engine_harness import SESSION, EngineHarness
from tests.proxy.test_dispatcher import delivered
from waypost.access import READ, Grant
from waypost.facts import RemovalPolicy
from waypost.identity import Incarnation, Origin, ReceiverId, SubscriptionId
from waypost.messages import Acknowledge, Attach, Attached, Problem, Publish, Subscribe
from waypost.notification import Int64, Notification, Value
from waypost.queue import DISCARDS, UNBOUNDED, Discard, Queue
from waypost.records import Published

A = Origin("A/0")
X = (SubscriptionId("x"),)


def entry(number: int, attributes: dict[str, Value] | None = None, size: int = 0, at_ms: int = 1_000) -> Entry:
    body = Notification({"n": number, "filling": b"x" * size, **(attributes or {})}).body
    return (
        number,
        StoredNotification.of(
            A, number, Published(producer="p", incarnation=Incarnation("i"), sequence=number, at_ms=at_ms, body=body)
        ),
        X,
    )


def filled(queue: Queue, *entries: Entry) -> QueueLimits:
    queue_limits = QueueLimits(queue)
    queue_limits.prepend((), 1)
    for each in entries:
        queue_limits.add(each)
    return queue_limits


@settings(max_examples=200)
@given(
    discard=st.sampled_from(DISCARDS),
    most=st.integers(1, 5),
    steps=st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 3), st.integers(0, 2)), max_size=30),
)
def test_queue_limits_discard_as_the_model_does(discard: Discard, most: int, steps: list[tuple[int, int, int]]) -> None:
    queue_limits = filled(Queue(most, discard=discard))
    model: list[tuple[int, int, int]] = []
    for number, (priority, timeout, had) in enumerate(steps, 1):
        queue_limits.add(entry(number, {"Priority": priority, "Timeout": timeout}))
        model.append((number, priority, timeout))
        discarding = [kept.number for kept in queue_limits.surplus()]
        expected = []
        while len(model) > most:
            order = {
                "priority": min(model, key=lambda entry: (entry[1], entry[0])),
                "deadline": min(model, key=lambda entry: (entry[2], entry[0])),
                "lifo": model[-1],
            }
            model.remove(gone := order.get(discard, model[0]))
            expected.append(gone[0])
        assert discarding == expected
        for _ in range(min(had, len(model))):
            queue_limits.remove(model.pop(0)[0] + 1)
        queue_limits.forget(discarding)
        assert (queue_limits.count, queue_limits.lowest) == (len(model), model[0][0] if model else None)


def test_bytes_are_counted_as_well() -> None:
    entry_bytes = entry(1, size=100)[1].size
    queue_limits = filled(Queue(max_bytes=3 * entry_bytes), *(entry(number, size=100) for number in range(1, 6)))
    assert [kept.number for kept in queue_limits.surplus()] == [1, 2]
    assert queue_limits.bytes == 3 * entry_bytes
    queue_limits.remove(5)
    assert queue_limits.bytes == entry_bytes


def test_entry_larger_than_the_byte_limit_is_discarded_alone() -> None:
    queue_limits = filled(Queue(max_bytes=10), entry(1, size=1_000))
    assert [kept.number for kept in queue_limits.surplus()] == [1]
    assert (queue_limits.count, queue_limits.bytes) == (0, 0)


def test_a_heap_does_not_keep_what_is_gone() -> None:
    queue_limits = filled(Queue(5, discard="priority", deadlines=True))
    for number in range(1, 10 * SLACK):
        queue_limits.add(entry(number, {"Timeout": 10**6}))
        queue_limits.remove(number)
    assert len(queue_limits._first) <= SLACK + 4
    assert len(queue_limits._soonest) <= SLACK + 4


def test_a_deadline_is_the_sooner_of_stop_time_and_timeout() -> None:
    queue_limits = filled(
        Queue(deadlines=True),
        entry(1, {"StopTime": Int64(5_000)}),
        entry(2, {"Timeout": 3_000}),
        entry(3, {"StopTime": Int64(9_000), "Timeout": 1_000}),
        entry(4, {"StopTime": "soon", "Timeout": 0.5}),
        entry(5),
    )
    assert [kept.number for kept in queue_limits.expired(2_000)] == [3]
    assert [kept.number for kept in queue_limits.expired(4_999)] == [2]
    assert [kept.number for kept in queue_limits.expired(10**9)] == [1]
    assert queue_limits.count == 2


def test_nothing_is_chosen_before_all_is_known() -> None:
    queue_limits = QueueLimits(Queue(2))
    for number in (3, 4, 5):
        queue_limits.add(entry(number))
    assert queue_limits.surplus() == []
    queue_limits.prepend([queue_limits.measure(entry(number)) for number in (1, 2, 3)], 2)
    assert [kept.number for kept in queue_limits.surplus()] == [2, 3]


def test_the_tighter_bound_of_session_and_operator_holds() -> None:
    own, theirs = Queue(10, None, "lifo", deadlines=True), Queue(5, 100)
    assert own.within(theirs) == Queue(5, 100, "lifo", deadlines=True)
    assert own.within(UNBOUNDED) == own


# ---------------------------------------------------------------- at a proxy


def bounded(queue: Queue, *, away: bool = True) -> EngineHarness:
    """Return a proxy that serves a session with this queue; its receiver, of connection 1, may be away."""
    harness = EngineHarness()
    harness.serve()
    harness.send(1, Attach(session=SESSION, receiver="r", incarnation="i1", frontier={}, queue=queue))
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    harness.complete_writes()
    if away:
        harness.step(ClientDisconnected(1))
    harness.received()
    return harness


def take(harness: EngineHarness, *numbers: int, **attributes: Value) -> None:
    for number in numbers:
        harness.send(
            9,
            Publish(producer="p", secret="life", first=number, bodies=[Notification({"n": number, **attributes}).body]),
        )
    harness.read_log()
    harness.complete_writes()


def given_to(harness: EngineHarness, connection: int = 2) -> list[object]:
    harness.attach(connection, "r")
    return delivered(harness.received(connection))


@pytest.mark.parametrize(("discard", "left"), [("fifo", [3, 4]), ("any", [3, 4]), ("lifo", [1, 2])])
def test_a_session_stores_no_more_than_its_queue_allows_and_the_journal_says_what_went(
    discard: Discard, left: list[int]
) -> None:
    harness = bounded(Queue(2, discard=discard))
    take(harness, 1, 2, 3, 4)
    removed = [fact for fact in harness.facts if fact.kind == "removed"]
    assert sum(len(fact.offsets) for fact in removed) == 2
    assert [fact.policies for fact in removed] == [[RemovalPolicy.MAX_QUEUE]] * len(removed)
    assert given_to(harness) == left


def test_discarded_entries_are_removed_from_the_store() -> None:
    harness = bounded(Queue(2, discard="lifo"))
    take(harness, 1, 2)
    for number in (3, 4):
        harness.send(9, Publish(producer="p", secret="life", first=number, bodies=[Notification({"n": number}).body]))
    harness.read_log()
    harness.pass_time(300)
    changes = [change for save in harness.pending if isinstance(save, effects.Save) for change in save.batch.changes]
    stored = [number for change in changes for number, *_ in change.entries]
    gone = [number for change in changes for number in change.discarded]
    assert sorted(gone) == [3, 4] and not {*stored} & {*gone}
    harness.complete_writes()
    assert not harness.engine.sessions[SESSION].retention.leaving_one_by_one


def test_attached_receiver_with_room_gets_messages_beyond_the_queue_limit() -> None:
    harness = bounded(Queue(1), away=False)
    take(harness, 1, 2, 3)
    assert delivered(harness.received(1)) == [1, 2, 3]


def test_reattached_receiver_is_past_the_discarded_entries() -> None:
    harness = bounded(Queue(2))
    take(harness, 1, 2, 3, 4, 5)
    session = harness.engine.sessions[SESSION]
    assert session.entries.count == 2
    assert given_to(harness) == [4, 5]
    harness.send(2, Acknowledge(5))
    assert session.entries.count == 0


def test_notification_past_its_deadline_is_not_delivered() -> None:
    harness = bounded(Queue(deadlines=True))
    take(harness, 1, Timeout=1_000)
    take(harness, 2, Timeout=60_000)
    take(harness, 3)
    harness.pass_time(1_500)
    assert given_to(harness) == [2, 3]
    assert [(fact.policies, len(fact.offsets)) for fact in harness.facts if fact.kind == "removed"] == [
        ([RemovalPolicy.DEADLINE], 1)
    ]


def test_nothing_is_removed_before_the_journal_says_so() -> None:
    harness = bounded(Queue(1))
    take(harness, 1)
    harness.journal_waits = True
    take(harness, 2)
    session = harness.engine.sessions[SESSION]
    assert session.entries.count == 2
    harness.journal_waits = False
    harness.complete_all(effects.Attest, None)
    assert session.entries.count == 1


def test_a_proxys_own_bound_holds_for_every_session_and_is_on_record() -> None:
    harness = EngineHarness()
    harness.engine.env.settings = replace(harness.engine.env.settings, queue=Queue(2))
    harness.serve()
    (fact,) = (fact for fact in harness.facts if fact.kind == "policy")
    assert (fact.session, fact.subscription, fact.max_count, fact.discard) == (SESSION, "", 2, "fifo")
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    harness.complete_writes()
    harness.step(ClientDisconnected(1))
    take(harness, 1, 2, 3)
    assert given_to(harness) == [2, 3]


def test_queue_limits_are_part_of_a_session_and_only_an_administrator_changes_them() -> None:
    harness = bounded(Queue(2), away=False)
    session = harness.engine.sessions[SESSION]
    assert session.descriptor().queue == Queue(2)
    session.set_access({"": Grant((READ,))})
    harness.send(2, Attach(session=SESSION, receiver="other", incarnation="i2", frontier={}, queue=Queue(1_000)))
    assert [problem.code for problem in harness.received(2) if isinstance(problem, Problem)] == ["FORBIDDEN"]
    harness.send(2, Attach(session=SESSION, receiver="other", incarnation="i2", frontier={}, queue=Queue(2)))
    harness.complete_writes()
    assert any(isinstance(message, Attached) for message in harness.received(2))
    assert session.queue == Queue(2)


def test_entries_on_disk_are_loaded_and_counted_before_any_is_discarded() -> None:
    harness = bounded(UNBOUNDED)
    harness.engine.env.settings = replace(harness.engine.env.settings, bounds=EngineBounds(queue_in_memory=1))
    take(harness, 1, 2, 3, 4)
    harness.pass_time(300)
    harness.complete_writes()
    session = harness.engine.sessions[SESSION]
    assert session.entries.unloaded_number == 3
    in_store = [entry(number) for number in (1, 2, 3)]
    harness.send(
        2,
        msgspec.structs.replace(
            Attach(session=SESSION, receiver="other", incarnation="i2", frontier={}), queue=Queue(2)
        ),
    )
    harness.complete_writes()
    harness.step(ClientDisconnected(2))
    take(harness, 5)
    assert session.queue_limits is not None and not session.queue_limits.known
    while any(isinstance(effect, effects.LoadEntries) for effect in harness.pending):
        load = harness.next(effects.LoadEntries)
        harness.finish(load, [entry for entry in in_store if entry[0] > load.after])
        harness.run_effects()
    harness.complete_writes()
    assert session.queue_limits.known and session.queue_limits.count == 2
    assert sum(len(fact.offsets) for fact in harness.facts if fact.kind == "removed") == 3


def test_receiver_passes_a_discarded_entry_only_after_its_own_journal_record() -> None:
    harness = bounded(Queue(1))
    session = harness.engine.sessions[SESSION]
    take(harness, 1)
    harness.journal_waits = True
    take(harness, 2)
    take(harness, 3)
    first, second = (effect for effect in harness.pending if isinstance(effect, effects.Attest) and is_removal(effect))
    harness.pending.remove(first)
    harness.finish(first, None)
    harness.run_effects()
    assert session.entries.first_number == 2
    assert session.receivers[ReceiverId("r")].acknowledged == 1
    harness.pending.remove(second)
    harness.finish(second, None)
    harness.run_effects()
    assert session.entries.first_number == 3
    assert session.receivers[ReceiverId("r")].acknowledged == 2


def is_removal(effect: effects.Attest) -> bool:
    return any(fact.kind == "removed" for fact in effect.facts)


def test_expired_entries_do_not_count_against_the_queue_limit() -> None:
    harness = bounded(Queue(3))
    harness.send(2, Attach(session=SESSION, receiver="other", incarnation="i2", frontier={}))
    harness.complete_writes()
    harness.send(2, Subscribe(subscription="y", expression="m > 0", ttl_s=1))
    harness.complete_writes()
    harness.step(ClientDisconnected(2))
    take(harness, 1)
    harness.send(
        9,
        Publish(
            producer="q", secret="life", first=0, bodies=[Notification({"m": 1}).body, Notification({"m": 2}).body]
        ),
    )
    harness.read_log()
    for _ in range(3):
        harness.pass_time(1_000)
    harness.complete_writes()
    take(harness, 2, 3)
    # There is room for the three that somebody holds still.
    assert [each for each in given_to(harness) if each is not None] == [1, 2, 3]


def test_what_a_slower_subscription_lets_go_of_does_not_count_against_the_queue_limit() -> None:
    harness = bounded(Queue(3, discard="lifo"), away=False)
    for subscription, expression, most in (("y", "m > 0", 1), ("z", "k > 0", 2)):
        harness.send(1, Subscribe(subscription=subscription, expression=expression, max_count=most))
        harness.complete_writes()
    harness.step(ClientDisconnected(1))
    for number, name in enumerate("kkmmk", 1):
        body = Notification({name: 1, "n": -number}).body
        harness.send(9, Publish(producer="q", secret="life", first=number, bodies=[body]))
        harness.read_log()
        harness.complete_writes()
    # "y" has passed the third entry; then "z" passes the first, which makes room for the fifth.
    assert not [fact for fact in harness.facts if RemovalPolicy.MAX_QUEUE in (fact.policies or ())]
    assert given_to(harness) == [-2, -4, -5]


def test_full_queue_is_held_against_what_was_let_go_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stored, more = 500, 20
    harness = bounded(Queue(stored), away=False)
    harness.send(1, Subscribe(subscription="y", expression="m > 0", max_count=1))
    harness.complete_writes()
    harness.step(ClientDisconnected(1))
    take(harness, *range(1, stored + 1), m=1)
    asked: list[int] = []
    retained_for = Retention.retained_for

    def counted(self: Retention, number: int, matched: tuple[SubscriptionId, ...]) -> tuple[SubscriptionId, ...]:
        asked.append(number)
        return retained_for(self, number, matched)

    monkeypatch.setattr(Retention, "retained_for", counted)
    take(harness, *range(stored + 1, stored + more + 1), m=1)
    # The first time all are looked at; then one for each that "y" lets go of.
    assert stored < len(asked) <= stored + 3 * more


def test_discarded_entries_are_not_counted_again_after_a_change_of_the_queue() -> None:
    harness = bounded(Queue(3, discard="lifo"))
    harness.journal_waits = True
    take(harness, 1, 2, 3, 4, 5)
    session = harness.engine.sessions[SESSION]
    session.bound(Queue(3))
    assert session.queue_limits is not None
    assert (session.queue_limits.count, {*session.queue_limits.discarding}) == (3, {4, 5})
    assert session.queue_limits.surplus() == []


def test_discard_interrupted_by_a_lost_lease_completes_when_the_session_is_served_again() -> None:
    harness = bounded(Queue(2))
    harness.journal_waits = True
    take(harness, 1, 2, 3)
    harness.step(LeaseLost())
    harness.journal_waits = False
    harness.complete_all(effects.Attest, None)
    session = harness.engine.sessions[SESSION]
    assert session.queue_limits is not None and {*session.queue_limits.discarding} == {1}
    harness.lease()
    claim = harness.next(effects.ClaimRow)
    harness.finish(claim, Claimed(True, claim.new))
    harness.run_effects()
    harness.complete_writes()
    assert session.queue_limits is not None and not session.queue_limits.discarding
    assert session.entries.count == 2
    assert given_to(harness) == [2, 3]
