"""As many clients are let in as the process may open files for, and the pages for operators go on."""

from __future__ import annotations

import asyncio
import resource
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import waypost
from chaos.cluster import ProxyProcess, ProxySpec
from node.startup.open_files import FILES_RESERVED, clients_within, raise_limit
from waypost.errors import WaypostError

FILES = 80


@pytest.mark.parametrize(
    ("files", "wanted", "clients"),
    [(20_000, 10_000, 10_000), (1_024, 10_000, 1_024 - FILES_RESERVED), (64, 10_000, 16), (64, 10, 10)],
)
def test_so_many_clients_fit_into_so_many_files(files: int, wanted: int, clients: int) -> None:
    assert clients_within(files, wanted) == clients


def test_the_process_may_open_as_many_files_as_the_system_allows() -> None:
    assert raise_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == raise_limit()


async def test_a_proxy_with_few_files_sends_clients_away_and_answers_its_operators(tmp_path: Path) -> None:
    proxy = ProxyProcess(ProxySpec("few", "A", {"no-discovery": ""}), (), tmp_path)
    proxy.process.command = ["prlimit", f"--nofile={FILES}:{FILES}", *proxy.process.command]
    await asyncio.to_thread(proxy.start)
    try:
        async with AsyncExitStack() as clients:
            for number in range(clients_within(FILES, FILES)):
                await clients.enter_async_context(waypost.produce(f"p{number}", proxy=proxy.url))
            with pytest.raises(WaypostError, match="too many clients"):
                await clients.enter_async_context(waypost.produce("late", proxy=proxy.url, timeout_s=2))
            assert await asyncio.to_thread(proxy.ready)
        assert "this process may open few files" in proxy.process.log.read_text()
        async with waypost.produce("later", proxy=proxy.url) as producer:
            await producer.publish({"n": 1})
    finally:
        await asyncio.to_thread(proxy.stop)
