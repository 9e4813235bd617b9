"""Long work on the event loop, in steps; and work of many, of which each turn of the loop does a part."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable

from waypost.limits import CHANGES_A_TURN_S, FOLD_SLICE_S


async def in_turns(steps: Iterable[None]) -> float:
    """Iterate over the steps, and yield to the event loop after each FOLD_SLICE_S seconds of processor time.

    Args:
        steps: a lazy iterable; each item is a piece of work, done when it is asked for.

    Returns:
        The processor time of all steps, in seconds.
    """
    began, before_s = time.thread_time(), 0.0
    for _ in steps:
        spent_s = time.thread_time() - began
        if spent_s > FOLD_SLICE_S:
            before_s += spent_s
            await asyncio.sleep(0)
            began = time.thread_time()
    return before_s + time.thread_time() - began


class TurnBudget:
    """The processor time that requests of all clients have together in one turn of the loop: the others wait in order.

    Else hundreds of connections with one request each make a turn that is long for everybody: who needs several turns,
    as a publish does, would wait for as many times all of them.
    """

    def __init__(self) -> None:
        self._spent_s = 0.0
        self._each_s = CHANGES_A_TURN_S
        """What one request took lately, about."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    async def room(self) -> None:
        """Wait until a turn of the loop has time left for one request, behind all that wait already; report its cost by
        :meth:`spent`.
        """
        if not self._waiting and self._spent_s < CHANGES_A_TURN_S:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._schedule()
        await turn

    def spent(self, spent_s: float) -> None:
        """Count `spent_s` seconds of processor time that one request has taken in this turn of the loop."""
        self._spent_s += spent_s
        self._each_s += (spent_s - self._each_s) / 8
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_scheduled, self._spent_s = False, 0.0
        room_s = CHANGES_A_TURN_S
        while self._waiting and room_s > 0:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                room_s -= self._each_s
        if self._waiting:
            self._schedule()
