"""A bad line: a toxiproxy that is slow, narrow, tears what passes into small pieces, and breaks off again and again."""

from __future__ import annotations

import asyncio
from typing import Any

TOXICS: dict[str, dict[str, int]] = {
    "latency": {"latency": 30, "jitter": 20},
    "bandwidth": {"rate": 400},
    "slicer": {"average_size": 200, "size_variation": 150, "delay": 50},
    "limit_data": {"bytes": 150_000},
}
"""toxiproxy's own words: milliseconds, KB a second, bytes and microseconds, bytes until a connection is closed."""


class BadLine:
    """Makes one front bad, as `ToxiproxyServer.front` gives it, in both directions."""

    def __init__(self, front: Any) -> None:
        self._front = front

    async def inject(self) -> None:
        """Make the line slow, narrow and jittery, both ways; its connections break again and again (TOXICS).

        Call :meth:`heal` before it is injected again.

        Raises:
            ProxyExists: of the client library; the line is bad already.
        """
        for stream in ("upstream", "downstream"):
            for kind, attributes in TOXICS.items():
                await asyncio.to_thread(self._front.add_toxic, type=kind, stream=stream, attributes=attributes)

    async def heal(self) -> None:
        """Make the line good again; to be called once after each :meth:`inject`.

        Raises:
            NotFound: of the client library; the line is not bad.
        """
        for stream in ("upstream", "downstream"):
            for kind in TOXICS:
                await asyncio.to_thread(self._front.destroy_toxic, f"{kind}_{stream}")
