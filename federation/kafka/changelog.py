"""The changelog on Kafka: a compacted topic, and a table that follows it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress

from federation.credentials import Credentials
from federation.kafka.checkpoint_table import CheckpointTable, checkpoint_key
from federation.kafka.handle import QUESTION_DEADLINE_S, Handle
from federation.kafka.log_reader import Message
from federation.kafka.ordered_appends import Entry
from federation.kafka.replication import Replication
from federation.kafka.shared_question import SharedQuestion
from federation.kafka.snapshot_chunks import SnapshotChunks
from federation.kafka.topic import AS_RECOMMENDED, KEEP_LAST_OF_KEY
from federation.ports import SiteSnapshot
from federation.versioned_condition import VersionedCondition
from waypost.checkpoint import Checkpoint, encode_checkpoint
from waypost.errors import BadRecord, HistoryTruncated, Internal, LogReplaced, LogUnavailable
from waypost.identity import SessionId
from waypost.limits import LOG_BATCH_BYTES, LOG_END_SURE_S

POLL_S = 0.5
PART_ROOM = 1024
"""Bytes of a record beside the part of a site's state that it carries."""

log = logging.getLogger(__name__)


class KafkaChangelog(Handle):
    """Checkpoints in the compacted `topic`, and a table of them in memory that follows it.

    Compaction keeps the last record of a key, and a late write of an old owner must not be the one that is
    kept (handover rule 19). So the key is session|epoch, with a suffix for a first checkpoint; an owner who wrote a
    higher epoch deletes the lower ones.
    A key without an epoch is that of a part of the site's state.

    Args:
        make: make the topic if it is missing. Another site's must be there: an empty one in its place would say that
            no session was ever kept there (P5).
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        replication: Replication = AS_RECOMMENDED,
        credentials: Credentials | None = None,
        warn: Callable[[str], None] = lambda warning: None,
        make: bool = True,
    ) -> None:
        super().__init__(bootstrap, topic, KEEP_LAST_OF_KEY, replication, credentials, warn, make=make)
        self._end = SharedQuestion(self._reader.end_offset)
        self._table = CheckpointTable()
        self._site = SnapshotChunks(LOG_BATCH_BYTES - PART_ROOM)
        self._position = 0
        self._seen_below = 0
        """Below this offset everything was read, or its append was answered."""
        self._is_read = False
        """All was read that there was when it began."""
        self._lost = asyncio.Event()
        self._changed = VersionedCondition()
        self._following: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._is_closed = False
        """Closing ends the sender, which says that the log is out of reach: nothing is looked for then."""

    async def start(self) -> None:
        """Make the topic if it is missing and to be made, connect, and begin to follow it; call it before any other
        method. After a failure this handle is closed (:meth:`federation.ports.Changelog.start`).

        Raises:
            LogUnavailable: no broker has answered within 5 s, the cluster has too few brokers, or a topic that is not
                to be made is missing or has another form than it must have.
            BadConfiguration: a topic that may be made has another form, or fewer replicas, than it must have; or Kafka
                refuses its name.
        """
        await super().start()
        self._following = asyncio.create_task(self._follow())

    async def put(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint; return once it survives a crash (:meth:`federation.ports.Changelog.put`). A first
        checkpoint (`is_first`) whose rank is there already is not written again, and is no error. The checkpoints of
        the session's lower epochs are removed.

        Raises:
            CheckpointOutdated: there is one that counts more, or an owner's of the same rank, as far as this handle has
                read (handover rule 19); nothing was written.
            LogUnavailable: it is not known whether the checkpoint was written.
            Internal: :meth:`start` was not called.
        """
        if checkpoint.is_first or not self._is_read:
            await self._read_up()
            self._is_read = True
        if self._table.is_news(checkpoint):
            await self._append([(checkpoint_key(checkpoint), encode_checkpoint(checkpoint))])
            await self._append([(key, None) for key in self._table.outdated_by(checkpoint)])

    async def _append(self, entries: Sequence[Entry]) -> None:
        # As of now: what is appended may be read before it is answered.
        seen_below = self._seen_below
        offsets = await self._appends.append(entries)
        if offsets and offsets[0] < seen_below:
            self._has_lost()
        self._seen_below = max(self._seen_below, offsets[-1] + 1 if offsets else 0)

    def _out_of_reach(self) -> None:
        """It may have lost its end."""
        self._reader.recheck()
        if not self._is_closed and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._check_lost())

    async def _check_lost(self) -> None:
        short = 0
        while short < 2:
            # As known before the answer: the topic grows while that is under way.
            seen_below = self._seen_below
            try:
                short = short + 1 if await self._reader.end_offset() < seen_below else 0
                if not short:
                    return
            except LogUnavailable:
                pass
            # A broker that has just begun may not know its own end yet.
            await asyncio.sleep(LOG_END_SURE_S)
        self._has_lost()

    def _has_lost(self) -> None:
        self._seen_below = 0
        self._is_read = False
        self._lost.set()

    async def lost(self) -> None:
        """Wait until this handle finds that a part of what was written is not there any more; each loss is reported
        once. Proxies then write the checkpoints that they have again (:meth:`federation.ports.Changelog.lost`).
        """
        await self._lost.wait()
        self._lost.clear()

    async def latest(self, session: SessionId) -> tuple[Checkpoint, ...]:
        """Return the checkpoints of the session that count, all that were acknowledged before the call included
        (:meth:`federation.ports.Changelog.latest`).

        Returns:
            The highest one by rank that an owner wrote, if there is one; behind it a first one (`is_first`), if it is
            higher. Empty: there is no checkpoint of the session.

        Raises:
            BadRecord: one that counts is damaged.
            LogUnavailable: the storage does not answer.
        """
        await self._read_up()
        return self._table.latest(session)

    async def forget(self, deleted: Mapping[SessionId, int]) -> None:
        """Remove the checkpoints of deleted sessions, each up to the given epoch, inclusive; return once that survives
        a crash. None there is no error. Raises LogUnavailable: any of them may have been removed
        (:meth:`federation.ports.Changelog.forget`).
        """
        await self._read_up()
        keys = [key for session, epoch in deleted.items() for key in self._table.keys_of(session, epoch)]
        await self._append([(key, None) for key in keys])

    async def put_site(self, snapshot: SiteSnapshot) -> None:
        """Write a snapshot of the site's state; one whose rank is not higher than that of the snapshot there changes
        nothing. Raises LogUnavailable: the snapshot may have been written all the same
        (:meth:`federation.ports.Changelog.put_site`).
        """
        await self._read_up()
        for part in self._site.cut(snapshot):
            await self._append([part])

    async def latest_site(self) -> SiteSnapshot | None:
        """Return the snapshot of the site's state with the highest rank, of those whose parts are all there and can be
        read; None: there is none. Raises LogUnavailable (:meth:`federation.ports.Changelog.latest_site`).
        """
        await self._read_up()
        return self._site.latest

    async def _read_up(self) -> None:
        with self._topic.translated():
            end = await self._end.ask()
            async with asyncio.timeout(QUESTION_DEADLINE_S):
                while self._position < end:
                    self._check_following()
                    await self._changed.wait(self._changed.version, POLL_S)

    def _check_following(self) -> None:
        """Raises LogUnavailable: the table was not kept any more. It is from now on, for the next one who asks."""
        following = self._following
        if following is None:
            raise Internal("the changelog has not been started")
        if not following.done():
            return
        self._following = asyncio.create_task(self._follow())
        why = "it was cancelled" if following.cancelled() else repr(following.exception())
        raise LogUnavailable(f"topic {self._topic.name}: what reads the changelog has ended: {why}")

    async def close(self) -> None:
        """Close this handle; a call under way, or a later one, may raise LogUnavailable. What was written stays
        (:meth:`federation.ports.Changelog.close`).
        """
        self._is_closed = True
        for task in (self._following, self._looking):
            if task is not None:
                task.cancel()
                await asyncio.wait((task,))
        await self._end.close()
        await super().close()

    async def _follow(self) -> None:
        while True:
            try:
                async with aclosing(self._reader.follow(self._position)) as following:
                    async for messages, position in following:
                        for message in messages:
                            self._take(message)
                        self._position = position
                        self._seen_below = max(self._seen_below, self._position)
                        self._changed.notify()
            except HistoryTruncated:
                pass
            except LogReplaced:
                # The table of the former topic hides what this one lacks.
                self._table, self._site = CheckpointTable(), SnapshotChunks(LOG_BATCH_BYTES - PART_ROOM)
                # At once: whoever asks meanwhile waits until the table has what there is.
                self._position = 0
                self._has_lost()
            with suppress(LogUnavailable):
                self._position = await self._reader.first_offset()

    def _take(self, message: Message) -> None:
        """Take a record. A key that was damaged is that of nothing, or of what its value names."""
        key = message.key or b""
        if b"|" in key:
            try:
                self._table.apply(key, message.value)
            except ValueError as error:
                log.warning("the key of record %s of the changelog is damaged: %s", message.offset, error)
            return
        with suppress(BadRecord):
            # Of what cannot be read there is an older one, or nothing: the log alone, as before the first snapshot.
            self._site.add(key, message.value)
