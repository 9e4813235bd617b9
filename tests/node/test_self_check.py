"""Neighbours that are none, and an advertised address that nobody reaches, are troubles that name what is wrong."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from chaos.cluster import Cluster, ProxySpec
from chaos.servers.process import free_port
from federation.ports import ProxyRow
from node.health.dependency_health import DependencyHealth
from node.health.self_check import (
    ADVERTISED,
    GRACE_MS,
    LONE_SITE,
    SHARED,
    UNREACHED_MS,
    SelfCheck,
    Unreached,
    unknown_neighbours,
)
from tests.helpers.polling import until_seen
from waypost.clock import ManualClock
from waypost.identity import Incarnation, ProxyId, SiteId

A, B = SiteId("A"), SiteId("B")
RM = "If it is not: waypost links rm A B"


def row(proxy: str, site: SiteId) -> ProxyRow:
    return ProxyRow(proxy=ProxyId(proxy), incarnation=Incarnation("1"), site=site, url="ws://h:1")


@pytest.mark.parametrize(
    ("proxies", "known", "wrong"),
    [
        ([], [A], {B: f"no proxy of site B was ever announced; is it spelt as its proxies spell it? {RM}"}),
        ([], [A, SiteId("b")], {B: f"no proxy of site B was ever announced; site b was; is that meant? {RM}"}),
        ([], [A, B], {B: "no proxy of site B lives: all are down, or cut off from the registry"}),
        ([row("b1", B)], [A, B], {}),
    ],
)
def test_a_neighbour_that_is_none_is_named(
    proxies: list[ProxyRow], known: list[SiteId], wrong: dict[SiteId, str]
) -> None:
    assert unknown_neighbours(A, [B], proxies, known) == wrong


def test_an_address_of_two_proxies_is_a_trouble_until_one_of_them_has_another() -> None:
    clock = ManualClock()
    health = DependencyHealth(random.Random(1), clock)
    check = SelfCheck(ProxyId("a"), A, "", health, clock.now_ms())
    check.check_address("ws://h:1", [row("a2", A)], clock.now_ms())
    assert health.now == {}
    clock.advance(GRACE_MS)
    check.check_address("ws://h:1", [row("a2", A)], clock.now_ms())
    assert "also the address of a2" in health.now[SHARED]
    check.check_address("ws://h:2", [row("a2", A)], clock.now_ms())
    assert health.now == {}


def test_a_neighbour_is_a_trouble_after_a_while_and_until_it_comes() -> None:
    clock = ManualClock()
    health = DependencyHealth(random.Random(1), clock)
    check = SelfCheck(ProxyId("a"), A, "", health, clock.now_ms())
    check.check_neighbours([B], [], [A], clock.now_ms())
    assert health.now == {}
    clock.advance(GRACE_MS)
    check.check_neighbours([B], [], [A], clock.now_ms())
    assert list(health.now) == ["neighbour B"]
    check.check_neighbours([B], [row("b1", B)], [A, B], clock.now_ms())
    assert health.now == {}


def test_a_neighbour_in_other_capitals_is_a_trouble_at_once() -> None:
    clock = ManualClock()
    health = DependencyHealth(random.Random(1), clock)
    SelfCheck(ProxyId("a"), A, "", health, clock.now_ms()).check_neighbours([B], [], [A, SiteId("b")], clock.now_ms())
    assert list(health.now) == ["neighbour B"]


def test_a_site_without_neighbours_among_others_is_a_trouble_after_a_while() -> None:
    clock = ManualClock()
    health = DependencyHealth(random.Random(1), clock)
    check = SelfCheck(ProxyId("a"), A, "", health, clock.now_ms())
    check.check_site([], [A, B], clock.now_ms())
    assert health.now == {}
    clock.advance(GRACE_MS)
    check.check_site([], [A], clock.now_ms())
    assert health.now == {}
    check.check_site([], [A, B], clock.now_ms())
    assert "is --site right, and is --neighbours missing?" in health.now[LONE_SITE]
    check.check_site([], [A], clock.now_ms())
    assert health.now == {}


def test_a_site_in_other_capitals_is_a_trouble_at_once() -> None:
    clock = ManualClock()
    health = DependencyHealth(random.Random(1), clock)
    SelfCheck(ProxyId("a"), SiteId("a"), "", health, clock.now_ms()).check_site([], [A, SiteId("a")], clock.now_ms())
    assert "is site A meant (--site)?" in health.now[LONE_SITE]


def test_a_live_proxy_that_cannot_be_reached_for_long_is_a_trouble_until_it_can() -> None:
    clock = ManualClock()
    health = DependencyHealth(random.Random(1), clock)
    check = SelfCheck(ProxyId("a"), A, "", health, clock.now_ms())
    b = ProxyId("b")
    check.check_peers({b: Unreached(0, UNREACHED_MS - 1, "ws://h:1: refused")}, [b])
    assert health.now == {}
    failing = {b: Unreached(0, UNREACHED_MS, "ws://h:1: refused")}
    check.check_peers(failing, [])
    assert health.now == {}
    check.check_peers(failing, [b])
    assert "ws://h:1: refused" in health.now["proxy b"]
    check.check_peers({}, [b])
    assert health.now == {}


async def test_proxy_with_an_unreachable_advertised_address_reports_it_and_serves(tmp_path: Path) -> None:
    address = f"ws://127.0.0.1:{free_port()}"
    flags = {"no-discovery": "", "advertise": address}
    async with Cluster([ProxySpec("a", "A", flags)], [], tmp_path) as cluster:
        proxy = cluster.proxies["a"]
        await until_seen(lambda: ADVERTISED in proxy.request("/v1/status")["troubles"], "the trouble is shown")
        assert f"{address} cannot be reached from here" in proxy.request("/v1/status")["troubles"][ADVERTISED]
        assert proxy.ready()


async def test_an_advertised_address_of_somebody_else_is_a_trouble(tmp_path: Path) -> None:
    """It can be connected to, so that alone says nothing."""
    async with Cluster([ProxySpec("b", "A", {"no-discovery": ""})], [], tmp_path) as cluster:
        url = cluster.proxies["b"].url
        clock = ManualClock()
        health = DependencyHealth(random.Random(1), clock)
        await SelfCheck(ProxyId("a"), A, url, health, 0).try_advertised(0)
        assert f"{url} is the address of proxy b, not of this one (--advertise)" in health.now[ADVERTISED]
        check = SelfCheck(ProxyId("b"), A, url, health, 0)
        await check.try_advertised(0)
        assert check._advertise == ""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        other = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        health = DependencyHealth(random.Random(1), clock)
        await SelfCheck(ProxyId("a"), A, other, health, 0).try_advertised(0)
        assert f"{other} answers, but is no proxy; is --advertise right?" in health.now[ADVERTISED]
