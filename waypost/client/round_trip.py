"""Round trips to proxies: the time from a ping to its pong, on a connection that is opened for it.

The proxy's program answers a ping, after the TLS, gateways and name servers that a client's connection goes through. So
a proxy that is busy is further away.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence

import websockets
from websockets.asyncio.client import connect

from waypost import cancellation
from waypost.errors import WaypostError

PINGS = 3
"""Pings to each proxy, one after the other; the shortest round trip counts."""
ANSWER_S = 3.0
"""Time limit of a measurement, in seconds; a proxy that has not answered by then counts as away."""


async def round_trips(addresses: Sequence[str], security: Callable[[str], ssl.SSLContext | None]) -> dict[str, float]:
    """Return the round trip to each address that answers, in milliseconds.

    Args:
        addresses: of proxies, ``ws://host:port``. They are measured side by side.
        security: returns the TLS context for an address; None: it is no ``wss://`` one. It may raise BadConfiguration.
    """
    times = await asyncio.gather(*(_round_trip_ms(url, security) for url in addresses))
    return {url: ms for url, ms in zip(addresses, times, strict=True) if ms is not None}


async def _round_trip_ms(url: str, security: Callable[[str], ssl.SSLContext | None]) -> float | None:
    try:
        with cancellation.translated(lambda _: ConnectionAbortedError("broken off")):
            async with asyncio.timeout(ANSWER_S):
                return await _shortest_ms(url, security(url))
    except (OSError, websockets.WebSocketException, TimeoutError, WaypostError, ValueError):
        # As for a connection: a ValueError is an address that no name server could be asked about.
        return None


async def _shortest_ms(url: str, tls: ssl.SSLContext | None) -> float:
    times_s = []
    async with connect(
        f"{url.rstrip('/')}/v1/client", compression=None, ping_interval=None, close_timeout=0.5, ssl=tls
    ) as socket:
        for _ in range(PINGS):
            times_s.append(await (await socket.ping()))
    return min(times_s) * 1000
