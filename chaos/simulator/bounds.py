"""Every queue that grows with what others do, and how much may wait in it (waypost/limits.py says what happens there).

Looked at whenever a proxy's timer fires, at least once a second; the windows also with every delivery and every message
of a link, which are what fills them. What has a bound of another kind, or none, stands in chaos/README.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from handover.source import SourceState
from proxy.session import Session
from waypost.limits import (
    CHUNK_WINDOW,
    COPY_UNSAVED,
    GATE_BUFFER,
    MAX_SUBSCRIPTIONS_PER_SESSION,
    MOVES_AT_ONCE,
    PUBLISH_WINDOW,
    QUEUE_IN_MEMORY,
    RELAY_OUT_OF_ORDER,
    TRANSFERS_REMEMBERED,
    TRANSFERS_SHOWN,
)

if TYPE_CHECKING:
    from chaos.simulator.node import Node
    from federation.link_ends import LinkEnds
    from proxy.engine import Engine

Waiting = tuple[int, int]
"""How many wait, and how many may."""


class Queue(NamedTuple):
    """What waits, and a way to look at all queues of that kind in one process."""

    what: str
    lengths: Callable[[Node], Iterable[Waiting]]


def _of_sessions(lengths: Callable[[Session], Iterable[Waiting]]) -> Callable[[Node], Iterator[Waiting]]:
    return lambda node: (each for session in _engine(node).context.sessions.values() for each in lengths(session))


def _engine(node: Node) -> Engine:
    assert node.engine is not None
    return node.engine


def _links(node: Node) -> LinkEnds:
    return node.ends.machine


def delivered(session: Session) -> Iterator[Waiting]:
    return ((each.under_way, each.window) for each in session.receivers.values())


def _gated(session: Session) -> Iterator[Waiting]:
    return ((len(gate), GATE_BUFFER) for gate in session.gates.values())


def sent(ends: LinkEnds) -> Iterator[Waiting]:
    """A sender looks for room before each message, so the last one may reach past the window."""
    return ((link._under_way, link._bounds.window + link._bounds.batch - 1) for link in ends._out.values())


def _chunks(node: Node) -> Iterator[Waiting]:
    """A frozen source sends all that is left."""
    for out in _engine(node).transfers.sources.running.values():
        if out.machine.state is not SourceState.FROZEN:
            yield out.sent - out.acknowledged, CHUNK_WINDOW


def _copied(node: Node) -> Iterator[Waiting]:
    """What was acknowledged of a copy may wait for the disk, and what the window lets in behind it."""
    for into in _engine(node).transfers.targets.running.values():
        if into.shadow is not None and into.acknowledged == into.chunks:
            yield into.shadow.last_number - into.shadow.saved_number, COPY_UNSAVED


def _early(node: Node) -> Iterator[Waiting]:
    relays = _engine(node).door.relays
    lines = [near.line for near in relays._near.values()] + [far.line for far in relays._far.values()]
    return ((len(line.early), RELAY_OUT_OF_ORDER) for line in lines)


def _over(node: Node) -> Waiting:
    return len(_engine(node).transfers.sources._over), TRANSFERS_REMEMBERED


def _ended(node: Node) -> Waiting:
    transfers = _engine(node).transfers
    return max(len(transfers.sources.ended), len(transfers.targets.ended)), TRANSFERS_SHOWN


QUEUES = (
    Queue("delivered and not acknowledged, of a receiver", _of_sessions(delivered)),
    Queue("live matches behind a gate", _of_sessions(_gated)),
    Queue(
        "entries in memory that the store has",
        _of_sessions(lambda each: [(each.saved_number + 1 - each.in_memory_from(), QUEUE_IN_MEMORY)]),
    ),
    Queue(
        "subscriptions of a session, ended ones included",
        _of_sessions(lambda each: [(len(each.subscriptions) + len(each.ended), MAX_SUBSCRIPTIONS_PER_SESSION)]),
    ),
    Queue(
        "changes that wait for a frozen session",
        lambda node: ((len(each), MAX_SUBSCRIPTIONS_PER_SESSION) for each in _engine(node).door._deferred.values()),
    ),
    Queue(
        "publishes of a producer that wait for the append before them",
        lambda node: ((each.queued, 2 * PUBLISH_WINDOW) for each in _engine(node).door.publishing._producers.values()),
    ),
    Queue("chunks of a copy that are not acknowledged", _chunks),
    Queue("entries of a copy that wait for the disk", _copied),
    Queue("transfers that a source remembers", lambda node: [_over(node)]),
    Queue("transfers that a proxy can tell of", lambda node: [_ended(node)]),
    Queue("sessions on offer", lambda node: [(len(_engine(node).moving._offered), MOVES_AT_ONCE)]),
    Queue("messages of a relay that wait for one before them", _early),
    Queue("records sent over a link and not acknowledged", lambda node: sent(_links(node))),
    Queue(
        "records just folded that wait for a sender",
        lambda node: ((len(each._live), each._bounds.live) for each in _links(node)._out.values()),
    ),
    Queue(
        "records that came over a link and wait for the append before them",
        lambda node: ((len(each._queued), each._bounds.queue) for each in _links(node)._in.values()),
    ),
)


def beyond(node: Node) -> Iterator[str]:
    """Say of each queue of the process that is past its bound."""
    for queue in QUEUES:
        for waiting, bound in queue.lengths(node):
            if waiting > bound:
                yield f"{waiting} of {bound} {queue.what}"
