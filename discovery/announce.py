"""Announcing a proxy on the local network: `_waypost._tcp.local.`, with its site, address, load and federation.

An announcement is a hint: the registry decides which proxies exist, and a client that reaches none at an address tries
the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from discovery.multicast import LOOPBACK, LOOPBACK_6, multicast, own_addresses, reachable_addresses
from waypost.client.address import is_ip_address
from waypost.errors import Unreachable

SERVICE = "_waypost._tcp.local."
UPDATE_EVERY_S = 5.0
"""The least interval of announcements of one proxy, in seconds: each goes to every host of the network."""
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
        federation: its identity; "": the proxy does not know it yet.
    """

    proxy: str
    site: str
    url: str
    load: int = 0
    federation: str = ""

    @property
    def host(self) -> str:
        """The host of the URL; "": it has none."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """The port of the URL; if it names none, or 0, 443 for wss and 80 for any other scheme."""
        parts = urlsplit(self.url)
        return parts.port or (443 if parts.scheme == "wss" else 80)

    @property
    def addresses(self) -> list[str]:
        """The IP addresses to announce: the one in the URL, loopback for ``localhost``, and for another name those of
        this host at which others may reach it, or loopback if it has none of these. A URL without a host counts as
        another name.
        """
        if self.host == "localhost":
            return [LOOPBACK]
        if is_ip_address(self.host):
            return [self.host]
        return reachable_addresses() or [LOOPBACK]


def audience(announcement: Announcement) -> list[str]:
    """Return the addresses of the interfaces to announce on: loopback alone for a proxy that is reached only there."""
    is_local = all(address in (LOOPBACK, LOOPBACK_6) for address in announcement.addresses)
    return [LOOPBACK] if is_local else own_addresses()


class Announced:
    """An announcement that is on the network, made by :func:`announced`."""

    def __init__(self, zeroconf: AsyncZeroconf, announcement: Announcement, service: str) -> None:
        self._zeroconf = zeroconf
        self._announcement = announcement
        self._service = service

    async def update(self, announcement: Announcement) -> None:
        """Announce something else of the same proxy; do nothing if it is the same as at the last call.

        An error of zeroconf becomes Unreachable where it leaves the block of :func:`announced`. What failed counts as
        announced: a call with the same announcement does not repeat it.

        Args:
            announcement: the new one; its proxy is that of the announcement before, because the name of the service
                stays.

        Raises:
            Unreachable: an address or a name is too long for DNS, which allows 255 bytes.
        """
        if announcement != self._announcement:
            self._announcement = announcement
            await (await self._zeroconf.async_update_service(_info(announcement, self._service)))


@asynccontextmanager
async def announced(announcement: Announcement) -> AsyncIterator[Announced]:
    """Announce a proxy on the local network for the length of the block; yield the announcement, which can be updated.

    A name that is taken gets a number behind it: several proxies of one host may share a name.

    Raises:
        Unreachable: there is no multicast here, zeroconf failed, or a name or an address is too long for DNS. An
            OSError that leaves the block is raised so, too (:func:`discovery.multicast.multicast`).
    """
    async with multicast(audience(announcement)) as zeroconf:
        info = _info(announcement, f"{_label(announcement.proxy)}.{SERVICE}")
        await (await zeroconf.async_register_service(info, allow_name_change=True))
        yield Announced(zeroconf, announcement, info.name)


async def announce(current: Callable[[], Announcement]) -> None:
    """Announce a proxy until cancelled, on all interfaces that the host has then; what has changed is announced every
    UPDATE_EVERY_S seconds at most.

    Args:
        current: returns the announcement as it is to be now. Its errors are raised as they are, but an OSError may be
            raised as Unreachable.

    Raises:
        Unreachable: there is no multicast here, zeroconf failed, or a name or an address is too long for DNS.
    """
    while True:
        announcement = current()
        ways = _ways(announcement)
        async with announced(announcement) as published:
            # A host that comes to another network has other addresses, and zeroconf does not see that.
            while _ways(announcement) == ways:
                await published.update(announcement)
                await asyncio.sleep(UPDATE_EVERY_S)
                announcement = current()


def _ways(announcement: Announcement) -> tuple[list[str], list[str]]:
    """Return the addresses of the interfaces to announce on, and those that are announced."""
    return audience(announcement), announcement.addresses


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
                "federation": announcement.federation,
            },
            server=f"{_label(announcement.proxy)}-waypost.local.",
        )
    except ValueError:
        raise Unreachable(
            "a name or an address is too long for DNS, which allows 255 bytes", field="discovery"
        ) from None


def _label(name: str) -> str:
    """Return a name as one label of a DNS name; the properties have all of it."""
    return name.replace(".", "-").encode()[:LABEL_BYTES].decode(errors="ignore")
