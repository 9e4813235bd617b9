"""The gaps of a session: notifications that cannot be had any more, as long as a receiver is to be told of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from proxy.session.receivers import Receiver
from waypost.checkpoint import GapRow
from waypost.identity import NOTHING, Origin, ReceiverId


class Gaps(list[GapRow]):
    """The gaps of one session, in the order in which they were added."""

    @classmethod
    def copied(cls, rows: Iterable[GapRow]) -> Gaps:
        """Return a copy of these gaps that later changes do not reach."""
        return cls(replace(gap, unconfirmed=list(gap.unconfirmed)) for gap in rows)

    def add(self, gap: GapRow) -> None:
        """Add a gap; join it with one that ends just before it and is otherwise equal, receivers included."""
        for gap_row in self:
            if gap_row.last == gap.first - 1 and replace(gap, first=gap_row.first, last=gap_row.last) == gap_row:
                self.remove(gap_row)
                gap = replace(gap, first=gap_row.first)
                break
        self.append(gap)

    def concern(self, receiver: Receiver) -> bool:
        """Tell whether there is a gap that this receiver has not confirmed."""
        return any(receiver.id in gap.unconfirmed for gap in self)

    def pending_for(self, receiver: Receiver) -> list[GapRow]:
        """Return the unconfirmed gaps that this receiver was not sent since it attached; note them as sent."""
        known = {id(gap) for gap in receiver.sent_gaps}
        unsent = [gap for gap in self if receiver.id in gap.unconfirmed and id(gap) not in known]
        receiver.sent_gaps += unsent
        return unsent

    def confirm(self, receiver: Receiver, count: int) -> None:
        """Note that the receiver has confirmed the first `count` gaps that it was sent since it attached.

        They are not sent to it again; gaps that every receiver has confirmed are forgotten.

        Args:
            count: no lower than in earlier calls, and no more gaps than were sent; the caller checks that.
        """
        newly = count - receiver.confirmed_gaps
        confirmed, receiver.sent_gaps = receiver.sent_gaps[:newly], receiver.sent_gaps[newly:]
        receiver.confirmed_gaps = count
        for gap in confirmed:
            gap.unconfirmed.remove(receiver.id)
        self._forget_announced()

    def passed(self, receiver: Receiver, reported: Mapping[Origin, int]) -> None:
        """Drop the receiver from gaps that end at or below the frontier that its client has reported.

        Gaps that concern no other receiver are forgotten.
        """
        for gap in self:
            if receiver.id in gap.unconfirmed and gap.last <= reported.get(gap.origin, NOTHING):
                gap.unconfirmed.remove(receiver.id)
        self._forget_announced()

    def forget(self, receiver: ReceiverId) -> None:
        """Drop an unregistered receiver from all gaps."""
        for gap in self:
            gap.unconfirmed[:] = [unconfirmed for unconfirmed in gap.unconfirmed if unconfirmed != receiver]
        self._forget_announced()

    def _forget_announced(self) -> None:
        self[:] = [gap for gap in self if gap.unconfirmed]
