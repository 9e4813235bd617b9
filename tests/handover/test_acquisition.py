"""How a proxy comes to own a session: the table, the epochs, and what a row means for a copy."""

from __future__ import annotations

import pytest

from handover import acquisition_effects as effects
from handover import acquisition_inputs as inputs
from handover.acquisition import Acquisition, AcquisitionState
from handover.acquisition_rows import activation_input, dormant_input, orphan_input
from waypost.checkpoint import Checkpoint, Descriptor
from waypost.errors import SessionLost, UnexpectedInput
from waypost.identity import GENERATION, Epoch, Incarnation, Ownership, ProxyId, SessionId

S, ME, YOU = SessionId("s"), ProxyId("me"), ProxyId("you")
STATES = list(AcquisitionState)
BY_ROW = [AcquisitionState.READING, AcquisitionState.COMPARING, AcquisitionState.CREATING, AcquisitionState.COMMITTING]


def owned(epoch: int) -> Ownership:
    return Ownership(ME, Epoch(epoch))


def yours(epoch: int) -> Ownership:
    return Ownership(YOU, Epoch(epoch))


def acquiring(state: AcquisitionState = AcquisitionState.WANTED, copy_epoch: int = 0) -> Acquisition:
    machine = Acquisition(S, ME, Incarnation("me#1"), Epoch(copy_epoch))
    machine.state = state
    return machine


def steps(machine: Acquisition, *given: inputs.AcquisitionInput) -> list[effects.AcquisitionEffect]:
    """Step the machine; return the effects of the last input."""
    last: list[effects.AcquisitionEffect] = []
    for input in given:
        last = machine.step(input, 0)
    return last


def test_session_without_an_owner_is_recorded_before_its_row_is_created() -> None:
    machine = acquiring()
    assert steps(machine, inputs.OwnerUnknown()) == [effects.ReadRow()]
    assert steps(machine, inputs.RowAbsent(None)) == [effects.LookForLost()]
    assert steps(machine, inputs.NothingFound(is_certain=True)) == [effects.RecordFirst(Epoch(1))]
    assert steps(machine, inputs.Recorded()) == [effects.Create(None, Epoch(1))]
    assert steps(machine, inputs.Won()) == [effects.ServeNew()]
    assert machine.over


def test_session_in_the_place_of_a_deleted_one_is_of_the_next_generation() -> None:
    gone = yours(3).gone()
    machine = acquiring(AcquisitionState.READING)
    assert steps(machine, inputs.RowAbsent(gone), inputs.NothingFound(is_certain=True)) == [
        effects.RecordFirst(Epoch(gone.epoch + 1))
    ]
    assert steps(machine, inputs.Recorded()) == [effects.Create(gone, Epoch(gone.epoch + 1))]


@pytest.mark.parametrize("row", [None, Ownership(ME, Epoch(3)).gone()])
def test_session_created_while_a_changelog_is_away_outlives_its_checkpoints(row: Ownership | None) -> None:
    """The registry may have been restored meanwhile: what is there of that name is not to replace this one."""
    machine = acquiring(AcquisitionState.READING)
    (record,) = steps(machine, inputs.RowAbsent(row), inputs.NothingFound(is_certain=False))
    assert isinstance(record, effects.RecordFirst)
    there = row.epoch + 5 if row is not None else 5
    assert Ownership(ME, record.epoch).is_later_generation_than(there)
    assert steps(machine, inputs.Recorded()) == [effects.Create(row, record.epoch)]


def test_session_whose_row_is_lost_goes_on_from_its_last_checkpoint() -> None:
    machine = acquiring(AcquisitionState.READING)
    assert steps(machine, inputs.RowAbsent(None), inputs.RecordOutdated(Epoch(7), by_owner=True)) == [effects.ReadRow()]
    assert steps(machine, inputs.RowLost()) == [effects.FindCheckpoint()]
    assert steps(machine, inputs.Found(checkpoint(7))) == [effects.TakeOver(None)]
    assert machine.epoch == 8
    assert steps(machine, inputs.Won()) == [effects.ServeRebuilt(checkpoint(7))]


@pytest.mark.parametrize("by_owner", [True, False])
def test_session_that_registry_and_changelogs_have_lost_is_made_above_what_was_there(by_owner: bool) -> None:
    machine = acquiring(AcquisitionState.READING)
    assert steps(machine, inputs.RowAbsent(None), inputs.RecordOutdated(Epoch(7), by_owner=by_owner)) == [
        effects.ReadRow()
    ]
    if by_owner:
        assert steps(machine, inputs.RowLost()) == [effects.FindCheckpoint()]
    (record,) = steps(machine, inputs.NothingToTakeOver() if by_owner else inputs.RowUnchanged())
    assert isinstance(record, effects.RecordFirst)
    assert Ownership(ME, record.epoch).is_later_generation_than(7)
    assert steps(machine, inputs.Recorded()) == [effects.Create(None, record.epoch)]


def test_row_that_changed_while_a_session_was_recorded_counts() -> None:
    machine = acquiring(AcquisitionState.READING)
    last = steps(
        machine,
        inputs.RowAbsent(None),
        inputs.RecordOutdated(Epoch(7), by_owner=True),
        inputs.OwnedElsewhere(yours(8)),
    )
    assert last == [effects.Fetch(yours(8))]


def test_owner_that_the_watch_names_is_asked_and_the_registry_only_after_it() -> None:
    machine = acquiring()
    assert steps(machine, inputs.OwnerWatched(yours(2))) == [effects.Fetch(yours(2))]
    assert steps(machine, inputs.NotHandedOver(yours(2), None)) == [effects.ReadRow()]
    assert steps(machine, inputs.OwnedElsewhere(yours(3))) == [effects.Fetch(yours(3))]
    assert steps(machine, inputs.NotHandedOver(yours(3), None)) == [
        effects.GiveUp(inputs.RetryLater("the session could not be handed over yet"))
    ]
    assert machine.over


def test_acquisition_gives_up_with_session_lost_when_the_owner_has_lost_the_session() -> None:
    (effect,) = steps(acquiring(AcquisitionState.FETCHING), inputs.NotHandedOver(yours(3), "its changelog is gone"))
    assert isinstance(effect, effects.GiveUp)
    assert isinstance(effect.reason, SessionLost)
    assert "its changelog is gone" in effect.reason.message


@pytest.mark.parametrize("state", [AcquisitionState.ASKING, AcquisitionState.FETCHING])
def test_owner_whose_lease_ends_meanwhile_is_looked_up_in_the_registry(state: AcquisitionState) -> None:
    assert steps(acquiring(state), inputs.OwnerGone()) == [effects.ReadRow()]


def checkpoint(epoch: int) -> Checkpoint:
    return Checkpoint(S, Epoch(epoch), 3, Descriptor(), {})


@pytest.mark.parametrize(("row", "found", "epoch"), [(4, 4, 5), (4, 3, 5), (2, 6, 7)])
def test_failover_takes_the_epoch_behind_row_and_checkpoint(row: int, found: int, epoch: int) -> None:
    machine = acquiring(AcquisitionState.READING)
    assert steps(machine, inputs.OwnerEnded(yours(row))) == [effects.FindCheckpoint()]
    assert steps(machine, inputs.Found(checkpoint(found))) == [effects.TakeOver(yours(row))]
    assert machine.epoch == epoch
    assert steps(machine, inputs.Won()) == [effects.ServeRebuilt(checkpoint(found))]


def test_failover_to_a_first_checkpoint_of_a_later_generation_stays_in_that_of_the_row() -> None:
    """Whoever wrote it has made no session; the owner had written nothing yet (F108)."""
    machine = acquiring(AcquisitionState.READING)
    first = Checkpoint(S, Epoch(GENERATION + 1), 0, Descriptor(), {})
    steps(machine, inputs.OwnerEnded(yours(1)))
    assert steps(machine, inputs.Found(first)) == [effects.TakeOver(yours(1))]
    assert machine.epoch == 2


def test_failover_behind_a_creation_that_came_too_late_stays_in_its_generation() -> None:
    """What was known of the way before counts no more: the session was made by another proxy, which has died since."""
    machine = acquiring(AcquisitionState.READING)
    steps(
        machine,
        inputs.RowAbsent(None),
        inputs.RecordOutdated(Epoch(1), by_owner=True),
        inputs.OwnedElsewhere(yours(1)),
        inputs.OwnerGone(),
    )
    assert steps(machine, inputs.OwnerEnded(yours(1))) == [effects.FindCheckpoint()]
    steps(machine, inputs.Found(checkpoint(1)))
    assert machine.epoch == 2


def test_session_without_a_checkpoint_is_lost_and_never_served_empty() -> None:
    machine = acquiring(AcquisitionState.READING)
    assert steps(machine, inputs.OwnerEnded(yours(4)), inputs.SessionUnrecoverable("gone")) == [
        effects.DeclareLost(yours(4), "gone")
    ]
    assert machine.over


def test_copy_that_sleeps_takes_the_next_epoch_in_its_turn() -> None:
    machine = acquiring(copy_epoch=4)
    assert steps(machine, inputs.CopyToActivate(owned(4))) == [effects.Enqueue()]
    assert steps(machine, inputs.Dequeued()) == [effects.FindLaterCheckpoint(everywhere=False)]
    assert steps(machine, inputs.NothingFound(is_certain=True)) == [effects.ClaimNext(owned(4))]
    assert machine.epoch == 5
    # Another proxy may have had it at 5 or 6, and the disk may have lost that it went there.
    assert steps(machine, inputs.CopyToActivate(owned(7))) == [effects.FindLaterCheckpoint(everywhere=True)]
    assert steps(machine, inputs.NothingFound(is_certain=True)) == [effects.ClaimNext(owned(7))]
    assert machine.epoch == 8
    assert steps(machine, inputs.Won()) == [effects.ServeActivated(None)]


def test_copy_that_a_later_owner_has_outdated_is_dropped_once_the_row_was_read() -> None:
    """The registry was put back to the very row of the copy (rule 28)."""
    machine = acquiring(copy_epoch=4)
    assert steps(machine, inputs.CopyToActivate(owned(4)), inputs.Dequeued(), inputs.CopyInDoubt()) == [
        effects.ReadRow()
    ]
    assert steps(machine, inputs.CopyToActivate(owned(4)), inputs.Dequeued()) == [
        effects.FindLaterCheckpoint(everywhere=False)
    ]
    assert steps(machine, inputs.RecordOutdated(Epoch(5), by_owner=True)) == [effects.DropCopy()]


@pytest.mark.parametrize(("row", "found", "is_outdated"), [(4, 4, False), (4, 5, True), (6, 6, False), (6, 7, True)])
def test_copy_is_outdated_by_what_was_written_at_a_later_epoch_than_its_own_and_its_rows(
    row: int, found: int, is_outdated: bool
) -> None:
    """An earlier incarnation of ours may have served at the row's epoch, and have ended before its store said so."""
    machine = acquiring(copy_epoch=4)
    steps(machine, inputs.CopyToActivate(owned(row)), inputs.Dequeued())
    assert machine.is_outdated_by(Epoch(found), 1) is is_outdated
    assert not machine.is_outdated_by(Epoch(found), 0)


def test_copy_whose_row_is_lost_is_looked_for_in_all_changelogs() -> None:
    machine = acquiring(copy_epoch=4)
    assert steps(machine, inputs.CopyToCheck(None), inputs.Dequeued()) == [effects.FindLaterCheckpoint(everywhere=True)]


def test_staged_copy_is_stored_before_it_commits() -> None:
    machine = acquiring(copy_epoch=4)
    assert steps(machine, inputs.CopyToCommit(yours(3))) == [effects.FindLaterCheckpoint(everywhere=True)]
    assert steps(machine, inputs.NothingFound(is_certain=True)) == [effects.StoreCopy()]
    assert steps(machine, inputs.Stored()) == [effects.CommitCopy(yours(3))]
    assert steps(machine, inputs.Won()) == [effects.ServeCommitted()]


@pytest.mark.parametrize(("found", "is_outdated"), [((3, 9), False), ((4, 0), False), ((4, 1), True), ((5, 1), True)])
def test_staged_copy_does_not_commit_where_somebody_has_served_since_the_cut(
    found: tuple[int, int], is_outdated: bool
) -> None:
    """The registry was put back to the row of the cut (F107)."""
    machine = acquiring(copy_epoch=4)
    steps(machine, inputs.CopyToCommit(yours(3)))
    assert machine.is_outdated_by(Epoch(found[0]), found[1]) is is_outdated
    assert steps(machine, inputs.RecordOutdated(Epoch(5), by_owner=True)) == [effects.DropCopy()]


def test_staged_copy_that_cannot_be_stored_does_not_commit() -> None:
    machine = acquiring(copy_epoch=4)
    given = (inputs.CopyToCommit(yours(3)), inputs.NothingFound(is_certain=True), inputs.StoreFailed())
    assert steps(machine, *given) == []
    assert machine.over


@pytest.mark.parametrize("state", BY_ROW)
def test_row_means_the_same_wherever_it_is_learnt(state: AcquisitionState) -> None:
    assert steps(acquiring(state), inputs.OwnedElsewhere(yours(3))) == [effects.Fetch(yours(3))]
    wait = inputs.RetryLater("away")
    assert steps(acquiring(state), inputs.Unavailable(wait)) == [effects.GiveUp(wait)]


@pytest.mark.parametrize("state", [state for state in STATES if state is not AcquisitionState.QUEUED])
def test_input_that_the_table_does_not_list_changes_nothing(state: AcquisitionState) -> None:
    machine = acquiring(state)
    with pytest.raises(UnexpectedInput):
        machine.step(inputs.Dequeued(), 0)
    assert (machine.state, machine.row) == (state, None)


@pytest.mark.parametrize(
    ("row", "was_served", "means"),
    [
        (owned(4), False, inputs.CopyToActivate(owned(4))),
        (owned(6), False, inputs.CopyToActivate(owned(6))),
        (yours(6), False, inputs.CopyOutlived(yours(6))),
        (owned(4).gone().next(ME), False, inputs.CopyOutlived(owned(4).gone().next(ME))),
        (owned(4).gone(), True, inputs.CopyOutlived(owned(4).gone())),
        (owned(2), True, inputs.CopyToActivate(owned(2))),
        (yours(4), True, inputs.CopyToActivate(yours(4))),
        (None, True, inputs.CopyToActivate(None)),
    ],
)
def test_row_of_a_copy_that_sleeps(row: Ownership | None, was_served: bool, means: object) -> None:
    assert dormant_input(Epoch(4), ME, row, read=True, was_served=was_served, is_final=False) == means


@pytest.mark.parametrize("row", [None, owned(2), yours(4)])
def test_stored_copy_is_checked_before_its_activation_by_an_uncorrected_row(row: Ownership | None) -> None:
    assert dormant_input(Epoch(4), ME, row, read=True, was_served=False, is_final=True) == inputs.CopyToCheck(row)
    assert dormant_input(Epoch(4), ME, row, read=True, was_served=True, is_final=True) == inputs.CopyToActivate(row)


@pytest.mark.parametrize("row", [None, owned(2), yours(2), yours(4)])
def test_copy_waits_for_a_restored_registry_unless_no_proxy_can_have_served_since(row: Ownership | None) -> None:
    assert isinstance(dormant_input(Epoch(4), ME, row, read=True, was_served=False, is_final=False), inputs.Unavailable)


def test_row_that_only_the_watch_lacks_is_read() -> None:
    assert dormant_input(Epoch(4), ME, None, read=False, was_served=True, is_final=True) == inputs.CopyInDoubt()
    assert orphan_input(Epoch(4), ME, YOU, None, read=False, is_last=True) == inputs.CopyInDoubt()


@pytest.mark.parametrize(
    ("row", "means"),
    [
        (owned(4), inputs.CopyToActivate(owned(4))),
        (owned(3), inputs.RowBehind()),
        (yours(6), inputs.CopyOutlived(yours(6))),
        (owned(4).gone().next(ME), inputs.CopyOutlived(owned(4).gone().next(ME))),
        (yours(3), inputs.CopyInDoubt()),
        (yours(4), inputs.CopyInDoubt()),
        (None, inputs.CopyInDoubt()),
    ],
)
def test_row_that_was_there_instead_of_the_one_that_was_claimed(row: Ownership | None, means: object) -> None:
    assert activation_input(Epoch(4), ME, row) == means


@pytest.mark.parametrize(
    ("row", "read", "means"),
    [
        (owned(4), False, inputs.CopyToActivate(owned(4))),
        (yours(3), False, inputs.CopyToCommit(yours(3))),
        (yours(2), False, inputs.CopyInDoubt()),
        (yours(4), False, inputs.CopySuperseded()),
        (Ownership(ProxyId("another"), Epoch(3)), True, inputs.CopySuperseded()),
        (owned(5), False, inputs.CopySuperseded()),
    ],
)
def test_row_of_a_staged_copy_without_its_transfer(row: Ownership, read: bool, means: object) -> None:
    assert orphan_input(Epoch(4), ME, YOU, row, read=read, is_last=False) == means


@pytest.mark.parametrize("row", [None, yours(2), owned(1)])
def test_staged_copy_waits_for_its_source_where_the_registry_went_back_and_commits_at_last(
    row: Ownership | None,
) -> None:
    assert isinstance(orphan_input(Epoch(4), ME, YOU, row, read=True, is_last=False), inputs.Unavailable)
    assert orphan_input(Epoch(4), ME, YOU, row, read=True, is_last=True) == inputs.CopyToCommit(row)
