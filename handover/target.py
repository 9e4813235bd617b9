"""The target's side of one transfer: it takes a session from the source at epoch e, to own it at e + 1.

PREPARING, it asks; a chunk that comes before Prepared, or instead of it, is sent again and again. SHADOWING, it has
installed the subscriptions, keeps every match of the live stream behind gates, takes the chunks of what is stored, and
learns from where on it is covered for each origin. READY, it has told the source so. When the source has frozen it
merges: drops from the gates what lies at or below the cut, and stores everything durably, STAGING. Then it may commit,
COMMITTING: the registry's compare-and-set, which either happened or not, whatever became of the answer.

Until it has staged, a refusal, a time-out or the end of the source's lease discards the shadow; with the
source's lease ended it fails over instead (handover rule 4). A staged copy waits for the registry, never for a message
(rule 5).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from handover.machine import (
    Claim,
    ClaimUnknown,
    OwnedByOther,
    OwnedByUs,
    OwnerUnchanged,
    PeerGone,
    ReadOwner,
    Retry,
    Timing,
    TransferMachine,
)
from handover.messages import Chunk, Frozen, Prepared, TransferDeclined, TransferRefused
from waypost.identity import Ownership, ProxyId, SessionId
from waypost.table_machine import Deadline, Table


class TargetState(Enum):
    """Phases of a transfer at its target, in order."""

    PREPARING = auto()
    SHADOWING = auto()
    READY = auto()
    STAGING = auto()
    COMMITTING = auto()
    ENDED = auto()


@dataclass(frozen=True, slots=True)
class Complete:
    """Input: all that was stored at Prepare has come, what is long is on the disk, and coverage is known or was waited
    for.
    """


@dataclass(frozen=True, slots=True)
class Incomplete:
    """Input: the source has frozen, and chunks of its copy are missing here."""


@dataclass(frozen=True, slots=True)
class Staged:
    """Input, an answer to Merge: the merged session is stored durably."""


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """Input, an answer to Merge or TakeChunk: the merged session, or what was copied of it, could not be stored."""


@dataclass(frozen=True, slots=True)
class SendPrepare:
    """Effect, without an answer: ask the source to prepare the handover."""


@dataclass(frozen=True, slots=True)
class Install:
    """Effect, without an answer: set up the shadow, register its expressions, and close a gate for every origin. The
    shadow is a new session without entries; where an earlier transfer has left a part of the same copy, it is that,
    with all its entries.

    Args:
        prepared: the session as the source has it.
    """

    prepared: Prepared


@dataclass(frozen=True, slots=True)
class TakeChunk:
    """Effect, without an answer: take a chunk's entries if it is the next one; acknowledge all that came.

    Args:
        chunk: the chunk, which may be a repeat or ahead of a missing one.
    """

    chunk: Chunk


@dataclass(frozen=True, slots=True)
class AcknowledgeChunks:
    """Effect, without an answer: send the source the number up to which all chunks have come."""


@dataclass(frozen=True, slots=True)
class SendReady:
    """Effect, without an answer: send the source, for each origin, from where on the target is covered."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Effect: make the session of the shadow, the chunks and the cut, and store it, staged; answered with Staged or
    StoreFailed.

    Args:
        frozen: the cut and the descriptor, as the source has sent them.
    """

    frozen: Frozen


@dataclass(frozen=True, slots=True)
class Adopt:
    """Effect, without an answer: the session is ours at the new epoch; serve it."""


@dataclass(frozen=True, slots=True)
class Discard:
    """Effect, without an answer: drop the shadow or the staged copy; receivers that wait for the session try again."""


@dataclass(frozen=True, slots=True)
class Relay:
    """Effect, without an answer: the session stays where it is; relay its receiver, which is attached here, to the
    owner.
    """


@dataclass(frozen=True, slots=True)
class SendAborted:
    """Effect, without an answer: tell the source that the transfer came to nothing."""


@dataclass(frozen=True, slots=True)
class FailOver:
    """Effect, without an answer: the owner is dead; take the next epoch, and rebuild the session from the changelog."""


TargetInput = (
    Prepared
    | Chunk
    | Frozen
    | TransferRefused
    | TransferDeclined
    | Complete
    | Incomplete
    | Staged
    | StoreFailed
    | PeerGone
    | Retry
    | Deadline
    | ClaimUnknown
    | OwnerUnchanged
    | OwnedByUs
    | OwnedByOther
)
TargetAction = (
    SendPrepare
    | Install
    | TakeChunk
    | AcknowledgeChunks
    | SendReady
    | Merge
    | Adopt
    | Discard
    | Relay
    | SendAborted
    | FailOver
)
"""Effects that only the target has."""
TargetEffect = TargetAction | Claim | ReadOwner

_T = TargetState


def _before_staging() -> dict[tuple[Enum, type], tuple[tuple[type, ...], Enum]]:
    """Rows that are the same for as long as nothing is staged."""
    rows: dict[tuple[Enum, type], tuple[tuple[type, ...], Enum]] = {}
    for state in (_T.PREPARING, _T.SHADOWING, _T.READY):
        rows |= {
            (state, TransferRefused): ((Discard,), _T.ENDED),
            (state, Deadline): ((SendAborted, Discard), _T.ENDED),
            (state, PeerGone): ((Discard, FailOver), _T.ENDED),
            (state, OwnedByOther): ((Discard,), _T.ENDED),
            (state, OwnedByUs): ((Discard,), _T.ENDED),
            (state, OwnerUnchanged): ((), state),
        }
    return rows


TABLE: Table = _before_staging() | {
    (_T.PREPARING, Retry): ((SendPrepare,), _T.PREPARING),
    (_T.PREPARING, Prepared): ((Install,), _T.SHADOWING),
    (_T.PREPARING, Chunk): ((), _T.PREPARING),
    (_T.PREPARING, TransferDeclined): ((Relay,), _T.ENDED),
    (_T.SHADOWING, Prepared): ((), _T.SHADOWING),
    (_T.SHADOWING, Chunk): ((TakeChunk,), _T.SHADOWING),
    (_T.SHADOWING, Retry): ((AcknowledgeChunks,), _T.SHADOWING),
    (_T.SHADOWING, Complete): ((SendReady,), _T.READY),
    (_T.SHADOWING, StoreFailed): ((SendAborted, Discard), _T.ENDED),
    (_T.READY, Prepared): ((), _T.READY),
    (_T.READY, Chunk): ((TakeChunk,), _T.READY),
    (_T.READY, Complete): ((), _T.READY),
    (_T.READY, Retry): ((SendReady,), _T.READY),
    (_T.READY, Incomplete): ((AcknowledgeChunks,), _T.READY),
    (_T.READY, Frozen): ((Merge,), _T.STAGING),
    (_T.STAGING, Prepared): ((), _T.STAGING),
    (_T.STAGING, Chunk): ((), _T.STAGING),
    (_T.STAGING, Incomplete): ((), _T.STAGING),
    (_T.STAGING, Frozen): ((), _T.STAGING),
    (_T.STAGING, TransferRefused): ((), _T.STAGING),
    (_T.STAGING, PeerGone): ((), _T.STAGING),
    (_T.STAGING, Retry): ((), _T.STAGING),
    (_T.STAGING, Deadline): ((), _T.STAGING),
    (_T.STAGING, OwnerUnchanged): ((), _T.STAGING),
    # An earlier transfer's claim was applied in the end: ours commits over the same row.
    (_T.STAGING, OwnedByUs): ((), _T.STAGING),
    (_T.STAGING, OwnedByOther): ((Discard,), _T.ENDED),
    (_T.STAGING, StoreFailed): ((SendAborted, Discard), _T.ENDED),
    (_T.STAGING, Staged): ((Claim,), _T.COMMITTING),
    (_T.COMMITTING, Prepared): ((), _T.COMMITTING),
    (_T.COMMITTING, Chunk): ((), _T.COMMITTING),
    (_T.COMMITTING, Incomplete): ((), _T.COMMITTING),
    (_T.COMMITTING, Frozen): ((), _T.COMMITTING),
    (_T.COMMITTING, TransferRefused): ((), _T.COMMITTING),
    (_T.COMMITTING, PeerGone): ((), _T.COMMITTING),
    (_T.COMMITTING, Deadline): ((), _T.COMMITTING),
    (_T.COMMITTING, Retry): ((Claim,), _T.COMMITTING),
    (_T.COMMITTING, ClaimUnknown): ((ReadOwner,), _T.COMMITTING),
    # The next Retry claims again: a registry that takes no claims, and answers at once, is not asked without a pause.
    (_T.COMMITTING, OwnerUnchanged): ((), _T.COMMITTING),
    (_T.COMMITTING, OwnedByUs): ((Adopt,), _T.ENDED),
    (_T.COMMITTING, OwnedByOther): ((Discard,), _T.ENDED),
}


class TargetTransfer(TransferMachine[TargetInput, TargetEffect]):
    """One transfer, as the target sees it. Starts with :meth:`begin`.

    Args:
        source: the registry's row of the owner, as it is claimed from.
        proxy: this proxy.
        transfer: the transfer's id, chosen here.
    """

    table = TABLE
    ended = TargetState.ENDED
    progress = Chunk

    def __init__(
        self,
        session: SessionId,
        source: Ownership,
        proxy: ProxyId,
        transfer: str,
        timing: Timing,
        now_ms: int,
    ) -> None:
        super().__init__(TargetState.PREPARING, timing, now_ms)
        self.session = session
        self.owned = source
        self.wanted = source.next(proxy)
        self.transfer = transfer

    def begin(self) -> list[TargetEffect]:
        """Return the first effects, which ask the owner to prepare. Call it once, before any :meth:`step`; the state
        does not change.
        """
        return [SendPrepare()]

    def effect(self, kind: type[Any], input: TargetInput) -> TargetEffect:
        """Return the effect of this kind, with the fields that it takes from the input and the transfer. Called by
        :meth:`step`.

        Args:
            kind: the class of the effect, from the table.
            input: the accepted input.
        """
        if kind is Claim:
            return Claim(self.owned, self.wanted)
        match input:
            case Prepared() if kind is Install:
                return Install(input)
            case Chunk() if kind is TakeChunk:
                return TakeChunk(input)
            case Frozen() if kind is Merge:
                return Merge(input)
        return super().effect(kind, input)
