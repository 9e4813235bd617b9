"""What every journal promises."""

from __future__ import annotations

import asyncio

from federation.journal_segments import Rotation
from tests.contracts.benches import Journals
from waypost.facts import Fact, FactKind, encode_fact


def fact(number: int) -> Fact:
    return Fact(
        writer="proxy/1",
        number=number,
        at_ms=1_700_000_000_000,
        kind=FactKind.RECEIVED,
        session="s",
        receiver='r "1"\n',
        origin="north/0",
        offsets=[number, number + 1],
        digests=[2**63, 5],
        frontier={"north/0": number},
    )


async def test_facts_come_back_as_they_were_and_in_order(journals: Journals) -> None:
    journal = await journals.open()
    for start in range(1, 100, 10):
        await journal.attest([fact(number) for number in range(start, start + 10)])
    assert await journals.facts() == [fact(number) for number in range(1, 101)]


async def test_facts_attested_without_waiting_keep_the_order_of_the_calls(journals: Journals) -> None:
    journal = await journals.open()
    await asyncio.gather(*(journal.attest([fact(number)]) for number in range(1, 301)))
    assert [fact.number for fact in await journals.facts()] == list(range(1, 301))


async def test_no_facts_are_no_work(journals: Journals) -> None:
    journal = await journals.open()
    await journal.attest([])
    assert await journals.facts() == []


async def test_attested_facts_survive_reopening_and_the_next_life_writes_on_behind_them(
    journals: Journals,
) -> None:
    first = await journals.open()
    await first.attest([fact(1), fact(2)])
    await first.close()
    second = await journals.open()
    await second.attest([fact(3)])
    assert await journals.facts() == [fact(1), fact(2), fact(3)]


async def test_journal_segment_begins_with_the_frontier_of_the_segments_before_it(journals: Journals) -> None:
    size = len(encode_fact(fact(1))) + 1
    journals.rotation = Rotation(segment_bytes=3 * size + 200)
    journal = await journals.open()
    for number in range(1, 7):
        await journal.attest([fact(number)])
    found = await journals.facts()
    begins = [fact for fact in found if fact.kind is FactKind.ROTATED]
    assert [fact for fact in found if fact.kind is not FactKind.ROTATED] == [fact(number) for number in range(1, 7)]
    # The first part, and each that the bound made, tell of all that was written before them, and of themselves.
    assert [fact.number for fact in begins] == list(range(1, len(begins) + 1))
    assert len(begins) >= 2 and found[0] == begins[0] and begins[0].frontier == {}
    for begin in begins[1:]:
        before = [fact.number for fact in found[: found.index(begin)] if fact.kind is not FactKind.ROTATED]
        assert begin.frontier == {"proxy/1": max(before), begin.writer: begin.number - 1}


async def test_a_part_that_is_old_enough_ends_when_something_is_written(journals: Journals) -> None:
    journals.rotation = Rotation(age_s=0.05)
    journal = await journals.open()
    await journal.attest([fact(1)])
    await journal.attest([fact(2)])
    await asyncio.sleep(0.06)
    await journal.attest([fact(3)])
    kinds = [fact.kind for fact in await journals.facts()]
    assert kinds[0] is FactKind.ROTATED
    assert kinds[-2:] == [FactKind.ROTATED, FactKind.RECEIVED]


async def test_a_journal_without_rotation_is_in_one_part(journals: Journals) -> None:
    journal = await journals.open()
    await journal.attest([fact(number) for number in range(1, 2_000)])
    assert not [fact for fact in await journals.facts() if fact.kind is FactKind.ROTATED]
