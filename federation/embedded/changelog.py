"""The embedded changelog: of each session the last checkpoint of owners, and a first one above it; and the site's."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from federation.embedded.database import DatabaseThread, GroupCommit, translated, write
from federation.ports import SiteSnapshot
from waypost.checkpoint import Checkpoint, Rank, decode_checkpoint, encode_checkpoint
from waypost.errors import BadConfiguration, BadRecord, LogUnavailable
from waypost.identity import SessionId

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS checkpoints (session TEXT NOT NULL, is_first INTEGER NOT NULL, epoch INTEGER NOT NULL,"
    " serial INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (session, is_first)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS site (only INTEGER PRIMARY KEY CHECK (only = 0), position INTEGER NOT NULL,"
    " body BLOB NOT NULL, log_epoch INTEGER NOT NULL)",
)
PUT = "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?, ?)"
HIGHEST = "SELECT epoch, serial FROM checkpoints WHERE session = ? AND is_first <= ? ORDER BY epoch DESC, serial DESC"
IS_FIRST = "SELECT name FROM pragma_table_info('checkpoints') WHERE name = 'is_first'"
LATEST = "SELECT epoch, body FROM checkpoints WHERE session = ? ORDER BY is_first"
FORGET = "DELETE FROM checkpoints WHERE session = ? AND epoch <= ?"
PUT_SITE = """
INSERT INTO site VALUES (0, ?, ?, ?)
ON CONFLICT (only) DO UPDATE SET position = excluded.position, body = excluded.body, log_epoch = excluded.log_epoch
WHERE (excluded.log_epoch, excluded.position) > (log_epoch, position)
"""

Row = tuple[str, int, int, bytes]


class EmbeddedChangelog:
    """The changelog in a file.

    Args:
        path: of the file.
        durable: write every commit through to the disk.
        make: make the file if it is missing. Another site's must exist: an empty one in its place would state that no
            session was ever stored there (P5).
    """

    def __init__(self, path: Path | str, *, durable: bool = True, make: bool = True) -> None:
        self._path = Path(path)
        self._make = make
        self._writer = DatabaseThread(self._path, SCHEMA, durable=durable)
        self._reader = DatabaseThread(self._path, SCHEMA, durable=durable)
        self._puts: GroupCommit[Row, Rank | None] = GroupCommit(self._writer, _put)

    async def start(self) -> None:
        """Open the file now and not at the first use.

        Raises:
            LogUnavailable: the file does not open, or is missing and is not to be made.
            BadConfiguration: the file is of an earlier build, and cannot be read.
        """
        if not self._make and not self._path.exists():
            raise LogUnavailable(
                f"there is no changelog {self._path}",
                hint="embedded parts are shared by the processes of one machine; between machines use Kafka",
            )
        with self._translated():
            columns = await self._reader.call(lambda connection: connection.execute(IS_FIRST).fetchall())
        if not columns:
            raise BadConfiguration(
                f"{self._path} is of an earlier build and cannot be read",
                hint="remove it while all proxies of the site are stopped: they write it again from their stores",
            )
        await self.latest(SessionId(""))

    async def put(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint; return once it is written (:meth:`federation.ports.Changelog.put`). A first checkpoint
        (`is_first`) whose rank is there already is not written again, and is no error.

        Raises:
            CheckpointOutdated: there is one that counts more, or an owner's of the same rank (handover rule 19);
                nothing was written.
            LogUnavailable: it is not known whether the checkpoint was written.
        """
        row = (checkpoint.session, checkpoint.epoch, checkpoint.serial, encode_checkpoint(checkpoint))
        with self._translated():
            highest = await self._puts.submit(row)
        if highest is not None:
            checkpoint.check_above(highest)

    async def latest(self, session: SessionId) -> tuple[Checkpoint, ...]:
        """Return the checkpoints of the session that count, all that were acknowledged before the call included
        (:meth:`federation.ports.Changelog.latest`).

        Returns:
            The highest one by rank that an owner wrote, if there is one; behind it a first one (`is_first`), if it is
            higher. Empty: there is no checkpoint of the session.

        Raises:
            BadRecord: one that counts is damaged.
            LogUnavailable: the storage does not answer.
        """
        with self._translated():
            bodies = await self._reader.call(lambda connection: _latest(connection, session))
        found = tuple(map(decode_checkpoint, bodies))
        if any(checkpoint.session != session for checkpoint in found):
            raise BadRecord(f"the checkpoint of session {session} is damaged: it is of another one")
        return found

    async def forget(self, deleted: Mapping[SessionId, int]) -> None:
        """Remove the checkpoints of deleted sessions, each up to the given epoch, inclusive; none there is no error.
        Raises LogUnavailable: any of them may have been removed (:meth:`federation.ports.Changelog.forget`).
        """
        rows = list(deleted.items())
        with self._translated():
            await self._writer.call(
                lambda connection: write(connection, lambda: connection.executemany(FORGET, rows).rowcount)
            )

    async def lost(self) -> None:
        """Wait for ever: a file loses nothing, or all at once, which every read reports
        (:meth:`federation.ports.Changelog.lost`).
        """
        await asyncio.get_running_loop().create_future()

    async def put_site(self, snapshot: SiteSnapshot) -> None:
        """Write a snapshot of the site's state; one whose rank is not higher than that of the snapshot there changes
        nothing. Raises LogUnavailable: the snapshot may have been written all the same
        (:meth:`federation.ports.Changelog.put_site`).
        """
        row = (snapshot.position, snapshot.state, snapshot.log_epoch)
        with self._translated():
            await self._writer.call(
                lambda connection: write(connection, lambda: connection.execute(PUT_SITE, row).rowcount)
            )

    async def latest_site(self) -> SiteSnapshot | None:
        """Return the snapshot of the site's state with the highest rank; None: there is none. Raises LogUnavailable
        (:meth:`federation.ports.Changelog.latest_site`).
        """
        with self._translated():
            row = await self._reader.call(
                lambda connection: connection.execute("SELECT position, body, log_epoch FROM site").fetchone()
            )
        return SiteSnapshot(*row) if row else None

    async def close(self) -> None:
        """Finish the writes under way, and close this handle; a later call raises LogUnavailable. What was written
        stays.
        """
        await self._puts.drain()
        await self._writer.close()
        await self._reader.close()

    def _translated(self) -> AbstractContextManager[None]:
        return translated(LogUnavailable, "the changelog", self._path)


def _put(connection: sqlite3.Connection, rows: list[Row]) -> list[Rank | None]:
    """Write them. Return of each one None, or the highest rank of its session, where it was not written."""
    return [_put_one(connection, row) for row in rows]


def _put_one(connection: sqlite3.Connection, row: Row) -> Rank | None:
    """A late write of an old owner finds the higher rank there and changes nothing (handover rule 19)."""
    session, epoch, serial, body = row
    is_first = serial == 0
    highest: Rank | None = connection.execute(HIGHEST, (session, is_first)).fetchone()
    if highest is not None and highest >= (epoch, serial):
        return highest
    connection.execute(PUT, (session, is_first, epoch, serial, body))
    return None


def _latest(connection: sqlite3.Connection, session: SessionId) -> list[bytes]:
    """Return the highest one of an owner, and a first one above it."""
    rows = connection.execute(LATEST, (session,)).fetchall()
    return [body for place, (epoch, body) in enumerate(rows) if not place or epoch > rows[0][0]]
