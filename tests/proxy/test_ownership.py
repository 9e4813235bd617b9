"""How a proxy comes to own a session, and how it learns that it does not."""

from __future__ import annotations

import msgspec
import pytest

from federation.ports import Claimed, OwnerChanged, ProxyDown
from federation.site_state import SiteState
from handover.machine import Timing
from handover.messages import Prepare, Ready, Refused
from proxy.core import effects, journal_facts
from proxy.core.store_port import Restored, SavedSession, SitePlace
from proxy.ownership.registry_memory import SWEEPS_A_ROUND
from proxy.session.session import Role, Session
from proxy.session.subscription import Subscription
from tests.helpers.alone import ME, SESSION, Alone, owner, row
from tests.properties.test_wrong_handover_messages import PHASES, SOURCE, staging
from waypost.checkpoint import Checkpoint, Descriptor, Rank
from waypost.errors import CheckpointOutdated, LogUnavailable, RegistryUnavailable, SessionLost, StoreFailed
from waypost.facts import Acquisition
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
    made.subscriptions[x] = Subscription(id=x, expression=parse("n > 0"), start={}, floor={})
    made.join(ReceiverId("r"))
    return made.descriptor()


DESCRIPTOR = described()


def disk(role: Role, epoch: int, descriptor: Descriptor = DESCRIPTOR) -> Restored:
    """A disk with one session."""
    state = SiteState(SiteId("A"))
    saved = SavedSession(
        id=SESSION,
        epoch=owner("me", epoch).epoch,
        role=role.value,
        descriptor=descriptor,
        first_number=1,
        next_number=1,
        gates={},
    )
    acceptance = state.acceptance.snapshot()
    return Restored(0, acceptance, SitePlace(0, acceptance, state.snapshot()), [saved])


def role(alone: Alone) -> Role | None:
    session = alone.engine.context.sessions.get(SESSION)
    return session.role if session else None


def epoch(alone: Alone) -> int:
    return alone.engine.context.sessions[SESSION].epoch


def test_a_restart_takes_the_next_epoch_and_serves_only_then() -> None:
    alone = Alone(disk(Role.SERVING, 4))
    assert role(alone) is Role.DORMANT
    claim = alone.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner("me", 4), owner("me", 5))
    claim.on_done(Claimed(True, claim.new))
    alone.settle()
    assert (role(alone), epoch(alone)) == (Role.SERVING, 5)


def test_a_restart_that_finds_another_owner_lets_go() -> None:
    alone = Alone(disk(Role.SERVING, 4))
    alone.answer(effects.ClaimRow, Claimed(False, owner("you", 5)))
    assert role(alone) is None


def test_a_restart_that_finds_itself_one_epoch_ahead_takes_another_one() -> None:
    """The disk may be older than what an earlier life served: that epoch is used up (rule 1)."""
    alone = Alone(disk(Role.SERVING, 4), watch=False)
    alone.answer(effects.ClaimRow, Claimed(False, owner("me", 5)))
    assert role(alone) is Role.DORMANT
    claim = alone.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner("me", 5), owner("me", 6))
    claim.on_done(Claimed(True, claim.new))
    alone.settle()
    assert (role(alone), epoch(alone)) == (Role.SERVING, 6)


@pytest.mark.parametrize("watch", [True, False])
def test_a_restart_that_finds_a_later_session_of_the_name_does_not_serve_what_the_disk_has(watch: bool) -> None:
    """Its row is ours too, but the copy is of the one that was deleted (rule 22)."""
    alone, later = Alone(disk(Role.SERVING, 4), watch=False, lease=False), owner("me", GENERATION + 1)
    if watch:
        alone.reload({SESSION: later})
    alone.lease()
    if not watch:
        alone.answer(effects.ClaimRow, Claimed(False, later))
    assert role(alone) is None
    assert not [each for each in alone.waiting if isinstance(each, effects.ClaimRow)]
    alone.reload({SESSION: later})
    alone.attach()
    alone.answer(effects.ReadRow, owner("me", GENERATION + 1))
    alone.answer(effects.FindCheckpoint, first_checkpoint(GENERATION + 1))
    alone.answer(effects.ClaimRow, Claimed(True, owner("me", GENERATION + 2)))
    assert (role(alone), epoch(alone)) == (Role.SERVING, GENERATION + 2)
    assert alone.engine.context.sessions[SESSION].active() == []


def test_a_restored_session_is_what_the_disk_said() -> None:
    session = Alone(disk(Role.SERVING, 4)).engine.context.sessions[SESSION]
    assert session.descriptor() == DESCRIPTOR
    assert [each.expression.text for each in session.active()] == ["n > 0"]


def restated(alone: Alone) -> list[tuple[str, ...]]:
    return [
        (fact.kind, fact.subscription, fact.life, fact.expression)
        for fact in alone.facts
        if fact.kind in ("restated", "unsubscribed")
    ]


def test_every_start_of_serving_says_again_what_the_audit_needs() -> None:
    """A crash may have come after the store took it, and before the journal did."""
    made = Session(SESSION, Epoch(4), Role.SERVING)
    for name, promised in (("x", {}), ("y", {ORIGIN: 7})):
        made.add_subscription(
            Subscription(
                id=SubscriptionId(name), expression=parse("n > 0"), start={}, floor={}, promised=promised, ttl_s=5
            )
        )
    made.join(ReceiverId("r"))
    made.end_subscription(SubscriptionId("y"), {ORIGIN: 9})
    alone = Alone(disk(Role.SERVING, 4, made.descriptor()))
    alone.answer(effects.ClaimRow, Claimed(True, owner("me", 5)))
    assert restated(alone) == [
        ("restated", "x", "4/1", "n > 0"),
        ("restated", "y", "4/2", "n > 0"),
        ("unsubscribed", "y", "4/2", ""),
    ]
    said = [fact for fact in alone.facts if fact.kind == "restated"]
    assert [(fact.epoch, fact.frontier, fact.ttl_s) for fact in said] == [(5, {}, 5), (5, {ORIGIN: 7}, 5)]
    (ended,) = [fact for fact in alone.facts if fact.kind == "unsubscribed"]
    assert ended.frontier == {ORIGIN: 9}


def test_a_promise_that_is_not_kept_yet_is_not_restated() -> None:
    alone = Alone()
    alone.serve()
    alone.says(1, Subscribe(subscription="x", expression="n > 0"))
    alone.keep()
    alone.read_log()
    (made,) = alone.engine.context.sessions[SESSION].active()
    assert (dict(made.promised), made.unannounced) == ({ORIGIN: -1}, {ORIGIN})
    alone.engine.acquisitions.fence()
    alone.engine.served.fence()
    alone.reload({SESSION: owner("me", 1)})
    alone.answer(effects.ClaimRow, Claimed(True, owner("me", 2)))
    (again,) = [fact for fact in alone.facts if fact.kind == "restated"]
    assert (again.epoch, again.life, again.frontier) == (2, "1/1", {})
    alone.keep()
    assert [(fact.epoch, fact.frontier) for fact in alone.facts if fact.kind == "effective"] == [(2, {ORIGIN: -1})]
    assert not made.unannounced


def test_a_subscription_that_ended_is_not_forgotten_before_the_journal_says_so() -> None:
    made = Session(SESSION, Epoch(1), Role.SERVING)
    made.add_subscription(Subscription(id=SubscriptionId("x"), expression=parse("n > 0"), start={}, floor={}))
    ended = made.end_subscription(SubscriptionId("x"), {ORIGIN: 3})
    context = Alone().engine.context
    journal_facts.unsubscribed(context, made, ended)
    made.forget_ended({ORIGIN: 3})
    assert made.ended == [ended]
    for effect in context.take_effects():
        if isinstance(effect, effects.Attest):
            effect.on_done(None)
    made.forget_ended({ORIGIN: 3})
    assert made.ended == []


def test_a_subscription_that_is_made_again_has_another_life_also_if_nothing_came_in_between() -> None:
    alone = Alone()
    alone.serve()
    for message in (
        Subscribe(subscription="x", expression="n > 0"),
        Unsubscribe("x"),
        Subscribe(subscription="x", expression="n > 0"),
    ):
        alone.says(1, message)
        alone.keep()
    said = [(fact.kind, fact.life) for fact in alone.facts if fact.kind in ("subscribed", "unsubscribed")]
    assert said == [("subscribed", "1/1"), ("unsubscribed", "1/1"), ("subscribed", "1/2")]


def test_who_deletes_a_session_of_a_dead_owner_says_so() -> None:
    alone = Alone()
    alone.engine.deleted(SESSION, owner("dead", 3), "an operator asked for it")
    alone.settle()
    (said,) = [fact for fact in alone.facts if fact.kind == "deleted"]
    assert (said.session, said.epoch, said.proxy, said.reason) == (SESSION, 3, ME, "an operator asked for it")


def test_a_dormant_session_that_got_no_answer_is_tried_again() -> None:
    alone = Alone(disk(Role.SERVING, 4))
    alone.answer(effects.ClaimRow, RegistryUnavailable("gone"))
    alone.reload({SESSION: owner("me", 4)})
    alone.answer(effects.ClaimRow, Claimed(True, owner("me", 5)))
    assert role(alone) is Role.SERVING


def test_a_staged_copy_of_the_very_epoch_is_ours() -> None:
    alone = Alone(disk(Role.STAGED, 4))
    assert role(alone) is Role.ORPHAN
    alone.reload({SESSION: owner("me", 4)})
    alone.answer(effects.ClaimRow, Claimed(True, owner("me", 5)))
    assert role(alone) is Role.SERVING


def test_a_staged_copy_of_another_epoch_is_nothing() -> None:
    for current in (owner("you", 4), owner("you", 7)):
        alone = Alone(disk(Role.STAGED, 4))
        alone.reload({SESSION: current}, "you")
        assert role(alone) is None


def behind() -> Alone:
    """A staged copy at epoch 4, where the watch has told of epoch 2."""
    alone = Alone(disk(Role.STAGED, 4))
    alone.reload({SESSION: owner("you", 2)}, "you")
    assert role(alone) is Role.ORPHAN
    return alone


def test_a_staged_copy_is_not_judged_by_a_watch_that_is_behind() -> None:
    alone = behind()
    alone.answer(effects.ReadRow, owner("me", 4))
    alone.answer(effects.ClaimRow, Claimed(True, owner("me", 5)))
    assert role(alone) is Role.SERVING
    alone = behind()
    alone.answer(effects.ReadRow, RegistryUnavailable("gone"))
    assert role(alone) is Role.ORPHAN


def test_a_staged_copy_of_which_the_registry_itself_has_an_older_row_is_nothing() -> None:
    alone = behind()
    alone.answer(effects.ReadRow, owner("you", 2))
    assert role(alone) is None


def orphaned() -> Alone:
    """A staged copy at epoch 4, and the row still names its source at 3."""
    alone = Alone(disk(Role.STAGED, 4))
    alone.reload({SESSION: owner("you", 3)}, "you")
    assert role(alone) is Role.ORPHAN
    return alone


def test_a_staged_copy_without_its_transfer_commits_once_it_is_stored() -> None:
    alone = orphaned()
    assert not [each for each in alone.waiting if isinstance(each, effects.ClaimRow)]
    alone.answer_all(effects.Save, None)
    claim = alone.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner("you", 3), owner("me", 4))
    claim.on_done(Claimed(True, claim.new))
    alone.settle()
    assert (role(alone), epoch(alone)) == (Role.SERVING, 4)


def test_a_staged_copy_that_the_disk_does_not_take_claims_nothing() -> None:
    alone = orphaned()
    alone.answer_all(effects.Save, StoreFailed("disk full"))
    assert not [each for each in alone.waiting if isinstance(each, effects.ClaimRow)]
    assert role(alone) is Role.ORPHAN


def test_a_staged_copy_whose_earlier_claim_was_applied_after_all_takes_the_next_epoch() -> None:
    alone = orphaned()
    alone.answer_all(effects.Save, None)
    alone.answer(effects.ClaimRow, Claimed(False, owner("me", 4)))
    assert role(alone) is Role.DORMANT
    alone.answer(effects.ClaimRow, Claimed(True, owner("me", 5)))
    assert (role(alone), epoch(alone)) == (Role.SERVING, 5)


def test_a_staged_copy_whose_commit_has_no_answer_is_tried_again() -> None:
    alone = orphaned()
    alone.answer_all(effects.Save, None)
    alone.answer(effects.ClaimRow, RegistryUnavailable("gone"))
    assert role(alone) is Role.ORPHAN
    alone.pass_time(5_000)
    alone.answer_all(effects.Save, None)
    assert alone.next(effects.ClaimRow).new == owner("me", 4)


def test_whoever_waits_for_a_staged_copy_is_told_when_it_is_dropped() -> None:
    alone = Alone(disk(Role.STAGED, 4))
    alone.attach()
    alone.answer(effects.ReadRow, owner("you", 3))
    alone.heard()
    alone.answer_all(effects.Save, None)
    alone.answer(effects.ClaimRow, Claimed(False, owner("you", 4)))
    assert role(alone) is None
    assert [type(each) for each in alone.heard()] == [Wait]


def test_whoever_waits_for_a_staged_copy_is_let_in_when_it_has_committed() -> None:
    alone = Alone(disk(Role.STAGED, 4))
    alone.attach()
    alone.answer(effects.ReadRow, owner("you", 3))
    alone.heard()
    alone.answer_all(effects.Save, None)
    alone.answer(effects.ClaimRow, Claimed(True, owner("me", 4)))
    assert role(alone) is Role.SERVING
    alone.answer_all(effects.Save, None)
    alone.answer_all(effects.PutCheckpoint, None)
    assert Attached in [type(each) for each in alone.heard()]


def test_a_row_that_names_us_without_data_is_rebuilt_from_the_changelog() -> None:
    alone = Alone()
    alone.reload({SESSION: owner("me", 4)})
    alone.answer(effects.ReadRow, owner("me", 4))
    checkpoint = Checkpoint(SESSION, owner("me", 4).epoch, 1, DESCRIPTOR, {})
    alone.answer(effects.FindCheckpoint, effects.FoundCheckpoint(checkpoint, True))
    alone.answer(effects.ClaimRow, Claimed(True, owner("me", 5)))
    assert (role(alone), epoch(alone)) == (Role.SERVING, 5)
    assert [each.id for each in alone.engine.context.sessions[SESSION].active()] == ["x"]


@pytest.mark.parametrize("noted", [(4, 3), (5, 0)])
def test_a_checkpoint_below_what_clients_were_answered_is_not_served(noted: Rank) -> None:
    """The changelog has lost its end, and nobody else has the session any more (rule 19)."""
    alone = Alone()
    alone.reload({SESSION: owner("dead", 4)})
    alone.attach()
    alone.answer(effects.ReadRow, owner("dead", 4))
    checkpoint = Checkpoint(SESSION, Epoch(4), 2, DESCRIPTOR, {})
    alone.answer(effects.FindCheckpoint, effects.FoundCheckpoint(checkpoint, True, noted=noted))
    assert role(alone) is None
    assert [each.code for each in alone.heard() if isinstance(each, Problem)] == [SessionLost.code]


def first_checkpoint(epoch: int) -> effects.FoundCheckpoint:
    """Return what the changelog has of a session that was made, and no more."""
    return effects.FoundCheckpoint(Checkpoint(SESSION, Epoch(epoch), 0, Descriptor(), {}), True)


def test_the_row_of_a_session_is_not_there_before_its_first_checkpoint() -> None:
    alone = Alone()
    alone.changelog_waits = True
    alone.attach()
    alone.answer(effects.ReadRow, None)
    assert not [each for each in alone.waiting if isinstance(each, effects.CreateRow)]
    first = alone.next(effects.PutCheckpoint)
    assert first.checkpoint.rank == (1, 0)
    first.on_done(None)
    alone.settle()
    assert alone.next(effects.CreateRow).ownership == owner("me", 1)


def test_a_session_whose_first_checkpoint_the_changelog_does_not_take_is_not_made() -> None:
    alone = Alone()
    alone.changelog_waits = True
    alone.attach()
    alone.answer(effects.ReadRow, None)
    alone.answer(effects.PutCheckpoint, LogUnavailable("away"))
    assert [type(each) for each in alone.heard()][-1] is Wait
    assert alone.waiting == []


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (effects.FoundCheckpoint(None, True), "no changelog has a checkpoint of it"),
        (effects.FoundCheckpoint(None, True, "its checksum is wrong"), "its checksum is wrong"),
    ],
)
def test_a_session_that_nobody_has_any_more_is_lost_and_not_served_empty(found: object, why: str) -> None:
    alone = Alone()
    alone.reload({SESSION: owner("dead", 4)})
    alone.attach()
    alone.answer(effects.ReadRow, owner("dead", 4))
    alone.answer(effects.FindCheckpoint, found)
    (told,) = (each for each in alone.heard() if isinstance(each, Problem))
    assert (told.code, told.about) == ("SESSION_LOST", AboutSession(SESSION))
    assert why in told.message and f"waypost sessions rm {SESSION}" in told.message
    assert not [each for each in alone.waiting if isinstance(each, effects.ClaimRow)]
    assert alone.engine.context.counters.damaged["session"] == 1


def test_what_is_damaged_in_one_changelog_is_not_lost_where_another_has_the_owners_own() -> None:
    alone = Alone()
    alone.reload({SESSION: owner("dead", 4)})
    alone.attach()
    alone.answer(effects.ReadRow, owner("dead", 4))
    checkpoint = Checkpoint(SESSION, Epoch(4), 2, DESCRIPTOR, {})
    alone.answer(effects.FindCheckpoint, effects.FoundCheckpoint(checkpoint, True, "its checksum is wrong"))
    assert alone.next(effects.ClaimRow).new == owner("me", 5)


def test_a_lost_session_begins_anew_when_it_was_deleted() -> None:
    alone = Alone()
    alone.reload({SESSION: owner("dead", 4)})
    alone.attach()
    alone.answer(effects.ReadRow, owner("dead", 4))
    alone.answer(effects.FindCheckpoint, effects.FoundCheckpoint(None, True))
    alone.engine.registry_event(OwnerChanged(SESSION, owner("dead", 4).gone()))
    alone.attach()
    alone.answer(effects.ReadRow, owner("dead", 4).gone())
    assert alone.next(effects.ClaimRow).new == owner("me", GENERATION + 1)


@pytest.mark.parametrize(
    "found",
    [
        effects.FoundCheckpoint(None, False),
        # Whoever tried to create the session has written one of these; the owner's own may be where nobody answers.
        msgspec.structs.replace(first_checkpoint(4), complete=False),
        effects.FoundCheckpoint(None, False, "its checksum is wrong"),
    ],
)
def test_without_all_changelogs_nothing_is_rebuilt(found: effects.FoundCheckpoint) -> None:
    alone = Alone()
    alone.reload({SESSION: owner("dead", 4)})
    alone.attach()
    alone.answer(effects.ReadRow, owner("dead", 4))
    alone.answer(effects.FindCheckpoint, found)
    assert role(alone) is None
    assert [type(each) for each in alone.heard()][-1] is Wait


def test_an_owner_is_taken_over_only_when_the_watch_has_told_of_its_row() -> None:
    """The end that was told may be that of the life before the one that took this epoch (rule 26)."""
    alone = Alone()
    alone.reload({SESSION: owner("you", 3)})
    alone.attach()
    alone.answer(effects.ReadRow, owner("you", 4))
    assert [type(each) for each in alone.heard()][-1] is Wait
    assert not [each for each in alone.waiting if isinstance(each, effects.FindCheckpoint)]
    alone.engine.registry_event(OwnerChanged(SESSION, owner("you", 4)))
    alone.attach()
    alone.answer(effects.ReadRow, owner("you", 4))
    alone.answer(effects.FindCheckpoint, first_checkpoint(4))
    assert alone.next(effects.ClaimRow).new == owner("me", 5)


def test_a_lost_answer_to_the_creation_is_settled_by_reading() -> None:
    alone = Alone()
    alone.attach()
    alone.answer(effects.ReadRow, None)
    alone.answer(effects.CreateRow, RegistryUnavailable("gone"))
    assert [type(each) for each in alone.heard()][-1] is Wait
    alone.attach()
    alone.answer(effects.ReadRow, owner("me", 1))
    alone.answer(effects.FindCheckpoint, first_checkpoint(1))
    alone.answer(effects.ClaimRow, Claimed(True, owner("me", 2)))
    alone.keep()
    assert Attached in [type(each) for each in alone.heard()]


def asking(*others: str) -> tuple[Alone, Prepare]:
    """A client has attached here to a session of `you`, at epoch 3 by the watch's word; `others` live too."""
    alone = Alone()
    alone.reload({SESSION: owner("you", 3)}, "you", *others)
    alone.attach()
    return alone, asked(alone, "you")


def asked(alone: Alone, proxy: str) -> Prepare:
    sent = alone.next(effects.SendPeer)
    assert sent.proxy == proxy and isinstance(sent.message, Prepare)
    return sent.message


def refuse(alone: Alone, prepare: Prepare) -> None:
    alone.heard()
    refusal = Refused(SESSION, prepare.transfer, prepare.epoch, "not here")
    alone.engine.peer_message(ProxyId("you"), refusal)
    alone.settle()


@pytest.mark.parametrize("told_by", ["watch", "registry"])
def test_who_attaches_elsewhere_than_at_the_owner_is_told_too_that_the_session_is_lost(told_by: str) -> None:
    alone, prepare = asking()
    alone.heard()
    refusal = Refused(SESSION, prepare.transfer, prepare.epoch, "no changelog has it", lost=True)
    alone.engine.peer_message(ProxyId("you"), refusal)
    alone.settle()
    current = owner("you", 3) if told_by == "watch" else owner("you", 4)
    alone.answer(effects.ReadRow, current)
    if told_by == "registry":
        # The word was of another epoch: it counts for nothing, and the owner is asked again.
        again = asked(alone, "you")
        refusal = Refused(SESSION, again.transfer, again.epoch, "no changelog has it", lost=True)
        alone.engine.peer_message(ProxyId("you"), refusal)
        alone.settle()
    assert [each.code for each in alone.heard() if isinstance(each, Problem)] == [SessionLost.code]


def test_an_owner_that_has_lost_its_session_says_so_to_whoever_asks_for_it_until_the_row_is_another() -> None:
    alone = Alone()
    mine = owner("me", 4)
    alone.reload({SESSION: mine}, "you")
    for _ in range(2):
        # It is looked for again and again: changelogs may come back.
        alone.answer(effects.ReadRow, mine)
        alone.answer(effects.FindCheckpoint, effects.FoundCheckpoint(None, True))
        alone.pass_time(5_000)
    assert alone.engine.context.counters.damaged["session"] == 1

    def refusals() -> list[Refused]:
        sent = [each.message for each in alone.waiting if isinstance(each, effects.SendPeer)]
        return [each for each in sent if isinstance(each, Refused)]

    alone.engine.peer_message(ProxyId("you"), Prepare(session=SESSION, transfer="t1", epoch=Epoch(4), reason="attach"))
    alone.engine.peer_message(ProxyId("you"), Prepare(session=SESSION, transfer="t2", epoch=Epoch(3), reason="attach"))
    alone.settle()
    assert [each.lost for each in refusals()] == [True, False]
    alone.engine.registry_event(OwnerChanged(SESSION, mine.gone()))
    alone.settle()
    alone.pass_time(5_000)
    assert not alone.engine.memory.lost


def test_an_owner_that_lives_is_asked_and_never_taken_over() -> None:
    alone, prepare = asking()
    assert prepare.epoch == 3
    assert not [each for each in alone.waiting if isinstance(each, effects.ReadRow | effects.ClaimRow)]


def test_where_the_watch_was_behind_the_registry_says_whom_to_ask() -> None:
    alone, prepare = asking("they")
    refuse(alone, prepare)
    alone.answer(effects.ReadRow, owner("they", 5))
    assert asked(alone, "they").epoch == 5
    assert alone.heard() == []


def test_an_owner_that_refuses_and_is_the_owner_is_not_asked_again_until_the_client_does() -> None:
    alone, prepare = asking()
    refuse(alone, prepare)
    alone.answer(effects.ReadRow, owner("you", 3))
    assert [type(each) for each in alone.heard()] == [Wait]
    assert not [each for each in alone.waiting if isinstance(each, effects.SendPeer)]


def test_a_session_that_was_deleted_before_the_watch_said_so_is_made_anew() -> None:
    alone, prepare = asking()
    refuse(alone, prepare)
    alone.answer(effects.ReadRow, owner(NO_PROXY, GENERATION))
    assert alone.next(effects.ClaimRow).new == owner("me", GENERATION + 1)


def test_an_owner_that_dies_while_it_is_asked_is_taken_over() -> None:
    alone, _ = asking()
    alone.heard()
    alone.engine.registry_event(ProxyDown(ProxyId("you"), row("you").incarnation))
    alone.settle()
    alone.answer(effects.ReadRow, owner("you", 3))
    alone.answer(effects.FindCheckpoint, first_checkpoint(3))
    assert alone.next(effects.ClaimRow).new == owner("me", 4)
    assert alone.heard() == []


@pytest.mark.parametrize("known", [True, False])
def test_whoever_is_attached_hears_where_the_session_went_or_at_least_that_it_went(known: bool) -> None:
    alone = Alone()
    alone.serve()
    if known:
        alone.reload({SESSION: owner("me", 1)}, "you")
    alone.engine.registry_event(OwnerChanged(SESSION, owner("you", 2)))
    alone.settle()
    assert [type(each) for each in alone.heard()] == [Moved if known else Wait]


def test_old_news_of_an_earlier_owner_changes_nothing() -> None:
    """The watch may be behind what was claimed and read: a row of an earlier epoch is no row of another owner."""
    alone = Alone(disk(Role.SERVING, 4))
    alone.answer(effects.ClaimRow, Claimed(True, owner("me", 5)))
    alone.reload({SESSION: owner("me", 5)}, "you")
    alone.engine.peer_message(ProxyId("you"), Prepare(session=SESSION, transfer="t", epoch=owner("me", 5).epoch))
    alone.engine.registry_event(OwnerChanged(SESSION, owner("you", 3)))
    assert role(alone) is Role.SERVING
    alone.engine.registry_event(OwnerChanged(SESSION, owner("you", 6)))
    assert role(alone) is None


def test_nothing_is_promised_to_a_client_that_the_fence_put_out() -> None:
    """Rule 13: not before the receiver has reported. A frozen session is put out as a served one is."""
    alone = Alone()
    alone.serve()
    alone.says(1, Subscribe(subscription="x", expression="n > 0"))
    alone.keep()
    session = alone.engine.context.sessions[SESSION]
    session.freeze({})
    alone.engine.lease_lost()
    assert [receiver.connection for receiver in session.receivers.values()] == [None]
    alone.lease()
    alone.engine.served.serve(session, owner("me", 2).epoch, Acquisition.THAW)
    alone.settle()
    assert BecameEffective not in settled(alone)
    alone.attach()
    assert BecameEffective in settled(alone)


def test_a_promise_that_was_written_during_a_freeze_is_told_after_the_thaw() -> None:
    """Who stayed attached attaches no more, and would never hear of it."""
    alone = Alone()
    alone.reload({}, "you")
    alone.serve()
    alone.says(1, Subscribe(subscription="x", expression="n > 0"))
    alone.keep()
    alone.read_log()
    assert SESSION in alone.engine.context.sessions._changed or any(
        isinstance(each, effects.Save) for each in alone.waiting
    )
    alone.engine.peer_message(YOU, Prepare(session=SESSION, transfer="t", epoch=Epoch(1), receiver="r"))
    alone.engine.peer_message(YOU, Ready(SESSION, "t", Epoch(1), {}))
    alone.settle()
    assert role(alone) is Role.FROZEN
    alone.keep()
    assert BecameEffective not in settled(alone)
    alone.pass_time(Timing().frozen_ms)
    alone.answer(effects.ClaimRow, Claimed(True, owner("me", 2)))
    assert role(alone) is Role.SERVING
    assert settled(alone).count(BecameEffective) == 1


def settled(alone: Alone) -> list[type]:
    """Let all that is under way be written and read; return what the client heard since the last time."""
    alone.read_log()
    alone.pass_time(1_000)
    alone.keep()
    return [type(each) for each in alone.heard()]


def test_who_comes_while_the_lease_is_in_doubt_is_let_in_or_told_to_try_again() -> None:
    alone = Alone(lease=False)
    alone.engine.lease_granted(Incarnation("me#1"), alone.clock.now_ms() + 5_000)
    alone.settle()
    alone.serve()
    alone.clock.advance(4_800)
    alone.says(2, Attach(session=SESSION, receiver="r", incarnation="i", frontier={}))
    alone.answer(effects.ReadRow, owner("me", 1))
    assert Wait in [type(each) for each in alone.heard(2)]
    alone.engine.lease_renewed(alone.clock.now_ms() + 5_000)
    alone.says(2, Attach(session=SESSION, receiver="r", incarnation="i", frontier={}))
    assert Attached in [type(each) for each in alone.heard(2)]


def test_an_answer_that_was_asked_for_under_an_earlier_lease_brings_no_serving() -> None:
    alone = Alone(disk(Role.SERVING, 4))
    alone.reload({SESSION: owner("me", 4)})
    claim = alone.next(effects.ClaimRow)
    alone.engine.lease_lost()
    alone.engine.lease_granted(Incarnation("me#2"), 1 << 40)
    claim.on_done(Claimed(True, owner("me", 5)))
    alone.settle()
    assert role(alone) is Role.DORMANT
    alone.answer(effects.ClaimRow, Claimed(False, owner("me", 5)))
    again = alone.next(effects.ClaimRow)
    assert again.new.epoch > 5
    again.on_done(Claimed(True, again.new))
    alone.settle()
    assert (role(alone), epoch(alone)) == (Role.SERVING, again.new.epoch)


def test_what_is_held_for_a_session_that_is_not_here_is_taken_back() -> None:
    alone = Alone()
    alone.log.append(
        InterestRegistered(alone.engine.context.proxy, alone.engine.context.lease.incarnation, SESSION, ("n > 0",))
    )
    alone.read_log()
    alone.pass_time(3_000)
    assert alone.log[-1] == InterestRegistered(
        alone.engine.context.proxy, alone.engine.context.lease.incarnation, SESSION, ()
    )
    alone.read_log()
    alone.pass_time(3_000)
    assert isinstance(alone.log[-1], InterestRegistered) and len(alone.log) == 2


def test_a_client_names_the_proxy_that_served_it_where_the_watch_knows_none() -> None:
    alone = Alone()
    alone.reload({}, "you")
    alone.says(1, Attach(session=SESSION, receiver="r", incarnation="i1", frontier={}, previous="you", epoch=7))
    asked = alone.next(effects.SendPeer)
    assert asked.proxy == YOU
    assert isinstance(asked.message, Prepare)
    assert asked.message.epoch == 7
    assert not [each for each in alone.waiting if isinstance(each, effects.ReadRow)]


@pytest.mark.parametrize("previous", ["me", "nobody", "you"])
def test_a_name_that_helps_nothing_costs_a_look_at_the_registry_and_nothing_else(previous: str) -> None:
    alone = Alone()
    alone.reload({}, "you")
    alone.says(1, Attach(session=SESSION, receiver="r", incarnation="i1", frontier={}, previous=previous, epoch=7))
    if previous == "you":
        asked = alone.next(effects.SendPeer).message
        assert isinstance(asked, Prepare)
        alone.engine.peer_message(YOU, Refused(SESSION, asked.transfer, Epoch(7), "it is not mine"))
        alone.settle()
    alone.answer(effects.ReadRow, None)
    alone.answer(effects.CreateRow, Claimed(True, owner("me", 1)))
    alone.keep()
    assert any(isinstance(each, Attached) for each in alone.heard())


@pytest.mark.parametrize("phase", SOURCE)
def test_a_row_that_is_read_ends_a_transfer_before_the_session_goes(phase: str) -> None:
    """The watch shows no row, as where the session was deleted meanwhile; the answer names who has it."""
    alone = PHASES[phase]().alone
    alone.reload({}, "you", "they")
    alone.answer(effects.ReadRow, owner("you", GENERATION + 1))
    assert role(alone) is None
    assert SESSION not in alone.engine.context.transfers
    alone.answer_all(effects.ClaimRow, Claimed(False, owner("you", GENERATION + 1)))


@pytest.mark.parametrize("named", ["me", "you"])
def test_who_serves_writes_its_row_again_where_the_registry_went_back(named: str) -> None:
    """It was restored from an older copy: nobody could ask for the session at the epoch that it has (failures, F70)."""
    alone = Alone(disk(Role.SERVING, 4))
    alone.answer(effects.ClaimRow, Claimed(True, owner("me", 5)))
    alone.answer_all(effects.ReadRow, owner("me", 5))
    alone.reload({SESSION: owner(named, 2)}, "you")
    alone.answer(effects.ReadRow, owner(named, 2))
    claim = alone.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner(named, 2), owner("me", 5))
    claim.on_done(Claimed(True, claim.new))
    alone.settle()
    assert (role(alone), epoch(alone)) == (Role.SERVING, 5)
    alone.reload({SESSION: owner("me", 5)}, "you")
    assert not [each for each in alone.waiting if isinstance(each, effects.ClaimRow | effects.ReadRow)]


def test_who_serves_makes_its_row_again_where_the_registry_has_none() -> None:
    """The session was made after the copy was: else somebody makes another one of its name, and both are served."""
    alone = Alone(disk(Role.SERVING, 4))
    alone.answer(effects.ClaimRow, Claimed(True, owner("me", 5)))
    alone.answer_all(effects.ReadRow, owner("me", 5))
    alone.reload({})
    alone.answer(effects.ReadRow, None)
    created = alone.next(effects.CreateRow)
    assert created.ownership == owner("me", 5)
    created.on_done(Claimed(True, created.ownership))
    alone.settle()
    assert (role(alone), epoch(alone)) == (Role.SERVING, 5)


def test_who_serves_takes_the_next_epoch_where_another_session_was_made_at_its_own() -> None:
    alone = Alone(disk(Role.SERVING, 4))
    alone.answer(effects.ClaimRow, Claimed(True, owner("me", 5)))
    alone.reload({SESSION: owner("you", 5)}, "you")
    alone.answer_all(effects.ReadRow, owner("you", 5))
    claim = alone.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner("you", 5), owner("me", 6))
    claim.on_done(Claimed(True, claim.new))
    alone.settle()
    assert (role(alone), epoch(alone)) == (Role.SERVING, 6)


def test_a_sleeping_session_never_wakes_at_an_epoch_at_which_it_was_served_before() -> None:
    """The registry went back: a checkpoint of that epoch would count less than those that are there (rule 19)."""
    alone = Alone(disk(Role.SERVING, 4))
    alone.answer(effects.ClaimRow, Claimed(False, owner("me", 2)))
    alone.reload({SESSION: owner("me", 2)})
    alone.pass_time(5_000)
    # Another one may serve it at a later epoch, and write its row again.
    assert not [each for each in alone.waiting if isinstance(each, effects.ClaimRow)]
    corrected(alone)
    claim = alone.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner("me", 2), owner("me", 5))
    claim.on_done(Claimed(True, claim.new))
    alone.settle()
    assert (role(alone), epoch(alone)) == (Role.SERVING, 5)


@pytest.mark.parametrize("named", ["dead", "me"])
def test_a_failover_from_a_checkpoint_of_a_later_epoch_waits_for_who_served_at_that(named: str) -> None:
    """What the row says of the life of its owner says nothing of the owner of that epoch, who may be alive."""
    alone = Alone()
    alone.reload({SESSION: owner(named, 2)})

    def looked_for() -> list[effects.ClaimRow]:
        alone.attach()
        alone.answer(effects.ReadRow, owner(named, 2))
        checkpoint = Checkpoint(SESSION, Epoch(7), 2, DESCRIPTOR, {})
        alone.answer(effects.FindCheckpoint, effects.FoundCheckpoint(checkpoint, True))
        return [each for each in alone.waiting if isinstance(each, effects.ClaimRow)]

    assert not looked_for()
    assert [type(each) for each in alone.heard()][-1:] == [Wait]
    corrected(alone)
    alone.waiting.clear()
    alone.engine.acquisitions.end(SESSION)
    (claim,) = looked_for()
    assert (claim.expected, claim.new) == (owner(named, 2), owner("me", 8))


def corrected(alone: Alone) -> None:
    """Let so much time pass that whoever serves a session would have written its row again."""
    for _ in range(SWEEPS_A_ROUND + 2):
        alone.pass_time(alone.engine.context.settings.sweep_ms)


def test_who_cannot_write_its_row_again_because_another_has_taken_over_lets_go() -> None:
    alone = Alone(disk(Role.SERVING, 4))
    alone.answer(effects.ClaimRow, Claimed(True, owner("me", 5)))
    alone.reload({SESSION: owner("you", 2)}, "you")
    alone.answer_all(effects.ReadRow, owner("you", 2))
    alone.answer(effects.ClaimRow, Claimed(False, owner("you", 6)))
    assert role(alone) is None


def test_who_sleeps_while_the_registry_has_an_earlier_row_of_another_wakes_when_nobody_corrects_it() -> None:
    alone = Alone(disk(Role.SERVING, 4))
    alone.answer(effects.ClaimRow, RegistryUnavailable("away"))
    alone.reload({SESSION: owner("you", 2)}, "you")
    corrected(alone)
    claim = alone.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner("you", 2), owner("me", 5))
    claim.on_done(Claimed(True, claim.new))
    alone.settle()
    assert (role(alone), epoch(alone)) == (Role.SERVING, 5)


def fenced(alone: Alone) -> None:
    """Its registry is away until its lease has ended; it comes back from an older copy, and there is another lease."""
    alone.engine.lease_lost()
    alone.settle()
    assert role(alone) is Role.DORMANT
    alone.lease()


def test_what_was_served_until_the_lease_ended_is_made_again_where_the_registry_has_no_row_of_it() -> None:
    """Else it is dropped in silence, with all that is stored: a registry is restored more slowly than leases end."""
    alone = Alone(disk(Role.SERVING, 4))
    alone.answer(effects.ClaimRow, Claimed(True, owner("me", 5)))
    fenced(alone)
    alone.answer(effects.ClaimRow, Claimed(False, None))
    alone.answer_all(effects.ReadRow, None)
    created = alone.next(effects.CreateRow)
    assert created.ownership == owner("me", 6)
    created.on_done(Claimed(True, created.ownership))
    alone.settle()
    assert (role(alone), epoch(alone)) == (Role.SERVING, 6)
    assert alone.engine.context.counters.rows_lost == 1


@pytest.mark.parametrize("named", ["me", "you"])
def test_what_was_served_until_the_lease_ended_is_claimed_where_the_registry_has_an_earlier_row(named: str) -> None:
    alone = Alone(disk(Role.SERVING, 4))
    alone.answer(effects.ClaimRow, Claimed(True, owner("me", 5)))
    alone.reload({SESSION: owner("me", 5)}, "you")
    fenced(alone)
    alone.answer(effects.ClaimRow, Claimed(False, owner(named, 2)))
    alone.reload({SESSION: owner(named, 2)}, "you")
    claim = alone.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner(named, 2), owner("me", 6))
    claim.on_done(Claimed(True, claim.new))
    alone.settle()
    assert (role(alone), epoch(alone)) == (Role.SERVING, 6)


def test_what_the_disk_has_is_made_again_only_when_nobody_else_has_written_its_row() -> None:
    """Another may have taken it over while this process was away, and the registry have lost that."""
    alone = Alone(disk(Role.SERVING, 4))
    alone.answer(effects.ClaimRow, Claimed(False, None))
    alone.answer(effects.ReadRow, None)
    alone.attach()
    alone.answer_all(effects.ReadRow, None)
    assert Wait in [type(each) for each in alone.heard()]
    assert not [each for each in alone.waiting if isinstance(each, effects.CreateRow)]
    for _ in range(SWEEPS_A_ROUND + 2):
        alone.pass_time(alone.engine.context.settings.sweep_ms)
        alone.answer_all(effects.ReadRow, None)
    assert alone.next(effects.CreateRow).ownership == owner("me", 5)


def test_a_session_is_made_above_what_the_changelog_has_of_one_that_the_registry_has_lost() -> None:
    """Else its own checkpoints count less, and what was answered is gone with its proxy: the earlier one comes back."""
    alone = Alone()
    alone.changelog_waits = True
    alone.says(1, Attach(session=SESSION, receiver="r", incarnation="i1", frontier={}))
    alone.answer(effects.ReadRow, None)
    first = alone.next(effects.PutCheckpoint)
    assert (first.checkpoint.epoch, first.checkpoint.serial) == (1, 0)
    first.on_done(CheckpointOutdated("there is a later one", 4, by_owner=True))
    alone.settle()
    alone.answer(effects.ReadRow, None)
    # Its owner may live, and write the row again.
    assert Wait in [type(each) for each in alone.heard()]
    alone.pass_time((SWEEPS_A_ROUND + 2) * alone.engine.context.settings.sweep_ms)
    alone.attach()
    alone.answer_all(effects.ReadRow, None)
    alone.next(effects.PutCheckpoint).on_done(CheckpointOutdated("there is a later one", 4, by_owner=True))
    alone.settle()
    alone.answer_all(effects.ReadRow, None)
    second = alone.next(effects.PutCheckpoint)
    assert (second.checkpoint.epoch, second.checkpoint.serial) == (GENERATION + 1, 0)
    second.on_done(None)
    alone.settle()
    assert alone.next(effects.CreateRow).ownership == owner("me", GENERATION + 1)


def test_a_session_that_was_created_meanwhile_is_not_created_above_its_checkpoints() -> None:
    """Its registry has lost nothing: this proxy was late. A first checkpoint above would outlive the session's own."""
    alone = Alone()
    alone.changelog_waits = True
    alone.says(1, Attach(session=SESSION, receiver="r", incarnation="i1", frontier={}))
    alone.answer(effects.ReadRow, None)
    alone.next(effects.PutCheckpoint).on_done(CheckpointOutdated("there is a later one", 1, by_owner=True))
    alone.settle()
    alone.reload({SESSION: owner("you", 1)}, "you")
    alone.answer(effects.ReadRow, owner("you", 1))
    assert not [each for each in alone.waiting if isinstance(each, effects.PutCheckpoint)]


def _outdated(alone: Alone, *, by_owner: bool) -> None:
    """The session's checkpoint counts less than one of epoch 4 that the changelog has."""
    alone.engine.persister.checkpoint(alone.engine.context.sessions[SESSION], effects.ignore_result)
    alone.settle()
    alone.answer_all(effects.PutCheckpoint, CheckpointOutdated("there is a later one", 4, by_owner=by_owner))
    alone.heard()
    alone.pass_time(2 * alone.engine.context.settings.sweep_ms)


def test_an_owner_that_a_first_checkpoint_outranks_takes_an_epoch_above() -> None:
    alone = Alone()
    alone.serve()
    _outdated(alone, by_owner=False)
    alone.answer_all(effects.ReadRow, owner("me", 1))
    assert Wait in [type(each) for each in alone.heard()]
    claim = alone.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner("me", 1), owner("me", 5))


def test_an_owner_whose_registry_went_back_to_before_a_later_owner_rebuilds_what_that_one_wrote() -> None:
    """What clients were answered is in the changelog, and not in the copy of the earlier owner."""
    alone = Alone()
    alone.serve()
    _outdated(alone, by_owner=True)
    alone.answer_all(effects.ReadRow, owner("me", 1))
    assert Wait in [type(each) for each in alone.heard()]
    assert SESSION not in alone.engine.context.sessions
    later = Checkpoint(SESSION, Epoch(4), 9, Descriptor(), {})
    for _ in range(SWEEPS_A_ROUND + 2):
        alone.pass_time(alone.engine.context.settings.sweep_ms)
        alone.answer_all(effects.ReadRow, owner("me", 1))
        alone.answer_all(effects.FindCheckpoint, effects.FoundCheckpoint(later, True))
    claim = alone.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner("me", 1), owner("me", 5))


def test_an_owner_that_another_one_followed_leaves_the_session_to_it() -> None:
    alone = Alone()
    alone.serve()
    _outdated(alone, by_owner=True)
    alone.answer_all(effects.ReadRow, owner("you", 4))
    assert SESSION not in alone.engine.context.sessions
    assert not [each for each in alone.waiting if isinstance(each, effects.ClaimRow | effects.FindCheckpoint)]


def test_until_that_is_settled_nothing_is_written_over_what_counts_more() -> None:
    alone = Alone()
    alone.serve()
    session = alone.engine.context.sessions[SESSION]
    _outdated(alone, by_owner=True)
    told: list[object] = []
    alone.engine.persister.checkpoint(session, told.append)
    alone.settle()
    assert [type(each) for each in told] == [CheckpointOutdated]
    assert not [each for each in alone.waiting if isinstance(each, effects.PutCheckpoint)]


def test_serials_begin_anew_with_each_session_and_epoch() -> None:
    """An owner of an epoch that another one had too is told so by its first checkpoint, however much it has written."""
    alone = Alone()
    alone.serve()
    session = alone.engine.context.sessions[SESSION]
    ranks = []
    for epoch in (1, 1, 2):
        session.epoch = Epoch(epoch)
        alone.engine.persister.checkpoint(session, effects.ignore_result)
        alone.settle()
        put = alone.next(effects.PutCheckpoint)
        ranks.append(put.checkpoint.rank)
        put.on_done(None)
        alone.settle()
    (epoch, serial), *others = ranks
    assert (epoch, others) == (1, [(1, serial + 1), (2, 1)])


def test_what_is_still_written_of_a_deleted_session_is_not_counted_for_the_next_one_of_its_name() -> None:
    alone, ranks = Alone(), []
    sessions = {generation: Session(SESSION, Epoch(generation * GENERATION + 1), Role.DORMANT) for generation in (0, 1)}
    for generation in (1, 0, 1):
        alone.engine.persister.checkpoint(sessions[generation], effects.ignore_result)
        alone.settle()
        put = alone.next(effects.PutCheckpoint)
        put.on_done(None)
        alone.settle()
        ranks.append(put.checkpoint.rank)
    assert ranks == [(GENERATION + 1, 1), (1, 1), (GENERATION + 1, 2)]


def test_what_a_changelog_did_not_take_is_written_again_though_nothing_changes() -> None:
    alone = Alone()
    alone.serve()
    alone.engine.persister.checkpoint(alone.engine.context.sessions[SESSION], effects.ignore_result)
    alone.settle()
    alone.answer_all(effects.PutCheckpoint, LogUnavailable("away"))
    alone.pass_time(2_000)
    assert [each for each in alone.waiting if isinstance(each, effects.PutCheckpoint)]


def test_while_owners_write_their_lost_rows_again_nobody_makes_a_session() -> None:
    alone = Alone()
    alone.reload({SESSION: owner("you", 4)}, "you")
    alone.reload({}, "you")
    alone.attach()
    alone.answer(effects.ReadRow, None)
    assert Wait in [type(each) for each in alone.heard()]
    assert not [each for each in alone.waiting if isinstance(each, effects.CreateRow)]
    alone.pass_time(alone.engine.context.settings.rows_back_ms)
    alone.attach()
    alone.answer(effects.ReadRow, None)
    assert [each for each in alone.waiting if isinstance(each, effects.CreateRow)]


def test_who_serves_writes_nothing_again_where_only_the_watch_is_behind() -> None:
    alone = Alone(disk(Role.SERVING, 4))
    alone.answer(effects.ClaimRow, Claimed(True, owner("me", 5)))
    alone.reload({SESSION: owner("me", 4)})
    alone.answer(effects.ReadRow, owner("me", 5))
    assert not [each for each in alone.waiting if isinstance(each, effects.ClaimRow)]
    assert (role(alone), epoch(alone)) == (Role.SERVING, 5)


def test_sessions_are_made_at_a_bounded_rate_and_who_has_to_wait_is_told() -> None:
    alone = Alone(creations_a_s=100)
    made = [alone.engine.acquisitions.creation_rate.take() for _ in range(CREATIONS_AT_ONCE + 50)]
    assert made == [True] * CREATIONS_AT_ONCE + [False] * 50
    alone.clock.advance(200)
    assert [alone.engine.acquisitions.creation_rate.take() for _ in range(30)] == [True] * 20 + [False] * 10
    alone.reload({})
    alone.attach()
    alone.answer(effects.ReadRow, None)
    assert isinstance(alone.sent[-1][1], Wait)
    assert not [each for each in alone.waiting if isinstance(each, effects.CreateRow)]


@pytest.mark.parametrize("row", [None, owner("you", 2)])
def test_a_staged_copy_commits_where_the_registry_went_back_and_its_source_is_dead(row: Ownership | None) -> None:
    """It is all that there is: discarded, the session would be made anew, or raised from an older checkpoint."""
    alone = staging().alone
    alone.keep()
    claim = alone.next(effects.ClaimRow)
    alone.reload({} if row is None else {SESSION: row}, "you")
    claim.on_done(Claimed(False, row))
    alone.settle()
    # As long as the source is alive it writes its row again.
    assert role(alone) is Role.STAGED
    assert not [each for each in alone.waiting if isinstance(each, effects.ClaimRow | effects.CreateRow)]
    alone.reload({} if row is None else {SESSION: row})
    alone.pass_time(1_000)
    alone.answer(effects.ClaimRow, Claimed(False, row))
    if row is None:
        created = alone.next(effects.CreateRow)
        created.on_done(Claimed(True, created.ownership))
        alone.settle()
    else:
        again = alone.next(effects.ClaimRow)
        assert again.expected == row
        again.on_done(Claimed(True, again.new))
        alone.settle()
    assert role(alone) is Role.SERVING
