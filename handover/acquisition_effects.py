"""What an acquisition requests (handover/acquisition.py): questions that are answered, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass

from handover.acquisition_inputs import Reason
from waypost.checkpoint import Checkpoint
from waypost.identity import Epoch, Ownership


@dataclass(frozen=True, slots=True)
class Fetch:
    """Effect: have the owner hand the session over; answered with NotHandedOver or OwnerGone. Where the handover
    succeeds, the transfer serves the session, and the acquisition ends without an answer.

    Args:
        owner: the live owner, with its epoch.
    """

    owner: Ownership


@dataclass(frozen=True, slots=True)
class ReadRow:
    """Effect: read the session's row in the registry. proxy/ownership/acquisition_answers.py says what the answer
    means, and which input it becomes.
    """


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Effect, without an answer: the acquisition has ended; tell those who wait for the session why it cannot be had.

    Args:
        reason: why, and whether it is final.
    """

    reason: Reason


@dataclass(frozen=True, slots=True)
class LookForLost:
    """Effect: look for a session of that name in all changelogs; answered with NothingFound, RecordOutdated or
    Unavailable.
    """


@dataclass(frozen=True, slots=True)
class FindLaterCheckpoint:
    """Effect: look for what a later owner than the copy's wrote; answered with NothingFound, RecordOutdated or
    Unavailable, or with CopyInDoubt where there is something and the row was not read yet.

    Args:
        everywhere: in the changelogs of all sites, for the registry has lost the row, or the source, or an owner since
            the copy, may be at another site; else in that of this site.
    """

    everywhere: bool


@dataclass(frozen=True, slots=True)
class RecordFirst:
    """Effect: write the first checkpoint of a new session; answered with Recorded, RecordOutdated or Unavailable.

    Args:
        epoch: the epoch at which the session will be served.
    """

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Create:
    """Effect: compare and set the row of a session that is made here; answered with Won, with Unavailable, or with what
    the row is instead, as to ReadRow.

    Args:
        before: the row that must be in force; None: the registry must never have had one.
        epoch: of the new row, whose owner is this proxy.
    """

    before: Ownership | None
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class FindCheckpoint:
    """Effect: find the last checkpoint in all changelogs; answered with Found, SessionUnrecoverable, or
    NothingToTakeOver where the row is lost, or Unavailable.
    """


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Effect: compare and set the row, from that of the dead owner to ours at the next epoch; answered with Won, or
    Unavailable.

    Args:
        row: the row that must be in force; None: the registry has lost it.
    """

    row: Ownership | None


@dataclass(frozen=True, slots=True)
class DeclareLost:
    """Effect, without an answer: put on record that nobody has the session any more, and say so to those who wait for
    it.

    Args:
        row: the last row of the session.
        why: how that is known, for people.
    """

    row: Ownership
    why: str


@dataclass(frozen=True, slots=True)
class ServeNew:
    """Effect, without an answer: serve an empty session."""


@dataclass(frozen=True, slots=True)
class ServeRebuilt:
    """Effect, without an answer: serve the session as its checkpoint has it, and catch up what came after the
    checkpoint.

    Args:
        checkpoint: the last one of the session.
    """

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class ReportServed:
    """Effect, without an answer: tell those who wait that the session is served here."""


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Effect: put the dormant copy into the queue of activations; answered with Dequeued."""


@dataclass(frozen=True, slots=True)
class ClaimNext:
    """Effect: compare and set the row to ours, at the epoch after the row's and all that the copy was ever served at;
    answered with Won, CopyToActivate, CopyOutlived, CopyInDoubt, RowBehind or Unavailable.

    Args:
        row: the row that must be in force; None: the registry has lost it.
    """

    row: Ownership | None


@dataclass(frozen=True, slots=True)
class ServeActivated:
    """Effect, without an answer: serve the copy at the epoch that was claimed.

    Args:
        checkpoint: the last one of this proxy's ownership; its receivers have acknowledged what it says, which a store
            that failed may not have. None: none was found.
    """

    checkpoint: Checkpoint | None


@dataclass(frozen=True, slots=True)
class StoreCopy:
    """Effect: have the staged copy stored; answered with Stored or StoreFailed."""


@dataclass(frozen=True, slots=True)
class CommitCopy:
    """Effect: compare and set the row, to this proxy at the epoch of the staged copy; answered with Won, with
    Unavailable, or with what the row is instead, as to ReadRow.

    Args:
        row: the row that must be in force; None: the registry has lost it.
    """

    row: Ownership | None


@dataclass(frozen=True, slots=True)
class ServeCommitted:
    """Effect, without an answer: serve the staged copy at its epoch."""


@dataclass(frozen=True, slots=True)
class DropCopy:
    """Effect, without an answer: delete the copy, which is not the session's latest; tell those who wait."""


@dataclass(frozen=True, slots=True)
class ReleaseCopy:
    """Effect, without an answer: delete the copy that is stored here; tell those who wait where the session is.

    Args:
        row: the owner and the epoch that the registry names.
    """

    row: Ownership


Question = (
    Fetch
    | ReadRow
    | LookForLost
    | FindLaterCheckpoint
    | RecordFirst
    | Create
    | FindCheckpoint
    | TakeOver
    | Enqueue
    | ClaimNext
    | StoreCopy
    | CommitCopy
)
"""Effects that are answered."""
Conclusion = GiveUp | DeclareLost | ServeNew | ServeRebuilt | ReportServed
"""Effects with which an acquisition ends."""
CopyConclusion = ServeActivated | ServeCommitted | DropCopy | ReleaseCopy
"""Effects with which one ends that has a copy of the session."""
AcquisitionEffect = Question | Conclusion | CopyConclusion
