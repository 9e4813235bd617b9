"""Bugs in bounds: what waits somewhere becomes more than may wait there."""

from __future__ import annotations

from federation.links.link_sender import LinkSender
from federation.ports import Batch
from proxy.session.receivers import Receiver
from proxy.session.retention import Retention
from tests.chaos.simulator.mutation import Mutant, replaced
from waypost.identity import SubscriptionId
from waypost.limits import DELIVERY_BATCH

DISPLACE = Retention._displace


def _feed_without_end(self: LinkSender, batch: Batch, now_ms: int) -> None:
    self._live.extend(batch)
    self._pump(now_ms)


def _displace_as_the_furthest(self: Retention, identity: SubscriptionId) -> None:
    highest, changes = self.highest, self.changes
    DISPLACE(self, identity)
    if self.highest == highest:
        self.changes = changes


MUTANTS = (
    Mutant(
        "a queue counts what nobody holds",
        "what a subscription lets go of counts for the queue until the subscription that has let go of most goes on",
        replaced(Retention, "_displace", _displace_as_the_furthest),
        ("REMOVED",),
        scenarios=("queue_counts_only_what_is_held",),
    ),
    Mutant(
        "no window of a receiver",
        "a proxy delivers whatever a receiver has not acknowledged",
        replaced(Receiver, "room", lambda self: DELIVERY_BATCH),
        ("BOUND",),
        (0, 10, 20),
    ),
    Mutant(
        "no window of a link",
        "a link sends whatever the far site has not acknowledged",
        replaced(LinkSender, "_has_room", lambda self: True),
        ("BOUND",),
        (45, 56, 65),
    ),
    Mutant(
        "kept for a sender without an end",
        "a link keeps all that was folded since its sender began to wait",
        replaced(LinkSender, "feed", _feed_without_end),
        ("BOUND",),
        (129, 195, 263),
    ),
)
