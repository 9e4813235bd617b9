"""Which sessions want a notification: every distinct expression is evaluated once, whoever holds it."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.session import Matched, Session, Subscription
from waypost.identity import Origin, SessionId
from waypost.notification import Value
from waypost.subscription import Expression


class Matcher:
    """The active subscriptions of all sessions at this proxy, by expression."""

    def __init__(self) -> None:
        self._by_expression: dict[Expression, dict[SessionId, tuple[Session, list[Subscription]]]] = {}
        self._by_session: dict[SessionId, list[Expression]] = {}

    def put(self, session: Session) -> None:
        """Take the session's active subscriptions as they are now."""
        self.remove(session.id)
        expressions = self._by_session[session.id] = []
        for subscription in session.active():
            holders = self._by_expression.setdefault(subscription.expression, {})
            if session.id not in holders:
                holders[session.id] = (session, [])
                expressions.append(subscription.expression)
            holders[session.id][1].append(subscription)

    def remove(self, session: SessionId) -> None:
        for expression in self._by_session.pop(session, ()):
            holders = self._by_expression[expression]
            del holders[session]
            if not holders:
                del self._by_expression[expression]

    def match(self, origin: Origin, offset: int, attributes: Mapping[str, Value]) -> list[tuple[Session, Matched]]:
        """Return the sessions that want it, each with the subscriptions that matched."""
        found: dict[SessionId, tuple[Session, list[str]]] = {}
        for expression, holders in self._by_expression.items():
            if not expression.matches(attributes):
                continue
            for identity, (session, subscriptions) in holders.items():
                wanting = [sub.id for sub in subscriptions if sub.wants(origin, offset)]
                if wanting:
                    found.setdefault(identity, (session, []))[1].extend(wanting)
        return [(session, tuple(matched)) for session, matched in found.values()]  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self._by_expression)
