"""Announcing and browsing on loopback, with real multicast."""

from __future__ import annotations

import asyncio

from discovery.announce import Announcement, Announcer
from discovery.browse import browse, choose
from waypost.identity import new_incarnation


async def until_found(names: set[str]) -> dict[str, Announcement]:
    """Look until all of these are found; on a busy machine an answer may take longer than one look."""
    async with asyncio.timeout(30):
        while True:
            found = {each.proxy: each for each in await browse(look_s=5, settle_s=1)}
            if names <= found.keys():
                return found


async def test_several_proxies_of_one_host_are_found_on_loopback() -> None:
    names = [f"p{new_incarnation()}", f"q{new_incarnation()}"]
    announcers = [
        Announcer(Announcement(name, "A", "127.0.0.1", 7400 + number, load=number)) for number, name in enumerate(names)
    ]
    for announcer in announcers:
        await announcer.start()
    try:
        found = await until_found(set(names))
    finally:
        for announcer in announcers:
            await announcer.stop()
    assert found[names[1]].url == "ws://127.0.0.1:7401"
    assert found[names[1]].site == "A"
    assert found[names[1]].load == 1


async def test_a_proxy_that_said_goodbye_is_not_found_any_more() -> None:
    gone, stays = f"gone{new_incarnation()}", f"stays{new_incarnation()}"
    announcers = {
        name: Announcer(Announcement(name, "A", "127.0.0.1", 7403 + number))
        for number, name in enumerate((gone, stays))
    }
    for announcer in announcers.values():
        await announcer.start()
    try:
        await until_found({gone, stays})
        await announcers[gone].stop()
        assert gone not in await until_found({stays})
    finally:
        for announcer in announcers.values():
            await announcer.stop()


def test_a_client_prefers_its_own_site_then_the_idle_proxy_then_the_name() -> None:
    far = Announcement("a", "B", "h", 1, load=0)
    busy = Announcement("b", "A", "h", 2, load=9)
    idle = Announcement("c", "A", "h", 3, load=1)
    twin = Announcement("d", "A", "h", 4, load=1)
    assert choose([far, busy, twin, idle], site="A") == [idle, twin, busy, far]


def test_without_a_site_load_and_name_decide() -> None:
    assert choose([Announcement("b", "B", "h", 1, 2), Announcement("a", "A", "h", 2, 2)])[0].proxy == "a"
