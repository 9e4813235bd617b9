"""Connections between proxies: what ends one leaves nothing behind."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import pytest
from websockets.asyncio.server import ServerConnection, serve

from chaos.servers.process import free_port
from federation.messages import LinkAppended
from federation.ports import ProxyRow
from handover.messages import (
    HandoverOffer,
    Trigger,
)
from node.peers.peers import (
    PROBE_MS,
    PeerChallenge,
    PeerHello,
    Peers,
    PeerWelcome,
    decode_introduction,
    encode_introduction,
)
from node.peers.routes import Routed
from node.security.seal import new_nonce
from waypost.clock import ManualClock, SystemClock
from waypost.identity import Epoch, Incarnation, ProxyId, SessionId, SiteId
from waypost.limits import PEER_QUEUE

ME, OTHER = ProxyId("me"), ProxyId("other")
INCARNATION = Incarnation("life")
SECRET = b"s" * 32


def waiting() -> list[str]:
    return [str(task) for task in asyncio.all_tasks() if "Queue.get" in str(task)]


def row_at(url: str) -> ProxyRow:
    return ProxyRow(proxy=OTHER, incarnation=INCARNATION, site=SiteId("A"), url=url)


class OneOther:
    """A directory that knows one other proxy, or none, and no way over other sites."""

    secret: bytes | None = SECRET
    incarnation = INCARNATION
    is_watching = True

    def __init__(self, other: ProxyRow | None, refusals: list[tuple[str, ProxyId, str]] | None = None) -> None:
        self._other = other
        self._refusals = [] if refusals is None else refusals
        self.passed: list[int] = []
        """How many proxies the messages had left for which a way was asked."""

    def live(self) -> list[ProxyRow]:
        return [] if self._other is None else [self._other]

    def row(self, proxy: ProxyId) -> ProxyRow | None:
        return self._other

    def next_proxy(self, target: ProxyRow, unreached: object, passed: int) -> None:
        self.passed.append(passed)

    def refused(self, name: str, peer: ProxyId, detail: str) -> None:
        self._refusals.append((name, peer, detail))


def peers_with(row: ProxyRow | None, refusals: list[tuple[str, ProxyId, str]] | None = None) -> Peers:
    return Peers(ME, OneOther(row, refusals), clock=SystemClock())


async def lost(peers: Peers, count: int) -> dict[str, int]:
    """Return what was lost, by cause, once it is so many."""
    async with asyncio.timeout(5):
        while peers.lost.total() < count:
            await asyncio.sleep(0.01)
    await peers.close()
    return dict(peers.lost)


OFFER = HandoverOffer(SessionId("s"), Epoch(1), Trigger.DRAIN)


async def test_message_to_an_absent_proxy_is_counted_as_not_there() -> None:
    peers = peers_with(None)
    for _ in range(3):
        peers.send(OTHER, OFFER)
    assert await lost(peers, 3) == {"not there": 3}


async def test_nothing_is_kept_of_names_that_nobody_has() -> None:
    """A routed message may name any, and names of proxies come and go."""
    peers = peers_with(None)
    for number in range(3):
        peers.send(ProxyId(f"nobody-{number}"), OFFER)
        peers.send(ProxyId(f"nobody-{number}"), OFFER)
    while peers.waiting():
        await asyncio.sleep(0.01)
    assert peers.lost == {"not there": 6}
    peers.send(OTHER, OFFER)
    assert await lost(peers, 7) == {"not there": 7}


async def test_message_to_an_unreachable_proxy_is_counted_as_connection() -> None:
    peers = peers_with(row_at("ws://127.0.0.1:1"))
    peers.send(OTHER, OFFER)
    assert await lost(peers, 1) == {"connection": 1}
    assert peers.unreached[OTHER].why.startswith("ws://127.0.0.1:1: ")


async def test_unreachable_proxy_is_tried_again_although_nothing_is_sent_to_it() -> None:
    clock = ManualClock()
    port = free_port()
    peers = Peers(ME, OneOther(row_at(f"ws://127.0.0.1:{port}")), clock=clock)
    peers.send(OTHER, OFFER)
    async with asyncio.timeout(5):
        while not peers.lost:
            await asyncio.sleep(0.01)
    async with serve(introduce, "127.0.0.1", port):
        peers.probe_unreached()
        await asyncio.sleep(0.1)
        assert OTHER in peers.unreached, "it was tried a moment ago"
        clock.advance(PROBE_MS)
        peers.probe_unreached()
        async with asyncio.timeout(5):
            while peers.unreached:
                await asyncio.sleep(0.01)
    await peers.close()


async def test_message_at_a_full_queue_is_counted_as_queue_full() -> None:
    peers = peers_with(None)
    for _ in range(PEER_QUEUE + 2):
        peers.send(OTHER, OFFER)
    assert peers.lost == {"queue full": 2}
    assert await lost(peers, PEER_QUEUE + 2) == {"queue full": 2, "not there": PEER_QUEUE}


async def introduce(socket: ServerConnection) -> None:
    """Prove to the caller that this is its peer."""
    challenge = new_nonce()
    await socket.send(encode_introduction(PeerChallenge(challenge)))
    hello = decode_introduction(await socket.recv())
    assert isinstance(hello, PeerHello)
    proof = hello.introduction(challenge).callees_proof(SECRET)
    await socket.send(encode_introduction(PeerWelcome(proof)))


async def note_each_message(accepted: asyncio.Queue[ServerConnection], socket: ServerConnection) -> None:
    """Serve a connection as a peer, and put it into the queue for each message on it."""
    await introduce(socket)
    async for _ in socket:
        accepted.put_nowait(socket)


async def test_peer_that_vanishes_in_silence_is_unreached_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.peers.peers.PING_EVERY_S", 0.2)
    monkeypatch.setattr("node.peers.peers.PONG_WITHIN_S", 0.2)
    silent: list[ServerConnection] = []
    over = asyncio.Event()

    async def fall_silent(socket: ServerConnection) -> None:
        if not silent:
            await introduce(socket)
            await socket.recv()
        # Nothing is read any more, not even the next caller's hello: as behind a way that swallows packets.
        silent.append(socket)
        socket.transport.pause_reading()
        await over.wait()

    async with serve(fall_silent, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        peers = peers_with(row_at(f"ws://127.0.0.1:{port}"))
        peers.send(OTHER, OFFER)
        async with asyncio.timeout(10):
            while OTHER not in peers.unreached:
                await asyncio.sleep(0.05)
                if silent:
                    peers.send(OTHER, OFFER)
        await peers.close()
        over.set()
        for socket in silent:
            socket.transport.abort()


@pytest.mark.parametrize("who_ends_it", ["we", "the peer"])
async def test_ended_peer_connection_leaves_no_task_waiting(who_ends_it: str) -> None:
    accepted: asyncio.Queue[ServerConnection] = asyncio.Queue()
    async with serve(partial(note_each_message, accepted), "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        peers = peers_with(row_at(f"ws://127.0.0.1:{port}"))
        peers.send(OTHER, OFFER)
        async with asyncio.timeout(5):
            socket = await accepted.get()
            while not waiting():
                await asyncio.sleep(0.01)
            if who_ends_it == "the peer":
                await socket.close()
                while waiting():
                    await asyncio.sleep(0.01)
        await peers.close()
        # Who was cancelled has its turn, and ends.
        await asyncio.sleep(0.01)
        assert waiting() == []
        assert peers.lost == {}


async def test_message_behind_a_change_of_incarnation_goes_out_on_the_next_connection() -> None:
    accepted: asyncio.Queue[ServerConnection] = asyncio.Queue()
    async with serve(partial(note_each_message, accepted), "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        directory = OneOther(row_at(f"ws://127.0.0.1:{port}"))
        peers = Peers(ME, directory, clock=SystemClock())
        async with asyncio.timeout(5):
            peers.send(OTHER, OFFER)
            first = await accepted.get()
            directory.incarnation = Incarnation("me, anew")
            peers.send(OTHER, OFFER)
            second = await accepted.get()
        assert second is not first
        assert peers.lost == {}
        await peers.close()


# ---------------------------------------------------------------- what others pass on


def routed(message: object, *, sender: ProxyId = OTHER, incarnation: str = INCARNATION) -> Routed:
    data = message if isinstance(message, bytes) else msgspec.msgpack.encode(message)
    return Routed(target=ME, sender=sender, incarnation=Incarnation(incarnation), passed=1, data=data)


def test_routed_message_is_received_as_of_its_sender() -> None:
    assert peers_with(row_at("ws://nowhere")).receive(ProxyId("between"), routed(OFFER)) == (OTHER, OFFER)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(routed(OFFER, incarnation="an earlier one"), id="of an earlier incarnation"),
        pytest.param(routed(b"\xc1"), id="that is none"),
        pytest.param(routed(routed(OFFER)), id="in another one"),
        pytest.param(routed(LinkAppended(SiteId("B"), 1, 1, 1)), id="of a link"),
    ],
)
def test_routed_message_is_refused_and_counted(message: Routed) -> None:
    refusals: list[tuple[str, ProxyId, str]] = []
    peers = peers_with(row_at("ws://nowhere"), refusals)
    assert peers.receive(ProxyId("between"), message) is None
    assert len(refusals) == 1 and refusals[0][1] == ProxyId("between")


async def test_message_that_is_not_reached_in_any_way_is_lost() -> None:
    directory = OneOther(row_at("ws://127.0.0.1:1"))
    peers = Peers(ME, directory, clock=SystemClock())
    peers.receive(ProxyId("between"), msgspec.structs.replace(routed(OFFER), target=OTHER, passed=7))
    assert await lost(peers, 1) == {"connection": 1}
    assert directory.passed == [7]
