"""Bugs in bounds: what waits somewhere becomes more than may wait there."""

from __future__ import annotations

from contextlib import nullcontext
from unittest import mock

from federation.links.link_sender import LinkSender
from federation.ports import Batch
from proxy.ownership import session_moves
from proxy.session.receivers import Receiver
from proxy.session.retention import Retention
from proxy.session.session import Session
from proxy.stream.expiry import Expiry
from tests.chaos.simulator.mutation import Mutant, replaced
from waypost.identity import SubscriptionId
from waypost.limits import DELIVERY_BATCH

DISPLACE = Retention._displace
BOUND = Expiry.bound


def _feed_without_end(self: LinkSender, batch: Batch, now_ms: int) -> None:
    self._live.extend(batch)
    self._pump(now_ms)


def _displace_as_the_furthest(self: Retention, identity: SubscriptionId) -> None:
    highest, let_go = self.highest, None if self._let_go is None else [*self._let_go]
    DISPLACE(self, identity)
    if self.highest == highest:
        self._let_go = let_go


def _bound_without_maximum_counts(self: Expiry, session: Session) -> None:
    is_delivered = all(receiver.window.sent == session.entries.last_number for receiver in session.receivers.values())
    with nullcontext() if is_delivered else mock.patch.object(Retention, "displace", lambda self: None):
        BOUND(self, session)


MUTANTS = (
    Mutant(
        "a drain is tried all the time",
        "a proxy that is drained, and finds nobody for its sessions, tries again every ms",
        replaced(session_moves, "GRACE_MS", 0),
        ("SPIN",),
        scenarios=("drain_without_another_proxy",),
    ),
    Mutant(
        "a queue counts what nobody holds",
        "what a subscription lets go of counts for the queue until the subscription that has let go of most goes on",
        replaced(Retention, "_displace", _displace_as_the_furthest),
        ("REMOVED",),
        scenarios=("queue_counts_only_what_is_held",),
    ),
    Mutant(
        "a queue before maximum counts",
        "where no receiver was sent anything since, a queue discards before subscriptions let go of theirs",
        replaced(Expiry, "bound", _bound_without_maximum_counts),
        ("REMOVED",),
        kept=("99364499",),
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
