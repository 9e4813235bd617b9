"""What only the embedded adapters promise: several processes on one file, and what is left after a crash."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from federation.embedded import (
    EmbeddedChangelog,
    EmbeddedJournal,
    EmbeddedRegistry,
    EmbeddedSiteLog,
    read_facts,
    segment_paths,
)
from federation.embedded import registry_rows as rows
from federation.embedded.database import write
from federation.embedded.registry import MachineClock
from federation.journal_segments import Rotation
from federation.ports import LeaderChanged, OwnerChanged, ProxyDown, ProxyRow, ProxyUp, Reloaded
from tests.helpers.watch import changes
from waypost.errors import BadConfiguration, LogUnavailable, RegistryUnavailable
from waypost.facts import Fact, FactKind, encode_fact
from waypost.identity import Epoch, Incarnation, Ownership, ProxyId, SessionId, SiteId
from waypost.limits import LOG_WRITES_TOGETHER
from waypost.records import Published

T = TypeVar("T")
TIMEOUT_S = 30
PRELUDE = """
import asyncio, sys, time
from federation.embedded import *
from federation.ports import ProxyRow
from waypost.records import Published
path, name = sys.argv[1:3]

def made(sequence, at_ms=0):
    return Published(producer=name, incarnation="", sequence=sequence, at_ms=at_ms, body=b"")
"""
APPENDER = """
async def main():
    log = EmbeddedSiteLog(path)
    for turn in range(200):
        offsets = await log.append([made(5 * turn + n) for n in range(5)])
        print(*offsets, flush=True)
    await log.close()
"""
FLOOD = """
async def main():
    log = EmbeddedSiteLog(path)
    for turn in range(1000):
        await log.append([made(100 * turn + n) for n in range(100)])
    await log.close()
"""
STAMPER = """
async def main():
    log = EmbeddedSiteLog(path)
    for turn in range(100):
        await asyncio.sleep(0.015)
        await log.append([made(turn, time.monotonic_ns())])
    await log.close()
"""
HOLDER = """
async def main():
    registry = EmbeddedRegistry(path)
    lease = await registry.announce(ProxyRow(proxy=name, incarnation="1", site="north", url=""), 300)
    await registry.elect("link", name, lease)
    while await lease.renew():
        print("renewed", flush=True)
        await asyncio.sleep(0.05)
"""


@asynccontextmanager
async def process(script: str, path: Path, name: str) -> AsyncIterator[subprocess.Popen[str]]:
    program = f"{PRELUDE}\n{textwrap.dedent(script)}\nasyncio.run(main())"
    running = subprocess.Popen(  # noqa: ASYNC220 - starting is quick
        [sys.executable, "-c", program, str(path), name], stdout=subprocess.PIPE, text=True
    )
    try:
        yield running
    finally:
        running.kill()
        await asyncio.to_thread(running.wait)
        if running.stdout is not None:
            running.stdout.close()


async def line(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return await asyncio.to_thread(running.stdout.readline)


async def collect(log: EmbeddedSiteLog, count: int) -> list[tuple[int, Published, int]]:
    """Return `count` records of a tail with the time at which each came."""
    found: list[tuple[int, Published, int]] = []
    tail: Any = log.tail(0)
    async with asyncio.timeout(TIMEOUT_S), aclosing(tail):
        async for batch in tail:
            found += [(offset, record, time.monotonic_ns()) for offset, record in batch]
            if len(found) >= count:
                break
    return found


# ---------------------------------------------------------------- the site log


async def test_two_processes_append_while_a_third_one_tails(tmp_path: Path) -> None:
    path = tmp_path / "site.db"
    log = EmbeddedSiteLog(path)
    async with process(APPENDER, path, "a"), process(APPENDER, path, "b"):
        found = await collect(log, 2000)
    assert [offset for offset, _, _ in found] == list(range(2000))
    for name in "ab":
        assert [record.sequence for _, record, _ in found if record.producer == name] == list(range(1000))
    await log.close()


async def test_tail_sees_appends_of_another_process_before_its_timeout(tmp_path: Path) -> None:
    path = tmp_path / "site.db"
    log = EmbeddedSiteLog(path)
    async with process(STAMPER, path, "a"):
        found = await collect(log, 100)
    delays_ms = sorted((seen - record.at_ms) / 1e6 for _, record, seen in found)
    # Some 5 ms where the machine has nothing else to do; a tail that waited for a time-out would take a second.
    assert delays_ms[50] < 500
    await log.close()


async def test_acknowledged_records_of_a_killed_process_are_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "site.db"
    acknowledged: list[int] = []
    async with process(APPENDER, path, "a") as running:
        for _ in range(20):
            acknowledged += map(int, (await line(running)).split())
        running.kill()
    log = EmbeddedSiteLog(path)
    kept = await log.read(0, 10_000)
    assert [offset for offset, _ in kept] == list(range(len(kept)))
    assert set(acknowledged) <= {offset for offset, _ in kept}
    # An append is there as a whole or not at all.
    assert len(kept) % 5 == 0
    assert await log.append([Published(producer="b", incarnation=Incarnation(""), sequence=0, at_ms=0, body=b"")]) == [
        len(kept)
    ]
    await log.close()


async def test_concurrent_appends_share_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transactions: list[None] = []

    def counted(connection: sqlite3.Connection, action: Callable[[], T]) -> T:
        transactions.append(None)
        return write(connection, action)

    monkeypatch.setattr("federation.embedded.database.write", counted)
    log = EmbeddedSiteLog(tmp_path / "site.db")
    await log.start()
    transactions.clear()
    await asyncio.gather(
        *(
            log.append([Published(producer="a", incarnation=Incarnation(""), sequence=number, at_ms=0, body=b"")])
            for number in range(2000)
        )
    )
    assert 2000 / LOG_WRITES_TOGETHER <= len(transactions) < 100
    assert await log.end_offset() == 2000
    await log.close()


async def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "inside"
    for log in (EmbeddedSiteLog(path), EmbeddedChangelog(path), EmbeddedJournal(path, "w")):
        with pytest.raises(LogUnavailable, match=str(path)):
            await log.start()
        await log.close()
    registry = EmbeddedRegistry(path)
    with pytest.raises(RegistryUnavailable, match=str(path)):
        await registry.start()
    await registry.close()


async def test_registry_file_is_private_when_made_and_keeps_its_mode_later(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    registry = EmbeddedRegistry(path)
    await registry.secret()
    assert modes(tmp_path) == {0o600}
    await registry.close()
    path.chmod(0o660)
    again = EmbeddedRegistry(path)
    await again.secret()
    assert modes(tmp_path) == {0o660}
    await again.close()


def modes(folder: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in folder.glob("registry.db*")}


async def test_closing_ends_the_tails_and_finishes_the_appends(tmp_path: Path) -> None:
    log = EmbeddedSiteLog(tmp_path / "site.db")
    tail = asyncio.create_task(collect(log, 10**9))
    append = asyncio.create_task(
        log.append([Published(producer="a", incarnation=Incarnation(""), sequence=0, at_ms=0, body=b"")])
    )
    await asyncio.sleep(0)
    await log.close()
    assert await append == [0]
    with pytest.raises(LogUnavailable):
        await tail


async def test_a_tail_comes_to_the_end_of_a_flood_from_another_process(tmp_path: Path) -> None:
    """A bench of this shape once hung (see DatabaseThread); seldom, so this test is no proof against it."""
    path = tmp_path / "site.db"
    log = EmbeddedSiteLog(path)
    async with process(FLOOD, path, "a"):
        found = await collect(log, 100_000)
    assert [offset for offset, _, _ in found] == list(range(100_000))
    await log.close()


# ---------------------------------------------------------------- the registry


@dataclass(frozen=True, slots=True)
class HandClock(MachineClock):
    """A machine's clock that stands where it was put; one list for all processes."""

    hand: list[int]

    def now_ms(self) -> int:
        return self.hand[0]


def row(incarnation: str = "1") -> ProxyRow:
    return ProxyRow(proxy=ProxyId("p"), incarnation=Incarnation(incarnation), site=SiteId("north"), url="")


async def test_the_death_of_a_process_is_seen_by_another(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    registry = EmbeddedRegistry(path)
    seen = []
    async with process(HOLDER, path, "p") as running, asyncio.timeout(TIMEOUT_S):
        assert await line(running) == "renewed\n"
        async for event in changes(registry):
            seen.append(event)
            if isinstance(event, Reloaded):
                assert event.leaders == {"link": ("p", 1)}
                running.kill()
            if isinstance(event, ProxyDown):
                break
    assert seen[1:] == [LeaderChanged("link", None, 1), ProxyDown(ProxyId("p"), Incarnation("1"))]
    await registry.close()


async def test_a_lease_ends_to_the_millisecond_when_its_time_is_over(tmp_path: Path) -> None:
    hand = [1_000]
    registry = EmbeddedRegistry(tmp_path / "registry.db", clock=HandClock("boot", hand))
    lease = await registry.announce(row(), 500)
    hand[0] = 1_499
    assert await lease.renew()
    hand[0] = 1_998
    assert await lease.renew()
    hand[0] = 2_498
    assert not await lease.renew()
    await registry.close()


async def test_a_lease_of_an_earlier_boot_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    before = EmbeddedRegistry(path, clock=HandClock("before", [1_000_000]))
    lease = await before.announce(row(), 60_000)
    assert await before.elect("link", ProxyId("p"), lease) == 1
    await before.close()
    # The clock of the new boot begins at nothing, long before the deadline.
    after = EmbeddedRegistry(path, clock=HandClock("after", [5]))
    assert await after.elect("link", ProxyId("q"), await after.announce(row("2"), 60_000)) == 2
    async with aclosing(changes(after)) as events:
        reloaded = await anext(events)
    assert isinstance(reloaded, Reloaded)
    assert reloaded.proxies == {ProxyId("p"): row("2")}
    await after.close()


async def test_changelog_of_an_earlier_build_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "changelog.db"
    with closing(sqlite3.connect(path)) as earlier, earlier:
        earlier.execute("CREATE TABLE checkpoints (session TEXT PRIMARY KEY, epoch INTEGER, serial INTEGER, body BLOB)")
    changelog = EmbeddedChangelog(path)
    with pytest.raises(BadConfiguration, match="is of an earlier build"):
        await changelog.start()
    await changelog.close()


async def test_a_lease_that_ended_while_nobody_watched_is_not_loaded(tmp_path: Path) -> None:
    """The command that asks who runs is the first to look for ended leases: it would wait for ever."""
    path, hand = tmp_path / "registry.db", [1_000]
    killed = EmbeddedRegistry(path, clock=HandClock("boot", hand))
    await killed.announce(row(), 500)
    await killed.close()
    hand[0] = 1_500
    registry = EmbeddedRegistry(path, clock=HandClock("boot", hand))
    async with aclosing(changes(registry)) as events:
        reloaded = await anext(events)
    assert isinstance(reloaded, Reloaded)
    assert reloaded.proxies == {}
    await registry.close()


async def test_a_watch_behind_the_changes_kept_loads_anew(tmp_path: Path) -> None:
    registry = EmbeddedRegistry(tmp_path / "registry.db")
    events: Any = changes(registry)
    first, second = Ownership(ProxyId("p"), Epoch(1)), Ownership(ProxyId("q"), Epoch(2))
    async with asyncio.timeout(TIMEOUT_S), aclosing(events):
        assert await anext(events) == Reloaded({}, {}, {})
        await registry.create(SessionId("s"), first)
        await registry.claim(SessionId("s"), first, second)
        await registry.compact()
        assert await anext(events) == Reloaded({SessionId("s"): second}, {}, {})
        await registry.claim(SessionId("s"), second, second.next(ProxyId("p")))
        assert await anext(events) == OwnerChanged(SessionId("s"), Ownership(ProxyId("p"), Epoch(3)))
    await registry.close()


async def test_the_log_of_changes_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "REGISTRY_CHANGES_KEPT", 50)
    monkeypatch.setattr(rows, "REGISTRY_CHANGES_PRUNED", 10)
    registry = EmbeddedRegistry(tmp_path / "registry.db", durable=False)
    for number in range(200):
        await registry.create(SessionId(f"s{number}"), Ownership(ProxyId("p"), Epoch(1)))
    oldest, newest = await registry.change(rows.changes_kept)
    assert newest == 200
    assert newest - oldest < 60
    await registry.close()


async def test_an_election_under_a_lease_that_has_ended_is_lost(tmp_path: Path) -> None:
    hand = [0]
    registry = EmbeddedRegistry(tmp_path / "registry.db", clock=HandClock("boot", hand))
    lease = await registry.announce(row(), 100)
    hand[0] = 100
    assert await registry.elect("link", ProxyId("p"), lease) is None
    await registry.close()


async def test_a_proxy_with_a_slash_in_its_name_keeps_to_its_own_rows(tmp_path: Path) -> None:
    registry = EmbeddedRegistry(tmp_path / "registry.db")
    slashed = row().model_copy(update={"proxy": ProxyId("p/1")})
    lease = await registry.announce(row("1"), 60_000)
    other = await registry.announce(slashed, 60_000)
    assert await lease.renew() and await other.renew()
    events: Any = changes(registry)
    async with asyncio.timeout(TIMEOUT_S), aclosing(events):
        reloaded = await anext(events)
        assert reloaded.proxies == {ProxyId("p"): row("1"), ProxyId("p/1"): slashed}
        await other.revoke()
        assert await anext(events) == ProxyDown(ProxyId("p/1"), Incarnation("1"))
        await registry.announce(slashed, 60_000)
        assert await anext(events) == ProxyUp(slashed)
    await registry.close()


# ---------------------------------------------------------------- the journal


def fact(number: int) -> Fact:
    return Fact(writer="w", number=number, at_ms=0, kind=FactKind.OWNED, session="s")


async def test_a_line_that_a_crash_cut_short_does_not_swallow_the_next_one(tmp_path: Path) -> None:
    journal = EmbeddedJournal(tmp_path, "w")
    await journal.attest([fact(1)])
    await journal.close()
    with journal.path.open("ab") as file:
        file.write(b'{"writer":"w","number":2,"at')
    assert read_facts(tmp_path, "w") == [fact(1)]
    again = EmbeddedJournal(tmp_path, "w", durable=True)
    await again.attest([fact(2)])
    await again.close()
    assert read_facts(tmp_path, "w") == [fact(1), fact(2)]


@contextmanager
def full_disk(room: int = 0) -> Iterator[None]:
    """No file of this process can become larger than that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_parts_lie_beside_one_another_and_the_next_life_goes_on_with_the_numbers(tmp_path: Path) -> None:
    rotation = Rotation(segment_bytes=250)
    for numbers in (range(1, 7), range(7, 12)):
        journal = EmbeddedJournal(tmp_path, "a/w", rotation=rotation)
        for number in numbers:
            await journal.attest([fact(number)])
        await journal.close()
    parts = segment_paths(tmp_path, "a/w")
    assert [path.name for path in parts[:2]] == ["a%2Fw.000001.jsonl", "a%2Fw.000002.jsonl"]
    assert parts[-1].name == "a%2Fw.jsonl" and len(parts) > 3
    found = read_facts(tmp_path, "a/w")
    assert [fact.number for fact in found if fact.writer == "w"] == list(range(1, 12))
    begins = [fact for fact in found if fact.kind is FactKind.ROTATED]
    assert [fact.number for fact in begins] == list(range(1, len(parts) + 1))
    for path, begin in zip(parts, begins, strict=True):
        assert path.read_bytes().startswith(encode_fact(begin) + b"\n")
    # Another writer's parts are none of this one's.
    assert segment_paths(tmp_path, "a") == []


@pytest.mark.parametrize("room", [0, 130], ids=["room for nothing", "room for the beginning alone"])
async def test_a_part_that_could_not_be_begun_is_begun_by_the_next_fact(tmp_path: Path, room: int) -> None:
    journal = EmbeddedJournal(tmp_path, "w", rotation=Rotation(segment_bytes=250))
    for number in range(1, 4):
        await journal.attest([fact(number)])
    with full_disk(room):
        for _ in range(3):
            with pytest.raises(LogUnavailable):
                await journal.attest([fact(4)])
    await journal.attest([fact(4)])
    await journal.attest([fact(5)])
    await journal.close()
    found = read_facts(tmp_path, "w")
    assert [fact.number for fact in found if fact.writer == "w"] == [1, 2, 3, 4, 5]
    begins = [fact for fact in found if fact.kind is FactKind.ROTATED]
    assert [fact.number for fact in begins] == list(range(1, len(begins) + 1))
    assert begins[-1].frontier["w"] >= 3


async def test_writers_have_files_of_their_own_whatever_their_names(tmp_path: Path) -> None:
    for writer in ("a", "a/b", "../a", "ü"):
        journal = EmbeddedJournal(tmp_path / "journal", writer)
        await journal.attest([fact(1)])
        await journal.close()
    assert len(list((tmp_path / "journal").iterdir())) == 4
    assert not (tmp_path / "a.jsonl").exists()


async def test_a_closed_journal_says_so(tmp_path: Path) -> None:
    journal = EmbeddedJournal(tmp_path, "w")
    await journal.close()
    with pytest.raises(LogUnavailable):
        await journal.attest([fact(1)])
