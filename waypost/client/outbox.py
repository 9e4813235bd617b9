"""An outbox: notifications that are safe on this machine's disk, and are sent on when a proxy takes them.

    async with waypost.open_outbox("weather.outbox", "weather") as outbox:
        await outbox.post({"temperature": 21})

A post returns when the disk has it, whether a proxy can be reached or not. What waits is published in the order of the
posts, each under the number that it has in the file: so a publish whose answer was lost with a process is the same
publish in the next one, and receivers get it once (handover rules 17 and 18).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from waypost.arguments import flag, function, text, whole
from waypost.client.entry import producer_of
from waypost.client.outbox_file import OutboxFile, RefusedPost
from waypost.client.producer import Producer
from waypost.client.protocol import ProducerState
from waypost.errors import NoProxy, Refused, StoreFailed, Unreachable, WaypostError
from waypost.identity import Coordinate
from waypost.keys import NO_KEYS, Key, Keys, check_keys
from waypost.limits import OUTBOX_BYTES, PUBLISH_WINDOW
from waypost.messages import Welcome
from waypost.notification import Notification, Value

T = TypeVar("T")
AT_ONCE = 1_000
"""Posts that are written, read or removed together."""


@dataclass(frozen=True, slots=True)
class PostRefused:
    """A proxy has refused a notification of an outbox for good; it is kept apart (:meth:`Outbox.refused`)."""

    number: int
    error: WaypostError


@dataclass(slots=True)
class _Unwritten:
    post: tuple[bytes, list[Key] | None, bool]
    written: asyncio.Future[int]


class Outbox:
    """An outbox of one producer; made by :func:`open_outbox`. Use it as an asynchronous context manager.

    Entering opens the file, and does not wait for a proxy.
    """

    def __init__(
        self,
        path: Path,
        producer: str,
        make: Callable[[ProducerState, Callable[[object], None]], Producer],
        max_bytes: int,
        on_event: Callable[[object], None] | None,
    ) -> None:
        self._path, self._name, self._make, self._max_bytes = path, producer, make, max_bytes
        self._on_event = on_event
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="outbox")
        self._file: OutboxFile | None = None
        self._producer: Producer | None = None
        self._unwritten: list[_Unwritten] = []
        self._done: list[int] = []
        """Numbers of what a site log has, and the file still has."""
        self._work = asyncio.Event()
        self._changed = asyncio.Event()
        """Set when something was written to the file, or has left it."""
        self._changes = 0
        self._federation = ""
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: WaypostError | None = None
        self._is_closed = False

    # ------------------------------------------------------------ life cycle

    async def __aenter__(self) -> Self:
        if self._file is not None or self._is_closed:
            raise Refused("it was entered before", hint="each is entered once: open another one")
        self._file = file = await self._on_disk(lambda: OutboxFile(self._path, self._name, self._max_bytes))
        self._federation = file.federation
        self._producer = self._make(ProducerState(file.secret, file.federation), self._heard)
        self._producer.begin()
        for part in (self._keep, self._send):
            task = asyncio.create_task(part(file, self._producer), name=f"outbox {self._path}: {part.__name__}")
            task.add_done_callback(self._ended)
            self._tasks.append(task)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Write what is posted, disconnect, and close the file; whoever opens it next sends on what waits there."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            # Nothing more is published, and what was is answered or not.
            for task in self._tasks[1:]:
                task.cancel()
            while self._file is not None and self._failure is None and (self._unwritten or self._done):
                self._work.set()
                await self._next_change(self._changes)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self._producer is not None:
                await self._producer.close()
            if self._file is not None:
                await self._on_disk(self._file.close)
            self._disk.shutdown()
            self._fail(Unreachable("the outbox was closed"))

    def _ended(self, task: asyncio.Task[None]) -> None:
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            self._fail(fault if isinstance(fault, WaypostError) else StoreFailed(f"{type(fault).__name__}: {fault}"))

    def _fail(self, error: WaypostError) -> None:
        self._failure = self._failure or error
        for unwritten in self._unwritten:
            if not unwritten.written.done():
                unwritten.written.set_exception(self._failure)
        self._unwritten = []
        self._tell_change()

    def _opened(self) -> OutboxFile:
        if self._failure is not None:
            raise self._failure
        if self._file is None:
            raise Refused("it was not entered", hint="write `async with ...:`")
        if self._is_closed:
            raise Unreachable("it was closed", hint="open another one")
        return self._file

    # ------------------------------------------------------------ the application's view

    async def post(self, notification: Mapping[str, Value], *, keys: Keys = NO_KEYS, insecure: bool = True) -> int:
        """Post a notification; return its number once it is on the disk.

        Args:
            notification: the attributes by name.
            keys: security keys of this notification; they wait in the file with it.
            insecure: deliver it also to subscriptions whose keys do not meet these, if they accept that.

        Raises:
            BadArgument: an argument is of the wrong type, or there are too many keys.
            BadNotification: an attribute or the size is not allowed.
            LimitExceeded: more would wait than may.
            StoreFailed: the disk does not take it.
            WaypostError: the producer was refused for good, and nothing of the outbox is sent any more.
        """
        check_keys(keys)
        flag(insecure, "insecure")
        body = (notification if isinstance(notification, Notification) else Notification(notification)).body
        self._opened()
        written: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._unwritten.append(_Unwritten((body, keys.listed() if keys.keys else None, insecure), written))
        self._work.set()
        return await written

    @property
    def waiting(self) -> int:
        """The number of notifications in the file that no site log is known to have."""
        return self._opened().count - len(self._done)

    async def wait_sent(self, timeout_s: float) -> None:
        """Wait until site logs have all that was posted before.

        Raises:
            Unreachable: after `timeout_s` seconds some still wait, or the outbox was closed.
            WaypostError: the producer was refused for good.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while self.waiting or self._unwritten:
                    await self._next_change(self._changes)
        except TimeoutError:
            trouble = self._producer.trouble if self._producer is not None else ""
            kind = NoProxy if trouble else Unreachable
            raise kind(f"{self.waiting} notifications still wait in {self._path}{trouble}") from None

    async def refused(self, limit: int = AT_ONCE) -> list[RefusedPost]:
        """Return up to `limit` notifications that were refused for good: by a proxy, or for they were damaged."""
        return await self._on_disk(partial(self._opened().refused, limit))

    async def forget_refused(self, *sequences: int) -> None:
        """Remove notifications that were refused, by their numbers."""
        await self._on_disk(partial(self._opened().forget_refused, sequences))

    # ------------------------------------------------------------ parts that run

    async def _on_disk(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._disk, call)

    def _heard(self, event: object) -> None:
        if isinstance(event, Welcome) and event.federation and not self._federation:
            self._federation = event.federation
            self._work.set()
        if self._on_event is not None:
            self._on_event(event)

    async def _keep(self, file: OutboxFile, producer: Producer) -> None:
        """Write what is posted, and remove what a site log has."""
        while True:
            await self._work.wait()
            self._work.clear()
            if self._federation != file.federation:
                await self._on_disk(partial(file.set_federation, self._federation))
            while self._unwritten or self._done:
                await self._write(file)
                removed, self._done = self._done[:AT_ONCE], self._done[AT_ONCE:]
                if removed:
                    await self._on_disk(partial(file.remove, removed))
                self._tell_change()

    async def _write(self, file: OutboxFile) -> None:
        batch, self._unwritten = self._unwritten[:AT_ONCE], self._unwritten[AT_ONCE:]
        if not batch:
            return
        try:
            first = await self._on_disk(partial(file.append, [unwritten.post for unwritten in batch]))
        except WaypostError as error:
            for unwritten in batch:
                if not unwritten.written.done():
                    unwritten.written.set_exception(error)
        else:
            for number, unwritten in enumerate(batch, first):
                if not unwritten.written.done():
                    unwritten.written.set_result(number)

    async def _send(self, file: OutboxFile, producer: Producer) -> None:
        """Publish what waits, in order."""
        following = 0
        while True:
            changes = self._changes
            posts = await self._on_disk(partial(file.read, following, AT_ONCE))
            for post in posts:
                # What is removed late would come again after a crash: receivers remember so many ids, and not more.
                while len(self._done) > PUBLISH_WINDOW:
                    await self._next_change(self._changes)
                future = await producer.publish_body(
                    post.body, post.keys, insecure=post.insecure, sequence=post.sequence
                )
                future.add_done_callback(partial(self._answered, file, post.sequence))
                following = post.sequence + 1
            if not posts:
                await self._next_change(changes)

    def _tell_change(self) -> None:
        self._changes += 1
        self._changed.set()

    async def _next_change(self, changes: int) -> None:
        """Return once there was another change than so many, or at once."""
        while self._changes == changes:
            self._changed.clear()
            await self._changed.wait()

    def _answered(self, file: OutboxFile, sequence: int, future: asyncio.Future[Coordinate]) -> None:
        error = future.exception()
        if error is None:
            self._done.append(sequence)
            self._work.set()
        elif isinstance(error, Refused) and self._producer is not None and self._producer.failure is None:
            task = asyncio.create_task(self._refuse(file, sequence, error))
            self._tasks.append(task)
            task.add_done_callback(self._ended)

    async def _refuse(self, file: OutboxFile, sequence: int, error: WaypostError) -> None:
        await self._on_disk(partial(file.refuse, sequence, error))
        self._tell_change()
        if self._on_event is not None:
            self._on_event(PostRefused(sequence, error))


def open_outbox(
    path: str | Path,
    producer: str,
    *,
    max_bytes: int = OUTBOX_BYTES,
    on_event: Callable[[object], None] | None = None,
    **options: Any,
) -> Outbox:
    """Return an outbox; entering it opens the file, or makes it.

    Args:
        path: of the file. One process has it open at a time.
        producer: the name of the producer, in the ids of its notifications. The file has one, for ever.
        max_bytes: the most that may wait, in bytes of encoded notifications.
        on_event: called with each event (:data:`waypost.client.events.ClientEvent`), and with :class:`PostRefused`.
        options: `proxy`, `token`, `tls`, as of :func:`waypost.produce`.

    Raises (on entering):
        BadArgument: the file is no outbox, is that of another producer, or another process has it open.
        StoreDamaged, StoreFailed: it cannot be read or written.

    Raises:
        Refused: an argument is of the wrong type or out of its range.
    """
    if not isinstance(path, Path):
        text(path, "path", 1, such_as="the path of a file")
    whole(max_bytes, "max_bytes", 1, 1 << 40)
    if on_event is not None:
        function(on_event, "on_event", "a function of one argument, the event")

    def make(state: ProducerState, heard: Callable[[object], None]) -> Producer:
        return producer_of(producer, state, on_event=heard, **options)

    # What is wrong with the options is said now.
    make(ProducerState(), lambda event: None)
    return Outbox(Path(path), producer, make, max_bytes, on_event)
