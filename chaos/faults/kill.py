"""kill -9 of one proxy, and its start with the same port and the same data."""

from __future__ import annotations

import asyncio

from chaos.cluster import ProxyProcess


class Kill:
    """Kills and starts again one proxy."""

    def __init__(self, proxy: ProxyProcess) -> None:
        self._proxy = proxy

    async def inject(self) -> None:
        """Kill the process."""
        await asyncio.to_thread(self._proxy.kill)

    async def heal(self) -> None:
        """Start it; returns once it is ready."""
        await asyncio.to_thread(self._proxy.start)
