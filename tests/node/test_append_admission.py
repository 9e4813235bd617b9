"""Who publishes what takes long waits in parts; who has cost little goes first; what fails gives its room back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from node.site_log.append_admission import AppendAdmission, FairOrder, Records
from proxy.core.effects import Append, ignore_result
from waypost.errors import LogUnavailable
from waypost.identity import Incarnation, ProxyId
from waypost.limits import ADMISSION_BATCH_S, ADMITTED_BYTES, ADMITTED_S, WAITING_BYTES, WAITING_BYTES_PER_CONNECTION
from waypost.records import InterestsExpired, Published

MS = 1_000_000
INCARNATION = Incarnation("i")
AT_ONCE_MS = int((ADMITTED_S + ADMISSION_BATCH_S) * 1_000)


def published(*sizes: int) -> list[Published]:
    return [
        Published(producer="p", incarnation=INCARNATION, sequence=number, at_ms=0, body=bytes(size))
        for number, size in enumerate(sizes)
    ]


LONG_S = 1_000.0
"""At least as long as all was foreseen to take."""


class Log:
    """A log, what it has read of it, and what each notification takes, in milliseconds: as many as it has bytes."""

    def __init__(self) -> None:
        self.connections: list[int] = []
        """Of each record."""
        self.appends: list[int] = []
        self.factor = 1.0
        self.admission = AppendAdmission(self._foreseen)
        self.fails_after: int | None = None
        self.gone: set[int] = set()

    def _foreseen(self, bodies: Sequence[bytes]) -> list[int]:
        return [int(len(body) * self.factor * MS) for body in bodies]

    def publish(self, connection: int, *records: Published) -> asyncio.Task[Any]:
        async def append(part: Records) -> list[int] | LogUnavailable:
            if self.fails_after is not None and len(self.connections) >= self.fails_after:
                return LogUnavailable("away")
            self.appends.append(len(part))
            first = len(self.connections)
            self.connections += [connection] * len(part)
            return list(range(first, len(self.connections)))

        effect = Append(records, ignore_result, connection, lambda: connection not in self.gone)
        self.admission.wanted(effect)
        return asyncio.create_task(self.admission.append(effect, append))

    async def read(self, count: int | None = None, spent_s: float = LONG_S) -> None:
        """Read on to there, or to the end, and let the others have their turn."""
        self.admission.read(len(self.connections) if count is None else count, spent_s)
        await turns()

    def is_empty(self) -> bool:
        return (self.admission._bytes, self.admission._ns, self.admission._waiting_bytes) == (0, 0, {})


async def turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_publish_without_cost_is_one_append() -> None:
    log = Log()
    assert await log.publish(1, *published(*[0] * 1_000)) == list(range(1_000))
    assert log.appends == [1_000]


async def test_costly_publish_is_appended_in_parts_as_the_log_is_read() -> None:
    log = Log()
    task = log.publish(1, *published(*[10] * 100))
    await turns()
    first = len(log.connections)
    assert first == AT_ONCE_MS // 10
    while not task.done():
        before = len(log.connections)
        await log.read()
        assert before < len(log.connections) <= before + first or task.done()
    assert task.result() == list(range(100))
    await log.read()
    assert log.is_empty()


async def test_notification_that_exceeds_the_whole_budget_is_appended_alone() -> None:
    log = Log()
    task = log.publish(1, *published(5_000, 5_000))
    await turns()
    assert log.appends == [1]
    await log.read(1)
    assert await task == [0, 1]


async def test_cheap_publish_is_admitted_before_most_costly_ones() -> None:
    log = Log()
    hostile = [log.publish(number, *published(*[50] * 20)) for number in range(1, 31)]
    await turns()
    for _ in range(30):
        await log.read()
    innocent = log.publish(99, *published(5))
    await turns()
    assert not innocent.done()
    for _ in range(2):
        await log.read()
    assert innocent.done()
    for task in hostile:
        task.cancel()
    await asyncio.gather(*hostile, return_exceptions=True)
    await log.read()
    assert log.is_empty()


async def test_costly_publish_is_not_starved_by_later_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, now_s = Log(), 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s)
    much = log.publish(1, *published(*[500] * 4))
    await turns()
    others: list[asyncio.Task[Any]] = []
    for number in range(2, 1_000):
        now_s += 0.1
        others.append(log.publish(number, *published(100)))
        await turns()
        await log.read(log.connections.index(number - 1) + 1 if number - 1 in log.connections else None)
        if much.done():
            break
    assert much.done() and number < 900
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def test_cost_of_a_publish_is_estimated_again_for_each_part() -> None:
    log = Log()
    task = log.publish(1, *published(*[1] * 500))
    await turns()
    assert len(log.connections) == AT_ONCE_MS
    log.factor = 100
    await log.read()
    assert len(log.connections) < AT_ONCE_MS + 40
    task.cancel()


async def test_records_of_the_proxy_itself_are_appended_without_waiting() -> None:
    log = Log()
    task = log.publish(1, *published(*[1_000] * 10))
    await turns()

    async def append(records: Records) -> list[int]:
        return [1]

    own = Append([InterestsExpired(ProxyId("a"), INCARNATION)], ignore_result)
    log.admission.wanted(own)
    assert await log.admission.append(own, append) == [1]
    task.cancel()


@pytest.mark.parametrize("after", [0, 27, 30])
async def test_failed_part_ends_its_publish_and_releases_its_budget_to_waiting_ones(after: int) -> None:
    log = Log()
    log.fails_after = after
    failing = log.publish(1, *published(*[10] * 100))
    await turns()
    waiting = log.publish(2, *published(*[10] * 3))
    while not failing.done():
        await log.read()
    assert isinstance(failing.result(), LogUnavailable)
    assert after <= len(log.connections) <= after + AT_ONCE_MS // 10
    log.fails_after = None
    await log.read()
    assert waiting.done()
    await log.read()
    assert log.is_empty()


async def test_publish_of_a_disconnected_producer_is_not_appended() -> None:
    log = Log()
    task = log.publish(1, *published(*[10] * 100))
    await turns()
    log.gone.add(1)
    await log.read()
    assert isinstance(task.result(), LogUnavailable)
    assert len(log.connections) == AT_ONCE_MS // 10
    assert log.is_empty()


async def test_bytes_are_ahead_until_they_are_read_and_those_that_wait_do_not_shut_the_door() -> None:
    log = Log()
    log.factor = 0
    await log.publish(1, *published(ADMITTED_BYTES, 1))
    assert not log.admission.has_room(2)
    await log.read(1)
    assert not log.admission.has_room(2)
    await log.read(2)
    assert log.admission.has_room(2)
    log.factor = 1
    costly = log.publish(1, *published(*[100_000] * 100))
    await turns()
    assert log.admission.waiting and log.admission.has_room(2)
    costly.cancel()


def test_connection_of_which_much_waits_may_not_publish_more_and_holds_up_nobody_else() -> None:
    admission = Log().admission
    admission.wanted(Append(published(WAITING_BYTES_PER_CONNECTION), ignore_result, 1))
    assert not admission.has_room(1) and admission.has_room(2)
    for connection in range(3, 3 + WAITING_BYTES // WAITING_BYTES_PER_CONNECTION):
        admission.wanted(Append(published(WAITING_BYTES_PER_CONNECTION), ignore_result, connection))
    admission.wanted(Append(published(1), ignore_result, 100))
    assert admission.has_room(2), "nothing of it waits"
    assert not admission.has_room(100)
    admission.wanted(Append(published(WAITING_BYTES), ignore_result, 101))
    assert not admission.has_room(2)


async def test_cancelled_publish_returns_its_budget_at_any_time() -> None:
    log, rng = Log(), random.Random(7)
    tasks = [log.publish(number, *published(*[20] * 10)) for number in range(1, 20)]
    await turns()
    for _ in range(100):
        log.admission.read(len(log.connections), LONG_S)
        # Perhaps it was let in just now, and has not had its turn.
        rng.choice(tasks).cancel()
        for _ in range(rng.randrange(3)):
            await asyncio.sleep(0)
    while not all(task.done() for task in tasks):
        await log.read()
    await log.read()
    assert log.is_empty()


def test_fair_order_completes_no_job_later_than_equal_shares_would() -> None:
    """Whenever they come: in a model that serves all at once, in small steps."""
    rng = random.Random(3)
    for _ in range(100):
        jobs = sorted((rng.uniform(0, 500), rng.choice([1.0, 10.0, 200.0])) for _ in range(rng.randint(1, 30)))
        assert all(fair <= shared + 1 for fair, shared in zip(in_order(jobs), in_shares(jobs), strict=True))


def in_order(jobs: list[tuple[float, float]]) -> list[float]:
    """Return when each job is done, given when it comes and how long it takes: one after another, in parts."""
    order, waiting, now, next_job = FairOrder(), list[tuple[float, int]](), 0.0, 0
    left, done = [cost for _, cost in jobs], [0.0] * len(jobs)
    while next_job < len(jobs) or waiting:
        if not waiting:
            now = max(now, jobs[next_job][0])
        while next_job < len(jobs) and jobs[next_job][0] <= now:
            waiting.append((order.charge(next_job, jobs[next_job][1]), next_job))
            next_job += 1
        tag, job = min(waiting)
        part = min(left[job], 0.5)
        order.advance(part)
        now, left[job] = now + part, left[job] - part
        if not left[job]:
            waiting.remove((tag, job))
            done[job] = now
    return done


def in_shares(jobs: list[tuple[float, float]]) -> list[float]:
    left, done, now = [cost for _, cost in jobs], [0.0] * len(jobs), 0.0
    while not all(done):
        here = [job for job, (came, _) in enumerate(jobs) if came <= now and not done[job]]
        for job in here:
            left[job] -= 0.5 / len(here)
            if left[job] <= 1e-9:
                done[job] = now + 0.5
        now += 0.5
    return done


def test_cheap_job_is_first_in_the_fair_order_among_many_costly_ones() -> None:
    order = FairOrder()
    much = [order.charge(connection, 19_000.0) for connection in range(1, 61)]
    for _ in range(1_000):
        assert order.charge(0, 9.0) < min(much)
        order.advance(9.0)
        order.advance(19.0)


def test_a_frame_that_turns_out_to_be_costly_waits_as_such_and_what_was_not_appended_is_given_back() -> None:
    order = FairOrder()
    assert order.charge(1, 10.0) < order.charge(2, 100.0)
    assert order.charge(1, 990.0) > order.charge(3, 100.0)
    order.charge(1, -1_000.0)
    assert order.charge(1, 10.0) == 10.0


def test_cost_spent_without_competition_does_not_count_in_the_fair_order() -> None:
    order = FairOrder()
    for _ in range(1_000):
        order.charge(1, 100.0)
        order.advance(100.0)
    assert order.charge(1, 1.0) < order.charge(2, 2.0)


def test_waiting_job_is_overtaken_by_a_bounded_number_of_later_ones() -> None:
    order, overtaken = FairOrder(), 0
    waiting = order.charge(1, 1_000.0)
    for connection in range(2, 100_000):
        overtaken += order.charge(connection, 10.0) < waiting
        order.advance(10.0)
    assert overtaken < 10_000
    assert len(order._finish) < 1_000 and len(order._next) < 10_000


async def test_what_takes_less_than_foreseen_is_admitted_with_more_of_its_kind() -> None:
    log = Log()

    async def admitted_together() -> int:
        read = len(log.connections)
        task = log.publish(1, *published(*[20] * 200))
        await turns()
        together = len(log.connections) - read
        while not task.done():
            more, read = len(log.connections) - read, len(log.connections)
            await log.read(spent_s=more * 0.002)
        await log.read(spent_s=(len(log.connections) - read) * 0.002)
        return together

    first = await admitted_together()
    for _ in range(5):
        last = await admitted_together()
    assert last > 5 * first
    assert log.is_empty()


async def test_what_takes_longer_than_it_did_is_admitted_as_it_was_foreseen_at_once() -> None:
    log = Log()
    task = log.publish(1, *published(*[20] * 500))
    await turns()
    at_first = sum(log.appends)
    while not task.done():
        await log.read(spent_s=0.001)
    last = log.publish(1, *published(*[20] * 500))
    await turns()
    await log.read()
    before = sum(log.appends)
    await log.read()
    assert sum(log.appends) - before <= 2 * at_first
    while not last.done():
        await log.read()
