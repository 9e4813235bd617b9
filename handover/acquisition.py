"""How a proxy comes to own a session: one machine for each session that is wanted here, or whose copy is not served.

The registry's row (owner, epoch) is the only truth, and compare-and-set the only way to change it. Every start of
serving takes a new epoch: creation, commit of a handover, restart, a new lease, a failover (handover rule 1).

A session that has no copy here: its owner is asked to hand it over, ASKING, where the watch names one; it
may be the owner no more, so the row is read, READING. By the row the session is fetched from its live owner, FETCHING;
or, where its owner is dead, its last checkpoint is found, FINDING, and the next epoch taken, TAKING_OVER; or it is
made, where there is no row and no changelog has a session of that name, LOOKING: its first checkpoint is durable,
RECORDING, before its row is there, CREATING. A changelog that has one says that the registry has lost its row,
COMPARING: whoever has a copy is waited for, and then it is taken over as if its owner were dead (handover rule 28).

A copy that is here and sleeps stands in line, QUEUED. The changelog is asked whether a later owner wrote something,
CHECKING: a registry that was put back may have the very row that the copy had. Then the copy takes the next epoch,
ACTIVATING. A staged copy without its transfer is stored, STORING, and commits as its transfer would have, COMMITTING
(handover rule 5), unless somebody has served since the cut, which the changelog is asked first, CONFIRMING.

An answer comes with the :class:`ReplyKey` of the question. Whoever drives the machine refuses one whose key is not the
machine's present one (`proxy/ownership/stale_replies.py`), and counts it by :class:`StaleReply`. So no state needs to
ask what has changed while an answer was under way. If an answer is lost, whoever asked gets an error in its place; if
an answer of the registry says neither yes nor no, the acquisition ends, and the sweep finds what came of it (handover
rule 2).
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto
from typing import Any, NamedTuple

from handover.acquisition_effects import (
    AcquisitionEffect,
    ClaimNext,
    CommitCopy,
    Create,
    DeclareLost,
    DropCopy,
    Enqueue,
    Fetch,
    FindCheckpoint,
    FindLaterCheckpoint,
    GiveUp,
    LookForLost,
    ReadRow,
    RecordFirst,
    ReleaseCopy,
    ReportServed,
    ServeActivated,
    ServeCommitted,
    ServeNew,
    ServeRebuilt,
    StoreCopy,
    TakeOver,
)
from handover.acquisition_inputs import (
    AcquisitionInput,
    CopyInDoubt,
    CopyInTransfer,
    CopyOutlived,
    CopyServed,
    CopySuperseded,
    CopyToActivate,
    CopyToCheck,
    CopyToCommit,
    Dequeued,
    Found,
    NotHandedOver,
    NothingFound,
    NothingToTakeOver,
    OwnedElsewhere,
    OwnerEnded,
    OwnerGone,
    OwnerUnknown,
    OwnerWatched,
    Reason,
    Recorded,
    RecordOutdated,
    RetryLater,
    RowAbsent,
    RowBehind,
    RowLost,
    RowUnchanged,
    SessionUnrecoverable,
    Stored,
    StoreFailed,
    Unavailable,
    Won,
)
from waypost.checkpoint import Checkpoint
from waypost.errors import SessionLost
from waypost.identity import NO_PROXY, Epoch, Incarnation, Ownership, ProxyId, SessionId
from waypost.table_machine import Table, TableMachine

NO_EPOCH = Epoch(0)
"""The epoch of an acquisition as long as it has no copy of the session."""


class AcquisitionState(Enum):
    """What an acquisition waits for."""

    WANTED = auto()
    ASKING = auto()
    READING = auto()
    FETCHING = auto()
    LOOKING = auto()
    RECORDING = auto()
    COMPARING = auto()
    CREATING = auto()
    FINDING = auto()
    TAKING_OVER = auto()
    CHECKING = auto()
    QUEUED = auto()
    ACTIVATING = auto()
    CONFIRMING = auto()
    STORING = auto()
    COMMITTING = auto()
    ENDED = auto()


class ReplyKey(NamedTuple):
    """The question that an answer belongs to.

    Args:
        session: the session that is acquired.
        epoch: of the copy that is here; NO_EPOCH: there is none.
        incarnation: the lease under which was asked.
        attempt: counts the questions of this proxy: no two have the same.
    """

    session: SessionId
    epoch: Epoch
    incarnation: Incarnation
    attempt: int


class StaleReply(StrEnum):
    """Why an answer is refused: what it was asked for has changed while it was under way."""

    ANOTHER_ATTEMPT = "another attempt"
    """The acquisition is over, or has asked something else since."""
    ANOTHER_INCARNATION = "another incarnation"
    """The question was asked under an earlier lease; the sweep finds what came of it (handover rule 1)."""
    NO_LEASE = "no lease"
    ANOTHER_COPY = "another copy"
    """The copy that it was asked for is not here any more, or a transfer has it."""


# ---------------------------------------------------------------- the table

_S = AcquisitionState


def _by_row(state: Enum) -> Table:
    """Return the rows for what the registry's row means, which are the same wherever it is learnt."""
    return {
        (state, Unavailable): ((GiveUp,), _S.ENDED),
        (state, RowAbsent): ((LookForLost,), _S.LOOKING),
        (state, OwnedElsewhere): ((Fetch,), _S.FETCHING),
        (state, OwnerEnded): ((FindCheckpoint,), _S.FINDING),
        (state, CopyServed): ((ReportServed,), _S.ENDED),
        (state, CopyInTransfer): ((), _S.ENDED),
        (state, CopyToActivate): ((Enqueue,), _S.QUEUED),
        (state, CopyToCheck): ((Enqueue,), _S.QUEUED),
        (state, CopyToCommit): ((FindLaterCheckpoint,), _S.CONFIRMING),
        (state, CopyInDoubt): ((ReadRow,), _S.READING),
        (state, CopySuperseded): ((DropCopy,), _S.ENDED),
        (state, CopyOutlived): ((ReleaseCopy,), _S.ENDED),
    }


TABLE: Table = {
    (_S.WANTED, OwnerWatched): ((Fetch,), _S.ASKING),
    (_S.WANTED, OwnerUnknown): ((ReadRow,), _S.READING),
    **_by_row(_S.WANTED),
    (_S.ASKING, NotHandedOver): ((ReadRow,), _S.READING),
    (_S.ASKING, OwnerGone): ((ReadRow,), _S.READING),
    (_S.READING, NotHandedOver): ((GiveUp,), _S.ENDED),
    **_by_row(_S.READING),
    (_S.FETCHING, NotHandedOver): ((GiveUp,), _S.ENDED),
    (_S.FETCHING, OwnerGone): ((ReadRow,), _S.READING),
    (_S.LOOKING, NothingFound): ((RecordFirst,), _S.RECORDING),
    (_S.LOOKING, RecordOutdated): ((ReadRow,), _S.COMPARING),
    (_S.LOOKING, Unavailable): ((GiveUp,), _S.ENDED),
    (_S.RECORDING, Recorded): ((Create,), _S.CREATING),
    (_S.RECORDING, RecordOutdated): ((ReadRow,), _S.COMPARING),
    (_S.RECORDING, Unavailable): ((GiveUp,), _S.ENDED),
    (_S.COMPARING, RowUnchanged): ((RecordFirst,), _S.RECORDING),
    (_S.COMPARING, RowLost): ((FindCheckpoint,), _S.FINDING),
    (_S.COMPARING, NotHandedOver): ((GiveUp,), _S.ENDED),
    **_by_row(_S.COMPARING),
    (_S.CREATING, Won): ((ServeNew,), _S.ENDED),
    **_by_row(_S.CREATING),
    (_S.FINDING, Found): ((TakeOver,), _S.TAKING_OVER),
    (_S.FINDING, SessionUnrecoverable): ((DeclareLost,), _S.ENDED),
    (_S.FINDING, NothingToTakeOver): ((RecordFirst,), _S.RECORDING),
    (_S.FINDING, Unavailable): ((GiveUp,), _S.ENDED),
    (_S.TAKING_OVER, Won): ((ServeRebuilt,), _S.ENDED),
    (_S.TAKING_OVER, Unavailable): ((GiveUp,), _S.ENDED),
    (_S.QUEUED, Dequeued): ((FindLaterCheckpoint,), _S.CHECKING),
    (_S.CHECKING, NothingFound): ((ClaimNext,), _S.ACTIVATING),
    (_S.CHECKING, CopyInDoubt): ((ReadRow,), _S.READING),
    (_S.CHECKING, RecordOutdated): ((DropCopy,), _S.ENDED),
    (_S.CHECKING, Unavailable): ((GiveUp,), _S.ENDED),
    (_S.ACTIVATING, Won): ((ServeActivated,), _S.ENDED),
    (_S.ACTIVATING, CopyToActivate): ((FindLaterCheckpoint,), _S.CHECKING),
    (_S.ACTIVATING, CopyOutlived): ((ReleaseCopy,), _S.ENDED),
    (_S.ACTIVATING, CopyInDoubt): ((ReadRow,), _S.READING),
    (_S.ACTIVATING, RowBehind): ((), _S.ENDED),
    (_S.ACTIVATING, Unavailable): ((GiveUp,), _S.ENDED),
    (_S.CONFIRMING, NothingFound): ((StoreCopy,), _S.STORING),
    (_S.CONFIRMING, RecordOutdated): ((DropCopy,), _S.ENDED),
    (_S.CONFIRMING, Unavailable): ((GiveUp,), _S.ENDED),
    (_S.STORING, Stored): ((CommitCopy,), _S.COMMITTING),
    (_S.STORING, StoreFailed): ((), _S.ENDED),
    (_S.COMMITTING, Won): ((ServeCommitted,), _S.ENDED),
    **_by_row(_S.COMMITTING),
}


class Acquisition(TableMachine[AcquisitionInput, AcquisitionEffect]):
    """One session on its way to be served here.

    Args:
        session: the session.
        proxy: this proxy.
        incarnation: the lease under which it is acquired: it ends with it.
        copy_epoch: of the copy that is here; NO_EPOCH: there is none.
    """

    table = TABLE
    ended = AcquisitionState.ENDED

    def __init__(
        self, session: SessionId, proxy: ProxyId, incarnation: Incarnation, copy_epoch: Epoch = NO_EPOCH
    ) -> None:
        super().__init__(AcquisitionState.WANTED)
        self.session = session
        self.proxy = proxy
        self.incarnation = incarnation
        self.copy_epoch = copy_epoch
        self.content_epoch: int = copy_epoch
        """The epoch of what the copy holds."""
        self.row: Ownership | None = None
        """What the registry had when the present way was chosen."""
        self.refusal: NotHandedOver | None = None
        """An owner that did not hand the session over, and why."""
        self.outdated: RecordOutdated | None = None
        """A checkpoint of the name which the registry knows nothing of."""
        self.lost_epoch = NO_EPOCH
        """The epoch of a row of the session that the registry has lost, as far as this proxy knows."""
        self.may_be_elsewhere = False
        """A changelog that could not be read may have a session of that name."""
        self.is_row_lost = False
        """The copy is served only if no changelog of any site has something later: the registry has lost its row."""
        self.checkpoint: Checkpoint | None = None
        """The session's last one, or the last one of this proxy's ownership, once it was found."""
        self.chosen = NO_EPOCH
        """The epoch that was chosen for the compare-and-set under way; NO_EPOCH: none is."""

    def copy_found(self, epoch: Epoch, content_epoch: int) -> None:
        """Note that a copy of the session is here. If its epoch differs from the one known before, keys that
        :meth:`key` has returned are void. The state does not change.

        Args:
            epoch: of the copy.
            content_epoch: the epoch of what it holds, which is lower where the copy was to be served at `epoch`, and
                has not been yet.
        """
        self.copy_epoch, self.content_epoch = epoch, content_epoch

    def row_lost(self, epoch: Epoch) -> None:
        """Note the epoch of a row of the session that the registry has lost; NO_EPOCH: it has lost none. The next
        choice of an epoch takes it into account (handover rule 28); the state does not change.
        """
        self.lost_epoch = epoch

    def key(self, attempt: int) -> ReplyKey:
        """Return the key of a question. An answer counts only if :meth:`key` still returns the same when the answer
        comes.

        Args:
            attempt: the number of the question, which no other question of this proxy has.
        """
        return ReplyKey(self.session, self.copy_epoch, self.incarnation, attempt)

    @property
    def epoch(self) -> Epoch:
        """The epoch at which the session is served here if the compare-and-set under way succeeds.

        The epoch is chosen once: what is learnt while the registry answers changes nothing of what was claimed. While
        none is chosen, it is the one that would be chosen now (handover rules 1, 22 and 28).
        """
        return self.chosen or self._next_epoch()

    @property
    def has_no_row(self) -> bool:
        """Whether the registry, as read last, has no row of a live session: no row, or that of a deleted session. If a
        live session of the name is known, its row is lost (handover rule 28).
        """
        return self.row is None or self.row.deleted

    def is_outdated_by(self, epoch: Epoch, serial: int) -> bool:
        """Tell whether a checkpoint in a changelog counts more than the copy that is here, or than what would be made
        here (handover rules 19 and 28). The answer depends on the state.

        In CONFIRMING only a checkpoint of an owner counts, from the copy's epoch on. In CHECKING only one of an owner
        counts, above the epochs of the copy and of the row. In all other states every checkpoint of an owner counts,
        and a first one of a later epoch than :attr:`epoch`.

        Args:
            epoch: the ownership epoch in which the checkpoint was written.
            serial: its number within that epoch; 0: a first one, which was written before the session had its row.
                An owner writes those above 0.
        """
        if self.state is AcquisitionState.CONFIRMING:
            # At its epoch, too: then the source took the session back, or this copy was committed before.
            return serial > 0 and epoch >= self.copy_epoch
        if self.state is AcquisitionState.CHECKING:
            # Where the row is ours, an earlier incarnation of ours wrote it, which served at the row's epoch.
            return serial > 0 and epoch > max(self.copy_epoch, self.row.epoch if self.row else NO_EPOCH)
        return serial > 0 or epoch > self.epoch

    @property
    def has_skipped_epochs(self) -> bool:
        """Whether epochs lie between that of what the copy holds and that of the row, which another proxy may have had:
        the copy is from before that, if the disk has not kept its last writes.
        """
        return bool(self.copy_epoch) and self.row is not None and self.row.epoch > self.content_epoch + 1

    def _next_epoch(self) -> Epoch:
        """Return the epoch behind all that is known (handover rules 1, 22 and 28): the row's, the copy's, the
        checkpoint's, and that of a row which the registry has lost. A session that is made in the place of a lost one,
        or of one that may be where nobody could look, is of the next generation.
        """
        # A first one is nobody's: at its epoch nobody has served, unless the row says so.
        found = self.checkpoint.epoch if self.checkpoint and self.checkpoint.serial else NO_EPOCH
        known = max(self.row.epoch if self.row else NO_EPOCH, self.copy_epoch, found)
        lost = max(self.outdated.epoch if self.outdated else NO_EPOCH, self.lost_epoch)
        if self.row is None or self.row.deleted:
            if not self.copy_epoch and not found and (lost or self.may_be_elsewhere):
                # Made anew, of a later generation than what is lost: else its own checkpoints would count less.
                lost = Ownership(NO_PROXY, max(known, lost)).gone().epoch
        elif self.row.is_later_generation_than(lost) or Ownership(NO_PROXY, lost).is_later_generation_than(
            self.row.epoch
        ):
            lost = NO_EPOCH
        return Epoch(max(known, lost) + 1)

    def remember(self, input: AcquisitionInput) -> None:
        """Keep the row, refusal or checkpoint of an accepted input. Called by :meth:`step`.

        An input whose row is kept discards what was known before: the outdated record, the chosen epoch, and the
        checkpoint, which only CopyToActivate leaves. RecordOutdated discards the chosen epoch. The refusal of an owner
        stays.
        """
        match input:
            case (
                RowAbsent(row=row)
                | OwnedElsewhere(row=row)
                | OwnerEnded(row=row)
                | CopyToCheck(row=row)
                | CopyToCommit(row=row)
                | CopyToActivate(row=row)
            ):
                # Another way: what was known of the way before counts no more.
                self.row, self.outdated, self.chosen = row, None, NO_EPOCH
                self.checkpoint = self.checkpoint if isinstance(input, CopyToActivate) else None
                self.may_be_elsewhere, self.is_row_lost = False, isinstance(input, CopyToCheck)
            case NothingFound(is_certain=is_certain, checkpoint=checkpoint):
                self.may_be_elsewhere, self.checkpoint = not is_certain, checkpoint
            case NotHandedOver():
                self.refusal = input
            case RecordOutdated():
                self.outdated, self.chosen = input, NO_EPOCH
            case Found(checkpoint=checkpoint):
                self.checkpoint = checkpoint
            case _:
                pass

    def effect(self, kind: type[Any], input: AcquisitionInput) -> AcquisitionEffect:
        """Return the effect of this kind, with its fields; effects that lead to a claim choose its epoch. Called by
        :meth:`step`.

        Args:
            kind: the class of the effect, from the table.
            input: the accepted input.
        """
        if kind is GiveUp:
            return GiveUp(self._why_not(input))
        if kind is Fetch:
            return Fetch(input.owner if isinstance(input, OwnerWatched) else self._known())
        if kind is FindLaterCheckpoint:
            is_orphan = self.state is AcquisitionState.CONFIRMING
            return FindLaterCheckpoint(self.is_row_lost or is_orphan or self.has_skipped_epochs)
        if kind in (RecordFirst, TakeOver, ClaimNext):
            self.chosen = self._next_epoch()
        if kind is RecordFirst:
            return RecordFirst(self.epoch)
        if kind is Create:
            return Create(self.row, self.epoch)
        if kind is ClaimNext:
            return ClaimNext(self.row)
        if kind is CommitCopy:
            return CommitCopy(self.row)
        if kind is ServeActivated:
            return ServeActivated(self.checkpoint)
        match input:
            case Found():
                return TakeOver(self.row)
            case SessionUnrecoverable(why=why):
                return DeclareLost(self._known(), why)
            case CopyOutlived(row=row):
                return ReleaseCopy(row)
            case Won() if kind is ServeRebuilt and self.checkpoint is not None:
                return ServeRebuilt(self.checkpoint)
        return super().effect(kind, input)

    def _why_not(self, input: AcquisitionInput) -> Reason:
        match input:
            case Unavailable(reason=reason):
                return reason
            case NotHandedOver(lost=lost):
                return not_to_be_had(self.session, lost)
            case _:
                pass
        return not_to_be_had(self.session)

    def _known(self) -> Ownership:
        assert self.row is not None, f"{self.session} in {self.state}: no row is known"
        return self.row


def session_lost(session: SessionId, why: str) -> SessionLost:
    """Return the refusal for a session that no proxy has any more; it is never served empty.

    Args:
        session: the session.
        why: how that is known, for people.
    """
    return SessionLost(f"session {session} was lost: {why}; waypost sessions rm {session} lets it begin anew")


def not_to_be_had(session: SessionId, lost: str | None = None) -> Reason:
    """Return why a session that its owner did not hand over cannot be had.

    Args:
        session: the session.
        lost: why no proxy has it any more, as the owner says; None: it may be tried again.
    """
    return RetryLater("the session could not be handed over yet") if lost is None else session_lost(session, lost)
