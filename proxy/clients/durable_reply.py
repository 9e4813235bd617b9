"""Answers to what changes a session: given once the change would survive this proxy, by who may give them then.

Store and changelog must both have it: whatever dies next, one of them is what counts. And lease and epoch are looked at
again after the write (handover rule 6): it may have been made by an owner that is one no more, and what became of the
change is known to the owner now.

A change is made once, when it comes, and never a second time by itself: the client may have asked for its opposite
since.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from proxy.clients.connection import Change, Connection, problem
from proxy.core.effects import Send
from proxy.core.environment import Environment
from proxy.core.output import Output
from proxy.core.session_table import SessionTable
from proxy.session.role import Role
from proxy.session.session import Session
from proxy.stream.persister import Persister
from waypost.errors import CheckpointOutdated, NotServed, WaypostError
from waypost.identity import SessionId
from waypost.messages import Detach, Wait, WaitCause


def when_durable(
    sessions: SessionTable,
    persister: Persister,
    session: Session,
    on_durable: Callable[[], None],
    on_failed: Callable[[WaypostError | None], None],
) -> None:
    """Write the session as it is now to store and changelog, and say whether that counts (handover rule 6).

    A checkpoint that is outdated says that another owner has written since: perhaps the session is ours no more, and
    this proxy does not know yet. The caller must not tell the client of that error.

    Args:
        on_durable: called once both have the session, if it is still served here at the same epoch.
        on_failed: called otherwise: with the error of the write, or with None if the session is not served here, or at
            another epoch; if it is not served here now, within this call.
    """
    epoch = session.epoch

    def is_ours() -> bool:
        return sessions.serving(session.id) is session and session.epoch == epoch

    def on_done(failure: WaypostError | None) -> None:
        if failure is None and is_ours():
            on_durable()
        else:
            on_failed(failure)

    if is_ours():
        persister.write(session, on_done)
    else:
        # Only the owner writes.
        on_failed(None)


def not_served() -> NotServed:
    """Return, but do not raise, the error for a request on a connection whose session is not served now."""
    return NotServed("no session is served on this connection at the moment; attach, then ask again")


class _Deferred(NamedTuple):
    """The arguments of a call of :meth:`DurableReplies.reply_when_durable`."""

    connection: Connection
    session: Session
    message: Change
    answer: Callable[[], None]


class DurableReplies:
    """Sends the answers to changes of sessions."""

    def __init__(self, env: Environment, sessions: SessionTable, output: Output, persister: Persister) -> None:
        self._env = env
        self._sessions = sessions
        self._output = output
        self._persister = persister
        self._deferred: dict[SessionId, list[_Deferred]] = {}
        """Answers that were due while their session stood still, for when it is served again."""

    def served(self, session: Session) -> None:
        """Write the session again for answers put off while it was frozen; each is given once that is durable."""
        for deferred in self._deferred.pop(session.id, []):
            self.reply_when_durable(*deferred)

    def session_removed(self, session: SessionId) -> None:
        """Forget the answers that were put off: the session is here no more, and clients ask its new owner again."""
        self._deferred.pop(session, None)

    def reply_when_durable(
        self, connection: Connection, session: Session, message: Change, answer: Callable[[], None]
    ) -> None:
        """Call `answer` once store and changelog have the session as it is now; otherwise tell the client why.

        Where the session is frozen, or served at another epoch meanwhile, it is written again when it is served. A
        client that has attached anew since may get neither: it asks again for what had no answer.

        Args:
            message: the request that is answered.
            answer: sends the answer to the client.
        """
        attached = connection.attached

        def lost(failure: WaypostError | None) -> None:
            is_here = self._sessions.get(session.id) is session
            is_outdated = isinstance(failure, CheckpointOutdated)
            if isinstance(message, Detach):
                # The client attaches again, and repeats its request.
                why = failure.message if failure is not None else "the session has moved"
                self._output.emit(
                    Send(
                        connection.number,
                        Wait(
                            WaitCause.UNAVAILABLE if failure is not None else WaitCause.MOVED,
                            why,
                            self._env.settings.retry_ms,
                        ),
                    )
                )
            elif failure is not None and not is_outdated:
                self._output.emit(Send(connection.number, problem(failure, message)))
            elif is_here and (is_outdated or session.role is Role.FROZEN):
                # It goes with what is handed over; or the session is served on here, as it is now, at another epoch.
                deferred = _Deferred(connection, session, message, answer)
                self._deferred.setdefault(session.id, []).append(deferred)
            elif is_here and self._sessions.serving(session.id) is session and connection.attached == attached:
                # It stood still meanwhile, and is served on under another epoch.
                self.reply_when_durable(connection, session, message, answer)
            elif connection.attached == attached:
                self._output.emit(Send(connection.number, problem(not_served(), message)))
            # Else it has attached since, and asked again for what was not answered by then.

        when_durable(self._sessions, self._persister, session, answer, lost)
