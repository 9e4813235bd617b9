"""Changes of a session's subscriptions: they begin, end, and get other keys, by the frontier (handover rule 7)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from proxy.clients.end_replies import EndReplies
from proxy.core import journal_facts
from proxy.core.environment import Environment
from proxy.core.events import SubscriptionAltered, SubscriptionEnded
from proxy.core.output import Output
from proxy.core.session_table import SessionTable
from proxy.session.receivers import Receiver
from proxy.session.session import Session
from proxy.session.subscription import Subscription
from proxy.stream.stream import Stream
from waypost.checkpoint import UNKNOWN_END
from waypost.errors import LimitExceeded, Refused
from waypost.identity import NOTHING, ReceiverId, SubscriptionId
from waypost.keys import CONSUMER, Key, primed
from waypost.limits import MAX_SUBSCRIPTIONS_PER_SESSION
from waypost.messages import Subscribe
from waypost.subscription import Expression


class Subscriptions:
    """Changes the subscriptions of sessions that are served here; the dispatcher answers the requester."""

    def __init__(self, env: Environment, sessions: SessionTable, output: Output, stream: Stream) -> None:
        self._env = env
        self._sessions = sessions
        self._output = output
        self._coverage = stream.coverage
        self._expiry = stream.expiry
        self.end_replies = EndReplies(env)

    def add(self, session: Session, message: Subscribe, expression: Expression, owner: str, payer: str) -> None:
        """Add a subscription, or change the policy and the keys of the active one of the same id; the owner and the
        payer of that one stay.

        The change is in force at once, its interest registered, and attested. Once it is durable, the caller calls
        :meth:`kept` and answers. Other keys make a new generation.

        Args:
            expression: of the message, parsed.
            owner: the receiver that subscribes; its keys go with the subscription.
            payer: the client whose bounds it counts for; "": nobody's.

        Raises:
            Refused: the active subscription of that id has another expression.
            LimitExceeded: a bound of subscriptions, of their cost, or of descriptors would be passed.
        """
        identity = SubscriptionId(message.subscription)
        keys = primed(CONSUMER, message.keys)
        known = session.subscriptions.get(identity)
        if known is None:
            spending, settings = self._sessions.matcher.spending, self._env.settings
            spending.require_room(payer, settings.max_subscriptions)
            spending.require(session, expression, payer, settings.match_ms)
            self._add(session, message, expression, owner, keys, payer)
            return
        if known.expression != expression:
            raise Refused("that subscription has another expression; unsubscribe first", field="subscription")
        if (known.keys, known.insecure) != (keys, message.insecure):
            self._make_room(session, 1, _size(known) + _size_of_keys(keys))
            self._replace(session, known, keys, known.owner_keys, insecure=message.insecure)
        self.retain(session, identity, message.ttl_s, message.max_count)

    def retain(self, session: Session, identity: SubscriptionId, ttl_s: int | None, max_count: int | None) -> None:
        """Change the policy of a subscription, in all generations that are still owed; in force at once, and attested.

        Args:
            ttl_s: how long an entry is kept, in seconds; None: for ever.
            max_count: the number of entries that are kept; None: no bound.

        Raises:
            KeyError: there is no active subscription of that id.
        """
        known = session.subscriptions[identity]
        if (known.ttl_s, known.max_count) != (ttl_s, max_count):
            for subscription in session.subscriptions.generations(identity):
                subscription.set_policy(ttl_s, max_count)
                journal_facts.policy(self._output.journal, session, subscription)
            session.subscriptions_changed()
            self._changed(session)

    def _add(
        self,
        session: Session,
        message: Subscribe,
        expression: Expression,
        owner: str,
        keys: tuple[Key, ...],
        payer: str,
    ) -> None:
        start = self._env.reached(session)
        self._make_room(session, 1, len(expression.text) + _size_of_keys(keys) + 2 * len(msgspec.json.encode(start)))
        receiver = session.receivers.get(ReceiverId(owner))
        made = Subscription(
            id=SubscriptionId(message.subscription),
            expression=expression,
            start=start,
            promise_floor=dict(start),
            owner=owner,
            ttl_s=message.ttl_s,
            max_count=message.max_count,
            keys=keys,
            owner_keys=receiver.keys if receiver else (),
            insecure=message.insecure,
            payer=payer,
        )
        session.add_subscription(made)
        self._made(session, made)

    def set_keys(self, session: Session, receiver: Receiver, keys: Iterable[Key]) -> list[SubscriptionId]:
        """Set the keys that go with all subscriptions of a receiver, present and future. The caller marks the session
        as changed, and calls :meth:`kept` once that is durable.

        Args:
            keys: as the client sends them: those of its own side raw, those of producers public.

        Returns:
            The subscriptions whose keys have changed; each of them has a new generation.

        Raises:
            LimitExceeded: the session would have too many subscriptions, those that are still owed included, or its
                descriptor would be too large; nothing was changed.
        """
        keys = primed(CONSUMER, keys)
        rekeyed = [
            subscription
            for subscription in session.subscriptions.active()
            if subscription.owner == receiver.id and subscription.owner_keys != keys
        ]
        size = sum(map(_size, rekeyed)) + (len(rekeyed) + 1) * _size_of_keys(keys)
        self._make_room(session, len(rekeyed), size)
        receiver.set_keys(keys)
        for subscription in rekeyed:
            self._replace(session, subscription, subscription.keys, keys, insecure=subscription.insecure)
        return [subscription.id for subscription in rekeyed]

    def _make_room(self, session: Session, more: int, size: int = 0) -> None:
        """Forget what every receiver has of ended subscriptions, and check that there is room for others.

        Args:
            more: subscriptions that are about to be added, generations with other keys included.
            size: bytes that they add to the session's descriptor, about.

        Raises:
            LimitExceeded: there is no room.
        """
        if session.subscriptions.ended:
            session.forget_ended(self._env.state.frontier)
        if not more and not size:
            return
        if more and len(session.subscriptions.all()) + more > MAX_SUBSCRIPTIONS_PER_SESSION:
            raise LimitExceeded(
                f"a session has at most {MAX_SUBSCRIPTIONS_PER_SESSION} subscriptions, with those that ended, or had "
                "other keys, and of which some receiver does not have all"
            )
        self._sessions.require_room(session, size, self._env.settings.described_bytes)

    def _replace(
        self,
        session: Session,
        known: Subscription,
        keys: tuple[Key, ...],
        owner_keys: tuple[Key, ...],
        *,
        insecure: bool,
    ) -> Subscription:
        """Change the keys exactly between two notifications of every origin: above all that we know of.

        It is another generation of the subscription that has them: up to where it begins, the one before is owed, and
        from there on what was promised holds for it.
        """
        at = self._env.reached(session)
        # A receiver that has passed more of an origin than that takes nothing from the others (handover rule 30).
        promised = {origin: max(above, at.get(origin, NOTHING)) for origin, above in known.durable_promises.items()}
        made = Subscription(
            id=known.id,
            expression=known.expression,
            start=dict(at),
            promise_floor=dict(at),
            promised=promised,
            owner=known.owner,
            ttl_s=known.ttl_s,
            max_count=known.max_count,
            expired_below=known.expired_below,
            displaced_below=known.displaced_below,
            keys=keys,
            owner_keys=owner_keys,
            insecure=insecure,
            payer=known.payer,
        )
        journal_facts.unsubscribed(self._output.journal, session, session.replace_subscription(made, at))
        self._made(session, made)
        made.continued = bool(promised)
        return made

    def kept(self, session: Session, identities: Iterable[SubscriptionId]) -> None:
        """Attest the promises that new generations took over from those before, now that the change of keys is durable.

        Args:
            identities: of the changed subscriptions; those that took over no promise are passed over.
        """
        for identity in identities:
            made = session.subscriptions.get(identity)
            if made is not None and made.continued:
                made.continued = False
                journal_facts.effective(self._output.journal, session, made, made.durable_promises)

    def _made(self, session: Session, made: Subscription) -> None:
        journal_facts.subscribed(self._output.journal, session, made)
        if made.has_policy:
            journal_facts.policy(self._output.journal, session, made)
        self._changed(session)

    def unsubscribe(self, session: Session, identity: SubscriptionId) -> None:
        """End a subscription; nothing is done if there is no active one of that id. The end is attested, and
        SubscriptionEnded is reported.

        Notifications that were acknowledged to their producers before are owed. The end (R) is not known in any origin
        yet: proxy/stream/subscription_ends.py finds it (handover rule 7).
        """
        if identity in session.subscriptions:
            origins = [*self._env.reached(session), *session.gates]
            ended = session.end_subscription(identity, dict.fromkeys(origins, UNKNOWN_END))
            journal_facts.unsubscribed(self._output.journal, session, ended)
            self._changed(session)
            self._output.report(SubscriptionEnded(session))

    def altered(self, session: Session, identity: SubscriptionId) -> None:
        """Report that a subscription was changed, so that the session's attached receivers are told how it is now."""
        self._output.report(SubscriptionAltered(session, identity))

    def _changed(self, session: Session) -> None:
        self._sessions.subscriptions_changed(session)
        self._sessions.interest.register(session)
        self._sessions.mark_changed(session.id)
        self._coverage.watch(session)
        self._expiry.watch(session)


def _size(subscription: Subscription) -> int:
    """Return the bytes that another generation of the subscription adds to the session's descriptor."""
    return len(msgspec.json.encode(subscription.row()))


def _size_of_keys(keys: tuple[Key, ...]) -> int:
    return len(msgspec.json.encode(keys))
