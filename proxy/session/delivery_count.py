"""Where a session's deliveries go: the proxies at which the clients of its receivers are connected."""

from __future__ import annotations

from collections import Counter

from waypost.identity import ProxyId


class DeliveryCount:
    """The notifications delivered from one session, by the proxy at which their receivers' clients are connected."""

    def __init__(self) -> None:
        self.since_ms = 0
        """The time from which on they are counted, in ms of the engine's clock."""
        self._by_proxy: Counter[ProxyId] = Counter()

    def restart(self, now_ms: int) -> None:
        """Count from 0.

        Args:
            now_ms: by the engine's clock.
        """
        self.since_ms = now_ms
        self._by_proxy.clear()

    def add(self, at: ProxyId, count: int) -> None:
        """Count `count` notifications that were delivered to a receiver whose client is connected at this proxy."""
        self._by_proxy[at] += count

    def take(self, now_ms: int) -> Counter[ProxyId]:
        """Return the counts since the last call or restart, and count from 0.

        Args:
            now_ms: by the engine's clock.
        """
        counted = self._by_proxy.copy()
        self.restart(now_ms)
        return counted
