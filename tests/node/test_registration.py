"""One client in several sessions, on real proxies: one copy of each notification, tagged with all that matched."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import waypost
from chaos.cluster import Cluster, ProxySpec
from waypost.client.join import Joined, JoinedState, Matched
from waypost.errors import Refused

TIMEOUT_S = 60.0
RED, BLUE = "joined/red", "joined/blue"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    flags = {"no-discovery": "", "lease-ttl-ms": "1000"}
    places = [ProxySpec("a1", "A", flags), ProxySpec("a2", "A", flags), ProxySpec("b1", "B", flags)]
    with Cluster(places, [("A", "B")], tmp_path_factory.mktemp("joining")) as cluster:
        yield cluster


async def subscribed(joined: Joined) -> None:
    """Let one have all multiples of two, and the other all of three."""
    for session, expression in ((RED, "n % 2 == 0"), (BLUE, "n % 3 == 0")):
        await joined[session].subscribe(expression, id="x")
        await joined[session].wait_effective("x", ["A/0"])


async def taken(joined: Joined, first: int, last: int, came: list[Matched] | None = None) -> list[Matched]:
    """Take until all that is wanted of these numbers has come; in each session in order."""
    found = [] if came is None else came
    async with asyncio.timeout(TIMEOUT_S):
        while {int(each["n"]) for each in found} != {*wanted(first, last)}:
            found.append(await anext(joined))
    return found


def wanted(first: int, last: int) -> dict[int, set[str]]:
    """Return who wants what of these numbers."""
    by = {RED: 2, BLUE: 3}
    found = {n: {session for session, of in by.items() if n % of == 0} for n in range(first, last + 1)}
    return {n: sessions for n, sessions in found.items() if sessions}


def tags(came: list[Matched]) -> dict[int, set[str]]:
    assert len({received.id for received in came}) == len(came)
    return {int(matched["n"]): {*matched.matched} for matched in came}


async def deleted(joined: Joined) -> None:
    for session in (RED, BLUE):
        await joined[session].delete()


async def test_notification_for_two_joined_sessions_comes_once_tagged_with_both(cluster: Cluster) -> None:
    url = cluster.proxies["a1"].url
    async with waypost.produce("p", proxy=url) as producer, waypost.join([RED, BLUE], proxy=url) as joined:
        await subscribed(joined)
        for n in range(1, 61):
            await producer.publish_soon({"n": n})
        came = await taken(joined, 1, 60)
        found = tags(came)
        for session in (RED, BLUE):
            numbers = [int(matched["n"]) for matched in came if session in matched.matched]
            assert numbers == sorted(numbers)
        assert all(sessions <= wanted(1, 60)[n] for n, sessions in found.items())
        # Where one of the two copies is held up, it is dropped when it comes.
        assert sum(sessions == {RED, BLUE} for sessions in found.values()) > 5
        assert came[-1].subscriptions == ("x",)
        await deleted(joined)


async def test_joined_sessions_yield_one_copy_across_moves_and_a_crash(cluster: Cluster) -> None:
    urls = {name: proxy.url for name, proxy in cluster.proxies.items()}
    async with (
        waypost.produce("p", proxy=[urls["a2"]]) as producer,
        waypost.join([RED, BLUE], proxy=[urls["a1"], urls["a2"], urls["b1"]]) as joined,
    ):
        await subscribed(joined)
        came: list[Matched] = []
        for first in (1, 61, 121, 181):
            for n in range(first, first + 60):
                await producer.publish_soon({"n": n})
            if first == 61:
                await joined[RED].move(urls["b1"])
            if first == 121:
                await joined[BLUE].move(urls["a2"])
            if first == 181:
                cluster.proxies["a1"].kill()
            await taken(joined, 1, first + 59, came)
        found = tags(came)
        assert all(sessions <= wanted(1, 240)[n] for n, sessions in found.items())
        await asyncio.to_thread(cluster.proxies["a1"].start)
        await deleted(joined)


async def test_joined_sessions_redeliver_only_notifications_that_were_not_acknowledged(cluster: Cluster) -> None:
    url = cluster.proxies["a2"].url
    state = JoinedState()
    async with waypost.produce("p", proxy=url) as producer:
        with pytest.raises(RuntimeError, match="in the middle"):
            async with waypost.join([RED, BLUE], state=state, proxy=url) as joined:
                await subscribed(joined)
                for n in range(1, 31):
                    await producer.publish({"n": n})
                before = [await anext(joined) for _ in range(10)]
                raise RuntimeError("in the middle")
        async with waypost.join([RED, BLUE], state=state, proxy=url) as joined:
            # The one in hand comes again, and the others do not.
            again = await taken(joined, 1, 30, before[:-1])
            assert tags(again).keys() == wanted(1, 30).keys()
            await deleted(joined)


def test_sessions_are_named_each_once() -> None:
    for wrong in ([], ["a", "a"]):
        with pytest.raises(Refused, match="each once"):
            waypost.join(wrong)
