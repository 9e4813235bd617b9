"""A node is ready as long as its lease certainly holds, whether anybody told it of the end or not."""

from __future__ import annotations

import random

from node.config import NodeConfig
from node.node import Node
from node.parts import Parts
from proxy.context import Settings
from proxy.engine import Engine
from waypost.clock import ManualClock
from waypost.identity import Incarnation, ProxyId, SiteId

LIFE = Incarnation("a#1")
LEASE_MS = 3_000


async def no_parts() -> Parts:
    raise AssertionError("not started")


async def test_a_node_whose_lease_is_not_renewed_in_time_says_that_it_is_not_ready() -> None:
    clock = ManualClock(1_000)
    node = Node(NodeConfig(name="a", site="A"), no_parts, LIFE, lambda: "ws://a:1", clock)
    assert not node.ready
    node.engine = Engine(Settings(ProxyId("a"), SiteId("A")), clock, random.Random(0), LIFE, None)
    assert not node.ready
    node.engine.lease_granted(LIFE, clock.now_ms() + LEASE_MS)
    assert node.ready
    clock.advance(LEASE_MS)
    assert not node.ready
    node.engine.lease_renewed(clock.now_ms() + LEASE_MS)
    assert node.ready
