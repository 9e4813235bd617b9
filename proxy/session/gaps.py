"""What of a session could not be had any more, as long as a receiver is to be told of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from proxy.session.receivers import Receiver
from waypost.checkpoint import GapRow
from waypost.identity import NOTHING, Origin, ReceiverId


class Gaps(list[GapRow]):
    """All of one session."""

    @classmethod
    def copied(cls, rows: Iterable[GapRow]) -> Gaps:
        """Return them, as a copy that later changes do not reach."""
        return cls(replace(gap, unconfirmed=list(gap.unconfirmed)) for gap in rows)

    def add(self, gap: GapRow) -> None:
        """Add a gap; where one of the same receivers ends just before it, they are one."""
        for gap_row in self:
            if gap_row.last == gap.first - 1 and replace(gap, first=gap_row.first, last=gap_row.last) == gap_row:
                self.remove(gap_row)
                gap = replace(gap, first=gap_row.first)
                break
        self.append(gap)

    def concern(self, receiver: Receiver) -> bool:
        """Tell whether this receiver is still to hear of one."""
        return any(receiver.id in gap.unconfirmed for gap in self)

    def pending_for(self, receiver: Receiver) -> list[GapRow]:
        """Return those of which this receiver is to be told now."""
        known = {id(gap) for gap in receiver.sent_gaps}
        unsent = [gap for gap in self if receiver.id in gap.unconfirmed and id(gap) not in known]
        receiver.sent_gaps += unsent
        return unsent

    def confirm(self, receiver: Receiver, count: int) -> None:
        """Note that the receiver has confirmed `count` gaps since it attached: they are not sent again."""
        newly = count - receiver.confirmed_gaps
        confirmed, receiver.sent_gaps = receiver.sent_gaps[:newly], receiver.sent_gaps[newly:]
        receiver.confirmed_gaps = count
        for gap in confirmed:
            gap.unconfirmed.remove(receiver.id)
        self._forget_announced()

    def passed(self, receiver: Receiver, reported: Mapping[Origin, int]) -> None:
        """The receiver's application has all up to here, whatever we know of it: no gap for it ends there."""
        for gap in self:
            if receiver.id in gap.unconfirmed and gap.last <= reported.get(gap.origin, NOTHING):
                gap.unconfirmed.remove(receiver.id)
        self._forget_announced()

    def forget(self, receiver: ReceiverId) -> None:
        """The receiver has no place any more."""
        for gap in self:
            gap.unconfirmed[:] = [unconfirmed for unconfirmed in gap.unconfirmed if unconfirmed != receiver]
        self._forget_announced()

    def _forget_announced(self) -> None:
        self[:] = [gap for gap in self if gap.unconfirmed]
