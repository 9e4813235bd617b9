"""Announcing and browsing on loopback, with real multicast."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

from discovery.announce import Announcement, announced
from discovery.browse import browse
from waypost.identity import new_incarnation


def announcement(name: str, port: int, load: int = 0) -> Announcement:
    return Announcement(f"{name}{new_incarnation()}", "A", f"ws://127.0.0.1:{port}", load)


async def found() -> dict[str, Announcement]:
    return {announcement.proxy: announcement for announcement in await browse(poll_s=10, idle_s=3)}


async def test_several_proxies_of_one_host_are_found_on_loopback() -> None:
    announcements = [announcement("p", 7400), announcement("q", 7401, load=1)]
    async with AsyncExitStack() as stack:
        for each in announcements:
            await stack.enter_async_context(announced(each))
        seen = await found()
    assert [seen[each.proxy] for each in announcements] == announcements


async def test_a_proxy_that_has_ended_is_not_found_any_more_while_another_is() -> None:
    gone, stays = announcement("gone", 7403), announcement("stays", 7404)
    async with announced(stays):
        async with announced(gone):
            assert {gone.proxy, stays.proxy} <= (await found()).keys()
        seen = await found()
    assert stays.proxy in seen
    assert gone.proxy not in seen


async def test_what_has_changed_is_seen_by_a_later_browse() -> None:
    announcements = announcement("busy", 7405)
    async with announced(announcements) as announcer:
        now = replace(announcements, load=17, federation="1a2b")
        await announcer.update(now)
        assert (await found())[announcements.proxy] == now


async def test_a_proxy_is_found_at_the_address_that_it_advertises() -> None:
    announcement = Announcement(f"far{new_incarnation()}", "A", "wss://proxy.example:7301")
    async with announced(announcement):
        assert (await found())[announcement.proxy].url == "wss://proxy.example:7301"


async def test_a_proxy_on_the_loopback_of_ipv6_is_found() -> None:
    announcements = Announcement(f"six{new_incarnation()}", "A", "ws://[::1]:7302")
    assert announcements.addresses == ["::1"]
    async with announced(announcements):
        assert (await found())[announcements.proxy] == announcements


async def test_announcement_without_a_proxy_address_is_ignored() -> None:
    proxy, other = announcement("proxy", 7407), Announcement(f"other{new_incarnation()}", "A", "http://127.0.0.1:7408")
    async with announced(proxy), announced(other):
        seen = await found()
    assert proxy.proxy in seen
    assert other.proxy not in seen


async def test_a_name_that_dns_would_not_take_is_announced_all_the_same() -> None:
    announcements = announcement("a.b." + "long" * 30, 7406)
    async with announced(announcements):
        assert (await found())[announcements.proxy] == announcements
