"""The subscriptions of one session: active ones by id, and ended ones that are still owed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from proxy.session.subscription import Matched, Subscription
from waypost.checkpoint import SubscriptionRow
from waypost.identity import NOTHING, Epoch, Origin, SubscriptionId
from waypost.keys import OPEN, Protection
from waypost.notification import Value


class SubscriptionSet(dict[SubscriptionId, Subscription]):
    """A session's subscriptions: a dictionary of the active ones, and a list of those that have ended.

    The session calls what changes it, for retention follows from it (:meth:`Session.subscriptions_changed`).
    """

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[Subscription] = []
        """Ended subscriptions, until all receivers have what they matched before their end."""
        self._made = 0
        """Subscriptions made in this copy."""
        self._interest_expressions: tuple[str, ...] | None = ()
        """Expressions that the site must hold for the session; None: they are to be found anew."""

    # ------------------------------------------------------------ changes

    def changed(self) -> None:
        """Find anew what is derived from the subscriptions, when it is asked for next."""
        self._interest_expressions = None

    def describe(self, rows: Iterable[SubscriptionRow]) -> None:
        """Replace all subscriptions, active and ended, by those of a descriptor."""
        listed = [Subscription.of(row) for row in rows]
        self.clear()
        self.update((subscription.id, subscription) for subscription in listed if subscription.end is None)
        self.ended = [subscription for subscription in listed if subscription.end is not None]

    def add(self, subscription: Subscription, epoch: Epoch) -> None:
        """Add a new subscription, and give it a generation that no other one of the session has. The caller checks that
        no active subscription has its id: it would be overwritten.

        The generation is made of the epoch and a number: no other copy of the session ever serves at this epoch.

        Args:
            epoch: the one at which the session is served.
        """
        self._made += 1
        subscription.generation = f"{epoch}/{self._made}"
        self[subscription.id] = subscription

    def end(self, identity: SubscriptionId, at: Mapping[Origin, int]) -> Subscription:
        """End a subscription, and return it; it stays in :attr:`ended` until all receivers have what it matched.
        Earlier generations of it that are still owed are replaced no more: they count as ended with it.

        The caller attests the end (:func:`proxy.core.journal_facts.unsubscribed`): before that call it counts as on
        record, and may be forgotten.

        Args:
            at: origin -> the last offset that it still matches; UNKNOWN_END: not known yet; an origin that is left out
                matches nothing any more.

        Raises:
            KeyError: there is no active subscription of that id.
        """
        subscription = self.pop(identity)
        subscription.end = dict(at)
        for earlier in self.generations(identity):
            earlier.replaced = False
        self.ended.append(subscription)
        return subscription

    def replace(self, following: Subscription, at: Mapping[Origin, int], epoch: Epoch) -> Subscription:
        """Replace a subscription by its next generation, with the same id and other keys; return the one before.

        Args:
            following: the next generation; it gets a generation's name here.
            at: origin -> the last offset that the generation before matches.
            epoch: the one at which the session is served.

        Raises:
            KeyError: there is no active subscription of that id.
        """
        before = self[following.id]
        before.end, before.replaced = dict(at), True
        self.ended.append(before)
        self.add(following, epoch)
        return before

    def resolve_ends(self, resolved: Iterable[tuple[Subscription, Mapping[Origin, int]]]) -> None:
        """Set ends of ended subscriptions that are known by now.

        Args:
            resolved: an ended subscription, and origin -> the last offset that it matches; others stay.
        """
        for subscription, at in resolved:
            subscription.end = {**(subscription.end or {}), **at}
            for origin in at:
                subscription.limits.pop(origin, None)

    def forget_ended(self, acknowledged: Mapping[Origin, int]) -> bool:
        """Forget the ended subscriptions that no receiver is owed any more, and whose end the journal has.

        Args:
            acknowledged: the frontier up to which every receiver has all (:meth:`Session.acknowledged_by_all`).

        Returns:
            Whether any was forgotten.
        """
        owed = [
            subscription
            for subscription in self.ended
            if not subscription.is_end_on_record
            or any(acknowledged.get(origin, NOTHING) < last for origin, last in (subscription.end or {}).items())
        ]
        is_fewer = len(owed) != len(self.ended)
        self.ended = owed
        return is_fewer

    def drop_limits(self) -> None:
        """Drop the limits of ended subscriptions: until the next owner has asked anew where they end, they match
        everything that may lie below.
        """
        for subscription in self.ended:
            subscription.limits.clear()

    def raise_promise_floors(self, cut: Mapping[Origin, int]) -> None:
        """Promise nothing at or below the cut for active subscriptions, in origins without a promise; starts stay
        (handover rule 7, L_FIXED).

        Args:
            cut: the frontier up to which no promise is made any more.
        """
        for subscription in self.values():
            for origin, offset in cut.items():
                if origin not in subscription.promised:
                    subscription.promise_floor[origin] = max(subscription.promise_floor.get(origin, offset), offset)

    # ------------------------------------------------------------ which there are

    def active(self) -> list[Subscription]:
        """Return the subscriptions that have not ended."""
        return list(self.values())

    def all(self) -> list[Subscription]:
        """Return the active subscriptions, and behind them the ended ones that are still owed."""
        return [*self.values(), *self.ended]

    def matching(self) -> list[Subscription]:
        """Return the subscriptions that match live notifications: active ones, and those with an unknown end."""
        return [*self.values(), *(subscription for subscription in self.ended if subscription.has_unknown_end)]

    def generations(self, identity: SubscriptionId) -> list[Subscription]:
        """Return the active subscription of an id, behind its earlier generations that are still owed.

        Empty: there is none, neither active nor owed.
        """
        replaced = [
            subscription for subscription in self.ended if subscription.replaced and subscription.id == identity
        ]
        return [*replaced, self[identity]] if identity in self else replaced

    def goes_on(self, subscription: Subscription) -> bool:
        """Tell whether a subscription is active, or was replaced by its next generation with other keys.

        Else it has ended, and its id may name another one.
        """
        now = self.get(subscription.id)
        return now is subscription or (now is not None and subscription.replaced)

    def known_ends(self) -> frozenset[tuple[str, frozenset[tuple[Origin, int]]]]:
        """Return (generation, known ends by origin) of each ended subscription, in a form that can be compared. Origins
        in which the end is not known are left out.
        """
        return frozenset((ended.generation, frozenset(ended.known_end.items())) for ended in self.ended)

    def promised_from(self) -> dict[Origin, int]:
        """Return origin -> the lowest offset above which a subscription, active or ended, was promised.

        A receiver that never reported the origin counts as having all up to there.
        """
        start: dict[Origin, int] = {}
        for subscription in self.all():
            for origin, above in subscription.promised.items():
                start[origin] = min(above, start.get(origin, above))
        return start

    # ------------------------------------------------------------ what they match

    def interest_expressions(self) -> tuple[str, ...]:
        """Return the expressions that the site must have registered for this session: canonical, sorted, each once."""
        if self._interest_expressions is None:
            self._interest_expressions = tuple(
                sorted({subscription.expression.canonical for subscription in self.matching()})
            )
        return self._interest_expressions

    def interest_protections(self) -> dict[str, tuple[Protection, ...]]:
        """Return canonical expression -> the protections of its subscriptions, sorted, for what the site registers.

        Expressions all of whose subscriptions are open to every notification (OPEN) are left out.
        """
        needing = self.matching()
        if all(subscription.protection == OPEN for subscription in needing):
            return {}
        found: dict[str, set[Protection]] = {}
        for subscription in needing:
            found.setdefault(subscription.expression.canonical, set()).add(subscription.protection)
        return {expression: tuple(sorted(by)) for expression, by in sorted(found.items()) if by != {OPEN}}

    def all_expressions(self) -> tuple[str, ...]:
        """Return the expressions of all subscriptions, ended ones too, for a catch-up: canonical, sorted, each once."""
        return tuple(sorted({subscription.expression.canonical for subscription in self.all()}))

    def match(
        self, origin: Origin, offset: int, attributes: Mapping[str, Value], protection: Protection = OPEN
    ) -> Matched:
        """Return the ids of the subscriptions that match a notification, each once; ended ones too. Empty: none.

        Args:
            origin: of the notification.
            offset: of the notification, in its origin's log.
            attributes: of the notification.
            protection: the keys of the notification; a subscription matches only if its own keys let it.
        """
        wanting = (
            subscription.id
            for subscription in self.all()
            if subscription.wants(origin, offset)
            and subscription.protection.allows(protection)
            and subscription.expression.matches(attributes)
        )
        # One that has ended may overlap one of the same name that was made since.
        return tuple(dict.fromkeys(wanting))
