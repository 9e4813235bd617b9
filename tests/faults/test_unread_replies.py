"""A client that asks and reads no answer is disconnected, and does not keep its place."""

from __future__ import annotations

import asyncio
import contextlib
import re
import struct
import urllib.request
from collections.abc import Iterator

import pytest

from chaos.cluster import Cluster, ProxyProcess, ProxySpec
from tests.helpers.attacks import connected
from tests.helpers.polling import until_seen
from waypost.limits import HANG_UP_WITHIN_S, REPLIES_WITHIN_S

FULL_WITHIN_S = 120.0


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    with Cluster([ProxySpec("a1", "A", {"no-discovery": ""})], [], tmp_path_factory.mktemp("unread")) as cluster:
        yield cluster.proxies["a1"]


async def test_client_that_reads_no_replies_is_disconnected_and_its_slot_is_free(proxy: ProxyProcess) -> None:
    def clients() -> float:
        with urllib.request.urlopen(proxy.url.replace("ws://", "http://") + "/metrics", timeout=10) as answer:
            found = re.search(r"^waypost_clients (\S+)$", answer.read().decode(), re.MULTILINE)
        assert found is not None
        return float(found[1])

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
