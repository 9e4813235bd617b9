"""What a simulated proxy holds is within its bounds: all that waits (proxy/queue_lengths.py), and what is only kept.

Looked at whenever a proxy's timer fires, at least once a second; the windows also with every delivery and every message
of a link, which are what fills them. What has a bound of another kind, or none, stands in chaos/README.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from proxy.queue_lengths import Waiting, of_engine
from waypost.limits import MAX_SUBSCRIPTIONS_PER_SESSION, TRANSFERS_REMEMBERED, TRANSFERS_SHOWN

if TYPE_CHECKING:
    from proxy.engine import Engine


def of_proxy(engine: Engine) -> Iterator[Waiting]:
    """Yield each queue of a proxy that has a bound, full or not: its name, the number that waits, and the bound."""
    yield from of_engine(engine)
    queue_in_memory = engine.env.settings.bounds.queue_in_memory
    for session in engine.sessions.values():
        yield "entries in memory that the store has", session.entries.saved_in_memory, queue_in_memory
        subscriptions = len(session.subscriptions) + len(session.subscriptions.ended)
        yield "subscriptions, ended ones included", subscriptions, MAX_SUBSCRIPTIONS_PER_SESSION
    for side in (engine.transfers.sources, engine.transfers.targets):
        yield "transfers that are remembered", len(side.recent_ids), TRANSFERS_REMEMBERED
        yield "ended transfers that can be told of", len(side.recent_views), TRANSFERS_SHOWN
