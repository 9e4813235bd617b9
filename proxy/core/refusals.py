"""Refused messages of other proxies: each is counted by name, and reported once for each name and peer."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import NamedTuple

from waypost.identity import ProxyId

NOBODY_PROVEN = ProxyId("")
"""The peer under which all senders are counted that did not prove their name: names can be made up without an end."""


class Violation(StrEnum):
    """Why a message of another proxy about a transfer is refused."""

    UNKNOWN_TRANSFER = "unknown transfer"
    WRONG_SENDER = "wrong sender"
    WRONG_EPOCH = "wrong epoch"
    UNKNOWN_SESSION = "unknown session"
    LATE_PREPARE = "late prepare"
    TRANSFER_OVER = "transfer is over"
    TARGET_IS_SOURCE = "target is the source"
    CHUNK_OUT_OF_ORDER = "chunk out of order"
    WRONG_CHECKSUM = "wrong checksum"
    NEVER_SENT = "answer to a chunk that was never sent"


class Refusal(NamedTuple):
    """A refused message of another proxy: the name of what is wrong with it, its sender, and which one it was."""

    name: str
    peer: ProxyId
    detail: str


class Refusals:
    """Counts refused messages of other proxies, by violation, and keeps the first of each violation and sender for the
    operator's log. Violations are few fixed words; what differs from one message to the next is the detail.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._reported: set[tuple[str, ProxyId]] = set()
        self._news: list[Refusal] = []

    def note(self, name: str, peer: ProxyId, detail: str) -> None:
        """Count a refused message; the message itself has changed nothing.

        Args:
            name: the violation, by one of a few fixed words.
            peer: the sender; :data:`NOBODY_PROVEN` if its identity was not verified.
            detail: which message was refused, for people.
        """
        self.counts[name] += 1
        if (name, peer) not in self._reported:
            self._reported.add((name, peer))
            self._news.append(Refusal(str(name), peer, detail))

    def take_new(self) -> list[Refusal]:
        """Return the refusals since the last call that were the first of their name and peer; for operators."""
        news, self._news = self._news, []
        return news
