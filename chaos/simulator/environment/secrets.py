"""Access by secrets that a producer and a subscription have in common: a model without any keys or hashes.

From when on a subscription goes by other secrets is known only within bounds: what was published after the client was
told so goes by the new ones for sure, and what some receiver was given before it was asked for by the old ones. What
lies between may go by either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from waypost.identity import Coordinate, Origin
from waypost.keys import Keys, public_key


class Secrets(NamedTuple):
    """What a producer says with a notification, or a receiver with a subscription: secrets, by name."""

    secrets: tuple[str, ...] = ()
    insecure: bool = True

    def allows(self, other: Secrets) -> bool:
        """Tell whether a notification with these secrets may be delivered to a subscription with `other`; symmetric."""
        return (self.insecure and other.insecure) or bool(set(self.secrets) & set(other.secrets))

    def published(self) -> Keys:
        """Return the keys, raw and of the producer scheme, of a notification published with these secrets."""
        return Keys.producer(*(secret.encode() for secret in self.secrets))

    def subscribed(self) -> Keys:
        """Return the keys, public and of the producer scheme, of a subscription requested with these secrets."""
        return Keys.producer(*(public_key(secret.encode()) for secret in self.secrets))

    @classmethod
    def of(cls, words: list[str]) -> Secrets:
        """Return the secrets that the options of a scenario's directive name.

        Args:
            words: ``key=NAME`` adds a secret; ``secure``: no delivery where no keys meet; other words are ignored.
        """
        secrets = tuple(word.removeprefix("key=") for word in words if word.startswith("key="))
        return cls(secrets, "secure" not in words)


OPEN = Secrets()
ANNOUNCED_SECRETS = (
    OPEN,
    Secrets(("k",)),
    Secrets(("k",), False),
    Secrets(("l",), False),
    Secrets(("k", "l")),
    Secrets((), False),
)


@dataclass(slots=True)
class _Change:
    keys: Secrets
    before: frozenset[Coordinate]
    """What its receiver had when it was asked for."""
    settled: dict[Origin, int] | None = None
    """How long each log was when the client was told that it is done."""


class History:
    """What was said of one subscription, in order."""

    def __init__(self) -> None:
        self._changes: list[_Change] = []

    @property
    def last(self) -> Secrets:
        """The secrets that were requested last; OPEN if none were."""
        return self._changes[-1].keys if self._changes else OPEN

    def requested(self, keys: Secrets, before: frozenset[Coordinate]) -> None:
        """Note that the subscription was requested with these secrets, unless they are the last ones.

        Args:
            keys: the requested secrets.
            before: the notifications that the receiver had by then.
        """
        if not self._changes or keys != self.last:
            self._changes.append(_Change(keys, before))

    def applied(self, lengths: dict[Origin, int]) -> None:
        """Note that the last request was answered: its secrets are in force for all that is published from now on.

        Args:
            lengths: origin -> the offset below which all was published by now.
        """
        if self._changes and self._changes[-1].settled is None:
            self._changes[-1].settled = lengths

    def candidates(self, origin: Origin, offset: int) -> Iterator[Secrets]:
        """Yield the secrets that may have been in force when a notification was matched, the latest ones first.

        Nothing is yielded if no secrets were requested, or if the receiver had the notification before all requests.

        Args:
            origin: of the notification.
            offset: of the notification.
        """
        for change in reversed(self._changes):
            if Coordinate(origin, offset) in change.before:
                continue
            yield change.keys
            if change.settled is not None and offset >= change.settled.get(origin, 0):
                return
