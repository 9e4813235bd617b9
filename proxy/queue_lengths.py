"""Everything of an engine that waits for a client or a part and grows while that is slow, and how much of it may.

One table for those who watch a proxy (node/http/metrics.py) and for those who prove that it keeps its bounds
(chaos/simulator/checks/bounds.py). waypost/limits.py says what happens at each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from handover.source import SourceState
from handover.target import TargetState
from proxy.session.session import Session
from waypost.limits import (
    DEFERRED_CHANGES,
    GATE_BUFFER,
    MOVES_AT_ONCE,
    PRODUCER_QUEUE,
    RELAY_OUT_OF_ORDER,
)

if TYPE_CHECKING:
    from proxy.engine import Engine

Waiting = tuple[str, int, int]
"""A name, how many wait, and how many may. Of one name there are as many as there are who wait."""


def of_windows(session: Session) -> Iterator[Waiting]:
    """Yield ("receiver", notifications sent and not acknowledged, how many may be) for each receiver."""
    for receiver in session.receivers.values():
        yield "receiver", receiver.window.under_way, receiver.window.size


def of_engine(engine: Engine) -> Iterator[Waiting]:
    """Yield each queue of an engine: its name, its length, and its bound; a name comes once for each
    queue of its kind.
    """
    for session in engine.sessions.values():
        yield from of_windows(session)
        for gate in session.gates.values():
            yield "gate", len(gate), GATE_BUFFER
    yield from _of_copies(engine)
    # Sessions on offer.
    yield "moves", engine.session_moves.offered, MOVES_AT_ONCE
    # Changes that wait for a frozen session.
    for changes in engine.dispatcher.deferred():
        yield "changes", changes, DEFERRED_CHANGES
    # Notifications that wait for the append before them.
    for notifications in engine.dispatcher.publishing.waiting():
        yield "producer", notifications, PRODUCER_QUEUE
    # Messages of a relay that wait for one before them.
    for messages in engine.dispatcher.relays.early():
        yield "relay", messages, RELAY_OUT_OF_ORDER


def _of_copies(engine: Engine) -> Iterator[Waiting]:
    """Chunks of a copy that are not acknowledged, and entries of one acknowledged that wait for the disk."""
    bounds = engine.env.settings.bounds
    for outgoing in engine.transfers.sources.running.values():
        # A frozen source sends all that is left; one that takes the session back sends no more.
        if outgoing.machine.state in (SourceState.COPYING, SourceState.WAITING):
            yield "copy", outgoing.sent - outgoing.acknowledged, bounds.chunk_window
    for incoming in engine.transfers.targets.running.values():
        # Entries of an earlier transfer may wait for the disk too: no chunk of this one is acknowledged before that.
        all_acknowledged = 0 < incoming.acknowledged == incoming.chunks
        if incoming.shadow is not None and incoming.machine.state is TargetState.SHADOWING and all_acknowledged:
            yield (
                "copy to disk",
                incoming.shadow.entries.unsaved_count,
                bounds.copy_unsaved,
            )
