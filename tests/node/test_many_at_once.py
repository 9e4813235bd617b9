"""Many honest clients at once: nobody pays for what others cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

import waypost
from chaos.cluster import Cluster, ProxyProcess, ProxySpec

CLIENTS = 150
WITHIN_S = 40
"""All of them are in one process with their clients' side; each one waiting for the others took minutes."""


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    with Cluster([ProxySpec("a1", "A", {"no-discovery": ""})], [], tmp_path_factory.mktemp("many")) as cluster:
        yield cluster.proxies["a1"]


async def test_clients_that_attach_at_once_do_not_wait_for_each_others_time(proxy: ProxyProcess) -> None:
    """As after a failover: each is charged what it costs, not what the loop does for the others meanwhile."""

    async def come(number: int) -> None:
        async with waypost.attach(f"many/{number}", proxy=proxy.url, timeout_s=WITHIN_S) as session:
            for each in range(3):
                await session.subscribe(f"n == {number} && m == {each}")

    async with asyncio.timeout(WITHIN_S):
        await asyncio.gather(*(come(number) for number in range(CLIENTS)))
    began = time.monotonic()
    async with waypost.attach("many/0", proxy=proxy.url, timeout_s=WITHIN_S) as session:
        await session.subscribe("n == 0 && m == 9")
    assert time.monotonic() - began < WITHIN_S / 4


async def test_pages_that_hundreds_request_at_once_are_refused_in_part_and_readiness_is_answered(
    proxy: ProxyProcess,
) -> None:
    host, _, port = proxy.url.removeprefix("ws://").partition(":")

    async def status(page: str) -> int:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET {page} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        line = await reader.readline()
        writer.close()
        return int(line.split()[1])

    async with asyncio.timeout(WITHIN_S):
        requested = [asyncio.create_task(status("/v1/status")) for _ in range(600)]
        await asyncio.sleep(0.5)
        assert await status("/readyz") == 200
        answered = await asyncio.gather(*requested)
    assert set(answered) == {200, 503}
    assert await status("/v1/status") == 200
