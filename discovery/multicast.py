"""The adapter of zeroconf: opened on chosen addresses, its errors translated, always closed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address

import ifaddr
from zeroconf import Error, IPVersion
from zeroconf.asyncio import AsyncZeroconf

from waypost.errors import Unreachable

LOOPBACK, LOOPBACK_6 = "127.0.0.1", "::1"
CLOSE_S = 2.0
"""How long closing may take, in seconds; a goodbye takes a quarter of a second. After that zeroconf is abandoned."""


def own_addresses() -> list[str]:
    """Return this host's addresses for multicast, loopback first: zeroconf omits it by itself.

    All of IPv4, and for each interface one of IPv6, which may be link-local; the loopback of IPv6 has no multicast. An
    address that the system still compares with those of its neighbours (RFC 4862, section 5.4) is left out.
    """
    ipv4 = [LOOPBACK, *(address for address in _addresses() if "." in address and not address.startswith("127."))]
    ipv6: dict[str, str] = {}
    for adapter in ifaddr.get_adapters():
        for ip in adapter.ips:
            if isinstance(ip.ip, tuple) and ip.ip[0] != LOOPBACK_6 and _is_usable(ip.ip):
                ipv6.setdefault(adapter.name, ip.ip[0])
    return [*ipv4, *ipv6.values()]


def _is_usable(address: tuple[str, int, int]) -> bool:
    """Tell whether a socket can have this address of IPv6, with flow label and scope."""
    host, _, scope = address
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0, 0, scope))
    except OSError:
        return False
    return True


def reachable_addresses() -> list[str]:
    """Return this host's addresses at which other hosts may reach it: no loopback, no link-local one."""
    return [address for address in _addresses() if not (ip := ip_address(address)).is_loopback and not ip.is_link_local]


def _addresses() -> list[str]:
    found = [ip.ip for adapter in ifaddr.get_adapters() for ip in adapter.ips]
    return [address if isinstance(address, str) else address[0] for address in found]


@asynccontextmanager
async def multicast(addresses: Sequence[str]) -> AsyncIterator[AsyncZeroconf]:
    """Open multicast DNS for the length of the block, on the interfaces that have these addresses; yield zeroconf,
    which is closed at the end of the block, within CLOSE_S seconds.

    Args:
        addresses: of this host. Those of IPv6 are left out where it does not work.

    Raises:
        Unreachable: there is no multicast here, or zeroconf failed; an OSError in the block is raised so, too.
    """
    try:
        zeroconf = _opened(addresses)
        try:
            yield zeroconf
        finally:
            await _close(zeroconf)
    except Error as error:
        raise Unreachable(f"zeroconf: {str(error) or type(error).__name__}", field="discovery") from error
    except OSError as error:
        raise Unreachable(f"no multicast on {', '.join(addresses)}: {error.strerror}", field="discovery") from error


def _opened(addresses: Sequence[str]) -> AsyncZeroconf:
    """Return zeroconf on these addresses; of IPv4 alone, where IPv6 is switched off. Raises OSError."""
    ipv4 = [address for address in addresses if "." in address]
    if len(ipv4) < len(addresses):
        # A RuntimeError: an address is gone since it was listed.
        with suppress(OSError, RuntimeError):
            return AsyncZeroconf(interfaces=list(addresses), ip_version=IPVersion.All)
    return AsyncZeroconf(interfaces=ipv4, ip_version=IPVersion.V4Only)


async def _close(zeroconf: AsyncZeroconf) -> None:
    """Close in a task of its own.

    While zeroconf waits for its own start, it takes a cancellation of its caller for one of its own, and goes on: the
    cancellation would be lost, and a caller that waits for the end would wait for ever.
    """
    closing = asyncio.create_task(zeroconf.async_close(), name="zeroconf closes")
    await asyncio.wait({closing}, timeout=CLOSE_S)
    if closing.done():
        closing.result()
