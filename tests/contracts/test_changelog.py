"""What every changelog promises."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from federation.ports import Changelog, SiteSnapshot
from tests.contracts.benches import Bench
from waypost.checkpoint import Checkpoint, Descriptor, SubscriptionRow
from waypost.errors import CheckpointOutdated
from waypost.identity import Epoch, Origin, SessionId, SubscriptionId


def checkpoint(session: str, epoch: int, serial: int) -> Checkpoint:
    floor = {Origin("north/0"): serial}
    descriptor = Descriptor(
        created_at={},
        subscriptions=[
            SubscriptionRow(id=SubscriptionId("s1"), expression='x == "ü"', start={}, promise_floor=floor, promised={})
        ],
    )
    return Checkpoint(SessionId(session), Epoch(epoch), serial, descriptor, {Origin("north/0"): 10 * serial})


async def test_unknown_session_has_no_checkpoint(changelogs: Bench[Changelog]) -> None:
    assert await (await changelogs.open()).latest(SessionId("nobody")) == ()


async def test_a_checkpoint_comes_back_as_it_was_at_any_handle(changelogs: Bench[Changelog]) -> None:
    writer, reader = await changelogs.open(), await changelogs.open()
    written = checkpoint("s|1/é", 1, 1)
    await writer.put(written)
    await writer.put(checkpoint("other", 9, 9))
    assert await writer.latest(SessionId("s|1/é")) == (written,)
    assert await reader.latest(SessionId("s|1/é")) == (written,)


async def test_a_later_serial_wins(changelogs: Bench[Changelog]) -> None:
    changelog = await changelogs.open()
    for serial in range(1, 20):
        await changelog.put(checkpoint("s", 1, serial))
    assert await changelog.latest(SessionId("s")) == (checkpoint("s", 1, 19),)


async def test_a_late_write_of_an_old_owner_does_not_win(changelogs: Bench[Changelog]) -> None:
    old, new = await changelogs.open(), await changelogs.open()
    await old.put(checkpoint("s", 1, 500))
    await new.put(checkpoint("s", 2, 1))
    with suppress(CheckpointOutdated):
        await old.put(checkpoint("s", 1, 501))
    for reader in (old, new, await changelogs.open()):
        assert await reader.latest(SessionId("s")) == (checkpoint("s", 2, 1),)


async def test_outdated_checkpoint_is_refused_with_the_epoch_in_force(changelogs: Bench[Changelog]) -> None:
    old, new = await changelogs.open(), await changelogs.open()
    await old.put(checkpoint("s", 1, 0))
    # As another proxy does that would create the session too.
    await new.put(checkpoint("s", 1, 0))
    await new.put(checkpoint("s", 1, 2))
    assert await new.latest(SessionId("s")) == (checkpoint("s", 1, 2),)
    with pytest.raises(CheckpointOutdated) as same_epoch:
        await new.put(checkpoint("s", 1, 1))
    assert same_epoch.value.by_owner
    await new.put(checkpoint("s", 7, 1))
    # That of a session to be made, wherever the others were written: for sure.
    for epoch, serial in ((1, 0), (7, 0)):
        with pytest.raises(CheckpointOutdated) as outdated:
            await old.put(checkpoint("s", epoch, serial))
        assert (outdated.value.epoch, outdated.value.by_owner) == (7, True)
    await old.latest(SessionId("s"))
    with pytest.raises(CheckpointOutdated):
        await old.put(checkpoint("s", 1, 501))
    await new.put(checkpoint("s", 7, 9))
    # A handle that has written nothing yet has read what there is.
    with pytest.raises(CheckpointOutdated):
        await (await changelogs.open()).put(checkpoint("s", 7, 8))


async def test_a_first_checkpoint_hides_none_of_an_owner_and_refuses_none(changelogs: Bench[Changelog]) -> None:
    """Whoever wrote it may have made no session: another proxy was faster, and serves at a lower epoch."""
    owner, maker = await changelogs.open(), await changelogs.open()
    await owner.put(checkpoint("s", 1, 0))
    await maker.put(checkpoint("s", 8, 0))
    for serial in (1, 2):
        await owner.put(checkpoint("s", 1, serial))
        for reader in (owner, maker, await changelogs.open()):
            assert await reader.latest(SessionId("s")) == (checkpoint("s", 1, serial), checkpoint("s", 8, 0))
    with pytest.raises(CheckpointOutdated) as lower:
        await owner.put(checkpoint("s", 7, 0))
    assert (lower.value.epoch, lower.value.by_owner) == (8, False)
    # The owner of a later epoch ends it.
    await owner.put(checkpoint("s", 9, 1))
    assert await maker.latest(SessionId("s")) == (checkpoint("s", 9, 1),)
    await maker.put(checkpoint("s", 12, 0))
    await maker.forget({SessionId("s"): 9})
    assert await owner.latest(SessionId("s")) == (checkpoint("s", 12, 0),)
    await owner.put(checkpoint("s", 10, 1))
    assert await maker.latest(SessionId("s")) == (checkpoint("s", 10, 1), checkpoint("s", 12, 0))


async def test_the_highest_rank_wins_in_whatever_order_they_were_written(
    changelogs: Bench[Changelog],
) -> None:
    changelog = await changelogs.open()
    all_of_them = [checkpoint("s", epoch, serial) for epoch in range(1, 6) for serial in range(1, 6)]
    random.Random(7).shuffle(all_of_them)
    for one in all_of_them:
        with suppress(CheckpointOutdated):
            await changelog.put(one)
    assert await changelog.latest(SessionId("s")) == (checkpoint("s", 5, 5),)
    assert await (await changelogs.open()).latest(SessionId("s")) == (checkpoint("s", 5, 5),)


async def test_acknowledged_checkpoints_survive_reopening(changelogs: Bench[Changelog]) -> None:
    changelog = await changelogs.open()
    await asyncio.gather(*(changelog.put(checkpoint(f"s{number}", 1, number)) for number in range(500)))
    await changelog.close()
    again = await changelogs.open()
    assert await again.latest(SessionId("s0")) == (checkpoint("s0", 1, 0),)
    assert await again.latest(SessionId("s499")) == (checkpoint("s499", 1, 499),)


async def test_reader_sees_checkpoints_acknowledged_to_another_handle(changelogs: Bench[Changelog]) -> None:
    writer, reader = await changelogs.open(), await changelogs.open()
    for serial in range(1, 40):
        await writer.put(checkpoint("s", 1, serial))
        assert await reader.latest(SessionId("s")) == (checkpoint("s", 1, serial),)


async def test_concurrent_writers_lose_nothing(changelogs: Bench[Changelog]) -> None:
    handles = [await changelogs.open() for _ in range(3)]

    async def put(handle: Changelog, one: Checkpoint) -> None:
        with suppress(CheckpointOutdated):
            await handle.put(one)

    await asyncio.gather(
        *(
            put(handle, checkpoint(f"s{number}", epoch, 1))
            for epoch, handle in enumerate(handles, 1)
            for number in range(50)
        )
    )
    for number in range(50):
        assert await handles[0].latest(SessionId(f"s{number}")) == (checkpoint(f"s{number}", 3, 1),)


def snapshot(position: int, size: int = 100) -> SiteSnapshot:
    return SiteSnapshot(position, random.Random(position).randbytes(size))


async def test_changelog_without_a_site_checkpoint_has_no_site_state(changelogs: Bench[Changelog]) -> None:
    changelog = await changelogs.open()
    await changelog.put(checkpoint("s", 1, 1))
    assert await changelog.latest_site() is None


async def test_a_sites_state_comes_back_as_it_was_at_any_handle(changelogs: Bench[Changelog]) -> None:
    writer, reader = await changelogs.open(), await changelogs.open()
    await writer.put(checkpoint("s", 1, 1))
    await writer.put_site(snapshot(7))
    assert await writer.latest_site() == await reader.latest_site() == snapshot(7)
    assert await reader.latest(SessionId("s")) == (checkpoint("s", 1, 1),)


async def test_a_sites_state_may_be_large_and_survives_reopening(changelogs: Bench[Changelog]) -> None:
    changelog = await changelogs.open()
    for position in (1, 2, 3):
        await changelog.put_site(snapshot(position, 3_000_000))
    await changelog.close()
    assert await (await changelogs.open()).latest_site() == snapshot(3, 3_000_000)


async def test_site_state_with_the_highest_position_counts_whichever_handle_wrote_last(
    changelogs: Bench[Changelog],
) -> None:
    ahead, behind = await changelogs.open(), await changelogs.open()
    await ahead.put_site(snapshot(20, 2_000_000))
    for position in range(3, 9):
        await behind.put_site(snapshot(position))
    for reader in (ahead, behind, await changelogs.open()):
        assert await reader.latest_site() == snapshot(20, 2_000_000)


async def test_of_a_sites_states_one_of_a_later_log_epoch_counts_however_far_it_goes(
    changelogs: Bench[Changelog],
) -> None:
    changelog = await changelogs.open()
    later = SiteSnapshot(3, b"later", log_epoch=2)
    for state in (snapshot(20), later, snapshot(30)):
        await changelog.put_site(state)
    assert await changelog.latest_site() == later
    assert await (await changelogs.open()).latest_site() == later


async def test_checkpoints_of_a_deleted_session_are_removed_up_to_its_epoch(changelogs: Bench[Changelog]) -> None:
    writer, reader = await changelogs.open(), await changelogs.open()
    for fields in (("deleted", 1, 0), ("deleted", 1, 3), ("anew", 2, 1), ("deleted", 2, 1), ("stays", 1, 1)):
        await writer.put(checkpoint(*fields))
    await reader.forget({SessionId("deleted"): 2, SessionId("anew"): 1, SessionId("never was"): 9})
    for changelog in (writer, reader, await changelogs.open()):
        assert await changelog.latest(SessionId("deleted")) == ()
        assert await changelog.latest(SessionId("anew")) == (checkpoint("anew", 2, 1),)
        assert await changelog.latest(SessionId("stays")) == (checkpoint("stays", 1, 1),)
    # The name may be given again.
    await writer.put(checkpoint("deleted", 3, 1))
    assert await reader.latest(SessionId("deleted")) == (checkpoint("deleted", 3, 1),)
