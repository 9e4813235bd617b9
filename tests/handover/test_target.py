"""The target's side: what each step of a handover does there."""

from __future__ import annotations

import pytest

from handover.machine import Claim, ClaimUnknown, OwnedByOther, OwnedByUs, OwnerUnchanged, PeerGone, ReadOwner
from handover.target import (
    AcknowledgeChunks,
    Adopt,
    Complete,
    Discard,
    FailOver,
    Install,
    Merge,
    SendAborted,
    SendPrepare,
    SendReady,
    Staged,
    StoreFailed,
    TakeChunk,
    TargetInput,
    TargetState,
)
from tests.handover.sides import CHUNK, FROZEN, OWNED, PREPARED, REFUSED, TIMING, T, target_in
from waypost.identity import Epoch, Ownership
from waypost.table_machine import Deadline

CLAIM = Claim(OWNED, Ownership(T, Epoch(8)))
EARLY = [TargetState.PREPARING, TargetState.SHADOWING, TargetState.READY]
STAGED = [TargetState.STAGING, TargetState.COMMITTING]


def test_the_way_of_a_handover_that_succeeds() -> None:
    machine = target_in()
    assert machine.begin() == [SendPrepare()]
    assert machine.step(PREPARED, 0) == [Install(PREPARED)]
    assert machine.step(CHUNK, 1) == [TakeChunk(CHUNK)]
    assert machine.step(Complete(), 2) == [SendReady()]
    assert machine.step(FROZEN, 3) == [Merge(FROZEN)]
    assert machine.step(Staged(), 4) == [CLAIM]
    assert machine.step(OwnedByUs(), 5) == [Adopt()]
    assert machine.over


@pytest.mark.parametrize("state", EARLY)
def test_until_it_has_staged_a_refusal_ends_it(state: TargetState) -> None:
    assert target_in(state).step(REFUSED, 0) == [Discard()]


@pytest.mark.parametrize("state", EARLY)
def test_until_it_has_staged_the_end_of_the_source_is_a_failover(state: TargetState) -> None:
    assert target_in(state).step(PeerGone(), 0) == [Discard(), FailOver()]


@pytest.mark.parametrize("state", EARLY)
def test_target_tells_the_source_of_its_timeout_until_it_has_staged(state: TargetState) -> None:
    assert target_in(state).tick(TIMING.prepare_ms) == [SendAborted(), Discard()]


@pytest.mark.parametrize("input", [REFUSED, PeerGone(), Deadline()])
@pytest.mark.parametrize("state", STAGED)
def test_a_staged_copy_waits_for_the_registry_and_never_for_a_message(state: TargetState, input: TargetInput) -> None:
    machine = target_in(state)
    assert machine.step(input, 0) == []
    assert machine.state is state


def test_target_aborts_when_the_store_fails() -> None:
    machine = target_in(TargetState.STAGING)
    assert machine.step(StoreFailed(), 0) == [SendAborted(), Discard()]
    assert machine.over


def test_a_lost_answer_of_the_registry_is_settled_by_reading() -> None:
    machine = target_in(TargetState.COMMITTING)
    assert machine.step(ClaimUnknown(), 0) == [ReadOwner()]
    # Not at once: a registry that takes no claims may answer every time.
    assert machine.step(OwnerUnchanged(), 0) == []
    assert machine.tick(machine.next_deadline()) == [CLAIM]
    assert machine.step(OwnedByOther(), 0) == [Discard()]


def test_target_repeats_its_message_until_the_answer() -> None:
    assert target_in().tick(TIMING.retry_ms) == [SendPrepare()]
    assert target_in(TargetState.SHADOWING).tick(TIMING.retry_ms) == [AcknowledgeChunks()]
    assert target_in(TargetState.READY).tick(TIMING.retry_ms) == [SendReady()]
    assert target_in(TargetState.COMMITTING).tick(TIMING.retry_ms) == [CLAIM]


def test_chunks_that_come_restart_its_time() -> None:
    machine = target_in(TargetState.SHADOWING)
    machine.step(CHUNK, TIMING.prepare_ms - 1)
    machine.tick(TIMING.prepare_ms)
    assert machine.state is TargetState.SHADOWING


def test_chunks_without_prepared_are_accepted_and_delay_no_timeout() -> None:
    """Prepared is lost with a connection, and what followed it is not: else they would keep it from asking again."""
    machine = target_in()
    assert machine.step(CHUNK, TIMING.retry_ms - 1) == []
    assert machine.tick(TIMING.retry_ms) == [SendPrepare()]
    assert machine.step(CHUNK, TIMING.prepare_ms - 1) == []
    assert machine.tick(TIMING.prepare_ms) == [SendAborted(), Discard()]
