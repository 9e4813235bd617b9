"""An outbox: notifications that are safe on this machine's disk, and are sent on when a proxy takes them.

    async with waypost.open_outbox("weather.outbox", "weather") as outbox:
        await outbox.post({"temperature": 21})

A post returns when the disk has it, whether a proxy can be reached or not. What waits is published in the order of the
posts, each under the sequence number that it has in the file: so a publish whose answer was lost with a process is the
same publish in the next one, and receivers get it once (handover rules 17 and 18).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

from waypost.arguments import flag, function, seconds, text, whole
from waypost.client.entry import producer_of
from waypost.client.outbox_file import OutboxFile, Post, RefusedNotification
from waypost.client.producer import Producer
from waypost.client.protocol import ProducerState
from waypost.errors import LimitExceeded, Refused, StoreDamaged, StoreFailed, Unreachable, WaypostError
from waypost.identity import Coordinate
from waypost.keys import NO_KEYS, PRODUCER, Keys, check_keys
from waypost.limits import OUTBOX_BYTES, OUTBOX_BYTES_IN_FLIGHT, PUBLISH_WINDOW
from waypost.messages import Welcome
from waypost.notification import Notification, Value

T = TypeVar("T")
BATCH = 1_000
"""Posts that are written, read or removed together."""
CLOSE_S = 5.0
"""The most that closing waits for the disk, in seconds."""
RETRY_S = 1.0
"""Pause before the disk is tried again, in seconds."""
RECONNECT_S = 5.0
"""Pause before another producer takes the place of one that has failed, in seconds: where a host has no name now, or a
certificate has ended, that may change."""
MakeProducer: TypeAlias = Callable[[str, ProducerState, Callable[[object], None]], Producer]
"""Makes a producer of this name that goes on from a state, and calls a function with each event."""


@dataclass(frozen=True, slots=True)
class PostRefused:
    """A proxy has refused a notification of an outbox for good; it is kept apart (:meth:`Outbox.refused`)."""

    sequence: int
    error: WaypostError


@dataclass(slots=True)
class _Unwritten:
    post: Post
    sequence: asyncio.Future[int]


class Outbox:
    """An outbox of one producer; made by :func:`open_outbox`. Use it as an asynchronous context manager.

    Entering opens the file, and does not wait for a proxy. Only the disk makes a post fail: what hinders the sending is
    :attr:`trouble`, and is tried again.
    """

    def __init__(
        self,
        path: Path,
        producer: str | None,
        make_producer: MakeProducer,
        max_bytes: int,
        on_event: Callable[[object], None] | None,
    ) -> None:
        self._path, self._name, self._max_bytes = path, producer, max_bytes
        self._make_producer, self._on_event = make_producer, on_event
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="outbox")
        self._file: OutboxFile | None = None
        self._producer: Producer | None = None
        self._federation = ""
        """In which the proxy of the present connection is."""
        self._is_welcome = False
        """Whether a proxy has let a producer of this outbox in."""
        self._sending_failure: WaypostError | None = None
        """Why the producer has ended; None: it has not."""
        self._disk_failure: WaypostError | None = None
        """Why the disk does not take what nobody waits for; None: it does."""
        self._removed_at_once = BATCH
        """How many are removed together: fewer where the disk is full."""
        self._unwritten: list[_Unwritten] = []
        self._count = 0
        """The notifications in the file, as of the last call on the disk that has returned: one under way may have
        removed some that :attr:`_acknowledged` still names.
        """
        self._acknowledged: dict[int, None] = {}
        """Sequence numbers of what a site log has, and the file has still, in the order of the answers."""
        self._bytes_in_flight = 0
        """The size of what was published and not answered, in bytes."""
        self._has_work = asyncio.Event()
        self._has_changed = asyncio.Event()
        """Set when something was written to the file or has left it, or the sending may go on."""
        self._changes = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: WaypostError | None = None
        self._is_closed = False

    # ------------------------------------------------------------ life cycle

    def __repr__(self) -> str:
        trouble = f", trouble: {self.trouble}" if self.trouble else ""
        if self._file is None or self._is_closed:
            return f"<Outbox {str(self._path)!r}: {'closed' if self._is_closed else 'not entered'}>"
        return f"<Outbox {str(self._path)!r}: {self.waiting + len(self._unwritten)} waiting{trouble}>"

    async def __aenter__(self) -> Self:
        if self._file is not None or self._is_closed:
            raise Refused("this outbox was entered before", hint="each is entered once: open another one")
        self._file = file = await self._on_disk(lambda: OutboxFile(self._path, self._name, self._max_bytes))
        self._count = file.count
        for part in (self._store, self._send):
            task = asyncio.create_task(part(file), name=f"outbox {self._path}: {part.__name__}")
            task.add_done_callback(self._part_ended)
            self._tasks.append(task)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Write what is posted, disconnect, and close the file; whoever opens it next sends on what waits there.

        Posts that the disk has not taken after CLOSE_S seconds fail with Unreachable. A second call has no effect.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            # Nothing more is published, and what was is answered or not.
            for task in self._tasks[1:]:
                task.cancel()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    while self._file is not None and self._failure is None and (self._unwritten or self._acknowledged):
                        self._has_work.set()
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

    def _part_ended(self, task: asyncio.Task[None]) -> None:
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            self._fail(fault if isinstance(fault, WaypostError) else StoreFailed(f"{type(fault).__name__}: {fault}"))

    def _fail(self, error: WaypostError) -> None:
        self._failure = self._failure or error
        for unwritten in self._unwritten:
            if not unwritten.sequence.done():
                unwritten.sequence.set_exception(self._failure)
        self._unwritten = []
        self._notify()

    def _opened(self) -> OutboxFile:
        if self._failure is not None:
            raise self._failure
        if self._file is None:
            raise Refused("this outbox was not entered", hint="write `async with ...:`")
        if self._is_closed:
            raise Unreachable("this outbox was closed", hint="open another one")
        return self._file

    # ------------------------------------------------------------ the application's view

    async def post(self, notification: Mapping[str, Value], *, keys: Keys = NO_KEYS, insecure: bool = True) -> int:
        """Post a notification; return its sequence number once it is on the disk. It is sent on when a proxy can be
        reached.

        A call that is cancelled may have posted the notification, or not.

        Args:
            notification: the attributes by name.
            keys: security keys of this notification; they wait in the file with it.
            insecure: deliver it also to subscriptions whose keys do not meet these, if they accept that.

        Raises:
            BadArgument: an argument is of the wrong type.
            BadNotification: an attribute or the size is not allowed.
            Refused: the outbox was not entered, or there are too many keys.
            LimitExceeded: more bytes would wait than the `max_bytes` of :func:`open_outbox`.
            StoreDamaged, StoreFailed: the disk does not take it.
            Unreachable: the outbox was closed before the call; or during it, then the notification may be in the file.
            WaypostError: the error that has ended the outbox.
        """
        check_keys(keys)
        flag(insecure, "insecure")
        body = (notification if isinstance(notification, Notification) else Notification(notification)).body
        self._opened()
        sequence: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._unwritten.append(_Unwritten(Post(body, keys.listed(PRODUCER) if keys.keys else None, insecure), sequence))
        self._has_work.set()
        return await sequence

    @property
    def waiting(self) -> int:
        """The number of notifications in the file that no site log is known to have.

        Raises:
            Refused: the outbox was not entered.
            WaypostError: the outbox was closed, or its disk has failed.
        """
        self._opened()
        return self._count - len(self._acknowledged)

    @property
    def trouble(self) -> str:
        """The reason why nothing is sent now; "": there is none, or none is known, as while the first connection is
        being opened.
        """
        failure = self._disk_failure or self._sending_failure
        if failure is not None:
            return str(failure)
        return self._producer.trouble.removeprefix(": ") if self._producer is not None else ""

    async def wait_sent(self, timeout_s: float) -> None:
        """Wait until no post waits any more: a site log has it, or it was refused for good (:meth:`refused`).

        Args:
            timeout_s: the longest wait, in seconds.

        Raises:
            BadArgument: `timeout_s` is no time.
            Refused: the outbox was not entered.
            Unreachable: after `timeout_s` seconds some still wait; the message says what hinders the sending. Or the
                outbox was closed.
            StoreDamaged, StoreFailed: the disk has failed.
        """
        seconds(timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                while self.waiting or self._unwritten:
                    await self._next_change(self._changes)
        except TimeoutError:
            trouble = f": {self.trouble}" if self.trouble else ""
            count = self.waiting + len(self._unwritten)
            wait = "1 notification still waits" if count == 1 else f"{count} notifications still wait"
            raise Unreachable(f"{wait} in {self._path}{trouble}") from None

    async def refused(self, limit: int = BATCH) -> list[RefusedNotification]:
        """Return up to `limit` notifications that were refused for good, by a proxy or because they were damaged; those
        of the lowest sequence numbers first.

        They stay in the file until :meth:`forget_refused`.

        Raises:
            Refused: the outbox was not entered.
            WaypostError: the outbox was closed, or its disk has failed.
        """
        return await self._on_disk(partial(self._opened().refused, limit))

    async def forget_refused(self, *sequences: int) -> None:
        """Remove refused notifications from the file, by their sequence numbers; a number without one has no effect.

        Raises:
            Refused: the outbox was not entered.
            WaypostError: the outbox was closed, or its disk has failed.
        """
        await self._on_disk(partial(self._opened().forget_refused, sequences))

    # ------------------------------------------------------------ the disk

    async def _on_disk(self, call: Callable[[], T]) -> T:
        def counted() -> tuple[T, int]:
            return call(), self._file.count if self._file is not None else 0

        result, self._count = await asyncio.get_running_loop().run_in_executor(self._disk, counted)
        return result

    async def _store(self, file: OutboxFile) -> None:
        """Write what is posted, and remove what a site log has. A post does not wait for a removal that the disk has no
        room for: both are tried, and the post fails, or not.
        """
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            while self._unwritten or self._acknowledged or self._is_unbound(file):
                await self._write(file)
                if not (await self._bind(file) and await self._remove(file)):
                    await self._next_try()
                self._notify()

    def _is_unbound(self, file: OutboxFile) -> bool:
        """Tell whether the file is to be bound to the federation of the proxy, and is not yet."""
        return bool(self._federation) and not file.federation

    async def _bind(self, file: OutboxFile) -> bool:
        return not self._is_unbound(file) or await self._is_taken(partial(file.set_federation, self._federation))

    async def _remove(self, file: OutboxFile) -> bool:
        """Remove some of what a site log has: fewer and fewer where the disk does not take it, as a full one may have
        room for a few. Return False where it did not take even one: the next try is later.
        """
        removed = list(self._acknowledged)[: self._removed_at_once]
        if not removed:
            return True
        if not await self._is_taken(partial(file.remove, removed)):
            self._removed_at_once = max(1, len(removed) // 2)
            return len(removed) > 1
        for sequence in removed:
            del self._acknowledged[sequence]
        self._removed_at_once = min(BATCH, 2 * self._removed_at_once)
        return True

    async def _next_try(self) -> None:
        """Wait for RETRY_S, or until there is something to be written."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RETRY_S):
                while not self._unwritten:
                    await self._has_work.wait()
                    self._has_work.clear()

    async def _is_taken(self, call: Callable[[], None]) -> bool:
        """Tell whether the disk takes a change; where it is full, or does not answer, that is the trouble from then on.

        Raises:
            StoreDamaged: the file is not as it was written.
        """
        try:
            await self._on_disk(call)
        except StoreDamaged:
            raise
        except StoreFailed as error:
            self._disk_failure = error
            self._notify()
            return False
        self._disk_failure = None
        return True

    async def _until_taken(self, call: Callable[[], None]) -> None:
        """Write what nobody waits for, again and again while the disk is full, or does not answer."""
        while not await self._is_taken(call):
            await asyncio.sleep(RETRY_S)

    async def _write(self, file: OutboxFile) -> None:
        """Write the first ones of what is posted; they stay in `_unwritten` until they are answered."""
        count = min(BATCH, len(self._unwritten))
        # A caller that was cancelled meanwhile has not posted it.
        batch = [unwritten for unwritten in self._unwritten[:count] if not unwritten.sequence.done()]
        if batch:
            await self._append(file, batch)
        del self._unwritten[:count]

    async def _append(self, file: OutboxFile, batch: list[_Unwritten]) -> None:
        """Write posts, and answer each with its sequence number, or with what the disk says."""
        try:
            first = await self._on_disk(partial(file.append, [unwritten.post for unwritten in batch]))
        except WaypostError as error:
            if isinstance(error, LimitExceeded) and len(batch) > 1:
                # A post that is too large for the room that is left takes nothing from the others.
                for unwritten in batch:
                    await self._append(file, [unwritten])
                return
            for unwritten in batch:
                if not unwritten.sequence.done():
                    unwritten.sequence.set_exception(error)
        else:
            for sequence, unwritten in enumerate(batch, first):
                if not unwritten.sequence.done():
                    unwritten.sequence.set_result(sequence)

    # ------------------------------------------------------------ the sending

    async def _send(self, file: OutboxFile) -> None:
        """Publish what waits, in order; where the producer has failed for good, begin again with another one."""
        while True:
            state = ProducerState(file.secret, file.federation)
            self._producer = producer = self._make_producer(file.producer, state, self._on_producer_event)
            producer.begin()
            try:
                await self._publish_all(file, producer)
            except WaypostError as error:
                if producer.failure is None:
                    raise
                self._sending_failure = error
                self._notify()
            await producer.close()
            await asyncio.sleep(RECONNECT_S)

    async def _publish_all(self, file: OutboxFile, producer: Producer) -> None:
        # The file is bound to the proxy's federation before anything is published there.
        while not self._is_welcome or (self._federation and not file.federation):
            if producer.failure is not None:
                raise producer.failure
            await self._next_change(self._changes)
        following = 0
        while True:
            changes = self._changes
            posts = await self._read(file, following)
            for sequence, post in posts:
                following = sequence + 1
                if sequence not in self._acknowledged:
                    await self._publish(file, producer, sequence, post)
            if not posts:
                if producer.failure is not None:
                    raise producer.failure
                await self._next_change(changes)

    async def _read(self, file: OutboxFile, following: int) -> list[tuple[int, Post]]:
        """Read what waits; a disk that does not let it be read is the trouble, and is asked again later."""
        has_failed = False
        while True:
            try:
                posts = await self._on_disk(partial(file.read, following, BATCH))
            except StoreFailed as error:
                self._disk_failure, has_failed = error, True
                self._notify()
                await asyncio.sleep(RETRY_S)
                continue
            if has_failed:
                self._disk_failure = None
            return posts

    async def _publish(self, file: OutboxFile, producer: Producer, sequence: int, post: Post) -> None:
        # A notification that is removed late would come again after a crash: receivers remember only the last ids.
        while len(self._acknowledged) > PUBLISH_WINDOW or self._bytes_in_flight > OUTBOX_BYTES_IN_FLIGHT:
            await self._next_change(self._changes)
            if producer.failure is not None:
                raise producer.failure
        future = await producer.publish_body(post.body, post.keys, insecure=post.insecure, sequence=sequence)
        self._bytes_in_flight += len(post.body)
        future.add_done_callback(partial(self._answered, file, producer, sequence, len(post.body)))

    def _on_producer_event(self, event: object) -> None:
        if isinstance(event, Welcome):
            self._is_welcome, self._sending_failure = True, None
            self._federation = self._federation or event.federation
            self._has_work.set()
        # A failure of the producer is reported as an event, too.
        self._notify()
        self._report(event)

    def _report(self, event: object) -> None:
        if self._on_event is not None:
            with suppress(Exception):
                self._on_event(event)

    def _answered(
        self, file: OutboxFile, producer: Producer, sequence: int, size: int, future: asyncio.Future[Coordinate]
    ) -> None:
        self._bytes_in_flight -= size
        self._notify()
        error = future.exception()
        if error is None:
            self._acknowledged[sequence] = None
            self._has_work.set()
        elif isinstance(error, Refused) and producer.failure is None:
            task = asyncio.create_task(self._refuse(file, sequence, error))
            self._tasks.append(task)
            task.add_done_callback(self._part_ended)
            task.add_done_callback(self._tasks.remove)

    async def _refuse(self, file: OutboxFile, sequence: int, error: WaypostError) -> None:
        await self._until_taken(partial(file.refuse, sequence, error))
        self._notify()
        self._report(PostRefused(sequence, error))

    def _notify(self) -> None:
        self._changes += 1
        self._has_changed.set()

    async def _next_change(self, changes: int) -> None:
        """Return once there was another change than so many, or at once. Raises the error that has ended the outbox."""
        while self._changes == changes:
            self._has_changed.clear()
            await self._has_changed.wait()
        if self._failure is not None and not self._is_closed:
            raise self._failure


def open_outbox(
    path: str | Path,
    producer: str | None = None,
    *,
    max_bytes: int = OUTBOX_BYTES,
    on_event: Callable[[object], None] | None = None,
    **options: Any,
) -> Outbox:
    """Return an outbox; entering it opens the file, or makes it.

    Args:
        path: of the file. One outbox has it open at a time, in whichever process.
        producer: the name of the producer, in the ids of its notifications. The file has one, for ever; None: that of
            the file, which has to be there.
        max_bytes: the most that may wait, in bytes of encoded notifications.
        on_event: called with each event (:data:`waypost.client.events.ClientEvent`), and with :class:`PostRefused`. An
            exception of it is dropped.
        options: `proxy`, `roaming`, `token`, `tls`, as of :func:`waypost.produce`.

    Raises (on entering): BadArgument: there can be no file, it is no outbox, is that of another producer, or is open
    already, in this process or another one. NotFound: there is no file, and no producer is named. StoreDamaged,
    StoreFailed: it cannot be read or written.

    Raises:
        Refused: an argument is of the wrong type or out of its range, or an address is not valid.
    """
    if not isinstance(path, Path):
        text(path, "path", 1, such_as="the path of a file")
    whole(max_bytes, "max_bytes", 1, 1 << 40)
    if on_event is not None:
        function(on_event, "on_event", "a function of one argument, the event")

    def make_producer(name: str, state: ProducerState, report: Callable[[object], None]) -> Producer:
        return producer_of(name, state, on_event=report, **options)

    # A wrong option is an error now.
    make_producer("any" if producer is None else producer, ProducerState(), lambda event: None)
    return Outbox(Path(path), producer, make_producer, max_bytes, on_event)
