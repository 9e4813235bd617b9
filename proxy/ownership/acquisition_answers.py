"""What an answer, or the registry's row, means for an acquisition in its present state.

Nothing is asked or written here. What is found out about the registry's rows is noted in
:class:`proxy.core.registry_memory.RegistryMemory`: that a row is lost, and since when an older one has stood.
"""

from __future__ import annotations

from typing import NamedTuple

from federation.ports import Claimed
from handover import acquisition_inputs as inputs
from handover import acquisition_rows
from handover.acquisition import NO_EPOCH
from handover.acquisition import AcquisitionState as State
from handover.acquisition_inputs import AcquisitionInput, NoSuchSession, RetryLater, Unavailable
from proxy.core.effects import FoundCheckpoint
from proxy.core.environment import Environment
from proxy.core.session_table import SessionTable
from proxy.ownership.running_acquisition import RunningAcquisition
from proxy.session.role import Role
from proxy.session.session import Session
from waypost.checkpoint import Checkpoint
from waypost.errors import CheckpointOutdated, StoreFailed, UnexpectedInput, WaypostError
from waypost.identity import Epoch, Ownership, SessionId

NO_LEASE = "this proxy has no lease at the moment"
NO_REGISTRY = "the registry does not answer"


class RowReading(NamedTuple):
    """What the registry's row means for an acquisition, where the row was read from the registry.

    Args:
        copy: the copy of the session that is here; None: there is none.
        creates: whether a session is to be made, by the input.
    """

    input: AcquisitionInput
    copy: Session | None = None
    creates: bool = False


class AcquisitionAnswers:
    """Reads what registry and changelogs say, as the machine of `handover/acquisition.py` takes it."""

    def __init__(self, env: Environment, sessions: SessionTable) -> None:
        self._env = env
        self._sessions = sessions

    def reading_of(self, running: RunningAcquisition, answer: object) -> AcquisitionInput | RowReading:  # noqa: PLR0912 - a dispatch
        """Return what an answer means to the machine of an acquisition in its present state: a :class:`RowReading` if
        it is decided anew by the registry's row.

        The caller checks that the answer belongs to the question of this state.

        Args:
            running: the acquisition.
            answer: while the owner is asked, OwnerGone or NotHandedOver, and nothing else but Unavailable; while the
                registry is, Claimed, or Ownership or None, or an error; while the changelogs are, FoundCheckpoint or an
                error, and None or an error of a first checkpoint; while the store is, None or an error. Unavailable in
                any state; it is returned as it is.

        Raises:
            UnexpectedInput: the answer is a Claimed that was not won, and this state claims nothing.
        """
        machine = running.machine
        if isinstance(answer, Unavailable):
            return answer
        if isinstance(answer, StoreFailed) and machine.state is not State.STORING:
            return Unavailable(RetryLater(f"the proxy's disk takes nothing: {answer.message}"))
        won = isinstance(answer, Claimed) and answer.won
        row = answer.current if isinstance(answer, Claimed) else None
        match machine.state:
            case State.ASKING | State.FETCHING:
                assert isinstance(answer, inputs.OwnerGone | inputs.NotHandedOver)
                return answer
            case State.READING:
                return self._read_input(running, answer)
            case State.COMPARING:
                return self._compared_input(running, answer)
            case State.LOOKING:
                return self._looked_input(running, answer)
            case State.CHECKING | State.CONFIRMING:
                return _checked_input(running, answer)
            case State.RECORDING:
                return _recorded_input(answer)
            case State.FINDING:
                return self._found_input(running, answer)
            case State.STORING:
                return inputs.Stored() if answer is None else inputs.StoreFailed()
            case _ if won:
                return inputs.Won()
            case _ if not isinstance(answer, Claimed):
                return Unavailable(RetryLater(NO_REGISTRY))
            case State.CREATING:
                return Unavailable(RetryLater(NO_REGISTRY)) if row is None else self._row_reading(running, row)
            case State.TAKING_OVER:
                # Also if the row is as we wanted it: an earlier incarnation of ours may have served at that epoch.
                return Unavailable(RetryLater("another proxy took the session over"))
            case State.ACTIVATING:
                claimed_from = Epoch(machine.epoch - 1)
                return acquisition_rows.activation_input(claimed_from, machine.proxy, row)
            case State.COMMITTING:
                source = running.copy.source if running.copy is not None else None
                return acquisition_rows.orphan_input(
                    machine.copy_epoch, machine.proxy, source, row, read=False, is_last=False
                )
            case _:
                pass
        raise UnexpectedInput(f"nobody asks anything in {machine.state}")

    def _read_input(self, running: RunningAcquisition, answer: object) -> AcquisitionInput | RowReading:
        if isinstance(answer, WaypostError):
            return Unavailable(RetryLater(NO_REGISTRY))
        assert answer is None or isinstance(answer, Ownership)
        refusal = running.machine.refusal
        if refusal is not None and answer == refusal.owner and self.lives_elsewhere(answer):
            return refusal
        return self._row_reading(running, answer)

    def _looked_input(self, running: RunningAcquisition, answer: object) -> AcquisitionInput:
        """Return what the changelogs say of a session that has no row."""
        machine, lost = running.machine, self._env.registry_memory.lost_row(running.machine.session)
        if not isinstance(answer, FoundCheckpoint):
            return Unavailable(RetryLater("the changelogs cannot be read yet"))
        for found in filter(None, (answer.last_of_owner, answer.last)):
            if machine.is_outdated_by(found.epoch, found.serial) and not _is_outlived(found, machine.row, lost):
                return inputs.RecordOutdated(found.epoch, by_owner=found.serial > 0)
        if not answer.complete:
            # The changelog that has it may be the one that is away.
            if not running.request.create:
                return Unavailable(RetryLater("the changelog of a site does not answer, and may have the session"))
            is_lost = lost is not None and not lost.deleted
            if is_lost and not self._env.registry_memory.is_final(machine.session, machine.row, allow_activation=True):
                return inputs.ROLLED_BACK
        return self._unless_only_wanted(running, inputs.NothingFound(is_certain=answer.complete))

    def _compared_input(self, running: RunningAcquisition, answer: object) -> AcquisitionInput | RowReading:
        """The registry has lost a session of that name. Who serves it may live, and is to write its row again first."""
        machine, memory = running.machine, self._env.registry_memory
        if isinstance(answer, WaypostError) or answer != machine.row:
            return self._read_input(running, answer)
        if machine.outdated is None or not machine.outdated.by_owner:
            return self._unless_only_wanted(running, inputs.RowUnchanged())
        if not self._env.cluster.is_watching:
            return Unavailable(RetryLater(NO_LEASE))
        if not memory.is_final(machine.session, machine.row, allow_activation=True):
            return inputs.ROLLED_BACK
        return inputs.RowLost()

    def _found_input(self, running: RunningAcquisition, answer: object) -> AcquisitionInput:
        """Return what the changelogs say of a session whose row names a dead owner, or us without data, or is lost."""
        machine = running.machine
        lost = self._env.registry_memory.lost_row(machine.session) if machine.has_no_row else None
        owner = lost if machine.has_no_row else machine.row
        unread = Unavailable(
            RetryLater("the session's last checkpoint cannot be read yet: the changelog of a site does not answer")
        )
        if not isinstance(answer, FoundCheckpoint):
            return unread
        found = answer.last_of_owner if machine.row is None or machine.row.deleted else answer.last_under(machine.row)
        if owner is None or not _is_owners(found, owner):
            if answer.damaged and answer.complete:
                return self._not_in_changelogs(running, answer.damaged)
            if not answer.complete:
                return unread
        if found is None or _is_outlived(found, machine.row, lost):
            return self._not_in_changelogs(running, "no changelog has a checkpoint of it")
        if answer.noted is not None and found.rank < answer.noted:
            why = "the changelog has lost its last checkpoint, and with it what clients were answered"
            return self._not_in_changelogs(running, why)
        if machine.has_no_row:
            return inputs.Found(found)
        if (
            owner is not None
            and has_later_owner(found, owner)
            and not self._env.registry_memory.is_final(machine.session, owner)
        ):
            return inputs.ROLLED_BACK
        return inputs.Found(found)

    def _not_in_changelogs(self, running: RunningAcquisition, why: str) -> AcquisitionInput:
        """A session whose row the registry has lost too is made anew. An owner whose lease has ended may have it on its
        disk, and is waited for before the session counts as lost.
        """
        machine = running.machine
        if machine.has_no_row:
            return self._unless_only_wanted(running, inputs.NothingToTakeOver())
        assert machine.row is not None
        may_come_back = machine.row.proxy != self._env.proxy
        if may_come_back and not self._env.registry_memory.is_final(
            machine.session, machine.row, allow_activation=True
        ):
            holder = f"proxy {machine.row.proxy}, whose lease has ended, may have it on its disk"
            return Unavailable(RetryLater(f"{why}; {holder}"))
        return inputs.SessionUnrecoverable(why)

    def _unless_only_wanted(self, running: RunningAcquisition, input: AcquisitionInput) -> AcquisitionInput:
        """Return the input by which the session is made, unless whoever wants it means one that there is."""
        return input if running.request.create else Unavailable(NoSuchSession())

    # ------------------------------------------------------------ what a row means

    def _row_reading(self, running: RunningAcquisition, row: Ownership | None) -> RowReading:
        """Return what the registry's row means for a session that is wanted here and not served here."""
        copy = self._sessions.get(running.machine.session)
        if copy is not None:
            return RowReading(self.copy_input(copy, row, read=True), copy)
        if row is None or row.deleted:
            return self._absent_reading(running, row)
        return RowReading(self._owned_input(running.machine.session, row))

    def _owned_input(self, session: SessionId, row: Ownership) -> AcquisitionInput:
        """Return what the row of a session means of which there is no copy here."""
        if self._had_later_row(session, row, row.epoch):
            return inputs.ROLLED_BACK
        if self.lives_elsewhere(row):
            return inputs.OwnedElsewhere(row)
        if not self._is_gone(session, row):
            return Unavailable(RetryLater("the registry's watch is behind: the owner may be alive"))
        if not self._env.lease.may_serve() or not self._env.cluster.is_watching:
            return Unavailable(RetryLater(NO_LEASE))
        return inputs.OwnerEnded(row)

    def copy_input(self, copy: Session, row: Ownership | None, *, read: bool) -> AcquisitionInput:
        """Return what a row means for the acquisition of a session that has a copy here; nothing is claimed by it.

        An older row, of a registry that was restored from an older copy, counts once nobody corrects it any more
        (:meth:`RegistryMemory.is_final`).

        Args:
            copy: the copy that is here.
            row: the session's row; None: there is none.
            read: whether the row was read from the registry; False: it is as the watch reported.
        """
        proxy, epoch = self._env.proxy, copy.epoch
        if copy.role is Role.SERVING:
            is_served = self._sessions.serving(copy.id) is copy
            return inputs.CopyServed() if is_served else Unavailable(RetryLater(NO_LEASE))
        if copy.role not in (Role.DORMANT, Role.ORPHAN):
            return inputs.CopyInTransfer()
        lost = self._env.registry_memory.lost_row(copy.id)
        if copy.role is Role.ORPHAN and lost is not None and lost.epoch >= epoch and lost.proxy != proxy:
            # Somebody has served since the cut.
            return inputs.CopySuperseded()
        if lost is not None and lost.is_later_generation_than(epoch):
            # It is of a session that was deleted before the lost one was made (handover rule 22).
            return inputs.CopyOutlived(lost)
        if self._had_later_row(copy.id, row, epoch):
            return inputs.ROLLED_BACK
        if copy.role is Role.DORMANT:
            is_row_before_copy = (read or row is not None) and acquisition_rows.is_row_before_copy(epoch, proxy, row)
            is_final = is_row_before_copy and self._env.registry_memory.is_final(copy.id, row)
            if is_final and not copy.was_served and row is not None and self.lives_elsewhere(row):
                return inputs.CopyOutlived(row)
            input = acquisition_rows.dormant_input(
                epoch, proxy, row, read=read, was_served=copy.was_served, is_final=is_final
            )
        else:
            is_final = (
                read and (row is None or row.epoch + 1 < epoch) and self._env.registry_memory.is_final(copy.id, row)
            )
            is_final = is_final and (row is None or not self.lives_elsewhere(row))
            input = acquisition_rows.orphan_input(epoch, proxy, copy.source, row, read=read, is_last=is_final)
        takes = isinstance(input, inputs.CopyToActivate | inputs.CopyToCheck | inputs.CopyToCommit)
        return Unavailable(RetryLater(NO_LEASE)) if takes and not self._env.lease.may_serve() else input

    def _absent_reading(self, running: RunningAcquisition, row: Ownership | None) -> RowReading:
        """Return whether the session is made here, in the place of one that was deleted, if there was one."""
        request, session = running.request, running.machine.session
        known = self._env.cluster.owners.get(session)
        if known is not None and not known.deleted and (row is None or row.epoch < known.epoch):
            # The watch has not told of it yet that the registry was restored, or is another.
            self._env.registry_memory.row_lost(session, known)
        if self._env.registry_memory.awaits_row_repair:
            why = "the registry has lost rows: the session may be one that there is"
        elif not self._env.lease.may_serve():
            why = NO_LEASE
        elif not request.create:
            # There is none, unless some changelog says otherwise.
            return RowReading(inputs.RowAbsent(row))
        elif len(self._sessions) >= self._env.settings.max_sessions:
            why = "this proxy has as many sessions as it may; attach at another one"
        else:
            return RowReading(inputs.RowAbsent(row), creates=True)
        return RowReading(Unavailable(RetryLater(why)))

    def _had_later_row(self, session: SessionId, row: Ownership | None, epoch: Epoch) -> bool:
        """Tell whether the registry had a later row than this one and than what is here, which somebody may correct."""
        lost = self._env.registry_memory.lost_row(session)
        is_older = lost is not None and lost.epoch > max(epoch, row.epoch if row is not None else NO_EPOCH)
        return is_older and not self._env.registry_memory.is_final(session, row)

    def lives_elsewhere(self, owner: Ownership) -> bool:
        """Tell whether a row names another proxy, and the watch shows that proxy's lease as not ended."""
        return not owner.deleted and owner.proxy != self._env.proxy and self._env.cluster.alive(owner.proxy)

    def _is_gone(self, session: SessionId, owner: Ownership) -> bool:
        """Tell whether the incarnation that took this very epoch has certainly ended: the watch shows no incarnation of
        the owner.

        It says so of that incarnation only once it has told of the row (handover rule 26): what it told before may be
        the end of an earlier one, and the owner may serve under its next lease. Where the row is ours, nobody else
        serves.
        """
        return owner.proxy == self._env.proxy or self._env.cluster.has_seen(session, owner)


def _recorded_input(answer: object) -> AcquisitionInput:
    if isinstance(answer, CheckpointOutdated):
        return inputs.RecordOutdated(Epoch(answer.epoch), answer.by_owner)
    return inputs.Recorded() if answer is None else Unavailable(RetryLater("the changelog does not answer"))


def _checked_input(running: RunningAcquisition, answer: object) -> AcquisitionInput:
    """Return what the changelogs say of a copy that is to be activated, or committed.

    A site that is away is not waited for; nor is this one's changelog, unless the row is lost, or another proxy may
    have owned the session after this copy: what the registry says counts then.
    """
    machine = running.machine
    if not isinstance(answer, FoundCheckpoint):
        if machine.is_row_lost or machine.has_skipped_epochs:
            return Unavailable(RetryLater("the changelogs cannot be read yet"))
        return inputs.NothingFound(is_certain=False)
    found = answer.last_of_owner
    if machine.has_skipped_epochs and not answer.complete and not _is_of_epoch(found, machine.row):
        return Unavailable(
            RetryLater("the changelog of a site does not answer, and may have what came after this copy")
        )
    if found is not None and machine.is_outdated_by(found.epoch, found.serial):
        if running.is_row_read or machine.state is State.CONFIRMING:
            return inputs.RecordOutdated(found.epoch, by_owner=True)
        return inputs.CopyInDoubt()
    checkpoint = found if found is not None and found.epoch >= machine.content_epoch else None
    return inputs.NothingFound(is_certain=answer.complete and not answer.damaged, checkpoint=checkpoint)


def _is_of_epoch(found: Checkpoint | None, row: Ownership | None) -> bool:
    """Tell whether the checkpoint is of the row's epoch: no later one can be anywhere."""
    return found is not None and row is not None and found.epoch == row.epoch


def _is_outlived(found: Checkpoint, *rows: Ownership | None) -> bool:
    """Tell whether the checkpoint is of a session that was deleted before that of one of these rows was made."""
    return any(row is not None and row.is_later_generation_than(found.epoch) for row in rows)


def has_later_owner(found: Checkpoint, row: Ownership) -> bool:
    """Tell whether the checkpoint is of an owner of a later epoch than the row: the registry has gone back.

    False for a first checkpoint (serial 0): whoever tries to create the session writes it, and lets nobody in before a
    second one.
    """
    return found.epoch > row.epoch and found.serial > 0


def _is_owners(last: Checkpoint | None, row: Ownership) -> bool:
    """Tell whether nothing newer can be anywhere else: it is the owner's own, of its very epoch.

    Else all changelogs must have been read. The registry's watch has reported all of them, because a site's changelog
    is registered before its first session is. A first checkpoint is nobody's: each proxy that tried to create the
    session has written one of that epoch, and the one that succeeded may have written others since.
    """
    return not row.deleted and last is not None and last.epoch == row.epoch and last.serial > 0
