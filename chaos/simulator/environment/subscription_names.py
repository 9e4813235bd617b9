"""What the simulator remembers of subscriptions that end: what was published before, and whose name was used again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from waypost.facts import Fact
from waypost.identity import NOTHING, Origin


class PublishedBefore(NamedTuple):
    """How far the origins went when a subscription was asked to end.

    Args:
        published: the last offset of each origin in its log.
        read: how far the owner's site had read.
    """

    published: dict[Origin, int]
    read: dict[Origin, int]

    def floor(self, origin: Origin, *, is_confirmed: bool) -> int:
        """Return up to where the origin is owed at least."""
        return (self.published if is_confirmed else self.read).get(origin, NOTHING)

    def without(self, origins: Iterable[Origin], offset: int) -> PublishedBefore:
        """Return it after a log has lost what these origins had from `offset` on: others will stand there."""
        last = {origin: min(self.published[origin], offset - 1) for origin in {*origins} & self.published.keys()}
        return self._replace(published=self.published | last)


@dataclass
class ReusedNames:
    """Which of the subscriptions of one name a fact is about: each has generations of its own."""

    _earlier: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """(session, subscription, its generation) of one whose name was used again -> what it is called since."""

    def __bool__(self) -> bool:
        return bool(self._earlier)

    def reuse(self, session: str, subscription: str, first: str, facts: Iterable[Fact]) -> None:
        """The name is used again: all its generations up to here, by the facts, are called `first`."""
        for fact in facts:
            if (fact.session, fact.subscription) == (session, subscription):
                key = (session, subscription, fact.subscription_generation)
                self._earlier.setdefault(key, first)

    def name_of(self, fact: Fact) -> tuple[str, str]:
        """Return the session and the subscription that the fact is about."""
        name = self._earlier.get((fact.session, fact.subscription, fact.subscription_generation), fact.subscription)
        return (fact.session, name)
