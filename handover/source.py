"""The source's side of one transfer: the owner at epoch e, from the target's question to the registry's word.

The source serves until it freezes. While COPYING it sends what is stored ahead; READY tells it from where on the
target sees each origin, and it runs on, WAITING, until its own frontier has passed that, bounded in time - what it
has not passed, the target catches up. FROZEN, it delivers, stores and accepts nothing for the session; its frontier
is the cut, and only the registry decides what comes next:

* the row names the target at e + 1: release;
* the source times out, or the target is gone: it never just thaws, it takes e + 1 for itself by the same
  compare-and-set. Exactly one of the two wins, so no late message can ever bring two owners.

Before it takes e + 1, CONFIRMING, it asks the changelogs whether somebody has served since the cut: a registry that was
put back to a copy from before the commit has the row of the source again (handover rule 28). A changelog that is silent
is not waited for.

If a message is lost: Prepared, Chunk and Frozen are sent again on Retry; a lost ChunkStored or Ready is repeated by
the target; a lost answer of the registry is settled by reading.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from handover.machine import (
    Claim,
    ClaimUnknown,
    FindLaterOwner,
    OwnedByOther,
    OwnedByUs,
    OwnerUnchanged,
    PeerGone,
    ReadOwner,
    Retry,
    Timing,
    TransferMachine,
)
from handover.messages import Aborted, ChunkStored, Prepare, Ready
from waypost.identity import Epoch, Origin, Ownership, ProxyId, SessionId
from waypost.table_machine import Deadline, Table


class SourceState(Enum):
    """Phases of a transfer at its source, in order; CONFIRMING and RECLAIMING take the session back."""

    COPYING = auto()
    WAITING = auto()
    FROZEN = auto()
    CONFIRMING = auto()
    RECLAIMING = auto()
    ENDED = auto()


@dataclass(frozen=True, slots=True)
class Passed:
    """Input: the session's frontier has passed what the target is covered from, so it can be frozen."""


@dataclass(frozen=True, slots=True)
class NothingLater:
    """Input, an answer to FindLaterOwner: no changelog that can be read has a checkpoint of a later owner. The source
    takes its next epoch.
    """


@dataclass(frozen=True, slots=True)
class ServedSince:
    """Input, the other answer to FindLaterOwner: a changelog has a checkpoint of a later owner. The target committed,
    and the registry has lost that (handover rule 28). The source releases the session.
    """


@dataclass(frozen=True, slots=True)
class SendPrepared:
    """Effect, without an answer: send the target the session as it is now, and begin to send chunks."""


@dataclass(frozen=True, slots=True)
class CountStored:
    """Effect, without an answer: note which chunks the target has; the window of chunks under way moves on.

    Args:
        number: all chunks up to this number have come.
    """

    number: int


@dataclass(frozen=True, slots=True)
class SendChunks:
    """Effect, without an answer: send chunks as far as the window allows.

    Args:
        again: begin at the first chunk that was not acknowledged, as after a Retry; else go on with the next one.
    """

    again: bool


@dataclass(frozen=True, slots=True)
class Freeze:
    """Effect, without an answer: stop delivering, storing and accepting for the session, and take its cut, the frontier
    at that moment.
    """


@dataclass(frozen=True, slots=True)
class SendFrozen:
    """Effect, without an answer: send the chunks that are left, then the cut and the descriptor as they are now."""


@dataclass(frozen=True, slots=True)
class Thaw:
    """Effect, without an answer: serve the session again here, and take what was passed over while it was frozen.

    Args:
        epoch: at which it is served from now on.
    """

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Release:
    """Effect, without an answer: the target has the session. Tell the receivers where it went, if that is known, and
    delete it here.
    """


@dataclass(frozen=True, slots=True)
class Forget:
    """Effect, without an answer: the transfer came to nothing, and the session was served here all the time; drop what
    was kept for the transfer.
    """


SourceInput = (
    Prepare
    | ChunkStored
    | Ready
    | Passed
    | NothingLater
    | ServedSince
    | Aborted
    | PeerGone
    | Retry
    | Deadline
    | ClaimUnknown
    | OwnerUnchanged
    | OwnedByUs
    | OwnedByOther
)
SourceAction = SendPrepared | CountStored | SendChunks | Freeze | SendFrozen | FindLaterOwner | Thaw | Release | Forget
"""Effects that only the source has."""
SourceEffect = SourceAction | Claim | ReadOwner

_S = SourceState

TABLE: Table = {
    (_S.COPYING, Prepare): ((SendPrepared,), _S.COPYING),
    (_S.COPYING, ChunkStored): ((CountStored, SendChunks), _S.COPYING),
    (_S.COPYING, Retry): ((SendChunks,), _S.COPYING),
    (_S.COPYING, Ready): ((), _S.WAITING),
    (_S.COPYING, Passed): ((), _S.COPYING),
    (_S.COPYING, Aborted): ((Forget,), _S.ENDED),
    (_S.COPYING, PeerGone): ((Forget,), _S.ENDED),
    (_S.COPYING, Deadline): ((Forget,), _S.ENDED),
    (_S.COPYING, OwnerUnchanged): ((), _S.COPYING),
    (_S.COPYING, OwnedByOther): ((Release,), _S.ENDED),
    (_S.WAITING, Prepare): ((), _S.WAITING),
    (_S.WAITING, ChunkStored): ((CountStored,), _S.WAITING),
    (_S.WAITING, Ready): ((), _S.WAITING),
    (_S.WAITING, Retry): ((), _S.WAITING),
    (_S.WAITING, Passed): ((Freeze, SendFrozen), _S.FROZEN),
    (_S.WAITING, Deadline): ((Freeze, SendFrozen), _S.FROZEN),
    (_S.WAITING, Aborted): ((Forget,), _S.ENDED),
    (_S.WAITING, PeerGone): ((Forget,), _S.ENDED),
    (_S.WAITING, OwnerUnchanged): ((), _S.WAITING),
    (_S.WAITING, OwnedByOther): ((Release,), _S.ENDED),
    (_S.FROZEN, Prepare): ((), _S.FROZEN),
    (_S.FROZEN, ChunkStored): ((CountStored,), _S.FROZEN),
    (_S.FROZEN, Ready): ((SendFrozen,), _S.FROZEN),
    (_S.FROZEN, Passed): ((), _S.FROZEN),
    (_S.FROZEN, Retry): ((SendFrozen,), _S.FROZEN),
    (_S.FROZEN, Aborted): ((FindLaterOwner,), _S.CONFIRMING),
    (_S.FROZEN, PeerGone): ((FindLaterOwner,), _S.CONFIRMING),
    (_S.FROZEN, Deadline): ((FindLaterOwner,), _S.CONFIRMING),
    (_S.FROZEN, OwnerUnchanged): ((), _S.FROZEN),
    (_S.FROZEN, OwnedByOther): ((Release,), _S.ENDED),
    (_S.CONFIRMING, Prepare): ((), _S.CONFIRMING),
    (_S.CONFIRMING, ChunkStored): ((), _S.CONFIRMING),
    (_S.CONFIRMING, Ready): ((), _S.CONFIRMING),
    (_S.CONFIRMING, Passed): ((), _S.CONFIRMING),
    (_S.CONFIRMING, Aborted): ((), _S.CONFIRMING),
    (_S.CONFIRMING, PeerGone): ((), _S.CONFIRMING),
    (_S.CONFIRMING, Retry): ((), _S.CONFIRMING),
    (_S.CONFIRMING, Deadline): ((Claim,), _S.RECLAIMING),
    (_S.CONFIRMING, NothingLater): ((Claim,), _S.RECLAIMING),
    (_S.CONFIRMING, ServedSince): ((Release,), _S.ENDED),
    (_S.CONFIRMING, OwnerUnchanged): ((), _S.CONFIRMING),
    (_S.CONFIRMING, OwnedByOther): ((Release,), _S.ENDED),
    (_S.RECLAIMING, Prepare): ((), _S.RECLAIMING),
    (_S.RECLAIMING, ChunkStored): ((), _S.RECLAIMING),
    (_S.RECLAIMING, Ready): ((), _S.RECLAIMING),
    (_S.RECLAIMING, Passed): ((), _S.RECLAIMING),
    (_S.RECLAIMING, Aborted): ((), _S.RECLAIMING),
    (_S.RECLAIMING, PeerGone): ((), _S.RECLAIMING),
    (_S.RECLAIMING, Deadline): ((), _S.RECLAIMING),
    (_S.RECLAIMING, Retry): ((Claim,), _S.RECLAIMING),
    (_S.RECLAIMING, ClaimUnknown): ((ReadOwner,), _S.RECLAIMING),
    # The next Retry claims again: a registry that takes no claims, and answers at once, is not asked without a pause.
    (_S.RECLAIMING, OwnerUnchanged): ((), _S.RECLAIMING),
    (_S.RECLAIMING, OwnedByUs): ((Thaw,), _S.ENDED),
    (_S.RECLAIMING, OwnedByOther): ((Release,), _S.ENDED),
}


class SourceTransfer(TransferMachine[SourceInput, SourceEffect]):
    """One transfer, as the source sees it. Created by a Prepare that the source accepts, then fed with it.

    Args:
        owned: this proxy and the epoch at which it owns the session.
        target: who asked.
        transfer: the transfer's id.
    """

    table = TABLE
    ended = SourceState.ENDED
    progress = ChunkStored

    def __init__(
        self,
        session: SessionId,
        owned: Ownership,
        target: ProxyId,
        transfer: str,
        timing: Timing,
        now_ms: int,
    ) -> None:
        super().__init__(SourceState.COPYING, timing, now_ms)
        self.session = session
        self.owned = owned
        self.wanted = owned.next(owned.proxy)
        self.target = target
        self.transfer = transfer
        self.coverage: dict[Origin, int | None] = {}

    def remember(self, input: SourceInput) -> None:
        """Keep from a Ready where the target's coverage begins: in WAITING, and if it is not known yet. Called by
        :meth:`step`, after the change of state.
        """
        if isinstance(input, Ready) and self.state is SourceState.WAITING and not self.coverage:
            self.coverage = input.coverage

    def timeout_ms(self) -> int:
        """Return how long the present state may last, in ms."""
        if self.state is SourceState.COPYING:
            return self.timing.prepare_ms
        return self.timing.passing_ms if self.state is SourceState.WAITING else self.timing.frozen_ms

    def effect(self, kind: type[Any], input: SourceInput) -> SourceEffect:
        """Return the effect of this kind, with the fields that it takes from the input and the transfer. Called by
        :meth:`step`.

        Args:
            kind: the class of the effect, from the table.
            input: the accepted input.
        """
        if kind is Claim:
            return Claim(self.owned, self.wanted)
        if kind is Thaw:
            return Thaw(self.wanted.epoch)
        if kind is CountStored and isinstance(input, ChunkStored):
            return CountStored(input.number)
        if kind is SendChunks:
            return SendChunks(again=isinstance(input, Retry))
        return super().effect(kind, input)
