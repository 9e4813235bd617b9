"""Who publishes what takes long waits in parts; others go between them, and what it may take is looked at each time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from node.ahead import HALF_LIFE_S, REMEMBERED, Ahead, Records, Spent
from waypost.errors import LogUnavailable
from waypost.identity import Incarnation, ProxyId
from waypost.limits import AHEAD_BYTES, AHEAD_PART_S, AHEAD_S
from waypost.records import Dropped, Published

MS = 1_000_000
LIFE = Incarnation("i")


def published(producer: str, *sizes: int) -> list[Published]:
    return [Published(producer, LIFE, number, 0, bytes(size)) for number, size in enumerate(sizes)]


class Log:
    """A log, what it has read of it, and what each notification takes, in milliseconds: as many as it has bytes."""

    def __init__(self) -> None:
        self.records: list[str] = []
        self.appends: list[int] = []
        self.factor = 1
        self.ahead = Ahead(self._foreseen)

    def _foreseen(self, bodies: Sequence[bytes]) -> list[int]:
        return [len(body) * self.factor * MS for body in bodies]

    async def append(self, records: Records) -> list[int]:
        self.appends.append(len(records))
        first = len(self.records)
        self.records += [record.producer if isinstance(record, Published) else "" for record in records]
        return list(range(first, len(self.records)))

    def publish(self, *records: Published) -> asyncio.Task[list[int]]:
        self.ahead.wanted(records)
        return asyncio.create_task(self.ahead.append(records, self.append))

    async def read(self, count: int) -> None:
        """Read on to there, and let the others have their turn."""
        self.ahead.read(count)
        await turns()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_takes_no_time_is_one_append() -> None:
    log = Log()
    assert await log.publish(*published("p", *[0] * 1_000)) == list(range(1_000))
    assert log.appends == [1_000]


async def test_what_takes_long_is_appended_as_far_as_there_is_room_and_then_as_it_is_read() -> None:
    log = Log()
    task = log.publish(*published("p", *[10] * 100))
    await turns()
    first = int((AHEAD_S + AHEAD_PART_S) * 100)
    assert len(log.records) == first
    while not task.done():
        before = len(log.records)
        await log.read(before)
        assert before < len(log.records) <= before + first or task.done()
    assert task.result() == list(range(100))


async def test_one_that_takes_longer_than_all_may_is_appended_alone() -> None:
    log = Log()
    task = log.publish(*published("p", 5_000, 5_000))
    await turns()
    assert log.appends == [1]
    await log.read(1)
    assert await task == [0, 1]


async def test_who_has_cost_little_goes_before_who_has_cost_much_however_many_those_are() -> None:
    log = Log()
    hostile = [log.publish(*published(f"hostile {number}", *[50] * 20)) for number in range(30)]
    await turns()
    innocent = log.publish(*published("innocent", 1))
    await turns()
    assert not innocent.done()
    await log.read(len(log.records))
    assert innocent.done()
    for task in hostile:
        task.cancel()
    await asyncio.gather(*hostile, return_exceptions=True)


async def test_what_it_may_take_is_looked_at_again_for_each_part() -> None:
    log = Log()
    task = log.publish(*published("p", *[1] * 500))
    await turns()
    assert len(log.records) == (AHEAD_S + AHEAD_PART_S) * 1_000
    log.factor = 100
    await log.read(len(log.records))
    assert len(log.records) < (AHEAD_S + AHEAD_PART_S) * 1_000 + 30
    task.cancel()


async def test_what_the_proxy_itself_says_waits_for_nobody() -> None:
    log = Log()
    task = log.publish(*published("p", *[1_000] * 10))
    await turns()
    assert await log.ahead.append([Dropped(ProxyId("a"), LIFE)], log.append) == [1]
    task.cancel()


async def test_an_error_ends_the_frame_and_leaves_no_room_taken() -> None:
    log = Log()
    error = LogUnavailable("away")

    async def away(records: Records) -> LogUnavailable:
        return error

    for _ in range(10):
        frame = published("p", *[AHEAD_BYTES // 4] * 3)
        log.ahead.wanted(frame)
        assert not log.ahead.is_large
        assert await log.ahead.append(frame, away) is error
    assert await log.publish(*published("p", 1, 1)) == [0, 1]


async def test_bytes_are_ahead_until_they_are_read() -> None:
    log = Log()
    log.factor = 0
    await log.publish(*published("p", AHEAD_BYTES, 1))
    assert log.ahead.is_large
    await log.read(1)
    assert log.ahead.is_large
    await log.read(2)
    assert not log.ahead.is_large


def test_what_was_spent_is_forgotten_with_time() -> None:
    spent = Spent()
    life = "p", LIFE
    assert spent.add(life, 8.0, 0.0) == 8.0
    assert spent.add(life, 0.0, HALF_LIFE_S) == pytest.approx(4.0)
    assert spent.add(life, 1.0, 3 * HALF_LIFE_S) == pytest.approx(2.0)
    for number in range(REMEMBERED):
        spent.add((f"q{number}", LIFE), 1.0, 3 * HALF_LIFE_S)
    assert spent.add(life, 0.0, 3 * HALF_LIFE_S) == 0.0
