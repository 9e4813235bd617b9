"""Time to live, maximum count and the end of a session, as a proxy carries them out."""

from __future__ import annotations

import pytest

from federation.ports import Claimed, OwnerChanged
from proxy.core import effects
from proxy.core.inputs import ClientDisconnected, RegistryReported
from proxy.core.store_port import Outdated, Swept
from proxy.session.receivers import Receiver
from proxy.session.role import Role
from proxy.session.session import Session
from tests.helpers.engine_harness import ME, SESSION, EngineHarness, owner
from tests.proxy.test_dispatcher import delivered
from waypost.errors import StoreFailed
from waypost.facts import Departure, RemovalPolicy
from waypost.identity import GENERATION, NO_PROXY, Epoch, Origin, ReceiverId, SubscriptionId
from waypost.limits import UNREGISTERED_REMEMBERED
from waypost.messages import Acknowledge, Attach, Attached, Delete, Deleted, DeliverEncoded, Detach, Publish, Subscribe
from waypost.notification import Notification

A = Origin("A/0")
X = SubscriptionId("x")


def policed(ttl_s: int | None = None, max_count: int | None = None) -> EngineHarness:
    """Return a proxy that serves a session with one subscription; its receiver is away."""
    harness = EngineHarness()
    harness.serve()
    harness.send(1, Subscribe(subscription="x", expression="n > 0", ttl_s=ttl_s, max_count=max_count))
    harness.complete_writes()
    harness.step(ClientDisconnected(1))
    return harness


def take(harness: EngineHarness, *numbers: int) -> None:
    for number in numbers:
        harness.send(9, Publish(producer="p", secret="life", first=number, bodies=[Notification({"n": number}).body]))
    harness.read_log()
    harness.complete_writes()


def given(harness: EngineHarness) -> list[object]:
    return delivered(harness.received(2))


def test_delivery_skips_notifications_past_their_time_to_live() -> None:
    harness = policed(ttl_s=2)
    take(harness, 1)
    harness.pass_time(1_100)
    take(harness, 2)
    harness.pass_time(1_100)
    harness.pass_time(900)
    harness.facts.clear()
    harness.attach(2)
    assert given(harness) == [2]
    assert [fact.policies for fact in harness.facts if fact.kind == "removed"] == [[RemovalPolicy.TIME_TO_LIVE]]


def test_of_too_many_the_newest_are_kept() -> None:
    harness = policed(max_count=2)
    take(harness, 1, 2, 3)
    harness.attach(2)
    assert given(harness) == [2, 3]


def test_attached_receiver_gets_a_burst_beyond_the_maximum_count() -> None:
    harness = policed(max_count=1)
    harness.attach(2)
    take(harness, 1, 2, 3)
    assert given(harness) == [1, 2, 3]


def test_the_journal_says_what_is_removed_before_the_store_removes_it() -> None:
    harness = policed(max_count=1)
    take(harness, 1, 2)
    harness.pass_time(300)
    harness.complete_writes()
    harness.facts.clear()
    harness.pass_time(61_000)
    harness.complete_writes()
    find = harness.next(effects.FindOutdated)
    (window,) = find.windows
    harness.finish(find, Swept([Outdated(1, window.matched, A, 1)], 2))
    assert not harness.engine.sessions[SESSION].retention.leaving
    harness.run_effects()
    assert [fact.policies for fact in harness.facts if fact.kind == "removed"] == [[RemovalPolicy.MAX_COUNT]]
    assert harness.engine.sessions[SESSION].retention.leaving == [window]
    harness.pass_time(300)
    (change,) = harness.next(effects.Save).batch.changes
    assert list(change.removed) == [window]
    assert change.saved.first_number == 2


def test_receiver_passes_a_removed_notification_only_after_the_journal_has_the_removal() -> None:
    harness = policed(max_count=1)
    take(harness, 1, 2)
    harness.journal_waits = True
    harness.attach(2)
    receiver = next(iter(harness.engine.sessions[SESSION].receivers.values()))
    assert (given(harness), receiver.acknowledged) == ([], 0)
    while any(isinstance(effect, effects.Attest) for effect in harness.pending):
        harness.complete(effects.Attest, None)
    assert (given(harness), receiver.acknowledged) == ([2], 0)


def test_removal_is_journalled_once_while_a_receiver_waits_for_the_journal() -> None:
    harness = policed(max_count=1)
    take(harness, 1, 2)
    harness.journal_waits = True
    harness.attach(2)
    take(harness, 3)
    removed = [
        fact.offsets
        for attest in harness.pending
        if isinstance(attest, effects.Attest)
        for fact in attest.facts
        if fact.kind == "removed"
    ]
    assert removed == [[1]]


def test_session_expires_after_no_receiver_was_attached_for_its_expiry() -> None:
    harness = EngineHarness()
    harness.serve(session_expiry_s=3)
    for _ in range(5):
        harness.pass_time(1_000)
    assert not [effect for effect in harness.pending if isinstance(effect, effects.ClaimRow)]
    harness.step(ClientDisconnected(1))
    for _ in range(4):
        harness.pass_time(1_000)
    claim = harness.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner(ME, 1), owner(NO_PROXY, GENERATION))


@pytest.mark.parametrize("by_watch", [True, False])
def test_deletion_takes_effect_with_the_registry_and_is_reported_to_all_receivers(by_watch: bool) -> None:
    """Whatever is there first: the registry's answer, or its watch."""
    harness = EngineHarness()
    harness.serve()
    harness.attach(2, "other")
    harness.send(1, Delete())
    claim = harness.next(effects.ClaimRow)
    assert SESSION in harness.engine.sessions
    if by_watch:
        harness.step(RegistryReported(OwnerChanged(SESSION, claim.new)))
    else:
        harness.finish(claim, Claimed(True, claim.new))
    harness.run_effects()
    for connection in (1, 2):
        assert isinstance(harness.received(connection)[-1], Deleted)
    assert SESSION not in harness.engine.sessions


def test_a_session_of_the_same_name_takes_the_epoch_after_the_deletion() -> None:
    harness = EngineHarness()
    harness.send(1, Attach(session="s", receiver="r", incarnation="life", frontier={}))
    harness.complete(effects.ReadRow, owner(NO_PROXY, 7))
    claim = harness.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner(NO_PROXY, 7), owner(ME, 8))


def test_attach_without_create_is_answered_not_found_for_a_deleted_session() -> None:
    harness = EngineHarness()
    harness.send(1, Attach(session="s", receiver="r", incarnation="life", frontier={}, create=False))
    harness.complete(effects.ReadRow, owner(NO_PROXY, 7))
    assert harness.received(1)[-1].code == "NOT_FOUND"


def away(receiver_expiry_s: int | None) -> EngineHarness:
    """Return a proxy with a receiver that is away, and whose place lasts so long, beside another that is there."""
    harness = EngineHarness()
    harness.serve()
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    harness.send(
        2, Attach(session=SESSION, receiver="other", incarnation="i2", frontier={}, receiver_expiry_s=receiver_expiry_s)
    )
    harness.complete_writes()
    harness.step(ClientDisconnected(2))
    harness.facts.clear()
    return harness


def registrations(harness: EngineHarness) -> set[str]:
    return set(harness.engine.sessions[SESSION].receivers)


def passes_s(harness: EngineHarness, seconds: int) -> None:
    for _ in range(seconds):
        harness.pass_time(1_000)


def test_a_receiver_that_was_away_for_so_long_gives_up_its_place_and_the_journal_says_why() -> None:
    harness = away(receiver_expiry_s=5)
    take(harness, 1)
    harness.send(1, Acknowledge(1))
    passes_s(harness, 4)
    assert registrations(harness) == {"r", "other"} and harness.engine.sessions[SESSION].entries.count == 1
    passes_s(harness, 4)
    assert registrations(harness) == {"r"} and harness.engine.sessions[SESSION].entries.count == 0
    (fact,) = (fact for fact in harness.facts if fact.kind == "unregistered" and fact.receiver == "other")
    assert (fact.cause, fact.reason) == (Departure.EXPIRED, "not attached for 5 s")


def test_receiver_without_expiry_stays_registered_for_ever() -> None:
    harness = away(receiver_expiry_s=None)
    passes_s(harness, 60)
    assert registrations(harness) == {"r", "other"}


def test_receiver_expiry_starts_again_after_a_reattach() -> None:
    harness = away(receiver_expiry_s=5)
    passes_s(harness, 4)
    harness.send(2, Attach(session=SESSION, receiver="other", incarnation="i2", frontier={}, receiver_expiry_s=5))
    harness.step(ClientDisconnected(2))
    passes_s(harness, 4)
    assert registrations(harness) == {"r", "other"}


def test_expired_receiver_is_registered_anew_and_told_so() -> None:
    harness = away(receiver_expiry_s=2)
    take(harness, 1)
    harness.send(1, Acknowledge(1))
    passes_s(harness, 4)
    harness.received(2)
    harness.attach(2, "other")
    (attached,) = (message for message in harness.received(2) if isinstance(message, Attached))
    assert attached.joined
    (joined,) = (fact for fact in harness.facts if fact.kind == "registered")
    assert (joined.receiver, joined.frontier) == ("other", {A: harness.engine.state.frontier[A]})
    harness.attach(3, "other")
    (again,) = (message for message in harness.received(3) if isinstance(message, Attached))
    assert not again.joined


def test_how_long_a_receiver_was_away_travels_with_its_place() -> None:
    harness = away(receiver_expiry_s=60)
    passes_s(harness, 10)
    row = harness.engine.sessions[SESSION].descriptor().receivers[ReceiverId("other")]
    assert row.expiry_s == 60 and 8_000 <= row.idle_ms <= 10_000
    assert Receiver.of(ReceiverId("other"), row).row() == row


def test_a_place_stays_until_the_journal_says_that_it_is_given_up() -> None:
    harness = away(receiver_expiry_s=2)
    harness.journal_waits = True
    passes_s(harness, 5)
    assert registrations(harness) == {"r", "other"}
    harness.journal_waits = False
    harness.complete_all(effects.Attest, None)
    assert registrations(harness) == {"r"}


def test_registration_is_written_only_after_its_journal_fact() -> None:
    harness = EngineHarness()
    harness.serve()
    harness.journal_waits = True
    harness.attach(2, "second")
    assert not harness.received(2)[1:]
    harness.journal_waits = False
    harness.complete_all(effects.Attest, None)
    harness.complete_writes()
    assert any(isinstance(message, Attached) for message in harness.received(2))


def test_receiver_after_the_last_one_unregistered_starts_at_the_frontier_of_the_session() -> None:
    harness = policed()
    take(harness, 1, 2)
    harness.attach(2, "r")
    harness.send(2, Detach(forget=True))
    harness.complete_writes()
    here = harness.engine.state.frontier[A]
    session = harness.engine.sessions[SESSION]
    assert (session.entries.count, session.acknowledged_frontier({})) == (0, {A: here})
    harness.facts.clear()
    take(harness, 3)
    harness.attach(3, "next")
    (joined,) = (fact for fact in harness.facts if fact.kind == "registered")
    assert joined.frontier == {A: here}
    assert delivered(harness.received(3)) == [3]


def test_newly_registered_receiver_does_not_lower_the_acknowledged_frontier() -> None:
    harness = away(receiver_expiry_s=None)
    take(harness, 1)
    harness.send(1, Acknowledge(1))
    harness.send(1, Subscribe(subscription="y", expression="n > 5"))
    session = harness.engine.sessions[SESSION]
    before = session.acknowledged_frontier(harness.engine.state.frontier)
    harness.attach(3, "third")
    assert session.acknowledged_frontier(harness.engine.state.frontier) == before


def test_new_registration_is_reported_also_when_the_first_attach_was_answered_wait() -> None:
    harness = EngineHarness()
    harness.serve()
    harness.send(2, Attach(session=SESSION, receiver="second", incarnation="i2", frontier={}))
    harness.complete_all(effects.Save, StoreFailed("full"))
    harness.complete_all(effects.PutCheckpoint, None)
    harness.complete_writes()
    harness.received(2)
    harness.attach(2, "second")
    (attached,) = (message for message in harness.received(2) if isinstance(message, Attached))
    assert attached.joined


def test_expired_receiver_does_not_get_acknowledged_notifications_again() -> None:
    harness = away(receiver_expiry_s=2)
    harness.attach(2, "other")
    take(harness, 1)
    given = [message for message in harness.received(2) if isinstance(message, DeliverEncoded)]
    harness.send(2, Acknowledge(given[-1].through))
    harness.send(2, Attach(session=SESSION, receiver="other", incarnation="i2", frontier={}, receiver_expiry_s=2))
    harness.step(ClientDisconnected(2))
    take(harness, 2)
    passes_s(harness, 4)
    assert registrations(harness) == {"r"}
    # Nothing was acknowledged by the one that stayed: all is there still.
    assert harness.engine.sessions[SESSION].entries.count == 2
    descriptor = harness.engine.sessions[SESSION].descriptor()
    assert {*descriptor.unregistered} == {ReceiverId("other")}
    harness.attach(3, "other")
    assert delivered(harness.received(3)) == [2]
    assert not harness.engine.sessions[SESSION].former_receivers.frontiers


def test_oldest_tombstone_is_forgotten_first() -> None:
    session = Session(SESSION, Epoch(1), Role.SERVING)
    session.join(ReceiverId("stays"))
    for number in range(UNREGISTERED_REMEMBERED + 1):
        session.unregister(session.join(ReceiverId(f"r{number}")), {})
    assert len(session.former_receivers.frontiers) == UNREGISTERED_REMEMBERED
    assert (
        ReceiverId("r0") not in session.former_receivers.frontiers
        and ReceiverId("r1") in session.former_receivers.frontiers
    )
