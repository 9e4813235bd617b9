"""The source's side, row by row."""

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
    owner_input,
    render,
)
from handover.messages import Aborted, ChunkStored, Prepare, Ready
from handover.source import (
    TABLE,
    CountStored,
    Forget,
    Freeze,
    Passed,
    Release,
    SendChunks,
    SendFrozen,
    SendPrepared,
    SourceState,
    SourceTransfer,
    Thaw,
)
from waypost.errors import UnexpectedInput
from waypost.identity import Epoch, Origin, Ownership, ProxyId, SessionId

S, T = ProxyId("s"), ProxyId("t")
SESSION = SessionId("session")
OWNED = Ownership(S, Epoch(7))
TIMING = Timing()
NAMED = (SESSION, "t-1", Epoch(7))
READY = Ready(*NAMED, {Origin("A/0"): 5})
INPUTS: dict[type, object] = {
    type(each): each
    for each in (
        Prepare(*NAMED),
        ChunkStored(*NAMED, 1),
        READY,
        Aborted(*NAMED, "gave up"),
        Passed(),
        Retry(),
        Deadline(),
        PeerGone(),
        ClaimUnknown(),
        OwnerUnchanged(),
        OwnedByUs(),
        OwnedByOther(),
    )
}
FREEZING = [Freeze(), SendFrozen()]
CLAIM = Claim(OWNED, Ownership(S, Epoch(8)))


def source(state: SourceState = SourceState.COPYING) -> SourceTransfer:
    machine = SourceTransfer(SESSION, OWNED, T, "t-1", TIMING, now_ms=0)
    machine.state = state
    return machine


def test_the_way_of_a_handover_that_succeeds() -> None:
    machine = source()
    assert machine.step(INPUTS[Prepare], 0) == [SendPrepared()]
    assert machine.step(INPUTS[ChunkStored], 1) == [CountStored(1), SendChunks(again=False)]
    assert machine.step(READY, 2) == []
    assert machine.coverage == {"A/0": 5}
    assert machine.step(Passed(), 3) == FREEZING
    assert machine.step(OwnedByOther(), 4) == [Release()]
    assert machine.over


def test_the_source_runs_on_no_longer_than_its_bound() -> None:
    machine = source()
    machine.step(READY, 0)
    assert machine.tick(TIMING.passing_ms - 1) == []
    assert machine.tick(TIMING.passing_ms) == FREEZING


@pytest.mark.parametrize("given", [Deadline(), PeerGone(), INPUTS[Aborted]])
def test_a_frozen_source_never_just_thaws_but_claims(given: object) -> None:
    machine = source(SourceState.FROZEN)
    assert machine.step(given, 0) == [CLAIM]
    assert machine.step(OwnedByUs(), 1) == [Thaw(Epoch(8))]
    assert machine.over


@pytest.mark.parametrize(
    ("state", "given"),
    [
        (SourceState.COPYING, Deadline()),
        (SourceState.COPYING, PeerGone()),
        (SourceState.COPYING, INPUTS[Aborted]),
        (SourceState.WAITING, PeerGone()),
        (SourceState.WAITING, INPUTS[Aborted]),
    ],
)
def test_before_the_freeze_a_transfer_that_fails_changes_nothing(state: SourceState, given: object) -> None:
    machine = source(state)
    assert machine.step(given, 0) == [Forget()]
    assert machine.over


@pytest.mark.parametrize("state", [each for each in SourceState if each is not SourceState.ENDED])
def test_whoever_owns_it_now_the_source_lets_go(state: SourceState) -> None:
    assert source(state).step(OwnedByOther(), 0) == [Release()]


def test_a_lost_answer_of_the_registry_is_settled_by_reading() -> None:
    machine = source(SourceState.RECLAIMING)
    assert machine.step(ClaimUnknown(), 0) == [ReadOwner()]
    assert machine.step(OwnerUnchanged(), 0) == [CLAIM]


def test_what_was_sent_is_sent_again_until_it_is_answered() -> None:
    assert source().tick(TIMING.retry_ms) == [SendChunks(again=True)]
    assert source(SourceState.FROZEN).tick(TIMING.retry_ms) == [SendFrozen()]
    assert source(SourceState.RECLAIMING).tick(TIMING.retry_ms) == [CLAIM]


def test_a_ready_that_comes_again_does_not_move_the_coverage() -> None:
    machine = source()
    machine.step(READY, 0)
    machine.step(Ready(*NAMED, {Origin("A/0"): 99}), 0)
    assert machine.coverage == {"A/0": 5}


def test_a_machine_that_is_over_has_no_deadline() -> None:
    machine = source(SourceState.ENDED)
    assert machine.next_deadline() is None
    assert machine.tick(1_000_000) == []


def named(each: object) -> str:
    return each.name if isinstance(each, Enum) else getattr(each, "__name__", str(each))


UNLISTED = [each for each in product(SourceState, INPUTS) if each not in TABLE]


@pytest.mark.parametrize(("state", "kind"), UNLISTED, ids=named)
def test_an_input_without_a_row_is_refused_and_changes_nothing(state: SourceState, kind: type) -> None:
    machine = source(state)
    before = dict(vars(machine))
    with pytest.raises(UnexpectedInput, match=state.name):
        machine.step(INPUTS[kind], 0)
    assert vars(machine) == before


@pytest.mark.parametrize(("state", "kind"), list(TABLE), ids=named)
def test_every_row_can_be_taken(state: Enum, kind: type) -> None:
    machine = source(SourceState(state))
    effects, after = TABLE[state, kind]
    assert [type(effect) for effect in machine.step(INPUTS[kind], 0)] == list(effects)
    assert machine.state is after


def test_what_a_row_of_the_registry_means() -> None:
    wanted = Ownership(T, Epoch(8))
    assert owner_input(wanted, OWNED, wanted) == OwnedByUs()
    assert owner_input(OWNED, OWNED, wanted) == OwnerUnchanged()
    assert owner_input(Ownership(S, Epoch(8)), OWNED, wanted) == OwnedByOther()
    assert owner_input(None, OWNED, wanted) == OwnedByOther()


def test_the_table_can_be_shown() -> None:
    assert "| FROZEN | Deadline | Claim | RECLAIMING |" in render(TABLE)
