"""What an acquisition takes (handover/acquisition.py): what is learnt of a session's row, copies and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from waypost.checkpoint import Checkpoint
from waypost.errors import SessionLost
from waypost.identity import Epoch, Ownership


@dataclass(frozen=True, slots=True)
class OwnerWatched:
    """Input, the first of an acquisition: the registry's watch names a live owner elsewhere.

    Args:
        owner: that owner, with its epoch.
    """

    owner: Ownership


@dataclass(frozen=True, slots=True)
class OwnerUnknown:
    """Input, the first of an acquisition: the registry's watch names no live owner of the session."""


@dataclass(frozen=True, slots=True)
class RetryLater:
    """A reason: the session cannot be had now, and may be later.

    Args:
        why: for people.
    """

    why: str


@dataclass(frozen=True, slots=True)
class NoSuchSession:
    """A reason: there is no session of that name, and the client that asked for it would not make one."""


Reason = RetryLater | NoSuchSession | SessionLost
"""Why a session cannot be had; SessionLost is final."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Input, an answer to every effect that asks a backend: the session cannot be had.

    Args:
        reason: why; GiveUp carries it to those who wait.
    """

    reason: Reason


ROLLED_BACK = Unavailable(RetryLater("the registry has gone back: who owns the session may be alive"))


@dataclass(frozen=True, slots=True)
class RowAbsent:
    """Input, an answer to ReadRow or Create: the session has no owner, and may be made
    here.

    Args:
        row: that of a session of this name which was deleted, by which the new row is claimed; None: the registry never
            had one.
    """

    row: Ownership | None


@dataclass(frozen=True, slots=True)
class OwnedElsewhere:
    """Input, an answer to ReadRow or Create: the row names another proxy, which has a lease.

    Args:
        row: that owner, with its epoch.
    """

    row: Ownership


@dataclass(frozen=True, slots=True)
class OwnerEnded:
    """Input, an answer to ReadRow or Create: the row names a proxy whose lease has
    certainly ended, or this one, which has no copy. The last checkpoint is to be found.

    Args:
        row: that of the dead owner.
    """

    row: Ownership


@dataclass(frozen=True, slots=True)
class CopyServed:
    """Input, an answer to ReadRow or Create, or the first one: the session is served here."""


@dataclass(frozen=True, slots=True)
class CopyInTransfer:
    """Input, an answer to ReadRow or Create, or the first one: a transfer has the copy that is here; what
    comes of it, the transfer says.
    """


@dataclass(frozen=True, slots=True)
class CopyToActivate:
    """Input, an answer to ReadRow, Create, CommitCopy or ClaimNext, or the first one: the copy here is the session's
    latest, and takes the next epoch.

    Args:
        row: what the next epoch is claimed from; None: the registry has lost it.
    """

    row: Ownership | None


@dataclass(frozen=True, slots=True)
class CopyToCheck:
    """Input, an answer to ReadRow or Create, or the first one: the registry has lost the row of a copy from
    the disk, and nobody has corrected it for long (:meth:`proxy.core.registry_memory.RegistryMemory.is_final`). The
    copy takes the next epoch, unless a changelog has what a later owner wrote.

    Args:
        row: what the next epoch is claimed from; None: there is none.
    """

    row: Ownership | None


@dataclass(frozen=True, slots=True)
class CopyToCommit:
    """Input, an answer to ReadRow, Create or CommitCopy, or the first one: a staged copy is here without its transfer,
    and no proxy has served since its cut. It commits at its own epoch.

    Args:
        row: the source's; one of before, which nobody corrects, where the registry has gone back; None: it has none.
    """

    row: Ownership | None


@dataclass(frozen=True, slots=True)
class CopyInDoubt:
    """Input, an answer to CommitCopy, FindLaterCheckpoint or ClaimNext, or the first one: the watch
    shows no row, or one of long before a staged copy. It may be behind, and the registry is asked.
    """


@dataclass(frozen=True, slots=True)
class CopySuperseded:
    """Input, an answer to ReadRow, Create or CommitCopy, or the first one: the row is another proxy's, of the staged
    copy's epoch or a later one. The copy is dropped.
    """


@dataclass(frozen=True, slots=True)
class CopyOutlived:
    """Input, an answer to ReadRow, Create, CommitCopy or ClaimNext, or the first one: another proxy owns the session at
    a later epoch than the copy's, or it was deleted since. The copy is released.

    Args:
        row: as the registry has it.
    """

    row: Ownership


@dataclass(frozen=True, slots=True)
class RowBehind:
    """Input, an answer to ClaimNext: the row is ours, of an earlier epoch than the copy. The proxy that serves the
    session may correct it yet, so the claim is tried later.
    """


@dataclass(frozen=True, slots=True)
class RowUnchanged:
    """Input, an answer to ReadRow after RecordOutdated: the row is as it was before, still nobody's. What the changelog
    has is of a proxy that tried to make the session.
    """


@dataclass(frozen=True, slots=True)
class RowLost:
    """Input, an answer to ReadRow after RecordOutdated: the row is as it was, and nobody has corrected it for long
    (:meth:`proxy.core.registry_memory.RegistryMemory.is_final`). The session goes on from its last checkpoint.
    """


@dataclass(frozen=True, slots=True)
class NothingToTakeOver:
    """Input, an answer to FindCheckpoint: a session whose row is lost is in no changelog either. It is made."""


@dataclass(frozen=True, slots=True)
class NotHandedOver:
    """Input, an answer to Fetch or ReadRow: the owner did not hand the session over.

    Args:
        owner: who was asked.
        lost: why nobody has the session any more, as it says; None: it does not.
    """

    owner: Ownership
    lost: str | None


@dataclass(frozen=True, slots=True)
class OwnerGone:
    """Input, an answer to Fetch: the owner's lease ended before it handed the session over."""


@dataclass(frozen=True, slots=True)
class NothingFound:
    """Input, an answer to LookForLost or FindLaterCheckpoint: no changelog that can be read has a session of that name,
    or anything that is later than the copy.

    Args:
        is_certain: all could be read.
        checkpoint: the last one of this proxy's ownership, whose epoch may be above that of a copy which the disk took
            long ago; None: none was found, or there is no copy.
    """

    is_certain: bool
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """Input, an answer to RecordFirst: the first checkpoint is durable."""


@dataclass(frozen=True, slots=True)
class RecordOutdated:
    """Input, an answer to LookForLost, RecordFirst or FindLaterCheckpoint: a changelog has a checkpoint of the name
    that counts more. The registry has lost a session, or later owners.

    Args:
        epoch: of that checkpoint.
        by_owner: an owner wrote it; else a proxy that tried to make a session.
    """

    epoch: Epoch
    by_owner: bool


@dataclass(frozen=True, slots=True)
class Found:
    """Input, an answer to FindCheckpoint: the session's last checkpoint was found.

    Args:
        checkpoint: that checkpoint.
    """

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class SessionUnrecoverable:
    """Input, an answer to FindCheckpoint: all changelogs have answered, and what clients were answered is in none of
    them.

    Args:
        why: for people.
    """

    why: str


@dataclass(frozen=True, slots=True)
class Won:
    """Input, an answer to Create, TakeOver, ClaimNext or CommitCopy: this very compare-and-set was applied, and the row
    is ours. A row that merely looks as wanted is no Won.
    """


@dataclass(frozen=True, slots=True)
class Dequeued:
    """Input, the answer to Enqueue: the copy is the next one in the queue of activations."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Input, an answer to StoreCopy: the copy is durable as it is now."""


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """Input, an answer to StoreCopy: the store did not take the copy."""


AcquisitionInput = (
    OwnerWatched
    | OwnerUnknown
    | Unavailable
    | RowAbsent
    | OwnedElsewhere
    | OwnerEnded
    | CopyServed
    | CopyInTransfer
    | CopyToActivate
    | CopyToCheck
    | CopyToCommit
    | CopyInDoubt
    | CopySuperseded
    | CopyOutlived
    | RowBehind
    | RowUnchanged
    | RowLost
    | NothingToTakeOver
    | NotHandedOver
    | OwnerGone
    | NothingFound
    | Recorded
    | RecordOutdated
    | Found
    | SessionUnrecoverable
    | Won
    | Dequeued
    | Stored
    | StoreFailed
)
"""What an acquisition takes."""
