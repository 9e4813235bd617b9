"""A proxy that lives, and that no peer can reach: its clients are served by the owners of their sessions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import waypost
from chaos.cluster import Cluster, ProxySpec
from chaos.servers.process import free_port
from waypost.client.events import Redirected
from waypost.errors import NoProxy, Unreachable


async def test_a_client_at_a_proxy_whose_peers_do_not_reach_it_is_served_by_the_sessions_owner(tmp_path: Path) -> None:
    nowhere = f"ws://127.0.0.1:{free_port()}"
    flags = {"no-discovery": ""}
    specs = [ProxySpec("a", "A", flags), ProxySpec("b", "A", {**flags, "advertise": nowhere})]
    async with Cluster(specs, [], tmp_path) as cluster:
        owner, cut_off = cluster.proxies["a"], cluster.proxies["b"]
        async with waypost.attach("s", proxy=owner.url) as receiver:
            await receiver.subscribe("n > 0")
        moves: list[object] = []
        async with (
            waypost.produce("p", proxy=cut_off.url) as producer,
            waypost.attach("s", proxy=cut_off.url, on_event=moves.append, timeout_s=60) as receiver,
        ):
            assert [move.url for move in moves if isinstance(move, Redirected)] == [owner.url]
            await producer.publish({"n": 1})
            assert (await asyncio.wait_for(anext(receiver), 20))["n"] == 1
        # Both ways: the proxy that everybody reaches does not get a session of the other one either.
        async with waypost.attach("t", proxy=cut_off.url):
            pass
        async with waypost.attach("t", proxy=[owner.url, cut_off.url], timeout_s=90) as receiver:
            await receiver.subscribe("n > 1")
        with pytest.raises((NoProxy, Unreachable)):
            async with waypost.attach("t", proxy=owner.url, timeout_s=40):
                pass
        assert nowhere in owner.request("/v1/status")["troubles"]["proxy b"]
