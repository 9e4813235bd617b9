"""Which sessions want a notification: every distinct expression is evaluated once, whoever holds it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from proxy.retention import Matched
from proxy.session import Session, Subscription
from waypost.frontier import join
from waypost.identity import NOTHING, Origin, SessionId
from waypost.notification import Value
from waypost.subscription import Expression


class Holder:
    """One session's subscriptions with one expression. Above `settled` of an origin, all of them want what matches."""

    __slots__ = ("_subscriptions", "_whole", "session", "settled")

    def __init__(self, session: Session, subscriptions: list[Subscription]) -> None:
        self.session = session
        self.settled: dict[Origin, int] = {}
        self._subscriptions = subscriptions
        self._whole: Matched = tuple(subscription.id for subscription in subscriptions)
        for subscription in subscriptions:
            join(self.settled, subscription.start)

    def wanting(self, origin: Origin, offset: int) -> Matched:
        if offset > self.settled.get(origin, NOTHING):
            return self._whole
        return tuple(sub.id for sub in self._subscriptions if sub.wants(origin, offset))


class Matcher:
    """The active subscriptions of all sessions at this proxy, by expression."""

    def __init__(self) -> None:
        self._holders: dict[Expression, dict[SessionId, Holder]] = {}
        self._expressions: dict[SessionId, list[Expression]] = {}

    def put(self, session: Session) -> None:
        """Take the session's active subscriptions as they are now."""
        self.remove(session.id)
        by_expression: dict[Expression, list[Subscription]] = {}
        for subscription in session.active():
            by_expression.setdefault(subscription.expression, []).append(subscription)
        self._expressions[session.id] = list(by_expression)
        for expression, subscriptions in by_expression.items():
            self._holders.setdefault(expression, {})[session.id] = Holder(session, subscriptions)

    def remove(self, session: SessionId) -> None:
        for expression in self._expressions.pop(session, ()):
            holders = self._holders[expression]
            del holders[session]
            if not holders:
                del self._holders[expression]

    def match(self, origin: Origin, offset: int, attributes: Mapping[str, Value]) -> Iterable[tuple[Session, Matched]]:
        """Return the sessions that want it, each once, with the subscriptions that matched."""
        hits = [holders for expression, holders in self._holders.items() if expression.matches(attributes)]
        if len(hits) == 1:
            return [
                (holder.session, matched) for holder in hits[0].values() if (matched := holder.wanting(origin, offset))
            ]
        return _together(hits, origin, offset)

    def __len__(self) -> int:
        return len(self._holders)


def _together(hits: list[dict[SessionId, Holder]], origin: Origin, offset: int) -> Iterable[tuple[Session, Matched]]:
    """Join what several expressions matched for the same session."""
    found: dict[SessionId, tuple[Session, Matched]] = {}
    for holders in hits:
        for identity, holder in holders.items():
            matched = holder.wanting(origin, offset)
            if matched:
                before = found.get(identity)
                found[identity] = (holder.session, before[1] + matched if before else matched)
    return found.values()
