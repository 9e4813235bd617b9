"""The embedded site log: one SQLite file per site, offsets from 0 without a gap.

Why a tail misses nothing: an offset is assigned under the file's write lock and becomes visible with its
commit, so that offsets become visible in their order. A reader that has seen offset n has seen all below.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from federation.bell import Bell
from federation.embedded.database import DatabaseThread, GroupCommit, translated, write
from federation.ports import Batch
from waypost.errors import HistoryTruncated, LogReplaced, LogUnavailable
from waypost.limits import LOG_BATCH
from waypost.records import SITE_LOG_DDL, Record, decode_record, encode_record

SCHEMA = (
    SITE_LOG_DDL,
    "CREATE TABLE IF NOT EXISTS kept (one INTEGER PRIMARY KEY CHECK (one = 1), first INTEGER NOT NULL)",
    "INSERT OR IGNORE INTO kept VALUES (1, 0)",
)


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
        self._bell = Bell()
        self._polling = False

    async def start(self) -> None:
        """Open the file now and not at the first use. Raises LogUnavailable."""
        await self.end()

    async def append(self, records: Sequence[Record]) -> list[int]:
        if not records:
            return []
        with self._translated():
            offsets = await self._appends.submit([encode_record(record) for record in records])
        self._bell.ring()
        return list(offsets)

    async def tail(self, offset: int) -> AsyncIterator[Batch]:
        if not self._polling:
            self._polling = True
            self._reader.notify(self._bell.ring)
        while True:
            seen = self._bell.rung
            batch = await self.read(offset, LOG_BATCH)
            if batch:
                yield batch
                offset = batch[-1][0] + 1
                continue
            end = await self.end()
            if end < offset:
                raise LogReplaced(f"the log ends at {end}, and was read up to {offset}")
            if end == offset:
                await self._bell.wait(seen)

    async def read(self, offset: int, limit: int) -> Batch:
        with self._translated():
            return await self._reader.call(lambda connection: _read(connection, offset, limit))

    async def first(self) -> int:
        with self._translated():
            return await self._reader.call(_first)

    async def end(self) -> int:
        with self._translated():
            return await self._reader.call(_end)

    async def truncate(self, before: int) -> None:
        """Forget the records below offset `before`."""
        with self._translated():
            await self._writer.call(lambda c: write(c, lambda: _truncate(c, before)))

    async def close(self) -> None:
        """Finish the appends under way; every tail that waits ends with LogUnavailable."""
        await self._appends.drain()
        await self._writer.close()
        await self._reader.close()
        self._bell.ring()

    def _translated(self) -> AbstractContextManager[None]:
        return translated(LogUnavailable, "the site log", self._path)


def _append(connection: sqlite3.Connection, appends: list[list[bytes]]) -> list[range]:
    """Assign offsets and insert; called under the write lock."""
    start = end = _end(connection)
    offsets = []
    for blobs in appends:
        offsets.append(range(end, end + len(blobs)))
        end += len(blobs)
    rows = enumerate((blob for blobs in appends for blob in blobs), start)
    connection.executemany("INSERT INTO log (offset, record) VALUES (?, ?)", rows)
    return offsets


def _read(connection: sqlite3.Connection, offset: int, limit: int) -> Batch:
    query = "SELECT offset, record FROM log WHERE offset >= ? ORDER BY offset LIMIT ?"
    rows = connection.execute(query, (offset, limit)).fetchall()
    if not rows or rows[0][0] != offset:
        first = _first(connection)
        if offset < first:
            raise HistoryTruncated(f"offset {offset} is gone; the log begins at {first}", first=first)
    return [(at, decode_record(blob)) for at, blob in rows]


def _first(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT first FROM kept").fetchone()[0])


def _end(connection: sqlite3.Connection) -> int:
    last = connection.execute("SELECT max(offset) FROM log").fetchone()[0]
    # A log that was truncated to its very end goes on where it was.
    return _first(connection) if last is None else int(last) + 1


def _truncate(connection: sqlite3.Connection, before: int) -> None:
    first = min(before, _end(connection))
    connection.execute("UPDATE kept SET first = max(first, ?)", (first,))
    connection.execute("DELETE FROM log WHERE offset < ?", (first,))
