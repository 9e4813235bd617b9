"""Interests that the site log has lost, or had removed: they are registered again, and sessions that may lack something
catch up.
"""

from __future__ import annotations

from federation.site.events import InterestWithdrawn, RegistrationsExpired
from proxy.core.environment import Environment
from proxy.core.session_table import SessionTable
from proxy.stream.coverage import Coverage
from waypost.identity import SessionId


class InterestRepair:
    """Compares what the site log has of this proxy's interests with what its sessions need."""

    def __init__(self, env: Environment, sessions: SessionTable, coverage: Coverage) -> None:
        self._env = env
        self._sessions = sessions
        self._coverage = coverage

    def register_all(self) -> None:
        """Append records of the interests of all sessions that have any to the site log; what was registered last is
        left out.
        """
        self._sessions.interest.register_all(
            session for session in self._sessions.values() if session.subscriptions.interest_expressions()
        )

    def expired(self, event: RegistrationsExpired) -> None:
        """Close gates of sessions whose interests expired with a lease of ours: the log may have a hole from here on.

        Another session's registration of the same does not help: it may be withdrawn before our next record is read. If
        the lease was an earlier incarnation's, all interests are registered again.
        """
        for session in list(self._sessions.values()):
            if session.subscriptions.interest_expressions() and not self._sessions.interest.is_covered(session):
                self._coverage.broken(session)
            self._sessions.interest.forget(session.id)
        if event.incarnation != self._env.lease.incarnation:
            self.register_all()

    def reset(self) -> None:
        """Register all interests again after a reset of the site's state; sessions catch up with other sites."""
        for session in list(self._sessions.values()):
            self._coverage.broken(session)
            self._sessions.interest.forget(session.id)
        self.register_all()

    def withdrawn(self, event: InterestWithdrawn) -> None:
        """Close the gates of a session that needs a withdrawn interest again: a new one counts from its record on."""
        session = self._sessions.get(event.session)
        if session is not None and event.expressions.intersection(session.subscriptions.interest_expressions()):
            self._coverage.broken(session)

    def registered_by_earlier_incarnation(self, identity: SessionId) -> None:
        """Register a session's interest again, if what the log has of it now is not exactly what the session needs.

        To be called when a record of an earlier incarnation of this proxy came to the log, perhaps after ours.

        Raises:
            KeyError: the session is not here.
        """
        session = self._sessions[identity]
        if session.subscriptions.interest_expressions() and not self._sessions.interest.is_exact(session):
            self._sessions.interest.forget(session.id)
            self._sessions.interest.register(session)

    def log_end_lost(self) -> None:
        """Register again what the lost end of our log may have had; withdraw interests of sessions not here."""
        for session in self._sessions.values():
            if not self._sessions.interest.is_exact(session):
                self._sessions.interest.forget(session.id)
        self.register_all()
        for proxy, identity in list(self._env.state.registered):
            if proxy == self._env.proxy and identity not in self._sessions:
                self._sessions.interest.forget(identity)
                self._sessions.interest.withdraw(identity)
