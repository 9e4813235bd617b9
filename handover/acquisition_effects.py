"""What an acquisition requests (handover/acquisition.py): questions that are answered, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass

from handover.acquisition_inputs import Reason
from waypost.checkpoint import Checkpoint
from waypost.identity import Epoch, Ownership


@dataclass(frozen=True, slots=True)
class Fetch:
    """Begin a handover from the owner; answered with NotHandedOver or OwnerGone, or by the session being here."""

    owner: Ownership


@dataclass(frozen=True, slots=True)
class ReadRow:
    """Read the row; the driver says what the answer means (proxy/ownership/acquisition_answers.py)."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Tell those who wait for the session why it cannot be had."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class LookForLost:
    """Look for a session of that name in all changelogs; answered with NothingFound, RecordOutdated or Unavailable."""


@dataclass(frozen=True, slots=True)
class FindLaterCheckpoint:
    """Look for what a later owner than the copy's wrote; answered with NothingFound, RecordOutdated or Unavailable, or
    with CopyInDoubt where there is something and the row was not read yet.

    Args:
        everywhere: in the changelogs of all sites, for the registry has lost the row, or the source may be at another
            site; else in that of this site.
    """

    everywhere: bool


@dataclass(frozen=True, slots=True)
class RecordFirst:
    """Write the first checkpoint of a new session; answered with Recorded, RecordOutdated or Unavailable."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Create:
    """Set the row, from the one before to ours at this epoch."""

    before: Ownership | None
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class FindCheckpoint:
    """Find the last checkpoint in all changelogs; answered with Found, SessionUnrecoverable, or NothingToTakeOver where
    the row is lost, or Unavailable.
    """


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Set the row, from that of the dead owner to ours at the next epoch; None: the registry has lost that row."""

    row: Ownership | None
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class DeclareLost:
    """Put on record that nobody has the session any more, and say so to those who wait for it."""

    row: Ownership
    why: str


@dataclass(frozen=True, slots=True)
class ServeNew:
    """Serve an empty session."""


@dataclass(frozen=True, slots=True)
class ServeRebuilt:
    """Serve the session as its checkpoint has it, and catch up what is missing."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class ReportServed:
    """Tell those who wait that the session is served here."""


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Put the dormant copy into the queue of activations; answered with Dequeued."""


@dataclass(frozen=True, slots=True)
class ClaimNext:
    """Set the row to ours, at the epoch behind the row's and all that the copy was ever served at."""

    row: Ownership | None


@dataclass(frozen=True, slots=True)
class ServeActivated:
    """Serve the copy at the epoch that was claimed."""


@dataclass(frozen=True, slots=True)
class StoreCopy:
    """Have the staged copy stored; answered with Stored or StoreFailed."""


@dataclass(frozen=True, slots=True)
class CommitCopy:
    """Set the row, from the one that is there to ours at the copy's epoch."""

    row: Ownership | None


@dataclass(frozen=True, slots=True)
class ServeCommitted:
    """Serve the staged copy at its epoch."""


@dataclass(frozen=True, slots=True)
class DropCopy:
    """Delete the copy, which is not the session's latest; tell those who wait."""


@dataclass(frozen=True, slots=True)
class ReleaseCopy:
    """Delete the copy; tell those who wait where the session is."""

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
