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
from waypost.limits import FOLD_SLICE_S, LOG_BATCH, UNSTORED_BYTES
from waypost.records import Record, body_size

STORE_POLL_S = 0.01
UNINDEXED_S = 5e-6
"""What an alternative that no index knows takes for each notification, however small."""


class LogFolding:
    """Folds batches of the log.

    Args:
        fold: takes the next records, and returns how many of them it took.
    """

    def __init__(self, engine: Engine, fold: Callable[[Batch], int]) -> None:
        self._engine = engine
        self._fold = fold
        self._together = LOG_BATCH
        """So many records took no longer than a slice lately."""

    async def fold(self, batch: Batch) -> None:
        """Fold these records, and return when all are."""
        done = 0
        while done < len(batch):
            await self._store_has_room()
            count = self._fitting(batch[done : done + self._together])
            if not count:
                await self._evaluate(batch[done][1])
                count = 1
            done += self._measured(batch[done : done + count])
            await asyncio.sleep(0)

    async def _store_has_room(self) -> None:
        """Wait while much came that the store does not have: a write that fails ends the wait, too."""
        while self._engine.persister.unstored_bytes > UNSTORED_BYTES:
            await asyncio.sleep(STORE_POLL_S)

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
        if spent_s > FOLD_SLICE_S:
            self._together = max(1, int(len(records) * FOLD_SLICE_S / spent_s))
        elif len(records) >= self._together:
            self._together = min(LOG_BATCH, 2 * self._together)
        return taken

    async def _evaluate(self, record: Record) -> None:
        await in_turns(self._engine.evaluate(record))
