"""An operator empties a proxy, levels the load, and looks at what moved, while clients go on."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import waypost
from chaos.cluster import Cluster, ProxySpec
from waypost.notification import Notification

SESSIONS = 12
NUMBERS = 200


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    flags = {"no-discovery": ""}
    places = [ProxySpec("a1", "A", flags), ProxySpec("a2", "A", flags), ProxySpec("b1", "B", flags)]
    with Cluster(places, [("A", "B")], tmp_path) as cluster:
        yield cluster


async def _run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("waypost")), *words]
    return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)


async def _command(*words: str) -> Any:
    """Run one command with --json; return what it printed."""
    done = await _run(*words, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


async def _complaint(*words: str) -> str:
    """Run one command that cannot be done for want of what it names; return what it says."""
    done = await _run(*words)
    assert done.returncode == 5, done.stdout + done.stderr
    return done.stderr


async def _owners(url: str) -> Counter[str]:
    return Counter(row["owner"] for row in (await _command("sessions", "ls", "--proxy", url))["sessions"])


async def test_a_proxy_is_emptied_and_filled_again_under_load(cluster: Cluster) -> None:
    urls = {name: proxy.url for name, proxy in cluster.proxies.items()}
    got: dict[int, list[int]] = {number: [] for number in range(SESSIONS)}

    async def read(number: int, session: waypost.Receiver) -> None:
        async for notification in session:
            got[number].append(int(notification["number"]))

    async def publish() -> None:
        async with waypost.produce("maker", proxy=urls["b1"]) as producer:
            for number in range(NUMBERS):
                await producer.publish_soon(Notification({"number": number}))
                await asyncio.sleep(0.02)
            while producer.unacknowledged:
                await asyncio.sleep(0.05)

    async with AsyncExitStack() as stack:
        readers = []
        for number in range(SESSIONS):
            session = waypost.attach(f"team/{number}", proxy=[urls["a1"], urls["a2"]])
            await stack.enter_async_context(session)
            await session.wait_effective(await session.subscribe("number >= 0"), ["A/0", "B/0"])
            readers.append(asyncio.create_task(read(number, session)))
        publishing = asyncio.create_task(publish())
        assert await _command("drain", "a1", "--rate", "50", "--proxy", urls["b1"]) == {
            "v": 1,
            "proxy": "a1",
            "left": 0,
        }
        assert await _owners(urls["b1"]) == {"a2": SESSIONS}
        shown = (await _command("handovers", "--proxy", urls["a2"]))["handovers"]
        assert {(transfer["role"], transfer["peer"], transfer["phase"]) for transfer in shown} == {
            ("target", "a1", "ended")
        }
        assert not cluster.proxies["a1"].ready()
        assert all(cluster.proxies["a1"].process.has_logged(line) for line in ("drain begun", "drain finished"))
        for asked in ("a1", "a2", "b1"):
            shown = await _command("sessions", "show", "team/3", "--proxy", urls[asked])
            assert (shown["owner"], shown["url"], shown["state"]) == ("a2", urls["a2"], "serving")
            assert [subscription["expression"] for subscription in shown["subscriptions"].values()] == ["number >= 0"]
        assert await _command("drain", "a1", "--pause", "--proxy", urls["b1"]) == {
            "v": 1,
            "proxy": "a1",
            "draining": {"rate": 50.0, "paused": True},
        }
        await _command("drain", "a1", "--stop", "--proxy", urls["b1"])
        assert "nothing to stop" in await _complaint("drain", "a1", "--stop", "--proxy", urls["b1"])
        planned = (await _command("rebalance", "--dry-run", "--proxy", urls["b1"]))["moves"]
        assert len(planned) == SESSIONS // 2
        await _command("rebalance", "--proxy", urls["b1"])
        async with asyncio.timeout(20):
            while await _owners(urls["b1"]) != {"a1": SESSIONS // 2, "a2": SESSIONS // 2}:
                await asyncio.sleep(0.2)
            await publishing
            while any(len(each) < NUMBERS for each in got.values()):
                await asyncio.sleep(0.05)
        for reader in readers:
            reader.cancel()
    assert got == {number: list(range(NUMBERS)) for number in range(SESSIONS)}


async def test_drain_with_nowhere_to_go_says_so_and_is_listed(cluster: Cluster) -> None:
    urls = {name: proxy.url for name, proxy in cluster.proxies.items()}
    async with waypost.attach("team/0", proxy=urls["a1"]):
        pass
    for name in ("a2", "b1"):
        await _command("drain", name, "--proxy", urls["a1"])
    with pytest.raises(subprocess.TimeoutExpired) as waiting:
        command = [str(Path(sys.executable).with_name("waypost")), "drain", "a1", "--proxy", urls["a1"]]
        await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=5)
    assert b"no other proxy takes them" in (waiting.value.stderr or b"")
    drains = (await _command("drain", "--proxy", urls["a1"]))["drains"]
    assert [(row["proxy"], row["left"], row["targets"]) for row in drains] == [("a1", 1, 0), ("a2", 0, 0), ("b1", 0, 0)]
    done = await _run("drain", "--stop", "--proxy", urls["a1"])
    assert (done.returncode, "which proxy" in done.stderr) == (2, True)


async def test_session_whose_owner_is_gone_is_listed_as_unserved(cluster: Cluster) -> None:
    urls = {name: proxy.url for name, proxy in cluster.proxies.items()}
    async with waypost.attach("team/0", proxy=urls["a1"]):
        pass
    await asyncio.to_thread(cluster.proxies["a1"].kill)
    async with asyncio.timeout(20):
        while (await _command("sessions", "ls", "--proxy", urls["a2"]))["sessions"][0]["state"] != "unserved":
            await asyncio.sleep(0.2)
    shown = await _run("sessions", "show", "team/0", "--proxy", urls["a2"])
    assert (shown.returncode, "has no lease" in shown.stderr) == (0, True)
