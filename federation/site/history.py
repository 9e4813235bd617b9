"""Serving catch-up: parts of an origin's own log, whose offsets are the coordinates of its notifications. Pure."""

from __future__ import annotations

from federation.messages import CatchUp, CaughtUp
from federation.ports import Batch
from federation.site.state import SiteState
from waypost.errors import Unreachable
from waypost.identity import log_epoch_of, site_of
from waypost.keys import bytes_of
from waypost.limits import CATCH_UP_BATCH, CATCH_UP_BYTES, CATCH_UP_RECORDS
from waypost.notification import read_body
from waypost.records import Damaged, Forwarded, LogBegun, Published
from waypost.subscription import parse


class HistoryAnswer:
    """The answer to a catch-up: the next matches in (after, upto] of our site log, in order, as many as it may hold.

    While :attr:`wanted_from` is an offset, read the log from there and :meth:`add` the records; then read the record at
    :attr:`mark` and :meth:`compare` it; then :meth:`answer`.

    Records of the log behind the last one that `state` has may be of another log epoch (handover rule 27), so an answer
    goes no further. That last record is compared with the log's after all others were read: if it differs, so may all
    others, and their offsets are not of the requested origin.

    Args:
        state: our site's state, as far as this proxy has folded it.
        wanted: the request.
        max_records: the bound of the answer.
        max_bytes: the bound of its bodies.

    Raises:
        Unreachable: the origin is not ours, or nothing of the request was read yet.
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
        # Records of the log below belong to the origin before.
        self._through = max([wanted.after, *(min(begin, wanted.upto) for begin in begins)])
        self._first_kept = 0
        self._damaged: list[tuple[int, int]] = []
        self._over = False
        self._looked_at = 0
        """Records that were read for this answer."""
        self._mark = state.acceptance.mark
        self._is_same = not self._mark.is_comparable
        """The last record that we have read is there still, as far as it can be compared."""
        self._last = min(wanted.upto, self._mark.offset if self._end is None else self._end)
        if self._end is None and wanted.after >= self._mark.offset and wanted.upto > wanted.after:
            raise Unreachable(f"the log of site {self._site} was read up to {self._mark.offset} only; ask again")

    @property
    def wanted_from(self) -> int | None:
        """The offset from which to read the log on, for :meth:`add`; None: the answer is complete, or full, or
        CATCH_UP_RECORDS were read for it: who asked asks on.
        """
        return (
            None
            if self._over or self._full() or self._looked_at >= CATCH_UP_RECORDS or self._through >= self._last
            else self._through + 1
        )

    @property
    def mark(self) -> int | None:
        """The offset of the last record that was folded, to be read for :meth:`compare`; None: it was compared, or
        cannot be.
        """
        return None if self._is_same else self._mark.offset

    def add(self, batch: Batch) -> None:
        """Add the records that the log returned from :attr:`wanted_from` on, in order; empty: the log has no more. A
        record at :attr:`mark` is compared, as by :meth:`compare`.

        Raises:
            Unreachable: the log is another one than was read, or another log epoch has begun that was not read: the
                answer is not to be used.
        """
        self._over = not batch
        self._looked_at += len(batch)
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
        """Compare the log's record at :attr:`mark` with the one that was folded, after all others were read; if they
        are the same, :attr:`mark` is None from now on.

        Args:
            batch: what the log returned from :attr:`mark` on; only the first record counts, and empty means that there
                is none.

        Raises:
            Unreachable: it is another record, or none: the answer is not to be used.
        """
        if not batch or not self._mark.is_confirmed_by(*batch[0]):
            raise Unreachable(f"the log of site {self._site} is another one than was read, or shorter")
        self._is_same = True

    def removed(self, first: int) -> None:
        """Handle that a read for :meth:`compare` found that the log begins at `first`, above :attr:`mark`: the record
        cannot be compared, and :attr:`mark` is None from now on.

        Raises:
            Unreachable: the log was not folded up to there: the answer is not to be used.
        """
        if first > self._mark.offset + 1:
            raise Unreachable(f"the log of site {self._site} begins at {first}, and was read up to {self._mark.offset}")
        self._is_same = True

    def _pass_over(self, offset: int) -> None:
        """Report an unreadable record as damaged: it may have been wanted."""
        if self._damaged and self._damaged[-1][1] == offset - 1:
            self._damaged[-1] = (self._damaged[-1][0], offset)
        else:
            self._damaged.append((offset, offset))

    def truncated(self, first: int) -> None:
        """Handle that a read for :meth:`add` found that the log begins at `first`, above :attr:`wanted_from`: the
        answer says so (`first_kept`), and :attr:`wanted_from` goes on from there.
        """
        self._first_kept = first
        self._through = min(first - 1, self._wanted.upto)

    def answer(self) -> CaughtUp:
        """Return the message for the requester; call it once :attr:`wanted_from` and :attr:`mark` are None."""
        wanted, through, lost_above = self._wanted, self._through, None
        if self._end is not None and through >= min(self._end, wanted.upto) and wanted.upto > self._end:
            # Records beyond the end belong to no origin any more.
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
            self._size += len(record.body) + bytes_of(record.protection.keys)

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
