"""A roaming client: the choice among proxies, and when it moves. The connector's part of it too."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from waypost.client.connector import (
    Close,
    Connector,
    Find,
    Found,
    Lost,
    Measure,
    Measured,
    MoveTo,
    Open,
    Opened,
    Received,
    Report,
    SendPending,
    Start,
    Stop,
)
from waypost.client.events import NearerProxy, Refusal, Retry
from waypost.client.protocol import ClientProtocol
from waypost.client.roaming import MEASURED_AT_ONCE, ProxyChooser, Roaming, of_one_federation
from waypost.clock import NEVER
from waypost.errors import BadConfiguration
from waypost.identity import Epoch, ProxyId, SessionId, SiteId
from waypost.messages import VERSION, Attached, ListProxies, Moved, Proxies, ProxyAddress, Wait, WaitCause, Welcome

POLICY = Roaming(margin_ms=10, every_s=5, confirmations=2, hold_s=20)
A, B, C = "ws://a:1", "ws://b:1", "ws://c:1"
SESSION = SessionId("s")
ROUND_TRIPS = st.dictionaries(st.sampled_from([f"ws://p{n}:1" for n in range(6)]), st.floats(0, 500), min_size=1)


def address(url: str, site: str = "A", load: int = 0) -> ProxyAddress:
    return ProxyAddress(url=url, proxy=url[5:6], site=site, load=load)


# ---------------------------------------------------------------- the choice


def test_of_proxies_that_are_as_near_the_least_loaded_is_chosen() -> None:
    chooser = ProxyChooser(POLICY)
    chooser.named([address(A, load=7), address(B, load=2), address(C, load=0)])
    assert chooser.ranked({A: 1, B: 9, C: 30}) == [B, A, C]


def test_proxies_of_the_own_site_go_first_as_long_as_they_answer() -> None:
    chooser = ProxyChooser(Roaming(site="B"))
    chooser.named([address(A), address(B, site="B")])
    assert chooser.ranked({A: 1, B: 300}) == [B, A]
    assert chooser.ranked({A: 1}) == [A]


@given(ROUND_TRIPS, st.data())
def test_the_order_is_that_of_a_sort_by_the_rule(round_trips: dict[str, float], data: st.DataObject) -> None:
    sites = {url: data.draw(st.sampled_from("AB")) for url in round_trips}
    loads = {url: data.draw(st.integers(0, 3)) for url in round_trips}
    chooser = ProxyChooser(Roaming(site="A", margin_ms=10))
    chooser.named([address(url, sites[url], loads[url]) for url in round_trips])
    expected = []
    for site in "AB":
        rest = {url for url in round_trips if sites[url] == site}
        nearest = min((round_trips[url] for url in rest), default=0)
        near = {url for url in rest if round_trips[url] <= nearest + 10}
        expected += sorted(near, key=lambda url: (loads[url], round_trips[url], url))
        expected += sorted(rest - near, key=lambda url: (round_trips[url], url))
    assert chooser.ranked(round_trips) == expected


@given(st.integers(1, 40), st.integers(0, 39))
def test_each_proxy_is_measured_again_and_again(count: int, here: int) -> None:
    urls = [f"ws://p{n}:1" for n in range(count)]
    chooser = ProxyChooser(POLICY)
    chooser.named([address(url) for url in urls])
    seen: set[str] = set()
    for _ in range(count):
        measured = chooser.to_measure(urls[here % count])
        assert measured[0] == urls[here % count]
        assert len(measured) == len(set(measured)) == min(count, MEASURED_AT_ONCE)
        chooser.ranked(dict.fromkeys(measured, 1.0))
        seen.update(measured)
    assert seen == set(urls)


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=50))
def test_a_client_between_two_proxies_stays_where_it_is(noise: list[tuple[float, float]]) -> None:
    chooser = ProxyChooser(POLICY)
    chooser.named([address(A), address(B)])
    chooser.entered(A, 0)
    for number, (here, there) in enumerate(noise):
        assert chooser.nearer(A, {A: 50 + here, B: 50 + there}, number * 5_000) is None


def test_a_nearer_proxy_has_to_stay_nearer() -> None:
    chooser = ProxyChooser(POLICY)
    chooser.named([address(A), address(B)])
    chooser.entered(A, 0)
    assert chooser.nearer(A, {A: 1, B: 40}, 0) is None
    assert chooser.nearer(A, {A: 60, B: 1}, 30_000) is None
    assert chooser.nearer(A, {A: 1, B: 1}, 35_000) is None
    assert chooser.nearer(A, {A: 60, B: 1}, 40_000) is None
    assert chooser.nearer(A, {A: 60, B: 1}, 45_000) == B


def test_a_client_that_has_just_come_stays_for_a_while() -> None:
    chooser = ProxyChooser(POLICY)
    chooser.named([address(A), address(B)])
    chooser.nearer(A, {A: 1, B: 1}, 0)
    chooser.entered(A, 0)
    assert [chooser.nearer(A, {A: 60, B: 1}, now_ms) for now_ms in (5_000, 10_000, 15_000, 20_000)] == [None] * 3 + [B]


def test_the_first_measurement_decides_at_once() -> None:
    chooser = ProxyChooser(POLICY, [A])
    chooser.entered(A, 0)
    assert chooser.nearer(A, {A: 60}, 1) is None
    chooser.named([address(A), address(B)])
    assert chooser.nearer(A, {A: 60, B: 1}, 2) == B


def test_nothing_is_decided_where_the_present_proxy_was_not_measured() -> None:
    chooser = ProxyChooser(POLICY)
    chooser.named([address(A), address(B)])
    assert chooser.nearer(A, {B: 1}, 0) is None
    assert chooser.nearer(A, {}, 0) is None


def test_a_client_that_has_no_federation_yet_is_not_given_one_by_chance() -> None:
    found = [replace(address(A), federation="1a"), replace(address(B), federation="2b"), address(C)]
    with pytest.raises(BadConfiguration, match=r"proxies of 2 federations .*1a: a; 2b: b"):
        of_one_federation(found)
    assert of_one_federation(found, "2b") == found[1:]
    assert of_one_federation(found[1:]) == found[1:]
    assert of_one_federation([], "2b") == []


# ---------------------------------------------------------------- the connector


def connector(*addresses: str) -> tuple[Connector, ClientProtocol]:
    protocol = ClientProtocol("c", SESSION, "r")
    return Connector(protocol, addresses, random.Random(0), POLICY), protocol


def let_in(made: Connector, now_ms: int) -> None:
    made.step(Opened(), now_ms)
    made.step(Received(Welcome(VERSION, ProxyId("a"), SiteId("A"), "f")), now_ms)
    made.step(Received(Proxies([address(A), address(B)])), now_ms)
    made.step(
        Received(
            Attached(session=SESSION, epoch=Epoch(1), proxy=ProxyId("a"), site=SiteId("A"), subscriptions={}, stored=0)
        ),
        now_ms,
    )


def attached(*addresses: str) -> tuple[Connector, ClientProtocol]:
    made, protocol = connector(*addresses)
    (measure,) = made.step(Start(), 0)
    if isinstance(measure, Measure):
        assert made.step(Measured({addresses[0]: 1}), 0) == [Open(addresses[0])]
    let_in(made, 0)
    protocol.take_messages()
    return made, protocol


def test_a_client_goes_to_the_nearest_of_its_addresses() -> None:
    made, _ = connector(A, B)
    assert made.step(Start(), 0) == [Measure([A, B])]
    assert made.step(Measured({A: 60, B: 1}), 1) == [Open(B)]


def test_a_client_that_is_not_let_in_tries_the_next_best() -> None:
    made, _ = connector(A, B)
    made.step(Start(), 0)
    made.step(Measured({A: 60, B: 1}), 1)
    made.step(Lost("it refuses"), 2)
    assert made.tick(made.next_deadline()) == [Measure([B, A])]
    assert made.step(Measured({A: 60, B: 1}), 3_000) == [Open(A)]


def test_a_client_waits_where_none_of_its_addresses_answers() -> None:
    made, _ = connector(A, B)
    made.step(Start(), 0)
    (report,) = made.step(Measured({}), 1)
    assert isinstance(report, Report) and isinstance(report.event, Retry)
    assert "no proxy answers" in made.trouble
    assert made.tick(made.next_deadline()) == [Measure([A, B])]


def test_found_proxies_are_measured_and_looked_for_again_when_none_answers() -> None:
    made, _ = connector()
    assert made.step(Start(), 0) == [Find()]
    assert made.step(Found([address(A), address(B)]), 1) == [Measure([A, B])]
    made.step(Measured({}), 2)
    assert made.tick(made.next_deadline()) == [Find()]


def test_a_client_that_finds_two_federations_is_told_at_once() -> None:
    made, _ = connector()
    made.step(Start(), 0)
    (report,) = made.step(Found([replace(address(A), federation="1a"), replace(address(B), federation="2b")]), 1)
    assert isinstance(report, Report) and isinstance(report.event, Refusal)


def test_a_client_whose_federation_is_not_found_looks_for_it_again() -> None:
    made, _ = connector()
    made.step(Start(), 0)
    made.step(Found([address(A)]), 1)
    made.step(Measured({A: 1}), 2)
    let_in(made, 3)
    made.step(Lost("gone"), 4)
    made.tick(made.next_deadline())
    made.step(Lost("gone"), 2_000)
    made.tick(made.next_deadline())
    made.step(Measured({}), 9_000)
    assert made.tick(made.next_deadline()) == [Find()]
    made.step(Found([replace(address(A), federation="2b")]), 20_000)
    assert "no proxy of this federation" in made.trouble


def test_a_client_asks_its_proxy_for_the_others_and_measures_them() -> None:
    made, protocol = connector(A)
    assert made.step(Start(), 0) == [Open(A)]
    made.step(Opened(), 0)
    protocol.take_messages()
    made.step(Received(Welcome(VERSION, ProxyId("a"), SiteId("A"), "f")), 0)
    assert protocol.take_messages() == [ListProxies()]
    let_in(made, 0)
    assert made.tick(made.next_deadline()) == [Measure([A, B]), SendPending()]
    assert ListProxies() in protocol.take_messages()


def test_a_client_moves_to_the_nearer_proxy_and_says_so() -> None:
    made, _ = attached(A)
    made.tick(made.next_deadline())
    effects = made.step(Measured({A: 60, B: 1}), 1_000)
    assert effects == [Report(NearerProxy(B, 1, 60)), Close()]
    assert made.step(Lost("closed"), 1_001) == [Open(B)]


def test_a_client_that_was_let_in_measures_again_and_again() -> None:
    made, _ = attached(A)
    now_ms = 0
    for _ in range(10):
        now_ms = made.next_deadline()
        assert made.tick(now_ms)[0] == Measure([A, B])
        assert made.step(Measured({A: 1, B: 1}), now_ms) == []
    assert 40_000 <= now_ms <= 50_000


def test_a_client_that_waits_for_its_session_does_not_move() -> None:
    made, _ = connector(A, B)
    made.step(Start(), 0)
    made.step(Measured({A: 1, B: 60}), 0)
    made.step(Opened(), 0)
    made.step(Received(Wait(WaitCause.MOVED, "it moves", 100)), 0)
    assert made.step(Measured({A: 60, B: 1}), 1) == []


def test_a_client_follows_its_session_and_stays_there_for_a_while() -> None:
    made, _ = attached(A)
    made.step(Measured({A: 1, B: 1}), 1)
    made.step(Received(Moved(SESSION, ProxyId("b"), B)), 30_000)
    assert made.step(Lost("closed"), 30_001) == [Open(B)]
    let_in(made, 30_002)
    for now_ms in range(31_000, 50_000, 5_000):
        assert made.step(Measured({A: 1, B: 60}), now_ms) == []
    assert Close() in made.step(Measured({A: 1, B: 60}), 51_000)


def test_an_application_that_moves_a_client_goes_before_a_measurement() -> None:
    made, _ = connector(A, B)
    made.step(Start(), 0)
    assert made.step(MoveTo(C), 0) == []
    assert made.step(Measured({A: 1, B: 1}), 1) == [Open(C)]
    made, _ = connector()
    made.step(Start(), 0)
    assert made.step(MoveTo(C), 0) == []
    assert made.step(Found([address(A)]), 1) == [Open(C)]


def test_a_client_that_is_stopped_measures_nothing() -> None:
    made, _ = attached(A)
    made.step(Stop(), 1)
    assert made.next_deadline() == NEVER
    assert made.step(Measured({A: 60, B: 1}), 2) == []


def test_a_client_whose_only_address_is_away_goes_to_a_proxy_that_was_named() -> None:
    made, _ = attached(A)
    made.step(Lost("gone"), 1)
    assert made.tick(made.next_deadline()) == [Open(A)]
    made.step(Lost("gone"), 2_000)
    assert made.tick(made.next_deadline()) == [Measure([A, B])]
    assert made.step(Measured({B: 1}), 9_000) == [Open(B)]
