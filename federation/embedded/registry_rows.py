"""The embedded registry's tables, as functions upon a connection. Those that write need the write lock.

owner/<session>                 OwnerRow; of a session that was deleted, until it is forgotten
incarnation/<proxy>/<inc...>    ProxyRow, as long as its lease: a restarted proxy has a row of its own, so
                                that the end of the older one's lease does not touch it
leader/<link>                   LeaderRow, as long as its lease
drain/<proxy>                   DrainRow, until it is taken back
link/<site>,<site>              LinkRow, for ever
tree                            TreeRow, for ever
site/<site>                     where the site's changelog is, until the site is forgotten; no other change tells of it,
                                the proxy's row does
log/<site>                      SiteLogRow, for ever; no change tells of it
checkpoint/<session>            EPOCH.SERIAL of the checkpoint up to which clients were answered; goes with the owner's
                                row; no change tells of it
floor                           the highest generation of rows that were forgotten; no change tells of it
secret                          32 random bytes in hexadecimal, for ever; no change tells of it
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict

from federation.names import check_name
from federation.ports import (
    DrainChanged,
    DrainRow,
    LeaderChanged,
    LinkChanged,
    LinkRow,
    OwnerChanged,
    OwnerRow,
    ProxyDown,
    ProxyRow,
    ProxyUp,
    RegistryEvent,
    SiteForgotten,
    SiteLogRow,
    TreeChosen,
    TreeRow,
    decode_rank,
    encode_rank,
)
from waypost.checkpoint import Rank
from waypost.identity import Incarnation, ProxyId, SessionId, SiteId
from waypost.limits import REGISTRY_CHANGES_KEPT, REGISTRY_CHANGES_PRUNED

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS rows (key TEXT PRIMARY KEY, value TEXT NOT NULL, revision INTEGER NOT NULL,"
    " lease INTEGER)",
    "CREATE INDEX IF NOT EXISTS rows_by_lease ON rows (lease) WHERE lease IS NOT NULL",
    "CREATE TABLE IF NOT EXISTS leases (id INTEGER PRIMARY KEY AUTOINCREMENT, boot TEXT NOT NULL,"
    " deadline_ms INTEGER NOT NULL, superseded INTEGER NOT NULL DEFAULT 0)",
    "CREATE TABLE IF NOT EXISTS changes (revision INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL,"
    " value TEXT, previous TEXT)",
    # Outlives the leaders, so that epochs go on ascending.
    "CREATE TABLE IF NOT EXISTS epochs (link TEXT PRIMARY KEY, epoch INTEGER NOT NULL)",
)
OWNER, INCARNATION, LEADER, SITE, DRAIN, LOG = "owner/", "incarnation/", "leader/", "site/", "drain/", "log/"
CHECKPOINT, LINK = "checkpoint/", "link/"
SECRET, FLOOR, TREE = "secret", "floor", "tree"


class Moment(NamedTuple):
    """A time of the machine's clock.

    Args:
        boot: the id of the boot from which it counts.
        ms: milliseconds since that boot.
    """

    boot: str
    ms: int


class Change(NamedTuple):
    """One row of the table `changes`, from which every process of the machine learns what the others have written.

    Args:
        revision: its number; the next change has a greater one.
        key: the key of the registry's row that changed.
        value: the row as it is since then, as JSON; None: it was deleted.
        previous: the row as it was before, as JSON; None: there was none.
    """

    revision: int
    key: str
    value: str | None
    previous: str | None


class LeaderRow(BaseModel):
    """The leader of a link.

    Args:
        link: the name of the link.
        proxy: the proxy that leads it.
        epoch: how many leaders the link has had, this one included.
    """

    model_config = ConfigDict(frozen=True)

    link: str
    proxy: ProxyId
    epoch: int


# ---------------------------------------------------------------- keys


def owner_key(session: SessionId) -> str:
    """Return the key of the session's row."""
    return OWNER + session


def session_of(key: str) -> SessionId:
    """Return the session whose row has this key, which :func:`owner_key` returned."""
    return SessionId(key.removeprefix(OWNER))


def incarnations_prefix(proxy: ProxyId) -> str:
    """Return the prefix of the keys of all incarnations of a proxy."""
    return f"{INCARNATION}{quote(proxy, safe='')}/"


def incarnation_key(proxy: ProxyId, incarnation: Incarnation) -> str:
    """Return the key of the row of an incarnation."""
    return f"{incarnations_prefix(proxy)}{incarnation}"


def event_of(change: Change) -> RegistryEvent:
    """Return the event by which the watch reports a recorded change."""
    if change.key.startswith(OWNER):
        ownership = OwnerRow.model_validate_json(change.value).ownership if change.value is not None else None
        return OwnerChanged(session_of(change.key), ownership)
    if change.key.startswith(INCARNATION):
        if change.value is not None:
            return ProxyUp(ProxyRow.model_validate_json(change.value))
        proxy, _, incarnation = change.key.removeprefix(INCARNATION).partition("/")
        return ProxyDown(ProxyId(unquote(proxy)), Incarnation(incarnation))
    if change.key.startswith(DRAIN):
        row = DrainRow.model_validate_json(change.value) if change.value is not None else None
        return DrainChanged(ProxyId(change.key.removeprefix(DRAIN)), row)
    if change.key.startswith(LINK):
        return LinkChanged(LinkRow.model_validate_json(change.value or change.previous or ""))
    if change.key.startswith(SITE):
        return SiteForgotten(SiteId(change.key.removeprefix(SITE)))
    if change.key == TREE:
        return TreeChosen(TreeRow.model_validate_json(change.value or change.previous or ""))
    leader = LeaderRow.model_validate_json(change.value or change.previous or "")
    return LeaderChanged(leader.link, leader.proxy if change.value is not None else None, leader.epoch)


# ---------------------------------------------------------------- rows and changes


def get(connection: sqlite3.Connection, key: str) -> str | None:
    """Return the value of a key; None: there is none."""
    row = connection.execute("SELECT value FROM rows WHERE key = ?", (key,)).fetchone()
    return row[0] if row else None


def items(connection: sqlite3.Connection, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield (key, value) of the rows whose key begins with `prefix`, in the order of their last writes. Rows of which
    no change is recorded (site/, log/, checkpoint/, floor, secret) come first, in no order.

    The keys are whole: they include the prefix. The rows are read during the iteration: finish it in the same job and
    transaction.

    Args:
        connection: of the registry's file.
        prefix: at least one character.
    """
    query = "SELECT key, value FROM rows WHERE key >= ? AND key < ? ORDER BY revision"
    yield from connection.execute(query, (prefix, _end_of(prefix)))


def values(connection: sqlite3.Connection, prefix: str) -> Iterator[str]:
    """Yield the values of the rows whose key begins with `prefix`, in the order and under the conditions of
    :func:`items`.
    """
    return (value for _, value in items(connection, prefix))


def leaders(connection: sqlite3.Connection) -> Iterator[LeaderRow]:
    """Yield the leader of each link that has one."""
    return (LeaderRow.model_validate_json(value) for value in values(connection, LEADER))


def put(connection: sqlite3.Connection, key: str, value: str, lease: int | None = None) -> None:
    """Write a row, and record the change, which the watch reports. Call it under the write lock
    (:func:`federation.embedded.database.write`).

    From time to time the oldest recorded changes are removed; a watch that has not seen them begins again with a
    Reloaded.

    Args:
        connection: of the registry's file.
        key: of the row, of a kind that :func:`event_of` knows.
        value: of the row, as JSON.
        lease: the id of the lease with which the row ends; None: it stays.
    """
    revision = _log(connection, key, value)
    connection.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)", (key, value, revision, lease))


def delete(connection: sqlite3.Connection, key: str) -> None:
    """Delete a row, and record the change, also if there is no such row: the watch reports it. Call it under the write
    lock (:func:`federation.embedded.database.write`).

    The row of a leader, of a link or of the tree has to exist: its event is made of what it was, and the watch would
    fail at one that was never there. From time to time the oldest recorded changes are removed, as by :func:`put`.
    """
    _log(connection, key, None)
    connection.execute("DELETE FROM rows WHERE key = ?", (key,))


def changes_kept(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the revision of the oldest change kept, and that of the newest change ever made (0: there was none).

    If no change is kept, the first is one above the second.
    """
    newest = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").fetchone()
    last = int(newest[0]) if newest else 0
    oldest = connection.execute("SELECT min(revision) FROM changes").fetchone()[0]
    return (last + 1 if oldest is None else int(oldest), last)


def changes_after(connection: sqlite3.Connection, revision: int, limit: int) -> list[Change]:
    """Return up to `limit` changes above a revision, ascending."""
    query = "SELECT revision, key, value, previous FROM changes WHERE revision > ? ORDER BY revision LIMIT ?"
    return [Change(*row) for row in connection.execute(query, (revision, limit))]


def prune(connection: sqlite3.Connection, keep: int) -> None:
    """Remove all recorded changes but the last `keep`. Call it under the write lock
    (:func:`federation.embedded.database.write`).
    """
    _, last = changes_kept(connection)
    connection.execute("DELETE FROM changes WHERE revision <= ?", (last - keep,))


def _log(connection: sqlite3.Connection, key: str, value: str | None) -> int:
    cursor = connection.execute(
        "INSERT INTO changes (key, value, previous) VALUES (?, ?, ?)", (key, value, get(connection, key))
    )
    revision = int(cursor.lastrowid or 0)
    if revision % REGISTRY_CHANGES_PRUNED == 0:
        prune(connection, REGISTRY_CHANGES_KEPT)
    return revision


def _end_of(prefix: str) -> str:
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def site_log(connection: sqlite3.Connection, site: SiteId) -> SiteLogRow | None:
    """Return the row of the site's log; None: there is none."""
    value = get(connection, LOG + site)
    return SiteLogRow.model_validate_json(value) if value is not None else None


def claim_site_log(connection: sqlite3.Connection, site: SiteId, expected: SiteLogRow | None, new: SiteLogRow) -> bool:
    """Replace the row of the site's log if it is as expected; return whether it was. The watch does not report it.

    Call it under the write lock (:func:`federation.embedded.database.write`).

    Args:
        connection: of the registry's file.
        site: whose log it is.
        expected: the row to be replaced; None: there is none.
        new: the row in its place.
    """
    if site_log(connection, site) != expected:
        return False
    connection.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, 0, NULL)", (LOG + site, new.model_dump_json()))
    return True


def links(connection: sqlite3.Connection) -> Iterator[LinkRow]:
    """Yield the rows of all links."""
    return (LinkRow.model_validate_json(value) for value in values(connection, LINK))


def set_link(connection: sqlite3.Connection, row: LinkRow, *, seed: bool) -> None:
    """Write the row of a link, and record the change, which the watch reports; with `seed` only if the link has no row.
    Call it under the write lock (:func:`federation.embedded.database.write`).
    """
    if not seed or get(connection, LINK + row.key) is None:
        put(connection, LINK + row.key, row.model_dump_json())


def tree(connection: sqlite3.Connection) -> TreeRow:
    """Return the row of the dispatching tree; one of epoch 0 if no tree was chosen yet."""
    value = get(connection, TREE)
    return TreeRow.model_validate_json(value) if value is not None else TreeRow()


def claim_tree(connection: sqlite3.Connection, expected: TreeRow, new: TreeRow) -> bool:
    """Replace the row of the dispatching tree, and record the change, if the row is as expected (of epoch 0: there is
    none); return whether it was. Call it under the write lock (:func:`federation.embedded.database.write`).
    """
    if tree(connection) != expected:
        return False
    put(connection, TREE, new.model_dump_json())
    return True


def noted_checkpoint(connection: sqlite3.Connection, session: SessionId) -> Rank | None:
    """Return the rank of the checkpoint that :func:`note_checkpoints` recorded for the session; None: there is none."""
    value = get(connection, CHECKPOINT + session)
    return decode_rank(value) if value is not None else None


def note_checkpoints(connection: sqlite3.Connection, ranks: Mapping[SessionId, Rank]) -> None:
    """Record the ranks of the checkpoints up to which clients were answered (handover rule 19), for sessions that have
    a row, where they are higher than the recorded ones.

    The watch does not report it. Call it under the write lock (:func:`federation.embedded.database.write`).
    """
    for session, rank in ranks.items():
        if get(connection, owner_key(session)) is not None and rank > (noted_checkpoint(connection, session) or (0, 0)):
            row = (CHECKPOINT + session, encode_rank(rank))
            connection.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, 0, NULL)", row)


def get_or_put_secret(connection: sqlite3.Connection, proposed: bytes) -> bytes:
    """Return the secret of the federation; it is the proposed one, which is written, if there was none yet. Call it
    under the write lock (:func:`federation.embedded.database.write`).
    """
    connection.execute("INSERT OR IGNORE INTO rows VALUES (?, ?, 0, NULL)", (SECRET, proposed.hex()))
    return bytes.fromhex(get(connection, SECRET) or "")


def generation_floor(connection: sqlite3.Connection) -> int:
    """Return the floor: the highest generation of a deleted session whose row was removed; 0: no row was removed.

    A session without a row counts as deleted in this generation (handover rule 28).
    """
    return int(get(connection, FLOOR) or 0)


def raise_floor(connection: sqlite3.Connection, generation: int) -> None:
    """Raise the floor to this generation; one that is not higher changes nothing. Call it under the write lock
    (:func:`federation.embedded.database.write`).
    """
    if generation > generation_floor(connection):
        connection.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, 0, NULL)", (FLOOR, str(generation)))


# ---------------------------------------------------------------- leases and what hangs on them


def holder(connection: sqlite3.Connection, proxy: ProxyId) -> ProxyRow | None:
    """Return the row of the incarnation that has the name: the one that was not replaced; None: there is none.

    Leases that are over count until :func:`expire_leases` has ended them: call that first.
    """
    prefix = incarnations_prefix(proxy)
    query = (
        "SELECT value FROM rows JOIN leases ON leases.id = rows.lease"
        " WHERE key >= ? AND key < ? AND superseded = 0 ORDER BY revision DESC LIMIT 1"
    )
    found = connection.execute(query, (prefix, _end_of(prefix))).fetchone()
    return ProxyRow.model_validate_json(found[0]) if found else None


def announce(
    connection: sqlite3.Connection,
    row: ProxyRow,
    now: Moment,
    ttl_ms: int,
    *,
    earlier: Collection[Incarnation] | None,
    replace: bool,
) -> int:
    """Write the row of a proxy under a new lease, whose id is returned, and the address of its site's checkpoints. Call
    it under the write lock (:func:`federation.embedded.database.write`).

    Leases that are over end first. An incarnation that is replaced keeps its lease, which is not renewed any more.

    Args:
        connection: of the registry's file.
        row: the row of the proxy.
        now: the present time.
        ttl_ms: how long the lease lasts without a renewal.
        earlier: incarnations of this instance that have ended, and may be replaced; None: all of them have.
        replace: take the name from any holder.

    Raises:
        NameInUse: the name is taken (federation/names.py).
    """
    expire_leases(connection, now)
    check_name(row, holder(connection, row.proxy), earlier=earlier, replace=replace)
    prefix = incarnations_prefix(row.proxy)
    connection.execute(
        "UPDATE leases SET superseded = 1 WHERE id IN (SELECT lease FROM rows WHERE key >= ? AND key < ?)",
        (prefix, _end_of(prefix)),
    )
    lease = connection.execute(
        "INSERT INTO leases (boot, deadline_ms) VALUES (?, ?)", (now.boot, now.ms + ttl_ms)
    ).lastrowid
    connection.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, 0, NULL)", (SITE + row.site, row.changelog))
    put(connection, incarnation_key(row.proxy, row.incarnation), row.model_dump_json(), lease)
    return int(lease or 0)


def forget_site(connection: sqlite3.Connection, site: SiteId, now: Moment) -> bool:
    """Remove the address of a site's changelog, after ending the leases that are over; the watch reports that, also if
    there was no address. Call it under the write lock (:func:`federation.embedded.database.write`).

    Returns:
        False, and the address stays: a proxy of the site has a lease.
    """
    expire_leases(connection, now)
    if any(ProxyRow.model_validate_json(value).site == site for value in values(connection, INCARNATION)):
        return False
    delete(connection, SITE + site)
    return True


def renew(connection: sqlite3.Connection, lease: int, now: Moment, ttl_ms: int) -> bool:
    """Renew the lease with this id until `ttl_ms` from `now`; return False if it has ended or was superseded.

    Call it under the write lock (:func:`federation.embedded.database.write`).
    """
    cursor = connection.execute(
        "UPDATE leases SET deadline_ms = ? WHERE id = ? AND boot = ? AND deadline_ms > ? AND superseded = 0",
        (now.ms + ttl_ms, lease, now.boot, now.ms),
    )
    return cursor.rowcount == 1


def elect(connection: sqlite3.Connection, link: str, proxy: ProxyId, lease: int, now: Moment) -> int | None:
    """Make the proxy the leader of the link under the lease with this id, after ending the leases that are over.

    A proxy that leads already gets the next epoch. Call it under the write lock
    (:func:`federation.embedded.database.write`).

    Returns:
        The leader's epoch, greater than all before; None: another lease leads, or this one has ended.
    """
    expire_leases(connection, now)
    key = LEADER + link
    current = connection.execute("SELECT lease FROM rows WHERE key = ?", (key,)).fetchone()
    if current is not None and current[0] != lease:
        return None
    if connection.execute("SELECT 1 FROM leases WHERE id = ?", (lease,)).fetchone() is None:
        return None
    epoch = _next_epoch(connection, link)
    put(connection, key, LeaderRow(link=link, proxy=proxy, epoch=epoch).model_dump_json(), lease)
    return epoch


def resign(connection: sqlite3.Connection, link: str, lease: int) -> None:
    """Remove the leader of the link, if it leads under the lease with this id. Call it under the write lock
    (:func:`federation.embedded.database.write`).
    """
    key = LEADER + link
    current = connection.execute("SELECT lease FROM rows WHERE key = ?", (key,)).fetchone()
    if current is not None and current[0] == lease:
        delete(connection, key)


def until_next_end_ms(connection: sqlite3.Connection, now: Moment) -> int | None:
    """Return the milliseconds until the first lease ends; 0 or less: one is over already; None: there is no lease."""
    query = "SELECT min(CASE WHEN boot = ? THEN deadline_ms - ? ELSE 0 END) FROM leases"
    answer = connection.execute(query, (now.boot, now.ms)).fetchone()[0]
    return int(answer) if answer is not None else None


def expire_leases(connection: sqlite3.Connection, now: Moment) -> None:
    """End the leases whose time is over, and those of earlier boots, with their rows. Call it under the write lock
    (:func:`federation.embedded.database.write`).
    """
    query = "SELECT id FROM leases WHERE boot <> ? OR deadline_ms <= ? ORDER BY deadline_ms, id"
    for (lease,) in connection.execute(query, (now.boot, now.ms)).fetchall():
        end_lease(connection, lease)


def end_lease(connection: sqlite3.Connection, lease: int) -> None:
    """Delete the lease with this id and its rows: leaderships first, so that the end of the proxy comes last.

    A lease that has ended is no error. Call it under the write lock (:func:`federation.embedded.database.write`).
    """
    query = "SELECT key FROM rows WHERE lease = ? ORDER BY key LIKE ? DESC, revision"
    for (key,) in connection.execute(query, (lease, LEADER + "%")).fetchall():
        delete(connection, key)
    connection.execute("DELETE FROM leases WHERE id = ?", (lease,))


def _next_epoch(connection: sqlite3.Connection, link: str) -> int:
    cursor = connection.execute(
        "INSERT INTO epochs VALUES (?, 1) ON CONFLICT (link) DO UPDATE SET epoch = epoch + 1 RETURNING epoch",
        (link,),
    )
    return int(cursor.fetchone()[0])
