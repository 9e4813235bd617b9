"""A session's subscriptions change: what is asked for begins and ends, by the frontier (handover rule 7)."""

from __future__ import annotations

from proxy import attesting
from proxy.context import Context
from proxy.coverage import Coverage
from proxy.session import Session
from proxy.subscription import Subscription
from proxy.sweeping import Sweeps
from waypost.errors import LimitExceeded, Refused
from waypost.frontier import join
from waypost.identity import Origin, SubscriptionId
from waypost.limits import MAX_SUBSCRIPTIONS_PER_SESSION
from waypost.messages import Subscribe
from waypost.subscription import Expression


class Subscriptions:
    """Changes the subscriptions of sessions that are served here; whoever asked is answered by the door."""

    def __init__(self, context: Context, coverage: Coverage, sweeps: Sweeps) -> None:
        self._context = context
        self._coverage = coverage
        self._sweeps = sweeps

    def add(self, session: Session, message: Subscribe, expression: Expression, owner: str) -> None:
        """Add a subscription, or change the policy of one that is there. Raises Refused."""
        identity = SubscriptionId(message.subscription)
        known = session.subscriptions.get(identity)
        if known is not None:
            if known.expression != expression:
                raise Refused("that subscription has another expression; unsubscribe first", field="subscription")
            if (known.ttl_s, known.max_count) != (message.ttl_s, message.max_count):
                known.ttl_s, known.max_count = message.ttl_s, message.max_count
                session.subscriptions_changed()
                attesting.policy(self._context, session, known)
                self._changed(session)
            return
        session.forget_ended(session.acknowledged_frontier(self._context.state.frontier))
        if len(session.subscriptions) + len(session.ended) >= MAX_SUBSCRIPTIONS_PER_SESSION:
            raise LimitExceeded(f"a session has at most {MAX_SUBSCRIPTIONS_PER_SESSION} subscriptions")
        start = self._start(session)
        made = Subscription(identity, expression, start, dict(start), ttl_s=message.ttl_s, max_count=message.max_count)
        made.owner = owner
        session.add_subscription(made)
        attesting.subscribed(self._context, session, made)
        if made.has_policy:
            attesting.policy(self._context, session, made)
        self._changed(session)

    def end(self, session: Session, identity: SubscriptionId) -> None:
        """End a subscription, if it is there."""
        if identity in session.subscriptions:
            ended = session.end_subscription(identity, self._context.frontier(session))
            attesting.unsubscribed(self._context, session, ended)
            self._changed(session)

    def _start(self, session: Session) -> dict[Origin, int]:
        """Return L: above all that the session has seen, the live stream and every receiver included."""
        start = dict(self._context.state.frontier)
        join(start, self._context.frontier(session))
        for receiver in session.receivers.values():
            join(start, receiver.known)
        return start

    def _changed(self, session: Session) -> None:
        self._context.matcher.put(session)
        self._context.hold(session.id, session.held_expressions())
        self._context.dirty.add(session.id)
        self._coverage.watch(session)
        self._sweeps.watch(session)
