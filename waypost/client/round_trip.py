"""Round trips to proxies: the time from a ping to its pong, on a connection that is opened for it.

The proxy's program answers a ping, after the TLS, gateways and name servers that a client's connection goes through. So
a proxy that is busy is further away.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress

import websockets
from websockets.asyncio.client import connect

from waypost import cancellation
from waypost.errors import WaypostError

PINGS = 3
"""Pings to each proxy, one after the other; the shortest round trip counts."""
ANSWER_S = 3.0
"""Time limit of a measurement, in seconds; a proxy that has not answered by then counts as away."""
OTHERS_S = 0.5
"""Time for others to answer, in seconds, once one has answered: who is so much further away is not chosen."""


class DirectConnect(connect):
    """A WebSocket connection to the address that is given, and to no other one: an answer of HTTP that redirects it is
    an error. It could lead out of TLS, or to the client's own machine (:func:`waypost.client.address.may_follow`).
    """

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Return the error, whatever it is: none is followed."""
        return exc


async def round_trips(addresses: Sequence[str], security: Callable[[str], ssl.SSLContext | None]) -> dict[str, float]:
    """Return the shortest round trip to each address that has answered a ping in time, in milliseconds; an address that
    does not answer, or cannot be reached, is left out.

    The call ends when all are measured; or when for ANSWER_S seconds no measurement has ended, or for OTHERS_S seconds
    once an address has answered and a measurement has ended.

    Args:
        addresses: of proxies, ``ws://host:port``. They are measured side by side.
        security: returns the TLS context for an address; None: it is no ``wss://`` one. It may raise BadConfiguration;
            the address is left out then.
    """
    found: dict[str, float] = {}
    running = {asyncio.create_task(_measure(url, security, found), name=f"round trip to {url}") for url in addresses}
    try:
        limit_s = ANSWER_S
        while running:
            done, running = await asyncio.wait(running, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            if found:
                limit_s = OTHERS_S
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return found


async def _measure(url: str, security: Callable[[str], ssl.SSLContext | None], found: dict[str, float]) -> None:
    """Add the shortest round trip so far, in milliseconds, after each pong; add nothing where there is none."""
    # As for a connection: a ValueError is an address that no name server could be asked about.
    with (
        suppress(OSError, websockets.WebSocketException, TimeoutError, WaypostError, ValueError),
        cancellation.translated(lambda _: ConnectionAbortedError("broken off")),
    ):
        async with DirectConnect(
            f"{url.rstrip('/')}/v1/client",
            compression=None,
            ping_interval=None,
            close_timeout=0.5,
            open_timeout=ANSWER_S,
            ssl=security(url),
        ) as socket:
            for _ in range(PINGS):
                took_ms = await (await socket.ping()) * 1000
                found[url] = min(took_ms, found.get(url, took_ms))
