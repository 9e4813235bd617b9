"""How fast one client may publish, attest, and ask for changes: buckets that fill with time. Pure; who has to wait is
simply not read any more.
"""

from __future__ import annotations

from waypost.limits import ATTESTED_A_S
from waypost.messages import (
    Acknowledge,
    Attach,
    ClientMessage,
    Delete,
    Publish,
    Quench,
    SetAccess,
    SetKeys,
    Subscribe,
    Unsubscribe,
)

CHANGES = (Attach, Subscribe, Unsubscribe, SetKeys, SetAccess, Delete, Quench)
"""What costs others something beside whoever asks: the store, the log, the registry, or all who publish."""


class RateLimit:
    """A bucket of `rate` things a second, that holds a second's worth. Rate 0: no bound."""

    def __init__(self, rate: float, now_s: float) -> None:
        self._rate = rate
        self._left = rate
        self._at_s = now_s

    def wait_s(self, count: int, now_s: float) -> float:
        """Take so many; return for how many seconds to take nothing more."""
        if not self._rate:
            return 0.0
        self._left = min(self._rate, self._left + (now_s - self._at_s) * self._rate) - count
        self._at_s = now_s
        return max(0.0, -self._left / self._rate)


class RateLimits:
    """Those of one client.

    Args:
        publish_rate: notifications a second that it may publish; 0: no bound.
        change_rate: :data:`CHANGES` a second; 0: no bound.
    """

    def __init__(self, publish_rate: float, change_rate: float, now_s: float) -> None:
        self._publishing = RateLimit(publish_rate, now_s)
        self._attesting = RateLimit(ATTESTED_A_S, now_s)
        self._changing = RateLimit(change_rate, now_s)

    def wait_s(self, message: ClientMessage, now_s: float) -> float | None:
        """The client has said this; return for how many seconds to take nothing more of it. None: it does not count."""
        if isinstance(message, Publish):
            return self._publishing.wait_s(len(message.bodies), now_s)
        if isinstance(message, Acknowledge) and message.attestations:
            return self._attesting.wait_s(
                sum(1 + len(attestation.offsets) for attestation in message.attestations), now_s
            )
        return self._changing.wait_s(1, now_s) if isinstance(message, CHANGES) else None
