"""Changes of a session's access: in force at once, and answered once they would survive this proxy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from proxy.clients.authorization import Authorizer, changed
from proxy.clients.connection import Connection, problem
from proxy.clients.durable_reply import DurableReplies
from proxy.core.context import Context
from proxy.core.effects import Send
from proxy.session.session import Session
from waypost.access import READ, described, grant_of
from waypost.clock import NEVER
from waypost.errors import Forbidden, Refused, WaypostError
from waypost.facts import FactKind
from waypost.identity import SessionId
from waypost.messages import AboutSession, AccessChanged, Granted, Problem, SetAccess, Wait

Connections = Mapping[int, Connection]


class AccessControl:
    """Changes the access of sessions that are served here.

    Args:
        connections: all connections of clients.
        session_of: returns the session of a connection, after a check that its principal may change it; None: the
            session is frozen, and the message is given again later.
        leave: called to detach a connection from its session.
    """

    def __init__(
        self,
        context: Context,
        durable_replies: DurableReplies,
        authorizer: Authorizer,
        connections: Connections,
        session_of: Callable[[Connection, SetAccess], Session | None],
        leave: Callable[[Connection], None],
    ) -> None:
        self._context = context
        self._durable_replies = durable_replies
        self._authorizer = authorizer
        self._connections = connections
        self._session_of = session_of
        self._leave = leave

    def set(self, connection: Connection, message: SetAccess) -> None:
        """Change the access of the connection's session; the client is answered once the change is durable.

        Of several changes that a connection asks for at a time only the last one counts; the others are refused.

        Raises:
            Refused: the connection may not change it, or the change is not valid (:meth:`Authorizer.hash`).
        """
        before = connection.access_changes, connection.access_number
        connection.access_changes += 1
        connection.access_number = message.number
        try:
            self._begin(connection, message, connection.access_changes)
        except Refused:
            connection.access_changes, connection.access_number = before
            raise

    def _begin(self, connection: Connection, message: SetAccess, change: int) -> None:
        session = self._session_of(connection, message)
        if session is None:
            return

        def hashed(hashes: dict[str, str] | WaypostError) -> None:
            if connection.number not in self._connections or connection.session != session.id:
                return
            if connection.access_changes != change:
                # Hashing takes its time: the later one may be in force already.
                if connection.access_number != message.number:
                    overtaken = Refused("another change of the access was asked for since", field="number")
                    self._send(connection, problem(overtaken, message))
                return
            if isinstance(hashes, WaypostError):
                self._send(connection, problem(hashes, message))
                return
            try:
                self._change(connection, message, hashes)
            except Refused as error:
                self._send(connection, problem(error, message))

        self._authorizer.hash(session, connection.principal, message.grants, hashed)

    def _send(self, connection: Connection, message: AccessChanged | Problem | Wait) -> None:
        self._context.outbox.emit(Send(connection.number, message))

    def _change(self, connection: Connection, message: SetAccess, hashes: Mapping[str, str]) -> None:
        """Put the change in force, now that its passwords are hashed."""
        session = self._session_of(connection, message)
        if session is None:
            return
        self.let(session, message.grants, hashes, connection.receiver or "")
        grant = grant_of(session.access, connection.principal)
        connection.hash = grant.hash if grant else ""
        self.put_out(session)
        done = AccessChanged(message.number)
        self._durable_replies.reply_when_durable(connection, session, message, lambda: self._send(connection, done))

    def let(self, session: Session, grants: Mapping[str, Granted], hashes: Mapping[str, str], by: str = "") -> None:
        """Put a new access in force, and attest it. Call :meth:`put_out` afterwards.

        Args:
            grants: the whole new access, by principal; empty: everybody may do everything.
            hashes: the hashes of the new passwords, by principal.
            by: the receiver that asks for it; empty: an operator.

        Raises:
            Refused: the access has changed since the passwords were hashed, and the change does not fit it any more.
        """
        session.let(changed(session.access, grants, hashes))
        self._context.journal.attest(FactKind.ACCESS, session, receiver=by, reason=described(session.access))
        self._context.sessions.mark_changed(session.id)

    def put_out(self, session: Session) -> None:
        """Detach the receivers that the session's access does not admit any more.

        A receiver whose principal may not read is told that its right was taken away. One whose principal has another
        password since it attached is told to wait, attaches again, and has to bring the new one; a token stays valid.
        """
        for receiver in session.receivers.values():
            connection = self._connections.get(receiver.connection) if receiver.connection is not None else None
            if connection is None:
                continue
            grant = grant_of(session.access, connection.principal)
            if grant is None or READ not in grant.rights:
                self._send(connection, _taken_away(session.id))
            elif connection.until_ms == NEVER and grant.hash and grant.hash != connection.hash:
                self._send(connection, Wait("the session's access was changed", self._context.settings.retry_ms))
            else:
                continue
            self._leave(connection)


def _taken_away(session: SessionId) -> Problem:
    text = f"the right to read session {session} was taken away; ask its owner for it"
    return Problem(Forbidden.code, text, "credential", AboutSession(session))
