"""The adapter of zeroconf: opened on chosen addresses, its errors translated, always closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import ifaddr
from zeroconf import Error, IPVersion
from zeroconf.asyncio import AsyncZeroconf

from waypost.errors import Unreachable

LOOPBACK = "127.0.0.1"
CLOSE_S = 2.0
"""How long closing may take, in seconds; a goodbye takes a quarter of a second. After that zeroconf is abandoned."""


def own_addresses() -> list[str]:
    """Return this host's IPv4 addresses, loopback first: zeroconf omits loopback by itself."""
    addresses = [
        ip.ip for adapter in ifaddr.get_adapters() for ip in adapter.ips if ip.is_IPv4 and isinstance(ip.ip, str)
    ]
    return [LOOPBACK, *(address for address in addresses if not address.startswith("127."))]


@asynccontextmanager
async def multicast(addresses: Sequence[str]) -> AsyncIterator[AsyncZeroconf]:
    """Open multicast DNS for the length of the block, on the interfaces that have these addresses.

    Args:
        addresses: of this host, IPv4.

    Raises:
        Unreachable: there is no multicast here, or zeroconf failed.
    """
    try:
        zeroconf = AsyncZeroconf(interfaces=list(addresses), ip_version=IPVersion.V4Only)
        try:
            yield zeroconf
        finally:
            await _close(zeroconf)
    except Error as error:
        raise Unreachable(f"zeroconf: {str(error) or type(error).__name__}", field="discovery") from error
    except OSError as error:
        raise Unreachable(f"no multicast on {', '.join(addresses)}: {error.strerror}", field="discovery") from error


async def _close(zeroconf: AsyncZeroconf) -> None:
    """Close in a task of its own.

    While zeroconf waits for its own start, it takes a cancellation of its caller for one of its own, and goes on: the
    cancellation would be lost, and a caller that waits for the end would wait for ever.
    """
    closing = asyncio.create_task(zeroconf.async_close(), name="zeroconf closes")
    await asyncio.wait({closing}, timeout=CLOSE_S)
    if closing.done():
        closing.result()
