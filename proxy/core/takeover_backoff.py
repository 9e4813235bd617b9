"""Two devices that use one receiver's name put each other out, over and over: each time it takes longer (F27).

The newest connection has the receiver, and the library of the other one stops by itself. Whoever starts it again at
once, and again, is let in after a pause that doubles each time, here and on a session's way to another proxy. Nothing
is lost by it: the registration stays, and the connection that has it is served on.
"""

from __future__ import annotations

from dataclasses import dataclass

from waypost.identity import ReceiverId, SessionId
from waypost.limits import TAKEOVER_FIRST_MS, TAKEOVER_MAX_MS, TAKEOVERS_REMEMBERED


@dataclass(slots=True)
class _Takeover:
    by: str
    at_ms: int
    pause_ms: int


class TakeoverBackoff:
    """The latest takeover of each receiver by another incarnation of it, and the pause before the next one."""

    def __init__(self) -> None:
        self._last: dict[tuple[SessionId, ReceiverId], _Takeover] = {}
        """In order of time, the oldest first; TAKEOVERS_REMEMBERED at most."""
        self.damped = 0
        """The number of takeovers that were put off."""

    def try_takeover(self, session: SessionId, receiver: ReceiverId, by: str, now_ms: int) -> int:
        """Let another incarnation take over a receiver's registration, or put it off.

        Each takeover doubles the pause before the next one, from TAKEOVER_FIRST_MS up to TAKEOVER_MAX_MS; after a quiet
        time it begins anew. The incarnation that took over last never waits.

        Args:
            by: the incarnation that wants the registration.
            now_ms: by the engine's clock.

        Returns:
            How many ms the incarnation must wait before it tries again; 0: the takeover is allowed, and is remembered.
        """
        key = (session, receiver)
        last = self._last.get(key)
        if last is not None and last.by == by:
            return 0
        if last is not None and now_ms < last.at_ms + last.pause_ms:
            self.damped += 1
            return last.at_ms + last.pause_ms - now_ms
        if last is None or now_ms >= last.at_ms + last.pause_ms + TAKEOVER_MAX_MS:
            pause_ms = TAKEOVER_FIRST_MS
        else:
            pause_ms = min(2 * last.pause_ms, TAKEOVER_MAX_MS)
        self._last.pop(key, None)
        self._last[key] = _Takeover(by, now_ms, pause_ms)
        if len(self._last) > TAKEOVERS_REMEMBERED:
            del self._last[next(iter(self._last))]
        return 0
