"""The source's side: what each step of a handover does there."""

from __future__ import annotations

import pytest

from handover.machine import (
    Claim,
    ClaimUnknown,
    FindLaterOwner,
    OwnedByOther,
    OwnedByUs,
    OwnerUnchanged,
    PeerGone,
    ReadOwner,
    owner_input,
)
from handover.messages import Ready
from handover.source import (
    CountStored,
    Forget,
    Freeze,
    NothingLater,
    Passed,
    Release,
    SendChunks,
    SendFrozen,
    SendPrepared,
    ServedSince,
    SourceInput,
    SourceState,
    Thaw,
)
from tests.handover.sides import ABORTED, CHUNK_STORED, NAMED, OWNED, PREPARE, READY, TIMING, S, T, source_in
from waypost.clock import NEVER
from waypost.identity import Epoch, Origin, Ownership
from waypost.table_machine import Deadline

FREEZING = [Freeze(), SendFrozen()]
CLAIM = Claim(OWNED, Ownership(S, Epoch(8)))


def test_the_way_of_a_handover_that_succeeds() -> None:
    machine = source_in()
    assert machine.step(PREPARE, 0) == [SendPrepared()]
    assert machine.step(CHUNK_STORED, 1) == [CountStored(1), SendChunks(again=False)]
    assert machine.step(READY, 2) == []
    assert machine.coverage == {"A/0": 5}
    assert machine.step(Passed(), 3) == FREEZING
    assert machine.step(OwnedByOther(), 4) == [Release()]
    assert machine.over


def test_the_source_runs_on_no_longer_than_its_bound() -> None:
    machine = source_in()
    machine.step(READY, 0)
    assert machine.tick(TIMING.passing_ms - 1) == []
    assert machine.tick(TIMING.passing_ms) == FREEZING


@pytest.mark.parametrize("input", [Deadline(), PeerGone(), ABORTED])
def test_a_frozen_source_never_just_thaws_but_claims(input: SourceInput) -> None:
    machine = source_in(SourceState.FROZEN)
    assert machine.step(input, 0) == [FindLaterOwner()]
    assert machine.step(NothingLater(), 1) == [CLAIM]
    assert machine.step(OwnedByUs(), 2) == [Thaw(Epoch(8))]
    assert machine.over


def test_a_frozen_source_claims_nothing_where_a_changelog_says_that_somebody_has_served_since() -> None:
    machine = source_in(SourceState.FROZEN)
    assert machine.step(PeerGone(), 0) == [FindLaterOwner()]
    assert machine.step(ServedSince(), 1) == [Release()]
    assert machine.over


def test_a_changelog_that_is_silent_is_not_waited_for() -> None:
    machine = source_in(SourceState.FROZEN)
    machine.step(ABORTED, 0)
    assert machine.tick(TIMING.retry_ms) == []
    assert machine.tick(TIMING.frozen_ms) == [CLAIM]


@pytest.mark.parametrize(
    ("state", "input"),
    [
        (SourceState.COPYING, Deadline()),
        (SourceState.COPYING, PeerGone()),
        (SourceState.COPYING, ABORTED),
        (SourceState.WAITING, PeerGone()),
        (SourceState.WAITING, ABORTED),
    ],
)
def test_before_the_freeze_a_transfer_that_fails_changes_nothing(state: SourceState, input: SourceInput) -> None:
    machine = source_in(state)
    assert machine.step(input, 0) == [Forget()]
    assert machine.over


@pytest.mark.parametrize("state", [state for state in SourceState if state is not SourceState.ENDED])
def test_source_releases_a_session_that_another_proxy_owns(state: SourceState) -> None:
    assert source_in(state).step(OwnedByOther(), 0) == [Release()]


def test_a_lost_answer_of_the_registry_is_settled_by_reading() -> None:
    machine = source_in(SourceState.RECLAIMING)
    assert machine.step(ClaimUnknown(), 0) == [ReadOwner()]
    # Not at once: a registry that takes no claims may answer every time.
    assert machine.step(OwnerUnchanged(), 0) == []
    assert machine.tick(machine.next_deadline()) == [CLAIM]


def test_source_repeats_its_message_until_the_answer() -> None:
    assert source_in().tick(TIMING.retry_ms) == [SendChunks(again=True)]
    assert source_in(SourceState.FROZEN).tick(TIMING.retry_ms) == [SendFrozen()]
    assert source_in(SourceState.RECLAIMING).tick(TIMING.retry_ms) == [CLAIM]


def test_a_ready_that_comes_again_does_not_move_the_coverage() -> None:
    machine = source_in()
    machine.step(READY, 0)
    machine.step(Ready(*NAMED, {Origin("A/0"): 99}), 0)
    assert machine.coverage == {"A/0": 5}


def test_a_machine_that_is_over_has_no_deadline() -> None:
    machine = source_in(SourceState.ENDED)
    assert machine.next_deadline() == NEVER
    assert machine.tick(1_000_000) == []


def test_registry_row_becomes_the_input_of_a_source() -> None:
    wanted = Ownership(T, Epoch(8))
    assert owner_input(wanted, OWNED, wanted) == OwnedByUs()
    assert owner_input(OWNED, OWNED, wanted) == OwnerUnchanged()
    assert owner_input(Ownership(S, Epoch(8)), OWNED, wanted) == OwnedByOther()
    assert owner_input(None, OWNED, wanted) == OwnedByOther()
