"""What every store of sessions promises: the one on the disk, and the one that the simulator stands on."""

from __future__ import annotations

import pytest

from proxy.core.store_port import Outdated, Restored, SavedSession, SessionChange, SessionStore, StoreBatch, Swept
from proxy.session.retention import Mark, Window
from proxy.session.stored_notification import Entry, StoredNotification
from proxy.session.subscription import Matched
from tests.contracts.benches import Bench
from waypost.checkpoint import Descriptor, SubscriptionRow
from waypost.errors import StoreFailed
from waypost.identity import Epoch, Origin, SessionId, SubscriptionId

A, B = Origin("A/0"), Origin("B/0")
S, T = SessionId("s"), SessionId("t")
X, Y = (SubscriptionId("x"),), (SubscriptionId("y"),)
POLICY = SubscriptionRow(id=SubscriptionId("x"), expression="n > 0", start={}, promise_floor={}, promised={}, ttl_s=5)
KEPT = Descriptor(
    created_at={},
    subscriptions=[
        SubscriptionRow(id=SubscriptionId("x"), expression="n > 0", start={}, promise_floor={}, promised={})
    ],
)
Stores = Bench[SessionStore]


def entry(number: int, matched: Matched = X, offset: int | None = None) -> Entry:
    at = number if offset is None else offset
    return (number, StoredNotification(A, at, f"delivery {at}".encode()), matched)


def row(
    session: SessionId = S, first: int = 1, following: int = 1, descriptor: Descriptor | None = KEPT
) -> SavedSession:
    return SavedSession(
        id=session,
        epoch=Epoch(1),
        checkpointed=(Epoch(1), 0),
        role="serving",
        descriptor=descriptor,
        first_number=first,
        next_number=following,
        gates={A: 3, B: None},
    )


def change(
    *entries: Entry,
    session: SessionId = S,
    first: int = 1,
    fresh: bool = False,
    marks: tuple[Mark, ...] = (),
    removed: tuple[Window, ...] = (),
) -> SessionChange:
    following = entries[-1][0] + 1 if entries else first
    return SessionChange(
        saved=row(session, first, following, Descriptor(created_at={}, subscriptions=[POLICY])),
        entries=entries,
        replaces=fresh,
        marks=marks,
        removed=removed,
    )


def batch(*changes: SessionChange, position: int = 1, dropped: tuple[SessionId, ...] = ()) -> StoreBatch:
    return StoreBatch(
        position=position, acceptance=b"acceptance", site_state=b"state", changes=changes, deleted=dropped
    )


async def numbers(store: SessionStore, session: SessionId = S) -> list[int]:
    return [entry[0] for entry in await store.entries(session, 0, 100)]


async def restored(stores: Stores) -> Restored:
    """Return what the next life finds."""
    found = await (await stores.open()).load()
    assert found is not None
    return found


async def test_an_empty_disk_has_nothing(stores: Stores) -> None:
    store = await stores.open()
    assert await store.load() is None
    assert await store.entries(S, 0, 10) == []
    assert await store.outdated(S, [Window(X, 1, 9)], 10) == Swept([], None)


async def test_applied_batch_is_restored_after_a_crash(stores: Stores) -> None:
    saved = row(first=1, following=3)
    await (await stores.open()).apply(batch(SessionChange(saved=saved, entries=[entry(1), entry(2, Y)]), position=7))
    found = await restored(stores)
    assert (found.position, found.acceptance, found.site) == (7, b"acceptance", (7, b"acceptance", b"state"))
    assert found.sessions == [saved]
    entries = await (await stores.open()).entries(S, 0, 10)
    assert [
        (number, notification.origin, notification.offset, notification.delivery, matched)
        for number, notification, matched in entries
    ] == [
        (1, A, 1, b"delivery 1", X),
        (2, A, 2, b"delivery 2", Y),
    ]


async def test_the_site_state_stays_where_a_batch_has_none(stores: Stores) -> None:
    store = await stores.open()
    await store.apply(batch())
    await store.apply(StoreBatch(position=2, acceptance=b"later", site_state=None, changes=(), deleted=()))
    found = await restored(stores)
    assert (found.position, found.acceptance, found.site) == (2, b"later", (2, b"later", b"state"))


async def test_the_site_state_may_stay_behind_what_sessions_have(stores: Stores) -> None:
    store = await stores.open()
    await store.apply(batch(position=1))
    await store.apply(StoreBatch(position=2, acceptance=b"later", site_state=None, changes=(), deleted=(), behind=True))
    found = await restored(stores)
    assert (found.position, found.acceptance, found.site) == (2, b"later", (1, b"acceptance", b"state"))
    await store.apply(StoreBatch(position=3, acceptance=b"last", site_state=b"new", changes=(), deleted=()))
    assert (await restored(stores)).site == (3, b"last", b"new")


async def test_sessions_come_in_the_order_of_their_names(stores: Stores) -> None:
    await (await stores.open()).apply(batch(change(session=T), change(session=S)))
    assert [saved_session.id for saved_session in (await restored(stores)).sessions] == [S, T]


async def test_entries_come_in_order_after_a_number_and_no_more_than_asked_for(stores: Stores) -> None:
    store = await stores.open()
    await store.apply(batch(change(*(entry(n) for n in range(1, 13)))))
    assert [entry[0] for entry in await store.entries(S, 2, 3)] == [3, 4, 5]
    assert [entry[0] for entry in await store.entries(S, 10, 30)] == [11, 12]


async def test_entries_that_a_receiver_has_may_be_skipped_and_do_not_count(stores: Stores) -> None:
    store = await stores.open()
    mixed = [(n, StoredNotification(A if n % 2 else B, n, b"delivery"), X) for n in range(1, 9)]
    await store.apply(batch(change(*mixed)))
    found = {entry[0] for entry in await store.entries(S, 0, 8, {A: 6})}
    assert {2, 4, 6, 7, 8} <= found
    found = {entry[0] for entry in await store.entries(S, 1, 8, {A: 6, B: 3})}
    assert {4, 6, 7, 8} <= found


async def test_repeated_reads_return_every_entry_that_is_not_skipped_and_end(stores: Stores) -> None:
    store = await stores.open()
    await store.apply(batch(change(*(entry(n) for n in range(1, 12_001)))))
    found, after = [], 0
    while entries := await store.entries(S, after, 4, {A: 11_990}):
        assert len(entries) <= 4
        found += [number for number, stored, _ in entries if stored.offset > 11_990]
        after = entries[-1][0]
    assert found == list(range(11_991, 12_001))


async def test_of_a_long_frontier_at_least_nothing_else_is_passed_over(stores: Stores) -> None:
    store = await stores.open()
    await store.apply(batch(change(*(entry(n) for n in range(1, 4)))))
    frontier = {Origin(f"{n}/0"): 9 for n in range(1_000)} | {A: 1}
    assert [entry[0] for entry in await store.entries(S, 0, 9, frontier)][-2:] == [2, 3]


async def test_numbers_may_have_holes(stores: Stores) -> None:
    store = await stores.open()
    await store.apply(batch(change(entry(2), entry(7), entry(9), first=2)))
    assert [entry[0] for entry in await store.entries(S, 3, 1)] == [7]
    assert await store.outdated(S, [Window(X, 3, 8)], 10) == Swept([Outdated(7, X, A, 7)], 2)


async def test_store_no_longer_has_entries_that_all_receivers_have(stores: Stores) -> None:
    store = await stores.open()
    await store.apply(batch(change(entry(1), entry(2), entry(3))))
    await store.apply(batch(change(entry(4), first=3)))
    assert await numbers(store) == [3, 4]
    assert await store.outdated(S, [Window(X, 1, 4)], 10) == Swept([Outdated(3, X, A, 3)], 4)


async def test_a_session_that_is_dropped_takes_its_entries_with_it_and_nothing_of_another_one(stores: Stores) -> None:
    store = await stores.open()
    one = entry(1, offset=9)
    await store.apply(batch(change(one), change(one, session=T)))
    await store.apply(batch(dropped=(S,)))
    assert (await numbers(store, S), await numbers(store, T)) == ([], [1])
    found = await restored(stores)
    assert [saved_session.id for saved_session in found.sessions] == [T] == list(found.policed)
    assert await store.outdated(S, [Window(X, 1, 9)], 10) == Swept([], None)


async def test_a_fresh_copy_leaves_nothing_of_an_earlier_one(stores: Stores) -> None:
    store = await stores.open()
    await store.apply(batch(change(entry(1), entry(2), entry(9), marks=(Mark(3, 1_000), Mark(10, 2_000)))))
    await store.apply(batch(change(entry(1, offset=50), fresh=True)))
    (only,) = await store.entries(S, 0, 10)
    assert (only[0], only[1].offset) == (1, 50)
    assert (await restored(stores)).policed[S].marks == []


@pytest.mark.parametrize("fresh", [True, False])
async def test_a_session_dropped_and_made_again_in_one_batch_is_the_new_one(stores: Stores, fresh: bool) -> None:
    store = await stores.open()
    await store.apply(batch(change(entry(1), entry(2))))
    await store.apply(batch(change(entry(5), first=5, fresh=fresh), dropped=(S,)))
    assert await numbers(store) == [5]
    await store.apply(batch(change(entry(1), first=1, fresh=fresh), dropped=(S,)))
    assert await numbers(store) == [1]


async def test_session_that_is_extended_keeps_its_descriptor(stores: Stores) -> None:
    store = await stores.open()
    await store.apply(batch(SessionChange(saved=row(following=2), entries=[entry(1)])))
    await store.apply(batch(SessionChange(saved=row(following=3, descriptor=None), entries=[entry(2)]), position=2))
    (saved,) = (await restored(stores)).sessions
    assert (saved.descriptor, saved.next_number) == (KEPT, 3)


async def test_session_that_the_store_does_not_have_cannot_be_extended_and_nothing_is_written(stores: Stores) -> None:
    store = await stores.open()
    await store.apply(batch(change(entry(1))))
    extended = SessionChange(saved=row(T, following=2, descriptor=None), entries=[entry(1)])
    with pytest.raises(StoreFailed, match="extend"):
        await store.apply(batch(change(entry(2)), extended, position=2))
    assert await numbers(store) == [1]


async def test_entries_of_one_matching_stay_when_others_of_it_go(stores: Stores) -> None:
    """The names of the subscriptions are kept once."""
    store = await stores.open()
    await store.apply(batch(change(*(entry(number, X + Y) for number in range(1, 4)), entry(4, X))))
    await store.apply(batch(change(entry(5, X + Y, offset=9), session=T)))
    await store.apply(batch(change(entry(5, X + Y, offset=10), first=5)))
    assert [(number, matched) for number, _, matched in await store.entries(S, 0, 9)] == [(5, X + Y)]
    await store.apply(batch(dropped=(S,)))
    assert [(number, matched) for number, _, matched in await store.entries(T, 0, 9)] == [(5, X + Y)]
    await store.apply(batch(change(entry(1, X + Y), fresh=True)))
    assert [matched for *_, matched in await store.entries(S, 0, 9)] == [X + Y]


async def test_a_batch_that_cannot_be_written_changes_nothing(stores: Stores) -> None:
    store = await stores.open()
    await store.apply(batch(change(entry(1)), position=1))
    descriptor = Descriptor(created_at={}, subscriptions=[object()])  # type: ignore[list-item]
    bad = SessionChange(saved=row(T, descriptor=descriptor), entries=[entry(1)])
    with pytest.raises(TypeError):
        await store.apply(batch(change(entry(2), fresh=True), bad, position=9, dropped=(S,)))
    found = await restored(stores)
    assert (found.position, [saved_session.id for saved_session in found.sessions]) == (1, [S])
    assert await numbers(store) == [1]


# ------------------------------------------------------------ policies


async def test_store_removes_entries_of_a_window_from_the_middle(stores: Stores) -> None:
    store = await stores.open()
    await store.apply(batch(change(entry(1), entry(2, Y), entry(3), entry(4))))
    await store.apply(batch(change(removed=(Window(X, 1, 4),))))
    assert await numbers(store) == [2, 4]
    await store.apply(batch(change(removed=(Window(Y, 1, 3), Window(X, 4, 5)))))
    assert await numbers(store) == []


async def test_removed_window_covers_stored_and_new_entries_of_the_same_batch(stores: Stores) -> None:
    store = await stores.open()
    await store.apply(batch(change(entry(1), entry(2))))
    await store.apply(batch(change(entry(3), entry(4, Y), entry(5), removed=(Window(X, 2, 5),))))
    assert await numbers(store) == [1, 4, 5]


async def test_window_covers_only_entries_that_matched_exactly_its_subscriptions(stores: Stores) -> None:
    store = await stores.open()
    await store.apply(batch(change(entry(1), entry(2, X + Y), entry(3, Y))))
    await store.apply(batch(change(removed=(Window(X, 1, 9),))))
    assert await numbers(store) == [2, 3]


async def test_outdated_entries_come_in_order_in_pieces_with_the_lowest_that_stays(stores: Stores) -> None:
    store = await stores.open()
    await store.apply(batch(change(entry(1), entry(2, Y), entry(3), entry(4))))
    windows = [Window(X, 1, 4)]
    one, three = Outdated(1, X, A, 1), Outdated(3, X, A, 3)
    assert await store.outdated(S, windows, 10) == Swept([one, three], 2)
    # What lies in the windows and was not told yet stays, until it was.
    assert await store.outdated(S, windows, 1) == Swept([one], 2)
    assert await store.outdated(S, [*windows, Window(Y, 1, 9)], 2) == Swept([one, Outdated(2, Y, A, 2)], 3)
    assert (await store.outdated(S, [*windows, Window(Y, 1, 9), Window(X, 4, 9)], 10)).lowest is None


async def test_ages_are_found_again_as_long_as_they_say_something(stores: Stores) -> None:
    store = await stores.open()
    marks = (Mark(2, 500), Mark(3, 1_000), Mark(4, 2_000))
    await store.apply(batch(change(entry(2), entry(3), first=2, marks=marks)))
    policed = (await restored(stores)).policed[S]
    assert (list(policed.marks), list(policed.matched)) == ([*marks[1:]], [(2, X), (3, X)])
    await store.apply(batch(change(entry(4, Y), first=3, marks=(Mark(4, 2_500),))))
    policed = (await restored(stores)).policed[S]
    assert (list(policed.marks), list(policed.matched)) == ([Mark(4, 2_500)], [(3, X), (4, Y)])


async def test_session_without_policy_is_not_restored_with_ages(stores: Stores) -> None:
    store = await stores.open()
    await store.apply(batch(SessionChange(saved=row(T, following=2), entries=[entry(1)]), change(entry(1))))
    assert list((await restored(stores)).policed) == [S]


async def test_single_entries_go_by_their_numbers(stores: Stores) -> None:
    store = await stores.open()
    await store.apply(batch(change(entry(1), entry(2), entry(3))))
    at = SessionChange(saved=row(S, 1, 5), entries=[entry(4)], discarded=[2, 4, 9])
    await store.apply(batch(at, position=2))
    assert await numbers(store) == [1, 3]
    assert [entry[0] for entry in await (await stores.open()).entries(S, 0, 100)] == [1, 3]
