"""Sessions on their way to be served here: the machine of `handover/acquisition.py`, joined to registry and changelog.

Every question has a key, and :meth:`Acquisitions._waiting_for` is the one place where an answer finds who asked: one
that was asked for something that has changed since is refused there, and counted by what has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import assert_never

from handover import acquisition
from handover import acquisition_effects as effects
from handover import acquisition_inputs as inputs
from handover.acquisition import NO_EPOCH, Acquisition, ReplyKey, StaleReply, session_lost
from handover.acquisition import AcquisitionState as State
from handover.acquisition_effects import AcquisitionEffect, Conclusion, CopyConclusion
from handover.acquisition_inputs import AcquisitionInput, RetryLater, Unavailable
from proxy.core.effects import LOOK_MS, FindCheckpoint, FoundCheckpoint, ReadRow, claim_row
from proxy.core.environment import Environment
from proxy.core.events import AcquireRequest, FetchRequested, SessionServed, SessionUnavailable, TransferFailed
from proxy.core.output import Output
from proxy.core.session_table import SessionTable
from proxy.ownership.acquisition_answers import NO_LEASE, AcquisitionAnswers, RowReading
from proxy.ownership.activation_queue import ActivationQueue
from proxy.ownership.creation_rate import CreationRate
from proxy.ownership.running_acquisition import RunningAcquisition
from proxy.ownership.served_sessions import ServedSessions
from proxy.ownership.stale_replies import refuse, why_stale
from proxy.session import best_effort
from proxy.session.role import Role
from proxy.session.session import Session
from proxy.stream.persister import Persister
from waypost import facts
from waypost.checkpoint import Checkpoint
from waypost.errors import WaypostError
from waypost.identity import Epoch, Ownership, SessionId

OF_A_COPY = frozenset(
    (State.CHECKING, State.QUEUED, State.ACTIVATING, State.CONFIRMING, State.STORING, State.COMMITTING)
)
"""States of an acquisition whose copy is to be served as it is."""


class Acquisitions:
    """All acquisitions of this proxy, one a session at most."""

    def __init__(
        self, env: Environment, sessions: SessionTable, output: Output, persister: Persister, served: ServedSessions
    ) -> None:
        self._env = env
        self._sessions = sessions
        self._output = output
        self._persister = persister
        self._served = served
        self._running: dict[SessionId, RunningAcquisition] = {}
        self._attempts = 0
        """Questions that were asked so far."""
        self._activations = ActivationQueue(self._env.settings.bounds.activations_at_once)
        self.answers = AcquisitionAnswers(env, sessions)
        self.creation_rate = CreationRate(env)

    # ------------------------------------------------------------ somebody wants a session

    def acquire(self, session: SessionId, request: AcquireRequest) -> None:
        """Acquire a session: by handover, activation, failover or creation, as its row allows.

        The owner that the watch names is asked at once. Another proxy may be the owner by now: then the registry is
        read, as where there is no owner to ask. A running acquisition goes on for this request too. The result is
        reported as the event SessionServed, RelayRequested or SessionUnavailable. No event comes where a transfer has
        the copy that is here, where the store did not take a staged copy, where the row is behind the copy, or after
        :meth:`fence`. The sweep finds such sessions.

        Args:
            session: the session.
            request: for which receiver, and whether to create the session.
        """
        running = self._current(session)
        if running is not None:
            running.request, running.is_waited_for = running.request.joined(request), True
            if running.machine.state is State.QUEUED:
                self._activations.join(session, is_waited_for=True)
            return
        owner = self._env.cluster.owners.get(session)
        running = self._begin(session, request, None)
        running.is_waited_for = True
        if owner is not None and session not in self._sessions and self.answers.lives_elsewhere(owner):
            self._feed(running, inputs.OwnerWatched(owner))
        else:
            self._feed(running, inputs.OwnerUnknown())

    def request_withdrawn(self, session: SessionId) -> None:
        """Do not create the session any more: the clients that waited for it have gone. A claim under way goes on."""
        running = self._current(session)
        if running is not None:
            running.request = running.request._replace(create=False)

    def not_handed_over(self, failed: TransferFailed) -> None:
        """Go on with the acquisition whose transfer to here came to nothing; without one, report SessionUnavailable."""
        session, owner, lost = failed.session, failed.owner, failed.lost
        running = self._current(session)
        if failed.key is not None:
            gone = not self._env.cluster.alive(owner.proxy)
            self._take_reply(failed.key, inputs.OwnerGone() if gone else inputs.NotHandedOver(owner, lost))
        if running is None:
            # It was the owner who offered the session, or who asked for it has gone: clients may wait all the same.
            self._output.report(SessionUnavailable(session, acquisition.not_to_be_had(session, lost)))

    def end_relayed(self, key: ReplyKey | None) -> bool:
        """End the acquisition of that key: the session stays at its owner. Return whether to relay its clients there.

        Args:
            key: None: the owner had offered the session, and nothing was asked for; the result is True.

        Returns:
            False: what was asked for has changed since; the answer is refused, and counted.
        """
        if key is None:
            return True
        running = self._waiting_for(key)
        if running is None:
            return False
        self.end(key.session)
        return True

    def activate(self, copy: Session, *, is_waited_for: bool = False) -> None:
        """Take the next epoch for a dormant copy, which the store says is ours, in its turn.

        Where the registry has lost a later row of the session, the copy is compared with the row that there is now
        instead (:meth:`compare`), also without a lease. Else without a lease nothing is done. An acquisition of the
        session that is past the row goes on as it is.

        Args:
            is_waited_for: a client or another proxy waits for the session: it goes before those that nobody waits for.
        """
        row, lost = Ownership(self._env.proxy, copy.epoch), self._env.registry_memory.lost_row(copy.id)
        if lost is not None and lost.epoch > copy.epoch:
            self.compare(copy, self._env.cluster.owners.get(copy.id))
        else:
            self.activate_after(copy, row, is_waited_for=is_waited_for)

    def activate_after(self, copy: Session, row: Ownership | None, *, is_waited_for: bool = False) -> None:
        """Take the next epoch after a known row, for a dormant copy, in its turn; without a lease nothing is done. An
        acquisition of the session that is past the row goes on as it is.

        The result is reported as the event SessionServed or SessionUnavailable; no event comes where the row is behind
        the copy: the claim is tried later.

        Args:
            row: the row on which the claim is based, as the registry has it or had it last; None: the registry has lost
                it, and the claim expects that there is none.
            is_waited_for: a client or another proxy waits for the session: it goes before those that nobody waits for.
        """
        if not self._env.lease.may_serve():
            return
        self._tell(copy, inputs.CopyToActivate(row), is_waited_for=is_waited_for)

    def compare(self, copy: Session, row: Ownership | None) -> None:
        """Compare a copy that is not served with its row, and activate, commit, drop or release it, or wait. An
        acquisition of the session that is past the row goes on as it is.

        Args:
            row: as the watch reports it; None: there is no row.
        """
        self._tell(copy, self.answers.copy_input(copy, row, read=False))

    def _tell(self, copy: Session, input: AcquisitionInput, *, is_waited_for: bool = False) -> None:
        """Tell the acquisition of a copy what its row means, unless it is past that; begin one if none runs.

        One that is still reading the row goes on by what it is told: what is read comes too late then.
        """
        running = self._current(copy.id)
        if running is None:
            running = self._begin(copy.id, AcquireRequest(), copy)
        elif is_waited_for and running.machine.state is State.QUEUED:
            self._activations.join(copy.id, is_waited_for=True)
            return
        elif running.machine.state is not State.READING or isinstance(input, inputs.CopyInDoubt):
            return
        else:
            running.copy_found(copy)
            running.attempt = self._next_attempt()
        running.is_row_read = False
        running.is_waited_for |= is_waited_for
        self._feed(running, input)

    def end(self, session: SessionId) -> None:
        """End the acquisition of a session, if one runs: the session is served here, or its clients are relayed."""
        self._running.pop(session, None)
        self._activations.leave(session)

    def fence(self) -> None:
        """End all acquisitions: the lease may have ended. Answers under way are refused when they come."""
        self._running.clear()
        self._activations.fence()

    # ------------------------------------------------------------ the machine

    def _begin(self, session: SessionId, request: AcquireRequest, copy: Session | None) -> RunningAcquisition:
        machine = Acquisition(
            session, self._env.proxy, self._env.lease.incarnation, copy.epoch if copy is not None else NO_EPOCH
        )
        running = self._running[session] = RunningAcquisition(machine, request, copy)
        return running

    def _current(self, session: SessionId) -> RunningAcquisition | None:
        """Return the acquisition that runs; one whose copy has gone meanwhile, or whose lease has, runs no more."""
        running = self._running.get(session)
        if running is not None and self._why_void(running) is not None:
            self.end(session)
            return None
        return running

    def _why_void(self, running: RunningAcquisition) -> StaleReply | None:
        """Return why nothing can come of an acquisition any more."""
        return why_stale(self._env.lease, running.machine.incarnation, is_same_copy=self._has_copy(running))

    def _has_copy(self, running: RunningAcquisition) -> bool:
        """Tell whether the copy of an acquisition is here, and no transfer has it; True also for one without a copy."""
        if running.machine.state not in OF_A_COPY:
            return True
        copy = self._sessions.get(running.machine.session)
        return copy is not None and copy is running.copy and copy.role in (Role.DORMANT, Role.ORPHAN)

    def _feed(self, running: RunningAcquisition, input: AcquisitionInput) -> None:
        """Give the machine an input, and perform what follows."""
        lost = self._env.registry_memory.lost_row(running.machine.session)
        running.machine.row_lost(NO_EPOCH if lost is None else lost.epoch)
        wanted = running.machine.step(input, self._env.time.now_ms)
        if running.machine.over:
            self.end(running.machine.session)
        for effect in wanted:
            self._perform(running, effect)

    def _perform(self, running: RunningAcquisition, effect: AcquisitionEffect) -> None:
        session = running.machine.session
        match effect:
            case effects.Fetch(owner=owner):
                running.attempt = self._next_attempt()
                key = running.machine.key(running.attempt)
                self._output.report(FetchRequested(session, owner, running.request, key))
            case effects.ReadRow():
                self._output.emit(ReadRow(session, self._reply(running)))
            case effects.LookForLost():
                self._look_for_lost(running)
            case effects.FindLaterCheckpoint(everywhere=everywhere):
                reply = self._in_turn(self._reply(running))
                self._output.emit(FindCheckpoint(session, reply, LOOK_MS, own_site=not everywhere))
            case effects.RecordFirst(epoch=epoch):
                reply = self._reply(running)
                record = partial(self._persister.checkpoints.write_first, self._new_session(session, epoch), reply)
                self._once_dropped(running, record, reply)
            case effects.Create(before=before, epoch=epoch):
                self._claim_in_place(running, before, Ownership(self._env.proxy, epoch))
            case effects.FindCheckpoint():
                reply = self._reply(running)
                self._once_dropped(running, partial(self._output.emit, FindCheckpoint(session, reply)), reply)
            case effects.TakeOver(row=row):
                self._claim_in_place(running, row, Ownership(self._env.proxy, running.machine.epoch))
            case effects.Enqueue():
                self._enqueue(running)
            case effects.ClaimNext(row=row):
                self._claim_next(running, row)
            case effects.StoreCopy():
                self._persister.store.save(self._reply(running))
            case effects.CommitCopy(row=row):
                own_row = Ownership(self._env.proxy, running.machine.copy_epoch)
                self._output.emit(claim_row(session, row, own_row, self._reply(running)))
            case _:
                self._conclude(running, effect)

    def _look_for_lost(self, running: RunningAcquisition) -> None:
        """Look whether some site's changelog has the session (handover rule 28). One that is away is not waited for.

        Our own says so itself when a first checkpoint is written; but not where the session is made in the place of a
        lost one: that is of the next generation, and counts more.
        """
        session, reply = running.machine.session, self._reply(running)
        is_only_site = self._env.cluster.changelogs.keys() <= {self._env.settings.site}
        if running.request.create and is_only_site and self._env.registry_memory.lost_row(session) is None:
            reply(FoundCheckpoint((), complete=True))
        else:
            self._output.emit(FindCheckpoint(session, reply, LOOK_MS))

    def _once_dropped(
        self, running: RunningAcquisition, begin: Callable[[], None], reply: Callable[[object], None]
    ) -> None:
        """Begin to make the session here, or to rebuild it, once the disk has no earlier copy of it any more."""
        session, key = running.machine.session, running.machine.key(running.attempt)

        def on_done(error: WaypostError | None) -> None:
            if error is None and self._why_stale(self._running.get(session), key) is None:
                begin()
            else:
                reply(error)

        self._persister.store.once_dropped(session, on_done)

    def _claim_in_place(self, running: RunningAcquisition, before: Ownership | None, own_row: Ownership) -> None:
        """Claim a session of which there is no copy here; not where one has come and gone meanwhile, and is written."""
        session, reply = running.machine.session, self._reply(running)
        if session in self._sessions or self._persister.store.is_dropping(session):
            reply(Unavailable(RetryLater("a copy of the session has come meanwhile")))
        else:
            self._output.emit(claim_row(session, before, own_row, reply))

    def _conclude(self, running: RunningAcquisition, effect: Conclusion | CopyConclusion) -> None:
        """Perform an effect with which an acquisition ends."""
        session = running.machine.session
        match effect:
            case effects.GiveUp(reason=reason):
                self._output.report(SessionUnavailable(session, reason))
            case effects.DeclareLost(row=row, why=why):
                self._env.registry_memory.declare_lost(session, row, why)
                self._output.report(SessionUnavailable(session, session_lost(session, why)))
            case effects.ServeNew():
                self._persister.store.replace_copy(session)
                new = self._new_session(session, running.machine.epoch)
                self._served.serve(new, new.epoch, facts.OwnedCause.CREATE)
            case effects.ServeRebuilt(checkpoint=checkpoint):
                self._rebuild(running.machine, checkpoint)
            case effects.ReportServed():
                self._output.report(SessionServed(self._sessions[session]))
            case _:
                assert running.copy is not None
                self._conclude_copy(running.machine, running.copy, effect)

    def _conclude_copy(self, machine: Acquisition, copy: Session, effect: CopyConclusion) -> None:
        """Perform an effect with which the acquisition ends of a session that has a copy here."""
        match effect:
            case effects.ServeActivated(checkpoint=checkpoint):
                self._output.counters.rows_lost += int(machine.row is None)
                if checkpoint is not None and _lacks_changes(copy, checkpoint):
                    self._served.withdraw(copy)
                    self._rebuild(machine, checkpoint)
                    return
                if checkpoint is not None:
                    copy.learn_acknowledged(checkpoint.descriptor.receivers)
                self._served.serve(copy, machine.epoch, facts.OwnedCause.RESTART)
            case effects.ServeCommitted():
                copy.become(Role.DORMANT)
                self._served.serve(copy, copy.epoch, facts.OwnedCause.HANDOVER)
            case effects.DropCopy():
                self._served.drop(copy)
                outdated = RetryLater("what is here of the session is not its latest")
                self._output.report(SessionUnavailable(copy.id, outdated))
            case effects.ReleaseCopy(row=row):
                # The copy in the store is not of this session (handover rule 22).
                self._served.release(copy, row)
            case _:
                assert_never(effect)

    def _new_session(self, session: SessionId, epoch: Epoch) -> Session:
        new = Session(session, epoch, Role.DORMANT)
        new.begin_at(self._env.state.frontier)
        return new

    def _rebuild(self, machine: Acquisition, checkpoint: Checkpoint) -> None:
        """Make the session from its checkpoint: every origin gated at what was acknowledged (failover)."""
        session = Session(machine.session, machine.epoch, Role.DORMANT)
        state = self._env.state
        session.describe(checkpoint.descriptor)
        best_effort.expire_unpersisted(session, checkpoint.acknowledged)
        session.renumber()
        session.begin_rebuilding()
        # The promises of an origin that the owner did not know any more, because its log had lost its end.
        acknowledged = state.continued({**session.subscriptions.promised_from(), **checkpoint.acknowledged})
        session.gates.close_all(state.frontier, seen=acknowledged)
        session.subscriptions.raise_promise_floors(acknowledged)
        self._persister.store.replace_copy(session.id)
        self._served.serve(session, session.epoch, facts.OwnedCause.FAILOVER)

    # ------------------------------------------------------------ copies that wait for their activation

    def _enqueue(self, running: RunningAcquisition) -> None:
        copy = running.copy
        if copy is not None and copy.role is Role.ORPHAN:
            copy.become(Role.DORMANT)
        self._activations.join(running.machine.session, is_waited_for=running.is_waited_for)
        self._dequeue_next()

    def _dequeue_next(self) -> None:
        while (session := self._activations.next()) is not None:
            running = self._current(session)
            if running is not None and running.machine.state is State.QUEUED:
                self._feed(running, inputs.Dequeued())

    def _claim_next(self, running: RunningAcquisition, row: Ownership | None) -> None:
        machine, copy = running.machine, running.copy
        assert copy is not None
        if row is not None:
            copy.raise_epoch(row.epoch)
        own_row = Ownership(self._env.proxy, machine.epoch)
        self._output.emit(claim_row(machine.session, row, own_row, self._in_turn(self._reply(running))))

    def _in_turn(self, reply: Callable[[object], None]) -> Callable[[object], None]:
        """Return what takes the answer to a question of which the line lets only so many be under way at a time."""
        self._activations.question_begins()

        def on_done(answer: object) -> None:
            self._activations.question_ends()
            reply(answer)
            self._dequeue_next()

        return on_done

    # ------------------------------------------------------------ answers

    def _reply(self, running: RunningAcquisition) -> Callable[[object], None]:
        """Return what takes the answer to the next question of the acquisition."""
        running.attempt = self._next_attempt()
        return partial(self._take_reply, running.machine.key(running.attempt))

    def _next_attempt(self) -> int:
        self._attempts += 1
        return self._attempts

    def _take_reply(self, key: ReplyKey, answer: object) -> None:
        """Take an answer, unless what it was asked for has changed since."""
        running = self._waiting_for(key)
        if running is None:
            return
        reading = self.answers.reading_of(running, answer)
        if isinstance(reading, RowReading):
            running.row_read(reading.copy)
            self._feed(running, self._input_of(reading))
        else:
            self._feed(running, reading)

    def _input_of(self, reading: RowReading) -> AcquisitionInput:
        """Return the input of a reading; no session is made beyond the rate."""
        if reading.creates and not self.creation_rate.take():
            return Unavailable(RetryLater("many sessions are being made here at the moment"))
        return reading.input

    def _waiting_for(self, key: ReplyKey) -> RunningAcquisition | None:
        """Return the acquisition that waits for the answer of that key.

        None: what was asked for has changed since. The answer is refused then, counted by what has changed, and nothing
        waits for it any more.
        """
        running = self._running.get(key.session)
        stale = self._why_stale(running, key)
        if not refuse(self._output.counters, stale):
            return running
        if running is not None and running.attempt == key.attempt:
            self.end(key.session)
            why = "the session has changed hands" if stale is StaleReply.ANOTHER_COPY else NO_LEASE
            self._output.report(SessionUnavailable(key.session, RetryLater(why)))
        return None

    def _why_stale(self, running: RunningAcquisition | None, key: ReplyKey) -> StaleReply | None:
        """Return what has changed since the question of that key was asked; None: nothing that matters."""
        return why_stale(
            self._env.lease,
            key.incarnation,
            is_same_attempt=running is not None and running.machine.key(running.attempt) == key,
            is_same_copy=running is not None and self._has_copy(running),
            needs_lease=True,
        )


def _lacks_changes(copy: Session, checkpoint: Checkpoint) -> bool:
    """Tell whether the copy from the disk lacks what the session's last checkpoint has, and on which a client may have
    been answered: the disk has not kept its last writes, as in a failure of power (F184). A checkpoint of a later epoch
    than what the copy holds may be another owner's.
    """
    epoch, _ = copy.checkpointed
    is_later = checkpoint.rank > copy.checkpointed
    return checkpoint.epoch > epoch or (is_later and not copy.descriptor().has_all_of(checkpoint.descriptor))
