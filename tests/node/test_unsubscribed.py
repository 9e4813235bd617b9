"""What was acknowledged before a subscription was ended is delivered, wherever it was published."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import waypost
from chaos.cluster import Cluster, ProxySpec

ROUNDS, EACH = 20, 5
TIMEOUT_S = 20.0
WAYPOST = str(Path(sys.executable).with_name("waypost"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    flags = {"no-discovery": ""}
    places = [ProxySpec("a1", "A", flags), ProxySpec("b1", "B", flags), ProxySpec("c1", "C", flags)]
    with Cluster(places, [("A", "B"), ("B", "C")], tmp_path_factory.mktemp("unsubscribed")) as cluster:
        yield cluster


@pytest.mark.parametrize("at", ["a1", "b1", "c1"])
async def test_notification_acknowledged_before_the_unsubscribe_is_delivered(cluster: Cluster, at: str) -> None:
    """At the session's own site, at the next one, and behind that."""
    producer = waypost.produce(f"producer at {at}", proxy=cluster.proxies[at].url)
    receiver = waypost.attach(f"unsubscribed/{at}", proxy=cluster.proxies["a1"].url)
    acknowledged: set[int] = set()
    given: set[int] = set()

    async def read() -> None:
        async for notification in receiver:
            given.add(int(notification["n"]))

    async with producer, receiver:
        reading = asyncio.create_task(read())
        for turn in range(ROUNDS):
            subscription = await receiver.subscribe(f"turn == {turn}")
            await receiver.wait_effective(subscription, [f"{at[0].upper()}/0"])
            for number in range(turn * EACH, (turn + 1) * EACH):
                await producer.publish({"turn": turn, "n": number})
                acknowledged.add(number)
            await receiver.unsubscribe(subscription)
        async with asyncio.timeout(TIMEOUT_S):
            while acknowledged - given:
                await asyncio.sleep(0.05)
        reading.cancel()
        await receiver.delete()
    assert given == acknowledged


async def test_command_that_receives_names_other_subscriptions_and_what_ends_them(cluster: Cluster) -> None:
    url = cluster.proxies["a1"].url
    async with waypost.attach("several", proxy=url) as receiver:
        for n in range(5):
            await receiver.subscribe(f"n == {n}")
    command = [WAYPOST, "sub", "n == 4", "--session", "several", "-W", "1", "--proxy", url]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    lines = [line for line in done.stderr.splitlines() if "subscription" in line or "more" in line]
    ends = [f"what ends it: waypost sessions unsubscribe several 'n == {n}'" for n in range(3)]
    assert [line.partition("; ")[2] for line in lines[:3]] == ends
    assert lines[3] == "and 1 more"


async def test_command_without_an_expression_receives_what_the_session_subscribes_to(cluster: Cluster) -> None:
    url = cluster.proxies["a1"].url

    async def sub(*words: str) -> subprocess.CompletedProcess[str]:
        command = [WAYPOST, "sub", "--proxy", url, "--session", "read", "--receiver", "bob", "-C", "1", *words]
        return await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )

    absent = await sub()
    assert absent.returncode == 5 and "NOT_FOUND" in absent.stderr
    attached = waypost.attach("read", proxy=url, receiver="alice", principal="alice", password="x")
    async with attached as alice, waypost.produce("p", proxy=url) as producer:
        await alice.wait_attached()
        empty = await sub()
        assert empty.returncode == 5 and "session read has no subscription" in empty.stderr
        await alice.wait_effective(await alice.subscribe("n > 0"), ["A/0"])
        # Who only reads has no right to subscribe, and needs none.
        await alice.set_access({"": waypost.grant("user", password=""), "alice": waypost.grant("owner", password="x")})
        reading = asyncio.create_task(sub())
        for number in range(1, 50):
            await producer.publish({"n": number})
            await asyncio.sleep(0.2)
            if reading.done():
                break
        took = await reading
        assert (took.returncode, took.stdout) == (0, "n=1\n")
        assert took.stderr.startswith("attached to a1@A, session read, ")


def test_command_without_expression_and_session_is_refused() -> None:
    for words in ([], ["--session", "s", "--ttl", "5"]):
        done = subprocess.run([WAYPOST, "sub", *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith("error: BAD_ARGUMENT: expression: write what to receive")
