"""The target's side, row by row."""

from __future__ import annotations

from enum import Enum
from itertools import product

import pytest

from handover.machine import (
    Claim,
    ClaimUnknown,
    Deadline,
    OwnedByOther,
    OwnedByUs,
    OwnerUnchanged,
    PeerGone,
    ReadOwner,
    Retry,
    Timing,
)
from handover.messages import Chunk, Frozen, Prepared, Refused
from handover.target import (
    TABLE,
    AcknowledgeChunks,
    Adopt,
    Complete,
    Discard,
    FailOver,
    Incomplete,
    Install,
    Merge,
    SendAborted,
    SendPrepare,
    SendReady,
    Staged,
    StoreFailed,
    TakeChunk,
    TargetState,
    TargetTransfer,
)
from waypost.checkpoint import Descriptor
from waypost.errors import UnexpectedInput
from waypost.identity import Epoch, Ownership, ProxyId, SessionId

S, T = ProxyId("s"), ProxyId("t")
SESSION = SessionId("session")
OWNED = Ownership(S, Epoch(7))
TIMING = Timing()
NAMED = (SESSION, "t-1", Epoch(7))
PREPARED = Prepared(*NAMED, Descriptor(), 0)
CHUNK = Chunk(*NAMED, 1, None, 0, [], 0)
FROZEN = Frozen(*NAMED, Descriptor(), {}, 0, 1, 1)
INPUTS: dict[type, object] = {
    type(each): each
    for each in (
        PREPARED,
        CHUNK,
        FROZEN,
        Incomplete(),
        Refused(*NAMED, "no"),
        Complete(),
        Staged(),
        StoreFailed(),
        Retry(),
        Deadline(),
        PeerGone(),
        ClaimUnknown(),
        OwnerUnchanged(),
        OwnedByUs(),
        OwnedByOther(),
    )
}
CLAIM = Claim(OWNED, Ownership(T, Epoch(8)))
EARLY = [TargetState.PREPARING, TargetState.SHADOWING, TargetState.READY]
STAGED = [TargetState.STAGING, TargetState.COMMITTING]


def target(state: TargetState = TargetState.PREPARING) -> TargetTransfer:
    machine = TargetTransfer(SESSION, OWNED, T, "t-1", TIMING, now_ms=0)
    machine.state = state
    return machine


def test_the_way_of_a_handover_that_succeeds() -> None:
    machine = target()
    assert machine.begin() == [SendPrepare()]
    assert machine.step(INPUTS[Prepared], 0) == [Install(PREPARED)]
    assert machine.step(INPUTS[Chunk], 1) == [TakeChunk(CHUNK)]
    assert machine.step(Complete(), 2) == [SendReady()]
    assert machine.step(INPUTS[Frozen], 3) == [Merge(FROZEN)]
    assert machine.step(Staged(), 4) == [CLAIM]
    assert machine.step(OwnedByUs(), 5) == [Adopt()]
    assert machine.over


@pytest.mark.parametrize("state", EARLY)
def test_until_it_has_staged_a_refusal_ends_it(state: TargetState) -> None:
    assert target(state).step(INPUTS[Refused], 0) == [Discard()]


@pytest.mark.parametrize("state", EARLY)
def test_until_it_has_staged_the_end_of_the_source_is_a_failover(state: TargetState) -> None:
    assert target(state).step(PeerGone(), 0) == [Discard(), FailOver()]


@pytest.mark.parametrize("state", EARLY)
def test_until_it_has_staged_the_end_of_patience_is_told_to_the_source(state: TargetState) -> None:
    assert target(state).tick(TIMING.prepare_ms) == [SendAborted(), Discard()]


@pytest.mark.parametrize("given", [INPUTS[Refused], PeerGone(), Deadline()])
@pytest.mark.parametrize("state", STAGED)
def test_a_staged_copy_waits_for_the_registry_and_never_for_a_message(state: TargetState, given: object) -> None:
    machine = target(state)
    assert machine.step(given, 0) == []
    assert machine.state is state


def test_what_cannot_be_stored_is_not_committed() -> None:
    machine = target(TargetState.STAGING)
    assert machine.step(StoreFailed(), 0) == [SendAborted(), Discard()]
    assert machine.over


def test_a_lost_answer_of_the_registry_is_settled_by_reading() -> None:
    machine = target(TargetState.COMMITTING)
    assert machine.step(ClaimUnknown(), 0) == [ReadOwner()]
    assert machine.step(OwnerUnchanged(), 0) == [CLAIM]
    assert machine.step(OwnedByOther(), 0) == [Discard()]


def test_what_was_sent_is_sent_again_until_it_is_answered() -> None:
    assert target().tick(TIMING.retry_ms) == [SendPrepare()]
    assert target(TargetState.SHADOWING).tick(TIMING.retry_ms) == [AcknowledgeChunks()]
    assert target(TargetState.READY).tick(TIMING.retry_ms) == [SendReady()]
    assert target(TargetState.COMMITTING).tick(TIMING.retry_ms) == [CLAIM]


def test_chunks_that_come_prolong_its_patience() -> None:
    machine = target(TargetState.SHADOWING)
    machine.step(INPUTS[Chunk], TIMING.prepare_ms - 1)
    machine.tick(TIMING.prepare_ms)
    assert machine.state is TargetState.SHADOWING


def named(each: object) -> str:
    return each.name if isinstance(each, Enum) else getattr(each, "__name__", str(each))


UNLISTED = [each for each in product(TargetState, INPUTS) if each not in TABLE]


@pytest.mark.parametrize(("state", "kind"), UNLISTED, ids=named)
def test_an_input_without_a_row_is_refused_and_changes_nothing(state: TargetState, kind: type) -> None:
    machine = target(state)
    before = dict(vars(machine))
    with pytest.raises(UnexpectedInput, match=state.name):
        machine.step(INPUTS[kind], 0)
    assert vars(machine) == before


@pytest.mark.parametrize(("state", "kind"), list(TABLE), ids=named)
def test_every_row_can_be_taken(state: Enum, kind: type) -> None:
    machine = target(TargetState(state))
    effects, after = TABLE[state, kind]
    assert [type(effect) for effect in machine.step(INPUTS[kind], 0)] == list(effects)
    assert machine.state is after
