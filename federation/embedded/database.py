"""One SQLite connection on one thread, and the merging of what arrives together into one transaction.

A handle keeps two of these threads: a writer, which may have to wait for the writer of another process, and a
reader, which in WAL mode waits for nobody. The event loop waits for neither.

How a reader learns of another process's commit: between its jobs the thread asks `PRAGMA data_version`, some
microseconds of work, every 2 ms after a change and up to 10 ms when all is quiet, and calls `on_change`.
"""

from __future__ import annotations

import asyncio
import queue
import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from federation.embedded.private_files import make_file
from waypost import cancellation
from waypost.errors import Unreachable
from waypost.limits import LOG_WRITES_TOGETHER

T = TypeVar("T")
Entry = TypeVar("Entry")
Result = TypeVar("Result")
Job = Callable[[sqlite3.Connection], T]

LOCK_TIMEOUT_S = 5.0
"""How long a write waits for the writers of other processes before it fails."""
POLL_BUSY_S = 0.002
POLL_IDLE_S = 0.010
POLL_GROWTH = 1.25
WAL_PAGES = 4000
"""The number of pages after which the WAL is folded into the file (16 MiB)."""


class DatabaseThread:
    """A thread with one SQLite connection, which runs jobs in the order of the calls.

    It opens the file at the first job, and makes it and missing folders, readable by their owner alone. :meth:`call`
    raises errors of SQLite and of the file system as they are; the ports translate them.

    Args:
        path: of the file.
        schema: statements that make the tables, if they are missing.
        durable: write every commit through to the disk.
    """

    def __init__(self, path: Path, schema: Sequence[str], *, durable: bool) -> None:
        self.path = path
        self.closed = False
        self._schema = schema
        self._durable = durable
        # Not a SimpleQueue: that of CPython 3.11 can take a time-out that has just run out for none at all,
        # and waits for ever.
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._connection: sqlite3.Connection | None = None
        self._on_change: Callable[[], None] | None = None
        self._poll = _Poll()
        self._thread: threading.Thread | None = None

    async def call(self, job: Job[T]) -> T:
        """Run `job` with the connection on the thread, and return its result. A caller that is cancelled does not stop
        the job.

        Raises:
            sqlite3.Error: SQLite fails, or this thread is closed.
            OSError: the file cannot be made; likewise any error of the job itself.
        """
        if self.closed:
            raise sqlite3.ProgrammingError("closed")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._submit(lambda: self._perform(job, loop, answer))
        return await answer

    def notify(self, on_change: Callable[[], None]) -> None:
        """Have `on_change` called in this event loop after every commit of another connection, from now on.

        This callback takes the place of an earlier one. It may also be called without a change, and is called again and
        again while the file cannot be read.
        """
        loop = asyncio.get_running_loop()

        def notify() -> None:
            with suppress(RuntimeError):  # the loop has ended before this thread
                loop.call_soon_threadsafe(on_change)

        self._on_change = notify
        self._submit(lambda: None)

    async def close(self) -> None:
        """Finish the jobs that were called, then close the file; later calls raise sqlite3.ProgrammingError."""
        self.closed = True
        if self._thread is not None:
            self._jobs.put(None)
            await asyncio.to_thread(self._thread.join)

    def _submit(self, job: Callable[[], None]) -> None:
        if self._thread is None:
            # A daemon, so that a handle that nobody closed does not keep the process alive.
            self._thread = threading.Thread(target=self._work, name=f"sqlite {self.path.name}", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._next_job()) is not None:
            job()
            # Also under a steady stream of jobs: another task of this handle may be waiting for news.
            if time.monotonic() >= self._poll.due_s:
                self._poll_changes()
        if self._connection is not None:
            self._connection.close()

    def _next_job(self) -> Callable[[], None] | None:
        while True:
            try:
                return self._jobs.get(timeout=self._poll.wait_s() if self._on_change else None)
            except queue.Empty:
                self._poll_changes()

    def _perform(self, job: Job[T], loop: asyncio.AbstractEventLoop, answer: asyncio.Future[T]) -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = job(self._open())
        except Exception as caught:
            error = caught
        with suppress(RuntimeError):  # the loop has ended before this thread
            loop.call_soon_threadsafe(_resolve, answer, result, error)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = _connect(self.path, self._schema, self._durable)
        return self._connection

    def _poll_changes(self) -> None:
        if self._on_change is None:
            return
        try:
            version = self._open().execute("PRAGMA data_version").fetchone()[0]
        except (sqlite3.Error, OSError):
            version = None  # whoever is woken reads, and gets the error
        if self._poll.saw(version):
            self._on_change()


class _Poll:
    """The state of a poll: the time of its next look."""

    def __init__(self) -> None:
        self.due_s = 0.0
        self._interval_s = POLL_BUSY_S
        self._version: int | None = None

    def wait_s(self) -> float:
        return max(self.due_s - time.monotonic(), 0.0005)

    def saw(self, version: int | None) -> bool:
        changed = version is None or version != self._version
        self._interval_s = POLL_BUSY_S if changed else min(self._interval_s * POLL_GROWTH, POLL_IDLE_S)
        self._version = version
        self.due_s = time.monotonic() + self._interval_s
        return changed


def _resolve(answer: asyncio.Future[T], result: T, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)


def _connect(path: Path, schema: Sequence[str], durable: bool) -> sqlite3.Connection:
    # Before SQLite makes it: it gives the files beside it the same mode.
    make_file(path)
    connection = sqlite3.connect(path, timeout=LOCK_TIMEOUT_S, isolation_level=None)
    try:
        # Two processes that turn WAL on at once can get BUSY in spite of the time-out: a deadlock avoided.
        _patiently(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchall())
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
        if schema:
            write(connection, lambda: [connection.execute(statement) for statement in schema])
        connection.execute(f"PRAGMA busy_timeout = {int(LOCK_TIMEOUT_S * 1000)}")
    except BaseException:
        connection.close()
        raise
    return connection


def _patiently(action: Callable[[], object]) -> None:
    """Repeat `action` while another process is in the way. SQLite's own waiting sleeps up to 100 ms."""
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            action()
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(random.uniform(0.0001, 0.0006))


def write(connection: sqlite3.Connection, action: Callable[[], T]) -> T:
    """Run `action` in a transaction that is alone among all writers of the file, and return its result: all of the
    transaction is kept, or nothing if `action` raises.

    The call blocks while other processes write, up to LOCK_TIMEOUT_S seconds: call it on the thread of the connection,
    in a job of :meth:`DatabaseThread.call`, never in an event loop. Note that it sets the busy time-out of the
    connection to 0, for good: later statements outside of it fail at once if the file is locked.

    Raises:
        sqlite3.OperationalError: other processes wrote for more than LOCK_TIMEOUT_S seconds.
        sqlite3.Error: the transaction cannot be begun or committed. Errors of `action` are raised as they are.
    """
    connection.execute("PRAGMA busy_timeout = 0")
    _patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
    try:
        result = action()
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
    return result


def snapshot(connection: sqlite3.Connection, action: Callable[[], T]) -> T:
    """Run `action`, which only reads, in one transaction, so that it sees one state of the file; return its result.

    Call it on the thread of the connection, in a job of :meth:`DatabaseThread.call`. Errors of `action` are raised as
    they are.
    """
    connection.execute("BEGIN")
    try:
        return action()
    finally:
        connection.execute("COMMIT")


@contextmanager
def translated(
    kind: type[Unreachable], what: str, path: Path, if_damaged: str = "bring back a copy of it"
) -> Iterator[None]:
    """Raise errors of SQLite and of the file system in the block as errors of `kind`, with a hint for the operator; so
    is a CancelledError if nobody has cancelled this task.

    Args:
        kind: the class of the error.
        what: the storage, for the message, such as "the registry".
        path: of its file, for the message.
        if_damaged: what the operator can do where the file is damaged.
    """
    try:
        with cancellation.translated(lambda _: OSError("it was broken off")):
            yield
    except (sqlite3.Error, OSError) as error:
        hint = "is the folder there, writable, not full, and on a local disk?"
        if is_damage(error):
            hint = f"the file is damaged beyond what can be passed over; {if_damaged}"
        raise kind(f"{what} {path} does not answer: {error}", hint=hint) from error


def is_damage(error: BaseException) -> bool:
    """Tell whether an error of SQLite means that the file is damaged; False for any other error."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        # Said by Python's own library: a text that is none.
        return isinstance(error, sqlite3.OperationalError) and "decode" in str(error)
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class GroupCommit(Generic[Entry, Result]):
    """Merges the entries of concurrent callers into one transaction, in the order of the calls.

    While one transaction is being written (and synced: the dear part), the next one gathers. If it fails, it
    fails for all callers in it.
    """

    def __init__(
        self,
        thread: DatabaseThread,
        apply: Callable[[sqlite3.Connection, list[Entry]], list[Result]],
    ) -> None:
        self._thread = thread
        self._apply = apply
        self._waiting: deque[tuple[Entry, asyncio.Future[Result]]] = deque()
        self._run: asyncio.Task[None] | None = None

    async def submit(self, entry: Entry) -> Result:
        """Have the entry applied, with others in one transaction; return its result once that is committed. A caller
        that is cancelled does not stop that.

        If the transaction fails, its error is raised for every entry in it, and none of them was applied.

        Raises:
            OSError: also if the writing was broken off, because the event loop ends; then the entry may be applied all
                the same.
        """
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((entry, answer))
        if self._run is None:
            self._run = asyncio.create_task(self._flush())
        return await answer

    async def drain(self) -> None:
        """Wait until every entry that was submitted is committed or has failed; errors go to those who submitted."""
        if self._run is not None:
            await asyncio.wait((self._run,))

    async def _flush(self) -> None:
        try:
            while self._waiting:
                most = min(len(self._waiting), LOG_WRITES_TOGETHER)
                await self._write([self._waiting.popleft() for _ in range(most)])
        finally:
            self._run = None
            for _, answer in self._waiting:
                if not answer.done():
                    answer.set_exception(OSError("the writing was broken off"))
            self._waiting.clear()

    async def _write(self, group: list[tuple[Entry, asyncio.Future[Result]]]) -> None:
        entries = [entry for entry, _ in group]
        results: list[Any] = [None] * len(group)
        failure: Exception | None = OSError("the writing was broken off")
        try:
            results = await self._thread.call(lambda c: write(c, lambda: self._apply(c, entries)))
            failure = None
        except Exception as error:
            failure = error
        finally:
            for (_, answer), result in zip(group, results, strict=True):
                _resolve(answer, result, failure)
