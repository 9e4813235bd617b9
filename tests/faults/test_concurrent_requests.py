"""Clients that want a session to move in every inconvenient way, all at the same time, on Kafka and etcd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import waypost
from chaos.cluster import Cluster, ProxySpec
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from chaos.workloads.audience import Audience, Guest

SEED = 101
ROUNDS = 3
"""As many as there are proxies: everybody has been everywhere, and come from everywhere."""
BATCH = 20
TIMEOUT_S = 60
ORIGINS = ["A/0", "B/0"]


async def test_concurrent_requests_for_moves_lose_no_notification(
    kafka: KafkaServer, etcd: EtcdServer, tmp_path: Path
) -> None:
    flags = {"no-discovery": "", "kafka": kafka.bootstrap, "etcd": etcd.endpoint, "prefix": f"wishes{SEED}"}
    places = [ProxySpec("a1", "A", flags), ProxySpec("a2", "A", flags), ProxySpec("b1", "B", flags)]
    async with Cluster(places, [("A", "B")], tmp_path) as cluster:
        urls = [proxy.url for proxy in cluster.proxies.values()]
        work = Audience(cluster.urls, SEED, clients=4)
        restless, hesitant, *pair = work.clients
        for traveller in pair:
            traveller.group, traveller.subscriptions = "pair", pair[0].subscriptions
        await work.setup()
        work.start()
        relayed: list[int] = []
        await asyncio.gather(
            ping_pong(restless, urls),
            back_and_forth(hesitant, urls),
            both_at_once(pair, cluster, relayed),
            changes_its_mind(urls),
            does_not_acknowledge(urls),
        )
        # However quick all that was, there is enough to judge by.
        await work.wait_delivered()
        result = await work.check()
    assert result.clean, result.worst
    assert result.expected > 100
    assert sum(relayed) > 0


async def ping_pong(guest: Guest, urls: list[str]) -> None:
    """A client that never stays."""
    for turn in range(4 * ROUNDS):
        await guest.move(urls[turn % len(urls)])


async def back_and_forth(guest: Guest, urls: list[str]) -> None:
    """A client that turns round before its session has followed."""
    here, there, _ = urls
    for turn in range(4 * ROUNDS):
        assert guest.session is not None
        await guest.session.move(there)
        await asyncio.sleep(0.01 * (turn % 5))
        await guest.session.move(here)
        await guest.session.wait_attached()


async def both_at_once(pair: list[Guest], cluster: Cluster, relayed: list[int]) -> None:
    """Two receivers of one session that leave, and want it at two proxies at once; then both read, where they are."""
    proxies = list(cluster.proxies.values())
    for turn in range(ROUNDS):
        await asyncio.gather(*(traveller.vanish(politely=False) for traveller in pair))
        wanted = proxies[turn % 3], proxies[(turn + 1) % 3]
        await asyncio.gather(*(guest.appear(proxy.url, ()) for guest, proxy in zip(pair, wanted, strict=True)))
        before = [len(traveller.got) for traveller in pair]
        async with asyncio.timeout(TIMEOUT_S):
            while any(len(guest.got) <= had for guest, had in zip(pair, before, strict=True)):
                await asyncio.sleep(0.02)
        relayed += [(await asyncio.to_thread(proxy.request, "/v1/status"))["relayed"] for proxy in proxies]


async def changes_its_mind(urls: list[str]) -> None:
    """A client that subscribes while its session moves, and takes that back while it moves on: each holds from then."""
    got: list[int] = []
    async with (
        waypost.attach("wishes/changing", proxy=urls[0]) as session,
        waypost.produce("changing", proxy=urls[1]) as producer,
    ):
        serial = 0
        wanted: list[int] = []

        async def publish(*, owed: bool) -> None:
            """Publish of both kinds: the first always has a subscription, the second if it is owed."""
            nonlocal serial
            for mind in (1, 2) * BATCH:
                serial += 1
                await producer.publish_soon({"mind": mind, "serial": serial})
                if mind == 1 or owed:
                    wanted.append(serial)
            while producer.unacknowledged:
                await asyncio.sleep(0.01)

        async def arrived() -> None:
            async with asyncio.timeout(TIMEOUT_S):
                while len(got) < len(wanted):
                    got.append(int((await anext(session))["serial"]))
            assert got == wanted

        await session.wait_effective(await session.subscribe("mind == 1"), ORIGINS)
        for turn in range(ROUNDS):
            await session.move(urls[(2 * turn + 1) % len(urls)])
            identity = await session.subscribe("mind == 2", id=f"second {turn}")
            await session.wait_effective(identity, ORIGINS)
            await publish(owed=True)
            await arrived()
            await session.move(urls[(2 * turn + 2) % len(urls)])
            await session.unsubscribe(identity)
            await publish(owed=False)
            await arrived()


async def does_not_acknowledge(urls: list[str]) -> None:
    """A client that vanishes with what it was given and has not acknowledged, and comes back elsewhere: not again."""
    state = waypost.ReceiverState()
    got: list[int] = []
    async with waypost.attach("wishes/silent", proxy=urls[0], state=state) as session:
        await session.wait_effective(await session.subscribe("silent >= 0"), ORIGINS)
    async with waypost.produce("silent", proxy=urls[2]) as producer:
        for number in range(2 * ROUNDS * BATCH):
            await producer.publish_soon({"silent": number})
        while producer.unacknowledged:
            await asyncio.sleep(0.02)
    for turn in range(2 * ROUNDS):
        session = waypost.attach("wishes/silent", proxy=urls[(turn + 1) % len(urls)], state=state, window=2 * BATCH)
        await session.__aenter__()
        async with asyncio.timeout(TIMEOUT_S):
            got += [number async for number in some(session, BATCH)]
        # What it has it takes for done, and nobody hears of it.
        await session.abandon()
    assert got == [*range(2 * ROUNDS * BATCH)]


async def some(session: waypost.Receiver, number: int) -> AsyncIterator[int]:
    for _ in range(number):
        yield int((await anext(session))["silent"])
