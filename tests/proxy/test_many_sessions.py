"""A proxy with very many sessions: none of them costs the others more than its share, at a start least of all."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from federation.ports import Claimed
from federation.site.state import SiteState
from handover.messages import Prepare
from proxy.core import effects
from proxy.core.inputs import LeaseGranted, LeaseLost, PeerSent, StoreAll
from proxy.core.store_port import Restored, SavedSession, SiteCheckpoint
from proxy.session.role import Role
from proxy.session.subscription import Subscription
from proxy.stream.checkpoint_writer import CHECKPOINTS_A_ROUND
from proxy.stream.incremental_scan import IncrementalScan
from tests.helpers.engine_harness import SESSION, EngineHarness, owner
from waypost.checkpoint import Descriptor, ReceiverRow
from waypost.errors import RegistryUnavailable
from waypost.identity import (
    NOTHING,
    Epoch,
    Incarnation,
    Origin,
    Ownership,
    ProxyId,
    ReceiverId,
    SessionId,
    SiteId,
    SubscriptionId,
)
from waypost.limits import ACTIVATIONS_AT_ONCE, CHECKPOINTS_AT_ONCE, LOG_BATCH
from waypost.messages import Acknowledge, Attach, Attached, Interest, Problem, Publish, Quench
from waypost.notification import Notification
from waypost.records import Effective, InterestRegistered, InterestsExpired, Progress, Record
from waypost.subscription import parse

A = Origin("A/0")
MANY = 2 * LOG_BATCH
YOU = ProxyId("you")


def name(number: int) -> SessionId:
    return SessionId(f"s{number:05}")


def disk(count: int) -> Restored:
    """A disk with so many sessions of one receiver and one subscription each."""
    state = SiteState(SiteId("A"))
    wanted = Subscription(
        id=SubscriptionId("x"),
        expression=parse("n > 0"),
        start={A: NOTHING},
        promise_floor={A: NOTHING},
        promised={A: NOTHING},
    )
    descriptor = Descriptor(
        created_at={A: NOTHING},
        subscriptions=[wanted.row()],
        receivers={ReceiverId("r"): ReceiverRow(acknowledged=0, frontier={})},
    )
    saved = [
        SavedSession(
            id=name(number),
            epoch=Epoch(1),
            checkpointed=(Epoch(1), 0),
            role="serving",
            descriptor=descriptor,
            first_number=1,
            next_number=1,
            gates={},
        )
        for number in range(count)
    ]
    acceptance = state.acceptance.snapshot()
    return Restored(0, acceptance, SiteCheckpoint(0, acceptance, state.snapshot()), saved)


def rows(count: int) -> dict[SessionId, Ownership]:
    return {name(number): owner("me", 1) for number in range(count)}


def claimed(harness: EngineHarness) -> list[SessionId]:
    return [claim_row.session for claim_row in harness.pending if isinstance(claim_row, effects.ClaimRow)]


def woken(count: int) -> EngineHarness:
    """Start with so many sessions, all of them awake and written."""
    harness = EngineHarness(disk(count), watch=False)
    harness.reload(rows(count))
    while claimed(harness):
        claim = harness.next(effects.ClaimRow)
        harness.finish(claim, Claimed(True, claim.new))
        harness.run_effects()
    harness.complete_writes()
    harness.read_log()
    for _ in range(CHECKPOINTS_A_ROUND):
        harness.pass_time(1_000)
        harness.complete_writes()
    return harness


def publish(harness: EngineHarness, number: int) -> None:
    harness.send(9, Publish(producer="p", secret="i", first=number, bodies=[Notification({"n": number}).body]))
    harness.read_log()


def test_after_a_start_so_many_are_claimed_at_a_time() -> None:
    harness = EngineHarness(disk(3 * ACTIVATIONS_AT_ONCE), watch=False)
    harness.reload(rows(3 * ACTIVATIONS_AT_ONCE))
    assert len(claimed(harness)) == ACTIVATIONS_AT_ONCE
    claim = harness.next(effects.ClaimRow)
    harness.finish(claim, Claimed(True, claim.new))
    harness.run_effects()
    assert len(claimed(harness)) == ACTIVATIONS_AT_ONCE


def test_all_of_them_wake_in_the_end() -> None:
    harness = woken(3 * ACTIVATIONS_AT_ONCE)
    assert {session.role for session in harness.engine.sessions.values()} == {Role.SERVING}


def test_the_one_that_a_client_waits_for_goes_first() -> None:
    harness = EngineHarness(disk(3 * ACTIVATIONS_AT_ONCE), watch=False)
    harness.reload(rows(3 * ACTIVATIONS_AT_ONCE))
    last = name(3 * ACTIVATIONS_AT_ONCE - 1)
    assert last not in claimed(harness)
    harness.send(1, Attach(session=last, receiver="r", incarnation="i", frontier={}))
    claim = harness.next(effects.ClaimRow)
    harness.finish(claim, Claimed(True, claim.new))
    harness.run_effects()
    assert claimed(harness)[-1] == last


def test_the_one_that_another_proxy_asks_for_goes_first() -> None:
    harness = EngineHarness(disk(3 * ACTIVATIONS_AT_ONCE), watch=False)
    harness.reload(rows(3 * ACTIVATIONS_AT_ONCE), "you")
    last = name(3 * ACTIVATIONS_AT_ONCE - 1)
    harness.step(
        PeerSent(
            YOU,
            Prepare(session=last, transfer="t", epoch=Epoch(1), receiver="r", incarnation="i"),
        )
    )
    harness.run_effects()
    claim = harness.next(effects.ClaimRow)
    harness.finish(claim, Claimed(True, claim.new))
    harness.run_effects()
    assert claimed(harness)[-1] == last


def test_sweep_claims_a_session_again_after_a_failed_claim() -> None:
    harness = EngineHarness(disk(1), watch=False)
    harness.reload(rows(1))
    harness.complete(effects.ClaimRow, RegistryUnavailable("away"))
    assert claimed(harness) == []
    harness.pass_time(2_000)
    assert claimed(harness) == [name(0)]


def test_dormant_sessions_are_activated_only_with_a_lease() -> None:
    harness = EngineHarness(disk(3 * ACTIVATIONS_AT_ONCE), watch=False)
    harness.reload(rows(3 * ACTIVATIONS_AT_ONCE))
    harness.step(LeaseLost())
    while claimed(harness):
        harness.complete(effects.ClaimRow, Claimed(True, owner("me", 2)))
    assert {session.role for session in harness.engine.sessions.values()} == {Role.DORMANT}
    harness.step(LeaseGranted(Incarnation("me#2"), 1 << 40))
    harness.run_effects()
    assert len(claimed(harness)) == ACTIVATIONS_AT_ONCE


def test_interests_of_many_sessions_are_registered_in_few_appends() -> None:
    harness = EngineHarness(disk(MANY), lease=False, watch=False)
    harness.step(LeaseGranted(Incarnation("me#1"), 1 << 40))
    appends = [len(append.records) for append in harness.take_effects() if isinstance(append, effects.Append)]
    assert sum(appends) == MANY
    assert len(appends) <= MANY // LOG_BATCH + 1


def test_unwanted_notification_changes_few_checkpoints_of_many_sessions_at_a_time() -> None:
    many = 3 * CHECKPOINTS_AT_ONCE
    harness = woken(many)
    publish(harness, -1)
    harness.pass_time(1_000)
    written = [
        put_checkpoint.checkpoint.session
        for put_checkpoint in harness.pending
        if isinstance(put_checkpoint, effects.PutCheckpoint)
    ]
    assert 0 < len(written) <= CHECKPOINTS_AT_ONCE
    for _ in range(3):
        harness.complete_writes()
        harness.pass_time(1_000)
        written += [
            put_checkpoint.checkpoint.session
            for put_checkpoint in harness.pending
            if isinstance(put_checkpoint, effects.PutCheckpoint)
        ]
    assert set(written) == {name(number) for number in range(many)}


def test_a_checkpoint_that_is_on_its_way_is_not_written_once_more() -> None:
    harness = woken(1)
    for number in (-1, -2, -3):
        publish(harness, number)
        harness.pass_time(1_000)
    waiting = [effect for effect in harness.pending if isinstance(effect, effects.PutCheckpoint)]
    assert len(waiting) == 1
    harness.complete_writes()
    harness.pass_time(1_000)
    assert harness.next(effects.PutCheckpoint).checkpoint.acknowledged[A] == harness.engine.state.frontier[A]


def test_site_state_is_not_saved_whole_with_every_change() -> None:
    harness = woken(320)
    batches = []
    for number in range(3):
        harness.log.append(InterestRegistered(YOU, Incarnation("i"), name(number), ("n > 1",)))
        harness.read_log()
        publish(harness, 1)
        harness.pass_time(200)
        save = harness.next(effects.Save)
        batches.append(save.batch)
        harness.finish(save, None)
        harness.run_effects()
    # So many holds are worth a third of a second, and a write comes every fifth of one.
    assert [batch.behind for batch in batches] == [batch.site_state is None for batch in batches]
    assert [batch.behind for batch in batches] == [False, True, False]


def test_restarted_proxy_rereads_the_log_from_its_site_checkpoint_without_duplicates() -> None:
    before = woken(1)
    start = before.engine.state.position
    publish(before, 5)
    state, session = before.engine.state, before.engine.sessions[name(0)]
    site_state = SiteState(SiteId("A"))
    for offset, record in enumerate(before.log[:start]):
        site_state.fold(offset, record)
    saved = SavedSession(
        id=name(0),
        epoch=session.epoch,
        checkpointed=(session.epoch, 0),
        role="serving",
        descriptor=session.descriptor(),
        first_number=1,
        next_number=2,
        gates={},
    )
    site = SiteCheckpoint(start, site_state.acceptance.snapshot(), site_state.snapshot())
    after = EngineHarness(Restored(state.position, state.acceptance.snapshot(), site, [saved]), lease=False)
    after.log = list(before.log)
    found = after.engine.sessions[name(0)]
    after.read_log()
    assert (found.entries.last_number, after.engine.state.frontier) == (1, state.frontier)
    publish(after, 6)
    assert found.entries.last_number == 2


def test_coverage_from_before_the_restart_opens_no_gate_while_the_log_is_reread() -> None:
    """The session's gate was closed by a hole that the log tells of behind the place where its meaning was kept."""
    far, me = Origin("B/0"), ProxyId("me")
    wanted = parse("n > 0").canonical
    log: list[Record] = [
        InterestRegistered(me, Incarnation("me#1"), name(0), (wanted,)),
        Effective(link=SiteId("B"), link_epoch=1, expression=wanted, installation=0, origin=far, above=10),
        Progress(SiteId("B"), 1, far, 20),
        InterestsExpired(me, Incarnation("me#1")),
        InterestRegistered(me, Incarnation("me#2"), name(0), (wanted,)),
    ]

    def folded(upto: int) -> SiteState:
        state = SiteState(SiteId("A"), [SiteId("B")])
        for offset, record in enumerate(log[:upto]):
            state.fold(offset, record)
        return state

    early, here = folded(2), folded(5)
    promised = {A: NOTHING, far: 10}
    row = Subscription(
        id=SubscriptionId("x"),
        expression=parse("n > 0"),
        start={A: NOTHING, far: NOTHING},
        promise_floor=promised,
        promised=dict(promised),
    ).row()
    descriptor = Descriptor(
        created_at={A: NOTHING},
        subscriptions=[row],
        receivers={ReceiverId("r"): ReceiverRow(acknowledged=0, frontier={})},
    )
    saved = SavedSession(
        id=name(0),
        epoch=Epoch(1),
        checkpointed=(Epoch(1), 0),
        role="serving",
        descriptor=descriptor,
        first_number=1,
        next_number=1,
        gates={far: 20},
    )
    site = SiteCheckpoint(early.position, early.acceptance.snapshot(), early.snapshot())
    harness = EngineHarness(Restored(5, here.acceptance.snapshot(), site, [saved]), lease=False, neighbours=("B",))
    harness.log = log
    harness.pass_time(1_000)
    session = harness.engine.sessions[name(0)]
    assert session.gates[far].seen == 20
    harness.read_log()
    harness.pass_time(1_000)
    assert session.gates[far].seen == 20


def test_quench_is_not_caught_up_while_the_log_is_reread() -> None:
    records = [InterestRegistered(YOU, Incarnation("i"), name(number), (f"n > {number}",)) for number in range(5)]
    state = SiteState(SiteId("A"))
    early = SiteCheckpoint(0, state.acceptance.snapshot(), state.snapshot())
    for offset, record in enumerate(records):
        state.fold(offset, record)
    harness = EngineHarness(Restored(5, state.acceptance.snapshot(), early, []), lease=False)
    harness.send(3, Quench(1, ["n"]))
    harness.pass_time(5)
    assert not [message for message in harness.received(3) if isinstance(message, Interest)]
    harness.log = list(records)
    harness.read_log()
    harness.pass_time(5)
    (answers,) = (message for message in harness.received(3) if isinstance(message, Interest))
    assert answers.caught_up and len(answers.added) == 5


def test_a_checkpoint_that_failed_is_written_again_in_a_second() -> None:
    harness = woken(3 * CHECKPOINTS_AT_ONCE)
    harness.send(1, Attach(session=name(250), receiver="r", incarnation="i", frontier={}))
    harness.complete_writes()
    publish(harness, 5)
    harness.send(1, Acknowledge(1))
    harness.pass_time(200)
    harness.complete_writes()
    tried = 0
    for _ in range(4):
        harness.pass_time(1_000)
        writes = [effect for effect in harness.pending if isinstance(effect, effects.PutCheckpoint)]
        tried += sum(put_checkpoint.checkpoint.session == name(250) for put_checkpoint in writes)
        harness.complete_all(effects.PutCheckpoint, RegistryUnavailable("away"))
        harness.complete_all(effects.Save, None)
    assert tried >= 3


def test_nothing_is_written_before_the_log_is_read_up_to_where_the_store_is() -> None:
    restored = disk(1)
    harness = EngineHarness(Restored(5, restored.acceptance, restored.site, restored.sessions), lease=False)
    answers: list[object] = []
    harness.step(StoreAll(answers.append))
    harness.pass_time(1_000)
    assert not [effect for effect in harness.pending if isinstance(effect, effects.Save)]
    harness.log = [InterestRegistered(YOU, Incarnation("i"), name(7), ("n > 1",)) for _ in range(5)]
    harness.read_log()
    harness.pass_time(1_000)
    harness.complete(effects.Save, None)
    assert answers == [None]


def test_many_sessions_without_an_attached_receiver_keep_little_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.stream.store_writer.UNATTENDED_IN_MEMORY", 20)
    harness = woken(10)
    for number in range(1, 6):
        publish(harness, number)
    harness.pass_time(1_000)
    harness.complete_writes()
    sessions = harness.engine.sessions
    assert {(session.entries.count, session.entries.saved_in_memory) for session in sessions.values()} == {(5, 2)}
    harness.send(1, Attach(session=name(3), receiver="r", incarnation="i", frontier={}))
    harness.complete_writes()
    harness.complete(effects.LoadEntries, [])
    publish(harness, 6)
    harness.pass_time(1_000)
    harness.complete_writes()
    assert sessions[name(3)].entries.saved_in_memory == 3 and sessions[name(4)].entries.saved_in_memory == 2


def test_a_session_has_so_many_receivers_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.clients.attach.MAX_RECEIVERS_PER_SESSION", 2)
    harness = EngineHarness()
    harness.serve()
    harness.attach(2, "second")
    harness.received(2)
    harness.attach(3, "third")
    (refused,) = (problem for problem in harness.received(3) if isinstance(problem, Problem))
    assert (refused.code, refused.field) == ("LIMIT_EXCEEDED", "receiver")
    harness.attach(4, "second")
    assert any(isinstance(message, Attached) for message in harness.received(4))


def test_attach_that_makes_the_checkpoint_too_large_for_a_record_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.session.session.MAX_DESCRIPTOR_BYTES", 4_000)
    monkeypatch.setattr("proxy.session.session.ROOM_CHECKS", 1 << 30)
    harness = EngineHarness()
    harness.serve()
    places = {Origin(f"{'origin' * 10}-{number}/0"): 5 for number in range(20)}
    harness.engine.state.frontier.update(places)
    for number in range(2, 12):
        harness.send(
            number,
            Attach(session=SESSION, receiver=f"r{number}", incarnation=f"i{number}", frontier=places, order="priority"),
        )
        harness.complete_writes()
    turned_away = [
        problem for number in range(2, 12) for problem in harness.received(number) if isinstance(problem, Problem)
    ]
    assert {problem.code for problem in turned_away} == {"LIMIT_EXCEEDED"} and 1 <= len(turned_away) < 10
    session = harness.engine.sessions[SESSION]
    assert len(msgspec.json.encode(session.descriptor())) < 5_000
    # Whoever has a place already still has it, wherever it has been.
    more = {Origin(f"elsewhere-{number}/0"): 5 for number in range(100)}
    harness.send(
        20,
        Attach(
            session=SESSION,
            receiver="r",
            incarnation="i20",
            frontier=more,
            selective={Origin("A/0"): [7, 9]},
            order="priority",
        ),
    )
    harness.complete_writes()
    assert any(isinstance(message, Attached) for message in harness.received(20))


def test_a_round_has_everything_once() -> None:
    there = list(range(10))
    rounds: IncrementalScan[int] = IncrementalScan(least=2, rounds=3)
    taken = [rounds.next_batch(there) for _ in range(3)]
    assert [len(each) for each in taken] == [4, 4, 2]
    assert flattened(taken) == there
    there.append(10)
    assert flattened(rounds.next_batch(there) for _ in range(3)) == there


def flattened(parts: Iterable[list[int]]) -> list[int]:
    return [each for part in parts for each in part]
