"""Promises: from where on a subscription is effective, of each origin.

What lies above a promise is delivered, or a gap says that it is not. So a promise is made once, never below what a
receiver has reported, and is durable and on record before any receiver is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from proxy.core import journal_facts
from proxy.core.effects import Send
from proxy.core.environment import Environment
from proxy.core.output import Output
from proxy.core.session_table import SessionTable
from proxy.session.role import Role
from proxy.session.session import Session
from proxy.session.subscription import Subscription
from proxy.stream.persister import Persister
from waypost.errors import WaypostError
from waypost.identity import NOTHING, Origin, SessionId
from waypost.messages import BecameEffective

AHEAD_MS = 10_000
"""How long a promise waits until what a receiver has reported was read here, in ms. Nothing else of a session waits for
a receiver whose state is of another log."""


class Promises:
    """Promises from where on subscriptions are effective, as coverage comes to say so."""

    def __init__(self, env: Environment, sessions: SessionTable, output: Output, persister: Persister) -> None:
        self._env = env
        self._sessions = sessions
        self._output = output
        self._persister = persister
        self._unpromised: dict[SessionId, Session] = {}
        """Sessions of which a promise may be due since it was last looked at."""

    def __len__(self) -> int:
        return len(self._unpromised)

    def watch(self, session: Session) -> None:
        """Have :meth:`promise_all` look at the session: a promise may be due."""
        self._unpromised[session.id] = session

    def promise_all(self) -> None:
        """Make the promises of all watched sessions, as far as they can be made now."""
        for session in list(self._unpromised.values()):
            self.promise(session)

    def promise(self, session: Session) -> None:
        """Promise from where on each active subscription is effective, as far as that is known, once per origin.

        A promise is made durable, then attested, and only then are receivers told (proxy/core/durability_law.py).
        Nothing is promised while the session is not served here, its interest is not in the log, or no receiver is
        attached. The session is watched no more, unless a promise waits for what a receiver has reported (at most
        AHEAD_MS); where a promise could not be written, it is withdrawn, and the session is watched again.
        """
        self._unpromised.pop(session.id, None)
        if self._sessions.get(session.id) is not session:
            return
        if session.role is not Role.SERVING or not self._env.lease.may_serve():
            return
        if not self._sessions.interest.is_installed(session) or not session.receivers.attached():
            return
        while session.interrupted_promises:
            subscription, promises = session.interrupted_promises.pop()
            subscription.unpromise(promises)
        for subscription in session.subscriptions.active():
            self._promise(session, subscription)

    def _awaited(self, subscription: Subscription, due_ahead: Iterable[Origin]) -> set[Origin]:
        """Return the origins whose promises are due, but wait: a receiver has more of them than was read here, as after
        a failover. For AHEAD_MS no promise is made below that, and none above it before it is known to exist (handover
        rule 30).

        Args:
            due_ahead: the origins that are due, and of which a receiver has more.
        """
        now = self._env.time.now_ms
        return {origin for origin in due_ahead if now < subscription.due_since(origin, now) + AHEAD_MS}

    def _promise(self, session: Session, subscription: Subscription) -> None:
        state = self._env.state
        due = {state.origin: NOTHING} | state.effective.get(subscription.expression.canonical, {})
        due = {origin: above for origin, above in due.items() if origin not in subscription.promised}
        if not due:
            return
        reached = self._env.reached(session)
        awaited = self._awaited(subscription, session.reported_beyond(reached) & due.keys())
        promises = {
            origin: max(above, self._floor(session, subscription, origin, reached))
            for origin, above in due.items()
            if origin not in awaited and self._has_start(session, origin)
        }
        if awaited:
            self.watch(session)
        if not promises:
            return
        subscription.promise(promises)
        self._sessions.mark_changed(session.id)

        def on_done(error: WaypostError | None) -> None:
            if self._sessions.serving(session.id) is not session:
                # A frozen session must not say another thing of itself than before.
                session.interrupted_promises.append((subscription, promises))
            elif error is not None:
                subscription.unpromise(promises)
                self._unpromised[session.id] = session
            elif subscription.replaced:
                # The written session may know it no more: the generation that has its name makes its own promise.
                subscription.unpromise(promises)
            else:
                self._announce_promise(session, subscription, promises)

        # A restart and a failover must know of the promise before anybody else does.
        self._persister.write(session, on_done)

    def _has_start(self, session: Session, origin: Origin) -> bool:
        """Tell whether it is settled where the session begins with this origin."""
        gate = session.gates.get(origin)
        return gate is None or gate.seen is not None

    def _announce_promise(self, session: Session, subscription: Subscription, promises: dict[Origin, int]) -> None:
        """Put the promise on record, then tell the receivers."""
        subscription.announced(promises)
        journal_facts.effective(self._output.journal, session, subscription, promises)
        connections = {r.connection for r in session.receivers.values()}

        def tell() -> None:
            if not session.subscriptions.goes_on(subscription):
                return
            for receiver in session.receivers.values():
                if receiver.connection is not None and receiver.connection in connections:
                    self._output.emit(Send(receiver.connection, BecameEffective(subscription.id, promises)))

        self._output.journal.once_attested(tell)

    def _floor(
        self, session: Session, subscription: Subscription, origin: Origin, reached: Mapping[Origin, int]
    ) -> int:
        """Return the offset above which alone promises are made: what any receiver has reported (handover rule 13), as
        far as that is known to exist.
        """
        exists = reached.get(origin, NOTHING)
        known = [min(receiver.known.get(origin, NOTHING), exists) for receiver in session.receivers.values()]
        return max([subscription.promise_floor.get(origin, NOTHING), *known])
