"""The site log on Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing

from federation.credentials import Credentials
from federation.interruption import Interruption
from federation.kafka.handle import QUESTION_DEADLINE_S, Handle
from federation.kafka.log_reader import Message
from federation.kafka.replication import Replication
from federation.kafka.topic import AS_RECOMMENDED, KEEP_ALL
from federation.ports import Batch
from waypost.errors import LogReplaced
from waypost.limits import LOG_BATCH
from waypost.records import MISSING, Record, decode_record, encode_record


class KafkaSiteLog(Handle):
    """The site log in `topic`."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        replication: Replication = AS_RECOMMENDED,
        credentials: Credentials | None = None,
        warn: Callable[[str], None] = lambda warning: None,
    ) -> None:
        super().__init__(bootstrap, topic, KEEP_ALL, replication, credentials, warn, dense=True)
        self._interruption = Interruption()
        self._reader.interruption = self._interruption

    def _out_of_reach(self) -> None:
        self._interruption.interrupt()

    async def _may_send(self) -> None:
        await self._interruption.wait_resumed()

    async def append(self, records: Sequence[Record]) -> list[int]:
        """Append records in this order; return their offsets once the records survive a crash
        (:meth:`federation.ports.SiteLog.append`). Without records nothing is done. The append fails with every earlier
        one that fails.

        It waits while this handle is interrupted, and fails if that takes longer than APPEND_DEADLINE_S seconds, the
        time for a batch.

        Raises:
            LogReplaced: the log assigned offsets that this handle had seen in use, so the log has lost its end; the
                records are in it.
            LogUnavailable: it is not known whether the records were appended; or this handle is closed.
        """
        taken_below = self._interruption.applied_below
        offsets = await self._appends.append([(None, encode_record(record)) for record in records])
        if offsets and offsets[0] < taken_below:
            raise LogReplaced(f"the log appends at {offsets[0]}, and was read up to {taken_below}", end=offsets[0])
        self._interruption.saw(offsets[-1] + 1 if offsets else 0)
        return offsets

    async def tail(self, offset: int) -> AsyncIterator[Batch]:
        """Yield every record from `offset` on, for ever, in batches that are not empty, also after an outage; nothing
        while this handle is interrupted (:meth:`federation.ports.SiteLog.tail`).

        Raises:
            HistoryTruncated: `offset` is older than the first record kept.
            LogReplaced: the log ends before `offset`, or has lost its end.
            LogUnavailable: this handle was closed.
        """
        self._interruption.saw(offset)
        async with aclosing(self._reader.follow(offset)) as following:
            async for messages, position in following:
                if position > offset:
                    for batch in _batches(messages, offset, position):
                        yield batch
                    offset = position
                    # Not before: an append that is under way may be answered after its record was read.
                    self._interruption.saw(position)

    async def read(self, offset: int, limit: int) -> Batch:
        """Return up to `limit` records from `offset` on, with their offsets, ascending; empty: the log has none yet
        (:meth:`federation.ports.SiteLog.read`).

        Those that are damaged or missing are :class:`waypost.records.Damaged`; where records are missing there may be
        more than `limit`.

        Raises:
            HistoryTruncated: `offset` is older than the first record kept.
            LogUnavailable: the storage does not answer, or this handle is closed.
        """
        messages, position = await self._reader.read_to(offset, limit)
        return next(iter(_batches(messages, offset, position)), [])

    async def first_offset(self) -> int:
        """Return the offset of the first record kept; if none is, that of the next one. Raises LogUnavailable
        (:meth:`federation.ports.SiteLog.first_offset`).
        """
        return await self._reader.first_offset()

    async def end_offset(self) -> int:
        """Return the end of the log: the offset that the next record will have. Raises LogUnavailable
        (:meth:`federation.ports.SiteLog.end_offset`).
        """
        return await self._reader.end_offset()

    @property
    def seen_below(self) -> int:
        """The offset below which every record was yielded by a tail of this handle, lies below the offset at which one
        of its tails began, or had its append answered here (:attr:`federation.ports.SiteLog.seen_below`).
        """
        return self._interruption.seen_below

    async def interrupted(self) -> None:
        """Wait until the broker was out of reach, and is connected again: the log may have lost its end meanwhile
        (handover rule 27, :meth:`federation.ports.SiteLog.interrupted`).

        Each interruption is reported once. Until :meth:`resume`, appends of this handle wait, and its tails yield
        nothing.
        """
        await self._interruption.wait_interrupted()
        # An end that was found without a connection may be lost before there is one, and nobody would notice.
        await self._appends.connected()

    def resume(self) -> None:
        """End an interruption, once the log is known to have everything that was read of it: appends and tails go on.
        No effect if another interruption has begun (:meth:`federation.ports.SiteLog.resume`).
        """
        self._interruption.resume()

    async def close(self) -> None:
        """Close this handle; calls under way, and tails, may raise LogUnavailable. The log stays
        (:meth:`federation.ports.SiteLog.close`).
        """
        self._interruption.close()
        await super().close()

    async def truncate(self, before: int) -> None:
        """Remove the records below offset `before` for good, as retention does; the end of the log stays.

        Args:
            before: an offset that is not above the end of the log.

        Raises:
            LogUnavailable: Kafka does not answer within QUESTION_DEADLINE_S seconds; the records may have been removed.
            OutOfRange: `before` is above the end of the log.
        """
        with self._topic.translated():
            async with asyncio.timeout(QUESTION_DEADLINE_S):
                await self._topic.delete_below(before)


def _batches(messages: Sequence[Message], offset: int, position: int) -> Iterator[Batch]:
    """Yield records from `offset` up to `position`, with those missing: nothing of ours leaves holes in a topic."""
    batch: Batch = []
    for message in messages:
        for missing in range(offset, message.offset):
            batch.append((missing, MISSING))
            if len(batch) >= LOG_BATCH:
                yield batch
                batch = []
        batch.append((message.offset, decode_record(message.value)))
        offset = message.offset + 1
    batch += [(missing, MISSING) for missing in range(offset, position)]
    if batch:
        yield batch
