"""A roaming client: the choice among proxies, and when it moves. The connector's part of it too."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

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
from waypost.client.events import NearerProxy, Refusal
from waypost.client.protocol import ClientProtocol
from waypost.client.roaming import (
    MEASURED_AGAIN,
    MEASURED_AT_ONCE,
    ProxyChooser,
    Roaming,
    of_one_federation,
)
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
    chooser.replace_named([address(A, load=7), address(B, load=2), address(C, load=0)], A)
    assert chooser.order({A: 1, B: 9, C: 30}, 0) == [B, A, C]


def test_proxies_of_the_own_site_go_first_as_long_as_they_answer() -> None:
    chooser = ProxyChooser(Roaming(site="B"))
    chooser.replace_named([address(A), address(B, site="B")], A)
    assert chooser.order({A: 1, B: 300}, 0) == [B, A]
    assert chooser.order({A: 1}, 0) == [A, B]


@given(ROUND_TRIPS, st.data())
def test_the_order_is_that_of_a_sort_by_the_rule(round_trips: dict[str, float], data: st.DataObject) -> None:
    sites = {url: data.draw(st.sampled_from("AB")) for url in round_trips}
    loads = {url: data.draw(st.integers(0, 3)) for url in round_trips}
    chooser = ProxyChooser(Roaming(site="A", margin_ms=10))
    chooser.replace_named([address(url, sites[url], loads[url]) for url in round_trips], A)
    expected = []
    for site in "AB":
        rest = {url for url in round_trips if sites[url] == site}
        nearest = min((round_trips[url] for url in rest), default=0)
        near = {url for url in rest if round_trips[url] <= nearest + 10}
        expected += sorted(near, key=lambda url: (loads[url], round_trips[url], url))
        expected += sorted(rest - near, key=lambda url: (round_trips[url], url))
    assert chooser.order(round_trips, 0) == expected


@given(st.integers(1, 40), st.integers(0, 39), st.sampled_from([None, "A", "B"]), st.integers(1, 5))
def test_each_proxy_is_measured_again_and_again(count: int, here: int, site: str | None, answer: int) -> None:
    urls = [f"ws://p{n}:1" for n in range(count)]
    chooser = ProxyChooser(Roaming(site=site))
    chooser.replace_named([address(url, "AB"[number % 2]) for number, url in enumerate(urls)], A)
    seen: set[str] = set()
    for _ in range(count + 1):
        measured = chooser.to_measure(urls[here % count])
        assert measured[0] == urls[here % count]
        assert len(measured) == len(set(measured)) == min(count, MEASURED_AT_ONCE)
        chooser.order({url: 1.0 for number, url in enumerate(measured) if number % answer == 0}, 0)
        seen.update(measured)
    assert seen == set(urls)


def test_a_proxy_that_answers_no_more_is_not_among_the_nearest() -> None:
    urls = [f"ws://p{n}:1" for n in range(20)]
    chooser = ProxyChooser(POLICY, urls)
    for _ in range(10):
        chooser.order(dict.fromkeys(chooser.to_measure(), 1.0), 0)
    nearest = chooser.to_measure()[:MEASURED_AGAIN]
    chooser.order({}, 0)
    assert not set(nearest) & set(chooser.to_measure()[:MEASURED_AGAIN])


@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0, 20)), min_size=1, max_size=50))
def test_a_client_between_two_proxies_stays_where_it_is(noise: list[tuple[float, float]]) -> None:
    chooser = ProxyChooser(POLICY)
    chooser.replace_named([address(A), address(B)], A)
    chooser.on_entered(A, 0)
    for number, (here, there) in enumerate(noise):
        assert chooser.nearer(A, {A: 50 + here, B: 50 + there}, number * 5_000) is None


def test_a_nearer_proxy_has_to_stay_nearer() -> None:
    chooser = ProxyChooser(POLICY)
    chooser.replace_named([address(A), address(B)], A)
    chooser.on_entered(A, 0)
    assert chooser.nearer(A, {A: 1, B: 40}, 0) is None
    assert chooser.nearer(A, {A: 60, B: 1}, 30_000) is None
    assert chooser.nearer(A, {A: 1, B: 1}, 35_000) is None
    assert chooser.nearer(A, {A: 60, B: 1}, 40_000) is None
    assert chooser.nearer(A, {A: 60, B: 1}, 45_000) == B


def test_a_client_that_has_just_come_stays_for_a_while() -> None:
    chooser = ProxyChooser(POLICY)
    chooser.replace_named([address(A), address(B)], A)
    chooser.nearer(A, {A: 1, B: 1}, 0)
    chooser.on_entered(A, 0)
    assert [chooser.nearer(A, {A: 60, B: 1}, now_ms) for now_ms in (5_000, 10_000, 15_000, 20_000)] == [None] * 3 + [B]


def test_the_first_measurement_decides_at_once() -> None:
    chooser = ProxyChooser(POLICY, [A])
    chooser.on_entered(A, 0)
    assert chooser.nearer(A, {A: 60}, 1) is None
    chooser.replace_named([address(A), address(B)], A)
    assert chooser.nearer(A, {A: 60, B: 1}, 2) == B


def test_a_present_proxy_that_does_not_answer_is_far_away() -> None:
    chooser = ProxyChooser(POLICY)
    chooser.replace_named([address(A), address(B)], A)
    assert chooser.nearer(A, {B: 400}, 0) == B
    assert chooser.nearer(B, {}, 0) is None


def test_a_proxy_that_does_not_let_the_client_in_is_avoided_longer_each_time() -> None:
    chooser = ProxyChooser(POLICY)
    chooser.replace_named([address(A), address(B)], A)
    now_ms, moves = 0, []
    for _ in range(200):
        if chooser.nearer(A, {A: 60, B: 1}, now_ms) == B:
            chooser.on_refused(B, now_ms)
            chooser.on_entered(A, now_ms)
            moves.append(now_ms)
        now_ms += 5_000
    assert len(moves) < 10
    assert all(later - earlier >= POLICY.hold_s * 1_000 for earlier, later in pairwise(moves))
    assert moves[-1] - moves[-2] > 2 * (moves[2] - moves[1])
    assert chooser.order({A: 60, B: 1}, moves[-1]) == [A, B]


def test_another_address_of_the_same_proxy_is_no_nearer_proxy() -> None:
    chooser = ProxyChooser(Roaming(site="A"), ["ws://gateway:1"])
    chooser.recognise("ws://gateway:1", "a", "A")
    chooser.replace_named([address(A)], "ws://gateway:1")
    assert chooser.nearer("ws://gateway:1", {"ws://gateway:1": 50, A: 1}, 0) is None


@pytest.mark.parametrize(
    ("named", "here"),
    [
        ("http://h:1", A),
        ("ws://h:1/admin?x=1", A),
        ("ws://h:1/admin", A),
        ("ws://user:password@h:1", A),
        ("ws://", A),
        ("ws://h:99999", A),
        ("ws://h:1", "wss://a:1"),
        ("ws://127.0.0.1:7301", A),
        ("ws://localhost:7301", A),
        ("ws://[::1]:7301", A),
    ],
)
def test_an_address_that_a_proxy_must_not_send_a_client_to_is_not_followed(named: str, here: str) -> None:
    chooser = ProxyChooser(POLICY, [here])
    chooser.replace_named([ProxyAddress(url=named), address(here)], here)
    assert chooser.to_measure(here) == [here]


def test_a_client_that_has_no_federation_yet_is_not_given_one_by_chance() -> None:
    found = [replace(address(A), federation="1a"), replace(address(B), federation="2b"), address(C)]
    with pytest.raises(BadConfiguration, match=r"proxies of 2 federations .*'1a': 'a'; '2b': 'b'"):
        of_one_federation(found)
    assert of_one_federation(found, "2b") == found[1:]
    assert of_one_federation(found[1:]) == found[1:]
    assert of_one_federation([], "2b") == []


def test_an_error_about_federations_shows_what_anybody_may_announce_as_it_is_and_not_all_of_it() -> None:
    found = [ProxyAddress(url=A, proxy=f"\x1b[2J{n}", federation=f"f{n % 2}") for n in range(1_000)]
    with pytest.raises(BadConfiguration) as caught:
        of_one_federation(found)
    assert "\x1b" not in caught.value.message
    assert "and 492 more" in caught.value.message


# ---------------------------------------------------------------- the connector


class Driven:
    """A connector, stepped by a test, which answers its measurements."""

    def __init__(self, *addresses: str, policy: Roaming = POLICY) -> None:
        self.protocol = ClientProtocol("c", SESSION, "r")
        self.made = Connector(self.protocol, addresses, random.Random(0), policy)
        self.now_ms = 0
        self.number = -1

    def step(self, input: Any) -> list[Any]:
        """Step it; of a Measure the addresses are returned, as a list."""
        return [self._noted(effect) for effect in self.made.step(input, self.now_ms)]

    def tick(self) -> list[Any]:
        """Let time pass until something is due, and do that."""
        self.now_ms = max(self.now_ms, self.made.next_deadline())
        return [self._noted(effect) for effect in self.made.tick(self.now_ms)]

    def _noted(self, effect: Any) -> Any:
        if isinstance(effect, Measure):
            self.number = effect.number
            return list(effect.addresses)
        return effect

    def measured(self, **round_trips: float) -> list[Any]:
        """Answer the last Measure: by the letter of each proxy."""
        return self.step(Measured(self.number, {f"ws://{name}:1": ms for name, ms in round_trips.items()}))

    def let_in(self) -> None:
        """The connection is open, and the session is attached."""
        self.step(Opened())
        self.step(Received(Welcome(VERSION, ProxyId(self.made._url[5]), SiteId("A"), "f")))
        self.step(Received(Proxies([address(A), address(B)])))
        self.step(ATTACHED)

    def attach(self) -> None:
        """Come to the first address, and be let in."""
        (first,) = self.step(Start())
        if isinstance(first, list):
            (first,) = self.measured(**{first[0][5]: 1})
        assert isinstance(first, Open)
        self.let_in()
        self.protocol.take_messages()


ATTACHED = Received(
    Attached(session=SESSION, epoch=Epoch(1), proxy=ProxyId("a"), site=SiteId("A"), subscriptions={}, stored=0)
)


def test_a_client_goes_to_the_nearest_of_its_addresses() -> None:
    driven = Driven(A, B)
    assert driven.step(Start()) == [[A, B]]
    assert driven.measured(a=60, b=1) == [Open(B)]


def test_a_client_that_is_not_let_in_tries_the_next_best() -> None:
    driven = Driven(A, B, C)
    driven.step(Start())
    driven.measured(a=60, b=1, c=90)
    driven.step(Lost("it refuses"))
    assert driven.tick() == [[B, A, C]]
    assert driven.measured(a=60, b=1, c=90) == [Open(A)]


def test_a_client_whose_proxy_dies_goes_to_the_nearest_one_that_is_left() -> None:
    driven = Driven(A, B, C)
    driven.attach()
    driven.step(Lost("gone"))
    assert driven.tick() == [Open(A)]
    driven.step(Lost("gone"))
    driven.tick()
    assert driven.measured(b=1, c=200) == [Open(B)]


def test_a_client_tries_an_address_where_none_has_answered() -> None:
    driven = Driven(A, B)
    driven.step(Start())
    assert driven.measured() == [Open(A)]
    driven.step(Lost("its certificate is wrong"))
    assert driven.made.trouble == ": its certificate is wrong"
    driven.tick()
    assert driven.measured() == [Open(B)]


def test_found_proxies_are_measured_and_looked_for_again_when_none_lets_the_client_in() -> None:
    driven = Driven()
    assert driven.step(Start()) == [Find()]
    assert driven.step(Found([address(A), address(B)])) == [[A, B]]
    assert driven.measured() == [Open(A)]
    driven.step(Lost("gone"))
    driven.tick()
    assert driven.measured() == [Open(B)]
    driven.step(Lost("gone"))
    assert driven.tick() == [Find()]


def test_a_client_that_finds_two_federations_is_told_at_once() -> None:
    driven = Driven()
    driven.step(Start())
    (report,) = driven.step(Found([replace(address(A), federation="1a"), replace(address(B), federation="2b")]))
    assert isinstance(report, Report) and isinstance(report.event, Refusal)


def test_a_client_whose_federation_is_not_found_says_so() -> None:
    driven = Driven()
    driven.step(Start())
    driven.step(Found([address(A)]))
    driven.measured(a=1)
    driven.let_in()
    driven.step(Lost("gone"))
    for _ in range(10):
        effects = driven.tick()
        if effects == [Find()]:
            break
        if isinstance(effects[0], list):
            driven.measured()
        driven.step(Lost("gone"))
    driven.step(Found([replace(address(A), federation="2b")]))
    assert "no proxy of this federation" in driven.made.trouble


def test_a_client_asks_its_proxy_for_the_others_and_measures_them() -> None:
    driven = Driven(A)
    assert driven.step(Start()) == [Open(A)]
    driven.step(Opened())
    driven.protocol.take_messages()
    driven.step(Received(Welcome(VERSION, ProxyId("a"), SiteId("A"), "f")))
    assert driven.protocol.take_messages() == [ListProxies()]
    driven.step(Received(Proxies([address(A), address(B)])))
    driven.step(ATTACHED)
    assert driven.tick() == [[A, B], SendPending()]
    assert ListProxies() in driven.protocol.take_messages()


def test_a_client_moves_to_the_nearer_proxy_and_says_so() -> None:
    driven = Driven(A)
    driven.attach()
    driven.tick()
    assert driven.measured(a=60, b=1) == [Report(NearerProxy(B, 1, 60)), Close()]
    assert driven.step(Lost("closed")) == [Open(B)]


def test_a_client_that_was_let_in_measures_again_and_again_and_once_at_a_time() -> None:
    driven = Driven(A)
    driven.attach()
    for _ in range(10):
        assert driven.tick()[0] == [A, B]
        assert driven.made.next_deadline() == NEVER
        assert driven.measured(a=1, b=1) == []
    assert 30_000 <= driven.now_ms <= 60_000


def test_an_answer_to_an_earlier_measurement_comes_too_late() -> None:
    driven = Driven(A, B)
    driven.attach()
    driven.tick()
    stale = driven.number
    driven.step(Lost("gone"))
    assert driven.tick() == [Open(A)]
    driven.let_in()
    assert driven.step(Measured(stale, {A: 60, B: 1})) == []


def test_a_client_that_waits_for_its_session_does_not_move() -> None:
    driven = Driven(A, B)
    driven.step(Start())
    driven.measured(a=1, b=60)
    driven.step(Opened())
    driven.step(Received(Wait(WaitCause.MOVED, "it moves", 100)))
    assert driven.step(Measured(driven.number, {A: 60, B: 1})) == []


def test_a_client_goes_back_from_a_nearer_proxy_that_does_not_serve_it_and_stays() -> None:
    driven = Driven(A)
    driven.attach()
    driven.tick()
    driven.measured(a=60, b=1)
    assert driven.step(Lost("closed")) == [Open(B)]
    driven.step(Opened())
    driven.step(Received(Welcome(VERSION, ProxyId("b"), SiteId("A"), "f")))
    driven.step(Received(Moved(SESSION, ProxyId("a"), A)))
    assert driven.step(Lost("closed")) == [Open(A)]
    driven.let_in()
    arrived_ms = driven.now_ms
    while Close() not in (effects := driven.measured(a=60, b=1) if isinstance(driven.tick()[0], list) else []):
        assert driven.now_ms - arrived_ms < 200_000
    assert effects and driven.now_ms - arrived_ms >= 20_000


def test_a_client_follows_its_session_and_stays_there_for_a_while() -> None:
    driven = Driven(A)
    driven.attach()
    driven.tick()
    driven.measured(a=1, b=1)
    driven.step(Received(Moved(SESSION, ProxyId("b"), B)))
    assert driven.step(Lost("closed")) == [Open(B)]
    driven.let_in()
    arrived_ms = driven.now_ms
    while Close() not in (driven.measured(a=1, b=60) if isinstance(driven.tick()[0], list) else []):
        assert driven.now_ms - arrived_ms < 60_000
    assert driven.now_ms - arrived_ms >= 20_000


def test_an_application_that_moves_a_client_does_not_wait_for_a_measurement() -> None:
    driven = Driven(A, B)
    driven.step(Start())
    assert driven.step(MoveTo(C)) == [Open(C)]
    assert driven.measured(a=1, b=1) == []
    driven = Driven()
    driven.step(Start())
    assert driven.step(MoveTo(C)) == [Open(C)]
    assert driven.step(Found([address(A)])) == []


def test_a_client_that_is_stopped_measures_nothing() -> None:
    driven = Driven(A)
    driven.attach()
    driven.tick()
    driven.step(Stop())
    assert driven.made.next_deadline() == NEVER
    assert driven.measured(a=60, b=1) == []


def test_a_client_whose_only_address_is_away_goes_to_a_proxy_that_was_named() -> None:
    driven = Driven(A)
    driven.attach()
    driven.step(Lost("gone"))
    assert driven.tick() == [Open(A)]
    driven.step(Lost("gone"))
    assert driven.tick() == [[A, B]]
    assert driven.measured(b=1) == [Open(B)]
