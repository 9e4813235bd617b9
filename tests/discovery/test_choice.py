"""Which proxy a client prefers, and what happens where there is none to be had."""

from __future__ import annotations

import asyncio
import errno
import time
from dataclasses import replace

import pytest

from discovery import browse, multicast
from discovery.announce import Announcement, announced
from discovery.browse import choose, find, proxies
from waypost.errors import Unreachable

FAR = Announcement("a", "B", "ws://h:1", load=0)
BUSY = Announcement("b", "A", "ws://h:2", load=9)
IDLE = Announcement("c", "A", "ws://h:3", load=1)
TWIN = Announcement("d", "A", "ws://h:4", load=1)


def test_a_client_prefers_its_own_site_then_the_idle_proxy_then_the_name() -> None:
    assert choose([FAR, BUSY, TWIN, IDLE], site="A") == [IDLE, TWIN, BUSY, FAR]


def test_without_a_site_load_and_name_decide() -> None:
    assert choose([BUSY, IDLE, TWIN, FAR]) == [FAR, IDLE, TWIN, BUSY]


async def test_the_environment_may_name_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    async def everybody() -> list[Announcement]:
        return [FAR, IDLE]

    monkeypatch.setattr(browse, "browse", everybody)
    monkeypatch.setenv("WAYPOST_SITE", "A")
    assert [announcement.site for announcement in await proxies()] == ["A", "B"]
    assert [announcement.site for announcement in await proxies("B")] == ["B", "A"]
    assert [proxy.url for proxy in await find()] == [IDLE.url, FAR.url]


async def test_the_environment_may_name_the_federation(monkeypatch: pytest.MonkeyPatch) -> None:
    async def everybody() -> list[Announcement]:
        return [replace(FAR, federation="1a2b3c"), replace(IDLE, federation="9f8e"), BUSY]

    monkeypatch.setattr(browse, "browse", everybody)
    assert len(await find()) == 3
    monkeypatch.setenv("WAYPOST_FEDERATION", "1a2b")
    assert [proxy.proxy for proxy in await find()] == [FAR.proxy]


async def test_without_a_network_the_finder_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def down(**_: object) -> None:
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr(multicast, "AsyncZeroconf", down)
    with pytest.raises(Unreachable, match=r"no multicast on 127\.0\.0\.1.*: No such device"):
        await find()


async def test_announcement_too_long_for_dns_is_refused_with_a_message() -> None:
    with pytest.raises(Unreachable, match="too long for DNS"):
        async with announced(Announcement("p", "A" * 256, "ws://127.0.0.1:1")):
            pass


@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.05, 0.1, 0.102, 0.11])
async def test_cancelled_browse_ends_at_once(after_s: float) -> None:
    looking = asyncio.create_task(browse.browse(poll_s=0.1, idle_s=0))
    await asyncio.sleep(after_s)
    looking.cancel()
    began = time.monotonic()
    await asyncio.wait({looking}, timeout=multicast.CLOSE_S)
    assert looking.done()
    assert time.monotonic() - began < 1
