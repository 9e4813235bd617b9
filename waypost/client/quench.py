"""What a producer was told of what anybody wants. Pure.

Theory
------
What a proxy told is true as long as its connection stands; on the next one all is told anew. As long as not all was
told, anything may be wanted: to send too much costs a little, to send too little loses what somebody was promised.
"""

from __future__ import annotations

from collections.abc import Mapping

from waypost.keys import Key
from waypost.messages import Interest, Quench
from waypost.notification import Notification, Value
from waypost.subscription import Expression, parse


class QuenchView:
    """One producer's question, and the answers on the connection that stands."""

    def __init__(self) -> None:
        self._requested: Quench | None = None
        self._number = 0
        self._names: frozenset[str] = frozenset()
        self.terms: dict[str, Expression] = {}
        """What is wanted, by its text."""
        self.caught_up = False
        """All was told that the proxy knows of."""

    def ask(self, names: list[str], keys: list[Key], *, insecure: bool) -> Quench:
        """Return what asks for terms that have to do with these attributes, in place of what was asked before."""
        self._number += 1
        self._names = frozenset(names)
        quench = Quench(self._number, sorted(self._names), keys, insecure)
        self._requested = quench if names else None
        self.lost()
        return quench

    def lost(self) -> None:
        """What was told means nothing any more."""
        self.terms.clear()
        self.caught_up = False

    def reset(self) -> list[Quench]:
        """Return what asks again on a new connection."""
        self.lost()
        return [] if self._requested is None else [self._requested]

    def receive(self, message: Interest) -> bool:
        """Take an answer; tell whether it is one to what was asked last."""
        if message.number != self._number:
            return False
        for term in message.removed:
            self.terms.pop(term, None)
        self.terms.update({term: parse(term) for term in message.added})
        self.caught_up = self.caught_up or message.caught_up
        return True

    def wanted(self, notification: Mapping[str, Value]) -> bool:
        """Tell whether somebody may want it; somebody may before all was told, and where an attribute was not named."""
        if self._requested is None or not self.caught_up:
            return True
        attributes = notification.attributes if isinstance(notification, Notification) else dict(notification)
        if not self._names.issuperset(attributes):
            return True
        return any(term.matches(attributes) for term in self.terms.values())
