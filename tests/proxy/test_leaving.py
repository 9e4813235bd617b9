"""An orderly end of a proxy: what receivers have acknowledged is in store and changelog, whatever a transfer is at."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from federation.ports import Claimed
from handover.messages import Prepare, Refused
from proxy.core import effects
from proxy.session.session import Role
from tests.helpers.alone import SESSION, Alone, owner
from tests.properties.test_wrong_handover_messages import Place, copying, frozen, nothing, reclaiming, right, waiting
from waypost.checkpoint import Descriptor
from waypost.errors import LogUnavailable
from waypost.identity import Origin, ReceiverId
from waypost.messages import Acknowledge, Attach, ClientMessage, Detach

ORIGIN, R = Origin("A/0"), ReceiverId("r")
PHASES: list[Callable[[], Place]] = [nothing, copying, waiting, frozen, reclaiming]


def leave(alone: Alone) -> list[None]:
    """Begin to leave; return what grows when the changelog has all."""
    done: list[None] = []
    alone.engine.leave(done.append)
    alone.engine.persister.saved(effects.ignore_result)
    alone.settle()
    return done


def offsets(alone: Alone) -> list[int]:
    """Return where what the session stores stands in the log."""
    entries = alone.engine.context.sessions[SESSION].entries.in_memory
    return [stored.offset for _, stored, _ in entries]


def had(descriptor: Descriptor) -> int:
    return descriptor.receivers[R].frontier[ORIGIN]


@pytest.mark.parametrize("phase", PHASES)
def test_acknowledgement_is_in_store_and_changelog_when_its_proxy_has_left(phase: Callable[[], Place]) -> None:
    alone = phase().alone
    alone.keep()
    last = offsets(alone)[-1]
    alone.says(1, Acknowledge(5))
    done = leave(alone)
    written = alone.next(effects.PutCheckpoint)
    assert had(written.checkpoint.descriptor) == last
    assert had(alone.next(effects.Save).batch.changes[0].saved.descriptor) == last
    assert not done
    written.on_done(None)
    assert done


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("kind", [lambda upto: Acknowledge(0, frontier=upto), lambda upto: Detach(frontier=upto)])
def test_part_of_a_delivery_that_a_receiver_has_is_in_the_changelog_when_its_proxy_has_left(
    phase: Callable[[], Place], kind: Callable[[dict[Origin, int]], ClientMessage]
) -> None:
    alone = phase().alone
    third = offsets(alone)[2]
    alone.says(1, kind({ORIGIN: third}))
    leave(alone)
    assert had(alone.next(effects.PutCheckpoint).checkpoint.descriptor) == third


def test_checkpoint_under_way_is_followed_by_one_with_what_came_since() -> None:
    alone = nothing().alone
    alone.says(1, Acknowledge(0, frontier={ORIGIN: offsets(alone)[0]}))
    last = offsets(alone)[-1]
    alone.pass_time(2_000)
    first = alone.next(effects.PutCheckpoint)
    alone.says(1, Acknowledge(5))
    done = leave(alone)
    first.on_done(None)
    alone.settle()
    assert not done
    second = alone.next(effects.PutCheckpoint)
    assert had(second.checkpoint.descriptor) == last
    second.on_done(None)
    assert done


def test_proxy_leaves_at_once_when_the_changelog_has_all() -> None:
    alone = nothing().alone
    alone.pass_time(2_000)
    alone.keep()
    assert leave(alone)
    assert not [each for each in alone.waiting if isinstance(each, effects.PutCheckpoint)]


def test_proxy_leaves_although_the_changelog_does_not_take_its_checkpoint() -> None:
    alone = frozen().alone
    alone.says(1, Acknowledge(5))
    done = leave(alone)
    alone.answer(effects.PutCheckpoint, LogUnavailable("away"))
    assert done


def test_entries_of_a_frozen_session_stay_until_it_thaws() -> None:
    """They are handed over as they were at the cut, also where a receiver has them meanwhile."""
    alone = frozen().alone
    before = offsets(alone)
    alone.says(1, Acknowledge(0, frontier={ORIGIN: before[2]}))
    session = alone.engine.context.sessions[SESSION]
    assert session.role is Role.FROZEN
    assert offsets(alone) == before


def test_frozen_session_is_taken_back_before_its_proxy_leaves() -> None:
    """A target could commit its copy later, and serve receivers from where they were at the cut."""
    alone = frozen().alone
    alone.says(1, Acknowledge(5))
    alone.keep()
    alone.engine.stop_handovers()
    alone.settle()
    assert alone.engine.is_handing_over
    alone.answer(effects.ClaimRow, Claimed(True, owner("me", 2)))
    assert not alone.engine.is_handing_over
    leave(alone)
    assert had(alone.next(effects.PutCheckpoint).checkpoint.descriptor) == 5
    assert alone.engine.context.sessions[SESSION].epoch == 2
    assert [each.cause for each in alone.engine.transfers.shown()] == ["source ends"]


def test_session_that_its_target_has_committed_is_not_taken_back() -> None:
    alone = frozen().alone
    alone.keep()
    alone.engine.stop_handovers()
    alone.settle()
    alone.answer(effects.ClaimRow, Claimed(False, owner("you", 2)))
    assert not alone.engine.is_handing_over
    assert SESSION not in alone.engine.context.sessions


@pytest.mark.parametrize("phase", [copying, waiting])
def test_handover_that_has_not_frozen_is_given_up_before_its_proxy_leaves(phase: Callable[[], Place]) -> None:
    place = phase()
    alone = place.alone
    alone.waiting.clear()
    alone.engine.stop_handovers()
    alone.settle()
    assert not alone.engine.is_handing_over
    assert isinstance(alone.next(effects.SendPeer).message, Refused)
    assert alone.engine.context.sessions[SESSION].role is Role.SERVING


def test_proxy_that_leaves_begins_no_handover() -> None:
    place = nothing()
    place.alone.engine.stop_handovers()
    right(place, Prepare(session=SESSION, transfer="late", epoch=place.epoch, receiver="r"))
    assert not place.alone.engine.is_handing_over
    assert isinstance(place.alone.next(effects.SendPeer).message, Refused)


def test_state_that_a_receiver_attached_with_is_in_the_changelog_when_its_proxy_has_left() -> None:
    """Also where what it has was not fetched yet, so that nothing was passed over for it."""
    alone = nothing().alone
    last = offsets(alone)[-1]
    session = alone.engine.context.sessions[SESSION]
    alone.says(1, Detach())
    session.gate(ORIGIN, offsets(alone)[0])
    session.entries.begin_with(session.entries.next_number)
    alone.says(3, Attach(session=SESSION, receiver="r", incarnation="i3", frontier={ORIGIN: last}))
    leave(alone)
    assert had(alone.next(effects.PutCheckpoint).checkpoint.descriptor) == last
