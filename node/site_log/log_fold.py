"""The site log as a node folds it: in parts, between which others have their turn. The log's order stays as it is.

How much goes into a part is measured here; what it means is the engine's business, and the same in parts or at once.
One record whose expressions take long is evaluated before it is folded, an expression at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from federation.ports import Batch
from node.resources.loop_turns import in_turns
from proxy.engine import Engine
from waypost.limits import FOLD_SLICE_S, FOLD_TURN_S, LOG_BATCH, UNSTORED_BYTES
from waypost.records import Record, body_size

STORE_POLL_S = 0.01
UNINDEXED_S = 5e-6
"""What an alternative that no index knows takes for each notification, however small."""


class LogFolding:
    """Folds batches of the log.

    Args:
        fold: takes the next records, and returns how many of them it took.
        on_spent: told after that of the processor time, in seconds, that it took to evaluate and to fold them.
    """

    def __init__(self, engine: Engine, fold: Callable[[Batch], int], on_spent: Callable[[float], None]) -> None:
        self._engine = engine
        self._fold = fold
        self._on_spent = on_spent
        self._evaluated_s = 0.0
        """Processor time of the evaluation of the next record."""
        self._together = LOG_BATCH
        """Number of records that lately took no longer than a slice."""
        self._room_s = FOLD_SLICE_S
        """Seconds for the next turn."""

    async def fold(self, batch: Batch) -> None:
        """Fold all records of a batch, in order; return when all are folded. Others have turns of the event loop in
        between.

        It waits while the store is behind. The log has as much of the loop's time as all others together, if it needs
        that: however much they ask for, what is published goes on.
        """
        done = 0
        while done < len(batch):
            while self._is_store_behind():
                await asyncio.sleep(STORE_POLL_S)
            began_s = time.monotonic()
            while done < len(batch) and not self._is_store_behind():
                count = self._fitting(batch[done : done + self._together])
                if not count:
                    await self._evaluate(batch[done][1])
                    count = 1
                done += self._measured(batch[done : done + count])
                if time.monotonic() - began_s > self._room_s:
                    break
            ended_s = time.monotonic()
            await asyncio.sleep(0)
            self._room_s = min(FOLD_TURN_S, max(FOLD_SLICE_S, time.monotonic() - ended_s))

    def _is_store_behind(self) -> bool:
        """Tell whether much came that the store does not have; a write that fails ends that, too."""
        return self._engine.persister.store.unstored_bytes > UNSTORED_BYTES

    def _fitting(self, records: Batch) -> int:
        """Return how many of these go into one slice by estimate; 0: the first alone does not."""
        matcher, room_s = self._engine.sessions.matcher, FOLD_SLICE_S
        cost, each_s = matcher.spending.proxy.cost, matcher.unindexed * UNINDEXED_S
        if cost.work_ns / 1e9 + each_s < FOLD_SLICE_S / LOG_BATCH:
            return len(records)
        for count, (_, record) in enumerate(records):
            room_s -= each_s + cost.of(body_size(record)) / 1e9
            if room_s < 0:
                return count
        return len(records)

    def _measured(self, records: Batch) -> int:
        began = time.thread_time()
        taken = self._fold(records)
        spent_s = time.thread_time() - began
        self._on_spent(spent_s + self._evaluated_s)
        self._evaluated_s = 0.0
        if spent_s > FOLD_SLICE_S:
            self._together = max(1, int(len(records) * FOLD_SLICE_S / spent_s))
        elif len(records) >= self._together:
            self._together = min(LOG_BATCH, 2 * self._together)
        return taken

    async def _evaluate(self, record: Record) -> None:
        self._evaluated_s = await in_turns(self._engine.evaluate(record))
