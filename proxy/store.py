"""The session store on the proxy's own disk: one SQLite file, used by one process.

One copy of a notification, whatever number of sessions hold it; it goes with the last entry that refers to it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from federation.embedded.database import DatabaseThread, write
from proxy.ports import Outdated, Policed, Restored, SavedSession, SessionChange, StoreBatch, Swept
from proxy.retention import Mark, Matched, Window
from proxy.session import Entry, Stored
from waypost.checkpoint import Descriptor
from waypost.errors import StoreFailed
from waypost.identity import Epoch, Origin, SessionId, SubscriptionId

SCHEMA = (
    """CREATE TABLE IF NOT EXISTS place (
        one INTEGER PRIMARY KEY CHECK (one = 1), position INTEGER, acceptance BLOB, site_state BLOB)""",
    """CREATE TABLE IF NOT EXISTS session (
        id TEXT PRIMARY KEY, epoch INTEGER, role TEXT, descriptor TEXT, first INTEGER, next INTEGER, gates TEXT)""",
    """CREATE TABLE IF NOT EXISTS notification (
        id INTEGER PRIMARY KEY, origin TEXT, offset INTEGER, delivery BLOB, UNIQUE (origin, offset))""",
    """CREATE TABLE IF NOT EXISTS entry (
        session TEXT, number INTEGER, notification INTEGER, matched TEXT,
        PRIMARY KEY (session, number)) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS entry_notification ON entry (notification)",
    """CREATE TABLE IF NOT EXISTS mark (
        session TEXT, below INTEGER, at_ms INTEGER, PRIMARY KEY (session, below)) WITHOUT ROWID""",
)


class SqliteSessionStore:
    """The port :class:`proxy.ports.SessionStore` on the file `path`.

    A transaction survives `kill -9`. With `durable` it survives a power cut too; without, the last ones may be missing
    after a power cut, which costs a catch-up from the site log and nothing else.
    """

    def __init__(self, path: Path | str, *, durable: bool = False) -> None:
        self._thread = DatabaseThread(Path(path), SCHEMA, durable=durable)

    async def apply(self, batch: StoreBatch) -> None:
        try:
            await self._thread.call(lambda connection: write(connection, lambda: _apply(connection, batch)))
        except (sqlite3.Error, OSError) as error:
            raise StoreFailed(f"{self._thread.path}: {error}") from None

    async def load(self) -> Restored | None:
        try:
            return await self._thread.call(_load)
        except (sqlite3.Error, OSError) as error:
            raise StoreFailed(f"{self._thread.path}: {error}") from None

    async def entries(self, session: SessionId, after: int, limit: int) -> list[Entry]:
        try:
            return await self._thread.call(lambda connection: _entries(connection, session, after, limit))
        except (sqlite3.Error, OSError) as error:
            raise StoreFailed(f"{self._thread.path}: {error}") from None

    async def outdated(self, session: SessionId, windows: Sequence[Window], limit: int) -> Swept:
        try:
            return await self._thread.call(lambda connection: _outdated(connection, session, windows, limit))
        except (sqlite3.Error, OSError) as error:
            raise StoreFailed(f"{self._thread.path}: {error}") from None

    async def close(self) -> None:
        await self._thread.close()


def _apply(connection: sqlite3.Connection, batch: StoreBatch) -> None:
    connection.execute(
        """INSERT INTO place VALUES (1, ?, ?, ?) ON CONFLICT (one) DO UPDATE SET position = excluded.position,
           acceptance = excluded.acceptance, site_state = coalesce(excluded.site_state, site_state)""",
        (batch.position, batch.acceptance, batch.site_state),
    )
    for session in batch.dropped:
        connection.execute("DELETE FROM session WHERE id = ?", (session,))
        connection.execute("DELETE FROM mark WHERE session = ?", (session,))
        _remove_entries(connection, session, "1")
    for change in batch.changes:
        _apply_change(connection, change)


def _apply_change(connection: sqlite3.Connection, change: SessionChange) -> None:
    saved = change.saved
    if change.fresh:
        connection.execute("DELETE FROM mark WHERE session = ?", (saved.id,))
        _remove_entries(connection, saved.id, "1")
    else:
        connection.execute("DELETE FROM mark WHERE session = ? AND below <= ?", (saved.id, saved.first_number))
        _remove_entries(connection, saved.id, "number < ?", saved.first_number)
    if change.removed:
        _remove_entries(connection, saved.id, *_within(change.removed))
    connection.execute(
        "INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            saved.id,
            saved.epoch,
            saved.role,
            msgspec.json.encode(saved.descriptor).decode(),
            saved.first_number,
            saved.next_number,
            json.dumps(saved.gates),
        ),
    )
    _add_entries(connection, saved.id, change.entries)
    connection.executemany(
        "INSERT OR REPLACE INTO mark VALUES (?, ?, ?)", [(saved.id, below, at) for below, at in change.marks]
    )


def _add_entries(connection: sqlite3.Connection, session: SessionId, entries: Iterable[Entry]) -> None:
    listed = list(entries)
    texts = {matched: _text(matched) for matched in {matched for _, _, matched in listed}}
    connection.executemany(
        "INSERT OR IGNORE INTO notification (origin, offset, delivery) VALUES (?, ?, ?)",
        [(stored.origin, stored.offset, stored.delivery) for _, stored, _ in listed],
    )
    connection.executemany(
        """INSERT OR REPLACE INTO entry SELECT ?, ?, id, ? FROM notification WHERE origin = ? AND offset = ?""",
        [(session, number, texts[matched], stored.origin, stored.offset) for number, stored, matched in listed],
    )


def _remove_entries(connection: sqlite3.Connection, session: SessionId, which: str, *values: object) -> None:
    """Remove those of the session's entries for which `which` holds, and notifications that nobody holds any more."""
    where = f"session = ? AND ({which})"
    gone = connection.execute(f"SELECT notification FROM entry WHERE {where}", (session, *values)).fetchall()
    if not gone:
        return
    connection.execute(f"DELETE FROM entry WHERE {where}", (session, *values))
    connection.executemany(
        """DELETE FROM notification WHERE id = ?1
           AND NOT EXISTS (SELECT 1 FROM entry WHERE notification = ?1)""",
        gone,
    )


def _within(windows: Sequence[Window]) -> tuple[str, ...]:
    """Return the condition that an entry lies in one of the windows, and its values."""
    lying = " OR ".join("(matched = ? AND number >= ? AND number < ?)" for _ in windows)
    return (lying, *(value for each in windows for value in (_text(each.matched), each.start, each.below)))  # type: ignore[arg-type]


def _text(matched: Matched) -> str:
    return json.dumps(matched)


def _outdated(connection: sqlite3.Connection, session: SessionId, windows: Sequence[Window], limit: int) -> Swept:
    lying, *values = _within(windows)
    rows = connection.execute(
        f"""SELECT number, matched, origin, offset FROM entry JOIN notification ON notification.id = entry.notification
            WHERE session = ? AND ({lying}) ORDER BY number LIMIT ?""",
        (session, *values, limit),
    ).fetchall()
    found = [Outdated(number, _matched(text), Origin(origin), offset) for number, text, origin, offset in rows]
    last = found[-1].number if len(found) == limit else 1 << 62
    (lowest,) = connection.execute(
        f"SELECT min(number) FROM entry WHERE session = ? AND NOT (({lying}) AND number <= ?)", (session, *values, last)
    ).fetchone()
    return Swept(found, lowest)


def _matched(text: str) -> Matched:
    return tuple(SubscriptionId(each) for each in json.loads(text))


def _load(connection: sqlite3.Connection) -> Restored | None:
    place = connection.execute("SELECT position, acceptance, site_state FROM place").fetchone()
    if place is None:
        return None
    rows = connection.execute("SELECT id, epoch, role, descriptor, first, next, gates FROM session ORDER BY id")
    sessions = [
        SavedSession(
            SessionId(identity),
            Epoch(epoch),
            role,
            _descriptor(identity, descriptor),
            first,
            following,
            {Origin(origin): seen for origin, seen in json.loads(gates).items()},
        )
        for identity, epoch, role, descriptor, first, following, gates in rows
    ]
    position, acceptance, site_state = place
    policed = dict(_policed(connection, sessions))
    return Restored(position, acceptance, site_state, sessions, policed)


def _policed(connection: sqlite3.Connection, sessions: Iterable[SavedSession]) -> Iterator[tuple[SessionId, Policed]]:
    for session in sessions:
        if any(row.ttl_s or row.max_count for row in session.descriptor.subscriptions):
            marks = connection.execute("SELECT below, at_ms FROM mark WHERE session = ? ORDER BY below", (session.id,))
            rows = connection.execute(
                "SELECT number, matched FROM entry WHERE session = ? ORDER BY number", (session.id,)
            ).fetchall()
            kinds = {text: _matched(text) for text in {text for _, text in rows}}
            yield session.id, Policed([Mark(*mark) for mark in marks], [(number, kinds[text]) for number, text in rows])


def _descriptor(session: str, text: str) -> Descriptor:
    try:
        return msgspec.json.decode(text, type=Descriptor)
    except msgspec.DecodeError as error:
        raise StoreFailed(f"session {session} in the store cannot be read: {error}") from None


def _entries(connection: sqlite3.Connection, session: SessionId, after: int, limit: int) -> list[Entry]:
    rows = connection.execute(
        """SELECT entry.number, entry.matched, notification.origin, notification.offset, notification.delivery
           FROM entry JOIN notification ON notification.id = entry.notification
           WHERE entry.session = ? AND entry.number > ? ORDER BY entry.number LIMIT ?""",
        (session, after, limit),
    )
    return [
        (
            number,
            Stored(Origin(origin), offset, delivery),
            _matched(matched),
        )
        for number, matched, origin, offset, delivery in rows
    ]
