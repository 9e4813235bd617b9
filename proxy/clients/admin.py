"""Changes that operators make of a session that is served here. They need no right in it; the node says who is one.

What is changed is in force at once, and its requester is told when it would survive this proxy, as everybody is who
changes a session (proxy/clients/durable_reply.py). Asked again, each of them changes nothing more; but a password that
is said again is hashed again, and whoever is attached by it has to say it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from proxy.clients.access_control import AccessControl
from proxy.clients.durable_reply import when_durable
from proxy.clients.subscribe import Subscriptions
from proxy.core.environment import Environment
from proxy.core.session_table import SessionTable
from proxy.session.session import Session
from proxy.session.session_policy import SessionPolicy
from proxy.session.subscription import Subscription
from proxy.stream.stream import Stream
from waypost.errors import CheckpointOutdated, NoAnswer, NotFound, NotServed, Refused, Unreachable, WaypostError
from waypost.facts import Departure
from waypost.identity import ReceiverId, SessionId, SubscriptionId
from waypost.messages import Granted
from waypost.reliability import check_level

OnDone = Callable[[WaypostError | None], None]
"""Called with the error; with None once the change is done, and durable."""


class Administration:
    """Changes sessions for operators."""

    def __init__(
        self,
        env: Environment,
        sessions: SessionTable,
        stream: Stream,
        access: AccessControl,
        subscriptions: Subscriptions,
    ) -> None:
        self._env = env
        self._sessions = sessions
        self._persister = stream.persister
        self._expiry = stream.expiry
        self._access = access
        self._subscriptions = subscriptions

    def session(self, identity: SessionId) -> Session:
        """Return the session, which is served here.

        Raises:
            NotFound: the registry has no such session.
            NotServed: another proxy owns it (the message says which), or it cannot be changed at this moment.
            Unreachable: its owner is gone, and no proxy has taken it over yet.
        """
        owner = self._env.cluster.owners.get(identity)
        if not self._env.cluster.is_watching:
            raise NotServed("this proxy has not read the registry yet; ask again", field="session")
        if owner is None or owner.deleted:
            raise NotFound(f"there is no session {identity}", field="session")
        session = self._sessions.serving(identity)
        if session is not None:
            return session
        if owner.proxy != self._env.proxy:
            row = self._env.cluster.proxies.get(owner.proxy)
            if row is None:
                gone = f"proxy {owner.proxy} of session {identity} is gone; whoever attaches gets it, then ask again"
                raise Unreachable(gone, field="session")
            raise NotServed(f"session {identity} is with proxy {owner.proxy}, at {row.url}; ask there", field="session")
        raise NotServed(f"session {identity} cannot be changed at this moment; ask again", field="session")

    # ------------------------------------------------------------ what may be changed

    def set_access(self, identity: SessionId, grants: Mapping[str, Granted], on_done: OnDone) -> None:
        """Replace the session's access.

        Args:
            grants: the whole new access, by principal; empty: everybody may do everything.

        Raises:
            Refused: the change is not valid (:meth:`Authorizer.hash`), or as :meth:`session`; Unreachable too.
        """

        def hashed(hashes: dict[str, str] | WaypostError) -> None:
            if isinstance(hashes, WaypostError):
                on_done(hashes)
                return
            try:
                session = self.session(identity)
                self._access.change(session, grants, hashes)
            except WaypostError as error:
                on_done(error)
                return
            self._reply_when_durable(session, on_done)

        self._access.authorizer.hash(self.session(identity), None, grants, hashed)

    def set_policy(self, identity: SessionId, change: Callable[[Session], SessionPolicy], on_done: OnDone) -> None:
        """Change the policy of a session as a whole: its expiry, reliability and queue.

        Args:
            change: returns the new policy, given the session as it is now.

        Raises:
            Refused: the reliability is higher than the proxy allows, or as :meth:`session`; Unreachable too.
        """
        session = self.session(identity)
        policy = change(session)
        if policy.reliability != session.reliability:
            check_level(policy.reliability, self._env.settings.reliability, "reliability")
        self._expiry.apply_policy(session, policy)
        self._reply_when_durable(session, on_done)

    def retain(
        self,
        identity: SessionId,
        subscription: SubscriptionId,
        change: Callable[[Subscription], tuple[int | None, int | None]],
        on_done: OnDone,
    ) -> None:
        """Change a subscription's time to live and maximum count; its receivers are told.

        Args:
            change: returns both, in seconds and entries, given the subscription as it is now; None: no bound.

        Raises:
            Refused: there is no such subscription, or as :meth:`session`; Unreachable too.
        """
        session = self.session(identity)
        ttl_s, max_count = change(session.subscriptions[self._known(session, subscription)])
        self._subscriptions.retain(session, subscription, ttl_s, max_count)
        self._reply_when_durable(session, on_done, lambda: self._subscriptions.altered(session, subscription))

    def unsubscribe(self, identity: SessionId, subscription: SubscriptionId, on_done: OnDone) -> None:
        """End a subscription; its receivers are told. Raises as :meth:`retain`."""
        session = self.session(identity)
        self._subscriptions.unsubscribe(session, self._known(session, subscription))

        def answer() -> None:
            self._reply_when_durable(session, on_done, lambda: self._subscriptions.altered(session, subscription))

        self._subscriptions.end_replies.reply_when_known(session, subscription, object(), answer)

    def unregister(self, identity: SessionId, receiver: ReceiverId, on_done: OnDone) -> None:
        """Unregister a receiver that is not attached: it is owed nothing any more.

        Raises:
            Refused: there is no such receiver, it is attached, or as :meth:`session`; Unreachable too.
        """
        session = self.session(identity)
        registered = session.receivers.get(receiver)
        if registered is None:
            raise NotFound(f"session {identity} has no receiver {receiver}", field="receiver")
        if registered.connection is not None:
            raise Refused(f"receiver {receiver} is attached, and unregisters itself", field="receiver")

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

        if self._sessions.get(session.id) is session:
            self._sessions.mark_changed(session.id)
        when_durable(self._sessions, self._persister, session, kept, lost)
