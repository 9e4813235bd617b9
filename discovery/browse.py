"""Finding proxies on the local network, and choosing among them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from zeroconf import IPVersion, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from discovery.announce import LOOPBACK, SERVICE, Announcement

LOOK_S = 2.0
"""How long to look before saying that nobody is there."""
SETTLE_S = 0.2
"""How long to wait for others after the first one was found."""


async def browse(look_s: float = LOOK_S, settle_s: float = SETTLE_S) -> list[Announcement]:
    """Return the proxies that announce themselves, on all interfaces, loopback included; as soon as it is settled."""
    found: dict[str, Announcement] = {}
    news = asyncio.Event()
    zeroconf = AsyncZeroconf(interfaces=_everywhere(), ip_version=IPVersion.V4Only)
    tasks: set[asyncio.Task[None]] = set()

    async def resolve(name: str) -> None:
        info = AsyncServiceInfo(SERVICE, name)
        if await info.async_request(zeroconf.zeroconf, int(look_s * 1000)):
            announcement = _read(info)
            if announcement is not None:
                found[name] = announcement
                news.set()

    def changed(zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        if state_change is not ServiceStateChange.Removed:
            tasks.add(asyncio.ensure_future(resolve(name)))

    browser = AsyncServiceBrowser(zeroconf.zeroconf, SERVICE, handlers=[changed])
    try:
        async with asyncio.timeout(look_s):
            await news.wait()
        await asyncio.sleep(settle_s)
    except TimeoutError:
        pass
    finally:
        await browser.async_cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await zeroconf.async_close()
    return list(found.values())


def choose(announcements: Sequence[Announcement], site: str | None = None) -> list[Announcement]:
    """Return them best first: those of our site, then by load, then by name, so that all clients agree."""
    return sorted(announcements, key=lambda each: (each.site != site if site else False, each.load, each.proxy))


async def find() -> list[str]:
    """Return the addresses of proxies, best first: the client library's finder."""
    return [announcement.url for announcement in choose(await browse())]


def _everywhere() -> list[str]:
    """Return every address of this host, loopback first: zeroconf leaves loopback out by itself."""
    import ifaddr

    addresses = [
        ip.ip for adapter in ifaddr.get_adapters() for ip in adapter.ips if ip.is_IPv4 and isinstance(ip.ip, str)
    ]
    return [LOOPBACK, *(address for address in addresses if not address.startswith("127."))]


def _read(info: AsyncServiceInfo) -> Announcement | None:
    """Return what a service says, None if it is no proxy's."""
    said = {
        key.decode(): value.decode()
        for key, value in info.properties.items()
        if isinstance(key, bytes) and isinstance(value, bytes)
    }
    addresses = info.parsed_addresses(IPVersion.V4Only)
    if not addresses or not info.port or "proxy" not in said:
        return None
    load = said.get("load", "0")
    return Announcement(
        said["proxy"], said.get("site", ""), addresses[0], info.port, int(load) if load.isdigit() else 0
    )
