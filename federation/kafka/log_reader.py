"""A reader of a remote log: it answers single reads, and follows the log through outages of the server."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Protocol

from federation.interruption import Interruption
from waypost.checksum import is_whole
from waypost.errors import HistoryTruncated, LogReplaced, LogUnavailable, Unreachable
from waypost.limits import LOG_BATCH, LOG_END_SURE_S, LOG_READ_BYTES

QUIET_S = 5.0
"""After so long without a record a follower checks the end of the log."""


class Message(Protocol):
    """A message of a topic, as aiokafka's consumer returns it.

    Args:
        offset: its offset in the partition.
        key: in a changelog, the key by which compaction keeps the last record; in a site log there is none.
        value: the encoded record.
    """

    offset: int
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class _Last:
    """The message that was yielded last, by which another log is noticed."""

    offset: int
    checksum: int
    whole: bool
    """Whether it is sealed, and not damaged."""

    @classmethod
    def of(cls, message: Message) -> _Last:
        value = message.value or b""
        return cls(message.offset, zlib.crc32(value), is_whole(value))


class OutOfRange(Exception):
    """The log has no such offset: it is removed already, or not there yet."""


class Corrupt(Exception):
    """The next message is not what was written: the library's own checksum of it is wrong."""


class Consumer(Protocol):
    """A connection with a position in the log. All methods raise LogUnavailable, `fetch` OutOfRange and Corrupt as
    well.
    """

    async def fetch(self, limit: int, wait_s: float) -> Sequence[Message]:
        """Return the next messages, `limit` at most, and advance behind them; empty: none came within `wait_s` seconds.

        Raises:
            LogUnavailable: the server does not answer.
            OutOfRange: the log has no message at the position: it is removed already, or not there yet.
            Corrupt: the library's own checksum of the next message is wrong.
        """
        ...

    async def position(self) -> int:
        """Return the offset of the next message to be fetched. Raises LogUnavailable."""
        ...

    def seek(self, offset: int) -> None:
        """Set the offset of the next message to be fetched; nothing is sent before that."""
        ...

    async def first_offset(self) -> int:
        """Return the offset of the first message kept; the position stays. Raises LogUnavailable."""
        ...

    async def end_offset(self) -> int:
        """Return the offset that the next message will have; the position stays. Raises LogUnavailable."""
        ...

    async def stop(self) -> None:
        """Close the connection, for good; no other call follows."""
        ...


class LogReader:
    """A reader of one log. It connects at the first read, or at :meth:`start`; call :meth:`close` in the end. Calls may
    come at the same time, and share one consumer.

    Args:
        connect: called with an offset (None: any position) and whether checksums are compared, returns a consumer at
            that offset. Where they are not, the consumer returns corrupt messages too, as well as they can be read.
            Raises LogUnavailable.
        deadline_s: of a single read, in seconds.
        backoff_s: the first and the longest pause between attempts to connect, in seconds.
        dense: every offset has a message. The reader then returns only messages whose offsets follow each other. No
            checksum covers an offset, so messages are fetched again from the first offset that does not fit.
        name: of the log, for error messages.
    """

    def __init__(
        self,
        connect: Callable[[int | None, bool], Awaitable[Consumer]],
        *,
        deadline_s: float,
        backoff_s: tuple[float, float],
        dense: bool = False,
        name: str = "the log",
    ) -> None:
        self._dense = dense
        self._name = name
        self._connect = connect
        self._deadline_s = deadline_s
        self._backoff_s = backoff_s
        self._consumer: Consumer | None = None
        self._position = -1
        self._closed = False
        self._must_recheck = False
        self.interruption = Interruption()
        """While it is interrupted, a follower yields nothing, and fetches again what it had fetched."""
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        """Connect now and not at the first read. Raises LogUnavailable."""
        self._consumer = await self._connect(None, True)

    async def close(self) -> None:
        """Close this reader; a read under way is waited for. Followers get LogUnavailable after the messages that they
        are just fetching, within some QUIET_S seconds and deadlines.
        """
        self._closed = True
        self.interruption.close()
        async with self._lock:
            await self._drop()

    def recheck(self) -> None:
        """Have :meth:`follow` read the message that it yielded last again before it yields another one, because the log
        may have lost its end; it raises LogReplaced if another message is there. The call itself only sets a mark.

        The mark counts for one iteration, the first that fetches after the call; others do not read again. One that has
        yielded nothing yet has nothing to compare.
        """
        self._must_recheck = True

    async def first_offset(self) -> int:
        """Return the offset of the first message kept. Raises LogUnavailable."""
        async with self._lend_consumer() as consumer:
            return await consumer.first_offset()

    async def end_offset(self) -> int:
        """Return the offset that the next message will have. Raises LogUnavailable."""
        async with self._lend_consumer() as consumer:
            return await consumer.end_offset()

    async def read(self, offset: int, limit: int) -> list[Message]:
        """Return up to `limit` messages that the log has now, from `offset` on; empty: none, or the next ones cannot be
        read.

        Raises:
            HistoryTruncated: `offset` is older than the first message kept.
            LogUnavailable: no answer came in time, or this reader is closed.
        """
        return (await self.read_to(offset, limit))[0]

    async def read_to(self, offset: int, limit: int) -> tuple[list[Message], int]:
        """Return up to `limit` messages that the log has now, from `offset` on, and the offset from which to read on.

        Offsets below the latter that no message has are holes, or cannot be read. If it is `offset` itself, the log has
        no more now.

        Raises:
            HistoryTruncated: `offset` is older than the first message kept.
            LogUnavailable: no answer came in time, the log changes while it is read, or this reader is closed.
        """
        try:
            try:
                async with self._lend_consumer() as consumer:
                    messages = await self._read(consumer, offset, limit)
                    if not messages:
                        return [], offset
                    believed, position = await self._believed(consumer, messages, offset, messages[-1].offset + 1)
                    if position != self._position:
                        self._position = -1
                    return believed, position
            except Corrupt:
                return await self._read_corrupt(offset, limit)
        except OutOfRange:
            await self._check_history(offset)
            raise LogUnavailable("the log changes while it is read") from None

    async def follow(self, offset: int) -> AsyncGenerator[tuple[Sequence[Message], int], None]:
        """Yield messages from `offset` on, each time with the offset from which the next ones come, for ever.

        An empty list comes when there was no message for QUIET_S seconds, or none that can be read. Nothing comes while
        :attr:`interruption` is in force. After every reconnect the message yielded last is read again and compared: a
        log that has lost its end, and grown again, has another one there.

        Raises:
            HistoryTruncated: `offset` is older than the first message kept.
            LogReplaced: the log ends before `offset`, or the last message that was yielded is another one now.
            LogUnavailable: this reader was closed.
        """
        pause_s, longest_s = self._backoff_s
        last: _Last | None = None
        while not self._closed:
            try:
                await self.interruption.wait_resumed()
                async with AsyncExitStack() as stack:
                    # The comparison that was asked for follows, also if nothing can be fetched then.
                    self._must_recheck = False
                    if last is not None:
                        await self._compare(last)
                    consumer = await self._connect(offset, True)
                    stack.push_async_callback(consumer.stop)
                    while not self._closed:
                        messages = await self._next(consumer)
                        if self.interruption.is_interrupted or self._must_recheck:
                            self._must_recheck = False
                            raise LogUnavailable("it was out of reach")
                        messages, position = await self._believed(consumer, messages, offset, await consumer.position())
                        if position != await consumer.position():
                            consumer.seek(position)
                            await asyncio.sleep(LOG_END_SURE_S if position == offset else 0)
                        offset = position
                        last = _Last.of(messages[-1]) if messages else last
                        self.interruption.yielded_below = max(self.interruption.yielded_below, offset)
                        pause_s = self._backoff_s[0]
                        yield messages, offset
            except OutOfRange:
                await self._check_unread(offset)
            except Corrupt:
                passed, position = await self._passed(offset)
                # After an interruption nothing is yielded before the log was compared (rule 27).
                if position > offset and not (self.interruption.is_interrupted or self._must_recheck):
                    offset = position
                    last = _Last.of(passed[-1]) if passed else last
                    self.interruption.yielded_below = max(self.interruption.yielded_below, offset)
                    yield passed, offset
                    continue
            except LogReplaced:
                raise
            except (Unreachable, TimeoutError):
                pass
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, longest_s)
        raise LogUnavailable("this handle of the log is closed")

    async def _check_unread(self, offset: int) -> None:
        """Find out why the log has nothing at an offset; what does not answer is asked again by the caller's next try.

        Raises:
            HistoryTruncated: the offset is older than the first message kept.
            LogReplaced: the log ends before it.
        """
        try:
            await self._check_position(offset)
        except LogReplaced:
            raise
        except (OutOfRange, Unreachable, TimeoutError):
            pass

    async def _passed(self, offset: int) -> tuple[list[Message], int]:
        """Return what can be read of corrupt messages from `offset` on, and the offset behind them; `offset` itself if
        nothing can be read now.
        """
        try:
            return await self._read_corrupt(offset, LOG_BATCH)
        except LogReplaced:
            raise
        except (OutOfRange, Unreachable, TimeoutError):
            return [], offset

    async def _believed(
        self, consumer: Consumer, messages: Sequence[Message], offset: int, read_offset: int
    ) -> tuple[list[Message], int]:
        """Return the messages that have the expected offsets, and the offset behind them.

        Nothing behind a hole is accepted: its offset is skipped, up to the end of the log. A message with an offset
        beyond the end is met again and again until the server looks for offsets behind it.
        """
        expected = range(offset, offset + len(messages))
        if not self._dense or (read_offset == expected.stop and all(map(_stands, messages, expected))):
            return list(messages), read_offset
        believed = [
            message for message, _ in takewhile(lambda pair: _stands(*pair), zip(messages, expected, strict=True))
        ]
        if believed:
            return believed, offset + len(believed)
        end = await consumer.end_offset()
        after = messages[0].offset + 1 if messages else read_offset
        return [], max(offset, after if after <= end else min(offset + 1, end))

    async def _read_corrupt(self, offset: int, limit: int) -> tuple[list[Message], int]:
        """Read corrupt messages as well as possible: each has a checksum of its own.

        Unless their offsets follow each other - in a compacted topic: ascend -, none of them may be right: then only
        the first counts, as damaged.
        """
        consumer = await self._connect(offset, False)
        try:
            messages = list(await consumer.fetch(limit, self._deadline_s))
            if not messages:
                raise LogUnavailable(f"no answer from {self._name} within {self._deadline_s:g} s")
        except Corrupt:
            messages = []
        finally:
            await consumer.stop()
        offsets = [message.offset for message in messages]
        follow = offsets == [*range(offset, offset + len(offsets))]
        ascend = not self._dense and offsets == sorted({*offsets}) and min(offsets, default=offset) >= offset
        if not messages or not (follow or ascend):
            return [], offset + 1
        return messages, offsets[-1] + 1

    async def _compare(self, last: _Last) -> None:
        """Raise LogReplaced if the log does not have the message that was read last, or has another one in its
        place.
        """
        if last.offset < await self.first_offset():
            return
        await self._check_position(last.offset + 1)
        found = await self.read(last.offset, 1)
        if not found or found[0].offset != last.offset:
            return
        now = _Last.of(found[0])
        # Damage at rest is no other log.
        if now != last and now.whole >= last.whole:
            raise LogReplaced(f"the log has another record at {last.offset} than was read there", end=last.offset)

    async def _check_position(self, offset: int) -> None:
        """Raise HistoryTruncated, or LogReplaced if the log ends before this offset, also when asked a second time."""
        await self._check_history(offset)
        for _ in range(2):
            end = await self.end_offset()
            if offset <= end:
                return
            # A broker that has just begun may not know its own end yet.
            await asyncio.sleep(LOG_END_SURE_S)
        raise LogReplaced(f"the log ends at {end}, and was read up to {offset}", end=end)

    async def _next(self, consumer: Consumer) -> Sequence[Message]:
        """Return the next messages; raise LogUnavailable if there are some and the consumer gets none."""
        messages = await consumer.fetch(LOG_BATCH, QUIET_S)
        if messages:
            return messages
        async with asyncio.timeout(self._deadline_s):
            missing = await consumer.position() < await consumer.end_offset()
        if missing and not (messages := await consumer.fetch(LOG_BATCH, QUIET_S)):
            raise LogUnavailable("the consumer is stuck")
        return messages

    async def _read(self, consumer: Consumer, offset: int, limit: int) -> list[Message]:
        end = await consumer.end_offset()
        if offset >= end:
            return []
        if self._position != offset:
            # Otherwise it has read ahead already, and a seek would discard that.
            consumer.seek(offset)
        self._position = offset
        messages: list[Message] = []
        size = 0
        while len(messages) < limit and size < LOG_READ_BYTES and self._position < end:
            fetched = await consumer.fetch(limit - len(messages), self._deadline_s)
            messages += fetched
            size += sum(len(message.value or b"") for message in fetched)
            self._position = await consumer.position()
        return messages

    async def _check_history(self, offset: int) -> None:
        first = await self.first_offset()
        if offset < first:
            raise HistoryTruncated(f"offset {offset} is gone; the log begins at {first}", first=first)

    @asynccontextmanager
    async def _lend_consumer(self) -> AsyncIterator[Consumer]:
        """Lend the consumer to one caller at a time; after a failure the next one gets a new one."""
        if self._closed:
            raise LogUnavailable("this handle of the log is closed")
        async with self._lock:
            try:
                async with asyncio.timeout(self._deadline_s):
                    if self._consumer is None:
                        self._consumer = await self._connect(None, True)
                    yield self._consumer
            except TimeoutError as error:
                await self._drop()
                raise LogUnavailable(f"no answer from {self._name} within {self._deadline_s:g} s") from error
            except BaseException:
                await self._drop()
                raise

    async def _drop(self) -> None:
        consumer, self._consumer, self._position = self._consumer, None, -1
        if consumer is not None:
            await consumer.stop()


def _stands(message: Message, offset: int) -> bool:
    return message.offset == offset
