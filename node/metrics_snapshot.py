"""One look at a node: what its metrics are read from, walked over once for all of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from federation.link_in import Pulling
from federation.link_out import Sending
from node.node import Node
from proxy.clients.relay import Relays
from proxy.core.counters import Counters
from proxy.engine import Engine
from proxy.queue_lengths import of_engine
from proxy.session.session import Role


@dataclass(frozen=True)
class NodeSnapshot:
    """One look at a node. What only a node has that has started, raises Unreachable before that."""

    node: Node

    @property
    def engine(self) -> Engine:
        return self.node.serving_engine

    @property
    def counters(self) -> Counters:
        return self.engine.context.counters

    @property
    def relays(self) -> Relays:
        return self.engine.dispatcher.relays

    @cached_property
    def sessions(self) -> Sessions:
        return _sessions(self.engine)

    @cached_property
    def queues(self) -> dict[str, tuple[int, int]]:
        return _queues(self)

    @cached_property
    def links(self) -> tuple[list[Pulling], list[Sending]]:
        return self.node.links.shown() if self.engine else ([], [])

    @property
    def pulling(self) -> list[Pulling]:
        return self.links[0]

    @property
    def sending(self) -> list[Sending]:
        return self.links[1]


@dataclass(slots=True)
class Sessions:
    """What one walk over all sessions finds."""

    roles: Counter[str]
    attached: int = 0
    away: int = 0
    stored: int = 0
    gates: int = 0


def _sessions(engine: Engine) -> Sessions:
    found = Sessions(Counter({role.value: 0 for role in Role}))
    for session in engine.context.sessions.values():
        found.roles[session.role.value] += 1
        found.stored += session.entries.count
        found.gates += len(session.gates)
        for receiver in session.receivers.values():
            if receiver.connection is None:
                found.away += 1
            else:
                found.attached += 1
    return found


def _queues(snapshot: NodeSnapshot) -> dict[str, tuple[int, int]]:
    """Return how long every queue is, and its bound; of many of a name the one counts that is fullest."""
    fullest: dict[str, tuple[int, int]] = {}
    for name, waits, may in chain(snapshot.node.queues(), of_engine(snapshot.engine), snapshot.node.links.queues()):
        known = fullest.get(name)
        if known is None or waits * known[1] > known[0] * may:
            fullest[name] = waits, may
    return fullest
