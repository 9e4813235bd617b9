"""Loading a proxy's store when it starts; all of it is checked before any of it is used."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from node.session_store import integrity
from node.session_store.integrity import verify
from node.session_store.matchings import Matchings
from proxy.core.store_port import Policed, Restored, SavedSession, SiteCheckpoint
from proxy.session.retention import Mark
from waypost.checkpoint import Descriptor
from waypost.errors import StoreDamaged, StoreFailed
from waypost.identity import Epoch, Origin, SessionId

NEWEST = {("session", "checkpointed"), ("notification", "seal"), ("place", "site_seal"), ("entry", "matching")}
"""Columns that stores of earlier builds do not have."""
SESSION_ROW = "id, copy, epoch, role, first, next, gates, source, checkpointed, serial, seal"
"""What changes with new entries, too; the descriptor has a checksum of its own."""


def load(connection: sqlite3.Connection) -> Restored | None:
    """Return the contents of a store, without the notifications; None: it is empty. An index that stores of earlier
    builds do not have is made.

    Raises:
        StoreDamaged: a checksum is wrong, or the file is inconsistent.
        StoreFailed: the store is of an earlier build, or a session cannot be decoded.
        sqlite3.Error, ValueError, TypeError: the file cannot be read, or a value in it is damaged;
            :class:`node.session_store.sqlite.SqliteSessionStore` translates them.
    """
    if not {(table, column) for table, _ in NEWEST for column in _columns(connection, table)} >= NEWEST:
        raise StoreFailed(
            "store.db is of an earlier build and cannot be read",
            hint="remove it: what it held is rebuilt from changelog and logs",
        )
    # Not before: the table of an earlier build has no such column.
    connection.execute("CREATE INDEX IF NOT EXISTS entry_matching ON entry (matching)")
    integrity.check(connection)
    checkpoint = _load_site_checkpoint(connection)
    if checkpoint is None:
        return None
    rows = connection.execute(f"SELECT {SESSION_ROW}, descriptor, descriptor_seal FROM session ORDER BY id").fetchall()
    sessions = [
        SavedSession(
            id=SessionId(identity),
            epoch=Epoch(epoch),
            role=role,
            descriptor=_descriptor(identity, descriptor),
            first_number=first,
            next_number=following,
            gates={Origin(origin): seen for origin, seen in json.loads(gates).items()},
            source=source,
            checkpointed=(checkpointed, serial),
        )
        for identity, _, epoch, role, first, following, gates, source, checkpointed, serial, descriptor in map(
            _looked_at, rows
        )
    ]
    position, acceptance, site = checkpoint
    policed = dict(_policed(connection, sessions))
    return Restored(position, acceptance, site, sessions, policed)


def _load_site_checkpoint(connection: sqlite3.Connection) -> tuple[int, bytes, SiteCheckpoint] | None:
    row = connection.execute(
        """SELECT position, acceptance, seal, site_position, site_acceptance, site_seal, site_state, state_seal
           FROM place"""
    ).fetchone()
    if row is None:
        if connection.execute("SELECT 1 FROM session").fetchone():
            raise StoreDamaged("its position in the site log is missing")
        return None
    position, acceptance, seal, site_position, site_acceptance, site_seal, site_state, state_seal = row
    verify("its position in the site log", seal, position, acceptance)
    if site_position is not None:
        verify("the position of the site's state", site_seal, site_position, site_acceptance)
    if site_state is not None:
        verify("the site's state", state_seal, site_state)
    return position, acceptance, SiteCheckpoint(site_position, site_acceptance, site_state)


def _looked_at(row: tuple[Any, ...]) -> tuple[Any, ...]:
    *values, seal, descriptor, descriptor_seal = row
    verify(f"session {values[0]}", seal, *values)
    verify(f"the descriptor of session {values[0]}", descriptor_seal, *values[:2], descriptor)
    return (*values, descriptor)


def _policed(connection: sqlite3.Connection, sessions: Iterable[SavedSession]) -> Iterator[tuple[SessionId, Policed]]:
    for session in sessions:
        assert session.descriptor is not None
        if any(row.ttl_s or row.max_count for row in session.descriptor.subscriptions):
            (copy,) = connection.execute("SELECT copy FROM session WHERE id = ?", (session.id,)).fetchone()
            marks = connection.execute("SELECT below, at_ms, seal FROM mark WHERE copy = ? ORDER BY below", (copy,))
            rows = connection.execute(
                """SELECT number, digest, matched, origin, offset, entry.seal FROM entry
                   JOIN notification ON notification.id = entry.notification
                   JOIN matching ON matching.id = entry.matching
                   WHERE copy = ? AND number >= ? ORDER BY number""",
                (copy, session.first_number),
            ).fetchall()
            matchings, numbered = Matchings(), []
            for number, digest, text, origin, offset, seal in rows:
                verify(f"entry {number}", seal, copy, number, digest, origin, offset)
                numbered.append((number, matchings.of(digest, text)))
            kept = []
            for below, at_ms, seal in marks:
                verify("a mark", seal, copy, below, at_ms)
                kept.append(Mark(below, at_ms))
            yield session.id, Policed(kept, numbered)


def _descriptor(session: str, text: str) -> Descriptor:
    try:
        return msgspec.json.decode(text, type=Descriptor)
    except msgspec.DecodeError as error:
        raise StoreFailed(f"session {session} in the store cannot be read: {error}") from None


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")]
