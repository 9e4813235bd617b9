"""Integrity of a store: a checksum of every row, and SQLite's own check of the whole file.

An altered row shows by its checksum; one that is gone, or that a search passes over, by SQLite's check, index by index.
A store in which anything is wrong is not used: it is kept aside, and all that it held is rebuilt from changelog and
logs.
"""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from waypost.checksum import checksum
from waypost.errors import StoreDamaged

_encode = msgspec.msgpack.Encoder().encode
Value = int | str | bytes | None


def with_checksum(*values: Value) -> tuple[Value, ...]:
    """Return a row's values with their checksum, an int, as the last one."""
    return (*values, seal_of(*values))


def seal_of(*values: Value) -> int:
    """Return the checksum of a row's values."""
    sealed: int = checksum(_encode(values))
    return sealed


def verify(what: str, seal: int, *values: Value) -> None:
    """Compare a row's values with their checksum, `seal`. Raises StoreDamaged, which names the row by `what`."""
    if seal != checksum(_encode(values)):
        raise StoreDamaged(f"the checksum of {what} is wrong")


def check(connection: sqlite3.Connection) -> None:
    """Check the whole file: SQLite's own check, and that no entries are to be removed which a session still needs.

    Raises:
        StoreDamaged: something is wrong; the message says what.
    """
    found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(3)")]
    if found != ["ok"]:
        raise StoreDamaged("; ".join(" ".join(line.split()) for line in found))
    query = "SELECT copy FROM gone JOIN session USING (copy) WHERE below > first"
    for (copy,) in connection.execute(query):
        raise StoreDamaged(f"entries of copy {copy} are to go, which it still needs")


def mark_of(path: Path) -> Path:
    """Return the marker file that exists while the store at `path` is damaged."""
    return path.with_suffix(".damaged")


def condemn(path: Path, error: StoreDamaged) -> None:
    """Write the marker that the store at `path` is damaged, with the error's message, so that the store is not used
    after a crash either. Raises OSError: the marker cannot be written.
    """
    mark_of(path).write_text(f"{error.message}\n", encoding="utf-8")


def condemned(path: Path) -> None:
    """Check that the store at `path` has no marker of :func:`condemn`. Raises StoreDamaged: there is one."""
    if mark_of(path).exists():
        raise StoreDamaged(mark_of(path).read_text(encoding="utf-8").strip())


def set_aside(path: Path) -> Path:
    """Rename the files of the store at `path`, with the time in the new names, and remove the marker of
    :func:`condemn`; return the new path of the database. The store must be closed. Raises OSError: a file cannot be
    renamed.
    """
    kept = path.with_name(f"{path.stem}-damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}{path.suffix}")
    for end in ("-wal", "-shm", ""):
        file = path.with_name(path.name + end)
        if file.exists():
            file.rename(kept.with_name(kept.name + end))
    mark_of(path).unlink(missing_ok=True)
    return kept
