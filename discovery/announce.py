"""Announcing a proxy on the local network: `_waypost._tcp.local.`, with its site, its address and its load.

An announcement is a hint: the registry decides which proxies exist, and a client that reaches none at an address tries
the next.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from discovery.multicast import LOOPBACK, multicast, own_addresses
from waypost.errors import Unreachable

SERVICE = "_waypost._tcp.local."
LOAD_EVERY_S = 5.0
"""The least interval of announcements of the load, in seconds: each goes to every host of the network."""
LABEL_BYTES = 50
"""Bytes of a name in DNS, which allows 63; the rest is room for the number behind a name that is taken."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """The announcement of a proxy.

    Args:
        proxy: its name.
        site: of the proxy.
        url: the address for clients, ``ws://host:port``.
        load: the number of sessions that it serves.
    """

    proxy: str
    site: str
    url: str
    load: int = 0

    @property
    def host(self) -> str:
        """The host of the URL; "": it has none."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """The port of the URL, or else the default port of its scheme."""
        parts = urlsplit(self.url)
        return parts.port or (443 if parts.scheme == "wss" else 80)

    @property
    def addresses(self) -> list[str]:
        """The IPv4 address in the URL; if the URL has a name, the addresses of this host."""
        if self.host == "localhost":
            return [LOOPBACK]
        if _is_ipv4(self.host):
            return [self.host]
        return [own_address for own_address in own_addresses() if own_address != LOOPBACK] or [LOOPBACK]


def audience(announcement: Announcement) -> list[str]:
    """Return the addresses of the interfaces to announce on: loopback alone for a proxy that is reached only there."""
    return [LOOPBACK] if announcement.addresses == [LOOPBACK] else own_addresses()


class Announced:
    """An announcement that is on the network, made by :func:`announced`."""

    def __init__(self, zeroconf: AsyncZeroconf, announcement: Announcement, service: str) -> None:
        self._zeroconf = zeroconf
        self._announcement = announcement
        self._service = service

    async def update(self, load: int) -> None:
        """Announce another load; do nothing if it is the same.

        Args:
            load: the number of sessions that the proxy serves.
        """
        if load != self._announcement.load:
            self._announcement = replace(self._announcement, load=load)
            await (await self._zeroconf.async_update_service(_info(self._announcement, self._service)))


@asynccontextmanager
async def announced(announcement: Announcement) -> AsyncIterator[Announced]:
    """Announce a proxy for the length of the block.

    A name that is taken gets a number behind it: several proxies of one host may share a name.

    Raises:
        Unreachable: there is no multicast here, or a name or an address is too long for DNS.
    """
    async with multicast(audience(announcement)) as zeroconf:
        info = _info(announcement, f"{_label(announcement.proxy)}.{SERVICE}")
        await (await zeroconf.async_register_service(info, allow_name_change=True))
        yield Announced(zeroconf, announcement, info.name)


async def announce(announcement: Announcement, load: Callable[[], int]) -> None:
    """Announce a proxy until cancelled, and its load whenever it has changed.

    Args:
        announcement: to begin with.
        load: returns the number of sessions that the proxy serves.

    Raises:
        Unreachable: as :func:`announced`.
    """
    async with announced(announcement) as current:
        while True:
            await current.update(load())
            await asyncio.sleep(LOAD_EVERY_S)


def _info(announcement: Announcement, service: str) -> AsyncServiceInfo:
    try:
        return AsyncServiceInfo(
            SERVICE,
            service,
            parsed_addresses=announcement.addresses,
            port=announcement.port,
            properties={
                "proxy": announcement.proxy,
                "site": announcement.site,
                "url": announcement.url,
                "load": str(announcement.load),
            },
            server=f"{_label(announcement.proxy)}-waypost.local.",
        )
    except ValueError:
        raise Unreachable(
            "a name or an address is too long for DNS, which allows 255 bytes", field="discovery"
        ) from None


def _is_ipv4(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def _label(name: str) -> str:
    """Return a name as one label of a DNS name; the properties have all of it."""
    return name.replace(".", "-").encode()[:LABEL_BYTES].decode(errors="ignore")
