"""Facts on their way to the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from node.machines.journal_queue import LINGER_MS, RETRY_MS, Failed, JournalQueue, Put, Write, Written
from node.shell.journal_writer import JournalWriter
from proxy.core.effects import Attest, ignore_result
from waypost.clock import SystemClock
from waypost.errors import Unreachable, WaypostError
from waypost.facts import Fact, FactKind


def fact(number: int) -> Fact:
    return Fact(writer="me", number=number, at_ms=0, kind=FactKind.MARKED)


class Recorder:
    """A journal that says what came together. It does not answer the first `failing` times."""

    def __init__(self, failing: int = 0) -> None:
        self.lots: list[list[int]] = []
        self._failing = failing

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def attest(self, facts: Sequence[Fact]) -> None:
        if self._failing:
            self._failing -= 1
            raise Unreachable("away")
        self.lots.append([fact.number for fact in facts])


async def written(journal: Recorder, effects: list[Attest], lots: int) -> None:
    """Put the effects, one after the other, and wait until so many lots were written."""
    writer = JournalWriter(SystemClock(), lambda attest: attest.on_done(None), lambda error: None)
    running = asyncio.create_task(writer.run(journal))
    for effect in effects:
        writer.put(effect)
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        while len(journal.lots) < lots:
            await asyncio.sleep(LINGER_MS / 1000)
    await asyncio.sleep(0)
    running.cancel()
    assert not writer.queue


async def test_facts_that_nobody_waits_for_go_together() -> None:
    journal = Recorder()
    await written(journal, [Attest([fact(n)], ignore_result) for n in (1, 2, 3)], 1)
    assert journal.lots == [[1, 2, 3]]


async def test_awaited_fact_is_written_at_once_with_all_facts_before_it() -> None:
    journal, answers = Recorder(), list[WaypostError | None]()
    effects = [Attest([fact(1)], ignore_result), Attest([fact(2)], answers.append), Attest([fact(3)], ignore_result)]
    await written(journal, effects, 2)
    assert (journal.lots, answers) == ([[1, 2], [3]], [None])


async def test_facts_that_the_journal_refused_are_written_again_in_order() -> None:
    journal = Recorder(failing=1)
    await written(journal, [Attest([fact(n)], ignore_result) for n in (1, 2)], 1)
    assert journal.lots == [[1, 2]]


def test_journal_that_failed_is_tried_again_after_a_pause_whatever_comes_meanwhile() -> None:
    """Else a busy proxy would try a full disk as often as facts come."""
    queue, awaited = JournalQueue(), list[WaypostError | None]()
    queue.step(Put(Attest([fact(1)], awaited.append)), 0)
    assert [type(effect) for effect in queue.tick(0)] == [Write]
    queue.step(Failed(), 10)
    queue.step(Put(Attest([fact(2)], awaited.append)), 20)
    assert queue.next_deadline() == 10 + RETRY_MS and queue.tick(9 + RETRY_MS) == []
    (write,) = queue.tick(10 + RETRY_MS)
    assert isinstance(write, Write) and [each.number for each in write.facts] == [1, 2]
    queue.step(Written(), 300)
    queue.step(Put(Attest([fact(3)], awaited.append)), 301)
    assert queue.next_deadline() == 301
