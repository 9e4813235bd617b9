"""Finding proxies on the local network, and choosing among them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import asdict

from zeroconf import ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from discovery.announce import SERVICE, Announcement
from discovery.multicast import multicast, own_addresses
from waypost.client.address import is_address
from waypost.limits import MAX_LISTED_PROXIES, MAX_URL_LENGTH
from waypost.messages import ProxyAddress

POLL_S = 2.0
"""How long to look for a first proxy, in seconds."""
FEDERATION = "WAYPOST_FEDERATION"
"""The variable with the identity of the only federation whose proxies are found, or the beginning of it."""
MAX_DIGITS = 10
"""Digits of a load; what has as many is none."""
IDLE_S = 0.5
"""How long to wait for others after the first one was found, in seconds: each may delay both of its answers by 0.12 s,
and by more where it has others to send (RFC 6762, section 6).
"""


async def browse(poll_s: float = POLL_S, idle_s: float = IDLE_S) -> list[Announcement]:
    """Return the announcements of proxies of all federations, found by multicast DNS on all interfaces, loopback
    included, in no order. Empty: no proxy answered in time.

    At most MAX_LISTED_PROXIES answers are looked at; what comes after them is not found. A service that is no proxy's,
    or has no usable URL, is left out. A proxy that takes more than POLL_S seconds to state its address is not found,
    whatever `poll_s` is.

    Args:
        poll_s: how long to wait for the first one, in seconds.
        idle_s: how long to wait for others after it, in seconds.

    Raises:
        Unreachable: there is no multicast here, or zeroconf failed.
    """
    async with multicast(own_addresses()) as zeroconf:
        return await _Browse(zeroconf).found(poll_s, idle_s)


class _Browse:
    """One search: the proxies found so far, and the queries that are still open."""

    def __init__(self, zeroconf: AsyncZeroconf) -> None:
        self._zeroconf = zeroconf.zeroconf
        self._found: dict[str, Announcement] = {}
        self._news = asyncio.Event()
        self._questions: set[asyncio.Task[None]] = set()

    async def found(self, poll_s: float, idle_s: float) -> list[Announcement]:
        browser = AsyncServiceBrowser(self._zeroconf, SERVICE, handlers=[self._changed])
        try:
            async with asyncio.timeout(poll_s):
                await self._news.wait()
            await asyncio.sleep(idle_s)
        except TimeoutError:
            pass
        finally:
            await browser.async_cancel()
            for question in self._questions:
                question.cancel()
            await asyncio.gather(*self._questions, return_exceptions=True)
        return list(self._found.values())

    def _changed(self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if state_change is not ServiceStateChange.Removed and len(self._questions) < MAX_LISTED_PROXIES:
            self._questions.add(asyncio.ensure_future(self._resolve(name)))

    async def _resolve(self, name: str) -> None:
        info = AsyncServiceInfo(SERVICE, name)
        if not await info.async_request(self._zeroconf, int(POLL_S * 1000)):
            return
        announcement = _read(info)
        if announcement is not None:
            self._found[name] = announcement
            self._news.set()


def choose(announcements: Sequence[Announcement], site: str | None = None) -> list[Announcement]:
    """Return the announcements, best first: those of the site, then the lowest load, then by name, so that all clients
    agree. None is left out.

    Args:
        announcements: of proxies.
        site: whose proxies go first; None: no site is preferred.
    """
    return sorted(announcements, key=lambda found: (found.site != site if site else False, found.load, found.proxy))


async def proxies(site: str | None = None) -> list[Announcement]:
    """Look for proxies of all federations on the local network, for POLL_S + IDLE_S seconds at most; return their
    announcements, best first (:func:`choose`). Empty: none was found (:func:`browse`).

    Args:
        site: whose proxies go first; None or empty: the one of WAYPOST_SITE, if it is set.

    Raises:
        Unreachable: there is no multicast here, or zeroconf failed.
    """
    return choose(await browse(), site or os.environ.get("WAYPOST_SITE"))


async def find() -> list[ProxyAddress]:
    """Look for proxies on the local network, for POLL_S + IDLE_S seconds at most; return their addresses, best first:
    those of the site WAYPOST_SITE, if it is set, then the lowest load, then by name. It is the client library's finder.

    If WAYPOST_FEDERATION is set, proxies whose federation's identity does not begin with it are left out, and so are
    those that do not know theirs yet. Empty: none was found (:func:`browse`), or all were left out.

    Raises:
        Unreachable: there is no multicast here, or zeroconf failed.
    """
    wanted = os.environ.get(FEDERATION, "")
    found = [ProxyAddress(**asdict(announcement)) for announcement in await proxies()]
    return [proxy for proxy in found if proxy.federation.startswith(wanted)]


def _read(info: AsyncServiceInfo) -> Announcement | None:
    """Return the announcement of a service; None: it is not a proxy's."""
    properties = {
        key.decode(errors="replace"): value.decode(errors="replace")
        for key, value in info.properties.items()
        if isinstance(key, bytes) and isinstance(value, bytes)
    }
    url, load = properties.get("url", ""), properties.get("load", "")
    if "proxy" not in properties or len(url) > MAX_URL_LENGTH or not is_address(url):
        return None
    served = int(load) if load.isdecimal() and len(load) < MAX_DIGITS else 0
    return Announcement(properties["proxy"], properties.get("site", ""), url, served, properties.get("federation", ""))
