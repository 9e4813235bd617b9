"""What a proxy tells the registry of a log that lost its end: what it knows itself, whatever others said before."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from federation.memory import (
    MemoryChangelog,
    MemoryChangelogStorage,
    MemoryLogStorage,
    MemoryRegistry,
    MemoryRegistryStorage,
    MemorySiteLog,
)
from federation.messages import SeenRequest, SeenResponse
from federation.ports import SiteLogRow, SiteSnapshot
from federation.site.acceptance import LogMark
from federation.site.log_epochs import LogSeen, federation_of, first_epoch, raised
from federation.site.state import SiteState
from node.health.dependency_health import DependencyHealth
from node.machines.log_guard import LogGuard, Witnessed
from node.site_log.guarded_log import GuardedLog
from node.site_log.witnesses import Witnesses
from node.startup.log_start import run_log_start
from proxy.core.store_port import Restored, SiteCheckpoint
from waypost.clock import ManualClock
from waypost.errors import BadConfiguration, LogReplaced, LogUnavailable
from waypost.identity import NOTHING, Incarnation, Origin, SiteId, log_epoch_of, origin_of
from waypost.records import LogBegun, Published, Record

A = SiteId("A")


class Others(Witnesses):
    """Other proxies that have seen so much of the log, and give one answer after the other; the last one again and
    again. By default nobody has seen anything.
    """

    def __init__(self, *answers: Witnessed) -> None:
        self.answers = [*answers] or [Witnessed()]

    async def ask(self, origin: Origin, before: Origin) -> Witnessed:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def published(number: int) -> Published:
    return Published(producer="p", incarnation=Incarnation("i"), sequence=number, at_ms=0, body=b"\x80")


def records(count: int) -> list[Record]:
    """Return the first records of a log that states its identity."""
    begun: list[Record] = [LogBegun(federation="federation", identity="log", log_epoch=1)]
    return [*begun, *(published(number) for number in range(1, count))][:count]


async def guard(read: int, there: int, known: SiteLogRow, row: SiteLogRow) -> tuple[GuardedLog, MemoryRegistry]:
    """Return the guard of a proxy that has read so many records of a log that has others now."""
    state, registry = SiteState(A), MemoryRegistry(MemoryRegistryStorage(), ManualClock())
    for offset, record in enumerate(records(read)):
        state.fold(offset, record)
    site_log = MemorySiteLog(MemoryLogStorage())
    await site_log.append(records(there))
    await registry.claim_site_log(A, None, row)
    return GuardedLog(LogGuard(state, "federation", known), site_log, registry, Others()), registry


def notice(guard: GuardedLog, end: int | None) -> None:
    with pytest.raises(LogReplaced), guard.remember_replacement():
        raise LogReplaced("another one", end=end)


async def test_a_row_that_others_have_changed_since_is_raised_all_the_same() -> None:
    """Where it is not, whoever begins next sees the log as it has grown by then, and takes that for what was read."""
    known = SiteLogRow(identity="log", seen=3)
    own_guard, registry = await guard(read=10, there=8, known=known, row=known.model_copy(update={"seen": 7}))
    notice(own_guard, end=6)
    await own_guard.enter_next_epoch()
    row = await registry.site_log(A)
    assert row is not None and (row.log_epoch, row.ended) == (2, {"A/0": (5, 9)})


async def test_log_guard_lowers_the_recorded_end_of_a_log_to_an_earlier_one() -> None:
    site_log_row = SiteLogRow(identity="log", log_epoch=2, ended={origin_of(A): (7, 8)})
    own_guard, registry = await guard(read=10, there=9, known=SiteLogRow(identity="log"), row=site_log_row)
    notice(own_guard, end=6)
    await own_guard.enter_next_epoch()
    row = await registry.site_log(A)
    assert row is not None and (row.log_epoch, row.ended) == (2, {"A/0": (5, 9)})


async def test_a_log_that_has_all_that_was_read_stays_in_its_epoch() -> None:
    known = SiteLogRow(identity="log")
    own_guard, registry = await guard(read=5, there=9, known=known, row=known)
    await own_guard.enter_next_epoch()
    assert await registry.site_log(A) == known


@pytest.mark.parametrize("others", [-1, 7])
async def test_an_empty_log_enters_no_log_epoch_until_an_operator_says_so(others: int) -> None:
    """It may be another log; who begins there is refused, and told what to do."""
    known = SiteLogRow(identity="log", seen=4)
    own_guard, registry = await guard(read=5, there=0, known=known, row=known)
    own_guard._witnesses = Others(Witnessed(elsewhere=others))
    with pytest.raises(LogReplaced):
        await own_guard._run(own_guard._guard.compare())
    await own_guard.enter_next_epoch()
    row = await registry.site_log(A)
    assert row is not None and (row.log_epoch, row.ended, row.seen) == (1, {}, 4)


@pytest.mark.parametrize("begins_with", [[], [LogBegun(federation="federation", identity="another", log_epoch=1)]])
async def test_a_log_that_was_made_anew_enters_no_log_epoch_by_what_was_appended_since(
    begins_with: list[Record],
) -> None:
    """An append without an answer is sent again, and may be the first record of a topic that a broker made anew."""
    known = SiteLogRow(identity="log", seen=9)
    own_guard, registry = await guard(read=10, there=0, known=known, row=known)
    own_guard._guard._is_identified = True
    await own_guard._log.append([*begins_with, *(published(number) for number in range(3))])
    with pytest.raises(LogReplaced):
        await own_guard._run(own_guard._guard.compare())
    with pytest.raises(LogReplaced):
        own_guard._guard.seen_beyond(origin_of(A), 9)
        await own_guard.check(3, read_below=10, reports=True)
    await own_guard.enter_next_epoch()
    row = await registry.site_log(A)
    assert row is not None and (row.log_epoch, row.ended, row.seen) == (1, {}, 9)


async def test_an_acknowledged_append_that_was_not_read_back_counts_as_seen() -> None:
    """Its producer was told that it is there; nobody would be told that it is lost."""
    known = SiteLogRow(identity="log")
    own_guard, registry = await guard(read=3, there=3, known=known, row=known)
    assert await own_guard._log.append([published(3)]) == [3]
    storage = cast(MemorySiteLog, own_guard._log)._storage
    del storage.records[2:]
    await own_guard.enter_next_epoch()
    row = await registry.site_log(A)
    assert row is not None and (row.log_epoch, row.ended) == (2, {"A/0": (1, 3)})


class Proxy:
    """A proxy that has read so many records of a log, and its guard."""

    def __init__(
        self,
        storage: MemoryLogStorage,
        registry: MemoryRegistry,
        row: SiteLogRow,
        read: int,
        witnesses: Witnesses | None = None,
    ) -> None:
        state = SiteState(A)
        for offset, record in enumerate(storage.records[:read]):
            state.fold(offset, record)
        self.storage, self.row = storage, row
        self.log = MemorySiteLog(storage)
        self.guard = LogGuard(state, "federation", row)
        # So far there was nothing to say.
        self.guard._is_identified = self.guard.is_confirmed = True
        self.guarded_log = GuardedLog(self.guard, self.log, registry, witnesses or Others())
        self.read = read

    @classmethod
    async def at_log(cls, registry: MemoryRegistry, read: int, witnesses: Witnesses | None = None) -> Proxy:
        """Return one that has read a log of so many records up to its end."""
        storage, row = MemoryLogStorage(), await registry.site_log(A)
        assert row is not None
        storage.records.extend(records(read))
        return cls(storage, registry, row, read, witnesses)

    async def check(self) -> asyncio.Task[None]:
        """Read to where it has read, be interrupted, and look."""
        if self.read:
            tail = self.log.tail(0)
            while (await anext(tail))[-1][0] + 1 < self.read:
                pass
        self.log.interrupt()
        return asyncio.create_task(self.guarded_log.after_interruptions())


@pytest.fixture
async def registry() -> MemoryRegistry:
    registry = MemoryRegistry(MemoryRegistryStorage(), ManualClock())
    await registry.claim_site_log(A, None, SiteLogRow(identity="log"))
    return registry


async def test_proxy_with_a_lower_position_appends_no_record_to_a_log_that_lost_its_end(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be acknowledged at offsets that they take for repeats."""
    monkeypatch.setattr("node.machines.log_guard.SURE_MS", 100)
    storage, row = MemoryLogStorage(), await registry.site_log(A)
    assert row is not None
    storage.records.extend(records(10))
    ahead, behind = Proxy(storage, registry, row, 10), Proxy(storage, registry, row, 0)
    looking = [await ahead.check(), await behind.check()]
    del storage.records[6:]
    append = asyncio.create_task(behind.log.append([published(99)]))
    done, _ = await asyncio.wait(looking, timeout=5)
    assert {type(task.exception()) for task in done} == {LogReplaced} and len(done) == 2
    assert not append.done() and storage.end == 6
    row = await registry.site_log(A)
    assert row is not None and (row.log_epoch, row.ended) == (2, {"A/0": (5, 9)})
    append.cancel()


async def test_append_in_a_log_epoch_that_is_not_read_yet_counts_as_seen_in_that_epoch(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.machines.log_guard.SURE_MS", 100)
    row, storage = await registry.site_log(A), MemoryLogStorage()
    second = SiteLogRow(identity="log", log_epoch=2, ended={origin_of(A): (2, 5)})
    await registry.claim_site_log(A, row, second)
    storage.records.extend(records(3))
    proxy = Proxy(storage, registry, second, 3)
    await proxy.guarded_log.identify()
    assert await proxy.log.append([published(99)]) == [4]
    looking = await proxy.check()
    del storage.records[3:]
    await asyncio.wait([looking], timeout=5)
    assert isinstance(looking.exception(), LogReplaced)
    row = await registry.site_log(A)
    # It began at 3, and what stands below is of the epoch before.
    assert row is not None and (row.log_epoch, row.ended[origin_of(A, log_epoch=2)]) == (3, (NOTHING, 4))


async def test_nothing_is_appended_before_the_log_says_in_which_epoch_it_is_and_that_was_read(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be acknowledged as of an origin that has ended, and nobody would be given it."""
    monkeypatch.setattr("node.site_log.guarded_log.BEGIN_S", 0.2)
    storage = MemoryLogStorage()
    storage.records.extend(records(3))
    proxy = Proxy(storage, registry, SiteLogRow(identity="log", log_epoch=2, ended={origin_of(A): (2, 5)}), 3)
    proxy.guard._is_identified = proxy.guard.is_confirmed = False
    with pytest.raises(LogUnavailable, match="not read"):
        await append_one(proxy)
    await proxy.guarded_log.identify()
    with pytest.raises(LogUnavailable, match="not read"):
        await append_one(proxy)
    proxy.guard._state.fold(3, storage.records[3])
    with pytest.raises(LogUnavailable, match="not compared"):
        await append_one(proxy)
    await proxy.guarded_log.confirm()
    assert await append_one(proxy) == [4]
    assert [type(record) for record in storage.records[3:]] == [LogBegun, Published]


async def starting(end: int, others: Others) -> tuple[Proxy, MemoryRegistry, asyncio.Task[list[int]]]:
    """Return a proxy that has begun at a log with so many records and is asked to append one, and its registry."""
    registry, row = MemoryRegistry(MemoryRegistryStorage(), ManualClock()), SiteLogRow(identity="log", seen=end - 2)
    await registry.claim_site_log(A, None, row)
    storage = MemoryLogStorage()
    storage.records.extend(records(end))
    proxy = Proxy(storage, registry, row, end, others)
    proxy.guard._is_identified = proxy.guard.is_confirmed = False
    await proxy.guarded_log.identify()
    append = asyncio.create_task(append_one(proxy))
    await asyncio.sleep(0.05)
    assert not append.done() and storage.end == end
    return proxy, registry, append


async def append_one(proxy: Proxy) -> list[int]:
    async with proxy.guarded_log.guard_append():
        return await proxy.log.append([published(99)])


async def test_proxy_that_starts_asks_the_others_once_before_it_appends() -> None:
    proxy, _, append = await starting(4, Others(Witnessed(here=3, elsewhere=3), Witnessed(elsewhere=9)))
    await proxy.guarded_log.confirm()
    assert await append == [4]
    await proxy.guarded_log.confirm()


async def test_log_that_lost_what_only_proxies_of_other_sites_have_seen_enters_the_next_log_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All proxies of the site died together with the broker, and a sibling has named the log's identity since: that
    stands where another record was read.
    """
    monkeypatch.setattr("node.machines.log_guard.SURE_MS", 10)
    for elsewhere in (4, 5, 9):
        proxy, registry, append = await starting(4, Others(Witnessed(here=4, elsewhere=elsewhere)))
        await proxy.log.append([LogBegun(federation="federation", identity="log", log_epoch=1, again=True)])
        with pytest.raises(LogReplaced, match=f"ended at 4, and other proxies have read it up to {elsewhere + 1}"):
            await proxy.guarded_log.confirm()
        with pytest.raises(LogReplaced):
            await append
        await proxy.guarded_log.enter_next_epoch()
        found = await registry.site_log(A)
        assert found is not None and (found.log_epoch, found.ended) == (2, {"A/0": (3, elsewhere)})


@pytest.mark.parametrize(
    "others",
    [
        pytest.param(Others(Witnessed(here=5, elsewhere=5, is_confirmed=True)), id="by its word"),
        pytest.param(Others(Witnessed(elsewhere=5), Witnessed(elsewhere=5, is_confirmed=True)), id="by its later word"),
        pytest.param(Others(Witnessed(elsewhere=5)), id="by what it has appended"),
    ],
)
async def test_log_that_a_live_proxy_of_the_site_has_appended_to_is_confirmed(
    others: Others, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.machines.log_guard.SURE_MS", 10)
    proxy, registry, append = await starting(4, others)
    appended: Record = LogBegun(federation="federation", identity="log", log_epoch=1, again=True)
    if len(others.answers) == 1 and not others.answers[0].is_confirmed:
        appended = published(4)
    await proxy.log.append([appended, appended])
    await proxy.guarded_log.confirm()
    assert await append == [6]
    found = await registry.site_log(A)
    assert found is not None and found.log_epoch == 1


@pytest.mark.parametrize("procedure", ["confirm", "compare"])
async def test_answer_about_an_earlier_log_epoch_shows_no_loss_of_the_present_one(
    procedure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another proxy has begun the next log epoch while the others were asked, and this one has read that."""
    monkeypatch.setattr("node.machines.log_guard.SURE_MS", 10)
    registry, row = MemoryRegistry(MemoryRegistryStorage(), ManualClock()), SiteLogRow(identity="log", seen=2)
    await registry.claim_site_log(A, None, row)
    storage = MemoryLogStorage()
    storage.records.extend(records(4))

    class Meanwhile(Others):
        async def ask(self, origin: Origin, before: Origin) -> Witnessed:
            if origin == origin_of(A):
                later = SiteLogRow(identity="log", log_epoch=2, ended={origin_of(A): (3, 100)})
                await registry.claim_site_log(A, await registry.site_log(A), later)
                begun = LogBegun(federation="federation", identity="log", log_epoch=2, ended=later.ended)
                storage.records.append(begun)
                proxy.guard._state.fold(4, begun)
                return Witnessed(elsewhere=100)
            return Witnessed()

    proxy = Proxy(storage, registry, row, 4, Meanwhile())
    proxy.guard.is_confirmed, proxy.guard._began_at = False, 4
    await proxy.guarded_log._run(getattr(proxy.guard, procedure)())
    found = await registry.site_log(A)
    assert found is not None and (found.log_epoch, found.ended) == (2, {origin_of(A): (3, 100)})


async def test_reader_that_finds_another_log_has_nothing_appended_from_then_on() -> None:
    row = SiteLogRow(identity="log", seen=2)
    guarded, registry = await guard(5, 5, row, row)
    guarded._guard._is_identified = guarded._guard.is_confirmed = True
    with pytest.raises(LogReplaced), guarded.remember_replacement():
        raise LogReplaced("another record", end=3)
    with pytest.raises(LogReplaced, match="another record"):
        async with guarded.guard_append():
            raise AssertionError("appended")
    await guarded.enter_next_epoch()
    found = await registry.site_log(A)
    assert found is not None and (found.log_epoch, found.ended) == (2, {"A/0": (2, 4)})


async def test_identity_that_comes_to_stand_where_a_record_was_read_ends_the_log_epoch() -> None:
    row = SiteLogRow(identity="log", seen=2)
    guarded, registry = await guard(5, 3, row, row)
    guarded._guard._is_identified = False
    guarded._guard._state.acceptance.mark = LogMark()
    with pytest.raises(LogReplaced, match="appends at 3, and was read up to 5"):
        await guarded.identify()
    await guarded._log.append([published(9), published(10)])
    await guarded.enter_next_epoch()
    found = await registry.site_log(A)
    assert found is not None and (found.log_epoch, found.ended) == (2, {"A/0": (2, 5)})


async def test_log_that_lost_what_only_a_dead_proxy_has_read_enters_the_next_log_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was whole when this proxy looked at it first, and lost its end before this proxy had read that."""
    monkeypatch.setattr("node.machines.log_guard.SURE_MS", 10)
    row = SiteLogRow(identity="log", seen=4)
    guarded, registry = await guard(3, 3, row, row)
    guarded._guard._is_identified = False
    with pytest.raises(LogReplaced, match="ends at 3, and was read up to 5"):
        await guarded.identify()
    assert await guarded._log.end_offset() == 3
    found = await registry.site_log(A)
    assert found is not None and (found.log_epoch, found.ended) == (2, {"A/0": (2, 4)})


async def test_offset_seen_only_by_a_neighbour_counts_before_any_append(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.machines.log_guard.SURE_MS", 100)
    proxy = await Proxy.at_log(registry, 3, Others(Witnessed(elsewhere=8)))
    looking = await proxy.check()
    append = asyncio.create_task(proxy.log.append([published(99)]))
    await asyncio.wait([looking], timeout=5)
    assert isinstance(looking.exception(), LogReplaced) and not append.done()
    row = await registry.site_log(A)
    assert row is not None and (row.log_epoch, row.ended) == (2, {"A/0": (2, 8)})
    append.cancel()


async def test_log_guard_writes_a_lost_row_again(registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.machines.log_guard.SURE_MS", 100)
    row, storage = await registry.site_log(A), MemoryLogStorage()
    assert row is not None
    storage.records.extend(records(3))
    empty = MemoryRegistry(MemoryRegistryStorage(), ManualClock())
    proxy = Proxy(storage, empty, row, 3)
    looking = await proxy.check()
    assert await asyncio.wait_for(proxy.log.append([published(99)]), 5) == [3]
    found = await empty.site_log(A)
    assert found is not None and (found.identity, found.seen) == ("log", 2)
    looking.cancel()


async def test_log_guard_restores_the_later_log_epoch_in_a_restored_registry(
    registry: MemoryRegistry,
) -> None:
    """Else the next loss of an end would begin the same log epoch a second time, over offsets that were read."""
    row, storage = await registry.site_log(A), MemoryLogStorage()
    second = SiteLogRow(identity="log", log_epoch=2, ended={origin_of(A): (2, 5)}, seen=7)
    storage.records.extend(records(3))
    proxy = Proxy(storage, registry, second, 3)
    await proxy.guarded_log.check(3, read_below=3, reports=True)
    assert row is not None and row.log_epoch == 1
    assert await registry.site_log(A) == second


@pytest.mark.parametrize("has_row", [True, False])
@pytest.mark.parametrize("said_by", ["folder", "changelog", "log"])
async def test_a_proxy_that_starts_at_a_registry_that_went_back_tells_it_of_the_later_log_epoch(
    registry: MemoryRegistry, has_row: bool, said_by: str
) -> None:
    """It is alone: nobody else knows of it."""
    if not has_row:
        registry._storage.rows.site_logs.clear()
    storage, changelog = MemoryLogStorage(), MemoryChangelog(MemoryChangelogStorage())
    federation, ended = federation_of(await registry.secret()), {origin_of(A): (2, 5)}
    storage.records.append(LogBegun(federation=federation, identity="log", log_epoch=1))
    storage.records.extend(published(number) for number in range(2))
    storage.records.append(LogBegun(federation=federation, identity="log", log_epoch=2, ended=ended))
    state = SiteState(A)
    for offset, record in enumerate(storage.records):
        state.fold(offset, record)
    restored_at = (state.position, state.acceptance.snapshot())
    restored = Restored(*restored_at, SiteCheckpoint(*restored_at, b"")) if said_by == "folder" else None
    if said_by == "changelog":
        await changelog.put_site(SiteSnapshot(state.position, state.snapshot(), 2))
    parts: Any = SimpleNamespace(registry=registry, changelog=changelog, log=MemorySiteLog(storage))
    start = await run_log_start(A, parts, restored, DependencyHealth(random.Random(1), ManualClock()))
    guarded_log = GuardedLog(LogGuard(state, federation, start.row), parts.log, registry, Others())
    await guarded_log.identify()
    row = await registry.site_log(A)
    assert row is not None and (row.identity, row.log_epoch, row.ended) == ("log", 2, ended)


async def test_a_proxy_that_starts_makes_no_secret_where_its_log_belongs_to_a_federation(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry that lost everything is told the secret by a proxy that lives, a moment later."""
    monkeypatch.setattr("node.machines.log_start.SECRET_BACK_MS", 500)
    secret, lost = await registry.secret(), MemoryRegistry(MemoryRegistryStorage(), ManualClock())
    storage = MemoryLogStorage()
    storage.records.append(LogBegun(federation=federation_of(secret), identity="log", log_epoch=1))
    parts: Any = SimpleNamespace(
        registry=lost, changelog=MemoryChangelog(MemoryChangelogStorage()), log=MemorySiteLog(storage)
    )
    health = DependencyHealth(random.Random(1), ManualClock())
    with pytest.raises(BadConfiguration, match="and this registry is empty"):
        await run_log_start(A, parts, None, health)
    starting = asyncio.create_task(run_log_start(A, parts, None, health))
    await asyncio.sleep(0.1)
    assert await lost.secret(secret) == secret
    assert (await starting).federation == federation_of(secret)


async def test_proxy_enters_a_later_log_epoch_of_the_registry_whoever_raised_it(
    registry: MemoryRegistry,
) -> None:
    """An answer of the registry may be lost: then the one who raised it does not know that it did."""
    proxy = await Proxy.at_log(registry, 3)
    await registry.claim_site_log(A, proxy.row, proxy.row.model_copy(update={"log_epoch": 2, "ended": {"A/0": (2, 8)}}))
    with pytest.raises(LogReplaced):
        await proxy.guarded_log.check(3, read_below=3, reports=False)


async def test_a_log_that_was_out_of_reach_and_has_all_that_was_read_goes_on(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.machines.log_guard.SURE_MS", 100)
    proxy = await Proxy.at_log(registry, 10)
    looking = await proxy.check()
    assert await asyncio.wait_for(proxy.log.append([published(99)]), 5) == [10]
    row = await registry.site_log(A)
    assert row is not None and (row.log_epoch, row.seen) == (1, 9)
    looking.cancel()


async def test_a_proxy_that_starts_does_not_wait_for_an_end_that_the_log_has_lost(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody appends before it serves: the log would never come to that end again."""
    monkeypatch.setattr("node.machines.log_guard.SURE_MS", 100)
    proxy = await Proxy.at_log(registry, 3)
    beginning = asyncio.create_task(proxy.guarded_log.until_read(5))
    await asyncio.sleep(0.05)
    assert not beginning.done()
    looking = await proxy.check()
    await asyncio.wait_for(beginning, 5)
    looking.cancel()


async def test_a_registry_that_is_away_is_waited_for(registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.machines.log_guard.SURE_MS", 100)
    storage, row = MemoryLogStorage(), await registry.site_log(A)
    assert row is not None
    proxy = Proxy(storage, registry, row, 0)
    registry._storage.away = True
    looking = await proxy.check()
    append = asyncio.create_task(proxy.log.append([published(99)]))
    await asyncio.sleep(0.5)
    assert not append.done()
    registry._storage.away = False
    assert await asyncio.wait_for(append, 5) == [0]
    looking.cancel()


async def test_starting_proxy_reads_the_row_of_the_log_after_the_log(
    registry: MemoryRegistry,
) -> None:
    """They say what they have seen as soon as the log is out of reach; it may have been asked just before."""
    row = await registry.site_log(A)
    assert row is not None
    newer = row.model_copy(update={"seen": 8})

    class Restarted(MemorySiteLog):
        async def end_offset(self) -> int:
            await registry.claim_site_log(A, row, newer)
            return await super().end_offset()

    storage = MemoryLogStorage()
    storage.records.append(LogBegun(federation=federation_of(await registry.secret()), identity="log", log_epoch=1))
    storage.records.extend(published(number) for number in range(5))
    parts: Any = SimpleNamespace(
        log=Restarted(storage), registry=registry, changelog=MemoryChangelog(MemoryChangelogStorage())
    )
    begin = await run_log_start(A, parts, None, DependencyHealth(random.Random(1), ManualClock()))
    assert (begin.row.log_epoch, begin.row.ended) == (2, {"A/0": (5, 8)})


async def test_offset_seen_by_a_neighbour_is_checked_though_the_row_changes_meanwhile(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.machines.log_guard.SURE_MS", 100)
    proxy = await Proxy.at_log(registry, 3)
    proxy.guard.seen_beyond(origin_of(A), 30)
    looking = asyncio.create_task(proxy.guarded_log.check(3, read_below=3, reports=False))
    await asyncio.sleep(0.05)
    assert await registry.claim_site_log(A, proxy.row, proxy.row.model_copy(update={"seen": 2}))
    await asyncio.wait([looking], timeout=5)
    assert isinstance(looking.exception(), LogReplaced)
    found = await registry.site_log(A)
    assert found is not None and (found.log_epoch, found.ended) == (2, {"A/0": (2, 30)})


async def test_end_of_a_log_that_was_read_further_while_the_answer_was_under_way_is_no_loss(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.machines.log_guard.SURE_MS", 100)
    proxy = await Proxy.at_log(registry, 3)

    class Slow(MemorySiteLog):
        async def end_offset(self) -> int:
            end = await super().end_offset()
            proxy.storage.records.append(published(99))
            proxy.guard._state.fold(end, proxy.storage.records[end])
            return end

    proxy.guarded_log._log = Slow(proxy.storage)
    end = await proxy.guarded_log._log.end_offset()
    assert proxy.guard.position == end + 1
    await proxy.guarded_log.check(end, read_below=end, reports=False)
    # It is asked once more, and the log is read once more meanwhile.
    await proxy.guarded_log.check(end, read_below=end + 1, reports=False)
    assert proxy.guard.position == end + 2
    found = await registry.site_log(A)
    assert found is not None and found.log_epoch == 1


async def test_offset_of_an_ended_origin_seen_by_a_neighbour_is_kept_until_the_registry_has_it() -> None:
    registry, storage = MemoryRegistry(MemoryRegistryStorage(), ManualClock()), MemoryLogStorage()
    row = SiteLogRow(identity="log", log_epoch=2, ended={origin_of(A): (3, 4)})
    await registry.claim_site_log(A, None, row)
    log_begun = LogBegun(federation="federation", identity="log", log_epoch=2, ended={origin_of(A): (3, 4)})
    storage.records.extend([log_begun, *(published(number) for number in range(9))])
    proxy = Proxy(storage, registry, row, 1)
    assert await registry.claim_site_log(A, row, row.model_copy(update={"seen": 9}))
    proxy.guard.seen_beyond(origin_of(A), 99)
    await proxy.guarded_log.check(1, read_below=1, reports=False)
    found = await registry.site_log(A)
    assert found is not None and (found.seen, found.ended) == (9, {"A/0": (3, 99)})


def test_a_proxy_that_has_not_read_its_own_log_says_nothing_of_another_one() -> None:
    """It would say that it has seen nothing, which is not so: its log has it."""
    state = SiteState(A)
    own_guard = LogGuard(state, "federation", SiteLogRow(identity="log"))
    request = SeenRequest(7, Origin("B/0"))
    assert own_guard.answer(request, 0) is None
    own_guard._is_identified = True
    assert own_guard.answer(request, 0) == SeenResponse(7, -1, is_confirmed=False)


@pytest.mark.parametrize(
    ("end", "ended"),
    [
        pytest.param(12, {"A/0": (4, 6), "A/0.2": (9, 9), "A/0.3": (11, 14)}, id="within the present epoch"),
        pytest.param(10, {"A/0": (4, 6), "A/0.2": (9, 9), "A/0.3": (-1, 14)}, id="all of the present epoch"),
        pytest.param(7, {"A/0": (4, 6), "A/0.2": (6, 9), "A/0.3": (-1, 14)}, id="within an earlier one"),
        pytest.param(5, {"A/0": (4, 6), "A/0.2": (-1, 9), "A/0.3": (-1, 14)}, id="all of two"),
        pytest.param(3, {"A/0": (2, 6), "A/0.2": (-1, 9), "A/0.3": (-1, 14)}, id="within the first one"),
    ],
)
def test_nothing_is_left_of_an_epoch_that_began_behind_the_lost_end(
    end: int, ended: dict[str, tuple[int, int]]
) -> None:
    """Else a log that has lost its beginning too would give what stands below a coordinate of the later epoch."""
    row = SiteLogRow(identity="log", log_epoch=3, ended={Origin("A/0"): (4, 6), Origin("A/0.2"): (9, 9)})
    assert raised(A, row, 14, end).ended == {Origin(origin): lost for origin, lost in ended.items()}
    seen = LogSeen(first=1, end=end, begun=None, mark=LogMark(), intact=None, known=None)
    kept = [origin for origin, (last, _) in ended.items() if last >= 1]
    assert first_epoch(raised(A, row, 14, end), seen) == max(log_epoch_of(Origin(origin)) for origin in kept)


async def test_a_start_learns_of_others_how_far_the_epoch_before_was_seen(registry: MemoryRegistry) -> None:
    """The epoch ended by what this site knew; a site that has seen more of it is asked, wherever the tree has it."""
    asked: list[tuple[Origin, Origin]] = []

    class Knowing(Others):
        async def ask(self, origin: Origin, before: Origin) -> Witnessed:
            asked.append((origin, before))
            return Witnessed(before=120)

    storage, row = MemoryLogStorage(), SiteLogRow(identity="log", log_epoch=2, ended={origin_of(A): (2, 5)})
    await registry.claim_site_log(A, await registry.site_log(A), row)
    storage.records.extend(records(3))
    storage.records.append(LogBegun(federation="federation", identity="log", log_epoch=2, ended=dict(row.ended)))
    proxy = Proxy(storage, registry, row, 4, Knowing())
    proxy.guard.is_confirmed = False
    await proxy.guarded_log.confirm()
    assert asked == [(origin_of(A, log_epoch=2), origin_of(A))]
    found = await registry.site_log(A)
    assert found is not None and found.ended == {origin_of(A): (2, 120)}
    last = storage.records[-1]
    assert isinstance(last, LogBegun) and last.ended == {origin_of(A): (2, 120)}
    assert len(storage.records) == 5
