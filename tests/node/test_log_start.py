"""How a proxy begins where it cannot read on: a log that begins later, another log, a damaged changelog."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import waypost
from chaos.cluster import Cluster, ProxyProcess, ProxySpec
from federation.embedded.site_log import EmbeddedSiteLog
from federation.memory import (
    MemoryLogStorage,
    MemoryRegistry,
    MemoryRegistryStorage,
    MemorySiteLog,
)
from federation.site.log_epochs import record_of
from node.health.dependency_health import DependencyHealth
from node.machines.log_start import LogStart
from node.startup.backends import Backends
from node.startup.log_start import run_log_start
from tests.helpers.memory_backends import memory_ports
from tests.helpers.polling import until_seen
from waypost.clock import SystemClock
from waypost.errors import BadConfiguration
from waypost.identity import SiteId
from waypost.messages import Gap
from waypost.notification import Notification
from waypost.records import Closed

FLAGS = {"no-discovery": ""}
SESSION = "beginning/session"
LOG = Path("sites/A/log.db")


async def with_log(root: Path, action: Callable[[EmbeddedSiteLog], Awaitable[object]]) -> None:
    log = EmbeddedSiteLog(root / LOG)
    await log.start()
    await action(log)
    await log.close()


async def forget_all(log: EmbeddedSiteLog) -> None:
    """Retention: something is written, and nothing of it is kept, nor of what was before."""
    offsets = await log.append([Closed("somebody", 0, {})] * 5)
    await log.truncate(offsets[-1] + 1)


async def publish(url: str, *numbers: int) -> None:
    async with waypost.produce("maker", proxy=url) as producer:
        for number in numbers:
            await producer.publish(Notification({"to": SESSION, "number": number}))


async def subscribed(proxy: ProxyProcess, state: waypost.ReceiverState) -> None:
    async with waypost.attach(SESSION, proxy=proxy.url, state=state) as session:
        await session.wait_effective(await session.subscribe(f'to == "{SESSION}"'), ["A/0"])


async def restarted(proxy: ProxyProcess) -> None:
    await asyncio.to_thread(proxy.start)


async def test_proxy_with_a_truncated_log_begins_later_and_reports_the_gap(
    tmp_path: Path,
) -> None:
    state, gaps = waypost.ReceiverState(), list[Gap]()
    async with Cluster([ProxySpec("a", "A", FLAGS)], [], tmp_path) as cluster:
        proxy = cluster.proxies["a"]
        await subscribed(proxy, state)
        await publish(proxy.url, 1, 2)
        await until_seen(lambda: proxy.request("/v1/status")["stored"] == 2, "both are stored")
        proxy.stop()
        await with_log(tmp_path, forget_all)
        await restarted(proxy)

        def hear(event: object) -> None:
            gaps.extend([event] if isinstance(event, Gap) else [])

        async with asyncio.timeout(30), waypost.attach(SESSION, proxy=proxy.url, state=state, on_event=hear) as session:
            assert [(await anext(session))["number"] for _ in range(2)] == [1, 2]
            await publish(proxy.url, 3)
            assert (await anext(session))["number"] == 3
    assert [gap.origin for gap in gaps] == ["A/0"]


class Beginning:
    """Proxies of site A that begin with one registry, each with the log that it is given."""

    def __init__(self, folder: Path) -> None:
        self.registry = MemoryRegistry(MemoryRegistryStorage(), SystemClock())
        self._folder = folder

    async def begin(self, site_log: MemorySiteLog) -> LogStart:
        ports = memory_ports(self._folder) | {"log": site_log, "registry": self.registry}
        return await run_log_start(
            SiteId("A"), Backends(**ports), None, DependencyHealth(random.Random(1), SystemClock())
        )


async def test_proxy_that_begins_beside_another_at_an_empty_log_waits_for_the_logs_identity(tmp_path: Path) -> None:
    beginning, site_log = Beginning(tmp_path), MemorySiteLog(MemoryLogStorage())
    first = await beginning.begin(site_log)
    second = asyncio.create_task(beginning.begin(site_log))
    await asyncio.sleep(0.3)
    assert not second.done()
    await site_log.append([record_of(SiteId("A"), first.federation, first.row)])
    assert (await asyncio.wait_for(second, 5)).row == first.row


async def test_proxy_with_an_empty_log_of_its_own_is_refused_though_the_site_has_only_just_begun(
    tmp_path: Path,
) -> None:
    """Else two proxies of a site at two Kafkas, begun at once, would both serve, and each lose what the other has."""
    beginning = Beginning(tmp_path)
    first = await beginning.begin(MemorySiteLog(MemoryLogStorage()))
    second = asyncio.create_task(beginning.begin(MemorySiteLog(MemoryLogStorage())))
    await asyncio.sleep(0.3)
    assert not second.done()
    await beginning.registry.claim_site_log(SiteId("A"), first.row, first.row.model_copy(update={"seen": 0}))
    with pytest.raises(BadConfiguration, match="another one than was read: it is empty"):
        await asyncio.wait_for(second, 5)


async def test_unreadable_site_checkpoint_is_logged_and_ignored(tmp_path: Path) -> None:
    async with Cluster([ProxySpec("a", "A", FLAGS)], [], tmp_path) as cluster:
        proxy = cluster.proxies["a"]
        changelog = tmp_path / "sites/A/changelog.db"

        def kept() -> int:
            with sqlite3.connect(changelog) as connection:
                return int(connection.execute("SELECT count(*) FROM site").fetchone()[0])

        await publish(proxy.url, 1)
        await until_seen(lambda: kept() == 1, "the site's state is kept")
        proxy.stop()
        with sqlite3.connect(changelog) as connection:
            connection.execute("UPDATE site SET body = x'646d67'")
        shutil.rmtree(tmp_path / "proxies/a")
        await restarted(proxy)
        assert "what the changelog has of the site is not used" in proxy.process.log.read_text()
        await publish(proxy.url, 2)


async def test_a_proxy_at_another_log_than_it_had_read_says_so_and_ends(tmp_path: Path) -> None:
    async with Cluster([ProxySpec("a", "A", FLAGS)], [], tmp_path) as cluster:
        proxy, state = cluster.proxies["a"], waypost.ReceiverState()
        await subscribed(proxy, state)
        await publish(proxy.url, 1, 2)
        await until_seen(lambda: proxy.request("/v1/status")["stored"] == 2, "both are stored")
        proxy.stop()
        for file in (tmp_path / LOG).parent.glob("log.db*"):
            file.unlink()
        proxy.process.start()
        proxy.process.wait_until(lambda: proxy.process.has_logged("error: "), timeout_s=20, what="refused")
        logged = proxy.process.log.read_text()
        assert "BAD_CONFIGURATION: log: the log of site A is another one than was read: it is empty" in logged
