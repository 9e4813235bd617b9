"""The checker: from what was published and what receivers were given, who lost or got twice. Plain and slow on purpose.

It stands on the client's side of everything and shares nothing with the proxies but the language's evaluator; the audit
on Spark shares not even that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from waypost.identity import NotificationId
from waypost.notification import Value
from waypost.subscription import parse


@dataclass(slots=True)
class Tally:
    """What came of one run. Every list names (receiver, notification)."""

    published: int = 0
    owed: int = 0
    delivered: int = 0
    lost: list[tuple[str, NotificationId]] = field(default_factory=list)
    duplicated: list[tuple[str, NotificationId]] = field(default_factory=list)
    phantom: list[tuple[str, NotificationId]] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicated or self.phantom)


def check(
    published: Mapping[NotificationId, Mapping[str, Value]],
    subscriptions: Mapping[str, Iterable[str]],
    got: Mapping[str, Counter[NotificationId]],
) -> Tally:
    """Judge a run in which all subscriptions were effective before the first publish.

    Args:
        published: everything that was acknowledged to its producer.
        subscriptions: each receiver's expressions.
        got: how often each receiver was given each notification.
    """
    tally = Tally(published=len(published))
    for receiver, expressions in subscriptions.items():
        parsed = [parse(expression) for expression in expressions]
        owed = {
            identity
            for identity, attributes in published.items()
            if any(expression.matches(attributes) for expression in parsed)
        }
        given = got.get(receiver, Counter())
        tally.owed += len(owed)
        tally.delivered += given.total()
        tally.lost += [(receiver, each) for each in owed if not given[each]]
        tally.duplicated += [(receiver, each) for each, times in given.items() if times > 1]
        tally.phantom += [(receiver, each) for each in given if each not in owed]
    return tally
