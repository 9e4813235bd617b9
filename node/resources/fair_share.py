"""The parts of a proxy that clients share: the time of its event loop, and its memory. Pure.

No client that asks for little is held up. A client that has used up its small credit waits in one line with all others
like it, and that line has its share of the loop's time and no more, however many stand in it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from waypost.limits import (
    CREDITS_AT_ONCE_S,
    CREDITS_SHARE,
    FIRST_CREDIT_S,
    LEAST_CREDIT_SHARE,
    LINE_SHARE,
    TURN_CREDIT_S,
    TURN_CREDIT_SHARE,
)

Member = TypeVar("Member", bound=Hashable)


class FairQueue:
    """The line of all who cost the loop much: together they get LINE_SHARE of its time. Times are monotonic."""

    def __init__(self) -> None:
        self._free_at_s = 0.0
        self._credit_s, self._credit_at_s = CREDITS_AT_ONCE_S, 0.0

    def credit_s(self, wanted_s: float, now_s: float) -> float:
        """Take credit for a client out of what all clients share; return the seconds of processor time that it gets.

        That is `wanted_s` at most. All clients together get CREDITS_SHARE of the time: without that bound, hundreds
        that use up their credit again and again would have the whole loop.

        Args:
            now_s: by a monotonic clock, the same at every call.
        """
        filled = self._credit_s + (now_s - self._credit_at_s) * CREDITS_SHARE
        self._credit_s, self._credit_at_s = min(CREDITS_AT_ONCE_S, filled), now_s
        given = min(wanted_s, self._credit_s)
        self._credit_s -= given
        return given

    def queued_s(self, now_s: float) -> float:
        """Return the seconds until work that is queued at `now_s` could begin; the call itself queues nothing.

        Args:
            now_s: by a monotonic clock, the same at every call.
        """
        return max(0.0, self._free_at_s - now_s)

    def turn_s(self, cost_s: float, now_s: float) -> float:
        """Queue work that is going to cost `cost_s` seconds of processor time; return the seconds until it may begin.

        Args:
            now_s: by a monotonic clock, the same at every call.
        """
        begins = max(now_s, self._free_at_s)
        self._free_at_s = begins + cost_s / LINE_SHARE
        return begins - now_s

    def give_back(self, cost_s: float) -> None:
        """Take work of `cost_s` seconds out of the line again, which :meth:`turn_s` has queued and nobody does: its
        client has gone. What was queued behind it keeps its time.
        """
        self._free_at_s -= cost_s / LINE_SHARE

    def wait_s(self, spent_s: float, now_s: float) -> float:
        """Queue work that was done already and has cost `spent_s` seconds of processor time; return for how many
        seconds its client has to wait, doing nothing more.

        Args:
            now_s: by a monotonic clock, the same at every call.
        """
        self._free_at_s = max(now_s, self._free_at_s) + spent_s / LINE_SHARE
        return self._free_at_s - now_s


class Turns:
    """One client's turns: a credit of processor time that fills slowly, and the line behind it."""

    def __init__(self, line: FairQueue, now_s: float) -> None:
        self._line = line
        self._credit_s = FIRST_CREDIT_S + line.credit_s(TURN_CREDIT_S - FIRST_CREDIT_S, now_s)
        self._at_s = now_s

    def spent(self, spent_s: float, now_s: float) -> float:
        """Charge the client `spent_s` seconds of processor time; return for how many seconds to take nothing of it.

        Args:
            now_s: by the monotonic clock of the constructor.

        Returns:
            0: its credit has paid for the work.
        """
        passed_s, lacking = now_s - self._at_s, TURN_CREDIT_S - self._credit_s
        least = min(lacking, passed_s * LEAST_CREDIT_SHARE)
        more = min(lacking, passed_s * TURN_CREDIT_SHARE) - least
        self._credit_s += least + self._line.credit_s(more, now_s) - spent_s
        self._at_s = now_s
        if self._credit_s >= 0:
            return 0.0
        owed, self._credit_s = -self._credit_s, 0.0
        return self._line.wait_s(owed, now_s)


class BufferedBytes(Generic[Member]):
    """Counts the bytes that clients make a proxy hold; past `max_bytes` together the one that holds most has to go."""

    def __init__(self, max_bytes: int) -> None:
        self.largest = max_bytes
        self.total = 0
        self._of: dict[Member, int] = {}

    def note(self, member: Member, size: int) -> Member | None:
        """Set how many bytes a member makes the proxy hold now; 0: the member is not counted any more.

        Returns:
            The member that has to go, the one that holds most, which is not counted any more; its bytes are the
            caller's to free. None: all fit.
        """
        before = self._of.get(member, 0)
        self.total += size - before
        if size:
            self._of[member] = size
        elif before:
            del self._of[member]
        if self.total <= self.largest:
            return None
        largest = max(self._of, key=self._of.__getitem__)
        self.forget(largest)
        return largest

    def forget(self, member: Member) -> None:
        """Count nothing for a member any more; one that is not counted is no error."""
        self.total -= self._of.pop(member, 0)
