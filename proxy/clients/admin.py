"""What operators change of a session that is served here. They ask nobody for a right; who may be one, says the node.

What is changed is in force at once, and its requester is told when it would survive this proxy, as everybody is who
changes a session (proxy/clients/durable_reply.py). Asked again, each of them changes nothing more; but a password that
is said again is hashed again, and whoever is attached by it has to say it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from proxy.clients.access_control import AccessControl
from proxy.clients.authorization import Authorizer
from proxy.clients.durable_reply import when_durable
from proxy.clients.session_policy import SessionPolicy, apply_policy
from proxy.clients.subscribe import Subscriptions
from proxy.core.context import Context
from proxy.session.session import Session
from proxy.session.subscription import Subscription
from proxy.stream.expiry import Expiry
from proxy.stream.persister import Persister
from waypost.errors import CheckpointOutdated, NoAnswer, NotFound, NotServed, Refused, Unreachable, WaypostError
from waypost.facts import Departure
from waypost.identity import ReceiverId, SessionId, SubscriptionId
from waypost.messages import Granted
from waypost.reliability import check_level

OnDone = Callable[[WaypostError | None], None]
"""Told why not; None: it is done."""


class Administration:
    """Changes sessions for operators.

    Args:
        tell: tells all receivers of a session how a subscription is now.
    """

    def __init__(
        self,
        context: Context,
        persister: Persister,
        authorizer: Authorizer,
        access: AccessControl,
        subscriptions: Subscriptions,
        expiry: Expiry,
        tell: Callable[[Session, SubscriptionId], None],
    ) -> None:
        self._context = context
        self._persister = persister
        self._authorizer = authorizer
        self._access = access
        self._subscriptions = subscriptions
        self._expiry = expiry
        self._broadcast = tell

    def session(self, identity: SessionId) -> Session:
        """Return the session.

        Raises:
            NotFound: there is none.
            NotServed: it is served elsewhere, or not at this moment.
            Unreachable: it is with a proxy that is gone.
        """
        owner = self._context.cluster.owners.get(identity)
        if not self._context.cluster.is_watching:
            raise NotServed("this proxy has not read the registry yet; ask again", field="session")
        if owner is None or owner.deleted:
            raise NotFound(f"there is no session {identity}", field="session")
        session = self._context.sessions.serving(identity)
        if session is not None:
            return session
        if owner.proxy != self._context.proxy:
            row = self._context.cluster.proxies.get(owner.proxy)
            if row is None:
                gone = f"proxy {owner.proxy} of session {identity} is gone; whoever attaches gets it, then ask again"
                raise Unreachable(gone, field="session")
            raise NotServed(f"session {identity} is with proxy {owner.proxy}, at {row.url}; ask there", field="session")
        raise NotServed(f"session {identity} cannot be changed at this moment; ask again", field="session")

    # ------------------------------------------------------------ what may be changed

    def set_access(self, identity: SessionId, grants: Mapping[str, Granted], on_done: OnDone) -> None:
        """Let these principals do that, and nobody else anything; none: everybody everything. Raises Refused."""

        def hashed(hashes: dict[str, str] | WaypostError) -> None:
            if isinstance(hashes, WaypostError):
                on_done(hashes)
                return
            try:
                session = self.session(identity)
                self._access.let(session, grants, hashes)
            except WaypostError as error:
                on_done(error)
                return
            self._access.put_out(session)
            self._reply_when_durable(session, on_done)

        self._authorizer.hash(self.session(identity), None, grants, hashed)

    def set_policy(self, identity: SessionId, change: Callable[[Session], SessionPolicy], on_done: OnDone) -> None:
        """Set the session's terms; `change` returns what they are to be. Raises Refused."""
        session = self.session(identity)
        terms = change(session)
        if terms.reliability != session.reliability:
            check_level(terms.reliability, self._context.settings.reliability, "reliability")
        apply_policy(self._context, self._expiry, session, terms)
        self._reply_when_durable(session, on_done)

    def retain(
        self,
        identity: SessionId,
        subscription: SubscriptionId,
        change: Callable[[Subscription], tuple[int | None, int | None]],
        on_done: OnDone,
    ) -> None:
        """Store what a subscription matches for so long, and so much of it; `change` returns how long, and how much.

        Raises:
            Refused: there is no such subscription.
        """
        session = self.session(identity)
        ttl_s, max_count = change(session.subscriptions[self._known(session, subscription)])
        self._subscriptions.retain(session, subscription, ttl_s, max_count)
        self._reply_when_durable(session, on_done, lambda: self._broadcast(session, subscription))

    def unsubscribe(self, identity: SessionId, subscription: SubscriptionId, on_done: OnDone) -> None:
        """End a subscription. Raises Refused."""
        session = self.session(identity)
        self._subscriptions.unsubscribe(session, self._known(session, subscription))
        self._reply_when_durable(session, on_done, lambda: self._broadcast(session, subscription))

    def unregister(self, identity: SessionId, receiver: ReceiverId, on_done: OnDone) -> None:
        """Give up the place of a receiver that is away, for good. Raises Refused."""
        session = self.session(identity)
        registered = session.receivers.get(receiver)
        if registered is None:
            raise NotFound(f"session {identity} has no receiver {receiver}", field="receiver")
        if registered.connection is not None:
            raise Refused(f"receiver {receiver} is attached, and gives up its place itself", field="receiver")

        def gone(is_gone: bool) -> None:
            if is_gone:
                self._reply_when_durable(session, on_done)
            else:
                on_done(NotServed(f"receiver {receiver} came back, or its session has moved", field="receiver"))

        self._expiry.forget(session, registered, Departure.OPERATOR, on_done=gone)

    def _known(self, session: Session, subscription: SubscriptionId) -> SubscriptionId:
        if subscription not in session.subscriptions:
            raise NotFound(f"session {session.id} has no subscription {subscription}", field="subscription")
        return subscription

    def _reply_when_durable(self, session: Session, on_done: OnDone, done: Callable[[], None] = lambda: None) -> None:
        """Tell it when the session is kept as it is now."""

        def kept() -> None:
            done()
            on_done(None)

        def lost(failure: WaypostError | None) -> None:
            moved = failure is None or isinstance(failure, CheckpointOutdated)
            on_done(NoAnswer(f"session {session.id} has moved meanwhile; see how it is now") if moved else failure)

        self._context.sessions.mark_changed(session.id)
        when_durable(self._context, self._persister, session, kept, lost)
