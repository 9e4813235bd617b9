"""Answers to a catch-up count only where they are what this process asked this peer for."""

from __future__ import annotations

import asyncio
from typing import cast

import msgspec
import pytest

from federation.messages import CatchUp, CatchUpFailed, CaughtUp
from federation.ports import ProxyRow, SiteLog
from federation.site.state import SiteState
from node.peers.directory import Directory
from node.peers.history_requests import History, Requests
from node.peers.peers import Peers
from waypost.errors import Unreachable
from waypost.identity import Incarnation, Origin, ProxyId, SiteId
from waypost.limits import HISTORIES_AT_ONCE
from waypost.records import Forwarded

B1, B2, ORIGIN = ProxyId("b1"), ProxyId("b2"), Origin("B/0")
WANTED = CatchUp(1, ORIGIN, 0, 9, ("n > 0",))


class OneProxy:
    """A directory with one proxy of site B."""

    def live(self) -> list[ProxyRow]:
        return [ProxyRow(proxy=B1, incarnation=Incarnation("i"), site=SiteId("B"), url="ws://nowhere")]


class Sent:
    """Peers that keep what is sent."""

    def __init__(self) -> None:
        self.messages: list[CatchUp] = []

    def send(self, proxy: ProxyId, message: msgspec.Struct) -> None:
        assert isinstance(message, CatchUp)
        self.messages.append(message)


async def asked() -> tuple[Requests, CatchUp, asyncio.Task[CaughtUp]]:
    sent = Sent()
    requests = Requests(cast(Peers, sent), cast(Directory, OneProxy()))
    asking = asyncio.create_task(requests.ask(SiteId("B"), WANTED))
    await asyncio.sleep(0)
    return requests, sent.messages[0], asking


def answer(request: int, origin: Origin = ORIGIN, records: tuple[Forwarded, ...] = ()) -> CaughtUp:
    return CaughtUp(request=request, origin=origin, records=[*records], through=9)


def record(origin: Origin) -> Forwarded:
    return Forwarded(
        link=SiteId("B"),
        link_epoch=1,
        origin=origin,
        offset=3,
        producer="p",
        incarnation=Incarnation("i"),
        sequence=1,
        at_ms=0,
        body=b"\x80",
        path=(SiteId("B"),),
    )


async def test_answer_to_the_same_number_of_another_process_does_not_count() -> None:
    """It had the name of this one, and counted its questions from where it was: what is passed over would be lost."""
    _, first, asking = await asked()
    requests, second, again = await asked()
    assert first.request != second.request and {first.request, second.request}.isdisjoint({WANTED.request})
    requests.answer(B1, answer(first.request))
    await asyncio.sleep(0)
    assert not again.done()
    requests.answer(B1, answer(second.request))
    assert (await again).through == 9
    asking.cancel()


async def test_answer_of_another_peer_or_of_another_origin_does_not_count() -> None:
    requests, wanted, asking = await asked()
    requests.answer(B2, answer(wanted.request))
    requests.answer(B1, answer(wanted.request, Origin("C/0")))
    requests.answer(B2, CatchUpFailed(wanted.request, ORIGIN, "no"))
    await asyncio.sleep(0)
    assert not asking.done()
    requests.answer(B1, answer(wanted.request, records=(record(ORIGIN),)))
    assert [each.offset for each in (await asking).records] == [3]


async def test_answer_with_records_of_another_origin_is_none() -> None:
    requests, wanted, asking = await asked()
    requests.answer(B1, answer(wanted.request, records=(record(Origin("C/0")),)))
    with pytest.raises(Unreachable, match="records of another origin"):
        await asking


async def test_catch_ups_of_other_sites_are_answered_in_turn_and_not_where_nobody_waits_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who has no answer in time asks again: a proxy that went on to answer all would be ever later."""
    monkeypatch.setattr("node.peers.history_requests.ANSWER_S", 0.2)
    at_once = most = 0

    class Slow(History):
        async def answer(self, wanted: CatchUp) -> CaughtUp:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0.15)
            at_once -= 1
            return answer(wanted.request)

    history = Slow(SiteState(SiteId("B")), cast(SiteLog, None))
    answers = await asyncio.gather(*(history.serve(WANTED) for _ in range(5 * HISTORIES_AT_ONCE)))
    assert most == HISTORIES_AT_ONCE
    assert [each is not None for each in answers] == [True] * 2 * HISTORIES_AT_ONCE + [False] * 3 * HISTORIES_AT_ONCE


async def test_failure_is_told() -> None:
    requests, wanted, asking = await asked()
    requests.answer(B1, CatchUpFailed(wanted.request, ORIGIN, "its log does not answer"))
    with pytest.raises(Unreachable, match="its log does not answer"):
        await asking
