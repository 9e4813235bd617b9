"""An orderly end of a proxy: what receivers have acknowledged is in store and changelog, whatever a transfer is at."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from federation.ports import Claimed
from handover.messages import Prepare, TransferRefused
from proxy.core import effects
from proxy.core.inputs import LeaseGranted, Leave, StopHandovers, StoreAll
from proxy.session.role import Role
from tests.helpers.engine_harness import SESSION, EngineHarness, owner
from tests.properties.test_wrong_handover_messages import Stage, copying, frozen, nothing, reclaiming, right, waiting
from waypost.checkpoint import Descriptor
from waypost.errors import LogUnavailable
from waypost.facts import FactKind
from waypost.identity import Incarnation, Origin, ReceiverId
from waypost.messages import Acknowledge, Attach, ClientMessage, Detach

ORIGIN, R = Origin("A/0"), ReceiverId("r")
PHASES: list[Callable[[], Stage]] = [nothing, copying, waiting, frozen, reclaiming]


def leave(harness: EngineHarness) -> list[None]:
    """Begin to leave; return what grows when the changelog has all."""
    done: list[None] = []
    harness.step(Leave(done.append))
    harness.step(StoreAll(effects.ignore_result))
    harness.run_effects()
    return done


def offsets(harness: EngineHarness) -> list[int]:
    """Return where what the session stores stands in the log."""
    entries = harness.engine.sessions[SESSION].entries.in_memory
    return [stored.offset for _, stored, _ in entries]


def had(descriptor: Descriptor) -> int:
    return descriptor.receivers[R].frontier[ORIGIN]


@pytest.mark.parametrize("phase", PHASES)
def test_acknowledgement_is_in_store_and_changelog_when_its_proxy_has_left(phase: Callable[[], Stage]) -> None:
    harness = phase().harness
    harness.complete_writes()
    last = offsets(harness)[-1]
    harness.send(1, Acknowledge(5))
    done = leave(harness)
    written = harness.next(effects.PutCheckpoint)
    assert had(written.checkpoint.descriptor) == last
    stored = harness.next(effects.Save).batch.changes[0].saved.descriptor
    assert stored is not None
    assert had(stored) == last
    assert not done
    harness.finish(written, None)
    assert done


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("kind", [lambda upto: Acknowledge(0, frontier=upto), lambda upto: Detach(frontier=upto)])
def test_part_of_a_delivery_that_a_receiver_has_is_in_the_changelog_when_its_proxy_has_left(
    phase: Callable[[], Stage], kind: Callable[[dict[Origin, int]], ClientMessage]
) -> None:
    harness = phase().harness
    third = offsets(harness)[2]
    harness.send(1, kind({ORIGIN: third}))
    leave(harness)
    assert had(harness.next(effects.PutCheckpoint).checkpoint.descriptor) == third


def test_checkpoint_under_way_is_followed_by_one_with_what_came_since() -> None:
    harness = nothing().harness
    harness.send(1, Acknowledge(0, frontier={ORIGIN: offsets(harness)[0]}))
    last = offsets(harness)[-1]
    harness.pass_time(2_000)
    first = harness.next(effects.PutCheckpoint)
    harness.send(1, Acknowledge(5))
    done = leave(harness)
    harness.finish(first, None)
    harness.run_effects()
    assert not done
    second = harness.next(effects.PutCheckpoint)
    assert had(second.checkpoint.descriptor) == last
    harness.finish(second, None)
    assert done


def test_proxy_leaves_at_once_when_the_changelog_has_all() -> None:
    harness = nothing().harness
    harness.pass_time(2_000)
    harness.complete_writes()
    assert leave(harness)
    assert not [effect for effect in harness.pending if isinstance(effect, effects.PutCheckpoint)]


def test_proxy_leaves_although_the_changelog_does_not_take_its_checkpoint() -> None:
    harness = frozen().harness
    harness.send(1, Acknowledge(5))
    done = leave(harness)
    harness.complete(effects.PutCheckpoint, LogUnavailable("away"))
    assert done


def test_entries_of_a_frozen_session_stay_until_it_thaws() -> None:
    """They are handed over as they were at the cut, also where a receiver has them meanwhile."""
    harness = frozen().harness
    before = offsets(harness)
    harness.send(1, Acknowledge(0, frontier={ORIGIN: before[2]}))
    session = harness.engine.sessions[SESSION]
    assert session.role is Role.FROZEN
    assert offsets(harness) == before


def test_frozen_session_is_taken_back_before_its_proxy_leaves() -> None:
    """A target could commit its copy later, and serve receivers from where they were at the cut."""
    harness = frozen().harness
    harness.send(1, Acknowledge(5))
    harness.complete_writes()
    harness.step(StopHandovers())
    harness.run_effects()
    assert harness.engine.is_handing_over
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", 2)))
    assert not harness.engine.is_handing_over
    leave(harness)
    assert had(harness.next(effects.PutCheckpoint).checkpoint.descriptor) == 5
    assert harness.engine.sessions[SESSION].epoch == 2
    assert [transfer.cause for transfer in harness.engine.transfers.views()] == ["source ends"]


def test_session_that_its_target_has_committed_is_not_taken_back() -> None:
    harness = frozen().harness
    harness.complete_writes()
    harness.step(StopHandovers())
    harness.run_effects()
    harness.complete(effects.ClaimRow, Claimed(False, owner("you", 2)))
    assert not harness.engine.is_handing_over
    assert SESSION not in harness.engine.sessions


@pytest.mark.parametrize("phase", [copying, waiting])
def test_handover_that_has_not_frozen_is_given_up_before_its_proxy_leaves(phase: Callable[[], Stage]) -> None:
    stage = phase()
    harness = stage.harness
    harness.pending.clear()
    harness.step(StopHandovers())
    harness.run_effects()
    assert not harness.engine.is_handing_over
    assert isinstance(harness.next(effects.SendPeer).message, TransferRefused)
    assert harness.engine.sessions[SESSION].role is Role.SERVING


def test_proxy_that_leaves_begins_no_handover() -> None:
    stage = nothing()
    stage.harness.step(StopHandovers())
    right(stage, Prepare(session=SESSION, transfer="late", epoch=stage.epoch, receiver="r"))
    assert not stage.harness.engine.is_handing_over
    assert isinstance(stage.harness.next(effects.SendPeer).message, TransferRefused)


def test_state_that_a_receiver_attached_with_is_in_the_changelog_when_its_proxy_has_left() -> None:
    """Also where what it has was not fetched yet, so that nothing was passed over for it."""
    harness = nothing().harness
    last = offsets(harness)[-1]
    session = harness.engine.sessions[SESSION]
    harness.send(1, Detach())
    session.gates.close(ORIGIN, offsets(harness)[0])
    session.entries.drop_below(session.entries.next_number)
    harness.send(3, Attach(session=SESSION, receiver="r", incarnation="i3", frontier={ORIGIN: last}))
    leave(harness)
    assert had(harness.next(effects.PutCheckpoint).checkpoint.descriptor) == last


def test_earlier_incarnations_that_have_ended_are_on_record_though_nobody_saw_their_end() -> None:
    """All proxies were killed together: no watch of the registry told anybody, and an audit would wait for them."""
    harness = EngineHarness(lease=False)
    harness.step(LeaseGranted(Incarnation("me#2"), 1 << 40, (Incarnation("me#0"), Incarnation("me#1"))))
    harness.run_effects()
    ended = [fact.proxy for fact in harness.facts if fact.kind is FactKind.ENDED]
    assert ended == ["proxy/me/me#0", "proxy/me/me#1"]
