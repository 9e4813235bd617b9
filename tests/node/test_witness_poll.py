"""A poll of the other live proxies finds what any of them has answered, and waits no longer than for those it must."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.messages import SeenRequest, SeenResponse
from federation.ports import ProxyRow
from node.machines.log_guard import Witnessed
from node.machines.witness_poll import AGAIN_MS, LOOK_MS, WitnessPoll
from waypost.errors import RegistryUnavailable
from waypost.identity import NOTHING, Incarnation, ProxyId, SiteId, origin_of
from waypost.limits import WITNESS_S

A, B = SiteId("A"), SiteId("B")
A1, A2, B1, B2 = map(ProxyId, ("a1", "a2", "b1", "b2"))
SITES = {A1: A, A2: A, B1: B, B2: B}
REQUEST = SeenRequest(7, origin_of(A))


def row(proxy: ProxyId, incarnation: int = 1) -> ProxyRow:
    return ProxyRow(proxy=proxy, incarnation=Incarnation(str(incarnation)), site=SITES[proxy], url="ws://nowhere")


def poll() -> WitnessPoll:
    return WitnessPoll(A1, A, REQUEST, 0)


def answer(offset: int, *, request: int = 7, is_confirmed: bool = False) -> SeenResponse:
    return SeenResponse(request, offset, is_confirmed)


def test_nobody_else_is_an_answer_at_once() -> None:
    polled = poll()
    assert polled.look([row(A1)], {}, 0) == []
    assert polled.is_over and polled.result() == Witnessed()


def test_who_has_not_answered_is_asked_again_and_who_has_is_not() -> None:
    polled = poll()
    living = [row(A2), row(B1)]
    assert polled.look(living, {}, 0) == [A2, B1]
    polled.receive(A2, answer(3))
    assert polled.look(living, {}, AGAIN_MS - 1) == [] and not polled.is_over
    assert polled.look(living, {}, AGAIN_MS) == [B1]
    polled.receive(B1, answer(9))
    assert polled.look(living, {}, AGAIN_MS + 1) == [] and polled.is_over
    assert polled.result() == Witnessed(here=3, elsewhere=9)


def test_what_an_earlier_incarnation_has_seen_counts_and_the_present_one_is_asked_too() -> None:
    """It may have lost its disk since, and then nobody else knows."""
    polled = poll()
    polled.look([row(B1)], {}, 0)
    polled.receive(B1, answer(9))
    assert polled.look([row(B1, 2)], {}, 1) == [B1] and not polled.is_over
    polled.receive(B1, answer(NOTHING))
    polled.look([row(B1, 2)], {}, 2)
    assert polled.is_over and polled.result() == Witnessed(elsewhere=9)


def test_answer_of_one_that_has_ended_counts() -> None:
    polled = poll()
    polled.look([row(A2)], {}, 0)
    polled.receive(A2, answer(9, is_confirmed=True))
    polled.look([], {}, 1)
    assert polled.is_over and polled.result() == Witnessed(here=9, is_confirmed=True)


def test_answers_to_another_question_or_of_one_that_was_not_asked_do_not_count() -> None:
    polled = poll()
    polled.look([row(B1)], {}, 0)
    polled.receive(B1, answer(9, request=6))
    polled.receive(B2, answer(9))
    polled.look([row(B1)], {B1: 0}, 1)
    assert polled.is_over and polled.result() == Witnessed()


@pytest.mark.parametrize(("failed_ms", "is_over"), [(-1, False), (0, True)])
def test_one_that_cannot_be_reached_since_the_poll_began_holds_nobody_up(failed_ms: int, *, is_over: bool) -> None:
    polled = poll()
    polled.look([row(B1)], {B1: failed_ms}, 1)
    assert polled.is_over is is_over


def test_a_registry_that_does_not_say_who_lives_is_waited_for_and_then_is_no_answer() -> None:
    """Else a proxy would count its log as confirmed by nobody."""
    polled = poll()
    assert polled.look(None, {}, 0) == [] and not polled.is_over
    polled.look(None, {}, int(1000 * WITNESS_S))
    assert polled.is_over
    with pytest.raises(RegistryUnavailable, match="which proxies live"):
        polled.result()


@given(seed=st.integers(), loss=st.floats(0, 0.9), proxies=st.sets(st.sampled_from([A2, B1, B2])))
def test_over_a_lossy_channel_it_finds_exactly_what_has_arrived(seed: int, loss: float, proxies: set[ProxyId]) -> None:
    """The dumber model: the answers that arrived, and whether each live one has given one or the time is over."""
    rng = random.Random(seed)
    polled, arrived = poll(), list[tuple[ProxyId, SeenResponse]]()
    under_way = list[tuple[int, ProxyId, SeenResponse]]()
    rows = {proxy: row(proxy) for proxy in proxies}
    now = 0
    while not polled.is_over:
        for proxy in list(rows):
            if rng.random() < 0.02:
                rows[proxy] = row(proxy, rng.randrange(1 << 30))
        for proxy in polled.look(list(rows.values()), {}, now):
            if rng.random() >= loss:
                under_way.append((now + rng.randrange(400), proxy, answer(rng.randrange(20), is_confirmed=proxy == A2)))
        now += LOOK_MS
        for due, proxy, response in [each for each in under_way if each[0] <= now]:
            under_way.remove((due, proxy, response))
            polled.receive(proxy, response)
            arrived.append((proxy, response))
    answering = {proxy for proxy, _ in arrived}
    assert answering >= proxies or now >= 1000 * WITNESS_S
    found = polled.result()
    assert found.here == max((each.offset for proxy, each in arrived if SITES[proxy] == A), default=NOTHING)
    assert found.elsewhere == max((each.offset for proxy, each in arrived if SITES[proxy] == B), default=NOTHING)
    assert found.is_confirmed == (A2 in answering)
