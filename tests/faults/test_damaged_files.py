"""Damage at rest, on real proxies: each receiver has all that was published, as it was, or is told what it lacks."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

import waypost
from chaos.cluster import Cluster, ProxySpec
from chaos.faults.flips import flip_bits
from tests.helpers.polling import until_seen
from waypost.errors import SessionLost
from waypost.messages import Gap

FLAGS = {"no-discovery": "", "lease-ttl-ms": "1000"}
COUNT = 1_500
TEXT = "as it was published " * 5
TIMEOUT_S = 60


def folded(path: Path) -> Path:
    """Put what is in the write-ahead log into the file."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


async def published(cluster: Cluster, name: str) -> None:
    """Have a session with a backlog on the proxy's disk; the proxy has ended in good order."""
    here = cluster.proxies["a1"]
    async with waypost.attach(name, proxy=here.url) as session:
        await session.subscribe("n > 0", id="x")
        await session.wait_effective("x", ["A/0"])
    async with waypost.produce("p", proxy=here.url) as producer:
        for number in range(1, COUNT + 1):
            await producer.publish({"n": number, "text": TEXT})
    await until_seen(lambda: here.stored(name) == COUNT, "all is stored")
    await asyncio.to_thread(here.stop)


async def had(cluster: Cluster, name: str) -> tuple[list[int], set[int]]:
    """Return what the receiver is given, and how many offsets it is told that it lacks."""
    lacks: set[int] = set()
    came: list[int] = []

    def note(event: object) -> None:
        if isinstance(event, Gap):
            lacks.update(range(event.first, event.last + 1))

    async with asyncio.timeout(TIMEOUT_S):
        async with waypost.attach(name, proxy=cluster.proxies["a1"].url, on_event=note) as session:
            async for received in session:
                assert received["text"] == TEXT
                came.append(int(received["n"]))
                if came[-1] == COUNT:
                    break
    return came, lacks


def kept_aside(cluster: Cluster) -> list[Path]:
    return list((cluster.root / "proxies" / "a1").glob("store-damaged-*.db"))


@pytest.mark.parametrize("seed", range(2))
async def test_of_a_store_with_200_flipped_bits_nothing_is_used(tmp_path: Path, seed: int) -> None:
    with Cluster([ProxySpec("a1", "A", FLAGS)], [], tmp_path) as cluster:
        await published(cluster, "s")
        flip_bits(folded(tmp_path / "proxies" / "a1" / "store.db"), 200, seed)
        await asyncio.to_thread(cluster.proxies["a1"].start)
        assert await had(cluster, "s") == (list(range(1, COUNT + 1)), set())
        assert len(kept_aside(cluster)) == 1
    assert "the store is damaged" in (tmp_path / "a1.log").read_text()


async def test_an_entry_that_turns_out_to_be_altered_while_the_proxy_runs_is_given_as_it_was(tmp_path: Path) -> None:
    with Cluster([ProxySpec("a1", "A", FLAGS)], [], tmp_path) as cluster:
        await published(cluster, "s")
        with closing(sqlite3.connect(tmp_path / "proxies" / "a1" / "store.db")) as database, database:
            (delivery,) = database.execute("SELECT delivery FROM notification WHERE offset = 700").fetchone()
            altered = delivery.replace(b"as it was", b"as it has")
            assert altered != delivery
            database.execute("UPDATE notification SET delivery = ? WHERE offset = 700", (altered,))
        await asyncio.to_thread(cluster.proxies["a1"].start)
        assert await had(cluster, "s") == (list(range(1, COUNT + 1)), set())
        assert len(kept_aside(cluster)) == 1
    assert "the store is not what was written" in (tmp_path / "a1.log").read_text()


async def test_a_session_of_which_store_and_changelog_are_lost_is_not_served_empty(tmp_path: Path) -> None:
    with Cluster([ProxySpec("a1", "A", FLAGS)], [], tmp_path) as cluster:
        here = cluster.proxies["a1"]
        await published(cluster, "s")
        for file in [
            *(tmp_path / "sites" / "A").glob("changelog.db*"),
            *(tmp_path / "proxies" / "a1").glob("store.db*"),
        ]:
            file.unlink()
        await asyncio.to_thread(here.start)
        with pytest.raises(SessionLost, match="waypost sessions rm s"):
            async with asyncio.timeout(TIMEOUT_S):
                async with waypost.attach("s", proxy=here.url) as session:
                    await session.wait_attached()
        await asyncio.to_thread(here.request, "/v1/sessions/delete", {"session": "s"})
        async with asyncio.timeout(TIMEOUT_S):
            async with waypost.attach("s", proxy=here.url) as session:
                await session.subscribe("n > 0", id="x")
                await session.wait_effective("x", ["A/0"])


async def test_session_is_not_served_from_an_older_copy_of_the_changelog_without_answered_changes(
    tmp_path: Path,
) -> None:
    """The copy has every session, but not the last subscription of this one; other sessions go on from it."""
    with Cluster([ProxySpec("a1", "A", FLAGS)], [], tmp_path) as cluster:
        here = cluster.proxies["a1"]
        changelog, copy = tmp_path / "sites" / "A" / "changelog.db", tmp_path / "copy.db"
        await published(cluster, "s")
        await asyncio.to_thread(here.start)
        async with waypost.attach("t", proxy=here.url) as session:
            await session.subscribe("n > 0", id="x")
            await session.wait_effective("x", ["A/0"])
        await asyncio.to_thread(here.stop)
        copy.write_bytes(folded(changelog).read_bytes())
        await asyncio.to_thread(here.start)
        async with waypost.attach("s", proxy=here.url) as session:
            await session.subscribe("n < 0", id="y")
            await session.wait_effective("y", ["A/0"])
        await asyncio.to_thread(here.stop)
        for file in [
            *(tmp_path / "sites" / "A").glob("changelog.db*"),
            *(tmp_path / "proxies" / "a1").glob("store.db*"),
        ]:
            file.unlink()
        changelog.write_bytes(copy.read_bytes())
        await asyncio.to_thread(here.start)
        with pytest.raises(SessionLost, match="the changelog has lost its last checkpoint"):
            async with asyncio.timeout(TIMEOUT_S):
                async with waypost.attach("s", proxy=here.url) as session:
                    await session.wait_attached()
        async with asyncio.timeout(TIMEOUT_S):
            async with waypost.attach("t", proxy=here.url) as session:
                await session.wait_attached()


async def test_log_with_400_flipped_bits_yields_no_altered_notification_and_a_gap_for_missing_ones(
    tmp_path: Path,
) -> None:
    with Cluster([ProxySpec("a1", "A", FLAGS)], [], tmp_path) as cluster:
        here = cluster.proxies["a1"]
        await published(cluster, "s")
        flip_bits(folded(tmp_path / "sites" / "A" / "log.db"), 400, 1, keep=20 * 4096, end=20 * 4096)
        for file in (tmp_path / "proxies" / "a1").glob("store.db*"):
            file.unlink()
        await asyncio.to_thread(here.start)
        came, lacks = await had(cluster, "s")
        assert came == sorted(set(came))
        assert len(came) < COUNT <= len(came) + len(lacks)
        async with waypost.produce("q", proxy=here.url) as producer:
            await producer.publish({"n": 5_000, "text": TEXT})
        async with waypost.attach("s", proxy=here.url) as session, asyncio.timeout(TIMEOUT_S):
            again = [received["n"] async for received in first_of(session)]
            assert again == [5_000], (
                f"given before: {again[0] in came}, {len(came)} were, up to {came[-3:]}, {len(lacks)} not"
            )
    assert "what was written cannot be read" in (tmp_path / "a1.log").read_text()


async def first_of(session: waypost.Receiver) -> AsyncIterator[waypost.Received]:
    async for received in session:
        yield received
        return
