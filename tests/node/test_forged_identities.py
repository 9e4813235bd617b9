"""Who publishes as another producer: nobody can, from what a reader learns; and nothing of the victim's vanishes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest
import websockets

import waypost
from chaos.cluster import Cluster, ProxySpec
from waypost.frames import decode_proxy_message, encode_message
from waypost.messages import LARGEST, VERSION, Acknowledged, Hello, Problem, ProxyMessage, Publish, Welcome
from waypost.notification import Notification

FORGED = 50


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    places = [ProxySpec(proxy, "A", {"no-discovery": ""}) for proxy in ("a1", "a2")]
    with Cluster(places, [], tmp_path_factory.mktemp("forged")) as cluster:
        yield cluster


async def sent(socket: websockets.ClientConnection, message: object) -> ProxyMessage:
    await socket.send(encode_message(message))  # type: ignore[arg-type]
    return decode_proxy_message(await asyncio.wait_for(socket.recv(), 10))


async def test_reader_cannot_forge_the_next_notification_of_a_producer(cluster: Cluster) -> None:
    """It knows producer, incarnation and sequence of all that it was given, and says them before the victim does."""
    url = cluster.proxies["a1"].url
    async with waypost.attach("forged/reader", proxy=url) as session, waypost.produce("victim", proxy=url) as victim:
        await session.subscribe("require(n)")
        await victim.publish({"n": 0})
        known = (await asyncio.wait_for(anext(session), 10)).id
        async with websockets.connect(f"{url}/v1/client") as attacker:
            assert isinstance(await sent(attacker, Hello(VERSION, "attacker")), Welcome)
            bodies = [Notification({"n": -1}).body] * FORGED
            forged = Publish(
                producer=known.producer, secret=str(known.incarnation), first=known.sequence + 1, bodies=bodies
            )
            assert isinstance(await sent(attacker, forged), Acknowledged)
        for number in range(1, FORGED + 1):
            await victim.publish({"n": number})
        given = [await asyncio.wait_for(anext(session), 10) for _ in range(2 * FORGED)]
        assert [notification["n"] for notification in given if notification["n"] != -1] == list(range(1, FORGED + 1))
        assert {received.id.incarnation for received in given if received["n"] != -1} == {known.incarnation}
        assert known.incarnation not in {received.id.incarnation for received in given if received["n"] == -1}
        await session.delete()


async def test_every_proxy_finds_the_same_life_in_the_same_secret_and_no_number_goes_past_64_bits(
    cluster: Cluster,
) -> None:
    async with waypost.attach("forged/lives", proxy=cluster.proxies["a1"].url) as session:
        await session.subscribe("require(m)")
        body = Notification({"m": 1}).body
        for proxy in ("a1", "a2"):
            async with websockets.connect(f"{cluster.proxies[proxy].url}/v1/client") as socket:
                await sent(socket, Hello(VERSION, "p"))
                for first in (LARGEST + 1, 2**64 - 1):
                    frame = msgspec.msgpack.encode(["publish", "p", "a secret of its own", first, [body]])
                    await socket.send(frame)
                    refused = decode_proxy_message(await asyncio.wait_for(socket.recv(), 10))
                    assert isinstance(refused, Problem)
                    assert refused.code == "BAD_MESSAGE"
                refused = await sent(
                    socket, Publish(producer="p", secret="a secret of its own", first=LARGEST, bodies=[body, body])
                )
                assert isinstance(refused, Problem)
                assert (refused.code, refused.field) == ("BAD_MESSAGE", "first")
                assert isinstance(
                    await sent(
                        socket, Publish(producer="p", secret="a secret of its own", first=LARGEST, bodies=[body])
                    ),
                    Acknowledged,
                )
        assert (await asyncio.wait_for(anext(session), 10)).id.sequence == LARGEST
        async with waypost.produce("q", proxy=cluster.proxies["a1"].url) as other:
            await other.publish({"m": 2})
        # The second one, at the other proxy, was of the same life: a repeat, which the library drops.
        assert (await asyncio.wait_for(anext(session), 10))["m"] == 2
        await session.delete()
