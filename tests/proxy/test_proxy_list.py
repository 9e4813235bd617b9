"""The proxies that a client may go to instead: which, in which order, and how often the list is made."""

from __future__ import annotations

from federation.ports import DrainChanged, DrainRow, ProxyRow, ProxyUp
from proxy.clients.proxy_list import LISTED_MS
from proxy.core.inputs import ClientConnected, RegistryReported
from tests.helpers.engine_harness import EngineHarness
from waypost.identity import Epoch, Incarnation, Ownership, ProxyId, SessionId, SiteId
from waypost.limits import MAX_LISTED_PROXIES
from waypost.messages import VERSION, Hello, ListProxies, Proxies


def row(name: str, site: str) -> ProxyRow:
    return ProxyRow(proxy=ProxyId(name), incarnation=Incarnation("1"), site=SiteId(site), url=f"ws://{name}:1")


def listed(harness: EngineHarness) -> list[tuple[str, str, int]]:
    harness.send(1, ListProxies())
    (answer,) = [message for _, message in harness.sent if isinstance(message, Proxies)]
    harness.sent.clear()
    return [(proxy.proxy, proxy.url, proxy.load) for proxy in answer.proxies]


def greeted(owners: dict[str, str]) -> EngineHarness:
    harness = EngineHarness()
    harness.reload({SessionId(name): Ownership(ProxyId(proxy), Epoch(1)) for name, proxy in owners.items()})
    harness.step(ClientConnected(1))
    harness.send(1, Hello(VERSION, "c"))
    harness.sent.clear()
    return harness


def test_proxies_of_the_own_site_come_first_and_then_the_least_loaded() -> None:
    harness = greeted({"s": "far", "t": "near", "u": "near"})
    for name, site in (("far", "B"), ("idle", "B"), ("near", "A")):
        harness.step(RegistryReported(ProxyUp(row(name, site))))
    assert [(name, load) for name, _, load in listed(harness)] == [("me", 0), ("near", 2), ("idle", 0), ("far", 1)]


def test_a_proxy_that_is_being_drained_is_left_out() -> None:
    harness = greeted({})
    harness.step(RegistryReported(ProxyUp(row("b", "B"))))
    harness.step(RegistryReported(DrainChanged(ProxyId("b"), DrainRow(rate=1))))
    assert [name for name, _, _ in listed(harness)] == ["me"]


def test_no_more_are_listed_than_a_client_takes() -> None:
    harness = greeted({})
    for number in range(MAX_LISTED_PROXIES + 50):
        harness.step(RegistryReported(ProxyUp(row(f"p{number}", "B"))))
    assert len(listed(harness)) == MAX_LISTED_PROXIES


def test_the_list_is_made_anew_after_a_while() -> None:
    harness = greeted({})
    assert len(listed(harness)) == 1
    harness.step(RegistryReported(ProxyUp(row("b", "B"))))
    assert len(listed(harness)) == 1
    harness.clock.advance(LISTED_MS)
    assert len(listed(harness)) == 2
