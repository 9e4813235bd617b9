"""The store on a real file: all or nothing, one copy of a notification, and what a crash leaves."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from proxy.ports import Outdated, SavedSession, SessionChange, StoreBatch, Swept
from proxy.retention import Mark, Window
from proxy.session import Entry, Stored
from proxy.store import SqliteSessionStore
from waypost.checkpoint import Descriptor, SubscriptionRow
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
    return (number, Stored(A, at, f"delivery {at}".encode()), X)


def change(session: SessionId, first: int, *entries: Entry, fresh: bool = False) -> SessionChange:
    following = entries[-1][0] + 1 if entries else first
    saved = SavedSession(
        session, Epoch(1), "serving", Descriptor({A: 1}), first, following, {A: 3, Origin("B/0"): None}
    )
    return SessionChange(saved, entries, fresh)


def batch(*changes: SessionChange, position: int = 1, dropped: tuple[SessionId, ...] = ()) -> StoreBatch:
    return StoreBatch(position, b"acceptance", b"state", changes, dropped)


async def numbers(store: SqliteSessionStore, session: SessionId = S, after: int = 0) -> list[int]:
    return [each[0] for each in await store.entries(session, after, 100)]


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


async def test_an_empty_disk_has_nothing(opened: Open) -> None:
    assert await opened().load() is None


async def test_what_was_applied_is_there_after_a_crash(opened: Open) -> None:
    await opened().apply(batch(change(S, 1, entry(1), entry(2)), position=7))
    found = await opened().load()
    assert found is not None
    assert (found.position, found.acceptance, found.site_state) == (7, b"acceptance", b"state")
    (saved,) = found.sessions
    assert (saved.id, saved.first_number, saved.next_number, saved.gates) == (S, 1, 3, {A: 3, "B/0": None})
    (first, second) = await opened().entries(S, 0, 10)
    assert (first[0], first[1].origin, first[1].offset, first[1].delivery, first[2]) == (1, A, 1, b"delivery 1", X)
    assert second[0] == 2


async def test_the_site_state_stays_where_a_batch_has_none(opened: Open) -> None:
    store = opened()
    await store.apply(batch())
    await store.apply(StoreBatch(2, b"later", None, (), ()))
    found = await store.load()
    assert found is not None
    assert (found.position, found.acceptance, found.site_state) == (2, b"later", b"state")


async def test_entries_come_in_order_after_a_number_and_no_more_than_asked_for(opened: Open) -> None:
    store = opened()
    await store.apply(batch(change(S, 1, *(entry(n) for n in range(1, 13)))))
    assert [each[0] for each in await store.entries(S, 2, 3)] == [3, 4, 5]


async def test_what_all_receivers_have_goes(opened: Open, tmp_path: Path) -> None:
    store = opened()
    await store.apply(batch(change(S, 1, entry(1), entry(2), entry(3))))
    await store.apply(batch(change(S, 3)))
    await until_gone(tmp_path, left=1)
    assert await numbers(store) == [3]


async def test_one_copy_for_two_sessions_goes_with_the_last_of_them(opened: Open, tmp_path: Path) -> None:
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
    await store.apply(batch(change(S, 1, *(entry(number) for number in range(1, 3 * STORE_TRIM)))))
    pieces: list[int] = []
    with monkeypatch.context() as stopped:
        stopped.setattr(SqliteSessionStore, "_trim_on", lambda _: pieces.append(copies(tmp_path)))
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


async def test_a_fresh_copy_leaves_nothing_of_an_earlier_one(opened: Open) -> None:
    store = opened()
    await store.apply(batch(change(S, 1, entry(1), entry(2), entry(9))))
    await store.apply(batch(change(S, 1, entry(1, 50), fresh=True)))
    (only,) = await store.entries(S, 0, 10)
    assert (only[0], only[1].offset) == (1, 50)


async def test_a_session_dropped_and_made_again_in_one_batch_is_the_new_one(opened: Open) -> None:
    store = opened()
    await store.apply(batch(change(S, 1, entry(1), entry(2))))
    await store.apply(batch(change(S, 5, entry(5), fresh=True), dropped=(S,)))
    assert await numbers(store) == [5]


async def test_a_batch_that_fails_changes_nothing(opened: Open) -> None:
    store = opened()
    await store.apply(batch(change(S, 1, entry(1)), position=1))
    bad = change(T, 1, entry(1))
    bad.entries[0][1].delivery = object()  # type: ignore[assignment]
    with pytest.raises(StoreFailed):
        await store.apply(batch(change(S, 1, entry(2)), bad, position=9))
    found = await store.load()
    assert found is not None and found.position == 1
    assert await numbers(store) == [1]


Y = (SubscriptionId("y"),)


async def test_what_policy_removes_goes_from_the_middle(opened: Open, tmp_path: Path) -> None:
    store = opened()
    rows = [entry(1), (2, Stored(A, 2, b"two"), Y), entry(3), entry(4)]
    await store.apply(batch(change(S, 1, *rows)))
    windows = [Window(X, 1, 4)]
    assert await store.outdated(S, windows, 10) == Swept([Outdated(1, X, A, 1), Outdated(3, X, A, 3)], 2)
    assert await store.outdated(S, windows, 1) == Swept([Outdated(1, X, A, 1)], 2)
    everything = [*windows, Window(Y, 1, 9), Window(X, 4, 9)]
    assert (await store.outdated(S, everything, 10)).lowest is None
    saved = change(S, 1).saved
    await store.apply(batch(SessionChange(saved, [], removed=windows)))
    assert await numbers(store) == [2, 4]
    assert copies(tmp_path) == 2


async def test_a_policy_finds_its_ages_and_its_entries_again(opened: Open) -> None:
    store = opened()
    row = SubscriptionRow(SubscriptionId("x"), "n > 0", {}, {}, {}, ttl_s=5)
    saved = SavedSession(S, Epoch(1), "serving", Descriptor({}, [row]), 2, 4, {})
    await store.apply(batch(SessionChange(saved, [entry(2), entry(3)], marks=[Mark(3, 1_000), Mark(4, 2_000)])))
    await store.apply(batch(change(T, 1, entry(1))))
    found = await opened().load()
    assert found is not None
    assert list(found.policed) == [S]
    assert found.policed[S].marks == [Mark(3, 1_000), Mark(4, 2_000)]
    assert found.policed[S].matched == [(2, X), (3, X)]
    later = SavedSession(S, Epoch(1), "serving", Descriptor({}, [row]), 3, 4, {})
    await store.apply(batch(SessionChange(later, [])))
    found = await opened().load()
    assert found is not None
    assert found.policed[S].marks == [Mark(4, 2_000)]


async def test_a_store_of_an_earlier_build_is_refused_with_what_to_do(opened: Open, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute("CREATE TABLE session (id TEXT PRIMARY KEY, epoch INTEGER)")
    connection.close()
    with pytest.raises(StoreFailed, match="earlier build") as refused:
        await opened().load()
    assert "remove it" in (refused.value.hint or "")
