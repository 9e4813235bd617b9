"""The embedded site log: one SQLite file per site, offsets from 0 without a gap.

What is damaged or missing there is a record too (:class:`waypost.records.Damaged`), at its offset.

Why a tail misses nothing: an offset is assigned under the file's write lock and becomes visible with its
commit, so that offsets become visible in their order. A reader that has seen offset n has seen all below.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from federation.embedded.database import DatabaseThread, GroupCommit, is_damage, translated, write
from federation.ports import Batch
from federation.versioned_condition import VersionedCondition
from waypost.errors import HistoryTruncated, LogReplaced, LogUnavailable
from waypost.limits import LOG_BATCH, LOG_READ_BYTES
from waypost.records import MISSING, SITE_LOG_DDL, Damaged, Record, decode_record, encode_record, position_tag

SCHEMA = (
    SITE_LOG_DDL,
    "CREATE TABLE IF NOT EXISTS kept (one INTEGER PRIMARY KEY CHECK (one = 1), first INTEGER NOT NULL)",
    "INSERT OR IGNORE INTO kept VALUES (1, 0)",
)
ROWS = "SELECT offset, record, place FROM log WHERE offset"
CASTED = "SELECT offset, CAST(record AS BLOB), CAST(place AS INTEGER) FROM log WHERE offset"
"""The query for records whose types damage may have changed."""
OFFSETS = (1 << 63) - 1
"""Above every offset."""


class EmbeddedSiteLog:
    """The site log in the file `path`, which the processes of this machine share.

    An acknowledged append survives `kill -9`; with `durable` a power cut too, for one fsync per group of
    concurrent appends.
    """

    def __init__(self, path: Path | str, *, durable: bool = True) -> None:
        self._path = Path(path)
        self._writer = DatabaseThread(self._path, SCHEMA, durable=durable)
        self._reader = DatabaseThread(self._path, SCHEMA, durable=durable)
        self._appends: GroupCommit[list[bytes], range] = GroupCommit(self._writer, _append)
        self._changed = VersionedCondition()
        self._polling = False

    async def start(self) -> None:
        """Open the file now and not at the first use; it and missing folders are made. Raises LogUnavailable."""
        await self.end_offset()

    async def append(self, records: Sequence[Record]) -> list[int]:
        """Append records in this order; return their offsets once the records survive a crash
        (:meth:`federation.ports.SiteLog.append`). Without records nothing is done.

        Raises:
            LogUnavailable: the file cannot be written: the records may have been appended all the same.
        """
        if not records:
            return []
        with self._translated():
            offsets = await self._appends.submit([encode_record(record) for record in records])
        self._changed.notify()
        return list(offsets)

    async def tail(self, offset: int) -> AsyncIterator[Batch]:
        """Yield every record from `offset` on, for ever, in batches that are not empty
        (:meth:`federation.ports.SiteLog.tail`).

        Raises:
            HistoryTruncated: `offset` is older than the first record kept.
            LogReplaced: the log ends before `offset`.
            LogUnavailable: this handle was closed, or the file cannot be read.
        """
        if not self._polling:
            self._polling = True
            self._reader.notify(self._changed.notify)
        while True:
            seen = self._changed.version
            batch = await self.read(offset, LOG_BATCH)
            if batch:
                yield batch
                offset = batch[-1][0] + 1
                continue
            end = await self.end_offset()
            if end < offset:
                raise LogReplaced(f"the log ends at {end}, and was read up to {offset}", end=end)
            if end == offset:
                await self._changed.wait(seen)

    async def read(self, offset: int, limit: int) -> Batch:
        """Return up to `limit` records from `offset` on, with their offsets, ascending; empty: the log has none yet
        (:meth:`federation.ports.SiteLog.read`).

        It ends before a record that is damaged or missing, and after LOG_READ_BYTES bytes. A damaged or missing record
        at `offset` itself is returned alone, as :class:`waypost.records.Damaged`.

        Raises:
            HistoryTruncated: `offset` is older than the first record kept.
            LogUnavailable: the storage does not answer, or this handle is closed.
        """
        with self._translated():
            return await self._reader.call(lambda connection: _read(connection, offset, limit))

    async def first_offset(self) -> int:
        """Return the offset of the first record kept; if none is, that of the next one. Raises LogUnavailable
        (:meth:`federation.ports.SiteLog.first_offset`).
        """
        with self._translated():
            return await self._reader.call(_first)

    async def end_offset(self) -> int:
        """Return the end of the log: the offset that the next record will have. Raises LogUnavailable
        (:meth:`federation.ports.SiteLog.end_offset`).
        """
        with self._translated():
            return await self._reader.call(_end)

    @property
    def seen_below(self) -> int:
        """Always 0: it is not counted, because a file loses no end (:attr:`federation.ports.SiteLog.seen_below`)."""
        return 0

    async def interrupted(self) -> None:
        """Wait for ever: a log in a file is never interrupted (:meth:`federation.ports.SiteLog.interrupted`)."""
        await asyncio.get_running_loop().create_future()

    def resume(self) -> None:
        """Do nothing: a log in a file is never interrupted (:meth:`federation.ports.SiteLog.resume`)."""

    async def truncate(self, before: int) -> None:
        """Remove the records below offset `before` for good, as retention does; the log's end stays. Raises
        LogUnavailable.
        """
        with self._translated():
            await self._writer.call(lambda c: write(c, lambda: _truncate(c, before)))

    async def close(self) -> None:
        """Finish the appends under way, and close this handle; every tail that waits ends with LogUnavailable. The log
        stays.
        """
        await self._appends.drain()
        await self._writer.close()
        await self._reader.close()
        self._changed.notify()

    def _translated(self) -> AbstractContextManager[None]:
        way_out = "bring back a copy of it, or move it away and begin another one: waypost sites begin-log SITE"
        return translated(LogUnavailable, "the site log", self._path, way_out)


def _append(connection: sqlite3.Connection, appends: list[list[bytes]]) -> list[range]:
    """Assign offsets and insert; called under the write lock."""
    start = end = _end(connection)
    offsets = []
    for blobs in appends:
        offsets.append(range(end, end + len(blobs)))
        end += len(blobs)
    rows = enumerate((blob for blobs in appends for blob in blobs), start)
    # Bytes behind the end were put there by damage, and would be in the way.
    connection.execute("DELETE FROM log WHERE offset >= ?", (start,))
    connection.executemany(
        "INSERT INTO log (offset, record, place) VALUES (?, ?, ?)",
        ((offset, blob, position_tag(blob, offset)) for offset, blob in rows),
    )
    return offsets


def _read(connection: sqlite3.Connection, offset: int, limit: int) -> Batch:
    """Return what stands there, up to what is damaged or missing; that is read again, alone, before it is believed."""
    first = _first(connection)
    if offset < first:
        raise HistoryTruncated(f"offset {offset} is gone; the log begins at {first}", first=first)
    try:
        rows = _bounded(connection.execute(f"{ROWS} >= ? ORDER BY offset LIMIT ?", (offset, limit)))
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        rows = []
    batch = _whole(rows, offset)
    if batch or offset >= _end(connection):
        return batch
    return [(offset, _read_again(connection, offset))]


def _bounded(found: Iterable[tuple[int, bytes, int]]) -> list[tuple[int, bytes, int]]:
    """Return the first of these rows, as many bytes as are read in one go."""
    rows: list[tuple[int, bytes, int]] = []
    size = 0
    for row in found:
        rows.append(row)
        size += len(row[1]) if type(row[1]) is bytes else 0
        if size >= LOG_READ_BYTES:
            break
    return rows


def _whole(rows: Iterable[tuple[int, bytes, int]], offset: int) -> Batch:
    """Return the records of these rows, from `offset` on, up to the first that is not as it should be."""
    batch: Batch = []
    for expected, (at, blob, place) in enumerate(rows, offset):
        if at != expected or type(blob) is not bytes or place != position_tag(blob, at):
            break
        record = decode_record(blob)
        if type(record) is Damaged:
            break
        batch.append((at, record))
    return batch


def _read_again(connection: sqlite3.Connection, offset: int) -> Record:
    """Read one record that is not as it should be, past what the connection remembers of the file."""
    connection.execute("PRAGMA shrink_memory")
    try:
        row = connection.execute(f"{CASTED} = ?", (offset,)).fetchone()
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return Damaged(str(error))
    if row is None:
        return MISSING
    return next((record for _, record in _whole([row], offset)), Damaged("its checksum is wrong"))


def _first(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT first FROM kept").fetchone()[0])


def _end(connection: sqlite3.Connection) -> int:
    """Return where the log ends. A last record that does not say that it stands there may be one that damage moved."""
    below = OFFSETS
    while True:
        rows = connection.execute(f"{CASTED} < ? ORDER BY offset DESC LIMIT 2", (below,)).fetchall()
        if not rows:
            # A log that was truncated to its very end goes on where it was.
            return _first(connection)
        last = rows[0][0]
        if _whole(rows[:1], last) or len(rows) == 1 or rows[1][0] == last - 1:
            return int(last) + 1
        below = last


def _truncate(connection: sqlite3.Connection, before: int) -> None:
    first = min(before, _end(connection))
    connection.execute("UPDATE kept SET first = max(first, ?)", (first,))
    connection.execute("DELETE FROM log WHERE offset < ?", (first,))
