"""What is large travels in frames that are cut by bytes, over a link, in a handover and to the client."""

from __future__ import annotations

from pathlib import Path

import pytest

import waypost
from chaos.cluster import Cluster, ProxySpec
from waypost.notification import Notification

FLAGS = {"no-discovery": ""}
NUMBER, BYTES = 60, 200_000
"""Together more than one frame may hold."""


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster([ProxySpec("a1", "A", FLAGS), ProxySpec("b1", "B", FLAGS)], [("A", "B")], tmp_path)


async def _take(session: waypost.Receiver, number: int) -> list[int]:
    taken: list[int] = []
    async for notification in session:
        taken.append(int(notification["number"]))
        if len(taken) == number:
            break
    return taken


async def test_large_notifications_cross_a_link_and_move_with_their_session(cluster: Cluster) -> None:
    with cluster:
        here, there = cluster.proxies["a1"].url, cluster.proxies["b1"].url
        state = waypost.ReceiverState()
        async with waypost.attach("team/large", proxy=here, state=state) as session:
            identity = await session.subscribe("number > 0")
            await session.wait_effective(identity, ["A/0", "B/0"])
        async with waypost.produce("maker", proxy=there) as producer:
            for number in range(1, NUMBER + 1):
                await producer.publish(Notification({"number": number, "filling": "x" * BYTES}))
        async with waypost.attach("team/large", proxy=here, state=state) as session:
            taken = await _take(session, 5)
        async with waypost.attach("team/large", proxy=there, state=state) as session:
            assert (await session.wait_attached()).proxy == "b1"
            taken += await _take(session, NUMBER - len(taken))
    assert taken == list(range(1, NUMBER + 1))
