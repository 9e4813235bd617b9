"""The store on a real file: one copy of a notification, what a crash leaves, and what goes bit by bit.

What it promises as every store does: tests/contracts/test_session_store.py.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from node.session_store.sqlite import SqliteSessionStore
from proxy.core.store_port import Outdated, SavedSession, SessionChange, StoreBatch, Swept
from proxy.session.retention import Window
from proxy.session.stored_notification import Entry, StoredNotification
from waypost.checkpoint import Descriptor
from waypost.errors import StoreFailed
from waypost.identity import Epoch, Origin, SessionId, SubscriptionId
from waypost.limits import STORE_TRIM

A = Origin("A/0")
S, T = SessionId("s"), SessionId("t")
X = (SubscriptionId("x"),)


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Callable[[], SqliteSessionStore]]:
    """Give handles on one file; each is another life of the proxy."""
    made: list[SqliteSessionStore] = []

    def open_one() -> SqliteSessionStore:
        made.append(SqliteSessionStore(tmp_path / "store.db"))
        return made[-1]

    yield open_one
    for store in made:
        await store.close()


Open = Callable[[], SqliteSessionStore]


def entry(number: int, offset: int | None = None) -> Entry:
    at = number if offset is None else offset
    return (number, StoredNotification(A, at, f"delivery {at}".encode()), X)


def change(session: SessionId, first: int, *entries: Entry, fresh: bool = False) -> SessionChange:
    following = entries[-1][0] + 1 if entries else first
    saved = SavedSession(
        id=session,
        epoch=Epoch(1),
        checkpointed=(Epoch(1), 0),
        role="serving",
        descriptor=Descriptor(created_at={A: 1}),
        first_number=first,
        next_number=following,
        gates={A: 3, Origin("B/0"): None},
    )
    return SessionChange(saved=saved, entries=entries, replaces=fresh)


def batch(*changes: SessionChange, position: int = 1, dropped: tuple[SessionId, ...] = ()) -> StoreBatch:
    return StoreBatch(
        position=position, acceptance=b"acceptance", site_state=b"state", changes=changes, deleted=dropped
    )


async def numbers(store: SqliteSessionStore, session: SessionId = S, after: int = 0) -> list[int]:
    return [entry[0] for entry in await store.entries(session, after, 100)]


def copies(path: Path) -> int:
    with sqlite3.connect(path / "store.db") as connection:
        count: int = connection.execute("SELECT count(*) FROM notification").fetchone()[0]
    connection.close()
    return count


async def until_gone(path: Path, left: int = 0) -> None:
    """What is gone is taken away beside everything else."""
    async with asyncio.timeout(10):
        while copies(path) > left:
            await asyncio.sleep(0.01)


async def test_store_removes_entries_that_all_receivers_have(opened: Open, tmp_path: Path) -> None:
    store = opened()
    await store.apply(batch(change(S, 1, entry(1), entry(2), entry(3))))
    await store.apply(batch(change(S, 3)))
    await until_gone(tmp_path, left=1)
    assert await numbers(store) == [3]


async def test_shared_copy_is_removed_with_the_last_session_that_has_it(opened: Open, tmp_path: Path) -> None:
    store = opened()
    await store.apply(batch(change(S, 1, entry(1, 9)), change(T, 1, entry(1, 9))))
    assert copies(tmp_path) == 1
    await store.apply(batch(dropped=(S,)))
    assert (copies(tmp_path), await numbers(store, T)) == (1, [1])
    await store.apply(batch(dropped=(T,)))
    await until_gone(tmp_path)


async def test_a_large_copy_that_goes_holds_up_nothing_and_goes_on_going_after_a_crash(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()
    pieces: list[int] = []
    with monkeypatch.context() as stopped:
        stopped.setattr(SqliteSessionStore, "_trim_on", lambda _: pieces.append(copies(tmp_path)))
        await store.apply(batch(change(S, 1, *(entry(number) for number in range(1, 3 * STORE_TRIM)))))
        pieces.clear()
        await store.apply(batch(dropped=(S,)))
    # The transaction that drops it takes nothing away by itself.
    assert pieces == [3 * STORE_TRIM - 1]
    assert await numbers(store) == []
    await opened().load()
    await until_gone(tmp_path)


async def test_entries_that_all_have_are_taken_away_and_the_others_stay(opened: Open, tmp_path: Path) -> None:
    store = opened()
    last = 2 * STORE_TRIM + 5
    await store.apply(batch(change(S, 1, *(entry(number) for number in range(1, last + 1)))))
    await store.apply(batch(change(S, last - 1, entry(last))))
    await until_gone(tmp_path, left=2)
    assert await numbers(store) == [last - 1, last]


async def test_a_batch_that_fails_changes_nothing(opened: Open) -> None:
    store = opened()
    await store.apply(batch(change(S, 1, entry(1)), position=1))
    bad = change(T, 1, entry(1))
    bad.entries[0][1].delivery = [1]  # type: ignore[assignment]
    with pytest.raises(StoreFailed):
        await store.apply(batch(change(S, 1, entry(2)), bad, position=9))
    found = await store.load()
    assert found is not None and found.position == 1
    assert await numbers(store) == [1]


Y = (SubscriptionId("y"),)


async def test_store_removes_entries_of_a_window_from_the_middle(opened: Open, tmp_path: Path) -> None:
    store = opened()
    rows = [entry(1), (2, StoredNotification(A, 2, b"two"), Y), entry(3), entry(4)]
    await store.apply(batch(change(S, 1, *rows)))
    windows = [Window(X, 1, 4)]
    assert await store.outdated(S, windows, 10) == Swept([Outdated(1, X, A, 1), Outdated(3, X, A, 3)], 2)
    assert await store.outdated(S, windows, 1) == Swept([Outdated(1, X, A, 1)], 2)
    everything = [*windows, Window(Y, 1, 9), Window(X, 4, 9)]
    assert (await store.outdated(S, everything, 10)).lowest is None
    saved = change(S, 1).saved
    await store.apply(batch(SessionChange(saved=saved, entries=[], removed=windows)))
    assert await numbers(store) == [2, 4]
    assert copies(tmp_path) == 2


@pytest.mark.parametrize(
    "table",
    [
        "CREATE TABLE session (id TEXT PRIMARY KEY, epoch INTEGER)",
        "CREATE TABLE entry (copy INTEGER, number INTEGER, notification INTEGER, matched TEXT, seal INTEGER)",
    ],
)
async def test_a_store_of_an_earlier_build_is_refused_with_what_to_do(opened: Open, tmp_path: Path, table: str) -> None:
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute(table)
    connection.close()
    with pytest.raises(StoreFailed, match="earlier build") as refused:
        await opened().load()
    assert "remove it" in (refused.value.hint or "")
