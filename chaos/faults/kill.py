"""kill -9 of one proxy, and its start with the same port and the same data."""

from __future__ import annotations

import asyncio

from chaos.cluster import ProxyProcess


class Kill:
    """Kills and starts again one proxy."""

    def __init__(self, proxy: ProxyProcess) -> None:
        self._proxy = proxy

    async def inject(self) -> None:
        """Kill the proxy's process (SIGKILL); return when the process is gone."""
        await asyncio.to_thread(self._proxy.kill)

    async def heal(self) -> None:
        """Start the proxy again; return once it is ready. Raises Unreachable: it does not become ready."""
        await asyncio.to_thread(self._proxy.start)
