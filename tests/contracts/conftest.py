"""The benches that the contract suites run on: in memory, embedded, and the real server.

Logs, registries and changelogs are those of the simulator, too. Session stores have no server: there is the one on the
disk, and that of the simulator.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from chaos.simulator.environment.fake_backends import PlainChangelog, PlainLog, PlainRegistry, PlainStore
from federation.embedded import (
    EmbeddedChangelog,
    EmbeddedJournal,
    EmbeddedRegistry,
    EmbeddedSiteLog,
    read_facts,
)
from federation.etcd import EtcdRegistry
from federation.journal_segments import Rotation
from federation.kafka import KafkaChangelog, KafkaJournal, KafkaSiteLog
from federation.memory import (
    MemoryChangelog,
    MemoryChangelogStorage,
    MemoryJournal,
    MemoryJournalStorage,
    MemoryLogStorage,
    MemoryRegistry,
    MemoryRegistryStorage,
    MemorySiteLog,
)
from federation.ports import Changelog, SiteLog, SiteSnapshot
from node.session_store.sqlite import SqliteSessionStore
from proxy.core.store_port import NOWHERE, Restored, SessionStore, StoreBatch, Swept
from proxy.session.retention import Window
from proxy.session.stored_notification import Entry
from tests.contracts.benches import Bench, Journals, Logs, Registries
from tests.contracts.simulated import SimulatedRegistry, SimulatedSiteLog
from waypost.checkpoint import Checkpoint
from waypost.clock import SystemClock
from waypost.facts import Fact
from waypost.identity import Origin, SessionId, SiteId

KINDS = ("memory", "embedded", "real")


@pytest.fixture(params=["simulated", *KINDS])
async def logs(request: pytest.FixtureRequest, tmp_path: Path, topic_prefix: str) -> AsyncIterator[Logs]:
    benches = {
        "simulated": _simulated_logs,
        "memory": _memory_logs,
        "embedded": _embedded_logs,
        "real": _kafka_logs,
    }
    bench = benches[request.param](request, tmp_path, topic_prefix)
    yield bench
    await bench.close()


@pytest.fixture(params=["simulated", *KINDS])
async def registries(request: pytest.FixtureRequest, tmp_path: Path, key_prefix: str) -> AsyncIterator[Registries]:
    bench = _registries(request, tmp_path, key_prefix)
    yield bench
    await bench.close()


@pytest.fixture(params=KINDS)
async def complete_registries(
    request: pytest.FixtureRequest, tmp_path: Path, key_prefix: str
) -> AsyncIterator[Registries]:
    """All but that of the simulator, which has a part of the port."""
    bench = _registries(request, tmp_path, key_prefix)
    yield bench
    await bench.close()


class PlainChangelogHandle:
    """The simulator's changelog behind the port."""

    def __init__(self, plain: PlainChangelog) -> None:
        self._plain = plain

    async def start(self) -> None:
        pass

    async def put(self, checkpoint: Checkpoint) -> None:
        self._plain.put(checkpoint)

    async def latest(self, session: SessionId) -> tuple[Checkpoint, ...]:
        return self._plain.latest(session)

    async def forget(self, deleted: Mapping[SessionId, int]) -> None:
        self._plain.forget(deleted)

    async def lost(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def put_site(self, snapshot: SiteSnapshot) -> None:
        self._plain.put_site(snapshot)

    async def latest_site(self) -> SiteSnapshot | None:
        return self._plain.site

    async def close(self) -> None:
        pass


@pytest.fixture(params=["simulated", *KINDS])
async def changelogs(
    request: pytest.FixtureRequest, tmp_path: Path, topic_prefix: str
) -> AsyncIterator[Bench[Changelog]]:
    maker: Callable[[], Changelog]
    if request.param == "memory":
        maker = partial(MemoryChangelog, MemoryChangelogStorage())
    elif request.param == "simulated":
        maker = partial(PlainChangelogHandle, PlainChangelog())
    elif request.param == "embedded":
        maker = partial(EmbeddedChangelog, tmp_path / "changelog.db")
    else:
        kafka: KafkaServer = request.getfixturevalue("kafka")
        maker = partial(KafkaChangelog, kafka.bootstrap, f"{topic_prefix}changelog")
    bench: Bench[Changelog] = Bench(maker)
    yield bench
    await bench.close()


@pytest.fixture(params=KINDS)
async def journals(request: pytest.FixtureRequest, tmp_path: Path, topic_prefix: str) -> AsyncIterator[Journals]:
    bench = {"memory": _memory_journals, "embedded": _embedded_journals, "real": _kafka_journals}[request.param](
        request, tmp_path, topic_prefix
    )
    yield bench
    await bench.close()


class PlainSessionStore:
    """The simulator's store behind the port."""

    def __init__(self, disk: PlainStore) -> None:
        self._disk = disk

    async def apply(self, batch: StoreBatch) -> None:
        self._disk.apply(batch)

    async def load(self) -> Restored | None:
        return self._disk.load()

    async def entries(
        self, session: SessionId, after: int, limit: int, passing: Mapping[Origin, int] = NOWHERE
    ) -> list[Entry]:
        return self._disk.entries(session, after, limit, passing)

    async def outdated(self, session: SessionId, windows: Sequence[Window], limit: int) -> Swept:
        return self._disk.outdated(session, windows, limit)

    async def set_aside(self) -> str:
        self._disk = PlainStore()
        return ""

    async def close(self) -> None:
        pass


@pytest.fixture(params=("simulator", "disk"))
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench[SessionStore]]:
    maker: Callable[[], SessionStore]
    if request.param == "simulator":
        maker = partial(PlainSessionStore, PlainStore())
    else:
        maker = partial(SqliteSessionStore, tmp_path / "store.db")
    bench: Bench[SessionStore] = Bench(maker)
    yield bench
    await bench.close()


def _registries(request: pytest.FixtureRequest, folder: Path, prefix: str) -> Registries:
    match request.param:
        case "simulated":
            return Registries(partial(SimulatedRegistry, PlainRegistry()), 200)
        case "memory":
            storage = MemoryRegistryStorage()
            return Registries(lambda: MemoryRegistry(storage, SystemClock()), 200)
        case "embedded":
            return Registries(lambda: EmbeddedRegistry(folder / "registry.db"), 600)
        case _:
            etcd: EtcdServer = request.getfixturevalue("etcd")
            return Registries(lambda: EtcdRegistry(etcd.endpoint, prefix), 2000)


def _simulated_logs(request: pytest.FixtureRequest, folder: Path, prefix: str) -> Logs:
    plain = PlainLog(SiteId("A"))

    async def truncate(log: SiteLog, before: int) -> None:
        plain.truncate(before)

    return Logs(lambda: SimulatedSiteLog(plain), truncate)


def _memory_logs(request: pytest.FixtureRequest, folder: Path, prefix: str) -> Logs:
    storage = MemoryLogStorage()

    async def truncate(log: SiteLog, before: int) -> None:
        storage.truncate(before)

    return Logs(lambda: MemorySiteLog(storage), truncate)


def _embedded_logs(request: pytest.FixtureRequest, folder: Path, prefix: str) -> Logs:
    async def truncate(log: SiteLog, before: int) -> None:
        assert isinstance(log, EmbeddedSiteLog)
        await log.truncate(before)

    return Logs(lambda: EmbeddedSiteLog(folder / "site.db"), truncate)


def _kafka_logs(request: pytest.FixtureRequest, folder: Path, prefix: str) -> Logs:
    kafka: KafkaServer = request.getfixturevalue("kafka")

    async def truncate(log: SiteLog, before: int) -> None:
        assert isinstance(log, KafkaSiteLog)
        await log.truncate(before)

    return Logs(lambda: KafkaSiteLog(kafka.bootstrap, f"{prefix}site"), truncate)


def _memory_journals(request: pytest.FixtureRequest, folder: Path, prefix: str) -> Journals:
    storage = MemoryJournalStorage()

    async def facts() -> list[Fact]:
        return list(storage.facts)

    return Journals(lambda rotation: MemoryJournal(storage, "w", rotation), facts)


def _embedded_journals(request: pytest.FixtureRequest, folder: Path, prefix: str) -> Journals:
    async def facts() -> list[Fact]:
        return read_facts(folder, "proxy/1")

    return Journals(lambda rotation: EmbeddedJournal(folder, "proxy/1", rotation=rotation), facts)


def _kafka_journals(request: pytest.FixtureRequest, folder: Path, prefix: str) -> Journals:
    kafka: KafkaServer = request.getfixturevalue("kafka")

    async def facts() -> list[Fact]:
        reader = KafkaJournal(kafka.bootstrap, f"{prefix}journal")
        try:
            await reader.start()
            return await reader.facts()
        finally:
            await reader.close()

    def journal(rotation: Rotation) -> KafkaJournal:
        return KafkaJournal(kafka.bootstrap, f"{prefix}journal", writer="w", rotation=rotation)

    return Journals(journal, facts)
