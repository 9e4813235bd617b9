"""The state of a node at one moment, from which all its metrics are read: its sessions are walked over once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from federation.links.link_receiver import ReceiverView
from federation.links.link_sender import SenderView
from node.shell.node import Node
from proxy.clients.relay import Relays
from proxy.core.counters import Counters
from proxy.engine import Engine
from proxy.queue_lengths import of_engine
from proxy.session.role import Role


@dataclass(frozen=True)
class NodeSnapshot:
    """The state of a node at one moment. Every property but `node` raises Unreachable before the node has started."""

    node: Node

    @property
    def engine(self) -> Engine:
        """The engine of the node. Raises Unreachable: the node has not started yet."""
        return self.node.serving_engine

    @property
    def counters(self) -> Counters:
        """The engine's counters. Raises Unreachable: the node has not started yet."""
        return self.engine.output.counters

    @property
    def relays(self) -> Relays:
        """The connections relayed to or from other proxies. Raises Unreachable: the node has not started yet."""
        return self.engine.dispatcher.relays

    @cached_property
    def sessions(self) -> Sessions:
        """Sums over all sessions, made at the first use. Raises Unreachable: the node has not started yet."""
        return _sessions(self.engine)

    @cached_property
    def queues(self) -> dict[str, tuple[int, int]]:
        """Name of a queue -> its length and its bound; of several of one name, the fullest. Made at the first use.

        Raises:
            Unreachable: the node has not started yet.
        """
        return _queues(self)

    @cached_property
    def links(self) -> tuple[list[ReceiverView], list[SenderView]]:
        """The ends of links here: those that receive, those that send. Raises Unreachable: the node has not started
        yet.
        """
        return self.node.links.shown() if self.engine else ([], [])

    @property
    def pulling(self) -> list[ReceiverView]:
        """The ends of links that receive. Raises Unreachable: the node has not started yet."""
        return self.links[0]

    @property
    def sending(self) -> list[SenderView]:
        """The ends of links that send. Raises Unreachable: the node has not started yet."""
        return self.links[1]


@dataclass(slots=True)
class Sessions:
    """Sums over all sessions of a proxy: by role; attached and away receivers; stored entries; open gates."""

    roles: Counter[str]
    attached: int = 0
    away: int = 0
    stored: int = 0
    gates: int = 0


def _sessions(engine: Engine) -> Sessions:
    found = Sessions(Counter({role.value: 0 for role in Role}))
    for session in engine.sessions.values():
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
    """Return the length and the bound of every queue; of several of one name, the fullest."""
    fullest: dict[str, tuple[int, int]] = {}
    for name, waits, may in chain(snapshot.node.queues(), of_engine(snapshot.engine), snapshot.node.links.queues()):
        known = fullest.get(name)
        if known is None or waits * known[1] > known[0] * may:
            fullest[name] = waits, may
    return fullest
