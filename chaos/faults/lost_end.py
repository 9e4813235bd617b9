"""A broker that was killed and comes back without the end of a log: what it had not synced went with the machine."""

from __future__ import annotations

import asyncio
import os

from chaos.servers.kafka import KafkaServer


class LostEnd:
    """Kills a broker, cuts bytes off the end of one topic's last segment, and starts it again.

    Args:
        lost: how many bytes go.
    """

    def __init__(self, broker: KafkaServer, topic: str, lost: int) -> None:
        self._broker = broker
        self._folder = broker.data / "store" / f"{topic}-0"
        self._lost = lost

    async def inject(self) -> None:
        """Kill the broker, and cut bytes, as many as the constructor's `lost`, off the end of the last segment of
        partition 0 of the topic; no more than that segment has.

        The broker stays down until :meth:`heal`.

        Raises:
            ValueError: the broker has no such topic; the broker is down.
        """
        await asyncio.to_thread(self._broker.kill)
        segment = max(self._folder.glob("*.log"))
        size = segment.stat().st_size
        os.truncate(segment, max(0, size - self._lost))

    async def heal(self) -> None:
        """Start the broker again; return once it is ready. Raises Unreachable: it does not become ready."""
        await asyncio.to_thread(self._broker.start)
