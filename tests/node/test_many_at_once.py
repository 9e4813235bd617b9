"""Many honest clients at once, and one that reads nothing: nobody pays for what others cost, or keeps a place."""

from __future__ import annotations

import asyncio
import contextlib
import re
import struct
import time
import urllib.request
from collections.abc import Iterator

import pytest

import waypost
from chaos.cluster import Cluster, ProxyProcess, ProxySpec
from tests.helpers.attacks import connected
from tests.helpers.polling import until_seen
from waypost.limits import HANG_UP_WITHIN_S, REPLIES_WITHIN_S

CLIENTS = 150
FULL_WITHIN_S = 120.0
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


async def test_client_that_reads_no_replies_is_disconnected_and_its_slot_is_free(proxy: ProxyProcess) -> None:
    def clients() -> float:
        with urllib.request.urlopen(proxy.url.replace("ws://", "http://") + "/metrics", timeout=10) as answer:
            found = re.search(r"^waypost_clients (\S+)$", answer.read().decode(), re.MULTILINE)
        assert found is not None
        return float(found[1])

    # Those of the test before may still be leaving.
    await until_seen(lambda: clients() == 0, "nobody is there")
    async with connected(proxy.url) as hostile:
        await hostile.begin(introduced=True)
        await until_seen(lambda: clients() == 1, "it is there")
        hostile.deaf()
        frame = struct.pack("!BBI", 0x82, 0x80 | 5, 0) + b"\xc1" * 5

        async def send_garbage() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    await hostile.write(frame * 1_000)
                    await asyncio.sleep(0)

        sending = asyncio.create_task(send_garbage())
        try:
            # The system's own buffers, some megabytes, have to be full of replies first.
            within_s = REPLIES_WITHIN_S + HANG_UP_WITHIN_S + FULL_WITHIN_S
            await until_seen(lambda: clients() == 0, "its place is free", within_s=within_s)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


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
