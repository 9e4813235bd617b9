"""Proxies that are slow and not dead, on Kafka and etcd: stopped for a while, or cut off from the registry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.client import ClientConnection, connect

import waypost
from chaos.cluster import Cluster, ProxyProcess
from chaos.faults.cut import Cut
from chaos.faults.pause import Pause
from chaos.faults.silence import ANSWERS, Silence
from chaos.fronted import Fronted
from chaos.workloads.audience import Audience
from tests.helpers.polling import until_seen, until_still
from waypost.frames import decode_proxy_message, encode_message
from waypost.identity import SessionId
from waypost.messages import VERSION, Attach, Attached, Deliver, Hello

LEASE_MS = 12_000
"""Longer than a target is patient with a source."""
TIMED_OUT = "timed out"
pytestmark = pytest.mark.usefixtures("healed")


@asynccontextmanager
async def audience(cluster: Cluster, seed: int) -> AsyncIterator[Audience]:
    """Clients at a1 while producers publish at a2 and b1; judge what came of it."""
    work = Audience({"A": [cluster.proxies["a2"].url], "B": [cluster.proxies["b1"].url]}, seed, clients=2)
    for guest in work.clients:
        await guest.appear(cluster.proxies["a1"].url, ())
        await guest.subscribe_all(["A/0", "B/0"])
    work.start()
    await work.wait_delivered()
    yield work
    await work.wait_delivered()
    result = await work.check()
    assert result.clean, result.worst
    assert result.expected > 100


async def until_counted_out(proxy: ProxyProcess, by: ProxyProcess) -> None:
    """Return when the lease of the proxy has ended, as the other one sees it."""
    await until_seen(lambda: proxy.name not in by.request("/v1/status")["proxies"], f"the lease of {proxy.name} ends")


async def test_a_source_that_is_stopped_for_longer_than_the_target_is_patient_keeps_its_session_until_it_wakes(
    cluster: Cluster,
) -> None:
    source, target, witness = (cluster.proxies[name] for name in ("a1", "a2", "b1"))
    async with audience(cluster, 61) as work:
        guest = work.clients[0]
        before = source.owner(guest.session_id)
        pause = Pause(source.process)
        await pause.inject()
        moving = asyncio.create_task(guest.move(target.url))

        def timed_out() -> bool:
            rows = target.request("/v1/handovers")["handovers"]
            return any(row["session"] == guest.session_id and row["why"] == TIMED_OUT for row in rows)

        await until_seen(timed_out, "the target times out")
        assert witness.owner(guest.session_id) == before
        assert source.name in witness.request("/v1/status")["proxies"]
        assert not moving.done()
        await pause.heal()
        await moving
        assert guest.proxy == target.name


async def test_a_source_that_wakes_after_another_took_over_delivers_nothing_into_a_socket_that_is_still_open(
    cluster: Cluster, proxies: dict[str, Fronted]
) -> None:
    source, heir = cluster.proxies["a1"], cluster.proxies["a2"]
    name, numbers = "tests/woken", [*range(60)]
    state = waypost.ReceiverState()
    async with (
        waypost.produce("p", proxy=heir.url) as producer,
        connect(f"{source.url}/v1/client") as still_open,
    ):
        async with waypost.attach(name, proxy=source.url, state=state) as session:
            await session.wait_effective(await session.subscribe("number >= 0"), ["A/0", "B/0"])
        received_frames = ReceivedFrames(still_open)
        await received_frames.attach(name, state)
        pause, silence = Pause(source.process), Silence(proxies[source.name].registry, ANSWERS)
        for number in numbers[:20]:
            await producer.publish({"number": number})
        await received_frames.until_delivered(20)
        # Nothing but its own clock can tell it that its time is over.
        await silence.inject()
        await pause.inject()
        for number in numbers[20:40]:
            await producer.publish({"number": number})
        # The same receiver, at another proxy, which is to have the session once the lease has ended.
        async with waypost.attach(name, proxy=heir.url, state=waypost.ReceiverState()) as session:
            assert (await session.wait_attached()).proxy == heir.name
            await pause.heal()
            for number in numbers[40:]:
                await producer.publish({"number": number})
            async with asyncio.timeout(30):
                assert [(await anext(session))["number"] for _ in numbers] == numbers
            # It is awake, and has read all that there was to read.
            position = heir.request("/v1/status")["position"]
            await until_seen(lambda: source.request("/v1/status")["position"] >= position, "a1 has read its log")
            assert source.owner(name) == ("a1", 1)
            await silence.heal()
            await until_seen(source.ready, "a1 has a lease again")
        assert received_frames.delivered == 20
        received_frames.stop()


class ReceivedFrames:
    """What a socket hears that nobody closes, whatever it is told, and that acknowledges nothing."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._attached = asyncio.Event()
        self.delivered = 0
        self._task = asyncio.create_task(self._listen())

    async def attach(self, session: str, state: waypost.ReceiverState) -> None:
        await self._socket.send(encode_message(Hello(VERSION, "still open")))
        attach = Attach(session=SessionId(session), receiver="main", incarnation="older", frontier=dict(state.frontier))
        await self._socket.send(encode_message(attach))
        async with asyncio.timeout(30):
            await self._attached.wait()

    async def until_delivered(self, number: int) -> None:
        async with asyncio.timeout(30):
            while self.delivered < number:
                await asyncio.sleep(0.02)

    def stop(self) -> None:
        self._task.cancel()

    async def _listen(self) -> None:
        async for frame in self._socket:
            match decode_proxy_message(frame):
                case Attached():
                    self._attached.set()
                case Deliver(entries=entries):
                    self.delivered += len(entries)


async def test_an_owner_that_is_cut_off_from_the_registry_stops_in_time_and_serves_on_at_a_new_epoch(
    cluster: Cluster, proxies: dict[str, Fronted]
) -> None:
    owner, witness = cluster.proxies["a1"], cluster.proxies["b1"]
    async with audience(cluster, 62) as work:
        before = {guest.session_id: witness.owner(guest.session_id) for guest in work.clients}
        cut = Cut(proxies["a1"].registry)
        await cut.inject()
        await work.wait_delivered()
        await until_counted_out(owner, witness)
        # What the owner had sent before its lease ended may still be on its way.
        given, published = await until_still(lambda: work.delivered_count), len(work.published)
        while len(work.published) < published + 100:
            await asyncio.sleep(0.05)
        assert work.delivered_count == given
        assert not owner.ready()
        await cut.heal()
        await work.wait_delivered()
        for session, row in before.items():
            assert row is not None
            owner_now = witness.owner(session)
            assert owner_now is not None and owner_now[0] == "a1" and owner_now[1] > row[1]


async def test_a_client_of_an_owner_that_is_cut_off_from_the_registry_is_served_elsewhere(
    cluster: Cluster, proxies: dict[str, Fronted]
) -> None:
    owner, heir = cluster.proxies["a1"], cluster.proxies["a2"]
    async with audience(cluster, 63) as work:
        guest = work.clients[0]
        cut = Cut(proxies["a1"].registry)
        await cut.inject()
        await until_counted_out(owner, heir)
        await guest.move(heir.url)
        await work.clients[1].move(heir.url)
        await work.wait_delivered()
        row = heir.owner(guest.session_id)
        await cut.heal()
        await until_seen(owner.ready, "a1 has a lease again")
        await work.wait_delivered()
        assert heir.owner(guest.session_id) == row
