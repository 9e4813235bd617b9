"""One hostile client, alone in its process, against a proxy with its defaults: others are served, memory is bounded.

What each attack does: tests/helpers/attacks.py. Beside it an innocent producer's notifications go to an innocent
receiver all the time, and how long each takes is measured; so is the memory of the proxy's processes.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest

import waypost
from chaos.cluster import ProxyProcess, ProxySpec
from tests.helpers.attacks import ATTACKS
from tests.helpers.polling import until
from waypost.limits import MEMORY_BYTES

pytestmark = pytest.mark.alone

DURATION_S = 15.0
WARM_S = 2.0
PAUSE_S = 0.05
LONGEST_S = 1.0
SETTLED_WITHIN_S = 60.0
SETTLED = 1.5


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[ProxyProcess]:
    process = ProxyProcess(ProxySpec("a", "A", {"no-discovery": "", "no-durable": ""}), (), tmp_path)
    process.start()
    yield process
    process.stop()


class Innocent:
    """A producer and a receiver, and how long what one publishes takes to the other."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._published: dict[int, float] = {}
        self._has_subscribed = asyncio.Event()
        self.longest_s = 0.0
        self.delivered = 0

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._receive()), asyncio.create_task(self._publish())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self.longest_s = max(self.longest_s, *(time.monotonic() - at for at in self._published.values()), 0.0)

    async def _publish(self) -> None:
        # What is published before the subscription is there is for nobody.
        await self._has_subscribed.wait()
        async with waypost.produce("innocent", proxy=self._url) as producer:
            for number in range(1 << 30):
                self._published[number] = time.monotonic()
                await producer.publish({"innocent": number})
                await asyncio.sleep(PAUSE_S)

    async def _receive(self) -> None:
        async with waypost.attach("innocent", proxy=self._url) as session:
            await session.subscribe("require(innocent)")
            self._has_subscribed.set()
            async for received in session:
                number = received["innocent"]
                assert isinstance(number, int)
                self.longest_s = max(self.longest_s, time.monotonic() - self._published.pop(number))
                self.delivered += 1


def resident(proxy: ProxyProcess) -> int:
    """Return the bytes of memory that the proxy has."""
    root = psutil.Process(proxy.process.pid)
    return sum(process.memory_info().rss for process in [root, *root.children(recursive=True)])


@pytest.mark.parametrize("name", ATTACKS)
async def test_others_are_served_on_and_memory_comes_back(proxy: ProxyProcess, name: str) -> None:
    innocent = Innocent(proxy.url)
    async with innocent.at_work():
        # An attacker who comes first may take all the connections that there are for this address.
        await until(lambda: innocent.delivered > 0, "both are connected")
        await asyncio.sleep(WARM_S)
        before = peak = resident(proxy)
        command = ("-m", "tests.helpers.attacks", name, proxy.url)
        attacker = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + DURATION_S
        while time.monotonic() < deadline:
            peak = max(peak, resident(proxy))
            await asyncio.sleep(0.1)
        with suppress(ProcessLookupError):
            attacker.kill()
        await attacker.wait()
        deadline = time.monotonic() + SETTLED_WITHIN_S
        while resident(proxy) > SETTLED * before and time.monotonic() < deadline:
            await asyncio.sleep(0.5)
        after = resident(proxy)
    assert innocent.delivered > DURATION_S / PAUSE_S / 4
    assert innocent.longest_s < LONGEST_S
    assert peak < MEMORY_BYTES
    assert after <= SETTLED * before, f"{before / 1e6:.0f} MB -> {peak / 1e6:.0f} MB -> {after / 1e6:.0f} MB"
    log = proxy.process.log.read_text()
    assert "lease lost" not in log
    assert "Traceback" not in log
