"""Addresses of proxies: which are valid, where they lead, and which ones a client may follow that a proxy has named."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import SplitResult, urlsplit

from waypost.errors import Refused


def check_address(url: object) -> str:
    """Return the address of a proxy.

    Args:
        url: ``ws://host:port`` or ``wss://host:port``.

    Raises:
        Refused: it is none.
    """
    if not is_address(url):
        raise Refused(f"{url!r:.80} is no address of a proxy; it is written as ws://host:7301", field="proxy")
    return str(url)


def is_address(url: object) -> bool:
    """Tell whether this is the address of a proxy: ``ws://host:port`` or ``wss://host:port``, perhaps with a path."""
    parts = _split(url)
    return (
        parts is not None
        and parts.scheme in ("ws", "wss")
        and bool(parts.hostname)
        and parts.port != 0
        and not (parts.query or parts.fragment)
    )


def may_follow(url: str, here: str) -> bool:
    """Tell whether a client at one address may go to another one that it was not given, but was told of there.

    It may not where that is no address of a proxy, or has a user, a password or a path; where it leads out of TLS; or
    where its host is on the loopback (:func:`is_loopback`), unless the client is there already: what listens there is
    another program. An address that leads to the client's own machine in another way, by a name or as 0.0.0.0, is not
    recognised.
    """
    parts, present = _split(url), _split(here)
    if not is_address(url) or parts is None or present is None or "@" in parts.netloc or parts.path.strip("/"):
        return False
    if present.scheme == "wss" and parts.scheme != "wss":
        return False
    return not leads_to_itself((parts.hostname or "").rstrip(".")) or leads_to_itself(
        (present.hostname or "").rstrip(".")
    )


def _split(url: object) -> SplitResult | None:
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        _ = parts.port if parts is not None else None  # raises ValueError: it is none
    except ValueError:
        return None
    return parts


def is_loopback(host: str) -> bool:
    """Tell whether a host is written as an address of the loopback: localhost, 127.0.0.0/8 with four numbers, or ::1. A
    name other than localhost is not: it may resolve to any address.
    """
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def leads_to_itself(host: str) -> bool:
    """Tell whether a connection to this host stays on the machine that opens it: an address of the loopback, also in
    the short forms that resolvers read (127.1, 2130706433, 0x7f.1) and within IPv6, or an unspecified one (0.0.0.0).
    """
    address = _read_address(host)
    if address is None:
        return host.lower() == "localhost"
    within = getattr(address, "ipv4_mapped", None) or address
    return bool(within.is_loopback or within.is_unspecified)


def _read_address(host: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address that a resolver reads in a text (inet_aton(3)); None: it is a name."""
    try:
        return ip_address(host)
    except ValueError:
        pass
    try:
        *leading, last = [int(part, _base(part)) for part in host.split(".")]
        number = sum(part << (24 - 8 * index) for index, part in enumerate(leading)) + last
        return ip_address(number) if len(leading) < 4 and number < 2**32 else None
    except ValueError:
        return None


def _base(number: str) -> int:
    if number[:2].lower() == "0x":
        return 16
    return 8 if number.startswith("0") and number != "0" else 10


def is_ip_address(host: str) -> bool:
    """Tell whether a host is an IP address, which no name server can point elsewhere."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
