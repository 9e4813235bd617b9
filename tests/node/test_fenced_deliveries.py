"""What a step delivers is not sent where the lease has ended meanwhile: the time of a step stands still."""

from __future__ import annotations

import random
from typing import Any, cast

from handover.messages import RelayDown, RelayEnd
from node.configuration.config import NodeConfig
from node.shell.node import Node
from node.startup.backends import Backends
from proxy.core.effects import Send, SendPeer
from proxy.core.inputs import LeaseGranted
from proxy.core.settings import Settings
from proxy.engine import Engine
from waypost.clock import ManualClock
from waypost.identity import Epoch, Incarnation, Origin, ProxyId, SiteId
from waypost.messages import Acknowledged, DeliverEncoded

INCARNATION, LEASE_MS = Incarnation("a#1"), 10_000
YOU = ProxyId("you")
DELIVERY = DeliverEncoded(epoch=Epoch(1), through=1, matches=[], matched=[], entries=[])
ACKNOWLEDGEMENT = Acknowledged(1, Origin("A/0"), [0])


class Connection:
    """A client's connection that keeps what it is to carry."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.ended = self.address = ""

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def hang_up(self, reason: str) -> None:
        self.ended = reason


class Peers:
    """Peers that keep what they are to be sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, proxy: ProxyId, message: Any) -> None:
        self.sent.append(message)


async def no_backends() -> Backends:
    raise AssertionError("not started")


def serving(clock: ManualClock) -> tuple[Node, Connection, Peers]:
    """Return a node under a lease of LEASE_MS, with connection 1."""
    node = Node(NodeConfig(name="a", site="A"), no_backends, INCARNATION, lambda: "ws://a:1", clock)
    settings = Settings(proxy=ProxyId("a"), site=SiteId("A"))
    node.engine = Engine(settings, random.Random(0), INCARNATION, now_ms=clock.now_ms(), unix_ms=0)
    node.engine.step(LeaseGranted(INCARNATION, clock.now_ms() + LEASE_MS), clock.now_ms())
    connection, peers = Connection(), Peers()
    node.peers = cast(Any, peers)
    assert node._connections.add(cast(Any, connection)) == 1
    return node, connection, peers


def test_delivery_under_the_lease_is_sent() -> None:
    node, connection, peers = serving(ManualClock(1_000))
    node._perform(Send(1, DELIVERY))
    node._perform(SendPeer(YOU, RelayDown("a#1/1", 1, b"a batch", 0)))
    assert (connection.sent, connection.ended, len(peers.sent)) == ([DELIVERY], "", 1)


def test_delivery_after_the_lease_ended_within_the_step_ends_the_connection() -> None:
    clock = ManualClock(1_000)
    node, connection, _ = serving(clock)
    clock.advance(LEASE_MS)
    node._perform(Send(1, DELIVERY))
    assert connection.sent == []
    assert "lease" in connection.ended


def test_relayed_delivery_after_the_lease_ended_within_the_step_is_not_sent() -> None:
    clock = ManualClock(1_000)
    node, _, peers = serving(clock)
    clock.advance(LEASE_MS)
    node._perform(SendPeer(YOU, RelayDown("a#1/1", 1, b"a batch", 0)))
    end = RelayEnd("a#1/1", by_owner=True)
    node._perform(SendPeer(YOU, end))
    assert peers.sent == [end]


def test_producer_is_answered_without_a_lease() -> None:
    clock = ManualClock(1_000)
    node, connection, _ = serving(clock)
    clock.advance(LEASE_MS)
    node._perform(Send(1, ACKNOWLEDGEMENT))
    assert connection.sent == [ACKNOWLEDGEMENT]
