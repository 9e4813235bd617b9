"""Between real proxies: a stranger gets nothing, and a frame that is changed on its way costs a connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

import waypost
from chaos.cluster import Cluster, ProxyProcess, ProxySpec
from chaos.faults.damage import Damage
from chaos.servers.process import LOOPBACK, free_port
from federation.embedded import EmbeddedRegistry
from federation.ports import ProxyRow, Reloaded
from handover.messages import Prepare
from node.peers.peers import PeerChallenge, PeerHello, PeerWelcome, decode_introduction
from node.security.seal import Introduction, Sealer, check_proof, new_nonce
from tests.helpers.watch import changes
from waypost.identity import Epoch, Incarnation, ProxyId, SessionId
from waypost.messages import VERSION

A1, A2 = ProxyId("a1"), ProxyId("a2")
SESSION = "tests/wanted"
UNACCEPTABLE = 1003
WAIT_S = 20.0
MOVES, OWED = 8, 20
FLAGS = {"no-discovery": ""}


# ---------------------------------------------------------------- a stranger


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    places = [ProxySpec(A1, "A", FLAGS), ProxySpec(A2, "A", FLAGS)]
    with Cluster(places, [], tmp_path_factory.mktemp("strangers")) as cluster:
        yield cluster


@pytest.fixture
def a1(cluster: Cluster) -> ProxyProcess:
    return cluster.proxies[A1]


async def rows_and_secret(cluster: Cluster) -> tuple[dict[ProxyId, ProxyRow], bytes]:
    """Return what whoever can read the registry knows."""
    registry = EmbeddedRegistry(cluster.root / "registry.db")
    try:
        first = await anext(aiter(changes(registry)))
        assert isinstance(first, Reloaded)
        return first.proxies, await registry.secret()
    finally:
        await registry.close()


class Caller:
    """Somebody who says to be proxy a2, on a connection to a1."""

    def __init__(self, socket: ClientConnection, challenge: bytes, incarnation: Incarnation) -> None:
        self.socket = socket
        self._challenge = challenge
        self._incarnation = incarnation

    async def send(self, message: msgspec.Struct) -> None:
        await self.socket.send(msgspec.msgpack.encode(message))

    async def introduce(self, secret: bytes, *, callee: ProxyId = A1, version: int = VERSION) -> Introduction:
        introduction = Introduction(
            challenge=self._challenge,
            nonce=new_nonce(),
            version=version,
            caller=A2,
            incarnation=self._incarnation,
            callee=callee,
        )
        await self.send(
            PeerHello(
                version=version,
                proxy=A2,
                incarnation=self._incarnation,
                callee=callee,
                nonce=introduction.nonce,
                proof=introduction.callers_proof(secret),
            )
        )
        return introduction

    async def refused(self) -> tuple[int | None, str]:
        """Return code and reason of the end; raises when anything is answered before."""
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(ConnectionClosed) as closed:
                raise AssertionError(f"answered: {await self.socket.recv()!r}")
        end = closed.value.rcvd
        return (end.code, end.reason) if end else (None, "")


@asynccontextmanager
async def calling(proxy: ProxyProcess, incarnation: Incarnation) -> AsyncIterator[Caller]:
    async with connect(f"{proxy.url}/v1/peer") as socket:
        challenge = decode_introduction(await socket.recv())
        assert isinstance(challenge, PeerChallenge)
        yield Caller(socket, challenge.nonce, incarnation)


def refusals(proxy: ProxyProcess) -> dict[str, int]:
    counts: dict[str, int] = proxy.request("/v1/status")["refused"]
    return counts


def owner(proxy: ProxyProcess) -> Any:
    row = proxy.shown(SESSION)
    return row and (row["owner"], row["epoch"], row["state"])


PREPARE = Prepare(session=SessionId(SESSION), transfer="t", epoch=Epoch(1))


async def test_a_stranger_that_knows_a_live_proxy_and_not_the_secret_cannot_ask_for_a_session(
    cluster: Cluster, a1: ProxyProcess
) -> None:
    rows, _ = await rows_and_secret(cluster)
    async with waypost.attach(SESSION, proxy=a1.url) as session:
        await session.wait_attached()
        before = owner(a1)
        for _ in range(3):
            async with calling(a1, rows[A2].incarnation) as stranger:
                guess = b"g" * 32
                introduction = await stranger.introduce(guess)
                await stranger.socket.send(Sealer(introduction.frame_key(guess)).seal(msgspec.msgpack.encode(PREPARE)))
                assert await stranger.refused() == (UNACCEPTABLE, "UNPROVEN: wrong proof")
        for _ in range(2):
            async with calling(a1, rows[A2].incarnation) as stranger:
                await stranger.send(PREPARE)
                assert (await stranger.refused())[0] == UNACCEPTABLE
        refused = refusals(a1)
        assert (refused["wrong proof"], refused["bad message"]) == (3, 2)
        assert cluster.root.joinpath("a1.log").read_text().count("wrong proof") == 2, "name and detail of one line"
        assert a1.request("/v1/handovers")["handovers"] == []
        assert owner(a1) == before == ("a1", 1, "serving")


async def test_silent_stranger_is_disconnected(cluster: Cluster, a1: ProxyProcess) -> None:
    rows, _ = await rows_and_secret(cluster)
    async with calling(a1, rows[A2].incarnation) as stranger:
        assert await stranger.refused() == (UNACCEPTABLE, "UNPROVEN: no hello in time")
    assert refusals(a1)["no hello in time"] == 1


async def test_the_secret_alone_is_not_enough(cluster: Cluster, a1: ProxyProcess) -> None:
    rows, secret = await rows_and_secret(cluster)
    async with calling(a1, Incarnation("an earlier life")) as stranger:
        await stranger.introduce(secret)
        assert await stranger.refused() == (UNACCEPTABLE, "UNPROVEN: unknown incarnation")
    async with calling(a1, rows[A2].incarnation) as stranger:
        await stranger.introduce(secret, callee=A2)
        assert await stranger.refused() == (UNACCEPTABLE, "UNPROVEN: meant for another proxy")


async def test_refusal_of_another_version_names_the_own_version(cluster: Cluster, a1: ProxyProcess) -> None:
    rows, secret = await rows_and_secret(cluster)
    async with calling(a1, rows[A2].incarnation) as caller:
        await caller.introduce(secret, version=VERSION + 1)
        reason = f"WRONG_VERSION: proxy a2 speaks version {VERSION + 1}; this one speaks {VERSION}"
        assert await caller.refused() == (UNACCEPTABLE, reason)


async def test_a_proxy_is_let_in_and_hears_the_proof_of_the_other_side(cluster: Cluster, a1: ProxyProcess) -> None:
    rows, secret = await rows_and_secret(cluster)
    async with calling(a1, rows[A2].incarnation) as caller:
        introduction = await caller.introduce(secret)
        welcome = decode_introduction(await caller.socket.recv())
        assert isinstance(welcome, PeerWelcome)
        check_proof(introduction.callees_proof(secret), welcome.proof)
        sealed = Sealer(introduction.frame_key(secret)).seal(msgspec.msgpack.encode(PREPARE))
        await caller.socket.send(sealed)
        await caller.socket.send(sealed)
        assert await caller.refused() == (UNACCEPTABLE, "UNPROVEN: frame out of sequence")


# ---------------------------------------------------------------- somebody on the way


@asynccontextmanager
async def damageable(root: Path) -> AsyncIterator[tuple[Cluster, dict[ProxyId, Damage]]]:
    """Two proxies of a site that reach each other through somebody who can change what passes."""
    ports = {name: free_port() for name in (A1, A2)}
    async with AsyncExitStack() as stack:
        ways = {name: await stack.enter_async_context(Damage(f"{LOOPBACK}:{port}")) for name, port in ports.items()}
        places = [
            ProxySpec(name, "A", FLAGS | {"port": str(ports[name]), "advertise": f"ws://{way.address}"})
            for name, way in ways.items()
        ]
        yield await stack.enter_async_context(Cluster(places, [], root)), ways


async def test_a_frame_that_was_changed_between_two_proxies_costs_a_new_connection_and_nothing_else(
    tmp_path: Path,
) -> None:
    state = waypost.ReceiverState()
    got: list[object] = []
    async with damageable(tmp_path) as (cluster, ways):
        proxies = [cluster.proxies[A1], cluster.proxies[A2]]
        async with waypost.attach(SESSION, proxy=proxies[0].url, state=state) as session:
            await session.wait_effective(await session.subscribe("n > 0"), ["A/0"])
        async with waypost.produce("p", proxy=proxies[0].url) as producer:
            for move in range(MOVES):
                for number in range(OWED):
                    await producer.publish({"n": move * OWED + number + 1})
                for way in ways.values():
                    way.due = 1 if move % 3 else 0
                async with waypost.attach(SESSION, proxy=proxies[(move + 1) % 2].url, state=state) as session:
                    async with asyncio.timeout(WAIT_S):
                        while len(got) < (move + 1) * OWED:
                            got.append((await anext(session))["n"])
        counts = {name: refusals(cluster.proxies[name]).get("wrong tag", 0) for name in ways}
        ended_at = owner(proxies[0])[0]
    assert got == [*range(1, MOVES * OWED + 1)]
    assert ended_at == (A1, A2)[MOVES % 2]
    for name, way in ways.items():
        assert way.changed > 1
        # One that was changed in the frame's header breaks the connection before any tag is looked at.
        assert 0 < counts[name] <= way.changed
        assert way.connections > counts[name]
        lines = [line for line in (tmp_path / f"{name}.log").read_text().splitlines() if "wrong tag" in line]
        assert len(lines) == 1
