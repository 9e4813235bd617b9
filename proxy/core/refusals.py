"""What other proxies said and was refused: counted by name, always; told of once for each name and peer."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from waypost.identity import ProxyId

NOBODY_PROVEN = ProxyId("")
"""Whoever sent it did not prove who it is. All of them are one peer here: names can be made up without an end."""


class Refusal(NamedTuple):
    name: str
    peer: ProxyId
    detail: str


class Refusals:
    """Refusals so far. Names are few and fixed; what differs from one to the next is the detail."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._reported: set[tuple[str, ProxyId]] = set()
        self._news: list[Refusal] = []

    def note(self, name: str, peer: ProxyId, detail: str) -> None:
        """Count it. Nothing else was changed by what was refused."""
        self.counts[name] += 1
        if (name, peer) not in self._reported:
            self._reported.add((name, peer))
            self._news.append(Refusal(name, peer, detail))

    def take_new(self) -> list[Refusal]:
        """Return the first of each name and peer, once; for the log."""
        news, self._news = self._news, []
        return news
