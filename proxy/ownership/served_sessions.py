"""The sessions that this proxy serves: how serving begins, and the ways in which it ends."""

from __future__ import annotations

from federation.ports import Claimed
from handover.acquisition_inputs import RetryLater
from proxy.core import journal_facts
from proxy.core.effects import ClaimRow, Send, ignore_result
from proxy.core.environment import Environment
from proxy.core.events import NO_REQUESTER, OwnerRead, Requester, SessionServed, SessionUnavailable
from proxy.core.output import Output
from proxy.core.session_table import SessionTable
from proxy.ownership.copy_replies import CopyReplies
from proxy.session.role import Role
from proxy.session.session import Session
from proxy.stream.stream import Stream
from waypost.errors import ReceiverTaken, WaypostError
from waypost.facts import FactKind, OwnedCause
from waypost.identity import Epoch, Origin, Ownership, SessionId
from waypost.messages import AboutSession, Deleted, Moved, Problem, Wait, WaitCause

DELETED = "it was deleted; attach again to make a new one"
"""The reason for receivers of a session that somebody else has deleted."""


class ServedSessions:
    """Begins to serve a session once the registry names us, and stops before anybody else can."""

    def __init__(self, env: Environment, sessions: SessionTable, output: Output, stream: Stream) -> None:
        self._env = env
        self._sessions = sessions
        self._output = output
        self._persister = stream.persister
        self._coverage = stream.coverage
        self._replies = CopyReplies(env, sessions, output)
        self._reasons: dict[SessionId, tuple[Epoch, str]] = {}
        """Why we want sessions deleted, and the epoch at which we asked the registry."""

    def serve(self, session: Session, epoch: Epoch, cause: OwnedCause) -> None:
        """Serve the session from now on; the registry names us at this epoch.

        The start is attested, the session's interest registered and its checkpoint written; SessionServed is reported.

        Args:
            cause: how this proxy came to own the session.

        Raises:
            Internal: the session's role does not allow it (:meth:`Session.become`).
        """
        session.begin_serving(epoch, self._env.time.now_ms)
        self._env.registry_memory.forget(session.id)
        if self._sessions.get(session.id) is not session:
            self._sessions.put(session)
        self._env.cluster.owned_by(session.id, Ownership(self._env.proxy, epoch))
        self._sessions.mark_changed(session.id)
        if session.subscriptions.interest_expressions() or session.subscriptions.ended:
            self._sessions.interest.register(session)
        self._output.counters.served[cause] += 1
        self._output.journal.attest(FactKind.OWNED, session, cause=cause, frontier=self._env.frontier(session))
        session.bound(session.queue.within(self._env.settings.queue))
        journal_facts.restated(self._output.journal, session)
        journal_facts.lost_with_process(self._output.journal, session)
        self._persister.checkpoints.write(session, ignore_result)
        self._coverage.watch(session)
        self._coverage.advance(session)
        self._output.report(SessionServed(session))

    def delete(self, session: Session, reason: str) -> None:
        """Begin to delete a session that is served here: its row is claimed for nobody.

        The session goes when the registry's answer, or its watch, says so; a handover may have been first. Where the
        claim has failed, nothing changes.

        Args:
            reason: for people: the receivers and the journal are told.
        """

        def on_done(answer: Claimed | WaypostError) -> None:
            if not (isinstance(answer, Claimed) and answer.won):
                # A later deletion has a reason of its own.
                self._reasons.pop(session.id, None)
            if isinstance(answer, Claimed) and answer.current is not None:
                self._output.report(OwnerRead(session.id, answer.current))

        self._reasons[session.id] = session.epoch, reason
        own_row = Ownership(self._env.proxy, session.epoch)
        self._output.emit(ClaimRow(session.id, own_row, own_row.gone(), self._replies.to(session, on_done)))

    def release(self, session: Session, to: Ownership | None, taken_by: Requester = NO_REQUESTER) -> None:
        """Tell the attached receivers where the session went, or that it was deleted, and delete it here: the registry
        names another owner, or none. The release is attested, the deletion too, and SessionUnavailable reported.

        Args:
            to: the new row, of a deleted session too; None: not known, and receivers are told to wait.
            taken_by: the receiver for which it went, which attached there itself: another incarnation that is attached
                here by its name is told to stop.
        """
        frontier = self._env.frontier(session)
        if to is not None and to.deleted:
            self._say_deleted(session, frontier)
        self._output.journal.attest(FactKind.RELEASED, session, frontier=frontier)
        row = self._env.cluster.proxies.get(to.proxy) if to else None
        for receiver in session.receivers.values():
            if receiver.connection is None or (to is not None and to.deleted):
                continue
            if receiver.id == taken_by.receiver and receiver.incarnation != taken_by.incarnation:
                self._output.emit(Send(receiver.connection, taken(session.id, receiver.id)))
            elif row is not None:
                self._output.emit(Send(receiver.connection, Moved(session.id, row.proxy, row.url)))
            else:
                wait = Wait(WaitCause.MOVED, "the session has moved", self._env.settings.retry_ms)
                self._output.emit(Send(receiver.connection, wait))
        self.drop(session)
        self._output.report(SessionUnavailable(session.id, RetryLater("the session has moved")))

    def _say_deleted(self, session: Session, frontier: dict[Origin, int]) -> None:
        asked_at, reason = self._reasons.pop(session.id, (session.epoch, DELETED))
        if asked_at != session.epoch:
            # That deletion was not answered in its time; this one is somebody else's.
            reason = DELETED
        self._output.journal.attest(FactKind.DELETED, session, frontier=frontier, reason=reason)
        for receiver in session.receivers.values():
            if receiver.connection is not None:
                self._output.emit(Send(receiver.connection, Deleted(session.id, reason)))

    def sleep(self, session: Session, reason: str) -> None:
        """Change a served session to dormant until a later epoch is taken for it; its receivers are told to wait, and
        detached. SessionUnavailable is reported.

        Args:
            reason: for people: the receivers are told.

        Raises:
            Internal: the session's role does not allow it (:meth:`Session.become`).
        """
        for receiver in session.receivers.values():
            if receiver.connection is not None:
                self._output.emit(Send(receiver.connection, Wait(WaitCause.MOVED, reason, self._env.settings.retry_ms)))
            receiver.disconnect()
        session.become(Role.DORMANT)
        self._output.report(SessionUnavailable(session.id, RetryLater(reason)))

    def fence(self) -> None:
        """Stop serving all sessions until new epochs are taken under a new lease; their receivers are detached.

        Sessions that are frozen stay so: the end of their transfers changes their role.
        """
        for session in self._sessions.values():
            if session.role in (Role.SERVING, Role.FROZEN):
                for receiver in session.receivers.values():
                    receiver.disconnect()
            if session.role is Role.SERVING:
                session.become(Role.DORMANT)

    def drop(self, session: Session) -> None:
        """Delete this copy, also from the store, and withdraw its interest; nothing is done if it is not here."""
        if self.withdraw(session):
            self._persister.drop(session.id)

    def withdraw(self, session: Session) -> bool:
        """Remove this copy and withdraw its interest, but keep what the store has; its receivers are detached.

        Returns:
            False: the session table has no such copy, or another one, and nothing was done.
        """
        if self._sessions.get(session.id) is not session:
            return False
        self._sessions.remove(session.id)
        self._sessions.interest.withdraw(session.id)
        for receiver in session.receivers.values():
            # Later messages about this session must not reach the next one of its name, on the same connection.
            receiver.disconnect()
        return True


def taken(session: SessionId, receiver: str) -> Problem:
    """Return the message to a client whose receiver has attached on another connection: the newest attach counts."""
    hint = "give each client a receiver's name of its own"
    text = f"receiver {receiver} of session {session} attached somewhere else; {hint}"
    return Problem(ReceiverTaken.code, text, "receiver", AboutSession(session))
