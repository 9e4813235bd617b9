"""What one client, session or proxy may have: past it a clear answer, and nobody else is slower for it."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
import weakref
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
import websockets
from hypothesis import given
from hypothesis import strategies as st
from starlette.websockets import WebSocketDisconnect

import waypost
from chaos.cluster import Cluster, ProxySpec
from node.http.server import _FrameReader
from node.resources.rate_limit import AddressRates, RateLimit, RateLimits, network_of
from tests.helpers.polling import until_seen
from waypost.errors import NoProxy, Unreachable
from waypost.frames import decode_proxy_message, encode_message
from waypost.identity import Epoch, Origin, ProxyId
from waypost.limits import ADDRESS_BURST_S, ADDRESSES_KEPT, ATTESTED_PER_S, PACED_BYTES
from waypost.messages import VERSION, Acknowledge, Attach, Attached, Attestation, Hello, Publish, Welcome
from waypost.notification import Notification

RATE = 50
CHANGE_RATE = 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    flags = {"no-discovery": "", "max-connections": "4", "max-sessions": "2", "publish-rate": str(RATE)}
    bounded = {"no-discovery": "", "max-connections-per-address": "2", "change-rate": str(CHANGE_RATE)}
    places = [ProxySpec("a1", "A", flags), ProxySpec("b1", "B", bounded)]
    with Cluster(places, [], tmp_path_factory.mktemp("limits")) as cluster:
        yield cluster


def test_attestations_are_limited_by_notifications_and_not_by_frames() -> None:
    paces = RateLimits(1_000, 1, now_s=0.0)
    attestation = Attestation(
        number=1, epoch=Epoch(1), proxy=ProxyId("p"), origin=Origin("A/0"), offsets=[*range(499)], digests=[0] * 499
    )
    assert paces.charge(Acknowledge(0, [attestation] * (ATTESTED_PER_S // 500)), 0.0) == 0
    assert paces.charge(Acknowledge(0, [attestation] * (ATTESTED_PER_S // 500)), 0.0) == 1
    # What says nothing for the journal is not counted, and what is published is not slower for it.
    assert paces.charge(Acknowledge(7), 0.0) is None
    assert paces.charge(Publish(producer="q", secret="i", first=1, bodies=[Notification({"x": 1}).body]), 0.0) == 0


def test_reconnected_client_continues_with_the_remaining_rate_of_its_address() -> None:
    rates, wanted = AddressRates(10), Attach(session="s", receiver="r", incarnation="i", frontier={})
    burst = 10 * int(ADDRESS_BURST_S)
    assert [rates.charge("here", wanted, 0.0) for _ in range(burst)] == [0.0] * burst
    assert rates.charge("here", wanted, 0.0) == pytest.approx(0.1)
    assert rates.charge("there", wanted, 0.0) == 0
    assert rates.charge("here", Acknowledge(7), 0.0) == 0
    assert rates.charge("here", wanted, 1.0) == 0


def test_so_many_addresses_are_remembered_and_of_one_host_of_ipv6_all_are_one() -> None:
    rates, wanted = AddressRates(10), Attach(session="s", receiver="r", incarnation="i", frontier={})
    for number in range(ADDRESSES_KEPT + 5):
        rates.charge(f"address {number}", wanted, 0.0)
    assert rates.addresses == ADDRESSES_KEPT
    one_host = AddressRates(10)
    for number in range(9):
        one_host.charge(f"2001:db8::{number}", wanted, 0.0)
    assert one_host.addresses == 1


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("64:ff9b::c000:201", "192.0.2.1"),
        ("::1", "::1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:2", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("fe80::2%eth0", "fe80::2%eth0"),
        ("fe80::1", "fe80::1"),
        ("no address", "no address"),
        ("::no", "::no"),
        ("", ""),
    ],
)
def test_what_counts_as_one_address_of_a_client(address: str, network: str) -> None:
    assert network_of(address) == network


def test_zero_rate_delays_no_client() -> None:
    rates, wanted = AddressRates(0), Attach(session="s", receiver="r", incarnation="i", frontier={})
    assert [rates.charge("here", wanted, 0.0) for _ in range(10_000)] == [0.0] * 10_000
    assert rates.addresses == 0


def attached(cluster: Cluster, session: str, receiver: str) -> bool:
    row = cluster.proxies["a1"].shown(session)
    return row is not None and row["registrations"][receiver]["attached"]


async def test_client_of_a_full_proxy_is_refused_and_accepted_after_another_leaves(cluster: Cluster) -> None:
    url = cluster.proxies["a1"].url
    inside = [waypost.produce(f"p{number}", proxy=url) for number in range(4)]
    for client in inside:
        await client.__aenter__()
    with pytest.raises((NoProxy, Unreachable)):
        async with waypost.produce("late", proxy=url, timeout_s=1):
            pass
    late = asyncio.create_task(waypost.produce("late", proxy=url, timeout_s=20).__aenter__())
    await inside.pop().close()
    inside.append(await late)
    for client in inside:
        await client.close()


async def test_no_more_sessions_are_made_than_the_proxy_may_have_and_the_others_go_on(cluster: Cluster) -> None:
    url = cluster.proxies["a1"].url
    async with waypost.attach("limits/1", proxy=url) as one, waypost.attach("limits/2", proxy=url) as two:
        with pytest.raises(Unreachable):
            async with waypost.attach("limits/3", proxy=url, timeout_s=1):
                pass
        await one.delete()
        async with waypost.attach("limits/3", proxy=url, timeout_s=20) as three:
            await three.delete()
        await two.delete()


async def test_producer_above_the_rate_waits_and_others_do_not(cluster: Cluster) -> None:
    url = cluster.proxies["a1"].url
    async with waypost.produce("fast", proxy=url) as fast, waypost.produce("other", proxy=url) as other:
        began = time.monotonic()
        slow = [await fast.publish_soon({"n": number}) for number in range(2 * RATE)]
        await fast.publish({"n": -1})
        # A second's worth is in the bucket at first, and the last frame is taken before it has to wait.
        later = asyncio.create_task(fast.publish({"n": -2}))
        for number in range(10):
            await asyncio.wait_for(other.publish({"n": number}), 5)
        await asyncio.gather(*slow, later)
        assert time.monotonic() - began > 0.5


async def test_producer_above_the_rate_stays_connected_and_gets_its_deliveries(cluster: Cluster) -> None:
    url = cluster.proxies["a1"].url
    again: list[object] = []

    def hear(event: object) -> None:
        if isinstance(event, Attached):
            again.append(event)

    async with waypost.attach("limits/both", proxy=url, on_event=hear, window=10) as session:
        await session.subscribe("limits_both > 0", id="x")
        await session.wait_effective("x", ["A/0"])
        # More than its library waits for an answer to a ping, and its window full many times.
        count = 10 * RATE
        for number in range(1, count + 1):
            await session.publish_soon({"limits_both": number})
        for number in range(1, count + 1):
            assert (await asyncio.wait_for(anext(session), 60))["limits_both"] == number
        assert len(again) == 1
        await session.delete()


async def test_from_one_address_come_no_more_than_so_many_and_another_one_is_let_in(cluster: Cluster) -> None:
    url = cluster.proxies["b1"].url
    inside = [await waypost.produce(f"p{number}", proxy=url).__aenter__() for number in range(2)]
    with pytest.raises((NoProxy, Unreachable), match="from this address"):
        async with waypost.produce("late", proxy=url, timeout_s=1):
            pass
    with socket.socket() as elsewhere:
        elsewhere.bind(("127.0.0.2", 0))
        elsewhere.connect((urlsplit(url).hostname, urlsplit(url).port))
        async with websockets.connect(f"{url}/v1/client", sock=elsewhere) as other:
            await other.send(encode_message(Hello(VERSION, "other")))
            assert isinstance(decode_proxy_message(await other.recv()), Welcome)
    await inside.pop().close()
    async with waypost.produce("late", proxy=url, timeout_s=20):
        pass
    await inside.pop().close()


async def test_client_with_too_many_changes_waits_and_others_do_not(cluster: Cluster) -> None:
    url = cluster.proxies["b1"].url
    async with waypost.attach("limits/hasty", proxy=url) as hasty, waypost.produce("other", proxy=url) as other:
        began = time.monotonic()
        asked = [asyncio.create_task(hasty.subscribe(f"n == {number}")) for number in range(2 * CHANGE_RATE)]
        for number in range(10):
            await asyncio.wait_for(other.publish({"n": number}), 5)
        await asyncio.gather(*asked)
        assert time.monotonic() - began > 0.5
        await hasty.delete()


async def test_client_that_disconnects_during_its_rate_limit_is_detached_at_once(cluster: Cluster) -> None:
    url = cluster.proxies["a1"].url
    async with websockets.connect(f"{url}/v1/client") as socket_:
        await socket_.send(encode_message(Hello(VERSION, "hasty")))
        await socket_.send(encode_message(Attach(session="limits/gone", receiver="r", incarnation="i", frontier={})))
        while not isinstance(decode_proxy_message(await socket_.recv()), Attached):
            pass
        # Twenty seconds' worth.
        await socket_.send(
            encode_message(Publish(producer="p", secret="i", first=0, bodies=[Notification({"n": 1}).body] * 1_000))
        )
    await until_seen(lambda: not attached(cluster, "limits/gone", "r"), "nobody is attached", within_s=12)


class SocketWithFrames:
    """A client's connection, with more than may wait for its rate."""

    def __init__(self) -> None:
        self.is_lost = self.is_closed = False
        self.read = 0

    async def receive(self) -> dict[str, object]:
        if self.is_closed:
            return {"type": "websocket.disconnect", "code": 1006}
        self.read += 1
        return {"type": "websocket.receive", "bytes": bytes(PACED_BYTES // 4)}


async def test_what_waits_for_a_rate_is_dropped_when_the_client_is_lost_also_where_it_is_read_no_more() -> None:
    socket_ = SocketWithFrames()
    reader = _FrameReader(socket_, lambda: socket_.is_lost)  # type: ignore[arg-type]
    pause = asyncio.create_task(reader.pause(600, lambda frame: False))
    await until_seen(lambda: socket_.read == 4, "as much waits as may", within_s=5)
    assert not pause.done()
    socket_.is_lost = True
    await asyncio.wait_for(pause, 5)


async def test_what_a_client_said_last_is_freed_when_it_ends_during_a_pause() -> None:
    class Message:
        """In place of a long message."""

    socket_ = SocketWithFrames()
    socket_.is_closed = True
    reader = _FrameReader(socket_, lambda: socket_.is_lost)  # type: ignore[arg-type]

    async def serve(reader: _FrameReader) -> weakref.ref[Message]:
        message = Message()
        await reader.pause(600, lambda frame: False)
        try:
            await reader.next()
        except WebSocketDisconnect:
            return weakref.ref(message)
        raise AssertionError("the connection is gone")

    gc.disable()
    try:
        assert (await serve(reader))() is None
    finally:
        gc.enable()


@given(st.integers(1, 1000), st.lists(st.tuples(st.floats(0, 2), st.integers(1, 500)), max_size=30))
def test_a_pace_never_lets_through_more_than_its_rate_and_one_second_s_worth(
    rate: int, asked: list[tuple[float, int]]
) -> None:
    pace, now, taken = RateLimit(rate, 0.0), 0.0, 0
    for idle, count in asked:
        now += idle
        assert taken <= rate * (now + 1) + 1e-6
        wait = pace.charge(count, now)
        taken += count
        now += wait
    assert taken <= rate * (now + 1) + 1e-6


def test_without_a_rate_request_withdrawn() -> None:
    assert RateLimit(0, 0.0).charge(1_000_000, 0.0) == 0.0
