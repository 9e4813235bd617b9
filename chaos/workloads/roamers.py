"""Roaming: an audience whose clients wander between proxies by a seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence

from chaos.workloads.audience import TIMEOUT_S, Audience


class Roaming(Audience):
    """One run.

    Args:
        sites, seed, clients, rate: as of :class:`Audience`.
        pace_s: the time, about, that a client stays at one proxy.
    """

    def __init__(
        self,
        sites: Mapping[str, Sequence[str]],
        seed: int,
        *,
        clients: int = 6,
        rate: float = 60,
        pace_s: float = 0.6,
    ) -> None:
        super().__init__(sites, seed, clients=clients, rate=rate)
        self._pace_s = pace_s

    def start(self) -> None:
        """Begin to publish at every site and to roam, in tasks that :meth:`check` ends; call :meth:`setup` before."""
        super().start()
        for client in self.clients:
            rng = random.Random(f"{self._seed}/{client.name}")
            self.go(client.roam(self._urls, rng, self._stop, self._pace_s))

    @property
    def moves(self) -> int:
        """The number of moves of all clients to another proxy so far."""
        return sum(len(client.moves_ms) for client in self.clients)

    async def until_moving(self) -> None:
        """Wait until a client is on its way to another proxy: its session is being handed over, or about to be.

        Raises:
            Exception: the failure of a producer or another task (:meth:`fail`).
            TimeoutError: no client moved for TIMEOUT_S seconds.
        """
        async with asyncio.timeout(TIMEOUT_S):
            while not any(client.moving for client in self.clients):
                self.fail()
                await asyncio.sleep(0.001)

    async def goes_on(self) -> None:
        """Wait for 4 more moves and 100 more deliveries, which show that the run goes on.

        Raises:
            Exception: the failure of a producer or another task (:meth:`fail`).
            TimeoutError: it took longer than TIMEOUT_S seconds.
        """
        moves, deliveries = self.moves + 4, self.delivered_count + 100
        async with asyncio.timeout(TIMEOUT_S):
            while self.moves < moves or self.delivered_count < deliveries:
                self.fail()
                await asyncio.sleep(0.02)
