"""Rates at which a client may publish, attest, and ask for changes: buckets that fill with time. Pure: it returns how
long to wait, and the caller reads nothing more of that client meanwhile.
"""

from __future__ import annotations

from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, IPv6Network

from waypost.limits import ADDRESS_BURST_S, ADDRESSES_KEPT, ATTESTED_PER_S
from waypost.messages import (
    Acknowledge,
    Attach,
    ClientMessage,
    Delete,
    Publish,
    Quench,
    SetAccess,
    SetKeys,
    Subscribe,
    Unsubscribe,
)

NAT64 = IPv6Network("64:ff9b::/96")
"""Addresses of IPv4 as a translator has them (RFC 6052)."""
CHANGES = (Attach, Subscribe, Unsubscribe, SetKeys, SetAccess, Delete, Quench)
"""Messages that cost others too: the store, the log, the registry, or all producers."""


class RateLimit:
    """A token bucket: `rate` tokens a second, and a capacity of `burst_s` seconds' worth. Rate 0: no bound.

    Args:
        now_s: of a monotonic clock, the same at every call.
    """

    def __init__(self, rate: float, now_s: float, burst_s: float = 1.0) -> None:
        self._rate = rate
        self._capacity = self._left = rate * burst_s
        self._at_s = now_s

    def charge(self, count: int, now_s: float) -> float:
        """Take `count` tokens, also where there are fewer; return for how many seconds to take nothing more, 0 without
        a bound.

        Args:
            now_s: by the monotonic clock of the constructor.
        """
        if not self._rate:
            return 0.0
        self._left = min(self._capacity, self._left + (now_s - self._at_s) * self._rate) - count
        self._at_s = now_s
        return max(0.0, -self._left / self._rate)


class RateLimits:
    """The rates of one client.

    Args:
        publish_rate: notifications a second that it may publish; 0: no bound.
        change_rate: :data:`CHANGES` a second; 0: no bound.
        now_s: of a monotonic clock, the same at every call.
    """

    def __init__(self, publish_rate: float, change_rate: float, now_s: float) -> None:
        self._publishing = RateLimit(publish_rate, now_s)
        self._attesting = RateLimit(ATTESTED_PER_S, now_s)
        self._changing = RateLimit(change_rate, now_s)

    def charge(self, message: ClientMessage, now_s: float) -> float | None:
        """Count a message of the client; return for how many seconds to read nothing more of the client.

        Args:
            now_s: by the monotonic clock of the constructor.

        Returns:
            0: read on. None: messages of this kind are not counted.
        """
        if isinstance(message, Publish):
            return self._publishing.charge(len(message.bodies), now_s)
        if isinstance(message, Acknowledge) and message.attestations:
            return self._attesting.charge(
                sum(1 + len(attestation.offsets) for attestation in message.attestations), now_s
            )
        return self._changing.charge(1, now_s) if isinstance(message, CHANGES) else None


class AddressRates:
    """The rate of changes of all connections from one address together; a new connection begins where others left.

    An IPv6 address counts with its /64 network. ADDRESSES_KEPT are remembered, those that asked last.

    Args:
        change_rate: :data:`CHANGES` a second, after a burst of :data:`ADDRESS_BURST_S` seconds' worth; 0: no bound.
    """

    def __init__(self, change_rate: float) -> None:
        self._change_rate = change_rate
        self._limits: dict[str, RateLimit] = {}

    @property
    def addresses(self) -> int:
        """The number of addresses that are remembered."""
        return len(self._limits)

    def charge(self, address: str, message: ClientMessage, now_s: float) -> float:
        """Count a message from an address; return for how many seconds to read nothing more of the client that sent it.

        Only :data:`CHANGES` are counted.

        Args:
            address: the IP address, as text.
            now_s: by a monotonic clock, the same at every call.
        """
        if not self._change_rate or not isinstance(message, CHANGES):
            return 0.0
        network = network_of(address)
        limit = self._limits.pop(network, None) or RateLimit(self._change_rate, now_s, ADDRESS_BURST_S)
        # The one that asked for something last stands last.
        self._limits[network] = limit
        if len(self._limits) > ADDRESSES_KEPT:
            del self._limits[next(iter(self._limits))]
        return limit.charge(1, now_s)


def network_of(address: str) -> str:
    """Return what counts as one address of a client: of IPv6 the 64 bits that one host has all addresses of.

    A link-local address counts by itself, and an address of IPv4 that is embedded in one of IPv6 as what it is.

    Args:
        address: of IPv4 or IPv6, also of IPv4 as a socket of IPv6 has it (``::ffff:192.0.2.1``); what is none is
            returned as it is.
    """
    if ":" not in address:
        return address
    host, _, scope = address.partition("%")
    with suppress(ValueError):
        ip = IPv6Address(host)
        if ip.is_loopback:
            return str(ip)
        if ip.is_link_local:
            return f"{ip}%{scope}" if scope else str(ip)
        if ip in NAT64:
            return str(IPv4Address(int(ip) & 0xFFFFFFFF))
        return str(ip.ipv4_mapped or IPv6Network((ip, 64), strict=False))
    return address
