"""Gateways in front of real proxies at two sites: leases, roaming peers, and what hostile ones cost the others."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

import waypost
from chaos.cluster import Cluster, ProxySpec
from node.gateway import server
from node.gateway.propagate_messages import LeaseMessage, LeaseMessageType, PropagateHeader, decode, encode
from node.gateway.propagation import Policy
from node.gateway.server import Gateway, GatewaySettings
from tests.helpers.polling import until, until_seen
from waypost.errors import InUse, NoProxy
from waypost.notification import Value
from waypost.subscription.batch import notification_from_json

TIMEOUT_S = 30.0
LEASE_S = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    flags = {"no-discovery": "", "lease-ttl-ms": "2000"}
    places = [ProxySpec("a1", "A", flags), ProxySpec("b1", "B", flags)]
    with Cluster(places, [("A", "B")], tmp_path_factory.mktemp("gateway")) as cluster:
        yield cluster


class Served:
    """A gateway that runs in this process, and the connections of peers to it."""

    def __init__(self, gateway: Gateway, url: str) -> None:
        self.gateway, self.url = gateway, url

    def status(self) -> dict[str, Any]:
        with urllib.request.urlopen(self.url.replace("ws:", "http:") + "/status", timeout=5) as answer:
            return dict(json.load(answer))


def settings(cluster: Cluster, proxy: str, **changed: Any) -> GatewaySettings:
    chosen: dict[str, Any] = {
        "policy": Policy(gateway=f"g-{proxy}", cost=1, ttl=7),
        "expression": "require(n)",
        "host": "127.0.0.1",
        "port": 0,
        "lease_s": LEASE_S,
        "peers": 10,
        "proxy": cluster.proxies[proxy].url,
        "token": lambda: "",
    }
    return GatewaySettings(**chosen | changed)


@asynccontextmanager
async def serving(chosen: GatewaySettings) -> AsyncIterator[Served]:
    gateway = Gateway(chosen)
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(gateway.run(listening.set_result))
    await asyncio.wait((task, listening), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    try:
        yield Served(gateway, listening.result())
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class PeerOf:
    """A peer of a gateway, as a program of another project would be."""

    def __init__(self, connection: ClientConnection, name: str) -> None:
        self.connection, self.name = connection, name

    async def say(self, kind: str, peer: str = "") -> None:
        await self.connection.send(encode(LeaseMessage(type=LeaseMessageType(kind), peer=peer or self.name)))

    async def hear(self) -> Any:
        """Return what comes next: a document about a lease, or a header and a notification."""
        async with asyncio.timeout(TIMEOUT_S):
            frame = await self.connection.recv()
        assert isinstance(frame, str)
        if frame.startswith("<"):
            return decode(frame)
        message = json.loads(frame)
        return decode(message["JxtaPropagate"]), dict(notification_from_json(message["Notification"]))

    async def lease(self) -> LeaseMessage:
        await self.say("LeaseRequest")
        received = await self.hear()
        assert isinstance(received, LeaseMessage)
        return received

    async def propagate(self, n: int, header: PropagateHeader) -> None:
        await self.connection.send(json.dumps({"JxtaPropagate": encode(header), "Notification": {"n": n}}))

    async def numbers(self, count: int) -> list[int]:
        return [(await self.hear())[1]["n"] for _ in range(count)]


@asynccontextmanager
async def peer(listener: Served, name: str, *, leased: bool = True) -> AsyncIterator[PeerOf]:
    async with connect(listener.url) as connection:
        made = PeerOf(connection, name)
        if leased:
            granted = await made.lease()
            assert granted.type is LeaseMessageType.LEASE_GRANTED
        yield made


async def once_effective(cluster: Cluster, listener: Served, *peers: PeerOf) -> None:
    """Return when what is published anywhere reaches the peers."""
    for one in peers:
        await listener.gateway.leased[one.name]._receiver.wait_effective("require(n)", ["A/0", "B/0"])  # type: ignore[union-attr]


async def test_message_crosses_the_federation_and_pays_at_each_gateway(cluster: Cluster) -> None:
    async with AsyncExitStack() as stack:
        here, there = [await stack.enter_async_context(serving(settings(cluster, proxy))) for proxy in ("a1", "b1")]
        p, q = [await stack.enter_async_context(peer(here, name)) for name in ("p", "q")]
        far = await stack.enter_async_context(peer(there, "far"))
        await once_effective(cluster, here, p, q)
        await once_effective(cluster, there, far)
        await p.propagate(1, PropagateHeader(ttl=4, path=("before",), id="m-1"))
        assert await q.hear() == (PropagateHeader(ttl=3, path=("before", "p", "g-a1"), id="m-1"), {"n": 1})
        assert await far.hear() == (PropagateHeader(ttl=2, path=("before", "p", "g-a1", "g-b1"), id="m-1"), {"n": 1})
        # Neither of them goes on: the first one is a repeat, the second one has come this way, the third has no life.
        await p.propagate(2, PropagateHeader(ttl=4, id="m-1"))
        await p.propagate(3, PropagateHeader(ttl=4, path=("g-a1",), id="m-3"))
        await p.propagate(4, PropagateHeader(ttl=0, id="m-4"))
        async with waypost.produce("plain", proxy=cluster.proxies["b1"].url) as producer:
            coordinate = await producer.publish({"n": 5})
        identity = f"{coordinate.origin}:{coordinate.offset}"
        assert await q.hear() == (PropagateHeader(ttl=6, path=("g-a1",), id=identity), {"n": 5})
        assert await far.hear() == (PropagateHeader(ttl=6, path=("g-b1",), id=identity), {"n": 5})
        # What p has published itself does not come back to it.
        assert await p.numbers(1) == [5]
        found = await asyncio.to_thread(here.status)
        assert found["dropped"] == {"loop": 2, "ttl ended": 1, "repeated": 1}
        assert (found["leases"], found["published"], found["refused"]) == (2, 1, 0)


async def test_peer_that_was_away_turns_up_at_another_gateway_and_misses_nothing(cluster: Cluster) -> None:
    async with AsyncExitStack() as stack:
        here, there = [await stack.enter_async_context(serving(settings(cluster, proxy))) for proxy in ("a1", "b1")]
        producer = await stack.enter_async_context(waypost.produce("r", proxy=cluster.proxies["a1"].url))
        roaming = await stack.enter_async_context(peer(here, "roaming"))
        await once_effective(cluster, here, roaming)
        await producer.publish({"n": 1})
        assert await roaming.numbers(1) == [1]
        # Cut off, and not closed: what was sent to it in vain has not come back as had.
        roaming.connection.transport.abort()
        for n in (2, 3):
            await producer.publish({"n": n})
        again = await stack.enter_async_context(peer(there, "roaming"))
        await producer.publish({"n": 4})
        assert await again.numbers(3) == [2, 3, 4]
        await until_seen(lambda: cluster.proxies["b1"].owner("propagate/roaming") is not None, "it has moved")
        assert cluster.proxies["b1"].owner("propagate/roaming")[0] == "b1"  # type: ignore[index]


def served(cluster: Cluster, name: str) -> bool:
    return cluster.proxies["a1"].shown(f"propagate/{name}") is not None


async def test_lease_that_is_not_renewed_frees_all_that_is_held_for_the_peer(cluster: Cluster) -> None:
    async with serving(settings(cluster, "a1", lease_s=2)) as listener:
        async with peer(listener, "idle") as idle, peer(listener, "busy") as busy:
            assert served(cluster, "idle") and served(cluster, "busy")
            received = asyncio.create_task(idle.hear())
            while not received.done():
                assert (await busy.lease()).lease_ms == 2_000
                await asyncio.sleep(0.3)
            assert (await received).type is LeaseMessageType.LEASE_CANCELLED
            with pytest.raises(ConnectionClosed, match="not renewed"):
                await idle.hear()
            await until_seen(lambda: not served(cluster, "idle"), "the session is deleted")
            assert served(cluster, "busy")
        # One that goes leaves its session for as long as a lease.
        await until_seen(lambda: not served(cluster, "busy"), "the session has expired")


async def test_lease_is_cancelled_by_its_peer_and_by_no_other(cluster: Cluster) -> None:
    async with serving(settings(cluster, "a1", peers=2)) as listener, peer(listener, "kept") as kept:
        await once_effective(cluster, listener, kept)
        async with peer(listener, "ended") as ended:
            async with peer(listener, "third", leased=False) as third:
                assert (await third.lease()).type is LeaseMessageType.LEASE_CANCELLED
            await ended.say("LeaseCancelRequest")
            assert (await ended.hear()).type is LeaseMessageType.LEASE_CANCELLED
            assert not served(cluster, "ended")
            # It does not know yet.
            await ended.propagate(1, PropagateHeader(ttl=3))
            assert (await ended.hear()).type is LeaseMessageType.LEASE_CANCELLED
            assert (await ended.lease()).type is LeaseMessageType.LEASE_GRANTED
        async with peer(listener, "thief", leased=False) as thief:
            thief.name = "kept"
            assert (await thief.lease()).type is LeaseMessageType.LEASE_CANCELLED
            await thief.say("LeaseCancelRequest")
            with pytest.raises(ConnectionClosed, match="another peer is not cancelled"):
                await thief.hear()
        async with waypost.produce("plain", proxy=cluster.proxies["a1"].url) as producer:
            await producer.publish({"n": 7})
        assert await kept.numbers(1) == [7]


HEADER = encode(PropagateHeader(ttl=3))
HOSTILE: list[str | bytes] = [
    b"\x00\xff",
    "",
    "{",
    "[]",
    "1" * 10_000,
    "[" * 100_000,
    "<" * 100_000,
    HEADER,
    encode(LeaseMessage(type=LeaseMessageType.LEASE_GRANTED, peer="p", lease_ms=1)),
    encode(LeaseMessage(type=LeaseMessageType.LEASE_REQUEST, peer="p" * 256)),
    '<!DOCTYPE x [<!ENTITY a "aaa"><!ENTITY b "&a;&a;">]><jxta:PropagateMessage><TTL>&b;</TTL></jxta:PropagateMessage>',
    json.dumps({"JxtaPropagate": HEADER}),
    json.dumps({"JxtaPropagate": 1, "Notification": {"n": 1}}),
    json.dumps({"JxtaPropagate": HEADER, "Notification": {"n": [1]}}),
    json.dumps({"JxtaPropagate": HEADER, "Notification": {"n": 1, "Propagate-TTL": 200}}),
    json.dumps({"JxtaPropagate": HEADER.replace("3", "300"), "Notification": {"n": 1}}),
    '{"JxtaPropagate": "<", "JxtaPropagate": "<", "Notification": {}}',
    "x" * (server.MAX_FRAME + 1),
]


async def test_hostile_frames_cost_their_own_connection_and_nobody_else(cluster: Cluster) -> None:
    async with serving(settings(cluster, "a1")) as listener, peer(listener, "bystander") as bystander:
        await once_effective(cluster, listener, bystander)
        async with waypost.produce("plain", proxy=cluster.proxies["a1"].url) as producer:
            for n, frame in enumerate(HOSTILE):
                async with peer(listener, "hostile") as hostile:
                    await hostile.connection.send(frame)
                    with pytest.raises(ConnectionClosed) as closed:
                        while True:
                            # What was published while it was away comes first.
                            await hostile.hear()
                    assert closed.value.rcvd is not None
                    assert closed.value.rcvd.code in (1008, 1009), (frame[:80], closed.value.rcvd)
                await producer.publish({"n": n})
            assert await bystander.numbers(len(HOSTILE)) == [*range(len(HOSTILE))]
        found = await asyncio.to_thread(listener.status)
        # A frame that is too large is refused by the library.
        assert (found["refused"], found["published"]) == (len(HOSTILE) - 1, 0)


async def test_peer_that_reads_nothing_is_let_go_and_gets_all_of_it_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "ARRIVED_S", 1.0)
    async with serving(settings(cluster, "a1")) as listener:
        async with connect(listener.url, max_queue=1) as connection:
            deaf = PeerOf(connection, "deaf")
            await deaf.lease()
            await once_effective(cluster, listener, deaf)
            connection.transport.pause_reading()
            async with waypost.produce("plain", proxy=cluster.proxies["a1"].url) as producer:
                for n in range(50):
                    await producer.publish({"n": n})
            await until(lambda: "deaf" not in listener.gateway.leased, "it is let go")
            connection.transport.abort()
        async with peer(listener, "deaf") as again:
            assert await again.numbers(50) == [*range(50)]


async def test_forged_headers_and_notifications_too_large_for_a_frame_stop_no_peer(cluster: Cluster) -> None:
    forged: dict[str, Value] = {"Propagate-TTL": 5, "Propagate-Path": "a\na", "Propagate-ID": "x"}
    async with serving(settings(cluster, "a1")) as listener, peer(listener, "steady") as steady:
        await once_effective(cluster, listener, steady)
        async with waypost.produce("plain", proxy=cluster.proxies["a1"].url) as producer:
            await producer.publish({"n": 1})
            await producer.publish({"n": 2, **forged})
            await producer.publish({"n": 3, "large": "\x01" * 200_000})
            await producer.publish({"n": 4})
        assert await steady.numbers(3) == [1, 2, 4]
        found = await asyncio.to_thread(listener.status)
        assert found["dropped"] == {"too large": 1}


async def test_peer_that_renews_while_its_publish_waits_keeps_its_lease(cluster: Cluster) -> None:
    proxy = cluster.proxies["a1"]
    async with serving(settings(cluster, "a1", lease_s=2)) as listener, peer(listener, "renewing") as renewing:
        proxy.process.pause()
        try:
            await renewing.propagate(1, PropagateHeader(ttl=3))
            for _ in range(8):
                await renewing.say("LeaseRequest")
                await asyncio.sleep(0.5)
        finally:
            proxy.process.resume()
        for _ in range(8):
            assert (await renewing.hear()).type is LeaseMessageType.LEASE_GRANTED
        assert await asyncio.to_thread(served, cluster, "renewing")


async def test_message_of_a_peer_that_has_gone_is_published_once(cluster: Cluster) -> None:
    """Its id is known from then on: a message that was dropped with its connection would never be published."""
    proxy, header = cluster.proxies["a1"], PropagateHeader(ttl=3, id="of-one-that-goes")
    async with serving(settings(cluster, "a1")) as listener:
        async with peer(listener, "going") as going:
            proxy.process.pause()
            await going.propagate(1, header)
            await until_seen(lambda: bool(listener.gateway._publishing), "it is on its way", TIMEOUT_S)
        proxy.process.resume()
        await until_seen(lambda: listener.gateway.counts.published == 1, "it is published", TIMEOUT_S)
        async with peer(listener, "again") as again:
            await again.propagate(1, header)
            await until_seen(lambda: bool(listener.gateway.counts.dropped), "it is known", TIMEOUT_S)
        assert listener.gateway.counts.published == 1


async def test_page_of_a_browser_is_no_peer(cluster: Cluster) -> None:
    async with serving(settings(cluster, "a1")) as listener:
        with pytest.raises(Exception, match="403"):
            await connect(listener.url, origin="https://example.org")  # type: ignore[arg-type]


async def test_what_cannot_be_served_is_said_in_one_line(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ATTACH_S", 1.0)
    async with serving(settings(cluster, "a1")) as listener:
        with pytest.raises(InUse, match=r"cannot listen on .*: Address already in use"):
            await Gateway(settings(cluster, "a1", port=int(listener.url.rpartition(":")[2]))).run(print)
    with pytest.raises(NoProxy, match=r"127\.0\.0\.1:9"):
        await Gateway(replace(settings(cluster, "a1"), proxy="ws://127.0.0.1:9")).run(print)
