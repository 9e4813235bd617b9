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
        """Return the offset up to which the ended subscription is owed at least what an origin has; -1: nothing.

        Args:
            origin: whose notifications they are.
            is_confirmed: whether the origin's site answered in time how far its log went (handover rule 7).
        """
        return (self.published if is_confirmed else self.read).get(origin, NOTHING)

    def without(self, origins: Iterable[Origin], offset: int) -> PublishedBefore:
        """Return a copy for logs that have lost their end: what was published of these origins ends below `offset`.

        Args:
            origins: of the lost records; those that the subscription knows nothing of are ignored.
            offset: from here on other records will stand in the log.
        """
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
        """Note that another subscription takes the name of an ended one, whose generations so far get the name `first`.

        Args:
            session: of both subscriptions.
            subscription: the name that is used again.
            first: the new name of the ended subscription, unused so far.
            facts: all facts so far, which tell the generations.
        """
        for fact in facts:
            if (fact.session, fact.subscription) == (session, subscription):
                key = (session, subscription, fact.subscription_generation)
                self._earlier.setdefault(key, first)

    def name_of(self, fact: Fact) -> tuple[str, str]:
        """Return the session and the subscription of a fact; the latter by its new name, if its own was used again."""
        name = self._earlier.get((fact.session, fact.subscription, fact.subscription_generation), fact.subscription)
        return (fact.session, name)
