"""The checker: compares published notifications with deliveries, and finds losses, repeats, phantoms and disorder.

It is plain and slow on purpose. It sees only what clients see, and shares nothing with the proxies but the language's
evaluator; the audit on Spark shares not even that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from waypost.identity import NotificationId, Origin
from waypost.notification import Value
from waypost.subscription import parse


class Delivered(NamedTuple):
    """One notification as it was delivered to a client.

    Args:
        id: its producer, incarnation and sequence number.
        origin: the origin at which it was first appended.
    """

    id: NotificationId
    origin: Origin


@dataclass(slots=True, kw_only=True)
class CheckResult:
    """The result of one run. Every list has (receiver, notification).

    Attributes:
        published: number of notifications that were acknowledged to their producers.
        expected: deliveries that were owed, once for each receiver; `delivered`: those that came, repeats included.
    """

    published: int = 0
    expected: int = 0
    delivered: int = 0
    lost: list[tuple[str, NotificationId]] = field(default_factory=list)
    duplicated: list[tuple[str, NotificationId]] = field(default_factory=list)
    phantom: list[tuple[str, NotificationId]] = field(default_factory=list)
    reordered: list[tuple[str, NotificationId]] = field(default_factory=list)
    """Delivered after a later one of the same producer and origin (P3)."""

    @property
    def clean(self) -> bool:
        """Whether nothing was lost, duplicated, phantom or reordered."""
        return not (self.lost or self.duplicated or self.phantom or self.reordered)

    @property
    def worst(self) -> dict[str, list[tuple[str, NotificationId]]]:
        """The first five of each kind of violation, for a message; kinds without any are left out."""
        violations = {
            "lost": self.lost,
            "duplicated": self.duplicated,
            "phantom": self.phantom,
            "reordered": self.reordered,
        }
        return {kind: found[:5] for kind, found in violations.items() if found}


def check(
    published: Mapping[NotificationId, Mapping[str, Value]],
    subscriptions: Mapping[str, Iterable[str]],
    got: Mapping[str, Sequence[Delivered]],
) -> CheckResult:
    """Return what each receiver lost, got twice, got without being owed it, or got out of order.

    All subscriptions must have been effective before the first publish: a receiver is owed every notification that one
    of its expressions matches.

    Args:
        published: id -> attributes, of all notifications that were acknowledged to their producers.
        subscriptions: receiver -> its expressions; other receivers are not looked at.
        got: receiver -> its deliveries, in their order; a receiver without an entry has none.

    Raises:
        SubscriptionError: an expression cannot be parsed.
    """
    result = CheckResult(published=len(published))
    for receiver, expressions in subscriptions.items():
        parsed = [parse(expression) for expression in expressions]
        owed = {
            identity
            for identity, attributes in published.items()
            if any(expression.matches(attributes) for expression in parsed)
        }
        received = got.get(receiver, ())
        counter = Counter(delivered.id for delivered in received)
        result.expected += len(owed)
        result.delivered += counter.total()
        result.lost += [(receiver, identity) for identity in owed if not counter[identity]]
        result.duplicated += [(receiver, identity) for identity, times in counter.items() if times > 1]
        result.phantom += [(receiver, identity) for identity in counter if identity not in owed]
        result.reordered += [(receiver, identity) for identity in _late(received)]
    return result


def _late(received: Sequence[Delivered]) -> Iterator[NotificationId]:
    """Yield notifications that came after a later one of the same producer's incarnation, at the same origin (P3).

    Only the first copy of each counts.
    """
    seen: set[NotificationId] = set()
    latest: dict[tuple[str, str, Origin], int] = {}
    for identity, origin in received:
        if identity in seen:
            continue
        seen.add(identity)
        incarnation = (identity.producer, identity.incarnation, origin)
        if identity.sequence < latest.get(incarnation, -1):
            yield identity
        latest[incarnation] = max(identity.sequence, latest.get(incarnation, -1))
