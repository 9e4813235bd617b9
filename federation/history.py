"""Serving catch-up: parts of an origin's own log, whose offsets are the coordinates of its notifications. Pure."""

from __future__ import annotations

from federation.messages import CatchUp, CaughtUp
from federation.ports import Batch
from federation.site_state import SiteState
from waypost.errors import Unreachable
from waypost.identity import NOTHING, log_epoch_of, site_of
from waypost.limits import CATCH_UP_BATCH, CATCH_UP_BYTES
from waypost.notification import read_body
from waypost.records import Damaged, Forwarded, LogBegun, Published, checksum_of
from waypost.subscription import parse


class HistoryAnswer:
    """The next matches in (after, upto] of our site log, in order, as many as an answer may hold.

    Args:
        state: what our log means, as far as we have read it.

    As long as :attr:`wanted_from` names an offset, read the log from there and :meth:`take` what it has; then
    :meth:`compare` what it has at :attr:`mark`; then :meth:`answer`.

    What stands in the log behind the last record that `state` has may be of another log epoch (handover rule 27), so an
    answer goes no further. And that record is compared with what the log has there, after all else was read: where it
    is another one, so may all others be, and their offsets are not of the origin that is asked for.

    Raises:
        Unreachable: that origin is not ours, or we have read nothing of what is wanted.
    """

    def __init__(
        self, state: SiteState, wanted: CatchUp, *, max_records: int = CATCH_UP_BATCH, max_bytes: int = CATCH_UP_BYTES
    ) -> None:
        ended = state.ended.get(wanted.origin)
        if site_of(wanted.origin) != state.site or (wanted.origin != state.origin and ended is None):
            raise Unreachable(f"the origin of this site is {state.origin}, not {wanted.origin}")
        self._site = state.site
        self._log_epoch = log_epoch_of(state.origin)
        self._end = None if ended is None else ended.end
        """Where the origin ended; None: it is the one of the present log epoch."""
        self._wanted = wanted
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._expressions = [parse(expression) for expression in wanted.expressions]
        self._found: list[Forwarded] = []
        self._size = 0
        begins = [
            ended_origin.begins for ended_origin in state.ended.values() if ended_origin.following == wanted.origin
        ]
        # What the log has below belongs to the origin before.
        self._through = max([wanted.after, *(min(begin, wanted.upto) for begin in begins)])
        self._first_kept = 0
        self._damaged: list[tuple[int, int]] = []
        self._over = False
        self._mark = state.acceptance.mark
        self._is_same = self._mark.offset < 0 or not self._mark.checksum
        """The last record that we have read is there still, as far as it can be compared."""
        self._last = min(wanted.upto, self._mark.offset if self._end is None else self._end)
        if self._end is None and wanted.after >= self._mark.offset and wanted.upto > wanted.after:
            raise Unreachable(f"the log of site {self._site} was read up to {self._mark.offset} only; ask again")

    @property
    def wanted_from(self) -> int | None:
        """Where to read on; None: that is all."""
        return None if self._over or self._full() or self._through >= self._last else self._through + 1

    @property
    def mark(self) -> int | None:
        """Where the last record stands that we have read of the log; None: it was compared, or cannot be."""
        return None if self._is_same else self._mark.offset

    def add(self, batch: Batch) -> None:
        """Take what the log has from :attr:`wanted_from` on; nothing: it has no more.

        Raises Unreachable: another log epoch has begun, and we have not read of it: what is below may be other records.
        """
        self._over = not batch
        for offset, record in batch:
            if offset == self.mark:
                self.compare([(offset, record)])
            if self._full():
                return
            if offset > self._last:
                self._through = max(self._through, self._last)
                return
            self._through = offset
            if isinstance(record, LogBegun) and record.log_epoch > self._log_epoch:
                raise Unreachable(
                    f"the log of site {self._site} is in log epoch {record.log_epoch}, which was not read"
                )
            if isinstance(record, Published):
                self._consider(offset, record)
            elif isinstance(record, Damaged):
                self._pass_over(offset)

    def compare(self, batch: Batch) -> None:
        """Look at what the log has at :attr:`mark`, after all else was read. Raises Unreachable: another record."""
        offset, record = batch[0] if batch else (NOTHING, None)
        # Damage at rest is no other log.
        is_known = isinstance(record, Damaged) or (record is not None and checksum_of(record) == self._mark.checksum)
        if offset != self._mark.offset or not is_known:
            raise Unreachable(f"the log of site {self._site} is another one than was read, or shorter")
        self._is_same = True

    def removed(self, first: int) -> None:
        """The log begins above what was to be compared. Raises Unreachable: we have read too little."""
        if first > self._mark.offset + 1:
            raise Unreachable(f"the log of site {self._site} begins at {first}, and was read up to {self._mark.offset}")
        self._is_same = True

    def _pass_over(self, offset: int) -> None:
        """What cannot be read may have been wanted."""
        if self._damaged and self._damaged[-1][1] == offset - 1:
            self._damaged[-1] = (self._damaged[-1][0], offset)
        else:
            self._damaged.append((offset, offset))

    def truncated(self, first: int) -> None:
        """The log begins at `first` only."""
        self._first_kept = first
        self._through = min(first - 1, self._wanted.upto)

    def answer(self) -> CaughtUp:
        wanted, through, lost_above = self._wanted, self._through, None
        if self._end is not None and through >= min(self._end, wanted.upto) and wanted.upto > self._end:
            # What lay beyond the end is nobody's any more.
            through, lost_above = wanted.upto, max(self._end, wanted.after)
        return CaughtUp(
            request=wanted.request,
            origin=wanted.origin,
            records=self._found,
            through=through,
            first_kept=self._first_kept,
            lost_above=lost_above,
            damaged=self._damaged,
        )

    def _full(self) -> bool:
        return len(self._found) + len(self._damaged) >= self._max_records or self._size >= self._max_bytes

    def _consider(self, offset: int, record: Published) -> None:
        attributes = read_body(record.body)
        if any(expression.matches(attributes) for expression in self._expressions):
            self._found.append(self._as_forwarded(offset, record))
            self._size += len(record.body)

    def _as_forwarded(self, offset: int, record: Published) -> Forwarded:
        return Forwarded(
            link=self._site,
            link_epoch=0,
            origin=self._wanted.origin,
            offset=offset,
            path=(self._site,),
            producer=record.producer,
            incarnation=record.incarnation,
            sequence=record.sequence,
            at_ms=record.at_ms,
            body=record.body,
            protection=record.protection,
            check=record.check,
        )
