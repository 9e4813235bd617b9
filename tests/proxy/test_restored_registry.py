"""A registry that was restored from an older copy, as a proxy sees it that knows better, or does not (F70)."""

from __future__ import annotations

import pytest

from federation.ports import Claimed, ProxyRow, Reloaded
from handover.acquisition import TABLE, AcquisitionState
from handover.acquisition_inputs import NotHandedOver
from handover.machine import Timing
from handover.messages import Aborted, Frozen, Prepare
from proxy.core import effects
from proxy.core.inputs import PeerSent, RegistryReported
from proxy.core.registry_memory import SWEEPS_PER_ROUND, SWEEPS_TO_ACTIVATE
from proxy.session.role import Role
from tests.helpers.engine_harness import SESSION, EngineHarness, owner, row
from tests.properties.test_wrong_handover_messages import frozen
from tests.proxy.test_ownership import disk, role
from waypost.checkpoint import Checkpoint, Descriptor
from waypost.errors import LogUnavailable, StoreFailed
from waypost.identity import GENERATION, NO_PROXY, Epoch, Incarnation, Ownership, ProxyId, SessionId
from waypost.messages import Attach, Moved, Problem, Wait
from waypost.records import InterestRegistered, InterestsExpired

YOU = ProxyId("you")
LEASE_MS = 3_000


def loses(harness: EngineHarness, before: Ownership, after: Ownership | None) -> None:
    """The watch tells of a row, and then that the registry has this one in its place."""
    harness.reload({SESSION: before}, before.proxy)
    harness.reload({SESSION: after} if after else {}, before.proxy)


def nobody_corrects(harness: EngineHarness, answer: Ownership | None) -> None:
    """Half a minute goes by, and the registry says the same whenever it is asked."""
    for _ in range(SWEEPS_PER_ROUND + 3):
        harness.pass_time(harness.engine.env.settings.row_sweep_ms)
        harness.complete_all(effects.ReadRow, answer)


def claims(harness: EngineHarness) -> list[object]:
    return [effect for effect in harness.pending if isinstance(effect, effects.ClaimRow | effects.CreateRow)]


def test_copy_is_not_activated_by_an_earlier_row_than_the_watch_has_had() -> None:
    harness = EngineHarness(disk(Role.SERVING, 4), watch=False, lease=False)
    harness.engine.env.registry_memory.row_lost(SESSION, owner("you", 6))
    harness.reload({SESSION: owner("me", 4)}, "you")
    harness.lease()
    assert role(harness) is Role.DORMANT and not claims(harness)
    nobody_corrects(harness, owner("me", 4))
    claim = harness.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner("me", 4), owner("me", 7))


def test_a_staged_copy_does_not_commit_where_its_source_has_served_on_by_a_row_that_is_lost() -> None:
    harness = EngineHarness(disk(Role.STAGED, 4, source="they"), watch=False, lease=False)
    loses(harness, owner("they", 4), owner("they", 3))
    harness.lease()
    harness.complete_writes()
    assert role(harness) is None and not claims(harness)


def test_a_session_that_is_made_in_the_place_of_a_lost_one_is_of_a_later_generation() -> None:
    """Who was in that one is told so: its epochs would begin anew, and what is on disks would be taken for the same."""
    harness = EngineHarness()
    loses(harness, owner("you", 3), None)
    harness.attach()
    harness.complete_all(effects.ReadRow, None)
    assert Wait in [type(message) for message in harness.received()] and not claims(harness)
    harness.pass_time(harness.engine.env.settings.row_repair_ms)
    harness.attach()
    harness.complete_all(effects.ReadRow, None)
    assert harness.next(effects.CreateRow).ownership == owner("me", GENERATION + 1)


def test_a_lost_row_that_is_there_again_is_lost_no_more() -> None:
    harness = EngineHarness()
    loses(harness, owner("you", 3), None)
    memory = harness.engine.env.registry_memory
    assert memory.lost_row(SESSION) == owner("you", 3)
    harness.reload({SESSION: owner("you", 3)}, "you")
    memory.prune()
    assert memory.lost_row(SESSION) is None


def test_proxy_with_a_forgotten_lease_counts_as_live_until_the_lease_ends() -> None:
    """Nobody takes its sessions over, ends its transfers, or says that what it needs has expired."""
    harness = EngineHarness()
    you = row("you").model_copy(update={"lease_ttl_ms": LEASE_MS})
    tell(harness, {SESSION: owner("you", 3)}, you)
    harness.log.append(InterestRegistered(YOU, you.incarnation, SESSION, ("n > 0",)))
    harness.read_log()
    tell(harness, {SESSION: owner("you", 3)})
    harness.pass_time(LEASE_MS - 2)
    # The watch breaks once more: that prolongs nothing.
    tell(harness, {SESSION: owner("you", 3)})
    cluster = harness.engine.env.cluster
    assert cluster.alive(YOU) and not [record for record in harness.log if isinstance(record, InterestsExpired)]
    assert harness.engine.next_deadline() <= harness.clock.now_ms() + 2
    harness.pass_time(2)
    assert not cluster.alive(YOU) and [record for record in harness.log if isinstance(record, InterestsExpired)]
    harness.attach()
    harness.complete_all(effects.ReadRow, owner("you", 3))
    harness.next(effects.FindCheckpoint)


def test_a_session_without_a_copy_here_is_not_taken_over_by_an_earlier_row_than_one_that_is_known() -> None:
    harness = EngineHarness()
    loses(harness, owner("they", 6), owner("you", 3))
    tell(harness, {SESSION: owner("you", 3)})
    harness.attach()
    harness.complete_all(effects.ReadRow, owner("you", 3))
    assert Wait in [type(message) for message in harness.received()]
    assert not [effect for effect in harness.pending if isinstance(effect, effects.FindCheckpoint)]
    nobody_corrects(harness, owner("you", 3))
    harness.attach()
    harness.complete_all(effects.ReadRow, owner("you", 3))
    found = Checkpoint(SESSION, Epoch(3), 9, Descriptor(), {})
    harness.complete(effects.FindCheckpoint, effects.FoundCheckpoint((found,), True))
    claim = harness.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner("you", 3), owner("me", 7))


def test_session_is_served_at_its_claimed_epoch_despite_later_reports_of_the_watch() -> None:
    """The watch tells of the claim before its answer, and what was lost is lost no more."""
    harness = EngineHarness()
    loses(harness, owner("you", 3), None)
    harness.pass_time(harness.engine.env.settings.row_repair_ms)
    harness.attach()
    harness.complete_all(effects.ReadRow, None)
    created = harness.next(effects.CreateRow)
    harness.reload({SESSION: created.ownership})
    harness.engine.env.registry_memory.prune()
    assert harness.engine.env.registry_memory.lost_row(SESSION) is None
    harness.finish(created, Claimed(True, created.ownership))
    harness.run_effects()
    session = harness.engine.sessions[SESSION]
    assert (session.role, session.epoch) == (Role.SERVING, created.ownership.epoch)


def test_session_is_created_at_the_epoch_of_its_first_checkpoint_despite_later_reports() -> None:
    harness = EngineHarness()
    harness.changelog_waits = True
    harness.send(1, Attach(session=SESSION, receiver="r", incarnation="i1", frontier={}))
    harness.complete(effects.ReadRow, None)
    first = harness.next(effects.PutCheckpoint)
    harness.engine.env.registry_memory.row_lost(SESSION, owner("you", 3))
    harness.finish(first, None)
    harness.run_effects()
    assert harness.next(effects.CreateRow).ownership.epoch == first.checkpoint.epoch


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("known", [True, False])
def test_a_session_that_a_changelog_has_is_not_made_anew_but_goes_on_once_its_owner_could_have_woken_it(
    create: bool, known: bool
) -> None:
    """A proxy that began after the registry went back knows of no lost row; the owner may be up, with all of it."""
    harness = EngineHarness()
    harness.changelog_waits = True
    if known:
        harness.reload({SESSION: owner("they", 6)}, "they")
    tell(harness, {}, row("they", "B"))
    harness.pass_time(harness.engine.env.settings.row_repair_ms)
    wanted = Attach(session=SESSION, receiver="r", incarnation="i1", frontier={}, create=create)
    lost = effects.FoundCheckpoint((Checkpoint(SESSION, Epoch(6), 4, Descriptor(), {}),), complete=True)
    sweeps = SWEEPS_PER_ROUND + SWEEPS_TO_ACTIVATE + 2
    for _ in range(sweeps - 3):
        harness.send(1, wanted)
        harness.complete_all(effects.ReadRow, None)
        harness.complete_all(effects.FindCheckpoint, lost)
        harness.complete_all(effects.ReadRow, None)
        assert [type(message) for message in harness.received()][-1] is Wait and not claims(harness)
        harness.pass_time(harness.engine.env.settings.row_sweep_ms)
    harness.pass_time(4 * harness.engine.env.settings.row_sweep_ms)
    harness.send(1, wanted)
    harness.complete_all(effects.ReadRow, None)
    harness.complete(effects.FindCheckpoint, lost)
    harness.complete_all(effects.ReadRow, None)
    harness.complete(effects.FindCheckpoint, lost)
    assert not [effect for effect in harness.pending if isinstance(effect, effects.PutCheckpoint)]
    assert harness.next(effects.CreateRow).ownership == owner("me", 7)


def test_attach_waits_for_a_site_whose_changelog_may_have_the_session() -> None:
    harness = EngineHarness()
    harness.changelog_waits = True
    tell(harness, {}, row("they", "B"))
    for is_complete, answer in ((False, Wait), (True, Problem)):
        harness.send(1, Attach(session=SESSION, receiver="r", incarnation="i1", frontier={}, create=False))
        harness.complete_all(effects.ReadRow, None)
        harness.complete_all(effects.FindCheckpoint, effects.FoundCheckpoint((), complete=is_complete))
        assert [type(message) for message in harness.received()][-1] is answer


@pytest.mark.parametrize(("complete", "damaged"), [(False, ""), (True, "it is damaged")])
def test_a_session_whose_row_is_not_known_is_not_taken_over_before_all_changelogs_were_read(
    complete: bool, damaged: str
) -> None:
    """A later owner's checkpoint may be where nobody looked."""
    harness = EngineHarness()
    harness.changelog_waits = True
    tell(harness, {}, row("they", "B"))
    found = effects.FoundCheckpoint((Checkpoint(SESSION, Epoch(6), 4, Descriptor(), {}),), complete, damaged)
    for _ in range(SWEEPS_PER_ROUND + SWEEPS_TO_ACTIVATE + 3):
        harness.send(1, Attach(session=SESSION, receiver="r", incarnation="i1", frontier={}))
        for kind, answer in ((effects.ReadRow, None), (effects.FindCheckpoint, found)) * 2:
            harness.complete_all(kind, answer)
        harness.pass_time(harness.engine.env.settings.row_sweep_ms)
    assert not claims(harness)


def test_a_session_that_was_deleted_does_not_come_back_with_an_older_registry() -> None:
    harness = EngineHarness()
    harness.changelog_waits = True
    gone = owner("they", 6).gone()
    harness.reload({SESSION: gone}, "they")
    tell(harness, {}, row("they", "B"))
    found = effects.FoundCheckpoint((Checkpoint(SESSION, Epoch(6), 4, Descriptor(), {}),), complete=True)
    harness.send(1, Attach(session=SESSION, receiver="r", incarnation="i1", frontier={}, create=False))
    harness.complete_all(effects.ReadRow, None)
    harness.complete_all(effects.FindCheckpoint, found)
    assert [type(message) for message in harness.received()][-1] is Problem
    harness.attach()
    harness.complete_all(effects.ReadRow, None)
    harness.complete_all(effects.FindCheckpoint, found)
    assert harness.next(effects.PutCheckpoint).checkpoint.epoch == gone.epoch + GENERATION + 1


def test_a_first_checkpoint_above_ours_is_seen_before_ours_is_written() -> None:
    """Else it would hide what this session is answered from whoever takes it over."""
    harness = EngineHarness()
    harness.changelog_waits = True
    tell(harness, {}, row("they", "B"))
    first = effects.FoundCheckpoint((Checkpoint(SESSION, Epoch(GENERATION + 1), 0, Descriptor(), {}),), complete=True)
    harness.attach()
    harness.complete_all(effects.ReadRow, None)
    harness.complete_all(effects.FindCheckpoint, first)
    harness.complete_all(effects.ReadRow, None)
    assert harness.next(effects.PutCheckpoint).checkpoint.epoch > GENERATION + 1


@pytest.mark.parametrize("later", [None, 3, 6])
def test_a_copy_from_the_disk_whose_row_is_lost_wakes_only_if_no_later_owner_wrote(later: int | None) -> None:
    """Else receivers would get past what the later owner has promised them."""
    harness = EngineHarness(disk(Role.SERVING, 4), watch=False, lease=False)
    harness.changelog_waits = True
    tell(harness, {}, row("they", "B"))
    harness.lease()
    harness.complete(effects.FindCheckpoint, effects.FoundCheckpoint((), complete=True))
    harness.complete(effects.ClaimRow, Claimed(False, None))
    nobody_corrects(harness, None)
    assert not claims(harness)
    last = () if later is None else (Checkpoint(SESSION, Epoch(later), 2, Descriptor(), {}),)
    asked = harness.next(effects.FindCheckpoint)
    assert not asked.own_site
    harness.finish(asked, effects.FoundCheckpoint(last, complete=True))
    harness.run_effects()
    if later == 6:
        assert role(harness) is None
        found = effects.FoundCheckpoint(last, complete=True)
        for _ in range(SWEEPS_PER_ROUND + SWEEPS_TO_ACTIVATE):
            harness.send(1, Attach(session=SESSION, receiver="r", incarnation="i1", frontier={}))
            for kind, answer in ((effects.ReadRow, None), (effects.FindCheckpoint, found)) * 2:
                harness.complete_all(kind, answer)
                harness.complete_writes()
            harness.pass_time(harness.engine.env.settings.row_sweep_ms)
        assert harness.next(effects.CreateRow).ownership == owner("me", 7)
    else:
        assert harness.next(effects.CreateRow).ownership == owner("me", 5)


@pytest.mark.parametrize("copy_role", [Role.SERVING, Role.DORMANT])
def test_a_registry_that_has_the_very_row_of_a_copy_again_wakes_it_only_if_no_later_owner_wrote(
    copy_role: Role,
) -> None:
    """Else two proxies would serve at one epoch: the row says nothing of who took the session over since."""
    harness = EngineHarness(disk(copy_role, 4), watch=False, lease=False)
    harness.changelog_waits = True
    tell(harness, {SESSION: owner("me", 4)})
    harness.lease()
    later = effects.FoundCheckpoint((Checkpoint(SESSION, Epoch(5), 2, Descriptor(), {}),), complete=True)
    for is_known in (False, True):
        asked = harness.next(effects.FindCheckpoint)
        assert asked.own_site
        harness.finish(asked, later)
        harness.run_effects()
        if not is_known:
            harness.complete(effects.ReadRow, owner("me", 4))
    assert role(harness) is None
    assert not claims(harness)


@pytest.mark.parametrize("found", [None, 3, 4])
def test_a_staged_copy_commits_by_the_row_of_the_cut_only_if_nobody_has_served_since(found: int | None) -> None:
    """The source took the session back at that epoch, and the registry was put back to before that."""
    harness = EngineHarness(disk(Role.STAGED, 4, source="they"))
    harness.changelog_waits = True
    tell(harness, {SESSION: owner("they", 3)}, row("they", "B"))
    harness.run_effects()
    asked = harness.next(effects.FindCheckpoint)
    assert not asked.own_site
    last = () if found is None else (Checkpoint(SESSION, Epoch(found), 2, Descriptor(), {}),)
    harness.finish(asked, effects.FoundCheckpoint(last, complete=True))
    harness.run_effects()
    harness.complete_writes()
    assert [claim.new for claim in harness.pending if isinstance(claim, effects.ClaimRow)] == (
        [] if found == 4 else [owner("me", 4)]
    )
    assert (role(harness) is None) is (found == 4)


def test_copy_is_not_dropped_by_a_row_that_was_only_expected() -> None:
    """An earlier incarnation of ours served at the row's epoch, and ended before its store said so; a peer asks for the
    session while the row is being read.
    """
    harness = EngineHarness(disk(Role.SERVING, 4), watch=False, lease=False)
    harness.changelog_waits = True
    tell(harness, {SESSION: owner("me", 4)}, row("you"))
    harness.lease()
    ours = effects.FoundCheckpoint((Checkpoint(SESSION, Epoch(5), 1, Descriptor(), {}),), complete=True)
    harness.complete(effects.FindCheckpoint, ours)
    harness.step(PeerSent(YOU, Prepare(session=SESSION, transfer="t", epoch=Epoch(4), receiver="r")))
    harness.run_effects()
    for _ in range(3):
        harness.complete_all(effects.FindCheckpoint, ours)
        harness.complete_all(effects.ReadRow, owner("me", 5))
    assert role(harness) is Role.DORMANT
    assert harness.next(effects.ClaimRow).new == owner("me", 6)


def test_a_copy_wakes_while_the_changelog_of_its_site_does_not_answer() -> None:
    harness = EngineHarness(disk(Role.SERVING, 4), watch=False, lease=False)
    harness.changelog_waits = True
    tell(harness, {SESSION: owner("me", 4)})
    harness.lease()
    harness.complete(effects.FindCheckpoint, LogUnavailable("away"))
    assert harness.next(effects.ClaimRow).new == owner("me", 5)


def test_absent_site_does_not_prevent_the_creation_of_a_session() -> None:
    harness = EngineHarness()
    harness.changelog_waits = True
    tell(harness, {}, row("they", "B"))
    harness.attach()
    harness.complete_all(effects.ReadRow, None)
    asked = harness.next(effects.FindCheckpoint)
    assert asked.within_ms is not None
    harness.finish(asked, effects.FoundCheckpoint((), complete=False))
    harness.run_effects()
    assert harness.next(effects.PutCheckpoint).checkpoint.epoch == GENERATION + 1


@pytest.mark.parametrize("found", [None, 1, 2])
def test_a_frozen_source_takes_back_no_session_that_its_target_has_served(found: int | None) -> None:
    """The registry was put back to a copy from before the commit, and the source has never seen its row (F113)."""
    harness = frozen().harness
    harness.changelog_waits = True
    harness.pass_time(Timing().frozen_ms)
    asked = harness.next(effects.FindCheckpoint)
    assert not claims(harness) and not asked.own_site and asked.within_ms is not None
    last = () if found is None else (Checkpoint(SESSION, Epoch(found), 2, Descriptor(), {}),)
    harness.finish(asked, effects.FoundCheckpoint(last, complete=True))
    harness.run_effects()
    is_later = found == 2
    assert len(claims(harness)) == (0 if is_later else 1)
    assert not [message for message in harness.received() if isinstance(message, Moved)]
    assert (role(harness) is None) is is_later


def test_a_silent_changelog_does_not_prevent_a_source_from_taking_its_session_back() -> None:
    harness = frozen().harness
    harness.changelog_waits = True
    harness.pass_time(Timing().frozen_ms)
    harness.complete(effects.FindCheckpoint, LogUnavailable("away"))
    assert harness.next(effects.ClaimRow).new == owner("me", 2)


def test_a_target_that_serves_does_not_send_its_source_back_where_the_registry_has_lost_its_row() -> None:
    """The source would claim the very epoch at which the target serves (F113)."""
    harness = EngineHarness(disk(Role.SERVING, 3), watch=False, lease=False)
    tell(harness, {SESSION: owner("me", 3)}, row("you"))
    harness.lease()
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", 4)))
    assert role(harness) is Role.SERVING
    harness.reload({SESSION: owner("you", 3)}, "you")
    cut = Frozen(SESSION, "t", Epoch(3), descriptor=Descriptor(), cut={}, chunks=0, oldest=1, next_number=1)
    harness.step(PeerSent(YOU, cut))
    harness.run_effects()
    assert not [
        sent for sent in harness.pending if isinstance(sent, effects.SendPeer) and isinstance(sent.message, Aborted)
    ]


def test_repeated_requests_for_a_lost_session_do_not_prolong_the_wait_for_rows() -> None:
    harness = EngineHarness()
    loses(harness, owner("you", 3), None)
    for _ in range(3):
        harness.pass_time(harness.engine.env.settings.row_repair_ms // 2)
        harness.engine.env.registry_memory.row_lost(SESSION, owner("you", 3))
    assert not harness.engine.env.registry_memory.awaits_row_repair


def tell(harness: EngineHarness, owners: dict[SessionId, Ownership], *others: ProxyRow) -> None:
    proxies = {row.proxy: row for row in (row("me"), *others)}
    harness.step(RegistryReported(Reloaded(owners, proxies, {}, {row.site: "" for row in proxies.values()})))
    harness.run_effects()


def test_claimed_row_that_the_watch_never_reported_is_read() -> None:
    """The claim may have been done in a registry that was put back since."""
    harness = EngineHarness()
    harness.serve()
    harness.pass_time(harness.engine.env.settings.row_sweep_ms)
    harness.complete(effects.ReadRow, None)
    assert harness.next(effects.CreateRow).ownership == owner("me", 1)
    harness.reload({SESSION: owner("me", 1)})
    harness.pass_time(harness.engine.env.settings.row_sweep_ms)
    assert not [effect for effect in harness.pending if isinstance(effect, effects.ReadRow)]


@pytest.mark.parametrize("is_full", [False, True])
def test_a_session_is_claimed_only_once_an_earlier_copy_of_it_has_left_the_disk(is_full: bool) -> None:
    """Else a restart finds the copy, and its own name in the row: it would take the copy for the latest one."""
    harness = EngineHarness(disk(Role.SERVING, 4))
    harness.complete(effects.ClaimRow, Claimed(False, Ownership(NO_PROXY, Epoch(GENERATION))))
    assert role(harness) is None
    harness.reload({})
    harness.attach()
    harness.complete_all(effects.ReadRow, Ownership(NO_PROXY, Epoch(GENERATION)))
    assert not claims(harness)
    if is_full:
        harness.complete_all(effects.Save, StoreFailed("no space left"))
        harness.complete_all(effects.Save, StoreFailed("no space left"))
        (wait,) = [message for message in harness.received() if isinstance(message, Wait)]
        assert "no space left" in wait.reason and not claims(harness)
        harness.attach()
        harness.complete_all(effects.ReadRow, Ownership(NO_PROXY, Epoch(GENERATION)))
    harness.complete_writes()
    assert harness.next(effects.ClaimRow).new == owner("me", GENERATION + 1)


def test_interests_of_proxies_that_came_while_the_watch_was_broken_stay() -> None:
    harness, old = EngineHarness(), row("you")
    new, third = old.model_copy(update={"incarnation": Incarnation("you#2")}), row("third")

    def reload(*rows: ProxyRow) -> None:
        proxies = {each.proxy: each for each in (row("me"), *rows)}
        harness.step(RegistryReported(Reloaded({}, proxies, {}, {})))
        harness.run_effects()

    reload(old)
    harness.log.append(InterestRegistered(new.proxy, new.incarnation, SESSION, ("n > 0",)))
    harness.log.append(InterestRegistered(third.proxy, third.incarnation, SessionId("z"), ("n > 1",)))
    harness.read_log()
    reload(new, third)
    assert not [record for record in harness.log if isinstance(record, InterestsExpired)]


def test_row_that_names_an_owner_again_that_did_not_hand_over_ends_the_acquisition() -> None:
    assert TABLE[AcquisitionState.COMPARING, NotHandedOver][1] is AcquisitionState.ENDED
