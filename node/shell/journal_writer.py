"""Writes to the journal what its queue says, when that says it (node/machines/journal_queue.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from federation.ports import Journal
from node.machines.journal_queue import Answer, Failed, JournalQueue, Put, Write, Written
from proxy.core.effects import Attest
from waypost.clock import NEVER, Clock
from waypost.errors import Unreachable


class JournalWriter:
    """The shell of the queue.

    Args:
        on_written: told of each effect whose facts the journal has, in order.
        on_tried: told after each try whether the journal took the facts: None, or why not.
    """

    def __init__(
        self, clock: Clock, on_written: Callable[[Attest], None], on_tried: Callable[[Unreachable | None], None]
    ) -> None:
        self.queue = JournalQueue()
        self._clock = clock
        self._on_written = on_written
        self._on_tried = on_tried
        self._changed = asyncio.Event()

    def put(self, attest: Attest) -> None:
        """Queue the facts of an effect, behind all before them; :meth:`run` writes them. Returns at once."""
        self.queue.step(Put(attest), self._clock.now_ms())
        self._changed.set()

    async def run(self, journal: Journal) -> None:
        """Write what is queued, for ever; a write that fails with Unreachable is tried again.

        Raises:
            WaypostError: as the journal raises any other error; the facts stay queued.
        """
        while True:
            await self._until_due()
            await self._write_next(journal)

    async def write_all(self, journal: Journal) -> None:
        """Write until nothing is queued, trying again as long as the journal does not answer. Not while :meth:`run`
        runs.

        Raises:
            WaypostError: as the journal raises any other error than Unreachable; the facts stay queued.
        """
        while self.queue:
            await self._until_due()
            await self._write_next(journal)

    async def _until_due(self) -> None:
        while (due := self.queue.next_deadline()) > (now_ms := self._clock.now_ms()):
            self._changed.clear()
            try:
                async with asyncio.timeout(None if due == NEVER else (due - now_ms) / 1000):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _write_next(self, journal: Journal) -> None:
        for effect in self.queue.tick(self._clock.now_ms()):
            assert isinstance(effect, Write)
            try:
                if effect.facts:
                    await journal.attest(effect.facts)
            except BaseException as error:
                # Also one that was cut short: nobody knows whether the journal has them, and they are written again.
                self.queue.step(Failed(), self._clock.now_ms())
                if not isinstance(error, Unreachable):
                    raise
                self._on_tried(error)
                return
            self._answer()

    def _answer(self) -> None:
        for effect in self.queue.step(Written(), self._clock.now_ms()):
            assert isinstance(effect, Answer)
            for attest in effect.written:
                self._on_written(attest)
        self._on_tried(None)
