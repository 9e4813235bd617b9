"""Appends to a remote log, in the order of the calls, one batch at a time.

Appends that are called while a batch is under way form the next one. A failure fails every waiting append as well, so
that none overtakes a failed one; the sender is abandoned, and a new one is connected.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Protocol

from waypost.errors import LogUnavailable, Unreachable

Entry = tuple[bytes | None, bytes | None]
"""The key and the value of a record."""
FINISH_S = 3.0
"""How long closing waits for the appends under way, in seconds."""


class Sender(Protocol):
    """A connection that appends. It is used by one caller at a time."""

    @property
    def is_broken(self) -> bool:
        """Whether the connection has ended: this sender sends nothing more."""
        ...

    async def send(self, entries: Iterable[Entry]) -> range:
        """Append as many of `entries`, (key, value) each, as fit into one batch, at least one; return their offsets,
        those of the first entries.

        Raises:
            LogUnavailable: it is not known whether they were appended.
        """
        ...

    async def abandon(self) -> None:
        """Close the connection, without sending what was not sent yet; this sender is not used again."""
        ...


@dataclass(slots=True)
class _Append:
    entries: Sequence[Entry]
    answer: asyncio.Future[list[int]]
    offsets: list[int] = field(default_factory=list)

    @property
    def missing(self) -> int:
        return len(self.entries) - len(self.offsets)


async def _at_once() -> None:
    """Nothing is waited for."""


class OrderedAppends:
    """The appends of one handle of a log.

    Args:
        connect: returns a new sender. Raises LogUnavailable.
        deadline_s: of one batch, in seconds, the connection included.
        backoff_s: the first and the longest pause between attempts to connect, in seconds.
        abandoned: called when a sender was given up whose connection may not have ended.
        may_send: awaited between connecting and sending.
        name: of the log, for error messages.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Sender]],
        *,
        deadline_s: float,
        backoff_s: tuple[float, float],
        abandoned: Callable[[], None] = lambda: None,
        may_send: Callable[[], Awaitable[None]] = _at_once,
        name: str = "the log",
    ) -> None:
        self._name = name
        self._connect = connect
        self._abandoned_one = abandoned
        self._may_send = may_send
        self._deadline_s = deadline_s
        self._backoff_s = backoff_s
        self._queue: deque[_Append] = deque()
        self._run: asyncio.Task[None] | None = None
        self._sender: Sender | None = None
        self._connecting = asyncio.Lock()
        self._unconnected: Unreachable | None = None
        """The reason why the last attempt to connect failed, while there is no sender."""
        self._abandoned: set[asyncio.Task[None]] = set()
        self._closed = False

    async def start(self) -> None:
        """Connect now and not at the first append. Raises LogUnavailable."""
        self._sender = await self._connect()

    async def append(self, entries: Sequence[Entry]) -> list[int]:
        """Append the entries, (key, value) each, behind those of earlier calls; return their offsets, in the same
        order. Without entries nothing is done.

        Raises:
            LogUnavailable: a batch failed, this append's or an earlier one's, its deadline is over, or these appends
                are closed. All entries, some or none were appended.
        """
        if not entries:
            return []
        if self._closed:
            raise LogUnavailable("this handle of the log is closed")
        append = _Append(entries, asyncio.get_running_loop().create_future())
        self._queue.append(append)
        if self._run is None:
            self._run = asyncio.create_task(self._flush())
        return await append.answer

    async def close(self) -> None:
        """Finish the appends under way within FINISH_S seconds; those that remain fail, and may have been appended. The
        sender is abandoned, and `abandoned` is called for it if its connection has not ended.
        """
        self._closed = True
        if (run := self._run) is not None:
            await asyncio.wait((run,), timeout=FINISH_S)
            run.cancel()
            await asyncio.wait((run,))
        self._abandon(self._sender)
        if self._abandoned:
            await asyncio.wait(self._abandoned)

    async def _flush(self) -> None:
        try:
            while self._queue:
                await self._send_batch()
        finally:
            self._run = None
            self._fail(LogUnavailable("the sending was broken off"), self._sender)

    async def _send_batch(self) -> None:
        used: Sender | None = None
        try:
            async with asyncio.timeout(self._deadline_s):
                ready = await self._ready()
                used = ready
                offsets = await ready.send(self._unsent())
        except Unreachable as error:
            self._fail(error, used)
        except TimeoutError:
            no_answer = LogUnavailable(f"no answer from {self._name} within {self._deadline_s:g} s")
            self._fail(self._unconnected or no_answer, used)
        else:
            self._resolve(offsets)

    async def _ready(self) -> Sender:
        while True:
            sender = await self.connected()
            await self._may_send()
            if not sender.is_broken:
                return sender

    async def connected(self) -> Sender:
        """Return the connected sender; while there is none, try to connect, for ever, with growing pauses. It raises
        nothing if the log does not answer.

        Note that a sender that has ended is abandoned, and the next one is used by the appends.

        Raises:
            LogUnavailable: this handle is closed, or was closed meanwhile.
        """
        async with self._connecting:
            if self._sender is not None and self._sender.is_broken:
                # Its batch under way fails by itself; the waiting appends were not sent.
                self._abandon(self._sender)
            pause_s, longest_s = self._backoff_s
            while self._sender is None:
                if self._closed:
                    raise LogUnavailable(f"this handle of {self._name} is closed")
                try:
                    self._sender, self._unconnected = await self._connect(), None
                    if self._closed:
                        # Nobody else would end it.
                        self._abandon(self._sender)
                except Unreachable as error:
                    self._unconnected = error
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, longest_s)
            return self._sender

    def _unsent(self) -> Iterable[Entry]:
        return chain.from_iterable(islice(append.entries, len(append.offsets), None) for append in self._queue)

    def _resolve(self, offsets: range) -> None:
        while offsets:
            append = self._queue[0]
            assigned, offsets = offsets[: append.missing], offsets[append.missing :]
            append.offsets.extend(assigned)
            if append.missing == 0:
                self._queue.popleft()
                if not append.answer.done():
                    append.answer.set_result(append.offsets)

    def _fail(self, error: Unreachable, used: Sender | None) -> None:
        if not self._queue:
            return
        self._abandon(used)
        while self._queue:
            answer = self._queue.popleft().answer
            if not answer.done():
                answer.set_exception(LogUnavailable(error.message, hint=error.hint))

    def _abandon(self, sender: Sender | None) -> None:
        if sender is None or sender is not self._sender:
            return
        self._sender = None
        if not sender.is_broken:
            self._abandoned_one()
        task = asyncio.create_task(sender.abandon())
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)
