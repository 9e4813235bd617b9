"""Changes of a session's access: in force at once, and answered once they would survive this proxy."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.clients.authorization import Authorizer, changed
from proxy.clients.connection import Connection, problem
from proxy.clients.durable_reply import DurableReplies
from proxy.core.effects import Send
from proxy.core.environment import Environment
from proxy.core.events import AccessAltered, AccessHashed
from proxy.core.output import Output
from proxy.core.session_table import SessionTable
from proxy.session.session import Session
from waypost.access import READ, described, grant_of
from waypost.clock import NEVER
from waypost.errors import Forbidden, Refused, WaypostError
from waypost.facts import FactKind
from waypost.identity import SessionId
from waypost.messages import AboutSession, AccessChanged, Granted, Problem, SetAccess, Wait, WaitCause


class AccessControl:
    """Changes the access of sessions that are served here.

    Args:
        durable_replies: answers the client once the change is durable.
        authorizer: hashes passwords, and checks who may change what.
    """

    def __init__(
        self,
        env: Environment,
        sessions: SessionTable,
        output: Output,
        durable_replies: DurableReplies,
        authorizer: Authorizer,
    ) -> None:
        self._env = env
        self._sessions = sessions
        self._output = output
        self._durable_replies = durable_replies
        self.authorizer = authorizer

    def set(self, connection: Connection, session: Session, message: SetAccess) -> None:
        """Begin to change the access of the connection's session: AccessHashed is reported once its passwords are
        hashed.

        Of several changes that a connection asks for at a time only the last one counts; the client is told that the
        others are refused.

        Raises:
            Refused: the change is not valid (:meth:`Authorizer.hash`); the one before it counts again.
        """
        before, attached = connection.access_change, connection.attached
        change = connection.access_requested(message.number)

        def hashed(hashes: dict[str, str] | WaypostError) -> None:
            if connection.access_change == change:
                self._output.report(AccessHashed(connection.number, attached, session, message, hashes))
            elif connection.access_change.number != message.number and not connection.is_closed:
                # Hashing takes its time: the later one may be in force already.
                overtaken = Refused("another change of the access was asked for since", field="number")
                self._send(connection, problem(overtaken, message))

        try:
            self.authorizer.hash(session, connection.principal, message.grants, hashed)
        except Refused:
            connection.access_refused(before)
            raise

    def hashed(self, connection: Connection, session: Session, message: SetAccess, hashes: Mapping[str, str]) -> None:
        """Put the change in force, now that its passwords are hashed; the client is answered once that is durable.

        Args:
            hashes: the hashes of the new passwords, by principal.

        Raises:
            Refused: the access has changed since the passwords were hashed, and the change does not fit it any more.
        """
        self.change(session, message.grants, hashes, connection.receiver or "")
        connection.password_changed(grant_of(session.access, connection.principal))
        done = AccessChanged(message.number)
        self._durable_replies.reply_when_durable(connection, session, message, lambda: self._send(connection, done))

    def _send(self, connection: Connection, message: AccessChanged | Problem) -> None:
        self._output.emit(Send(connection.number, message))

    def change(self, session: Session, grants: Mapping[str, Granted], hashes: Mapping[str, str], by: str = "") -> None:
        """Put a new access in force, and attest it; receivers that it does not admit are detached.

        Args:
            grants: the whole new access, by principal; empty: everybody may do everything.
            hashes: the hashes of the new passwords, by principal.
            by: the receiver that asks for it; empty: an operator.

        Raises:
            Refused: the access has changed since the passwords were hashed, and the change does not fit it any more.
        """
        session.set_access(changed(session.access, grants, hashes))
        self._output.journal.attest(FactKind.ACCESS, session, receiver=by, reason=described(session.access))
        self._sessions.mark_changed(session.id)
        self._output.report(AccessAltered(session))

    def why_detached(self, session: Session, connection: Connection) -> Problem | Wait | None:
        """Return what to tell a receiver that the session's access does not admit any more; None: it is admitted.

        A receiver whose principal may not read is told that its right was taken away. One whose principal has another
        password since it attached is told to wait, attaches again, and has to bring the new one; a token stays valid.

        Args:
            connection: of the receiver.
        """
        grant = grant_of(session.access, connection.principal)
        if grant is None or READ not in grant.rights:
            return _taken_away(session.id)
        if connection.until_ms == NEVER and grant.hash and grant.hash != connection.hash:
            return Wait(WaitCause.ACCESS_CHANGED, "the session's access was changed", self._env.settings.retry_ms)
        return None


def _taken_away(session: SessionId) -> Problem:
    text = f"the right to read session {session} was taken away; ask its owner for it"
    return Problem(Forbidden.code, text, "credential", AboutSession(session))
