"""Which sessions want a notification: every distinct expression is once in the index, whichever sessions have it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter

from matching.index import Index, Known
from proxy.core.cost_budget import CostBudget
from proxy.session.session import Session
from proxy.session.subscription import Matched, Subscription
from waypost.frontier import join
from waypost.identity import NOTHING, Origin, SessionId
from waypost.keys import OPEN, Protection
from waypost.limits import FOLD_SLICE_S
from waypost.notification import Value, decoding_cost_ns, read_body
from waypost.subscription import Expression
from waypost.subscription.cost import NODE_NS


class Holder:
    """One session's subscriptions with one expression.

    Attributes:
        started_above: by origin, the offset above which all of these subscriptions match.
        is_open: whether none of them has ended and none demands keys: above `started_above` a notification that demands
            none either matches all of them without a check of each.
        weight_ns: estimate of the time to store and deliver one match, in nanoseconds.
    """

    __slots__ = ("_subscriptions", "_whole", "is_open", "session", "started_above", "weight_ns")

    def __init__(self, session: Session, subscriptions: list[Subscription]) -> None:
        self.session = session
        self.started_above: dict[Origin, int] = {}
        self._subscriptions = subscriptions
        self._whole: Matched = tuple(subscription.id for subscription in subscriptions)
        self.weight_ns = HOLDER_NS + sum(ID_NS + len(subscription.id) * ID_BYTE_NS for subscription in subscriptions)
        self.is_open = _are_open(subscriptions)
        for subscription in subscriptions:
            join(self.started_above, subscription.start)

    def is_of(self, session: Session, subscriptions: list[Subscription]) -> bool:
        """Tell whether a new holder of these subscriptions, in this order, would be the same as this one."""
        known = self._subscriptions
        return (
            self.session is session
            and len(known) == len(subscriptions)
            and all(before is now for before, now in zip(known, subscriptions, strict=True))
            and self.is_open == _are_open(subscriptions)
        )

    def wanting(self, origin: Origin, offset: int, protection: Protection = OPEN) -> Matched:
        """Return the ids of the subscriptions that want a notification at a coordinate; empty: none of them.

        The notification matches their expression. Their intervals and keys are looked at here.

        Args:
            protection: the keys of the notification.
        """
        if self.is_open and protection.insecure and offset > self.started_above.get(origin, NOTHING):
            return self._whole
        wanting = (
            sub.id for sub in self._subscriptions if sub.wants(origin, offset) and sub.protection.allows(protection)
        )
        # One that has ended may overlap one of the same name that was made since.
        return tuple(dict.fromkeys(wanting))


def _are_open(subscriptions: list[Subscription]) -> bool:
    """Tell whether all want what matches above their starts: none has ended, and none asks for keys."""
    return all(subscription.insecure and subscription.end is None for subscription in subscriptions)


class _Holders(dict[SessionId, Holder]):
    """The sessions that have one expression.

    `number`: how many distinct ones had come before it. `weight_ns`: what it takes to store and deliver what matches.
    """

    __slots__ = ("number", "weight_ns")

    def __init__(self, number: int) -> None:
        self.number = number
        self.weight_ns = 0

    def put(self, holder: Holder) -> None:
        before = self.get(holder.session.id)
        self.weight_ns += holder.weight_ns - (before.weight_ns if before is not None else 0)
        self[holder.session.id] = holder

    def remove(self, session: SessionId) -> None:
        if before := self.pop(session, None):
            self.weight_ns -= before.weight_ns


class JoinedHits:
    """What sets of expressions matched together before, for all sessions that have any of them.

    The same is true again above the offsets from which all of those subscriptions want what matches, as long as nothing
    is put or removed, and if nobody asks for keys. A set is kept when it has come twice.
    """

    def __init__(self) -> None:
        self._seen: set[tuple[int, ...]] = set()
        self._kept: dict[tuple[int, ...], tuple[dict[Origin, int], list[tuple[Session, Matched]]]] = {}
        self._size = 0
        """Hits of the sets, and sessions of those that are kept."""

    def clear(self) -> None:
        """Forget all sets: call it whenever a subscription comes, ends or changes."""
        if self._seen:
            self._seen, self._kept, self._size = set(), {}, 0

    def of(self, numbers: tuple[int, ...], origin: Origin, offset: int) -> list[tuple[Session, Matched]] | None:
        """Return what these expressions matched together before, keys left out of account; do not change the list.
        None: not known, or it may be another one at this coordinate.

        Args:
            numbers: of the expressions that are true of the notification, in ascending order.
            origin: of the notification.
            offset: of the notification, in its origin's log.
        """
        known = self._kept.get(numbers)
        if known is None or offset <= known[0].get(origin, NOTHING):
            return None
        return known[1]

    def note(
        self,
        numbers: tuple[int, ...],
        hits: Sequence[_Holders],
        origin: Origin,
        offset: int,
        together: list[tuple[Session, Matched]],
    ) -> None:
        """Keep what these expressions matched together, if this set has come before and will match the same again. Past
        JOINED_SIZE all sets are forgotten first.

        Call it only for a notification that demands no keys: :meth:`of` does not look at keys.

        Args:
            numbers: of the expressions that are true of the notification, in ascending order.
            hits: the sessions of each of these expressions.
            origin: of the notification.
            offset: of the notification, in its origin's log.
            together: the sessions with their matched subscriptions, as :meth:`of` is to return them; do not change it
                later.
        """
        if self._size > JOINED_SIZE:
            self.clear()
        if numbers not in self._seen:
            self._seen.add(numbers)
            self._size += len(numbers)
            return
        started_above: dict[Origin, int] = {}
        for holders in hits:
            for holder in holders.values():
                if not holder.is_open:
                    return
                join(started_above, holder.started_above)
        if offset > started_above.get(origin, NOTHING):
            # All of each holder was wanted, and so it will be wherever `of` gives it.
            self._kept[numbers] = started_above, together
            self._size += len(together)


class Matcher:
    """The subscriptions of all sessions at this proxy that are active, or whose end is not known yet, by expression."""

    def __init__(self) -> None:
        self._index: Index[_Holders] = Index()
        self._came = 0
        self._by_text: dict[str, _Holders] = {}
        """The expressions by their canonical form, as the site knows it."""
        self._expressions: dict[SessionId, list[Expression]] = {}
        self.spending = CostBudget()
        self._known_matches: dict[Matched, Matched] = {}
        self._joined = JoinedHits()
        self._evaluated: tuple[bytes, Known] | None = None
        """The last notification that was evaluated before it was matched."""

    def put(self, session: Session) -> None:
        """Match by the session's subscriptions as they are now, in place of those of the last call, and charge them
        (:class:`CostBudget`).
        """
        self._joined.clear()
        self.spending.put(session)
        by_expression: dict[Expression, list[Subscription]] = {}
        for subscription in session.subscriptions.matching():
            by_expression.setdefault(subscription.expression, []).append(subscription)
        gone = [expression for expression in self._expressions.get(session.id, ()) if expression not in by_expression]
        self._expressions[session.id] = list(by_expression)
        for expression, subscriptions in by_expression.items():
            holders = self._holders_of(expression)
            known = holders.get(session.id)
            if known is not None and known.is_of(session, subscriptions):
                continue
            before_ns = holders.weight_ns
            holders.put(Holder(session, subscriptions))
            if holders.weight_ns != before_ns:
                self._weigh(expression, holders)
        self._release(session.id, gone)

    def remove(self, session: SessionId) -> None:
        """Match by the session's subscriptions no more, and release their cost; nothing happens if it was not put."""
        self._joined.clear()
        self.spending.remove(session)
        self._release(session, self._expressions.pop(session, ()))

    def foreseen_ns(self, bodies: Sequence[bytes]) -> list[int]:
        """Return for each notification an estimate, in ns, of the time to match, store and deliver it.

        Where the sum stays below FOLD_SLICE_S even at the slowest, each gets the slowest estimate for its size.

        Args:
            bodies: the encoded attributes of the notifications.
        """
        cost = self.spending.proxy.cost
        decoding_ns = [decoding_cost_ns(body) for body in bodies]
        times = [1 + len(body) / TWICE_AS_LONG_BYTES for body in bodies]
        most_ns = [
            int(self._index.max_ns(multiple)) + cost.work_ns + decoding
            for multiple, decoding in zip(times, decoding_ns, strict=True)
        ]
        if sum(most_ns) < FOLD_SLICE_S * 1e9:
            return most_ns
        return [
            int(self._index.foreseen_ns(read_body(body), multiple) + cost.of(len(body)) - cost.of(0)) + decoding
            for body, multiple, decoding in zip(bodies, times, decoding_ns, strict=True)
        ]

    def evaluate(self, body: bytes) -> Iterator[None]:
        """Evaluate the expressions that :meth:`match` will need for this body, one before each item yielded.

        The results are kept until the next call, and used by :meth:`match` for the same object `body`.

        Args:
            body: the encoded attributes of a notification.
        """
        known: Known = {}
        self._evaluated = (body, known)
        yield from self._index.evaluate(read_body(body), known)

    def match(
        self,
        origin: Origin,
        offset: int,
        attributes: Mapping[str, Value],
        protection: Protection = OPEN,
        body: bytes | None = None,
    ) -> Iterable[tuple[Session, Matched]]:
        """Return the sessions that match a notification (keys included), each once, with the matching subscriptions. Do
        not change the result: later calls may return the same object.

        Args:
            origin: of the notification.
            offset: of the notification, in its origin's log.
            protection: the keys of the notification.
            body: the encoded attributes; the results of :meth:`evaluate` are used if it had this same object.
        """
        evaluated = self._evaluated
        known = evaluated[1] if evaluated is not None and evaluated[0] is body else None
        hits = self._index.match(attributes, known)
        if len(hits) == 1:
            return [
                (holder.session, matched)
                for holder in hits[0].values()
                if (matched := holder.wanting(origin, offset, protection))
            ]
        if not hits:
            return ()
        # In the order in which they came, so that a run does not depend on how they are found.
        hits.sort(key=_NUMBER)
        numbers = tuple(map(_NUMBER, hits))
        joined = self._joined.of(numbers, origin, offset) if protection.insecure else None
        if joined is None:
            found = _together(hits, origin, offset, protection)
            joined = [(session, self.shared(matched)) for session, matched in found]
            if protection.insecure:
                self._joined.note(numbers, hits, origin, offset, joined)
        return joined

    def shared(self, matched: Matched) -> Matched:
        """Return an equal tuple that earlier calls have returned, so that entries share one copy in memory."""
        if len(self._known_matches) > KNOWN_MATCHES:
            self._known_matches.clear()
        return self._known_matches.setdefault(matched, matched)

    def holding(self, expression: str) -> list[Session]:
        """Return the sessions with a subscription of this expression that still matches; empty: there are none.

        Args:
            expression: in canonical form.
        """
        return [holder.session for holder in self._by_text.get(expression, {}).values()]

    def __len__(self) -> int:
        return len(self._index)

    @property
    def unindexed(self) -> int:
        """The number of alternatives of expressions that no index covers: every notification is held against them."""
        return self._index.unindexed

    def _holders_of(self, expression: Expression) -> _Holders:
        holders = self._index.get(expression)
        if holders is None:
            self._came += 1
            holders = _Holders(self._came)
            self._index.add(expression, holders)
            self._by_text[expression.canonical] = holders
        return holders

    def _release(self, session: SessionId, expressions: Iterable[Expression]) -> None:
        for expression in expressions:
            holders = self._index.get(expression)
            assert holders is not None
            holders.remove(session)
            if not holders:
                self._index.remove(expression)
                del self._by_text[expression.canonical]
            else:
                self._weigh(expression, holders)

    def _weigh(self, expression: Expression, holders: _Holders) -> None:
        self._index.weigh(expression, expression.cost.nodes * NODE_NS, holders.weight_ns)


_NUMBER = attrgetter("number")
KNOWN_MATCHES = 10_000
JOINED_SIZE = 100_000
"""Number of sets of hits that are remembered, with the sessions that they matched."""
HOLDER_NS = 10_000
"""What it takes about to store a notification for one session, and to deliver it."""
TWICE_AS_LONG_BYTES = 8 * 1024
"""And as much again for each so many bytes of it."""
ID_NS, ID_BYTE_NS = 1_000, 20
"""And for each subscription of it that matches: its id goes with each notification."""


def _together(
    hits: Iterable[_Holders], origin: Origin, offset: int, protection: Protection
) -> Iterable[tuple[Session, Matched]]:
    """Join what several expressions matched for the same session."""
    found: dict[SessionId, tuple[Session, list[Matched]]] = {}
    for holders in hits:
        for identity, holder in holders.items():
            matched = holder.wanting(origin, offset, protection)
            if matched:
                found.setdefault(identity, (holder.session, []))[1].append(matched)
    return [
        (session, all_of[0] if len(all_of) == 1 else tuple(dict.fromkeys(chain(*all_of))))
        for session, all_of in found.values()
    ]
