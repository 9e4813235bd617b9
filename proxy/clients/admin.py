"""Changes that operators make of a session that is served here. They need no right in it; the node says who is one.

A change is in force at once. Its requester gets an answer when the change would survive this proxy, as everybody does
who changes a session (proxy/clients/durable_reply.py). A repeated request changes nothing more, except that a password
in it is hashed again: receivers that are attached by that password have to present it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import assert_never

from msgspec import UNSET
from msgspec.structs import asdict, replace

from proxy.clients.access_changes import AccessControl
from proxy.clients.durable_reply import when_durable
from proxy.clients.subscribe import Subscriptions
from proxy.core.environment import Environment
from proxy.core.inputs import (
    ChangeAccess,
    ChangePolicy,
    ChangeRetention,
    EndSubscription,
    SessionChange,
    UnregisterReceiver,
)
from proxy.core.session_table import SessionTable
from proxy.session.session import Session
from proxy.session.session_policy import SessionPolicy, policy_of
from proxy.stream.stream import Stream
from waypost.errors import CheckpointOutdated, NoAnswer, NotFound, NotServed, Refused, Unreachable, WaypostError
from waypost.facts import Departure
from waypost.identity import ReceiverId, SessionId, SubscriptionId
from waypost.messages import Granted
from waypost.queue import UNBOUNDED
from waypost.reliability import check_level, reliability_of

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
        """Return the session if it is served here now.

        Raises:
            NotFound: the registry has no such session.
            NotServed: another proxy owns it (the message says which), or it cannot be changed at this moment, or this
                proxy has not read the registry yet.
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

    def make(self, change: SessionChange, on_done: OnDone) -> None:
        """Make an operator's change of a session that is served here; it needs no right in the session.

        Args:
            on_done: called with None once the change is done and durable, or with an error that comes after this call.

        Raises:
            NotFound: there is no such session, subscription or receiver.
            NotServed: another proxy owns the session, or it cannot be changed at this moment.
            Unreachable: the session's owner is gone, and no proxy has taken it over yet.
            Refused: the change is not valid; nothing was changed.
        """
        match change:
            case ChangeAccess(identity, grants):
                self._change_access(identity, grants, on_done)
            case ChangePolicy():
                self._change_policy(change, on_done)
            case ChangeRetention():
                self._change_retention(change, on_done)
            case EndSubscription(identity, subscription):
                self._unsubscribe(identity, subscription, on_done)
            case UnregisterReceiver(identity, receiver):
                self._unregister(identity, receiver, on_done)
            case _:
                assert_never(change)

    # ------------------------------------------------------------ what may be changed

    def _change_access(self, identity: SessionId, grants: Mapping[str, Granted], on_done: OnDone) -> None:
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

    def _change_policy(self, change: ChangePolicy, on_done: OnDone) -> None:
        session = self.session(change.session)
        policy = _changed_policy(policy_of(session), change)
        if policy.reliability != session.reliability:
            check_level(policy.reliability, self._env.settings.reliability, "reliability")
        self._expiry.apply_policy(session, policy)
        self._reply_when_durable(session, on_done)

    def _change_retention(self, change: ChangeRetention, on_done: OnDone) -> None:
        """Its receivers are told."""
        session = self.session(change.session)
        subscription = self._known(session, change.subscription)
        known = session.subscriptions[subscription]
        ttl_s = known.ttl_s if change.ttl_s is UNSET else change.ttl_s
        max_count = known.max_count if change.max_count is UNSET else change.max_count
        self._subscriptions.retain(session, subscription, ttl_s, max_count)
        self._reply_when_durable(session, on_done, lambda: self._subscriptions.altered(session, subscription))

    def _unsubscribe(self, identity: SessionId, subscription: SubscriptionId, on_done: OnDone) -> None:
        """Its receivers are told."""
        session = self.session(identity)
        self._subscriptions.unsubscribe(session, self._known(session, subscription))

        def answer() -> None:
            self._reply_when_durable(session, on_done, lambda: self._subscriptions.altered(session, subscription))

        self._subscriptions.end_replies.reply_when_known(session, subscription, object(), answer)

    def _unregister(self, identity: SessionId, receiver: ReceiverId, on_done: OnDone) -> None:
        """It is owed nothing any more."""
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


def _changed_policy(policy: SessionPolicy, change: ChangePolicy) -> SessionPolicy:
    """Return the policy after a change of it."""
    if change.expiry_s is not UNSET:
        policy = policy._replace(expiry_s=change.expiry_s)
    if change.queue is not UNSET:
        policy = policy._replace(queue=UNBOUNDED if change.queue is None else replace(policy.queue, **change.queue))
    if change.reliability is not UNSET:
        policy = policy._replace(reliability=reliability_of(**{**asdict(policy.reliability), **change.reliability}))
    return policy
