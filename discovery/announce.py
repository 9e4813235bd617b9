"""Announcing a proxy on the local network: `_waypost._tcp.local.`, with its site and its load.

An announcement is a hint. Who a proxy really is, the registry says; a client that finds nobody at an address
tries the next.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass

from zeroconf import InterfaceChoice, IPVersion
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

SERVICE = "_waypost._tcp.local."
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a proxy says of itself. `load`: sessions that it serves."""

    proxy: str
    site: str
    host: str
    port: int
    load: int = 0

    @property
    def url(self) -> str:
        return f"ws://{self.host}:{self.port}"


def interfaces(host: str) -> list[str] | InterfaceChoice:
    """Return where to speak multicast: on loopback only for a proxy that listens there only."""
    return [LOOPBACK] if host in (LOOPBACK, "localhost") else InterfaceChoice.All


class Announcer:
    """Keeps one announcement on the network, from :meth:`start` to :meth:`stop`."""

    def __init__(self, announcement: Announcement) -> None:
        self._announcement = announcement
        self._zeroconf: AsyncZeroconf | None = None

    async def start(self) -> None:
        """Announce. A name that is taken gets a number behind it: several proxies of one host may share a name."""
        self._zeroconf = AsyncZeroconf(interfaces=interfaces(self._announcement.host), ip_version=IPVersion.V4Only)
        await self._zeroconf.async_register_service(self._info(), allow_name_change=True)

    async def stop(self) -> None:
        """Say goodbye."""
        if self._zeroconf is not None:
            await self._zeroconf.async_unregister_all_services()
            await self._zeroconf.async_close()
            self._zeroconf = None

    def _info(self) -> AsyncServiceInfo:
        said = self._announcement
        address = LOOPBACK if said.host == "localhost" else said.host
        if address == "0.0.0.0":
            address = socket.gethostbyname(socket.gethostname())
        return AsyncServiceInfo(
            SERVICE,
            f"{said.proxy}.{SERVICE}",
            addresses=[socket.inet_aton(address)],
            port=said.port,
            properties={"proxy": said.proxy, "site": said.site, "load": str(said.load)},
            server=f"{said.proxy}-waypost.local.",
        )
