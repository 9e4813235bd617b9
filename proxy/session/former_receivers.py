"""The receivers of one session that are not registered any more."""

from __future__ import annotations

from collections.abc import Mapping

from waypost.checkpoint import ReceiverTombstone
from waypost.identity import Origin, ReceiverId
from waypost.limits import UNREGISTERED_REMEMBERED


class FormerReceivers:
    """What a session remembers of receivers that were registered: the frontier up to which each had all, and the attach
    at which a client unregistered one. Of each kind UNREGISTERED_REMEMBERED at most; the oldest go first.
    """

    def __init__(self) -> None:
        self.frontiers: dict[ReceiverId, dict[Origin, int]] = {}
        """The frontiers of receivers that are not registered any more: one that comes back gets nothing again."""
        self.tombstones: dict[ReceiverId, ReceiverTombstone] = {}
        """By receiver that its client has unregistered, until which attach that holds."""
        self._departures: dict[ReceiverId, int] = {}
        """By receiver that its client has unregistered at this proxy, how many had left there by then."""

    def describe(
        self, frontiers: Mapping[ReceiverId, Mapping[Origin, int]], tombstones: Mapping[ReceiverId, ReceiverTombstone]
    ) -> None:
        """Replace what is remembered by what a descriptor has."""
        self.frontiers = {identity: dict(frontier) for identity, frontier in frontiers.items()}
        self.tombstones = dict(tombstones)
        self._departures = {}

    def remember(self, identity: ReceiverId, frontier: Mapping[Origin, int]) -> None:
        """Remember the frontier of a receiver whose registration ends."""
        self.frontiers[identity] = dict(frontier)
        if len(self.frontiers) > UNREGISTERED_REMEMBERED:
            del self.frontiers[next(iter(self.frontiers))]

    def take_frontier(self, identity: ReceiverId) -> dict[Origin, int]:
        """Return the frontier of a receiver that registers again, and forget it; empty: nothing is known of it."""
        return self.frontiers.pop(identity, {})

    def record_unregistration(
        self, identity: ReceiverId, incarnation: str, attach_seq: int, departures: int = 0
    ) -> None:
        """Remember that a receiver has unregistered itself.

        Args:
            incarnation: of the receiver.
            attach_seq: its attach counter: its attaches up to this one are void.
            departures: how many receivers have left for good at this proxy by now, this one included.
        """
        self._departures[identity] = departures
        self.tombstones.pop(identity, None)
        self.tombstones[identity] = ReceiverTombstone(incarnation, attach_seq)
        if len(self.tombstones) > UNREGISTERED_REMEMBERED:
            oldest = next(iter(self.tombstones))
            del self.tombstones[oldest]
            self._departures.pop(oldest, None)

    def has_left_since(self, identity: ReceiverId, incarnation: str, attach_seq: int, departures: int) -> bool:
        """Tell whether the receiver has unregistered itself after it sent this attach: by the attach counter of its
        incarnation, or, as an earlier incarnation, on a connection that is older than that.

        Args:
            incarnation: of the receiver, as the attach has it.
            attach_seq: the attach counter of the attach; 0: the client does not count.
            departures: how many receivers had left for good at this proxy when the connection began.
        """
        if self._departures.get(identity, 0) > departures:
            return True
        tombstone = self.tombstones.get(identity)
        return tombstone is not None and tombstone.incarnation == incarnation and 0 < attach_seq <= tombstone.attach_seq
