"""What every site log promises."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from federation.ports import Batch, SiteLog
from tests.contracts.benches import Logs
from waypost.errors import HistoryTruncated, LogReplaced, LogUnavailable
from waypost.identity import Incarnation, Origin, ProxyId, SessionId, SiteId
from waypost.records import (
    Closed,
    Effective,
    FiltersRequested,
    Forwarded,
    InterestRegistered,
    InterestsExpired,
    Progress,
    Published,
    Record,
)

TIMEOUT_S = 20
INCARNATION = Incarnation("00ff00ff00ff00ff")


def published(producer: str, sequence: int) -> Published:
    return Published(
        producer=producer, incarnation=INCARNATION, sequence=sequence, at_ms=1_700_000_000_000, body=b"\x00\xffbody"
    )


def numbered(producer: str, count: int, start: int = 0) -> list[Record]:
    return [published(producer, start + number) for number in range(count)]


async def collect(log: SiteLog, offset: int, count: int) -> Batch:
    """Tail from `offset` until `count` records are there."""
    found: Batch = []
    tail: Any = log.tail(offset)
    async with asyncio.timeout(TIMEOUT_S), aclosing(tail):
        async for batch in tail:
            found += batch
            if len(found) >= count:
                return found
    raise AssertionError("a tail ends never")


def of(batch: Batch, producer: str) -> list[int]:
    return [record.sequence for _, record in batch if isinstance(record, Published) and record.producer == producer]


async def test_a_new_log_is_empty_and_begins_at_zero(logs: Logs) -> None:
    log = await logs.open()
    assert (await log.first_offset(), await log.end_offset()) == (0, 0)
    assert await log.read(0, 10) == []


async def test_every_kind_of_record_comes_back_as_it_was(logs: Logs) -> None:
    log = await logs.open()
    site, origin, proxy = SiteId("south"), Origin("south/0"), ProxyId("p1")
    records: list[Record] = [
        published("p", 1),
        Forwarded(
            link=site,
            link_epoch=3,
            origin=origin,
            offset=17,
            path=(site, SiteId("east")),
            producer="p",
            incarnation=INCARNATION,
            sequence=1,
            at_ms=5,
            body=b"",
        ),
        Progress(site, 3, origin, 40),
        Effective(link=site, link_epoch=3, expression="a == 1", installation=2, origin=origin, above=-1),
        InterestRegistered(proxy, INCARNATION, SessionId("s"), ("a == 1", 'b == "ü"')),
        InterestsExpired(proxy, INCARNATION),
        FiltersRequested(site, 3, 9, {"a == 1": 2}),
        Closed("p1", 5, {origin: 40}),
    ]
    offsets = await log.append(records)
    assert await log.read(0, 100) == list(zip(offsets, records, strict=True))


async def test_offsets_ascend_in_the_order_of_the_records(logs: Logs) -> None:
    log = await logs.open()
    offsets = await log.append(numbered("a", 50)) + await log.append(numbered("a", 50, 50))
    assert offsets == sorted(set(offsets)) and len(offsets) == 100
    assert await log.end_offset() == offsets[-1] + 1
    assert of(await collect(log, 0, 100), "a") == list(range(100))


async def test_appending_nothing_is_nothing(logs: Logs) -> None:
    log = await logs.open()
    assert await log.append([]) == []
    assert await log.end_offset() == 0


async def test_an_append_larger_than_any_batch_stays_whole_and_in_order(logs: Logs) -> None:
    log = await logs.open()
    large = [
        Published(producer="a", incarnation=INCARNATION, sequence=number, at_ms=0, body=bytes(20_000))
        for number in range(200)
    ]
    offsets = await log.append(large)
    assert offsets == sorted(set(offsets)) and len(offsets) == 200
    assert of(await collect(log, 0, 200), "a") == list(range(200))


async def test_appends_that_were_called_one_after_the_other_stay_so_without_waiting(logs: Logs) -> None:
    log = await logs.open()
    answers = await asyncio.gather(*(log.append(numbered("a", 3, 3 * turn)) for turn in range(200)))
    assert [offset for answer in answers for offset in answer] == sorted(
        offset for answer in answers for offset in answer
    )
    assert of(await collect(log, 0, 600), "a") == list(range(600))


async def test_an_acknowledged_append_survives_reopening(logs: Logs) -> None:
    log = await logs.open()
    offsets = await log.append(numbered("a", 10))
    again = await logs.open()
    assert [offset for offset, _ in await again.read(0, 100)] == offsets
    await log.close()
    reopened = await logs.open()
    assert of(await collect(reopened, 0, 10), "a") == list(range(10))


async def test_a_read_takes_no_more_than_its_limit_and_goes_on_where_it_stopped(logs: Logs) -> None:
    log = await logs.open()
    await log.append(numbered("a", 100))
    found: Batch = []
    while batch := await log.read(found[-1][0] + 1 if found else 0, 7):
        assert len(batch) <= 7
        found += batch
    assert of(found, "a") == list(range(100))
    assert await log.read(await log.end_offset(), 7) == []


async def test_tail_begins_at_the_given_offset(logs: Logs) -> None:
    log = await logs.open()
    offsets = await log.append(numbered("a", 10))
    assert of(await collect(log, offsets[4], 6), "a") == [4, 5, 6, 7, 8, 9]


async def test_tail_waits_for_records_appended_by_another_handle(logs: Logs) -> None:
    reader, writer = await logs.open(), await logs.open()
    waiting = asyncio.create_task(collect(reader, 0, 1))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await writer.append(numbered("a", 1))
    assert of(await waiting, "a") == [0]


async def test_tails_miss_nothing_and_repeat_nothing_under_concurrent_appenders(logs: Logs) -> None:
    writers = [await logs.open() for _ in range(3)]
    readers = [writers[0], writers[0], await logs.open()]
    tails = [asyncio.create_task(collect(log, 0, 3 * 40 * 10)) for log in readers]

    async def write(name: str, log: SiteLog) -> None:
        for turn in range(40):
            await log.append(numbered(name, 10, 10 * turn))

    await asyncio.gather(*(write(f"w{writer_number}", log) for writer_number, log in enumerate(writers)))
    for batch in await asyncio.gather(*tails):
        offsets = [offset for offset, _ in batch]
        assert offsets == sorted(set(offsets))
        for writer_number in range(3):
            assert of(batch, f"w{writer_number}") == list(range(400))


async def test_truncated_history_is_an_error_that_says_where_the_log_begins(logs: Logs) -> None:
    log = await logs.open()
    offsets = await log.append(numbered("a", 20))
    await logs.truncate(log, offsets[15])
    assert await log.first_offset() == offsets[15]
    with pytest.raises(HistoryTruncated) as error:
        await log.read(offsets[14], 5)
    assert error.value.first == offsets[15]
    with pytest.raises(HistoryTruncated) as error:
        await collect(log, 0, 1)
    assert error.value.first == offsets[15]
    assert of(await log.read(offsets[15], 10), "a") == [15, 16, 17, 18, 19]


async def test_a_log_that_forgot_everything_goes_on_at_its_end(logs: Logs) -> None:
    log = await logs.open()
    end = (await log.append(numbered("a", 5)))[-1] + 1
    await logs.truncate(log, end)
    assert await log.append(numbered("a", 1, 5)) == [end]
    with pytest.raises(HistoryTruncated):
        await log.read(0, 1)
    again = await logs.open()
    assert (await again.first_offset(), await again.end_offset()) == (end, end + 1)


async def test_a_tail_beyond_the_end_says_that_it_is_not_the_log_that_was_read(logs: Logs) -> None:
    log = await logs.open()
    end = (await log.append(numbered("a", 3)))[-1] + 1
    with pytest.raises(LogReplaced):
        await collect(log, end + 2, 1)


async def test_a_tail_at_the_end_waits_until_the_log_has_grown(logs: Logs) -> None:
    log = await logs.open()
    end = (await log.append(numbered("a", 3)))[-1] + 1
    waiting = asyncio.create_task(collect(log, end, 2))
    for turn in range(2):
        await asyncio.sleep(0.05)
        await log.append(numbered("a", 1, 3 + turn))
    assert of(await waiting, "a") == [3, 4]


async def test_a_closed_handle_says_so(logs: Logs) -> None:
    log = await logs.open()
    await log.append(numbered("a", 1))
    await log.close()
    with pytest.raises(LogUnavailable):
        await log.append(numbered("a", 1, 1))
    with pytest.raises(LogUnavailable):
        await log.read(0, 1)
    with pytest.raises(LogUnavailable):
        await collect(log, 0, 2)
