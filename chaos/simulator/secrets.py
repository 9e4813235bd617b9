"""Who may have what, by secrets that a producer and a subscription have in common: a model without any keys or hashes.

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


class Said(NamedTuple):
    """What a producer says with a notification, or a receiver with a subscription: secrets, by name."""

    secrets: tuple[str, ...] = ()
    insecure: bool = True

    def lets(self, other: Said) -> bool:
        return (self.insecure and other.insecure) or bool(set(self.secrets) & set(other.secrets))

    def published(self) -> Keys:
        return Keys.producer(*(secret.encode() for secret in self.secrets))

    def subscribed(self) -> Keys:
        return Keys.producer(*(public_key(secret.encode()) for secret in self.secrets))

    @classmethod
    def of(cls, words: list[str]) -> Said:
        """Read ``key=NAME`` and ``secure``."""
        secrets = tuple(word.removeprefix("key=") for word in words if word.startswith("key="))
        return cls(secrets, "secure" not in words)


OPEN = Said()
SAID = (OPEN, Said(("k",)), Said(("k",), False), Said(("l",), False), Said(("k", "l")), Said((), False))


@dataclass(slots=True)
class _Change:
    said: Said
    before: frozenset[Coordinate]
    """What its receiver had when it was asked for."""
    settled: dict[Origin, int] | None = None
    """How long each log was when the client was told that it is done."""


class History:
    """What was said of one subscription, in order."""

    def __init__(self) -> None:
        self._changes: list[_Change] = []

    @property
    def last(self) -> Said:
        return self._changes[-1].said if self._changes else OPEN

    def ask(self, said: Said, before: frozenset[Coordinate]) -> None:
        if not self._changes or said != self.last:
            self._changes.append(_Change(said, before))

    def settle(self, lengths: dict[Origin, int]) -> None:
        if self._changes and self._changes[-1].settled is None:
            self._changes[-1].settled = lengths

    def may_hold(self, origin: Origin, offset: int) -> Iterator[Said]:
        """Yield all that may hold for what is there."""
        for change in reversed(self._changes):
            if Coordinate(origin, offset) in change.before:
                continue
            yield change.said
            if change.settled is not None and offset >= change.settled.get(origin, 0):
                return
