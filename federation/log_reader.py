"""Reads a remote log: answers questions one at a time, and follows the log through the server's absences."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from waypost.errors import HistoryTruncated, LogReplaced, LogUnavailable, Unreachable
from waypost.limits import LOG_BATCH, LOG_END_SURE_S

QUIET_S = 5.0
"""After so long without a record a follower asks whether there really is none."""


class Message(Protocol):
    offset: int
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class _Last:
    """The message that was yielded last."""

    offset: int
    checksum: int

    @classmethod
    def of(cls, message: Message) -> _Last:
        return cls(message.offset, zlib.crc32(message.value or b""))


class OutOfRange(Exception):
    """The log has no such place: forgotten already, or not there yet."""


class Consumer(Protocol):
    """A connection with a place in the log. All methods raise LogUnavailable, `take` OutOfRange as well."""

    async def take(self, limit: int, wait_s: float) -> Sequence[Message]:
        """Return what comes next and step behind it; nothing if nothing comes within `wait_s`."""
        ...

    async def place(self) -> int: ...

    def seek(self, offset: int) -> None: ...

    async def first(self) -> int: ...

    async def end(self) -> int: ...

    async def stop(self) -> None: ...


class LogReader:
    """`connect(offset)` gives a consumer that stands at `offset`, if one is given."""

    def __init__(
        self,
        connect: Callable[[int | None], Awaitable[Consumer]],
        *,
        deadline_s: float,
        backoff_s: tuple[float, float],
    ) -> None:
        self._connect = connect
        self._deadline_s = deadline_s
        self._backoff_s = backoff_s
        self._consumer: Consumer | None = None
        self._place = -1
        self._closed = False
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        """Connect now and not at the first question. Raises LogUnavailable."""
        self._consumer = await self._connect(None)

    async def close(self) -> None:
        """End; whoever follows gets LogUnavailable, after QUIET_S and a deadline at the latest."""
        self._closed = True
        async with self._lock:
            await self._drop()

    async def first(self) -> int:
        async with self._asking() as consumer:
            return await consumer.first()

    async def end(self) -> int:
        async with self._asking() as consumer:
            return await consumer.end()

    async def read(self, offset: int, limit: int) -> list[Message]:
        """Return up to `limit` messages of those that the log holds now.

        Raises:
            HistoryTruncated: `offset` is older than the first one kept.
        """
        try:
            async with self._asking() as consumer:
                return await self._read(consumer, offset, limit)
        except OutOfRange:
            await self._check_history(offset)
            raise LogUnavailable("the log changes while it is read") from None

    async def follow(self, offset: int) -> AsyncGenerator[tuple[Sequence[Message], int], None]:
        """Yield messages and the place behind them, for ever; no messages when none came for a while.

        After every reconnect what was yielded last is read once more and compared: a log that has lost its end, and
        grown again, has another record there.

        Raises:
            HistoryTruncated: as in :meth:`read`.
            LogReplaced: the log ends before `offset`, or the last message that was yielded is another one now.
        """
        pause_s, longest_s = self._backoff_s
        last: _Last | None = None
        while not self._closed:
            try:
                async with AsyncExitStack() as stack:
                    if last is not None:
                        await self._compare(last)
                    consumer = await self._connect(offset)
                    stack.push_async_callback(consumer.stop)
                    while not self._closed:
                        messages = await self._next(consumer)
                        offset = await consumer.place()
                        last = _Last.of(messages[-1]) if messages else last
                        pause_s = self._backoff_s[0]
                        yield messages, offset
            except OutOfRange:
                with suppress(OutOfRange):
                    await self._check_place(offset)
            except LogReplaced:
                raise
            except (Unreachable, TimeoutError):
                pass
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, longest_s)
        raise LogUnavailable("this handle of the log is closed")

    async def _compare(self, last: _Last) -> None:
        """Raises LogReplaced: the log has not the message that was read last, or another one in its place."""
        if last.offset < await self.first():
            return
        await self._check_place(last.offset + 1)
        found = await self.read(last.offset, 1)
        if found and found[0].offset == last.offset and _Last.of(found[0]) != last:
            raise LogReplaced(f"the log has another record at {last.offset} than was read there", end=last.offset)

    async def _check_place(self, offset: int) -> None:
        """Raises HistoryTruncated, or LogReplaced: the log ends before this offset, also when asked a second time."""
        await self._check_history(offset)
        for _ in range(2):
            end = await self.end()
            if offset <= end:
                return
            # A broker that has just begun may not know its own end yet.
            await asyncio.sleep(LOG_END_SURE_S)
        raise LogReplaced(f"the log ends at {end}, and was read up to {offset}", end=end)

    async def _next(self, consumer: Consumer) -> Sequence[Message]:
        """Return the next messages; raise LogUnavailable if there are some and the consumer gets none."""
        messages = await consumer.take(LOG_BATCH, QUIET_S)
        if messages:
            return messages
        async with asyncio.timeout(self._deadline_s):
            missing = await consumer.place() < await consumer.end()
        if missing and not (messages := await consumer.take(LOG_BATCH, QUIET_S)):
            raise LogUnavailable("the consumer is stuck")
        return messages

    async def _read(self, consumer: Consumer, offset: int, limit: int) -> list[Message]:
        end = await consumer.end()
        if offset >= end:
            return []
        if self._place != offset:
            # Else it has read ahead already, and a seek would throw that away.
            consumer.seek(offset)
        self._place = offset
        messages: list[Message] = []
        while len(messages) < limit and self._place < end:
            messages += await consumer.take(limit - len(messages), self._deadline_s)
            self._place = await consumer.place()
        return messages

    async def _check_history(self, offset: int) -> None:
        first = await self.first()
        if offset < first:
            raise HistoryTruncated(f"offset {offset} is gone; the log begins at {first}", first=first)

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[Consumer]:
        """Lend the consumer to one caller at a time; after a failure the next one gets a new one."""
        if self._closed:
            raise LogUnavailable("this handle of the log is closed")
        async with self._lock:
            try:
                async with asyncio.timeout(self._deadline_s):
                    if self._consumer is None:
                        self._consumer = await self._connect(None)
                    yield self._consumer
            except TimeoutError as error:
                await self._drop()
                raise LogUnavailable(f"no answer from the log within {self._deadline_s:g} s") from error
            except BaseException:
                await self._drop()
                raise

    async def _drop(self) -> None:
        consumer, self._consumer, self._place = self._consumer, None, -1
        if consumer is not None:
            await consumer.stop()
