"""How a proxy comes to own a session, and how it learns that it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from federation.ports import Claimed, OwnerChanged, ProxyDown, ProxyUp
from federation.site.state import SiteState
from handover.acquisition import StaleReply
from handover.machine import Timing
from handover.messages import Prepare, Ready, TransferRefused
from proxy.core import effects, journal_facts
from proxy.core.inputs import (
    ClientDisconnected,
    DeletedByOperator,
    LeaseGranted,
    LeaseLost,
    LeaseRenewed,
    PeerSent,
    RegistryReported,
)
from proxy.core.registry_memory import SWEEPS_PER_ROUND, SWEEPS_TO_ACTIVATE
from proxy.core.store_port import Restored, SavedSession, SiteCheckpoint
from proxy.session.role import Role
from proxy.session.session import Session
from proxy.session.subscription import Subscription
from tests.helpers.engine_harness import ME, SESSION, EngineHarness, owner, row
from tests.properties.test_wrong_handover_messages import PHASES, SOURCE, staging
from waypost.checkpoint import Checkpoint, Descriptor, Rank
from waypost.errors import CheckpointOutdated, LogUnavailable, RegistryUnavailable, SessionLost, StoreFailed
from waypost.facts import OwnedCause
from waypost.identity import (
    GENERATION,
    NO_PROXY,
    Epoch,
    Incarnation,
    Origin,
    Ownership,
    ProxyId,
    ReceiverId,
    SiteId,
    SubscriptionId,
)
from waypost.limits import CREATIONS_AT_ONCE
from waypost.messages import (
    AboutSession,
    Attach,
    Attached,
    BecameEffective,
    Moved,
    Problem,
    Subscribe,
    Unsubscribe,
    Wait,
)
from waypost.records import InterestRegistered
from waypost.subscription import parse

YOU = ProxyId("you")
ORIGIN = Origin("A/0")


def described() -> Descriptor:
    """What a session with one subscription and one receiver says of itself."""
    made = Session(SESSION, Epoch(1), Role.SERVING)
    x = SubscriptionId("x")
    made.subscriptions[x] = Subscription(id=x, expression=parse("n > 0"), start={}, promise_floor={})
    made.join(ReceiverId("r"))
    return made.descriptor()


DESCRIPTOR = described()


def disk(role: Role, epoch: int, descriptor: Descriptor = DESCRIPTOR, source: str = "") -> Restored:
    """A disk with one session."""
    state = SiteState(SiteId("A"))
    saved = SavedSession(
        id=SESSION,
        epoch=owner("me", epoch).epoch,
        checkpointed=(owner("me", epoch).epoch, 0),
        role=role.value,
        descriptor=descriptor,
        first_number=1,
        next_number=1,
        gates={},
        source=source,
    )
    acceptance = state.acceptance.snapshot()
    return Restored(0, acceptance, SiteCheckpoint(0, acceptance, state.snapshot()), [saved])


def role(harness: EngineHarness) -> Role | None:
    session = harness.engine.sessions.get(SESSION)
    return session.role if session else None


def epoch(harness: EngineHarness) -> int:
    return harness.engine.sessions[SESSION].epoch


def test_a_restart_takes_the_next_epoch_and_serves_only_then() -> None:
    harness = EngineHarness(disk(Role.SERVING, 4))
    assert role(harness) is Role.DORMANT
    claim = harness.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner("me", 4), owner("me", 5))
    harness.finish(claim, Claimed(True, claim.new))
    harness.run_effects()
    assert (role(harness), epoch(harness)) == (Role.SERVING, 5)


@pytest.mark.parametrize(
    ("checkpoint", "is_rebuilt"),
    [
        pytest.param(Checkpoint(SESSION, Epoch(4), 2, DESCRIPTOR, {}), False, id="the same"),
        pytest.param(Checkpoint(SESSION, Epoch(4), 2, Descriptor(), {}), True, id="a change that the copy lacks"),
        pytest.param(Checkpoint(SESSION, Epoch(4), 1, Descriptor(), {}), False, id="one that the copy came after"),
        pytest.param(Checkpoint(SESSION, Epoch(5), 1, DESCRIPTOR, {}), True, id="of a later epoch"),
    ],
)
def test_a_restart_goes_by_the_changelog_where_the_disk_lacks_what_it_has(
    checkpoint: Checkpoint, is_rebuilt: bool
) -> None:
    """A failure of power may cost the last writes of the disk, on which a client was answered (F184)."""
    restored = disk(Role.SERVING, 4)
    restored.sessions[0] = replace(restored.sessions[0], checkpointed=(4, 1))
    harness = EngineHarness(restored, watch=False, lease=False)
    harness.changelog_waits = True
    harness.reload({SESSION: owner("me", checkpoint.epoch)})
    harness.lease()
    found = effects.FoundCheckpoint((checkpoint,), complete=True)
    harness.complete(effects.FindCheckpoint, found)
    if checkpoint.epoch > 4:
        harness.complete(effects.ReadRow, owner("me", 5))
        harness.complete(effects.FindCheckpoint, found)
    claim = harness.next(effects.ClaimRow)
    harness.finish(claim, Claimed(True, claim.new))
    harness.run_effects()
    session = harness.engine.sessions[SESSION]
    assert session.role is Role.SERVING and session.rebuilding == is_rebuilt
    assert session.subscriptions.all_expressions() == tuple(
        row.expression for row in (checkpoint.descriptor if is_rebuilt else DESCRIPTOR).subscriptions
    )


def test_a_restart_that_finds_another_owner_lets_go() -> None:
    harness = EngineHarness(disk(Role.SERVING, 4))
    harness.complete(effects.ClaimRow, Claimed(False, owner("you", 5)))
    assert role(harness) is None


def test_a_restart_that_finds_itself_one_epoch_ahead_takes_another_one() -> None:
    """The disk may be older than what an earlier life served: that epoch is used up (rule 1)."""
    harness = EngineHarness(disk(Role.SERVING, 4), watch=False)
    harness.complete(effects.ClaimRow, Claimed(False, owner("me", 5)))
    assert role(harness) is Role.DORMANT
    claim = harness.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner("me", 5), owner("me", 6))
    harness.finish(claim, Claimed(True, claim.new))
    harness.run_effects()
    assert (role(harness), epoch(harness)) == (Role.SERVING, 6)


@pytest.mark.parametrize("watch", [True, False])
def test_a_restart_that_finds_a_later_session_of_the_name_does_not_serve_what_the_disk_has(watch: bool) -> None:
    """Its row is ours too, but the copy is of the one that was deleted (rule 22)."""
    harness, later = EngineHarness(disk(Role.SERVING, 4), watch=False, lease=False), owner("me", GENERATION + 1)
    if watch:
        harness.reload({SESSION: later})
    harness.lease()
    if not watch:
        harness.complete(effects.ClaimRow, Claimed(False, later))
    assert role(harness) is None
    assert not [effect for effect in harness.pending if isinstance(effect, effects.ClaimRow)]
    harness.reload({SESSION: later})
    harness.attach()
    harness.complete(effects.ReadRow, owner("me", GENERATION + 1))
    harness.complete_writes()
    harness.complete(effects.FindCheckpoint, first_checkpoint(GENERATION + 1))
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", GENERATION + 2)))
    assert (role(harness), epoch(harness)) == (Role.SERVING, GENERATION + 2)
    assert harness.engine.sessions[SESSION].subscriptions.active() == []


def test_a_restored_session_is_what_the_disk_said() -> None:
    session = EngineHarness(disk(Role.SERVING, 4)).engine.sessions[SESSION]
    assert session.descriptor() == DESCRIPTOR
    assert [subscription.expression.text for subscription in session.subscriptions.active()] == ["n > 0"]


def restated(harness: EngineHarness) -> list[tuple[str, ...]]:
    return [
        (fact.kind, fact.subscription, fact.subscription_generation, fact.expression)
        for fact in harness.facts
        if fact.kind in ("restated", "unsubscribed")
    ]


def test_every_start_of_serving_says_again_what_the_audit_needs() -> None:
    """A crash may have come after the store took it, and before the journal did."""
    made = Session(SESSION, Epoch(4), Role.SERVING)
    for name, promised in (("x", {}), ("y", {ORIGIN: 7})):
        made.add_subscription(
            Subscription(
                id=SubscriptionId(name),
                expression=parse("n > 0"),
                start={},
                promise_floor={},
                promised=promised,
                ttl_s=5,
            )
        )
    made.join(ReceiverId("r"))
    made.end_subscription(SubscriptionId("y"), {ORIGIN: 9})
    harness = EngineHarness(disk(Role.SERVING, 4, made.descriptor()))
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", 5)))
    assert restated(harness) == [
        ("restated", "x", "4/1", "n > 0"),
        ("restated", "y", "4/2", "n > 0"),
        ("unsubscribed", "y", "4/2", ""),
    ]
    emitted = [fact for fact in harness.facts if fact.kind == "restated"]
    assert [(fact.epoch, fact.frontier, fact.ttl_s) for fact in emitted] == [(5, {}, 5), (5, {ORIGIN: 7}, 5)]
    (ended,) = [fact for fact in harness.facts if fact.kind == "unsubscribed"]
    assert ended.frontier == {ORIGIN: 9}


def test_a_promise_that_is_not_kept_yet_is_not_restated() -> None:
    harness = EngineHarness()
    harness.serve()
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    harness.complete_writes()
    harness.read_log()
    (made,) = harness.engine.sessions[SESSION].subscriptions.active()
    assert (dict(made.promised), made.unannounced) == ({ORIGIN: -1}, {ORIGIN})
    harness.engine.acquisitions.fence()
    harness.engine.served_sessions.fence()
    harness.reload({SESSION: owner("me", 1)})
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", 2)))
    (again,) = [fact for fact in harness.facts if fact.kind == "restated"]
    assert (again.epoch, again.subscription_generation, again.frontier) == (2, "1/1", {})
    harness.complete_writes()
    assert [(fact.epoch, fact.frontier) for fact in harness.facts if fact.kind == "effective"] == [(2, {ORIGIN: -1})]
    assert not made.unannounced


def test_a_subscription_that_ended_is_not_forgotten_before_the_journal_says_so() -> None:
    made = Session(SESSION, Epoch(1), Role.SERVING)
    made.add_subscription(Subscription(id=SubscriptionId("x"), expression=parse("n > 0"), start={}, promise_floor={}))
    ended = made.end_subscription(SubscriptionId("x"), {ORIGIN: 3})
    harness = EngineHarness()
    harness.journal_waits = True
    journal_facts.unsubscribed(harness.engine.output.journal, made, ended)
    made.subscriptions.forget_ended({ORIGIN: 3})
    assert made.subscriptions.ended == [ended]
    harness.tick()
    harness.run_effects()
    harness.complete(effects.Attest, None)
    made.subscriptions.forget_ended({ORIGIN: 3})
    assert made.subscriptions.ended == []


def test_a_subscription_that_is_made_again_is_another_one_also_if_nothing_came_in_between() -> None:
    harness = EngineHarness()
    harness.serve()
    for message in (
        Subscribe(subscription="x", expression="n > 0"),
        Unsubscribe("x"),
        Subscribe(subscription="x", expression="n > 0"),
    ):
        harness.send(1, message)
        harness.complete_writes()
    emitted = [
        (fact.kind, fact.subscription_generation)
        for fact in harness.facts
        if fact.kind in ("subscribed", "unsubscribed")
    ]
    assert emitted == [("subscribed", "1/1"), ("unsubscribed", "1/1"), ("subscribed", "1/2")]


def test_proxy_that_deletes_a_session_of_a_dead_owner_journals_the_deletion() -> None:
    harness = EngineHarness()
    harness.step(DeletedByOperator(SESSION, owner("dead", 3), "an operator asked for it"))
    harness.run_effects()
    (emitted,) = [fact for fact in harness.facts if fact.kind == "deleted"]
    assert (emitted.session, emitted.epoch, emitted.proxy, emitted.reason) == (
        SESSION,
        3,
        ME,
        "an operator asked for it",
    )


def test_a_dormant_session_that_got_no_answer_is_tried_again() -> None:
    harness = EngineHarness(disk(Role.SERVING, 4))
    harness.complete(effects.ClaimRow, RegistryUnavailable("gone"))
    harness.reload({SESSION: owner("me", 4)})
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", 5)))
    assert role(harness) is Role.SERVING


def test_a_staged_copy_of_the_very_epoch_is_ours() -> None:
    harness = EngineHarness(disk(Role.STAGED, 4))
    assert role(harness) is Role.ORPHAN
    harness.reload({SESSION: owner("me", 4)})
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", 5)))
    assert role(harness) is Role.SERVING


def test_a_staged_copy_of_another_epoch_is_nothing() -> None:
    for current in (owner("you", 4), owner("you", 7)):
        harness = EngineHarness(disk(Role.STAGED, 4))
        harness.reload({SESSION: current}, "you")
        assert role(harness) is None


def behind() -> EngineHarness:
    """A staged copy at epoch 4, where the watch has told of epoch 2."""
    harness = EngineHarness(disk(Role.STAGED, 4))
    harness.reload({SESSION: owner("you", 2)}, "you")
    assert role(harness) is Role.ORPHAN
    return harness


def test_a_staged_copy_is_not_judged_by_a_watch_that_is_behind() -> None:
    harness = behind()
    harness.complete(effects.ReadRow, owner("me", 4))
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", 5)))
    assert role(harness) is Role.SERVING
    harness = behind()
    harness.complete(effects.ReadRow, RegistryUnavailable("gone"))
    assert role(harness) is Role.ORPHAN


@pytest.mark.parametrize("current", [owner("you", 2), None])
def test_staged_copy_commits_when_no_owner_corrects_a_restored_registry(current: Ownership | None) -> None:
    """Its source is dead, and it was restarted since: it is all that there is."""
    harness = EngineHarness(disk(Role.STAGED, 4))
    harness.reload({SESSION: current} if current else {})
    for _ in range(SWEEPS_PER_ROUND + 1):
        harness.complete_all(effects.ReadRow, current)
        assert role(harness) is Role.ORPHAN
        assert not [effect for effect in harness.pending if isinstance(effect, effects.ClaimRow | effects.CreateRow)]
        harness.pass_time(harness.engine.env.settings.row_sweep_ms)
    harness.complete_all(effects.ReadRow, current)
    harness.complete_writes()
    if current is None:
        assert harness.next(effects.CreateRow).ownership == owner("me", 4)
    else:
        assert harness.next(effects.ClaimRow).new == owner("me", 4)


def orphaned() -> EngineHarness:
    """A staged copy at epoch 4, and the row still names its source at 3."""
    harness = EngineHarness(disk(Role.STAGED, 4))
    harness.reload({SESSION: owner("you", 3)}, "you")
    assert role(harness) is Role.ORPHAN
    return harness


def test_a_staged_copy_without_its_transfer_commits_once_it_is_stored() -> None:
    harness = orphaned()
    assert not [effect for effect in harness.pending if isinstance(effect, effects.ClaimRow)]
    harness.complete_all(effects.Save, None)
    claim = harness.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner("you", 3), owner("me", 4))
    harness.finish(claim, Claimed(True, claim.new))
    harness.run_effects()
    assert (role(harness), epoch(harness)) == (Role.SERVING, 4)


def test_a_staged_copy_that_the_disk_does_not_take_claims_nothing() -> None:
    harness = orphaned()
    harness.complete_all(effects.Save, StoreFailed("disk full"))
    assert not [effect for effect in harness.pending if isinstance(effect, effects.ClaimRow)]
    assert role(harness) is Role.ORPHAN


def test_a_staged_copy_whose_earlier_claim_was_applied_after_all_takes_the_next_epoch() -> None:
    harness = orphaned()
    harness.complete_all(effects.Save, None)
    harness.complete(effects.ClaimRow, Claimed(False, owner("me", 4)))
    assert role(harness) is Role.DORMANT
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", 5)))
    assert (role(harness), epoch(harness)) == (Role.SERVING, 5)


def test_a_staged_copy_whose_commit_has_no_answer_is_tried_again() -> None:
    harness = orphaned()
    harness.complete_all(effects.Save, None)
    harness.complete(effects.ClaimRow, RegistryUnavailable("gone"))
    assert role(harness) is Role.ORPHAN
    harness.pass_time(5_000)
    harness.complete_all(effects.Save, None)
    assert harness.next(effects.ClaimRow).new == owner("me", 4)


def test_client_that_waits_for_a_staged_copy_gets_wait_when_the_copy_is_dropped() -> None:
    harness = EngineHarness(disk(Role.STAGED, 4))
    harness.attach()
    harness.complete(effects.ReadRow, owner("you", 3))
    harness.received()
    harness.complete_all(effects.Save, None)
    harness.complete(effects.ClaimRow, Claimed(False, owner("you", 4)))
    assert role(harness) is None
    assert [type(message) for message in harness.received()] == [Wait]


def test_client_that_waits_for_a_staged_copy_attaches_when_the_copy_has_committed() -> None:
    harness = EngineHarness(disk(Role.STAGED, 4))
    harness.attach()
    harness.complete(effects.ReadRow, owner("you", 3))
    harness.received()
    harness.complete_all(effects.Save, None)
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", 4)))
    assert role(harness) is Role.SERVING
    harness.complete_all(effects.Save, None)
    harness.complete_all(effects.PutCheckpoint, None)
    assert Attached in [type(message) for message in harness.received()]


def test_a_row_that_names_us_without_data_is_rebuilt_from_the_changelog() -> None:
    harness = EngineHarness()
    harness.reload({SESSION: owner("me", 4)})
    harness.complete(effects.ReadRow, owner("me", 4))
    checkpoint = Checkpoint(SESSION, owner("me", 4).epoch, 1, DESCRIPTOR, {})
    harness.complete(effects.FindCheckpoint, effects.FoundCheckpoint((checkpoint,), True))
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", 5)))
    assert (role(harness), epoch(harness)) == (Role.SERVING, 5)
    assert [subscription.id for subscription in harness.engine.sessions[SESSION].subscriptions.active()] == ["x"]


def nobody_comes_back(harness: EngineHarness, row: Ownership, found: object) -> None:
    """The changelogs answer, and the client asks until the owner has had the time to come back with its disk."""
    for _ in range(SWEEPS_PER_ROUND + SWEEPS_TO_ACTIVATE + 1):
        harness.complete_all(effects.FindCheckpoint, found)
        assert isinstance(harness.received()[-1], Wait)
        harness.pass_time(harness.engine.env.settings.row_sweep_ms)
        harness.attach()
        harness.complete_all(effects.ReadRow, row)
    harness.complete_all(effects.FindCheckpoint, found)


def test_owner_whose_checkpoint_the_changelog_has_lost_may_come_back_with_its_disk() -> None:
    """Another proxy is asked for the session between its owner's end and its next start (F109)."""
    harness = EngineHarness()
    harness.reload({SESSION: owner("dead", 4)})
    harness.attach()
    harness.complete(effects.ReadRow, owner("dead", 4))
    harness.complete(effects.FindCheckpoint, effects.FoundCheckpoint((), True))
    (*_, answer) = harness.received()
    assert isinstance(answer, Wait) and "proxy dead, whose lease has ended, may have it on its disk" in answer.reason
    harness.reload({SESSION: owner("dead", 5)}, "dead")
    harness.attach()
    assert [effect.message for effect in harness.pending if isinstance(effect, effects.SendPeer)]


@pytest.mark.parametrize("noted", [(4, 3), (5, 0)])
def test_a_checkpoint_below_what_clients_were_answered_is_not_served(noted: Rank) -> None:
    """The changelog has lost its end, and nobody else has the session any more (rule 19)."""
    harness = EngineHarness()
    harness.reload({SESSION: owner("dead", 4)})
    harness.attach()
    harness.complete(effects.ReadRow, owner("dead", 4))
    checkpoint = Checkpoint(SESSION, Epoch(4), 2, DESCRIPTOR, {})
    nobody_comes_back(harness, owner("dead", 4), effects.FoundCheckpoint((checkpoint,), True, noted=noted))
    assert role(harness) is None
    assert [problem.code for problem in harness.received() if isinstance(problem, Problem)] == [SessionLost.code]


def first_checkpoint(epoch: int) -> effects.FoundCheckpoint:
    """Return what the changelog has of a session that was made, and no more."""
    return effects.FoundCheckpoint((Checkpoint(SESSION, Epoch(epoch), 0, Descriptor(), {}),), True)


def test_the_row_of_a_session_is_not_there_before_its_first_checkpoint() -> None:
    harness = EngineHarness()
    harness.changelog_waits = True
    harness.attach()
    harness.complete(effects.ReadRow, None)
    assert not [effect for effect in harness.pending if isinstance(effect, effects.CreateRow)]
    first = harness.next(effects.PutCheckpoint)
    assert first.checkpoint.rank == (1, 0)
    harness.finish(first, None)
    harness.run_effects()
    assert harness.next(effects.CreateRow).ownership == owner("me", 1)


def test_a_session_whose_first_checkpoint_the_changelog_does_not_take_is_not_made() -> None:
    harness = EngineHarness()
    harness.changelog_waits = True
    harness.attach()
    harness.complete(effects.ReadRow, None)
    harness.complete(effects.PutCheckpoint, LogUnavailable("away"))
    assert [type(message) for message in harness.received()][-1] is Wait
    assert harness.pending == []


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (effects.FoundCheckpoint((), True), "no changelog has a checkpoint of it"),
        (effects.FoundCheckpoint((), True, "its checksum is wrong"), "its checksum is wrong"),
    ],
)
def test_session_without_any_checkpoint_is_lost_and_not_served_empty(found: object, why: str) -> None:
    harness = EngineHarness()
    harness.reload({SESSION: owner("dead", 4)})
    harness.attach()
    harness.complete(effects.ReadRow, owner("dead", 4))
    nobody_comes_back(harness, owner("dead", 4), found)
    (answer,) = (problem for problem in harness.received() if isinstance(problem, Problem))
    assert (answer.code, answer.about) == ("SESSION_LOST", AboutSession(SESSION))
    assert why in answer.message and f"waypost sessions rm {SESSION}" in answer.message
    assert not [effect for effect in harness.pending if isinstance(effect, effects.ClaimRow)]
    assert harness.engine.output.counters.damaged["session"] == 1


def test_damaged_checkpoint_is_not_lost_when_another_changelog_has_the_owners_own() -> None:
    harness = EngineHarness()
    harness.reload({SESSION: owner("dead", 4)})
    harness.attach()
    harness.complete(effects.ReadRow, owner("dead", 4))
    checkpoint = Checkpoint(SESSION, Epoch(4), 2, DESCRIPTOR, {})
    harness.complete(effects.FindCheckpoint, effects.FoundCheckpoint((checkpoint,), True, "its checksum is wrong"))
    assert harness.next(effects.ClaimRow).new == owner("me", 5)


def test_a_lost_session_begins_anew_when_it_was_deleted() -> None:
    harness = EngineHarness()
    harness.reload({SESSION: owner("dead", 4)})
    harness.attach()
    harness.complete(effects.ReadRow, owner("dead", 4))
    nobody_comes_back(harness, owner("dead", 4), effects.FoundCheckpoint((), True))
    harness.step(RegistryReported(OwnerChanged(SESSION, owner("dead", 4).gone())))
    harness.attach()
    harness.complete(effects.ReadRow, owner("dead", 4).gone())
    assert harness.next(effects.ClaimRow).new == owner("me", GENERATION + 1)


def test_first_checkpoint_of_a_session_that_was_not_made_does_not_hide_the_owners() -> None:
    """Another proxy tried to make it in a later generation, and the row says that it did not."""
    harness = EngineHarness()
    harness.reload({SESSION: owner("you", 3)})
    harness.attach()
    harness.complete(effects.ReadRow, owner("you", 3))
    owners = Checkpoint(SESSION, Epoch(3), 2, Descriptor(), {})
    first = Checkpoint(SESSION, Epoch(GENERATION + 1), 0, Descriptor(), {})
    harness.complete(effects.FindCheckpoint, effects.FoundCheckpoint((first, owners), True))
    claim = harness.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner("you", 3), owner("me", 4))


@pytest.mark.parametrize(
    "found",
    [
        effects.FoundCheckpoint((), False),
        # Whoever tried to create the session has written one of these; the owner's own may be where nobody answers.
        msgspec.structs.replace(first_checkpoint(4), complete=False),
        effects.FoundCheckpoint((), False, "its checksum is wrong"),
    ],
)
def test_without_all_changelogs_nothing_is_rebuilt(found: effects.FoundCheckpoint) -> None:
    harness = EngineHarness()
    harness.reload({SESSION: owner("dead", 4)})
    harness.attach()
    harness.complete(effects.ReadRow, owner("dead", 4))
    harness.complete(effects.FindCheckpoint, found)
    assert role(harness) is None
    assert [type(message) for message in harness.received()][-1] is Wait


def test_failover_waits_until_the_watch_has_the_row_of_the_owner() -> None:
    """The end that was told may be that of the life before the one that took this epoch (rule 26)."""
    harness = EngineHarness()
    harness.reload({SESSION: owner("you", 3)})
    harness.attach()
    harness.complete(effects.ReadRow, owner("you", 4))
    assert [type(message) for message in harness.received()][-1] is Wait
    assert not [effect for effect in harness.pending if isinstance(effect, effects.FindCheckpoint)]
    harness.step(RegistryReported(OwnerChanged(SESSION, owner("you", 4))))
    harness.attach()
    harness.complete(effects.ReadRow, owner("you", 4))
    harness.complete(effects.FindCheckpoint, first_checkpoint(4))
    assert harness.next(effects.ClaimRow).new == owner("me", 5)


def test_a_lost_answer_to_the_creation_is_settled_by_reading() -> None:
    harness = EngineHarness()
    harness.attach()
    harness.complete(effects.ReadRow, None)
    harness.complete(effects.CreateRow, RegistryUnavailable("gone"))
    assert [type(message) for message in harness.received()][-1] is Wait
    harness.attach()
    harness.complete(effects.ReadRow, owner("me", 1))
    harness.complete(effects.FindCheckpoint, first_checkpoint(1))
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", 2)))
    harness.complete_writes()
    assert Attached in [type(message) for message in harness.received()]


def asking(*others: str) -> tuple[EngineHarness, Prepare]:
    """A client has attached here to a session of `you`, at epoch 3 by the watch's word; `others` live too."""
    harness = EngineHarness()
    harness.reload({SESSION: owner("you", 3)}, "you", *others)
    harness.attach()
    return harness, asked(harness, "you")


def asked(harness: EngineHarness, proxy: str) -> Prepare:
    sent = harness.next(effects.SendPeer)
    assert sent.proxy == proxy and isinstance(sent.message, Prepare)
    return sent.message


def refuse(harness: EngineHarness, prepare: Prepare) -> None:
    harness.received()
    refusal = TransferRefused(SESSION, prepare.transfer, prepare.epoch, "not here")
    harness.step(PeerSent(ProxyId("you"), refusal))
    harness.run_effects()


@pytest.mark.parametrize("told_by", ["watch", "registry"])
def test_client_at_another_proxy_than_the_owner_is_told_that_the_session_is_lost(told_by: str) -> None:
    harness, prepare = asking()
    harness.received()
    refusal = TransferRefused(SESSION, prepare.transfer, prepare.epoch, "no changelog has it", lost=True)
    harness.step(PeerSent(ProxyId("you"), refusal))
    harness.run_effects()
    current = owner("you", 3) if told_by == "watch" else owner("you", 4)
    harness.complete(effects.ReadRow, current)
    if told_by == "registry":
        # The word was of another epoch: it counts for nothing, and the owner is asked again.
        again = asked(harness, "you")
        refusal = TransferRefused(SESSION, again.transfer, again.epoch, "no changelog has it", lost=True)
        harness.step(PeerSent(ProxyId("you"), refusal))
        harness.run_effects()
    assert [problem.code for problem in harness.received() if isinstance(problem, Problem)] == [SessionLost.code]


def test_owner_without_its_session_answers_session_lost_until_its_row_changes() -> None:
    harness = EngineHarness()
    own_row = owner("me", 4)
    harness.reload({SESSION: own_row}, "you")
    for _ in range(2):
        # It is looked for again and again: changelogs may come back.
        harness.complete(effects.ReadRow, own_row)
        harness.complete(effects.FindCheckpoint, effects.FoundCheckpoint((), True))
        harness.pass_time(5_000)
    assert harness.engine.output.counters.damaged["session"] == 1

    def refusals() -> list[TransferRefused]:
        sent = [send_peer.message for send_peer in harness.pending if isinstance(send_peer, effects.SendPeer)]
        return [message for message in sent if isinstance(message, TransferRefused)]

    harness.step(PeerSent(ProxyId("you"), Prepare(session=SESSION, transfer="t1", epoch=Epoch(4))))
    harness.step(PeerSent(ProxyId("you"), Prepare(session=SESSION, transfer="t2", epoch=Epoch(3))))
    harness.run_effects()
    assert [refused.lost for refused in refusals()] == [True, False]
    harness.step(RegistryReported(OwnerChanged(SESSION, own_row.gone())))
    harness.run_effects()
    harness.pass_time(5_000)
    assert not harness.engine.env.registry_memory.lost


def test_an_owner_that_lives_is_asked_and_never_taken_over() -> None:
    harness, prepare = asking()
    assert prepare.epoch == 3
    assert not [effect for effect in harness.pending if isinstance(effect, effects.ReadRow | effects.ClaimRow)]


def test_refused_request_goes_to_the_owner_in_the_registry_when_the_watch_was_behind() -> None:
    harness, prepare = asking("they")
    refuse(harness, prepare)
    harness.complete(effects.ReadRow, owner("they", 5))
    assert asked(harness, "they").epoch == 5
    assert harness.received() == []


def test_an_owner_that_refuses_and_is_the_owner_is_not_asked_again_until_the_client_does() -> None:
    harness, prepare = asking()
    refuse(harness, prepare)
    harness.complete(effects.ReadRow, owner("you", 3))
    assert [type(message) for message in harness.received()] == [Wait]
    assert not [effect for effect in harness.pending if isinstance(effect, effects.SendPeer)]


def test_a_client_whose_session_does_not_come_is_sent_to_the_owner() -> None:
    """Both proxies live, and one may not reach the other."""
    harness, prepare = asking()
    harness.step(RegistryReported(ProxyUp(row("you").model_copy(update={"lease_ttl_ms": 10_000}))))
    began_ms, sent = harness.clock.now_ms(), list[object]()
    while not any(isinstance(message, Moved) for message in sent):
        refuse(harness, prepare)
        harness.complete(effects.ReadRow, owner("you", 3))
        sent = harness.received()
        assert [type(message) for message in sent] in ([Wait], [Moved])
        if isinstance(sent[0], Wait):
            harness.pass_time(1_000)
            harness.attach()
            prepare = asked(harness, "you")
    assert harness.clock.now_ms() - began_ms > 10_000
    (moved,) = sent
    assert isinstance(moved, Moved) and moved.proxy == "you"


def test_a_session_that_was_deleted_before_the_watch_said_so_is_made_anew() -> None:
    harness, prepare = asking()
    refuse(harness, prepare)
    harness.complete(effects.ReadRow, owner(NO_PROXY, GENERATION))
    assert harness.next(effects.ClaimRow).new == owner("me", GENERATION + 1)


def test_an_owner_that_dies_while_it_is_asked_is_taken_over() -> None:
    harness, _ = asking()
    harness.received()
    harness.step(RegistryReported(ProxyDown(ProxyId("you"), row("you").incarnation)))
    harness.run_effects()
    harness.complete(effects.ReadRow, owner("you", 3))
    harness.complete(effects.FindCheckpoint, first_checkpoint(3))
    assert harness.next(effects.ClaimRow).new == owner("me", 4)
    assert harness.received() == []


@pytest.mark.parametrize("known", [True, False])
def test_attached_client_gets_moved_or_wait_when_the_session_has_another_owner(known: bool) -> None:
    harness = EngineHarness()
    harness.serve()
    if known:
        harness.reload({SESSION: owner("me", 1)}, "you")
    harness.step(RegistryReported(OwnerChanged(SESSION, owner("you", 2))))
    harness.run_effects()
    assert [type(message) for message in harness.received()] == [Moved if known else Wait]


def test_old_news_of_an_earlier_owner_changes_nothing() -> None:
    """The watch may be behind what was claimed and read: a row of an earlier epoch is no row of another owner."""
    harness = EngineHarness(disk(Role.SERVING, 4))
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", 5)))
    harness.reload({SESSION: owner("me", 5)}, "you")
    harness.step(PeerSent(ProxyId("you"), Prepare(session=SESSION, transfer="t", epoch=owner("me", 5).epoch)))
    harness.step(RegistryReported(OwnerChanged(SESSION, owner("you", 3))))
    assert role(harness) is Role.SERVING
    harness.step(RegistryReported(OwnerChanged(SESSION, owner("you", 6))))
    assert role(harness) is None


def test_nothing_is_promised_to_a_client_that_the_fence_put_out() -> None:
    """Rule 13: not before the receiver has reported. A frozen session is put out as a served one is."""
    harness = EngineHarness()
    harness.serve()
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    harness.complete_writes()
    session = harness.engine.sessions[SESSION]
    session.freeze({})
    harness.step(LeaseLost())
    assert [receiver.connection for receiver in session.receivers.values()] == [None]
    harness.lease()
    harness.engine.served_sessions.serve(session, owner("me", 2).epoch, OwnedCause.THAW)
    harness.run_effects()
    assert BecameEffective not in settled(harness)
    harness.attach()
    assert BecameEffective in settled(harness)


def test_promise_written_during_a_freeze_is_announced_after_the_thaw() -> None:
    """Who stayed attached attaches no more, and would never hear of it."""
    harness = EngineHarness()
    harness.reload({}, "you")
    harness.serve()
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    harness.complete_writes()
    harness.read_log()
    assert SESSION in harness.engine.sessions._changed or any(
        isinstance(effect, effects.Save) for effect in harness.pending
    )
    harness.step(PeerSent(YOU, Prepare(session=SESSION, transfer="t", epoch=Epoch(1), receiver="r")))
    harness.step(PeerSent(YOU, Ready(SESSION, "t", Epoch(1), {})))
    harness.run_effects()
    assert role(harness) is Role.FROZEN
    harness.complete_writes()
    assert BecameEffective not in settled(harness)
    harness.pass_time(Timing().frozen_ms)
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", 2)))
    assert role(harness) is Role.SERVING
    assert settled(harness).count(BecameEffective) == 1


def settled(harness: EngineHarness) -> list[type]:
    """Let all that is under way be written and read; return what the client heard since the last time."""
    harness.read_log()
    harness.pass_time(1_000)
    harness.complete_writes()
    return [type(message) for message in harness.received()]


def test_attach_while_the_lease_is_in_doubt_is_answered_wait_until_the_renewal() -> None:
    harness = EngineHarness(lease=False)
    harness.step(LeaseGranted(Incarnation("me#1"), harness.clock.now_ms() + 5_000))
    harness.run_effects()
    harness.serve()
    harness.clock.advance(4_800)
    harness.send(2, Attach(session=SESSION, receiver="r", incarnation="i", frontier={}))
    harness.complete(effects.ReadRow, owner("me", 1))
    assert Wait in [type(message) for message in harness.received(2)]
    harness.step(LeaseRenewed(harness.clock.now_ms() + 5_000))
    harness.send(2, Attach(session=SESSION, receiver="r", incarnation="i", frontier={}))
    assert Attached in [type(message) for message in harness.received(2)]


def test_an_answer_that_was_asked_for_under_an_earlier_lease_brings_no_serving() -> None:
    harness = EngineHarness(disk(Role.SERVING, 4))
    harness.reload({SESSION: owner("me", 4)})
    claim = harness.next(effects.ClaimRow)
    harness.step(LeaseLost())
    harness.step(LeaseGranted(Incarnation("me#2"), 1 << 40))
    harness.finish(claim, Claimed(True, owner("me", 5)))
    harness.run_effects()
    assert role(harness) is Role.DORMANT
    harness.complete(effects.ClaimRow, Claimed(False, owner("me", 5)))
    again = harness.next(effects.ClaimRow)
    assert again.new.epoch > 5
    harness.finish(again, Claimed(True, again.new))
    harness.run_effects()
    assert (role(harness), epoch(harness)) == (Role.SERVING, again.new.epoch)


def deleting() -> tuple[EngineHarness, effects.ClaimRow]:
    """A session that is served here at epoch 5, and asked to be deleted; and the claim that deletes it."""
    harness = EngineHarness(disk(Role.SERVING, 4))
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", 5)))
    harness.engine.served_sessions.delete(harness.engine.sessions[SESSION], "an operator asked for it")
    harness.run_effects()
    return harness, harness.next(effects.ClaimRow)


def test_the_answer_that_a_session_is_deleted_removes_it() -> None:
    harness, claim = deleting()
    harness.finish(claim, Claimed(True, claim.new))
    harness.run_effects()
    assert role(harness) is None
    assert not harness.engine.output.counters.stale_replies


@pytest.mark.parametrize(
    "meanwhile",
    [
        pytest.param(
            lambda harness: (harness.step(LeaseLost()), harness.step(LeaseGranted(Incarnation("me#2"), 1 << 40))),
            id="another incarnation",
        ),
        pytest.param(
            lambda harness: harness.step(RegistryReported(OwnerChanged(SESSION, owner("you", 6)))), id="another copy"
        ),
    ],
)
def test_an_answer_about_a_copy_that_is_another_one_by_now_is_refused_and_counted(
    meanwhile: Callable[[EngineHarness], None], request: pytest.FixtureRequest
) -> None:
    harness, claim = deleting()
    meanwhile(harness)
    harness.run_effects()
    before = role(harness)
    harness.finish(claim, Claimed(False, owner("they", 9)))
    harness.run_effects()
    assert role(harness) is before
    assert dict(harness.engine.output.counters.stale_replies) == {request.node.callspec.id: 1}


@pytest.mark.parametrize(
    ("why", "meanwhile"),
    [
        (
            StaleReply.ANOTHER_INCARNATION,
            lambda harness, _: (harness.step(LeaseLost()), harness.step(LeaseGranted(Incarnation("me#2"), 1 << 40))),
        ),
        (StaleReply.ANOTHER_ATTEMPT, lambda harness, claim: harness.finish(claim, RegistryUnavailable("no answer"))),
        (StaleReply.NO_LEASE, lambda harness, _: harness.clock.advance(1 << 41)),
        (
            StaleReply.ANOTHER_COPY,
            lambda harness, _: harness.step(RegistryReported(OwnerChanged(SESSION, owner("you", 6)))),
        ),
    ],
    ids=["another incarnation", "another attempt", "no lease", "another copy"],
)
def test_answer_to_an_acquisition_is_refused_by_name_and_counted(
    why: StaleReply, meanwhile: Callable[[EngineHarness, effects.ClaimRow], object]
) -> None:
    harness = EngineHarness(disk(Role.SERVING, 4))
    claim = harness.next(effects.ClaimRow)
    meanwhile(harness, claim)
    harness.run_effects()
    harness.finish(claim, Claimed(True, owner("me", 5)))
    harness.run_effects()
    assert role(harness) is not Role.SERVING
    assert dict(harness.engine.output.counters.stale_replies) == {why: 1}


def test_a_handover_that_fails_after_the_request_for_it_has_ended_begins_nothing() -> None:
    harness, prepare = asking()
    harness.step(LeaseLost())
    harness.step(LeaseGranted(Incarnation("me#2"), 1 << 40))
    harness.run_effects()
    refuse(harness, prepare)
    assert not [effect for effect in harness.pending if isinstance(effect, effects.ReadRow)]


def test_registered_interest_of_a_session_without_a_local_copy_is_withdrawn() -> None:
    harness = EngineHarness()
    harness.log.append(
        InterestRegistered(harness.engine.env.proxy, harness.engine.env.lease.incarnation, SESSION, ("n > 0",))
    )
    harness.read_log()
    harness.pass_time(3_000)
    assert harness.log[-1] == InterestRegistered(
        harness.engine.env.proxy, harness.engine.env.lease.incarnation, SESSION, ()
    )
    harness.read_log()
    harness.pass_time(3_000)
    assert isinstance(harness.log[-1], InterestRegistered) and len(harness.log) == 2


def test_unknown_session_name_costs_one_read_of_the_registry_only() -> None:
    """No other proxy is asked for it, and no fact is written: any client can make up names."""
    harness = EngineHarness()
    harness.reload({}, "you")
    harness.send(1, Attach(session=SESSION, receiver="r", incarnation="i1", frontier={}, create=False))
    assert not [effect for effect in harness.pending if isinstance(effect, effects.SendPeer)]
    harness.complete(effects.ReadRow, None)
    assert harness.pending == []
    assert [fact.kind for fact in harness.facts if fact.session == SESSION] == []


@pytest.mark.parametrize("phase", SOURCE)
def test_a_row_that_is_read_ends_a_transfer_before_the_session_goes(phase: str) -> None:
    """The watch shows no row, as where the session was deleted meanwhile; the answer names who has it."""
    harness = PHASES[phase]().harness
    harness.reload({}, "you", "they")
    harness.complete(effects.ReadRow, owner("you", GENERATION + 1))
    assert role(harness) is None
    assert SESSION not in harness.engine.sessions.transfers
    harness.complete_all(effects.ClaimRow, Claimed(False, owner("you", GENERATION + 1)))


@pytest.mark.parametrize("named", ["me", "you"])
def test_owner_writes_its_row_again_when_the_registry_went_back(named: str) -> None:
    """It was restored from an older copy: nobody could ask for the session at the epoch that it has (failures, F70)."""
    harness = EngineHarness(disk(Role.SERVING, 4))
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", 5)))
    harness.complete_all(effects.ReadRow, owner("me", 5))
    harness.reload({SESSION: owner(named, 2)}, "you")
    harness.complete(effects.ReadRow, owner(named, 2))
    claim = harness.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner(named, 2), owner("me", 5))
    harness.finish(claim, Claimed(True, claim.new))
    harness.run_effects()
    assert (role(harness), epoch(harness)) == (Role.SERVING, 5)
    harness.reload({SESSION: owner("me", 5)}, "you")
    assert not [effect for effect in harness.pending if isinstance(effect, effects.ClaimRow | effects.ReadRow)]


def test_owner_creates_its_row_again_when_the_registry_has_lost_it() -> None:
    """The session was made after the copy was: else somebody makes another one of its name, and both are served."""
    harness = EngineHarness(disk(Role.SERVING, 4))
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", 5)))
    harness.complete_all(effects.ReadRow, owner("me", 5))
    harness.reload({})
    harness.complete(effects.ReadRow, None)
    created = harness.next(effects.CreateRow)
    assert created.ownership == owner("me", 5)
    harness.finish(created, Claimed(True, created.ownership))
    harness.run_effects()
    assert (role(harness), epoch(harness)) == (Role.SERVING, 5)


def test_owner_takes_the_next_epoch_when_another_session_was_created_at_its_own() -> None:
    harness = EngineHarness(disk(Role.SERVING, 4))
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", 5)))
    harness.reload({SESSION: owner("you", 5)}, "you")
    harness.complete_all(effects.ReadRow, owner("you", 5))
    claim = harness.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner("you", 5), owner("me", 6))
    harness.finish(claim, Claimed(True, claim.new))
    harness.run_effects()
    assert (role(harness), epoch(harness)) == (Role.SERVING, 6)


def test_a_sleeping_session_never_wakes_at_an_epoch_at_which_it_was_served_before() -> None:
    """The registry went back: a checkpoint of that epoch would count less than those that are there (rule 19)."""
    harness = EngineHarness(disk(Role.SERVING, 4))
    harness.complete(effects.ClaimRow, Claimed(False, owner("me", 2)))
    harness.reload({SESSION: owner("me", 2)})
    harness.pass_time(5_000)
    # Another one may serve it at a later epoch, and write its row again.
    assert not [effect for effect in harness.pending if isinstance(effect, effects.ClaimRow)]
    corrected(harness)
    claim = harness.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner("me", 2), owner("me", 5))
    harness.finish(claim, Claimed(True, claim.new))
    harness.run_effects()
    assert (role(harness), epoch(harness)) == (Role.SERVING, 5)


@pytest.mark.parametrize("named", ["dead", "me"])
def test_failover_from_a_checkpoint_of_a_later_epoch_waits_for_the_owner_at_that_epoch(named: str) -> None:
    """What the row says of the life of its owner says nothing of the owner of that epoch, who may be alive."""
    harness = EngineHarness()
    harness.reload({SESSION: owner(named, 2)})

    def looked_for() -> list[effects.ClaimRow]:
        harness.attach()
        harness.complete(effects.ReadRow, owner(named, 2))
        checkpoint = Checkpoint(SESSION, Epoch(7), 2, DESCRIPTOR, {})
        harness.complete(effects.FindCheckpoint, effects.FoundCheckpoint((checkpoint,), True))
        return [effect for effect in harness.pending if isinstance(effect, effects.ClaimRow)]

    assert not looked_for()
    assert [type(message) for message in harness.received()][-1:] == [Wait]
    corrected(harness)
    harness.pending.clear()
    harness.engine.acquisitions.end(SESSION)
    (claim,) = looked_for()
    assert (claim.expected, claim.new) == (owner(named, 2), owner("me", 8))


def corrected(harness: EngineHarness) -> None:
    """Let so much time pass that whoever serves a session would have written its row again."""
    for _ in range(SWEEPS_PER_ROUND + 2):
        harness.pass_time(harness.engine.env.settings.row_sweep_ms)


def test_owner_lets_go_when_another_proxy_has_taken_over_before_its_row_is_restored() -> None:
    harness = EngineHarness(disk(Role.SERVING, 4))
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", 5)))
    harness.reload({SESSION: owner("you", 2)}, "you")
    harness.complete_all(effects.ReadRow, owner("you", 2))
    harness.complete(effects.ClaimRow, Claimed(False, owner("you", 6)))
    assert role(harness) is None


def test_dormant_copy_is_activated_when_no_owner_corrects_an_earlier_row() -> None:
    harness = EngineHarness(disk(Role.SERVING, 4))
    harness.complete(effects.ClaimRow, RegistryUnavailable("away"))
    harness.reload({SESSION: owner("you", 2)})
    corrected(harness)
    claim = harness.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner("you", 2), owner("me", 5))
    harness.finish(claim, Claimed(True, claim.new))
    harness.run_effects()
    assert (role(harness), epoch(harness)) == (Role.SERVING, 5)


def test_session_is_not_created_for_a_disconnected_client() -> None:
    harness = EngineHarness()
    harness.send(1, Attach(session=SESSION, receiver="r", incarnation="i1", frontier={}))
    harness.step(ClientDisconnected(1))
    harness.run_effects()
    harness.complete(effects.ReadRow, None)
    assert not [effect for effect in harness.pending if isinstance(effect, effects.CreateRow)]
    assert role(harness) is None


def test_a_client_that_asks_again_on_its_connection_waits_once_and_gets_its_session() -> None:
    harness = EngineHarness()
    for _ in range(2):
        harness.send(1, Attach(session=SESSION, receiver="r", incarnation="i1", frontier={}))
    harness.complete(effects.ReadRow, None)
    harness.complete(effects.CreateRow, Claimed(True, owner("me", 1)))
    assert role(harness) is Role.SERVING


def test_attach_is_answered_wait_when_the_registry_has_lost_the_row_of_the_session() -> None:
    """Its owner writes the row again; who says that there is none ends the client's receiver."""
    harness = EngineHarness()
    harness.reload({SESSION: owner("you", 3)}, "you")
    harness.reload({}, "you")
    harness.send(1, Attach(session=SESSION, receiver="r", incarnation="i1", frontier={}, create=False))
    harness.complete(effects.ReadRow, None)
    assert [type(message) for message in harness.received()][-1] is Wait


@pytest.mark.parametrize("row_epoch", [2, 4])
def test_dormant_copy_is_dropped_when_another_owner_serves_by_a_row_that_is_not_corrected(row_epoch: int) -> None:
    """The session was made anew where the registry went back: what its clients were answered since is not undone."""
    harness = EngineHarness(disk(Role.SERVING, 4))
    harness.complete(effects.ClaimRow, RegistryUnavailable("away"))
    harness.reload({SESSION: owner("you", row_epoch)}, "you")
    corrected(harness)
    assert role(harness) is None
    assert not [effect for effect in harness.pending if isinstance(effect, effects.ClaimRow)]


def test_a_staged_copy_does_not_take_the_place_of_a_session_that_was_made_anew_at_its_sources_epoch() -> None:
    harness = EngineHarness(disk(Role.STAGED, 4, source="they"))
    harness.reload({SESSION: owner("you", 3)}, "you")
    harness.complete_writes()
    assert role(harness) is None
    assert not [effect for effect in harness.pending if isinstance(effect, effects.ClaimRow)]


def fenced(harness: EngineHarness) -> None:
    """Its registry is away until its lease has ended; it comes back from an older copy, and there is another lease."""
    harness.step(LeaseLost())
    harness.run_effects()
    assert role(harness) is Role.DORMANT
    harness.lease()


def test_fenced_owner_creates_its_row_again_when_the_registry_has_none() -> None:
    """Else it is dropped in silence, with all that is stored: a registry is restored more slowly than leases end."""
    harness = EngineHarness(disk(Role.SERVING, 4))
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", 5)))
    fenced(harness)
    harness.complete(effects.ClaimRow, Claimed(False, None))
    harness.complete_all(effects.ReadRow, None)
    created = harness.next(effects.CreateRow)
    assert created.ownership == owner("me", 6)
    harness.finish(created, Claimed(True, created.ownership))
    harness.run_effects()
    assert (role(harness), epoch(harness)) == (Role.SERVING, 6)
    assert harness.engine.output.counters.rows_lost == 1


@pytest.mark.parametrize("named", ["me", "you"])
def test_fenced_owner_claims_the_session_when_the_registry_has_an_earlier_row(named: str) -> None:
    harness = EngineHarness(disk(Role.SERVING, 4))
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", 5)))
    harness.reload({SESSION: owner("me", 5)}, "you")
    fenced(harness)
    harness.complete(effects.ClaimRow, Claimed(False, owner(named, 2)))
    harness.reload({SESSION: owner(named, 2)}, "you")
    claim = harness.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner(named, 2), owner("me", 6))
    harness.finish(claim, Claimed(True, claim.new))
    harness.run_effects()
    assert (role(harness), epoch(harness)) == (Role.SERVING, 6)


def test_stored_session_without_a_row_is_created_again_only_after_no_other_proxy_wrote_the_row() -> None:
    """Another may have taken it over while this process was away, and the registry have lost that."""
    harness = EngineHarness(disk(Role.SERVING, 4))
    harness.complete(effects.ClaimRow, Claimed(False, None))
    harness.complete(effects.ReadRow, None)
    harness.attach()
    harness.complete_all(effects.ReadRow, None)
    assert Wait in [type(message) for message in harness.received()]
    assert not [effect for effect in harness.pending if isinstance(effect, effects.CreateRow)]
    for _ in range(SWEEPS_PER_ROUND + 2):
        harness.pass_time(harness.engine.env.settings.row_sweep_ms)
        harness.complete_all(effects.ReadRow, None)
    assert harness.next(effects.CreateRow).ownership == owner("me", 5)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_session_that_the_registry_has_lost_goes_on_from_its_checkpoint_or_is_made_above_it(is_there: bool) -> None:
    """Made at an epoch below, its own checkpoints would count less, and what was answered would go with its proxy."""
    harness = EngineHarness()
    harness.changelog_waits = True
    harness.send(1, Attach(session=SESSION, receiver="r", incarnation="i1", frontier={}))
    harness.complete(effects.ReadRow, None)
    first = harness.next(effects.PutCheckpoint)
    assert (first.checkpoint.epoch, first.checkpoint.serial) == (1, 0)
    harness.finish(first, CheckpointOutdated("there is a later one", 4, by_owner=True))
    harness.run_effects()
    harness.complete(effects.ReadRow, None)
    # Its owner may live, and write the row again.
    assert Wait in [type(message) for message in harness.received()]
    harness.pass_time((SWEEPS_PER_ROUND + SWEEPS_TO_ACTIVATE + 2) * harness.engine.env.settings.row_sweep_ms)
    harness.attach()
    harness.complete_all(effects.ReadRow, None)
    harness.finish(harness.next(effects.PutCheckpoint), CheckpointOutdated("there is a later one", 4, by_owner=True))
    harness.run_effects()
    harness.complete_all(effects.ReadRow, None)
    last = (Checkpoint(SESSION, Epoch(4), 9, Descriptor(), {}),) if is_there else ()
    harness.complete(effects.FindCheckpoint, effects.FoundCheckpoint(last, complete=True))
    if is_there:
        assert harness.next(effects.CreateRow).ownership == owner("me", 5)
        return
    second = harness.next(effects.PutCheckpoint)
    assert (second.checkpoint.epoch, second.checkpoint.serial) == (GENERATION + 1, 0)
    harness.finish(second, None)
    harness.run_effects()
    assert harness.next(effects.CreateRow).ownership == owner("me", GENERATION + 1)


def test_a_session_that_was_created_meanwhile_is_not_created_above_its_checkpoints() -> None:
    """Its registry has lost nothing: this proxy was late. A first checkpoint above would outlive the session's own."""
    harness = EngineHarness()
    harness.changelog_waits = True
    harness.send(1, Attach(session=SESSION, receiver="r", incarnation="i1", frontier={}))
    harness.complete(effects.ReadRow, None)
    harness.finish(harness.next(effects.PutCheckpoint), CheckpointOutdated("there is a later one", 1, by_owner=True))
    harness.run_effects()
    harness.reload({SESSION: owner("you", 1)}, "you")
    harness.complete(effects.ReadRow, owner("you", 1))
    assert not [effect for effect in harness.pending if isinstance(effect, effects.PutCheckpoint)]


def _outdated(harness: EngineHarness, *, by_owner: bool) -> None:
    """The session's checkpoint counts less than one of epoch 4 that the changelog has."""
    harness.engine.persister.checkpoints.write(harness.engine.sessions[SESSION], effects.ignore_result)
    harness.run_effects()
    harness.complete_all(effects.PutCheckpoint, CheckpointOutdated("there is a later one", 4, by_owner=by_owner))
    harness.received()
    harness.pass_time(2 * harness.engine.env.settings.row_sweep_ms)


def test_an_owner_that_a_first_checkpoint_outranks_takes_an_epoch_above() -> None:
    harness = EngineHarness()
    harness.serve()
    _outdated(harness, by_owner=False)
    harness.complete_all(effects.ReadRow, owner("me", 1))
    assert Wait in [type(message) for message in harness.received()]
    claim = harness.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner("me", 1), owner("me", 5))


def test_owner_in_a_restored_registry_rebuilds_the_checkpoint_of_a_later_owner() -> None:
    """What clients were answered is in the changelog, and not in the copy of the earlier owner."""
    harness = EngineHarness()
    harness.serve()
    _outdated(harness, by_owner=True)
    harness.complete_all(effects.ReadRow, owner("me", 1))
    assert Wait in [type(message) for message in harness.received()]
    assert SESSION not in harness.engine.sessions
    later = Checkpoint(SESSION, Epoch(4), 9, Descriptor(), {})
    for _ in range(SWEEPS_PER_ROUND + 2):
        harness.pass_time(harness.engine.env.settings.row_sweep_ms)
        harness.complete_all(effects.ReadRow, owner("me", 1))
        harness.complete_writes()
        harness.complete_all(effects.FindCheckpoint, effects.FoundCheckpoint((later,), True))
    claim = harness.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner("me", 1), owner("me", 5))


def test_an_owner_that_another_one_followed_leaves_the_session_to_it() -> None:
    harness = EngineHarness()
    harness.serve()
    _outdated(harness, by_owner=True)
    harness.complete_all(effects.ReadRow, owner("you", 4))
    assert SESSION not in harness.engine.sessions
    assert not [effect for effect in harness.pending if isinstance(effect, effects.ClaimRow | effects.FindCheckpoint)]


def test_owner_with_an_outdated_checkpoint_writes_no_further_checkpoint() -> None:
    harness = EngineHarness()
    harness.serve()
    session = harness.engine.sessions[SESSION]
    _outdated(harness, by_owner=True)
    answer: list[object] = []
    harness.engine.persister.checkpoints.write(session, answer.append)
    harness.run_effects()
    assert [type(each) for each in answer] == [CheckpointOutdated]
    assert not [effect for effect in harness.pending if isinstance(effect, effects.PutCheckpoint)]


def test_serials_begin_anew_with_each_session_and_epoch() -> None:
    """An owner of an epoch that another one had too is told so by its first checkpoint, however much it has written."""
    harness = EngineHarness()
    harness.serve()
    session = harness.engine.sessions[SESSION]
    ranks = []
    for epoch in (1, 1, 2):
        session.epoch = Epoch(epoch)
        harness.engine.persister.checkpoints.write(session, effects.ignore_result)
        harness.run_effects()
        put = harness.next(effects.PutCheckpoint)
        ranks.append(put.checkpoint.rank)
        harness.finish(put, None)
        harness.run_effects()
    (epoch, serial), *others = ranks
    assert (epoch, others) == (1, [(1, serial + 1), (2, 1)])


def test_checkpoint_ranks_of_a_deleted_session_are_apart_from_the_next_session_of_its_name() -> None:
    harness, ranks = EngineHarness(), []
    sessions = {generation: Session(SESSION, Epoch(generation * GENERATION + 1), Role.DORMANT) for generation in (0, 1)}
    for generation in (1, 0, 1):
        harness.engine.persister.checkpoints.write(sessions[generation], effects.ignore_result)
        harness.run_effects()
        put = harness.next(effects.PutCheckpoint)
        harness.finish(put, None)
        harness.run_effects()
        ranks.append(put.checkpoint.rank)
    assert ranks == [(GENERATION + 1, 1), (1, 1), (GENERATION + 1, 2)]


def test_failed_checkpoint_is_written_again_without_a_change_of_the_session() -> None:
    harness = EngineHarness()
    harness.serve()
    harness.engine.persister.checkpoints.write(harness.engine.sessions[SESSION], effects.ignore_result)
    harness.run_effects()
    harness.complete_all(effects.PutCheckpoint, LogUnavailable("away"))
    harness.pass_time(2_000)
    assert [effect for effect in harness.pending if isinstance(effect, effects.PutCheckpoint)]


def test_session_is_not_created_while_owners_write_their_lost_rows_again() -> None:
    harness = EngineHarness()
    harness.reload({SESSION: owner("you", 4)}, "you")
    harness.reload({}, "you")
    harness.attach()
    harness.complete(effects.ReadRow, None)
    assert Wait in [type(message) for message in harness.received()]
    assert not [effect for effect in harness.pending if isinstance(effect, effects.CreateRow)]
    harness.pass_time(harness.engine.env.settings.row_repair_ms)
    harness.attach()
    harness.complete(effects.ReadRow, None)
    assert [effect for effect in harness.pending if isinstance(effect, effects.CreateRow)]


def test_session_whose_row_the_watch_still_shows_is_not_made_anew_where_a_read_finds_none() -> None:
    """The registry was restored, and its watch has not said so yet."""
    harness = EngineHarness()
    harness.reload({SESSION: owner("you", 4)})
    harness.attach()
    harness.complete(effects.ReadRow, None)
    assert Wait in [type(message) for message in harness.received()]
    assert not [effect for effect in harness.pending if isinstance(effect, effects.CreateRow)]


def test_copy_that_was_served_goes_on_where_another_session_was_made_at_its_very_epoch() -> None:
    """The registry came back from an older copy while the lease was lost, and another proxy made the session anew."""
    harness = EngineHarness(disk(Role.SERVING, 4))
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", 5)))
    fenced(harness)
    harness.complete(effects.ClaimRow, Claimed(False, owner("you", 5)))
    assert role(harness) is Role.DORMANT
    harness.complete_all(effects.ReadRow, owner("you", 5))
    claim = harness.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner("you", 5), owner("me", 6))


def test_row_that_is_lost_is_past_in_time_also_where_a_floor_takes_its_place() -> None:
    harness = EngineHarness()
    harness.reload({})
    memory, row_sweep_ms = harness.engine.env.registry_memory, harness.engine.env.settings.row_sweep_ms
    for _ in range(SWEEPS_PER_ROUND + 1):
        assert not memory.is_final(SESSION, Ownership(NO_PROXY, Epoch(1_000_000_000)))
        memory.prune()
        harness.pass_time(row_sweep_ms)
    assert memory.is_final(SESSION, None)


def test_owner_writes_no_row_when_only_the_watch_is_behind() -> None:
    harness = EngineHarness(disk(Role.SERVING, 4))
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", 5)))
    harness.reload({SESSION: owner("me", 4)})
    harness.complete(effects.ReadRow, owner("me", 5))
    assert not [effect for effect in harness.pending if isinstance(effect, effects.ClaimRow)]
    assert (role(harness), epoch(harness)) == (Role.SERVING, 5)


def test_sessions_are_created_at_a_bounded_rate_and_others_are_answered_wait() -> None:
    harness = EngineHarness(creations_per_s=100)
    made = [harness.engine.acquisitions.creation_rate.take() for _ in range(CREATIONS_AT_ONCE + 50)]
    assert made == [True] * CREATIONS_AT_ONCE + [False] * 50
    harness.pass_time(200)
    assert [harness.engine.acquisitions.creation_rate.take() for _ in range(30)] == [True] * 20 + [False] * 10
    harness.reload({})
    harness.attach()
    harness.complete(effects.ReadRow, None)
    assert isinstance(harness.sent[-1][1], Wait)
    assert not [effect for effect in harness.pending if isinstance(effect, effects.CreateRow)]


@pytest.mark.parametrize("row", [None, owner("you", 2)])
def test_a_staged_copy_commits_where_the_registry_went_back_and_its_source_is_dead(row: Ownership | None) -> None:
    """It is all that there is: discarded, the session would be made anew, or raised from an older checkpoint."""
    harness = staging().harness
    harness.complete_writes()
    claim = harness.next(effects.ClaimRow)
    harness.reload({} if row is None else {SESSION: row}, "you")
    harness.finish(claim, Claimed(False, row))
    harness.run_effects()
    # As long as the source is alive it writes its row again.
    assert role(harness) is Role.STAGED
    assert not [effect for effect in harness.pending if isinstance(effect, effects.ClaimRow | effects.CreateRow)]
    harness.reload({} if row is None else {SESSION: row})
    harness.pass_time(1_000)
    harness.complete(effects.ClaimRow, Claimed(False, row))
    if row is None:
        created = harness.next(effects.CreateRow)
        harness.finish(created, Claimed(True, created.ownership))
        harness.run_effects()
    else:
        again = harness.next(effects.ClaimRow)
        assert again.expected == row
        harness.finish(again, Claimed(True, again.new))
        harness.run_effects()
    assert role(harness) is Role.SERVING
