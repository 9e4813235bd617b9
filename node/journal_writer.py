"""Facts on their way to the journal: in order, what comes meanwhile together, tried again until they are there.

A fact that somebody waits for goes at once, with all before it. One that nobody waits for may wait a moment for others:
a handover has a dozen of them, and every request to the journal costs the proxy time while it moves a session.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from federation.ports import Journal
from proxy.core.effects import Attest, ignore_result
from waypost.errors import Unreachable
from waypost.limits import FACTS_BYTES

AGAIN_S = 0.2
LINGER_S = 0.02
FACT_BYTES, COORDINATE_BYTES = 300, 20


class JournalWriter:
    """The queue. Its length is bounded by who fills it: a node that has too much reads no more from its clients."""

    def __init__(self) -> None:
        self._waiting: deque[Attest] = deque()
        self._due = asyncio.Event()
        self._lingering = False
        self.bytes = 0
        """Of those that wait, about."""
        self.written = 0
        """Effects whose facts the journal has."""

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, effect: Attest) -> None:
        self._waiting.append(effect)
        self.bytes += _size(effect)
        if effect.on_done is not ignore_result:
            self._due.set()
        elif not self._lingering:
            self._lingering = True
            asyncio.get_running_loop().call_later(LINGER_S, self._has_lingered)

    def _has_lingered(self) -> None:
        self._lingering = False
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
        """Write what waits now, so many bytes at a time, and answer it. Raises Unreachable."""
        for _ in range(len(self._waiting)):
            taken, size = [], 0
            for effect in self._waiting:
                taken.append(effect)
                size += _size(effect)
                if size > FACTS_BYTES // 8:
                    break
            if not taken:
                return
            if facts := [fact for effect in taken for fact in effect.facts]:
                await journal.attest(facts)
            self.written += len(taken)
            self.bytes -= size
            for effect in taken:
                self._waiting.popleft()
                effect.on_done(None)


def _size(effect: Attest) -> int:
    """Return about how many bytes these facts are."""
    return sum(FACT_BYTES + COORDINATE_BYTES * (len(fact.offsets) + len(fact.digests)) for fact in effect.facts)
