"""The file of an outbox: notifications that wait on this machine's disk, numbered as they are published. Blocking.

SQLite, one transaction for each call, which is on the disk when the call returns. One process has the file open at a
time: two would number their notifications alike.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from waypost.checksum import checksum
from waypost.errors import BadArgument, LimitExceeded, NotFound, StoreDamaged, StoreFailed, WaypostError
from waypost.identity import new_secret
from waypost.keys import Key

APPLICATION_ID, FORM = 0x57504F42, 2
"""What SQLite's header says of the file, and the version of its tables."""
_TABLES = """
CREATE TABLE identity (
    producer TEXT NOT NULL, secret TEXT NOT NULL, federation TEXT NOT NULL, next INTEGER NOT NULL,
    waiting INTEGER NOT NULL, checksum INTEGER NOT NULL
);
CREATE TABLE waiting (
    sequence INTEGER PRIMARY KEY, body BLOB NOT NULL, keys BLOB NOT NULL, insecure INTEGER NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE TABLE refused (sequence INTEGER PRIMARY KEY, body BLOB NOT NULL, code TEXT NOT NULL, message TEXT NOT NULL);
CREATE TABLE reserve (room BLOB NOT NULL);
"""
RESERVE_BYTES = 65_536
"""The room on the disk that an outbox keeps to remove notifications, one by one, when the disk is full."""


@dataclass(frozen=True, slots=True)
class Post:
    """A notification to be published.

    Args:
        body: the encoded notification.
        keys: that go with it; None: none.
        insecure: whether it is delivered also where no keys meet.
    """

    body: bytes
    keys: list[Key] | None = None
    insecure: bool = True


@dataclass(frozen=True, slots=True)
class RefusedNotification:
    """A notification that was refused for good, as it is kept in the file.

    Args:
        sequence: its number within the producer's incarnation, which is the outbox.
        body: the encoded notification.
        code, message: of the refusal.
    """

    sequence: int
    body: bytes
    code: str
    message: str


class OutboxFile:
    """An open file.

    Args:
        path: of the file, which is made if it is not there.
        producer: the name under which is published, that of the file, if there is one; None: that of the file, which
            has to be there.
        max_bytes: the most that may wait, in bytes of encoded notifications.

    Raises:
        BadArgument: there can be no file, it is no outbox, is that of another producer, or another process has it open.
        NotFound: there is no file, and `producer` is None.
        StoreDamaged, StoreFailed: it cannot be read or written.
    """

    def __init__(self, path: Path, producer: str | None, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self.producer = self.secret = self.federation = ""
        self.count = self._bytes = self._next = 0
        if producer is None and not path.exists():
            raise NotFound(f"there is no outbox {path}", field="path")
        try:
            # It has the producer's secret, and raw keys. One that is there is not opened but by SQLite: to close a file
            # gives all locks of a process on it back.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            if not path.is_file():
                raise BadArgument(f"{path} cannot be an outbox: it is no file", field="path") from None
        except OSError as error:
            raise BadArgument(f"{path} cannot be an outbox: {error.strerror}", field="path") from None
        with self._translated():
            self._database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            with self._translated():
                self._open(producer)
        except BaseException:
            self._database.close()
            raise

    def _open(self, producer: str | None) -> None:
        self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._database.execute("PRAGMA synchronous = FULL")
        # The rollback journal keeps its room: a removal has to have some.
        self._database.execute("PRAGMA journal_mode = PERSIST")
        with self._transaction():
            (application,) = self._database.execute("PRAGMA application_id").fetchone()
            (tables,) = self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if application != APPLICATION_ID if tables else producer is None:
                raise BadArgument(f"{self._path} is no outbox", field="path")
            if not tables:
                for statement in _TABLES.split(";"):
                    self._database.execute(statement)
                self._database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                self._database.execute(f"PRAGMA user_version = {FORM}")
                values = (producer, new_secret(), "", 0, 0)
                self._database.execute("INSERT INTO identity VALUES (?, ?, ?, ?, ?, ?)", (*values, _check_of(values)))
                self._database.execute("INSERT INTO reserve VALUES (zeroblob(?))", (RESERVE_BYTES,))
            (form,) = self._database.execute("PRAGMA user_version").fetchone()
            if form != FORM:
                raise BadArgument(f"{self._path} has form {form}, and this release knows {FORM}", field="path")
            self._check_integrity()
            ((*values, check),) = self._database.execute("SELECT * FROM identity").fetchall()
            if _check_of(values) != check:
                raise StoreDamaged(f"{self._path} returns its identity other than it was written")
            self.producer, self.secret, self.federation, self._next, known = values
            if producer not in (None, self.producer):
                raise BadArgument(f"{self._path} is the outbox of producer {self.producer}", field="producer")
            self.count, self._bytes = self._database.execute(
                "SELECT count(*), coalesce(sum(length(body)), 0) FROM waiting"
            ).fetchone()
            if self.count != known:
                raise StoreDamaged(f"{self._path} has {self.count} of the {known} notifications that wait in it")
        self._reserve()

    def _reserve(self) -> None:
        """Have the rollback journal as large as RESERVE_BYTES, by a change of so many; where the disk is full, the next
        opening does.
        """
        journal = self._path.with_name(f"{self._path.name}-journal")
        if not journal.exists() or journal.stat().st_size < RESERVE_BYTES:
            with suppress(StoreFailed), self._translated(), self._transaction():
                self._database.execute("UPDATE reserve SET room = randomblob(?)", (RESERVE_BYTES,))

    def _check_integrity(self) -> None:
        (found,) = self._database.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise StoreDamaged(f"{self._path}: {found}")

    def close(self) -> None:
        """Close the file; another process may open it."""
        self._database.close()

    def append(self, posts: Sequence[Post]) -> int:
        """Write notifications behind all others; return the sequence number of the first one. The others have the next
        ones. Blocks until the disk has them.

        Raises:
            LimitExceeded: more bytes would wait than `max_bytes`; none is written.
            StoreFailed: the disk did not take them; none is written.
        """
        size = sum(len(post.body) for post in posts)
        if self._bytes + size > self._max_bytes:
            raise LimitExceeded(
                f"{self.count} notifications wait in {self._path}, and {self._max_bytes} bytes are the most",
                hint="they are sent on when a proxy can be reached whose site log takes them",
            )
        first = self._next
        rows = [
            (*values, _check_of(values))
            for sequence, post in enumerate(posts, first)
            for values in [(sequence, post.body, msgspec.msgpack.encode(post.keys), int(post.insecure))]
        ]
        with self._translated(), self._transaction():
            self._database.executemany("INSERT INTO waiting VALUES (?, ?, ?, ?, ?)", rows)
            self._write_identity(self.federation, first + len(rows), self.count + len(rows))
        self._next, self.count, self._bytes = first + len(rows), self.count + len(rows), self._bytes + size
        return first

    def read(self, first: int, limit: int) -> list[tuple[int, Post]]:
        """Return up to `limit` notifications that wait, from sequence number `first` on, ascending, each with its
        number. They stay in the file. Blocks on the disk.

        One that is not as it was written is moved to the refused ones.

        Raises:
            StoreDamaged: SQLite returns damaged rows, or rows out of order.
            StoreFailed: the file cannot be read or written.
        """
        found: list[tuple[int, Post]] = []
        with self._translated():
            rows = self._database.execute(
                "SELECT sequence, body, keys, insecure, checksum FROM waiting"
                " WHERE sequence >= ? ORDER BY sequence LIMIT ?",
                (first, limit),
            ).fetchall()
            for sequence, *values, check in rows:
                if sequence < first or (found and sequence <= found[-1][0]):
                    raise StoreDamaged(f"{self._path} returns notification {sequence} out of order")
                try:
                    if _check_of((sequence, *values)) != check:
                        raise ValueError("checksum")
                    body, keys, insecure = values
                    found.append((sequence, Post(body, _KEYS.decode(keys), bool(insecure))))
                except (ValueError, TypeError, msgspec.MsgspecError):
                    self.refuse(sequence, StoreDamaged(f"{self._path} returns it other than it was written"))
        return found

    def remove(self, sequences: Sequence[int]) -> None:
        """Remove the notifications of these sequence numbers from those that wait: a site log has them. A number that
        does not wait is ignored. Blocks until the disk has the change. Raises StoreFailed: none is removed.
        """
        with self._translated(), self._transaction():
            sizes = self._delete(sequences)
        self._count_less(sizes)

    def refuse(self, sequence: int, error: WaypostError) -> None:
        """Move a waiting notification that was refused for good to the refused ones, with code and message of the
        error. Blocks until the disk has the change.

        Args:
            sequence: its sequence number; one that does not wait is ignored.
            error: the refusal; it is stored, and not raised.

        Raises:
            StoreFailed: nothing is changed.
        """
        with self._translated(), self._transaction():
            self._database.execute(
                "INSERT OR IGNORE INTO refused SELECT sequence, body, ?, ? FROM waiting WHERE sequence = ?",
                (error.code, error.message, sequence),
            )
            sizes = self._delete([sequence])
        self._count_less(sizes)

    def refused(self, limit: int) -> list[RefusedNotification]:
        """Return up to `limit` of the notifications that were refused, those of the lowest sequence numbers first;
        empty: there are none. They stay in the file. Blocks on the disk. Raises StoreFailed: the file cannot be read.
        """
        with self._translated():
            rows = self._database.execute(
                "SELECT sequence, body, code, message FROM refused ORDER BY sequence LIMIT ?", (limit,)
            ).fetchall()
        return [RefusedNotification(*row) for row in rows]

    def forget_refused(self, sequences: Sequence[int]) -> None:
        """Remove refused notifications, by their sequence numbers, once they were looked at. A number that was not
        refused is ignored. Blocks until the disk has the change. Raises StoreFailed: none is removed.
        """
        with self._translated(), self._transaction():
            self._database.executemany(
                "DELETE FROM refused WHERE sequence = ?", [(sequence,) for sequence in sequences]
            )

    def set_federation(self, federation: str) -> None:
        """Write down the identity of the federation in which the outbox publishes. Blocks until the disk has it. Raises
        StoreFailed: nothing is changed.
        """
        with self._translated(), self._transaction():
            self._write_identity(federation, self._next, self.count)
        self.federation = federation

    def _write_identity(self, federation: str, following: int, waiting: int) -> None:
        values = (self.producer, self.secret, federation, following, waiting)
        self._database.execute(
            "UPDATE identity SET federation = ?, next = ?, waiting = ?, checksum = ?",
            (federation, following, waiting, _check_of(values)),
        )

    def _delete(self, sequences: Sequence[int]) -> list[int]:
        """Delete those of them that wait; return their sizes."""
        statement = "DELETE FROM waiting WHERE sequence = ? RETURNING length(body)"
        sizes = [size for sequence in sequences for (size,) in self._database.execute(statement, (sequence,))]
        self._write_identity(self.federation, self._next, self.count - len(sizes))
        return sizes

    def _count_less(self, sizes: Sequence[int]) -> None:
        self.count, self._bytes = self.count - len(sizes), self._bytes - sum(sizes)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._database.in_transaction:
                # A full disk may have ended it already.
                self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Name errors of the disk and of SQLite as ours."""
        try:
            yield
        except WaypostError:
            raise
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                raise BadArgument(
                    f"{self._path} is open already, in this process or another one", field="path"
                ) from None
            raise StoreFailed(f"{self._path}: {error}") from None
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
                raise BadArgument(f"{self._path} is no outbox", field="path") from None
            raise StoreDamaged(f"{self._path}: {error}") from None
        except OSError as error:
            raise StoreFailed(f"{self._path}: {error.strerror}") from None
        except (UnicodeDecodeError, TypeError, ValueError) as error:
            # SQLite says of a damaged value that it is of another type, or no text.
            raise StoreDamaged(f"{self._path}: {error}") from None


def _check_of(values: Sequence[object]) -> int:
    """Return the checksum of a row: of all that is in it, each value with its type."""
    check: int = checksum(msgspec.msgpack.encode(list(values)))
    return check


_KEYS = msgspec.msgpack.Decoder(list[Key] | None)
