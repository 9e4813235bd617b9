"""The checker: from what was published and what receivers were given, who lost, got twice, or got in a wrong order.

Plain and slow on purpose.

It stands on the client's side of everything and shares nothing with the proxies but the language's evaluator; the audit
on Spark shares not even that.
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
    """One notification as a receiver was given it, and at which origin it was appended first."""

    id: NotificationId
    origin: Origin


@dataclass(slots=True, kw_only=True)
class CheckResult:
    """What came of one run. Every list names (receiver, notification)."""

    published: int = 0
    expected: int = 0
    delivered: int = 0
    lost: list[tuple[str, NotificationId]] = field(default_factory=list)
    duplicated: list[tuple[str, NotificationId]] = field(default_factory=list)
    phantom: list[tuple[str, NotificationId]] = field(default_factory=list)
    reordered: list[tuple[str, NotificationId]] = field(default_factory=list)
    """Given after a later one of the same producer and origin."""

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicated or self.phantom or self.reordered)

    @property
    def worst(self) -> dict[str, list[tuple[str, NotificationId]]]:
        """The first few of everything that is wrong, for a message."""
        wrong = {
            "lost": self.lost,
            "duplicated": self.duplicated,
            "phantom": self.phantom,
            "reordered": self.reordered,
        }
        return {name: each[:5] for name, each in wrong.items() if each}


def check(
    published: Mapping[NotificationId, Mapping[str, Value]],
    subscriptions: Mapping[str, Iterable[str]],
    got: Mapping[str, Sequence[Delivered]],
) -> CheckResult:
    """Judge a run in which all subscriptions were effective before the first publish.

    Args:
        published: everything that was acknowledged to its producer.
        subscriptions: each receiver's expressions.
        got: what each receiver was given, in the order in which it was given it.
    """
    tally = CheckResult(published=len(published))
    for receiver, expressions in subscriptions.items():
        parsed = [parse(expression) for expression in expressions]
        owed = {
            identity
            for identity, attributes in published.items()
            if any(expression.matches(attributes) for expression in parsed)
        }
        received = got.get(receiver, ())
        counter = Counter(delivered.id for delivered in received)
        tally.expected += len(owed)
        tally.delivered += counter.total()
        tally.lost += [(receiver, each) for each in owed if not counter[each]]
        tally.duplicated += [(receiver, each) for each, times in counter.items() if times > 1]
        tally.phantom += [(receiver, each) for each in counter if each not in owed]
        tally.reordered += [(receiver, each) for each in _late(received)]
    return tally


def _late(received: Sequence[Delivered]) -> Iterator[NotificationId]:
    """Yield what came after a later one of the same life of a producer, at the same origin (P3).

    A repeat is a repeat and nothing else: only the first copy of each is looked at.
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
