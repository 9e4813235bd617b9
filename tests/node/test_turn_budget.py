"""Requests of all clients share a part of each turn of the loop: what needs many turns is not held up by them."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from node.resources.loop_turns import TurnBudget
from waypost.limits import CHANGES_A_TURN_S

REQUEST_S = CHANGES_A_TURN_S / 2


async def test_requests_are_done_a_few_in_each_turn_of_the_loop_and_in_order() -> None:
    budget, done = TurnBudget(), list[tuple[int, int]]()
    turn = 0

    async def request(number: int) -> None:
        await budget.room()
        done.append((number, turn))
        budget.spent(REQUEST_S)

    tasks = [asyncio.create_task(request(number)) for number in range(200)]
    while len(done) < len(tasks):
        turn += 1
        assert turn < 1_000
        await asyncio.sleep(0)
    in_each_turn = [sum(at == each for _, at in done) for each in range(turn + 1)]
    # What a request takes is only known after some of them.
    assert max(in_each_turn[10:]) <= 4
    assert [number for number, _ in done] == sorted(number for number, _ in done)
    assert max(later - earlier for (_, earlier), (_, later) in pairwise(done)) <= 3


async def test_single_request_does_not_wait() -> None:
    budget = TurnBudget()
    for _ in range(10):
        async with asyncio.timeout(0):
            await budget.room()
        budget.spent(REQUEST_S)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_cancelled_request_does_not_hold_up_those_behind_it() -> None:
    budget = TurnBudget()
    budget.spent(2 * CHANGES_A_TURN_S)
    first, second = (asyncio.create_task(budget.room()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    async with asyncio.timeout(5):
        await second
