"""The schedule on which the bytes of a connection are parsed: small pieces, in turns of the loop with time for them.

A million tiny frames, on one connection or on many, then hold up the loop no longer than a turn.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from enum import Enum, auto

from waypost.limits import PARSED_A_TURN_S, PIECE_BYTES, TINY_A_TURN_S


class Cost(Enum):
    """How costly it is likely to be to parse what waits on a connection: each kind has a part of a turn."""

    SHORT = auto()
    LONG = auto()
    TINY = auto()
    """Tiny pieces, each of which costs as much as a message."""

    @classmethod
    def of(cls, unread: int, *, tiny: bool) -> Cost:
        """Return the cost of parsing what waits on a connection.

        Args:
            unread: the number of bytes that wait.
            tiny: whether the connection sends tiny pieces.
        """
        return cls.TINY if tiny else cls.SHORT if unread <= PIECE_BYTES else cls.LONG


class UnreadBytes:
    """The bytes of one connection that were received and are not parsed yet."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def __len__(self) -> int:
        """Return their number."""
        return len(self._bytes)

    def append(self, data: bytes) -> None:
        """Add bytes that were received, behind all others."""
        self._bytes += data

    def clear(self) -> None:
        """Drop all bytes. Called by the callback of :meth:`parse`, it ends that parse after the present piece."""
        self._bytes.clear()

    def parse(self, parse: Callable[[bytes], None], piece_bytes: Callable[[], int], slice_s: float) -> float:
        """Parse and remove one piece after the other; return the processor time, in seconds, that this took. Where
        `parse` raises, nothing is removed, and its error comes out.

        Args:
            parse: takes a piece.
            piece_bytes: returns the size of the next piece; 0: no more is to be parsed now.
            slice_s: the processor time, in seconds, after which no other piece begins.
        """
        began, spent, upto = time.thread_time(), 0.0, 0
        while upto < len(self._bytes) and spent < slice_s and (size := piece_bytes()):
            piece = bytes(self._bytes[upto : upto + size])
            upto += size
            parse(piece)
            spent = time.thread_time() - began
        del self._bytes[:upto]
        return spent


class ParsingTurns:
    """The turns in which all connections of a port parse what they have received."""

    def __init__(self) -> None:
        self._parsed_s = 0.0
        """Processor time for what came, in this turn of the loop."""
        self._waiting: dict[Cost, deque[Callable[[], None]]] = {cost: deque() for cost in Cost}
        self._is_scheduled = False

    def has_turn(self, *, tiny: bool) -> bool:
        """Tell whether a connection may parse more in this turn of the loop.

        Args:
            tiny: whether the connection sends tiny pieces, for which there is less time.
        """
        return self._parsed_s < (TINY_A_TURN_S if tiny else PARSED_A_TURN_S)

    def wait_turn(self, feed: Callable[[], None], loop: asyncio.AbstractEventLoop, cost: Cost) -> None:
        """Call `feed` once, in a later turn of the loop that has time for it, behind those of its cost that wait
        already.

        Wait so, and do not try again in every turn: each try would make the turn longer, however little it may parse.

        Args:
            feed: parses a slice, and reports it by :meth:`parsed`.
            cost: of what waits on the connection.
        """
        self._waiting[cost].append(feed)
        self._schedule(loop)

    def parsed(self, spent_s: float, loop: asyncio.AbstractEventLoop) -> None:
        """Count `spent_s` seconds of processor time in this turn of the loop; the next turn begins at 0."""
        self._parsed_s += spent_s
        self._schedule(loop)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._next_turn, loop)

    def _next_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_scheduled, self._parsed_s = False, 0.0
        # Half of the turn is left to what comes meanwhile. Those that come back now have their turn later.
        for cost, until_s in ((Cost.TINY, TINY_A_TURN_S / 2), (Cost.SHORT, PARSED_A_TURN_S / 2)):
            waiting = self._waiting[cost]
            for _ in range(len(waiting)):
                if self._parsed_s >= until_s:
                    break
                waiting.popleft()()
        waiting = self._waiting[Cost.LONG]
        for number in range(len(waiting)):
            # One in each turn at least, however many short ones there are.
            if number and self._parsed_s >= PARSED_A_TURN_S / 2:
                break
            waiting.popleft()()
        if any(self._waiting.values()):
            self._schedule(loop)
