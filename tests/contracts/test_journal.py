"""What every journal promises."""

from __future__ import annotations

import asyncio

from tests.contracts.benches import Journals
from waypost.records import Fact, FactKind


def fact(number: int) -> Fact:
    return Fact(
        "proxy/1",
        number,
        1_700_000_000_000,
        FactKind.RECEIVED,
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
