"""The session store on the proxy's own disk: one SQLite file, used by one process.

A notification is stored once, however many sessions have it; it is removed with the last entry that refers to it.

Every copy of a session that this proxy ever had has a number of its own. A copy that ends, or the oldest entries of
one, are noted in `gone` by the transaction that ends them, and removed in pieces between other writes: a million
entries that go at once hold up nobody. After a crash the rest is removed likewise.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import msgspec

from federation.embedded.database import DatabaseThread, is_damage, write
from node.session_store import integrity
from node.session_store.integrity import seal_of, verify, with_checksum
from node.session_store.loader import SESSION_ROW, load
from node.session_store.matchings import Matchings, digest_of, matching_text
from proxy.core.store_port import (
    NOWHERE,
    Outdated,
    Restored,
    SessionChange,
    StoreBatch,
    Swept,
)
from proxy.session.retention import Window
from proxy.session.stored_notification import Entry, StoredNotification
from proxy.session.subscription import Matched
from waypost import cancellation
from waypost.errors import StoreDamaged, StoreFailed
from waypost.identity import Origin, SessionId
from waypost.keys import Key
from waypost.limits import ENTRIES_EXAMINED, ORIGINS_PASSED, READ_BYTES, STORE_TRIM

T = TypeVar("T")
_MISREAD = (ValueError, TypeError, msgspec.MsgspecError)
_Shared = dict[int, tuple[integrity.Value, ...]]
ALL = 1 << 62
"""Above every number."""
SCHEMA = (
    """CREATE TABLE IF NOT EXISTS place (
        one INTEGER PRIMARY KEY CHECK (one = 1), position INTEGER, acceptance BLOB,
        site_position INTEGER, site_acceptance BLOB, site_state BLOB,
        seal INTEGER, site_seal INTEGER, state_seal INTEGER)""",
    """CREATE TABLE IF NOT EXISTS session (
        id TEXT PRIMARY KEY, copy INTEGER UNIQUE, epoch INTEGER, role TEXT, first INTEGER, next INTEGER, gates TEXT,
        source TEXT, checkpointed INTEGER, serial INTEGER, seal INTEGER, descriptor TEXT, descriptor_seal INTEGER)""",
    """CREATE TABLE IF NOT EXISTS notification (
        id INTEGER PRIMARY KEY, origin TEXT, offset INTEGER, delivery BLOB, keys BLOB, seal INTEGER,
        UNIQUE (origin, offset))""",
    # Many entries match the same subscriptions, whose names may be long.
    "CREATE TABLE IF NOT EXISTS matching (id INTEGER PRIMARY KEY, digest BLOB UNIQUE, matched TEXT)",
    """CREATE TABLE IF NOT EXISTS entry (
        copy INTEGER, number INTEGER, notification INTEGER, matching INTEGER, seal INTEGER,
        PRIMARY KEY (copy, number)) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS entry_notification ON entry (notification)",
    "CREATE TABLE IF NOT EXISTS gone (copy INTEGER PRIMARY KEY, below INTEGER)",
    """CREATE TABLE IF NOT EXISTS mark (
        copy INTEGER, below INTEGER, at_ms INTEGER, seal INTEGER, PRIMARY KEY (copy, below)) WITHOUT ROWID""",
)


class SqliteSessionStore:
    """The port :class:`proxy.core.store_port.SessionStore` on the file `path`.

    A transaction survives `kill -9`. With `durable` it survives a power cut too; without, the last transactions may be
    missing after a power cut, which costs a catch-up from the site log and nothing else.
    """

    def __init__(self, path: Path | str, *, durable: bool = False) -> None:
        self._path = Path(path)
        self._durable = durable
        self._open()

    def _open(self) -> None:
        self._thread = DatabaseThread(self._path, SCHEMA, durable=self._durable)
        # Reads for receivers go beside writes: WAL shows them what was committed.
        self._reader = DatabaseThread(self._path, (), durable=self._durable)
        self._trimming: asyncio.Task[None] | None = None
        self._damage: StoreDamaged | None = None
        """What the removal of entries has found of the file, until it was raised."""

    async def apply(self, batch: StoreBatch) -> None:
        """Apply a batch as one transaction, whole or not at all (:meth:`proxy.core.store_port.SessionStore.apply`);
        return once the file has it.

        Raises:
            StoreFailed: the disk did not take the batch, or it extends a session that the store does not have; nothing
                was changed.
            StoreDamaged: the file is not what was written. A marker beside the file says so from then on: no later
                :meth:`load` uses it.
        """
        if self._damage is not None:
            raise self._damage
        await self._call(self._thread, lambda connection: write(connection, lambda: _apply(connection, batch)))
        self._trim_on()

    async def load(self) -> Restored | None:
        """Return the store's content, checked (:meth:`proxy.core.store_port.SessionStore.load`); None: the store is
        empty.

        Raises:
            StoreDamaged: the file is not what was written, or an earlier call, also of another process, has found that.
                A marker beside the file says so until :meth:`set_aside`.
            StoreFailed: the file cannot be read, or is of an earlier build.
        """
        integrity.condemned(self._path)
        restored = await self._read(self._thread, load)
        self._trim_on()
        return restored

    async def entries(
        self, session: SessionId, after: int, limit: int, passing: Mapping[Origin, int] = NOWHERE
    ) -> list[Entry]:
        """Return up to `limit` stored entries with a number above `after`, in order of number; empty: there are no
        others.

        Implements :meth:`proxy.core.store_port.SessionStore.entries`: fewer than `limit` do not mean that no others
        follow.

        Args:
            passing: a frontier; entries at or below it may be left out.

        Raises:
            StoreFailed: the file cannot be read.
            StoreDamaged: the file is not what was written. A marker beside the file says so from then on: no later
                :meth:`load` uses it.
        """
        return await self._read(self._reader, lambda connection: _entries(connection, session, after, limit, passing))

    async def outdated(self, session: SessionId, windows: Sequence[Window], limit: int) -> Swept:
        """Return up to `limit` stored entries of a session that lie in the windows, in order of number, and the lowest
        number that stays once they are removed. Nothing is removed here.

        Implements :meth:`proxy.core.store_port.SessionStore.outdated`.

        Args:
            windows: the entries that are kept for nobody any more, by matched subscriptions and numbers.

        Raises:
            StoreFailed: the file cannot be read.
            StoreDamaged: the file is not what was written. A marker beside the file says so from then on: no later
                :meth:`load` uses it.
        """
        return await self._read(self._reader, lambda connection: _outdated(connection, session, windows, limit))

    async def set_aside(self) -> str:
        """Close and rename the damaged file, and begin with an empty store, which can be used at once; return the path
        of the renamed file.

        Raises:
            OSError: the file cannot be renamed; the store stays closed.
        """
        await self.close()
        kept = await asyncio.to_thread(integrity.set_aside, self._path)
        self._open()
        return str(kept)

    async def close(self) -> None:
        """Close the file and its threads; what was applied is kept. Entries that are gone may remain, for the next
        process.
        """
        if self._trimming is not None:
            self._trimming.cancel()
            await asyncio.gather(self._trimming, return_exceptions=True)
        await self._reader.close()
        await self._thread.close()

    async def _call(self, thread: DatabaseThread, job: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with cancellation.translated(lambda _: OSError("it was broken off")):
                return await thread.call(job)
        except StoreDamaged as error:
            raise self._condemned(error) from None
        except (sqlite3.Error, OSError) as error:
            if is_damage(error):
                raise self._condemned(StoreDamaged(str(error))) from None
            raise StoreFailed(f"{self._path}: {error}") from None

    async def _read(self, thread: DatabaseThread, job: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._call(thread, job)
        except _MISREAD as error:
            # Damage made something else of a value than what it is to be.
            raise self._condemned(StoreDamaged(f"it cannot be read: {error}")) from None

    def _condemned(self, error: StoreDamaged) -> StoreDamaged:
        with contextlib.suppress(OSError):
            integrity.condemn(self._path, error)
        return StoreDamaged(f"{self._path}: {error.message}")

    def _trim_on(self) -> None:
        if self._trimming is None or self._trimming.done():
            self._trimming = asyncio.create_task(self._trim())

    async def _trim(self) -> None:
        """Remove what is gone, piece by piece. A failure is tried again after the next batch; damage is raised then."""
        try:
            while await self._call(self._thread, _trim):
                pass
        except StoreDamaged as error:
            self._damage = error
        except StoreFailed:
            pass


def _apply(connection: sqlite3.Connection, batch: StoreBatch) -> None:
    position = with_checksum(batch.position, batch.acceptance)
    connection.execute(
        """INSERT INTO place (one, position, acceptance, seal) VALUES (1, ?, ?, ?)
           ON CONFLICT (one) DO UPDATE
           SET position = excluded.position, acceptance = excluded.acceptance, seal = excluded.seal""",
        position,
    )
    if batch.site_state is not None:
        state = with_checksum(batch.site_state)
        connection.execute("UPDATE place SET site_state = ?, state_seal = ?", state)
    if not batch.behind:
        connection.execute("UPDATE place SET site_position = ?, site_acceptance = ?, site_seal = ?", position)
    for session in batch.deleted:
        _abandon(connection, session)
    shared: _Shared = {}
    for change in batch.changes:
        _apply_change(connection, change, shared)


def _abandon(connection: sqlite3.Connection, session: SessionId) -> None:
    """Forget the copy that is held of a session, if any; its entries go."""
    connection.execute(
        "INSERT INTO gone SELECT copy, ? FROM session WHERE id = ? ON CONFLICT DO UPDATE SET below = ?",
        (ALL, session, ALL),
    )
    connection.execute("DELETE FROM mark WHERE copy = (SELECT copy FROM session WHERE id = ?)", (session,))
    connection.execute("DELETE FROM session WHERE id = ?", (session,))


def _apply_change(connection: sqlite3.Connection, change: SessionChange, shared: _Shared) -> None:
    saved = change.saved
    if change.replaces:
        _abandon(connection, saved.id)
    copy, first = _copy_of(connection, saved.id, is_extended=saved.descriptor is None)
    if saved.first_number > first:
        connection.execute(
            "INSERT INTO gone VALUES (?, ?) ON CONFLICT DO UPDATE SET below = excluded.below",
            (copy, saved.first_number),
        )
    gates = json.dumps(saved.gates)
    bounds = (saved.first_number, saved.next_number)
    row = with_checksum(saved.id, copy, saved.epoch, saved.role, *bounds, gates, saved.source, *saved.checkpointed)
    if saved.descriptor is None:
        connection.execute(
            """UPDATE session SET epoch = ?3, role = ?4, first = ?5, next = ?6, gates = ?7, source = ?8,
               checkpointed = ?9, serial = ?10, seal = ?11 WHERE id = ?1 AND copy = ?2""",
            row,
        )
    else:
        _, _, *described = with_checksum(saved.id, copy, msgspec.json.encode(saved.descriptor).decode())
        whole = (*row, *described)
        connection.execute(f"INSERT OR REPLACE INTO session VALUES ({', '.join('?' * len(whole))})", whole)
    _add_entries(connection, copy, change.entries, shared)
    if change.removed:
        _remove_windows(connection, copy, change.removed)
    if change.discarded:
        _remove_numbers(connection, copy, change.discarded)
    connection.executemany(
        "INSERT OR REPLACE INTO mark VALUES (?, ?, ?, ?)",
        [with_checksum(copy, below, at_ms) for below, at_ms in change.marks],
    )
    connection.execute("DELETE FROM mark WHERE copy = ? AND below <= ?", (copy, saved.first_number))


def _copy_of(connection: sqlite3.Connection, session: SessionId, *, is_extended: bool) -> tuple[int, int]:
    """Return the number of the copy that is held of a session, or a new one, and its first entry so far.

    Raises:
        StoreFailed: a copy is to be extended, and there is none.
    """
    copy, first = _stored_copy(connection, session)
    if copy:
        return copy, first
    if is_extended:
        raise StoreFailed(f"there is no session {session} to extend")
    (last,) = connection.execute(
        "SELECT max(coalesce((SELECT max(copy) FROM session), 0), coalesce((SELECT max(copy) FROM gone), 0))"
    ).fetchone()
    return last + 1, 1


def _add_entries(connection: sqlite3.Connection, copy: int, entries: Iterable[Entry], shared: _Shared) -> None:
    """Add entries. `shared`: rows of notifications that were sealed for other sessions, by identity."""
    listed = list(entries)
    matchings = {matched: _matching_of(connection, matched) for matched in {matched for _, _, matched in listed}}
    for _, stored, _ in listed:
        if id(stored) not in shared:
            shared[id(stored)] = with_checksum(stored.origin, stored.offset, stored.delivery, _packed(stored.keys))
    connection.executemany(
        "INSERT OR IGNORE INTO notification (origin, offset, delivery, keys, seal) VALUES (?, ?, ?, ?, ?)",
        [shared[id(stored)] for _, stored, _ in listed],
    )
    rows = [(copy, number, *matchings[matched], stored.origin, stored.offset) for number, stored, matched in listed]
    connection.executemany(
        """INSERT OR REPLACE INTO entry
           SELECT ?1, ?2, id, ?3, ?6 FROM notification WHERE origin = ?4 AND offset = ?5""",
        [
            (copy, number, matching, origin, offset, seal_of(copy, number, digest, origin, offset))
            for copy, number, matching, digest, origin, offset in rows
        ],
    )


def _matching_of(connection: sqlite3.Connection, matched: Matched) -> tuple[int, bytes]:
    """Return number and digest of what is matched by many entries; it is added if there is none."""
    text = matching_text(matched)
    digest = digest_of(text)
    connection.execute("INSERT OR IGNORE INTO matching (digest, matched) VALUES (?, ?)", (digest, text))
    (number,) = connection.execute("SELECT id FROM matching WHERE digest = ?", (digest,)).fetchone()
    return number, digest


def _trim(connection: sqlite3.Connection) -> bool:
    """Remove a piece of what is gone; tell whether there is more."""
    gone = connection.execute("SELECT copy, below FROM gone LIMIT ?", (STORE_TRIM,)).fetchall()
    return bool(gone) and write(connection, lambda: _remove(connection, gone))


def _remove(connection: sqlite3.Connection, gone: list[tuple[int, int]]) -> bool:
    room = STORE_TRIM
    for copy, below in gone:
        room -= _remove_entries(connection, copy, below, room)
        if room <= 0:
            return True
        connection.execute("DELETE FROM gone WHERE copy = ?", (copy,))
    return len(gone) == STORE_TRIM


def _remove_entries(connection: sqlite3.Connection, copy: int, below: int, limit: int) -> int:
    """Remove the first of these entries, and notifications that nobody holds any more; return how many."""
    rows = connection.execute(
        "SELECT notification, number, matching FROM entry WHERE copy = ? AND number < ? ORDER BY number LIMIT ?",
        (copy, below, limit),
    ).fetchall()
    _remove_rows(connection, copy, rows)
    return len(rows)


def _remove_windows(connection: sqlite3.Connection, copy: int, windows: Sequence[Window]) -> None:
    """Remove what policy ended; a sweep never removes more than a bounded number at a time."""
    for window in windows:
        rows = connection.execute(
            """SELECT notification, number, matching FROM entry WHERE copy = ? AND number >= ? AND number < ?
               AND matching = (SELECT id FROM matching WHERE digest = ?)""",
            (copy, window.start, window.below, digest_of(matching_text(window.matched))),
        )
        _remove_rows(connection, copy, rows.fetchall())


def _remove_numbers(connection: sqlite3.Connection, copy: int, numbers: Sequence[int]) -> None:
    for number in numbers:
        rows = connection.execute(
            "SELECT notification, number, matching FROM entry WHERE copy = ? AND number = ?", (copy, number)
        )
        _remove_rows(connection, copy, rows.fetchall())


def _remove_rows(connection: sqlite3.Connection, copy: int, rows: Sequence[tuple[int, int, int]]) -> None:
    """Remove entries (notification, number, matching), and what only they had."""
    connection.executemany("DELETE FROM entry WHERE copy = ? AND number = ?", [(copy, number) for _, number, _ in rows])
    connection.executemany(
        """DELETE FROM notification WHERE id = ?1
           AND NOT EXISTS (SELECT 1 FROM entry WHERE notification = ?1)""",
        [(notification,) for notification, _, _ in rows],
    )
    connection.executemany(
        "DELETE FROM matching WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM entry WHERE matching = ?1)",
        [(matching,) for matching in {matching for _, _, matching in rows}],
    )


def _stored_copy(connection: sqlite3.Connection, session: SessionId) -> tuple[int, int]:
    """Return the number of the copy that is held of a session, and its first entry; that of none: 0."""
    row = connection.execute(f"SELECT {SESSION_ROW} FROM session WHERE id = ?", (session,)).fetchone()
    if row is None:
        return 0, 0
    *values, seal = row
    verify(f"session {session}", seal, *values)
    return values[1], values[4]


SOUGHT = """CREATE TEMP TABLE IF NOT EXISTS sought
    (matching INTEGER, start INTEGER, below INTEGER, PRIMARY KEY (matching, start))"""
"""The windows that a sweep asks for: there may be more of them than one statement can name."""


def _outdated(connection: sqlite3.Connection, session: SessionId, windows: Sequence[Window], limit: int) -> Swept:
    connection.execute(SOUGHT)
    connection.execute("DELETE FROM sought")
    connection.executemany(
        "INSERT INTO sought VALUES ((SELECT id FROM matching WHERE digest = ?), ?, ?)",
        [(digest_of(matching_text(window.matched)), window.start, window.below) for window in windows],
    )
    held_rows = "entry.copy = ? AND entry.number >= ?"
    lying = "sought.matching = entry.matching AND entry.number >= sought.start AND entry.number < sought.below"
    held = _stored_copy(connection, session)
    rows = connection.execute(
        f"""SELECT number, digest, matched, origin, offset, entry.seal FROM entry
            JOIN notification ON notification.id = entry.notification JOIN matching ON matching.id = entry.matching
            WHERE {held_rows} AND EXISTS (SELECT 1 FROM sought WHERE {lying}) ORDER BY number LIMIT ?""",
        (*held, limit),
    ).fetchall()
    found = []
    matchings = Matchings()
    for number, digest, text, origin, offset, seal in rows:
        verify(f"entry {number}", seal, held[0], number, digest, origin, offset)
        found.append(Outdated(number, matchings.of(digest, text), Origin(origin), offset))
    last = found[-1].number if len(found) == limit else ALL
    (lowest,) = connection.execute(
        f"""SELECT number FROM entry
            WHERE {held_rows} AND NOT (number <= ? AND EXISTS (SELECT 1 FROM sought WHERE {lying}))
            UNION ALL SELECT NULL LIMIT 1""",
        (*held, last),
    ).fetchone()
    return Swept(found, lowest)


def _packed(keys: tuple[Key, ...]) -> bytes | None:
    return msgspec.msgpack.encode(keys) if keys else None


def _unpacked(data: bytes | None) -> tuple[Key, ...]:
    return msgspec.msgpack.decode(data, type=tuple[Key, ...]) if data else ()


def _entries(
    connection: sqlite3.Connection, session: SessionId, after: int, limit: int, passing: Mapping[Origin, int]
) -> list[Entry]:
    # Entries of a removed session may be there still: they are removed in pieces.
    copy, first = _stored_copy(connection, session)
    after = max(after, first - 1)
    last = connection.execute(
        "SELECT number FROM entry WHERE copy = ? AND number > ? ORDER BY number LIMIT 1 OFFSET ?",
        (copy, after, max(limit, ENTRIES_EXAMINED) - 1),
    ).fetchone() or (ALL,)
    passed = list(islice(passing.items(), ORIGINS_PASSED))
    beyond = " AND NOT (notification.origin = ? AND notification.offset <= ?)" * len(passed)
    rows = connection.execute(
        f"""SELECT entry.number, digest, matched, notification.origin, notification.offset, notification.delivery,
                  notification.keys, entry.seal, notification.seal
           FROM entry JOIN notification ON notification.id = entry.notification
           JOIN matching ON matching.id = entry.matching
           WHERE entry.copy = ? AND entry.number > ? AND entry.number <= ? AND (entry.number = ? OR (TRUE{beyond}))
           ORDER BY entry.number LIMIT ?""",
        (copy, after, *last, *last, *chain.from_iterable(passed), limit),
    )
    found: list[Entry] = []
    size = 0
    matchings = Matchings()
    for number, digest, text, origin, offset, delivery, keys, seal, notification_seal in rows:
        verify(f"entry {number} of session {session}", seal, copy, number, digest, origin, offset)
        verify(f"notification {offset} of {origin}", notification_seal, origin, offset, delivery, keys)
        found.append(
            (number, StoredNotification(Origin(origin), offset, delivery, _unpacked(keys)), matchings.of(digest, text))
        )
        size += len(delivery)
        if size >= READ_BYTES:
            break
    return found
