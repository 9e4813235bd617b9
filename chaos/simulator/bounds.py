"""Every queue that grows with what others do, and how much may wait in it (waypost/limits.py says what happens there).

Looked at whenever a proxy's timer fires, at least once a second; the windows also with every delivery and every message
of a link, which are what fills them. What has a bound of another kind, or none, stands in chaos/README.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from handover.source import SourceState
from handover.target import TargetState
from proxy.context import Bounds
from proxy.session import Session
from waypost.limits import (
    GATE_BUFFER,
    MAX_SUBSCRIPTIONS_PER_SESSION,
    MOVES_AT_ONCE,
    PUBLISH_WINDOW,
    RELAY_OUT_OF_ORDER,
    TRANSFERS_REMEMBERED,
    TRANSFERS_SHOWN,
)

if TYPE_CHECKING:
    from federation.link_ends import LinkEnds
    from proxy.engine import Engine

Queue = tuple[str, int, int]
"""What waits, how many of it, and how many may."""


def of_windows(session: Session) -> Iterator[Queue]:
    for receiver in session.receivers.values():
        yield "delivered and not acknowledged", receiver.under_way, receiver.window


def of_session(session: Session, bounds: Bounds) -> Iterator[Queue]:
    yield from of_windows(session)
    for gate in session.gates.values():
        yield "live matches behind a gate", len(gate), GATE_BUFFER
    subscriptions = len(session.subscriptions) + len(session.ended)
    yield "entries in memory that the store has", session.saved_in_memory, bounds.queue_in_memory
    yield "subscriptions, ended ones included", subscriptions, MAX_SUBSCRIPTIONS_PER_SESSION


def of_engine(engine: Engine) -> Iterator[Queue]:
    bounds = engine.context.settings.bounds
    for session in engine.context.sessions.values():
        yield from of_session(session, bounds)
    sources, targets, door = engine.transfers.sources, engine.transfers.targets, engine.door
    for out in sources.running.values():
        # A frozen source sends all that is left.
        if out.machine.state is not SourceState.FROZEN:
            yield "chunks of a copy that are not acknowledged", out.sent - out.acknowledged, bounds.chunk_window
    for into in targets.running.values():
        if into.shadow is not None and into.machine.state is TargetState.SHADOWING and into.acknowledged == into.chunks:
            unsaved = into.shadow.last_number - into.shadow.saved_number
            yield "entries of an acknowledged copy that wait for the disk", unsaved, bounds.copy_unsaved
    yield "transfers that are remembered", max(len(sources.over), len(targets.over)), TRANSFERS_REMEMBERED
    yield "ended transfers that can be told of", max(len(sources.ended), len(targets.ended)), TRANSFERS_SHOWN
    yield "sessions on offer", len(engine.moving._offered), MOVES_AT_ONCE
    for deferred in door._deferred.values():
        yield "changes that wait for a frozen session", len(deferred), MAX_SUBSCRIPTIONS_PER_SESSION
    for producer in door.publishing._producers.values():
        yield "publishes that wait for the append before them", producer.queued, 2 * PUBLISH_WINDOW
    lines = [near.line for near in door.relays._near.values()] + [far.line for far in door.relays._far.values()]
    for line in lines:
        yield "messages of a relay that wait for one before them", len(line.early), RELAY_OUT_OF_ORDER


def of_links(ends: LinkEnds) -> Iterator[Queue]:
    bounds = ends._bounds
    for link in ends._out.values():
        # There is room before each message: the last one may reach past the window.
        yield "sent over a link and not acknowledged", link._under_way, bounds.window + bounds.batch - 1
        yield "records just folded that wait for a sender", len(link._live), bounds.live
    for pulling in ends._in.values():
        yield "records of a link that wait for the append before them", len(pulling._queued), bounds.queue
