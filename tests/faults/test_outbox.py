"""A producer with an outbox is killed again and again, and so is what it publishes to: each post comes once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import waypost
from chaos.cluster import Cluster, ProxySpec
from chaos.servers.kafka import KafkaServer

TIMEOUT_S = 60.0
ROUNDS = 12
CHILD = """
import asyncio, os, sys
import waypost

async def main(path, url, noted, first):
    async with waypost.open_outbox(path, "p", proxy=url) as outbox:
        with open(noted, "a") as file:
            for n in range(first, first + 100_000):
                # Who is killed between the two has posted it, and does not know.
                await outbox.post({"round": first, "n": n})
                print(n, file=file, flush=True)
                await asyncio.sleep(0.001)

asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
"""


FULL = """
import asyncio, contextlib, sys
from pathlib import Path
import waypost

async def main(folder, url):
    async with waypost.open_outbox(folder / "box", "p", proxy=url) as outbox:
        posted = 0
        with contextlib.suppress(waypost.StoreFailed):
            while True:
                await outbox.post({"n": posted, "text": "x" * 3000})
                posted += 1
        with contextlib.suppress(OSError), open(folder / "rest", "wb", buffering=0) as rest:
            while True:
                rest.write(bytes(4096))
        print(posted, flush=True)
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(waypost.StoreFailed):
                    await outbox.post({"n": -1})
                    break
                await asyncio.sleep(0.1)
            await outbox.wait_sent(60)
    async with waypost.open_outbox(folder / "box", "p", proxy=url) as outbox:
        print(outbox.waiting, flush=True)

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""
SMALL_DISK = 'mount -t tmpfs -o size=512k none "$1" && exec "$2" -c "$3" "$1" "$4"'


class Deliveries:
    """What a receiver got, as it came."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    async def listen(self, receiver: waypost.Receiver) -> None:
        async for received in receiver:
            self.numbers.append(int(str(received["n"])))


@contextlib.asynccontextmanager
async def listening(url: str) -> AsyncIterator[Deliveries]:
    deliveries = Deliveries()
    async with waypost.attach("all", proxy=url) as receiver:
        await receiver.wait_effective(await receiver.subscribe("require(n)"), ["A/0"])
        task = asyncio.create_task(deliveries.listen(receiver))
        try:
            yield deliveries
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def post_and_die(folder: Path, url: str, first: int, after_s: float) -> None:
    arguments = [str(folder / "box"), url, str(folder / "noted"), str(first)]
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD, *arguments)
    await asyncio.sleep(after_s)
    assert child.returncode is None
    child.kill()
    await child.wait()


async def end(folder: Path, url: str, deliveries: Deliveries) -> None:
    """Send what still waits, and compare with what was noted."""
    async with waypost.open_outbox(folder / "box", "p", proxy=url) as outbox:
        assert await outbox.refused() == []
        await outbox.post({"n": -1})
        await outbox.wait_sent(TIMEOUT_S)
    async with asyncio.timeout(TIMEOUT_S):
        while deliveries.numbers[-1:] != [-1]:
            await asyncio.sleep(0.1)
    noted = [int(line) for line in (folder / "noted").read_text().split()]
    came = deliveries.numbers[:-1]
    assert len(came) == len(set(came)), "one came twice"
    assert deliveries.numbers == [*sorted(came), -1], "they came in another order"
    assert set(noted) <= set(came), "one was lost"
    # Each death may have left one that was posted and not noted.
    assert len(came) <= len(noted) + ROUNDS
    assert len(noted) > 10 * ROUNDS
    print(f"{len(came)} posts of {ROUNDS} processes came once")


async def test_killed_producers_and_killed_proxies_lose_and_repeat_no_post(tmp_path: Path) -> None:
    rng = random.Random(7)
    flags = {"no-discovery": "", "lease-ttl-ms": "1000"}
    with Cluster([ProxySpec(name, "A", flags) for name in ("a1", "a2")], [], tmp_path) as cluster:
        dying = cluster.proxies["a1"]
        async with listening(cluster.proxies["a2"].url) as deliveries:
            for number in range(ROUNDS):
                if number % 3 == 1:
                    await asyncio.to_thread(dying.kill)
                await post_and_die(tmp_path, dying.url, number * 100_000, rng.uniform(1, 2.5))
                if number % 3 == 2:
                    await asyncio.to_thread(dying.start)
            await end(tmp_path, dying.url, deliveries)


async def test_outbox_that_has_filled_its_disk_empties_itself_and_takes_posts_again(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    own_mounts = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
    with Cluster([ProxySpec(name, "A", {"no-discovery": ""}) for name in ("a1", "a2")], [], tmp_path) as cluster:
        proxy = cluster.proxies["a1"]
        async with listening(cluster.proxies["a2"].url) as deliveries:
            await asyncio.to_thread(proxy.stop)
            arguments = [*own_mounts, "sh", "-c", SMALL_DISK, "sh", str(disk), sys.executable, FULL, proxy.url]
            child = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
            assert child.stdout is not None
            async with asyncio.timeout(2 * TIMEOUT_S):
                posted = int(await child.stdout.readline())
                await asyncio.to_thread(proxy.start)
                waiting = int(await child.stdout.readline())
                assert (await child.wait(), waiting) == (0, 0)
                while deliveries.numbers[-1:] != [-1]:
                    await asyncio.sleep(0.1)
    assert posted > 50
    assert deliveries.numbers == [*range(posted), -1]


async def test_log_of_the_site_is_away_and_posts_wait_for_it(tmp_path: Path) -> None:
    rng = random.Random(8)
    with KafkaServer(tmp_path / "kafka") as kafka:
        flags = {"no-discovery": "", "kafka": kafka.bootstrap, "prefix": "outbox", "mixed-backends": ""}
        with Cluster([ProxySpec("a1", "A", flags)], [], tmp_path) as cluster:
            url = cluster.proxies["a1"].url
            async with listening(url) as deliveries:
                for number in range(ROUNDS):
                    if number % 4 == 1:
                        await asyncio.to_thread(kafka.kill)
                    await post_and_die(tmp_path, url, number * 100_000, rng.uniform(1, 2.5))
                    if number % 4 == 3:
                        await asyncio.to_thread(kafka.start)
                await end(tmp_path, url, deliveries)
