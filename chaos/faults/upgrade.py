"""An upgrade, as an operator does it: drain one proxy, end it in good order, start it again, let sessions come back."""

from __future__ import annotations

import asyncio

from chaos.cluster import ProxyProcess

RATE = 100.0
POLL_S = 0.05


class Upgrade:
    """Upgrades one proxy; another one, the witness, is told to drain it, and says what is left there."""

    def __init__(self, proxy: ProxyProcess, witness: ProxyProcess) -> None:
        self._proxy, self._witness = proxy, witness

    async def inject(self) -> None:
        """Drain the proxy, wait without a limit until no session is left there, and end it in good order.

        Returns when the process has ended. Raises Unreachable: the witness does not answer.
        """
        await self._drain(RATE)
        while await asyncio.to_thread(self._left):
            await asyncio.sleep(POLL_S)
        await asyncio.to_thread(self._proxy.stop)

    async def heal(self) -> None:
        """Start the proxy, and end its drain; return once it is ready for sessions again.

        Raises:
            Unreachable: the proxy does not become ready, or the witness does not answer.
        """
        await asyncio.to_thread(self._proxy.process.start)
        await self._drain(None)
        await asyncio.to_thread(self._proxy.start)

    async def _drain(self, rate: float | None) -> None:
        await asyncio.to_thread(self._witness.request, "/v1/drains", {"proxy": self._proxy.name, "rate": rate})

    def _left(self) -> int:
        rows = self._witness.request("/v1/drains")["drains"]
        return next((int(row["left"]) for row in rows if row["proxy"] == self._proxy.name), -1)
