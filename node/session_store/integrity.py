"""Whether a store is what was written: a checksum of every row, and of the file as a whole what SQLite itself can see.

A row that is altered shows by its checksum; one that is gone, or that a search passes over, by what SQLite's own check
finds, index by index. Nothing of a store in which anything is wrong is used: it is kept aside, and all that it held is
rebuilt from changelog and logs.
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
    """Return a row's values with their checksum behind them."""
    return (*values, checksum(_encode(values)))


def verify(what: str, seal: int, *values: Value) -> None:
    """Raises StoreDamaged: the row is not what was written."""
    if seal != checksum(_encode(values)):
        raise StoreDamaged(f"the checksum of {what} is wrong")


def check(connection: sqlite3.Connection) -> None:
    """Look at the whole file. Raises StoreDamaged."""
    found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(3)")]
    if found != ["ok"]:
        raise StoreDamaged("; ".join(" ".join(each.split()) for each in found))
    query = "SELECT copy FROM gone JOIN session USING (copy) WHERE below > first"
    for (copy,) in connection.execute(query):
        raise StoreDamaged(f"entries of copy {copy} are to go, which it still needs")


def mark_of(path: Path) -> Path:
    """Return the file whose being there says that the store at `path` is damaged."""
    return path.with_suffix(".damaged")


def condemn(path: Path, error: StoreDamaged) -> None:
    """Have the store that is there be used no more, also after a crash."""
    mark_of(path).write_text(f"{error.message}\n", encoding="utf-8")


def condemned(path: Path) -> None:
    """Raises StoreDamaged: that was said before."""
    if mark_of(path).exists():
        raise StoreDamaged(mark_of(path).read_text(encoding="utf-8").strip())


def set_aside(path: Path) -> Path:
    """Give the store's files another name, with the time in it; return it."""
    kept = path.with_name(f"{path.stem}-damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}{path.suffix}")
    for end in ("-wal", "-shm", ""):
        file = path.with_name(path.name + end)
        if file.exists():
            file.rename(kept.with_name(kept.name + end))
    mark_of(path).unlink(missing_ok=True)
    return kept
