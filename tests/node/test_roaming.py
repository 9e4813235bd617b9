"""Roaming clients at real proxies: the nearest one is found and chosen, a nearer one later, and one that is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import waypost
from chaos.cluster import Cluster, ProxySpec
from chaos.servers.process import LOOPBACK, free_port
from chaos.servers.toxiproxy import ToxiproxyServer
from waypost.client.round_trip import round_trips
from waypost.messages import Proxies

POLICY = waypost.Roaming(margin_ms=20, every_s=0.3, confirmations=2, hold_s=1)
FAR_MS = 60


class Fronts:
    """The fronts of clients to two proxies, over toxiproxy."""

    def __init__(self, cluster: Cluster, fronts: dict[str, Any]) -> None:
        self.cluster = cluster
        self._fronts = fronts
        self.urls = {name: f"ws://{front.listen}" for name, front in fronts.items()}

    def near(self, name: str) -> None:
        """Make one proxy near, and the other far."""
        for other, front in self._fronts.items():
            for toxic in list(front.toxics()):
                front.destroy_toxic(toxic)
            if other != name:
                front.add_toxic(type="latency", attributes={"latency": FAR_MS})


@pytest.fixture(scope="module")
def fronts(toxiproxy: ToxiproxyServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fronts]:
    by_name, specs = {}, []
    for name, site in (("a1", "A"), ("b1", "B")):
        port = free_port()
        by_name[name] = toxiproxy.front(f"roaming-{name}", f"{LOOPBACK}:{port}")
        flags = {"no-discovery": "", "port": str(port), "advertise": f"ws://{by_name[name].listen}"}
        specs.append(ProxySpec(name, site, flags))
    with Cluster(specs, [("A", "B")], tmp_path_factory.mktemp("roaming")) as cluster:
        yield Fronts(cluster, by_name)
    for front in by_name.values():
        front.destroy()


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.02)


def _is_at(receiver: waypost.Receiver, proxy: str) -> Callable[[], bool]:
    return lambda: receiver.attached is not None and receiver.attached.proxy == proxy


async def test_round_trips_tell_the_near_proxy_from_the_far_one(fronts: Fronts) -> None:
    fronts.near("b1")
    nowhere = f"ws://{LOOPBACK}:{free_port()}"
    found = await round_trips([*fronts.urls.values(), nowhere, "ws://no.such.host.invalid:1"], lambda url: None)
    assert found.keys() == set(fronts.urls.values())
    assert found[fronts.urls["a1"]] > FAR_MS > found[fronts.urls["b1"]]


async def test_a_client_goes_to_the_nearest_of_its_proxies(fronts: Fronts) -> None:
    fronts.near("b1")
    async with waypost.attach("roaming/first", proxy=list(fronts.urls.values()), roaming=POLICY) as receiver:
        assert receiver.attached is not None
        assert receiver.attached.proxy == "b1"


async def test_a_client_that_knows_one_proxy_is_told_of_a_nearer_one(fronts: Fronts) -> None:
    fronts.near("b1")
    events: list[object] = []
    async with waypost.attach(
        "roaming/told", proxy=fronts.urls["a1"], roaming=POLICY, on_event=events.append
    ) as receiver:
        await _until(_is_at(receiver, "b1"))
    (known, *_) = [event for event in events if isinstance(event, Proxies)]
    assert {proxy.url: (proxy.proxy, proxy.site) for proxy in known.proxies} == {
        fronts.urls["a1"]: ("a1", "A"),
        fronts.urls["b1"]: ("b1", "B"),
    }
    (moved,) = [event for event in events if isinstance(event, waypost.NearerProxy)]
    assert (moved.url, moved.round_trip_ms < FAR_MS < moved.present_ms) == (fronts.urls["b1"], True)


async def test_a_client_that_moves_to_and_fro_misses_nothing_and_has_nothing_twice(fronts: Fronts) -> None:
    fronts.near("a1")
    received: list[int] = []
    moves: list[str] = []
    published = 0

    async def publish(producer: waypost.Producer) -> None:
        nonlocal published
        while True:
            published += 1
            await producer.publish({"roams": published})
            await asyncio.sleep(0.005)

    async def receive(receiver: waypost.Receiver) -> None:
        async for notification in receiver:
            received.append(int(notification["roams"]))

    def note(event: object) -> None:
        if isinstance(event, waypost.NearerProxy):
            moves.append(event.url)

    name = "roaming/far"
    async with (
        waypost.produce("mover", proxy=fronts.cluster.proxies["a1"].url) as producer,
        waypost.attach(name, proxy=list(fronts.urls.values()), roaming=POLICY, on_event=note) as receiver,
    ):
        await receiver.wait_effective(await receiver.subscribe("roams > 0"), ["A/0"])
        publishing, receiving = asyncio.create_task(publish(producer)), asyncio.create_task(receive(receiver))
        for proxy in ("b1", "a1", "b1"):
            fronts.near(proxy)
            await _until(_is_at(receiver, proxy))
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        await _until(lambda: len(received) >= published - 1)
        receiving.cancel()
    assert received[: published - 1] == list(range(1, published))
    assert moves == [fronts.urls[proxy] for proxy in ("b1", "a1", "b1")]


async def test_a_client_whose_only_proxy_is_killed_goes_to_another_one(fronts: Fronts) -> None:
    fronts.near("a1")
    killed = fronts.cluster.proxies["a1"]
    events: list[object] = []
    async with waypost.attach(
        "roaming/killed", proxy=fronts.urls["a1"], roaming=POLICY, on_event=events.append
    ) as receiver:
        await _until(_is_at(receiver, "a1"))
        # The client asks for the others once it is let in; without an answer it knows none.
        await _until(lambda: any(isinstance(event, Proxies) and len(event.proxies) == 2 for event in events))
        killed.process.kill()
        try:
            await _until(_is_at(receiver, "b1"))
        finally:
            killed.start()


async def test_a_proxy_that_is_being_drained_is_named_to_nobody(fronts: Fronts) -> None:
    fronts.near("b1")
    events: list[object] = []
    drained = fronts.cluster.proxies["a1"]
    drained.request("/v1/drains", {"proxy": "a1", "rate": 100})
    try:
        async with waypost.produce("lister", proxy=fronts.urls["b1"], roaming=POLICY, on_event=events.append):
            await _until(lambda: any(isinstance(event, Proxies) for event in events))
            await _until(lambda: [names(event) for event in events if isinstance(event, Proxies)][-1] == {"b1"})
    finally:
        drained.request("/v1/drains", {"proxy": "a1", "rate": None})


def names(event: Proxies) -> set[str]:
    return {proxy.proxy for proxy in event.proxies}
