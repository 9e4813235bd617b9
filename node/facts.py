"""Facts on their way to the journal: in order, what comes meanwhile together, tried again until they are there."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from federation.ports import Journal
from proxy.effects import Attest
from waypost.errors import Unreachable

AGAIN_S = 0.2


class Facts:
    """The queue. Its length is bounded by who fills it: a node that has too much reads no more from its clients."""

    def __init__(self) -> None:
        self._waiting: deque[Attest] = deque()
        self._due = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, effect: Attest) -> None:
        self._waiting.append(effect)
        self._due.set()

    async def run(self, journal: Journal, wrote: Callable[[Unreachable | None], None]) -> None:
        """Write for ever; `wrote` is told of every try."""
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await self.write(journal)
            except Unreachable as error:
                wrote(error)
                await asyncio.sleep(AGAIN_S)
                self._due.set()
            else:
                wrote(None)

    async def write(self, journal: Journal) -> None:
        """Write what waits now, and answer it. Raises Unreachable."""
        taken = list(self._waiting)
        if not taken:
            return
        await journal.attest([fact for effect in taken for fact in effect.facts])
        for effect in taken:
            self._waiting.popleft()
            effect.then(None)
