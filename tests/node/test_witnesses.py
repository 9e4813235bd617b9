"""Whoever lives is asked how far it has seen the log, and is waited for as long as an answer may come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import msgspec
import pytest

from federation.messages import NO_ORIGIN, SeenRequest, SeenResponse
from federation.ports import ProxyRow
from node.health.self_check import Unreached
from node.machines.log_guard import Witnessed
from node.peers.directory import Directory
from node.peers.peers import Peers
from node.site_log.witnesses import Witnesses
from waypost.clock import ManualClock
from waypost.errors import RegistryUnavailable
from waypost.identity import Incarnation, Origin, ProxyId, SiteId, origin_of

A, B = SiteId("A"), SiteId("B")
A1, A2, B1 = ProxyId("a1"), ProxyId("a2"), ProxyId("b1")
SITES = {A1: A, A2: A, B1: B}


class Living:
    """A directory that knows these proxies, once its watch has reported."""

    def __init__(self, *proxies: ProxyId, is_watching: bool = True) -> None:
        self.proxies = proxies
        self.is_watching = is_watching
        self.incarnation = Incarnation("i")

    def live(self) -> list[ProxyRow]:
        return [
            ProxyRow(proxy=proxy, incarnation=self.incarnation, site=SITES[proxy], url="ws://nowhere")
            for proxy in self.proxies
        ]


class Answering:
    """Peers that answer what they are asked, each in its way."""

    def __init__(self, **answers: Callable[[SeenRequest], SeenResponse]) -> None:
        self.answers = answers
        self.witnesses: Witnesses
        self.asked: list[ProxyId] = []
        self.requests: list[int] = []
        self.unreached: dict[ProxyId, Unreached] = {}

    def send(self, proxy: ProxyId, message: msgspec.Struct) -> None:
        assert isinstance(message, SeenRequest) and message.origin == origin_of(A)
        self.asked.append(proxy)
        self.requests.append(message.request)
        if proxy in self.answers:
            self.witnesses.receive(proxy, self.answers[proxy](message))

    def unroutable(self) -> dict[ProxyId, Unreached]:
        return self.unreached


def seen(offset: int, *, is_confirmed: bool = False) -> Callable[[SeenRequest], SeenResponse]:
    return lambda asked: SeenResponse(asked.request, offset, is_confirmed)


def asks(living: Living, peers: Answering, clock: ManualClock) -> asyncio.Task[Witnessed]:
    peers.witnesses = Witnesses(A1, A, cast(Peers, peers), cast(Directory, living), clock)
    return asyncio.create_task(peers.witnesses.ask(Origin("A/0"), NO_ORIGIN))


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param({}, Witnessed(), id="nobody else lives"),
        pytest.param({"b1": seen(7)}, Witnessed(elsewhere=7), id="another site's"),
        pytest.param({"a2": seen(7), "b1": seen(3)}, Witnessed(here=7, elsewhere=3), id="of both"),
        pytest.param({"a2": seen(7, is_confirmed=True)}, Witnessed(here=7, is_confirmed=True), id="own site's word"),
        pytest.param({"b1": seen(7, is_confirmed=True)}, Witnessed(elsewhere=7), id="no word of another site's"),
    ],
)
async def test_others_are_asked_how_far_they_have_seen_the_log(
    answers: dict[str, Callable[[SeenRequest], SeenResponse]], expected: Witnessed
) -> None:
    found = await asks(Living(A1, *map(ProxyId, answers)), Answering(**answers), ManualClock())
    assert found == expected


async def test_registry_that_has_not_said_who_lives_is_no_answer() -> None:
    """Else a proxy would count its log as confirmed by nobody."""
    clock = ManualClock()
    asking = asks(Living(is_watching=False), Answering(b1=seen(7)), clock)
    await asyncio.sleep(0.1)
    clock.advance(5_000)
    with pytest.raises(RegistryUnavailable, match="which proxies live"):
        await asyncio.wait_for(asking, 5)


async def test_peer_that_begins_another_incarnation_is_asked_again() -> None:
    living, peers = Living(A1, B1), Answering()
    asking = asks(living, peers, ManualClock())
    await asyncio.sleep(0.1)
    living.incarnation, peers.answers = Incarnation("ii"), {"b1": seen(7)}
    assert await asyncio.wait_for(asking, 5) == Witnessed(elsewhere=7)
    assert peers.asked == [B1, B1]


async def test_each_of_two_questions_under_way_has_its_own_answers() -> None:
    """A start is compared, and an interruption in the middle of it: neither takes the other's silence for an answer."""
    clock, peers = ManualClock(), Answering()
    first = asks(Living(A1, B1), peers, clock)
    await asyncio.sleep(0.1)
    second = asyncio.create_task(peers.witnesses.ask(Origin("A/0"), NO_ORIGIN))
    await asyncio.sleep(0.1)
    one, two = peers.requests
    peers.witnesses.receive(B1, SeenResponse(two, 9, is_confirmed=False))
    assert await asyncio.wait_for(second, 5) == Witnessed(elsewhere=9)
    assert not first.done()
    peers.witnesses.receive(B1, SeenResponse(one, 7, is_confirmed=False))
    assert await asyncio.wait_for(first, 5) == Witnessed(elsewhere=7)


async def test_it_is_waited_until_the_watch_says_who_lives_and_for_those_that_come_up_meanwhile() -> None:
    living, peers = Living(is_watching=False), Answering(b1=seen(7))
    asking = asks(living, peers, ManualClock())
    await asyncio.sleep(0.1)
    living.is_watching, living.proxies = True, (A1, A2)
    await asyncio.sleep(0.1)
    living.proxies = (A1, B1)
    assert await asyncio.wait_for(asking, 5) == Witnessed(elsewhere=7)
    assert peers.asked == [A2, B1]


async def test_peer_that_cannot_be_reached_is_not_waited_for() -> None:
    clock = ManualClock(1_000)
    peers = Answering(b1=seen(7))
    peers.unreached[A2] = Unreached(0, 999, "of an earlier message")
    asking = asks(Living(A1, A2, B1), peers, clock)
    await asyncio.sleep(0.2)
    assert not asking.done()
    peers.unreached[A2] = Unreached(0, 1_000, "connection refused")
    assert await asyncio.wait_for(asking, 5) == Witnessed(elsewhere=7)


async def test_peer_that_does_not_answer_is_waited_for_in_vain_and_an_earlier_answer_does_not_count() -> None:
    clock = ManualClock()
    peers = Answering(b1=lambda asked: SeenResponse(asked.request - 1, 9, is_confirmed=False))
    asking = asks(Living(A1, B1), peers, clock)
    await asyncio.sleep(0.2)
    assert not asking.done()
    clock.advance(5_000)
    assert await asyncio.wait_for(asking, 5) == Witnessed()
