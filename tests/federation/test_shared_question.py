"""One question for all who ask it at the same time."""

from __future__ import annotations

import asyncio

import pytest

from federation.kafka.shared_question import SharedQuestion
from waypost.errors import LogUnavailable


class Server:
    """Answers how often it was asked, when it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.go = asyncio.Semaphore(0)
        self.fails = False

    async def __call__(self) -> int:
        self.asked += 1
        at = self.asked
        await self.go.acquire()
        if self.fails:
            raise LogUnavailable("away")
        return at


async def test_all_who_ask_while_one_question_is_under_way_share_the_next_one() -> None:
    server = Server()
    question = SharedQuestion(server)
    first = asyncio.create_task(question.ask())
    while not server.asked:
        await asyncio.sleep(0)
    others = [asyncio.create_task(question.ask()) for _ in range(100)]
    await asyncio.sleep(0)
    server.go.release()
    assert await first == 1
    server.go.release()
    # What was asked before they came may not know of what they want to see.
    assert await asyncio.gather(*others) == [2] * 100
    assert server.asked == 2


async def test_an_error_is_everybodys_and_the_next_question_is_asked_anew() -> None:
    server = Server()
    server.fails = True
    question = SharedQuestion(server)
    both = [asyncio.create_task(question.ask()) for _ in range(2)]
    server.go.release()
    for asked in both:
        with pytest.raises(LogUnavailable):
            await asked
    server.fails = False
    server.go.release()
    assert await question.ask() == 2


async def test_who_gives_up_takes_the_answer_from_nobody() -> None:
    server = Server()
    question = SharedQuestion(server)
    impatient, patient = (asyncio.create_task(question.ask()) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.wait((impatient,))
    server.go.release()
    assert await patient == 1
    await question.close()
