"""A cut: a toxiproxy in front of something is switched off. Its connections break, new ones are refused."""

from __future__ import annotations

import asyncio
from typing import Any


class Cut:
    """Cuts one front, as `ToxiproxyServer.front` gives it."""

    def __init__(self, front: Any) -> None:
        self._front = front

    async def inject(self) -> None:
        """Cut all connections, and let no new one in."""
        await asyncio.to_thread(self._front.disable)

    async def heal(self) -> None:
        """Let connections in again."""
        await asyncio.to_thread(self._front.enable)
