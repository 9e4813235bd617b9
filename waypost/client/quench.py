"""A producer's view of interest: which subscriptions concern the attributes that it publishes. Pure.

Theory
------
The interest that a proxy reported is valid as long as the connection lives; on the next one it is reported anew. Until
all was reported, any notification may be wanted: sending too much costs a little, sending too little loses
notifications that a receiver was promised.
"""

from __future__ import annotations

from collections.abc import Mapping

from waypost.keys import Key
from waypost.messages import Interest, Quench
from waypost.notification import Notification, Value
from waypost.subscription import Expression, SubscriptionError, parse


class QuenchView:
    """The quench of one producer, and the interest reported on the present connection."""

    def __init__(self) -> None:
        self._requested: Quench | None = None
        self._number = 0
        self._names: frozenset[str] = frozenset()
        self.terms: dict[str, Expression | None] = {}
        """Alternatives of subscriptions, parsed, by their text. None: this library cannot parse the term, as one of a
        later release; it may match any notification.
        """
        self.caught_up = False
        """Whether the proxy has reported all interest that it knows."""

    def ask(self, names: list[str], keys: list[Key], *, insecure: bool) -> Quench:
        """Return the message that asks for the interest in these attributes, in place of what was asked before.

        The interest reported so far is forgotten; the message is kept for later connections (:meth:`reset`).

        Args:
            names: of attributes; empty: interest is not asked for any more.
            keys: that will be published with.
            insecure: the value that will be published with.
        """
        self._number += 1
        self._names = frozenset(names)
        quench = Quench(self._number, sorted(self._names), keys, insecure)
        self._requested = quench if names else None
        self.lost()
        return quench

    def lost(self) -> None:
        """Forget the reported interest: the connection has ended."""
        self.terms.clear()
        self.caught_up = False

    def reset(self) -> list[Quench]:
        """Forget the reported interest; return the message that asks for it again on a new connection. Empty: none was
        asked for.
        """
        self.lost()
        return [] if self._requested is None else [self._requested]

    def receive(self, message: Interest) -> bool:
        """Apply reported interest; return False for an answer to an older quench, which changes nothing.

        A term that this library cannot parse is kept: it counts as one that may match any notification.
        """
        if message.number != self._number:
            return False
        for term in message.removed:
            self.terms.pop(term, None)
        self.terms.update({term: _parsed(term) for term in message.added})
        self.caught_up = self.caught_up or message.caught_up
        return True

    def wanted(self, notification: Mapping[str, Value]) -> bool:
        """Tell whether a subscription may match the notification.

        The result is True also where no interest was asked for, before all interest was reported, and for a
        notification with an attribute that was not named.
        """
        if self._requested is None or not self.caught_up:
            return True
        attributes = notification.attributes if isinstance(notification, Notification) else dict(notification)
        if not self._names.issuperset(attributes):
            return True
        return any(term is None or bool(term.matches(attributes)) for term in list(self.terms.values()))


def _parsed(term: str) -> Expression | None:
    try:
        return parse(term)
    except SubscriptionError:
        return None
