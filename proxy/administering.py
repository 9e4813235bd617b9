"""What operators change of a session that is served here. They ask nobody for a right; who may be one, says the node.

What is changed is in force at once, and its asker is told when it would survive this proxy, as everybody is who changes
a session (proxy/answering.py). Asked again, each of them changes nothing more; but a password that is said again is
hashed again, and whoever is attached by it has to say it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from proxy.access import AccessChanges
from proxy.answering import once_kept
from proxy.context import Context
from proxy.guard import Guard
from proxy.keeper import Keeper
from proxy.session import Session
from proxy.subscribing import Subscriptions
from proxy.subscription import Subscription
from proxy.sweeping import Sweeps
from proxy.terms import Terms, settle
from waypost.errors import NoAnswer, NotFound, NotServed, Refused, Unreachable, WaypostError
from waypost.identity import ReceiverId, SessionId, SubscriptionId
from waypost.messages import Granted
from waypost.reliability import check_level

Then = Callable[[WaypostError | None], None]
"""Told why not; None: it is done."""


class Administration:
    """Changes sessions for operators.

    Args:
        tell: tells all receivers of a session how a subscription is now.
    """

    def __init__(
        self,
        context: Context,
        keeper: Keeper,
        guard: Guard,
        access: AccessChanges,
        subscriptions: Subscriptions,
        sweeps: Sweeps,
        tell: Callable[[Session, SubscriptionId], None],
    ) -> None:
        self._context = context
        self._keeper = keeper
        self._guard = guard
        self._access = access
        self._subscriptions = subscriptions
        self._sweeps = sweeps
        self._tell = tell

    def session(self, identity: SessionId) -> Session:
        """Return the session.

        Raises:
            NotFound: there is none.
            NotServed: it is served elsewhere, or not at this moment.
            Unreachable: it is with a proxy that is gone.
        """
        owner = self._context.owners.get(identity)
        if owner is None or owner.deleted:
            raise NotFound(f"there is no session {identity}", field="session")
        session = self._context.serving(identity)
        if session is not None:
            return session
        if owner.proxy != self._context.proxy:
            row = self._context.proxies.get(owner.proxy)
            if row is None:
                gone = f"proxy {owner.proxy} of session {identity} is gone; whoever attaches gets it, then ask again"
                raise Unreachable(gone, field="session")
            raise NotServed(f"session {identity} is with proxy {owner.proxy}, at {row.url}; ask there", field="session")
        raise NotServed(f"session {identity} cannot be changed at this moment; ask again", field="session")

    # ------------------------------------------------------------ what may be changed

    def set_access(self, identity: SessionId, grants: Mapping[str, Granted], then: Then) -> None:
        """Let these principals do that, and nobody else anything; none: everybody everything. Raises Refused."""

        def hashed(hashes: dict[str, str] | WaypostError) -> None:
            if isinstance(hashes, WaypostError):
                then(hashes)
                return
            try:
                session = self.session(identity)
                self._access.let(session, grants, hashes)
            except WaypostError as error:
                then(error)
                return
            self._access.put_out(session)
            self._once_kept(session, then)

        self._guard.hash(self.session(identity), None, grants, hashed)

    def settle(self, identity: SessionId, change: Callable[[Session], Terms], then: Then) -> None:
        """Set the session's terms; `change` returns what they are to be. Raises Refused."""
        session = self.session(identity)
        terms = change(session)
        if terms.reliability != session.reliability:
            check_level(terms.reliability, self._context.settings.reliability, "reliability")
        settle(self._context, self._sweeps, session, terms)
        self._once_kept(session, then)

    def retain(
        self,
        identity: SessionId,
        subscription: SubscriptionId,
        change: Callable[[Subscription], tuple[int | None, int | None]],
        then: Then,
    ) -> None:
        """Store what a subscription matches for so long, and so much of it; `change` returns how long, and how much.

        Raises:
            Refused: there is no such subscription.
        """
        session = self.session(identity)
        ttl_s, max_count = change(session.subscriptions[self._known(session, subscription)])
        self._subscriptions.retain(session, subscription, ttl_s, max_count)
        self._once_kept(session, then, lambda: self._tell(session, subscription))

    def unsubscribe(self, identity: SessionId, subscription: SubscriptionId, then: Then) -> None:
        """End a subscription. Raises Refused."""
        session = self.session(identity)
        self._subscriptions.end(session, self._known(session, subscription))
        self._once_kept(session, then, lambda: self._tell(session, subscription))

    def forget(self, identity: SessionId, receiver: ReceiverId, then: Then) -> None:
        """Give up the place of a receiver that is away, for good. Raises Refused."""
        session = self.session(identity)
        place = session.receivers.get(receiver)
        if place is None:
            raise NotFound(f"session {identity} has no receiver {receiver}", field="receiver")
        if place.connection is not None:
            raise Refused(f"receiver {receiver} is attached, and gives up its place itself", field="receiver")

        def gone(is_gone: bool) -> None:
            if is_gone:
                self._once_kept(session, then)
            else:
                then(NotServed(f"receiver {receiver} came back, or its session has moved", field="receiver"))

        self._sweeps.forget(session, place, "an operator asked for it", gone)

    def _known(self, session: Session, subscription: SubscriptionId) -> SubscriptionId:
        if subscription not in session.subscriptions:
            raise NotFound(f"session {session.id} has no subscription {subscription}", field="subscription")
        return subscription

    def _once_kept(self, session: Session, then: Then, done: Callable[[], None] = lambda: None) -> None:
        """Tell it when the session is kept as it is now."""

        def kept() -> None:
            done()
            then(None)

        def lost(failure: WaypostError | None) -> None:
            then(failure or NoAnswer(f"session {session.id} has moved meanwhile; see how it is now"))

        self._context.dirty.add(session.id)
        once_kept(self._context, self._keeper, session, kept, lost)
