"""Whether the site log is still the one that was read: what is compared, and in which order (handover rule 27). Pure.

A *procedure* is a generator: it yields one question at a time, is sent the answer, and ends when it is done. Whoever
runs it performs the questions, and throws the error of one that failed into it. So a sequence that spans log, registry
and other proxies stands here in the order in which it happens; node/site_log/guarded_log.py runs it on the real parts,
and the simulator on its own, where every answer may be late, lost, or of a part that has changed meanwhile.

The next log epoch is decided in federation/site/log_epochs.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

from federation.messages import NO_ORIGIN, SeenRequest, SeenResponse
from federation.ports import Batch, SiteLogRow
from federation.site.log_epochs import (
    after_loss,
    as_lost,
    is_older_row,
    log_confirms,
    lost_above,
    record_of,
    row_as_read,
    with_seen,
)
from federation.site.state import SiteState
from waypost.errors import HistoryTruncated, LogReplaced, Unreachable
from waypost.identity import NOTHING, Origin, SiteId, log_epoch_of, origin_of, site_of
from waypost.limits import IDENTITY_RECORDS, LOG_BATCH, LOG_END_SURE_S
from waypost.records import LogBegun

AGAIN_MS = 200
"""After so long a comparison that failed is made again."""
SURE_MS = int(1000 * LOG_END_SURE_S)

# ------------------------------------------------------------ questions


@dataclass(frozen=True, slots=True)
class FindFirst:
    """Question: which offset has the log's first record? The reply is an int."""


@dataclass(frozen=True, slots=True)
class FindEnd:
    """Question: which offset comes after the log's last record? The reply is an int."""


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """Question: which records does the log have from an offset on? The reply is a Batch; it is the error
    HistoryTruncated where the log begins above the offset.

    Args:
        offset: of the first record to read.
        limit: how many records to read at most.
    """

    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class FindSeen:
    """Question: up to where does this process know the log, by reading it or by answers to its appends? The reply is an
    offset, int: the known ones are below it.
    """


@dataclass(frozen=True, slots=True)
class AppendRecord:
    """Question: append a record. The reply is its offset in a list, list[int]; the log has it.

    Args:
        record: names the log epoch that begins with it.
    """

    record: LogBegun


@dataclass(frozen=True, slots=True)
class ReadLogRow:
    """Question: what is the registry's row of the log? The reply is a SiteLogRow, or None: there is none."""


@dataclass(frozen=True, slots=True)
class ClaimLogRow:
    """Question: compare and set the registry's row of the log. The reply is a bool: whether `expected` was in force,
    and `new` is now.

    Args:
        expected: the row that must be in force; None: there must be none.
        new: the row to put in its place.
    """

    expected: SiteLogRow | None
    new: SiteLogRow


@dataclass(frozen=True, slots=True)
class AskWitnesses:
    """Question: how far have the other live proxies seen an origin? The reply is a Witnessed.

    Args:
        origin: the origin.
        before: the origin of the log epoch before; NO_ORIGIN: it is not asked about.
    """

    origin: Origin
    before: Origin = NO_ORIGIN


@dataclass(frozen=True, slots=True)
class Witnessed:
    """The reply to AskWitnesses. A proxy that does not answer counts as none.

    Args:
        here: the highest offset that another live proxy of the log's site has seen, inclusive; NOTHING (-1): none.
        elsewhere: the same of the live proxies of other sites.
        is_confirmed: whether a proxy of the log's site has confirmed the log, in the log epoch of the origin
            (:meth:`LogGuard.confirm`).
        before: the highest offset that any of them has seen of the origin of the log epoch before, inclusive; NOTHING
            (-1): none.
    """

    here: int = NOTHING
    elsewhere: int = NOTHING
    is_confirmed: bool = False
    before: int = NOTHING

    @property
    def highest(self) -> int:
        """The highest offset that any of them has seen, inclusive; NOTHING (-1): none."""
        return max(self.here, self.elsewhere)


@dataclass(frozen=True, slots=True)
class Wait:
    """Question: let time pass. The reply is None.

    Args:
        for_ms: how long, in milliseconds.
    """

    for_ms: int


Question = FindFirst | FindEnd | ReadRecords | FindSeen | AppendRecord | ReadLogRow | ClaimLogRow | AskWitnesses | Wait
"""What a procedure has performed."""
Procedure: TypeAlias = Generator[Question, Any, None]
_Questions: TypeAlias = Generator[Question, Any, bool]


def find_identity(first: int, end: int) -> Generator[ReadRecords, Any, LogBegun | None]:
    """Return the record with the log's identity that stands near its beginning; None: there is none.

    A procedure (:func:`node.machines.procedure.resume`): it yields ReadRecords, is sent a Batch each time, and looks at
    the first IDENTITY_RECORDS offsets.

    Args:
        first: the first offset that the log has.
        end: the offset behind the log's last record.

    Raises:
        HistoryTruncated: retention has meanwhile removed records above `first`.
    """
    offset = first
    while offset < min(end, first + IDENTITY_RECORDS):
        batch: Batch = yield ReadRecords(offset, LOG_BATCH)
        for _, record in batch:
            if isinstance(record, LogBegun):
                return record
        if not batch:
            return None
        offset = batch[-1][0] + 1
    return None


class LogGuard:
    """One proxy's guard of the identity and the end of its site's log.

    Procedures may be interleaved at their questions. Each raises what a question fails with, and LogReplaced where the
    log is not the one that was read: then the proxy begins anew.

    Args:
        state: the state of the site, folded from the log.
        federation: the identity of the federation.
        row: the registry's row of the log when the proxy began.
    """

    def __init__(self, state: SiteState, federation: str, row: SiteLogRow) -> None:
        self.site: SiteId = state.site
        self.row = row
        """The registry's row, as this proxy saw it last."""
        self._state = state
        self._federation = federation
        self._begun_in = row.log_epoch
        self._is_identified = False
        """The log states of itself what the registry states."""
        self._began_at = sys.maxsize
        """Where the log ended when this process began, before it appended anything."""
        self.is_confirmed = False
        """Whether the log was compared with what the other proxies had seen of it when this process began
        (:meth:`confirm`).
        """
        self._compared_end: int | None = None
        """The lowest end of the log that was found in a comparison."""
        self._beyond: dict[Origin, int] = {}
        """Origin -> the offset that a neighbour has seen, beyond what we have; not checked yet."""

    @property
    def may_append(self) -> bool:
        """Whether this process may append to the log: it has confirmed the log (:meth:`confirm`), and has read it up to
        where the log states the log epoch that the registry states.

        The records before that are of an origin that may have ended.
        """
        return self.is_confirmed and self.is_read

    @property
    def is_read(self) -> bool:
        """Whether the log was read up to where it states the log epoch that the registry states."""
        return self._is_identified and log_epoch_of(self._state.origin) >= self._begun_in

    def prepare_to_read(self) -> None:
        """Forget which ends of the log comparisons have found. To be called before the end is asked for up to which the
        log is to be read (:meth:`has_read`).
        """
        self._compared_end = None

    def has_read(self, end: int) -> bool:
        """Tell whether the log was read up to the offset `end`, or up to a lower end that :meth:`compare` has found
        since :meth:`prepare_to_read`.

        `end` is where the log ended when it was looked at. A log that has lost its end since, unread, does not come
        back to that offset while nobody may append.
        """
        reached = self._state.position
        return reached >= end or (self._compared_end is not None and reached >= self._compared_end)

    @property
    def position(self) -> int:
        """The position up to which this process has read the log: the offset of the record that it reads next."""
        return self._state.position

    @property
    def log_epoch(self) -> int:
        """The log epoch of everything that this proxy appends: the registry's when it began, or a later one that was
        read.
        """
        return max(self._begun_in, log_epoch_of(self._state.origin))

    @property
    def _origin(self) -> Origin:
        """The origin in which this proxy appends."""
        return origin_of(self.site, log_epoch=self.log_epoch)

    @property
    def _origin_before(self) -> Origin:
        """The origin of the log epoch before; NO_ORIGIN: this is the first one."""
        own = [origin for origin in self._state.ended if site_of(origin) == self.site]
        return max(own, key=log_epoch_of, default=NO_ORIGIN)

    def seen(self, origin: Origin, seen_below: int) -> int:
        """Return the highest offset of an origin that this proxy has seen, inclusive; NOTHING (-1): none.

        Args:
            origin: one of this site, or of another one.
            seen_below: the offset below which this process has read the site log or had appends answered, by the answer
                to FindSeen. It counts only for the origin in which this proxy appends.
        """
        known = self._state.frontier.get(origin, NOTHING)
        return max(known, seen_below - 1, self._state.position - 1) if origin == self._origin else known

    def answer(self, request: SeenRequest, seen_below: int) -> SeenResponse | None:
        """Return what this proxy has seen of the origin that another one asks for; None: this one does not know yet,
        because it has not read its own log up to where that ended when it began. It will be asked again.

        Args:
            seen_below: as of :meth:`seen`.
        """
        if not self._is_identified:
            return None
        origin = request.origin
        is_confirmed = self.is_confirmed and origin == self._origin
        before = self.seen(request.before, seen_below)
        return SeenResponse(request.request, self.seen(origin, seen_below), is_confirmed, before)

    def seen_beyond(self, origin: Origin, offset: int) -> None:
        """Note that a neighbour has seen an origin of this site up to `offset`, inclusive; the next :meth:`check`
        compares.

        The neighbour must be proven to be a proxy of the federation.
        """
        self._beyond[origin] = max(offset, self._beyond.get(origin, offset))

    # ------------------------------------------------------------ procedures

    def identify(self) -> Procedure:
        """Check that the log has all that was reported of it, and append the log's identity, as the registry has it,
        unless the log states that already (handover rule 27).

        A procedure (:func:`node.machines.procedure.resume`), to be run once, when the log was read up to where it
        ended. Then :attr:`is_read` can become true.

        Raises:
            LogReplaced: the log has lost its end since it was read, by this proxy or another one, or it has entered a
                later log epoch.
            WaypostError: as a question fails.
        """
        known = row_as_read(self.site, self._state.acceptance.mark, self._state.ended)
        while is_older_row(self.row, known) and not (yield from self._claim(known)):
            pass
        self._began_at = min(self._began_at, (yield from self._check_reported()))
        again = log_confirms(self._state, self._federation, self.row)
        if not again or (yield FindFirst()) > 0:
            yield from self._append(record_of(self._state.site, self._federation, self.row, again=again))
        self._is_identified = True

    def confirm(self) -> Procedure:
        """Compare the log, once, with what the other proxies have seen of it, before this process serves anything
        (handover rule 27). An answer about another log epoch than the one that the log is in by then counts for
        nothing.

        A procedure (:func:`node.machines.procedure.resume`), to be run after :meth:`identify`, when this process can
        reach the other proxies. While it runs nothing is appended, and no link leads: all proxies of the site may have
        died, together with the broker, and what the log has lost then is known to proxies of other sites alone. A
        question that fails with Unreachable is asked again. Once :attr:`is_confirmed` is true, nothing is asked.

        Raises:
            LogReplaced: the log has lost its end, or has entered a later log epoch.
        """
        while not self.is_confirmed:
            yield from self._until_answered(self._confirm)

    def check(self, end: int, *, read_below: int, reports: bool) -> Procedure:
        """Check that the log and its row in the registry are those that were read (handover rule 27).

        A procedure (:func:`node.machines.procedure.resume`), to be run again and again. It compares the log's end, the
        row, and what :meth:`seen_beyond` has noted.

        Args:
            end: the offset behind the log's last record, as just looked up.
            read_below: the position up to which this process had read the log before that: `end` says nothing of what
                it has read since.
            reports: whether this proxy is the one of its site that reports to the registry how far the log was read.

        Raises:
            LogReplaced: the log has lost something that was seen, or has entered a later log epoch.
            WaypostError: as a question fails.
        """
        yield from self._check_end(end, read_below)
        yield from self._refresh()
        self._check_epoch()
        yield from self._check_remote_ends()
        if reports:
            yield from self._report(self.log_epoch, self._state.position - 1)

    def compare(self) -> Procedure:
        """Compare the log, after an interruption, with all that any proxy has seen of it (handover rule 27).

        A procedure (:func:`node.machines.procedure.resume`), which is begun anew after each question that fails with
        Unreachable, until the comparison is done. All proxies of the site tell the registry what they have seen. Append
        nothing before the end of this procedure: a proxy that has seen less than others would append at offsets that
        these take for duplicates.

        Raises:
            LogReplaced: the log has lost its end, or has entered a later log epoch.
        """
        yield from self._until_answered(self._compare)

    def enter_next_epoch(self, end: int | None = None, log_epoch: int | None = None) -> Procedure:
        """Have the registry enter the next log epoch, and record how far the lost one was read (handover rule 27).

        A procedure (:func:`node.machines.procedure.resume`), to be run after LogReplaced, while this proxy still knows
        how much it had read. It goes on until the registry's row states both, whichever proxy wrote that.

        Args:
            end: the offset from which on the log was found to be another one (`end` of LogReplaced); None: the log's
                end as it is now.
            log_epoch: the one in which it was found; None: the one that it is in now. The log may be read on meanwhile.

        Raises:
            WaypostError: as a question fails.
        """
        seen_below: int = yield FindSeen()
        log_epoch = self.log_epoch if log_epoch is None else log_epoch
        highest = self.seen(origin_of(self.site, log_epoch=log_epoch), seen_below)
        found: int = yield FindEnd()
        end = found if end is None else min(end, found)
        is_same = yield from self._is_same_log(found)
        # The row may be another one than we know: others report how far they have read, and may have noticed too.
        while (new := as_lost(self.site, self.row, log_epoch, highest, end, is_same=is_same)) != self.row:
            if (yield from self._claim(new)):
                return

    def _check_remote_ends(self) -> Procedure:
        """Check what :meth:`seen_beyond` has noted."""
        while self._beyond:
            origin, offset = next(iter(self._beyond.items()))
            # The next log epoch may have begun, and not have been read yet: then it is of an origin that has ended.
            if origin == self._origin:
                is_done = yield from self._check_present(offset)
            else:
                is_done = yield from self._check_ended(origin, offset)
            if is_done and self._beyond.get(origin) == offset:
                del self._beyond[origin]

    # ------------------------------------------------------------ steps

    def _until_answered(self, procedure: Callable[[], Procedure]) -> Procedure:
        """Begin a procedure anew after each question that fails with Unreachable. Raises LogReplaced."""
        while True:
            try:
                yield from procedure()
                return
            except LogReplaced:
                raise
            except Unreachable:
                yield Wait(AGAIN_MS)

    def _confirm(self) -> Procedure:
        """What is lost twice is sure: a proxy of the site may confirm the log, and append, between two answers."""
        witnessed, lost = yield from self._find_loss()
        if lost is not None:
            yield Wait(SURE_MS)
            witnessed, lost = yield from self._find_loss()
        if lost is None:
            # It ended by what this site knew. Another site may have seen more of it, and whoever lacks that is told.
            before = self._origin_before
            if with_seen(self.row, before, witnessed.before) != self.row:
                self.seen_beyond(before, witnessed.before)
                yield from self._check_remote_ends()
            self.is_confirmed = True
            return
        log_epoch, seen, end = lost
        if (yield from self._claim_loss(log_epoch, seen, end)):
            raise LogReplaced(f"the log ended at {end}, and other proxies have read it up to {seen + 1}", end=end)

    def _find_loss(self) -> Generator[Question, Any, tuple[Witnessed, tuple[int, int, int] | None]]:
        """Find what others have seen of the log, and of that what it has not, or not as they have seen it: the log
        epoch, the highest offset of it that they have seen, and from which one on the log has lost it; None: nothing is
        lost.
        """
        while True:
            log_epoch = self.log_epoch
            witnessed: Witnessed = yield AskWitnesses(self._origin, self._origin_before)
            yield from self._refresh()
            self._check_epoch()
            end: int = yield FindEnd()
            if self.log_epoch == log_epoch:
                break
        began_at = min(end, self._began_at)
        if witnessed.here < end and witnessed.elsewhere < began_at:
            return witnessed, None
        is_confirmed = witnessed.is_confirmed or (yield from self._has_grown(end))
        lost_from = end if is_confirmed else began_at
        is_lost = witnessed.here >= end or witnessed.elsewhere >= lost_from
        return witnessed, (log_epoch, witnessed.highest, lost_from) if is_lost else None

    def _has_grown(self, end: int) -> _Questions:
        """Tell whether a proxy that has confirmed the log has appended to it since this one began: the others append
        nothing but the identity of the log.
        """
        offset = self._began_at
        while offset < end:
            try:
                batch: Batch = yield ReadRecords(offset, LOG_BATCH)
            except HistoryTruncated:
                # So much has come since that retention has removed the first of it.
                return True
            if any(not isinstance(record, LogBegun) for _, record in batch):
                return True
            if not batch:
                break
            offset = batch[-1][0] + 1
        return False

    def _compare(self) -> Procedure:
        seen_below: int = yield FindSeen()
        origin, log_epoch = self._origin, self.log_epoch
        yield from self._report(log_epoch, self.seen(origin, seen_below))
        # The others may notice a little later, and the server is to be there again.
        yield FindEnd()
        yield Wait(SURE_MS)
        witnessed: Witnessed = yield AskWitnesses(origin)
        while self.log_epoch == log_epoch:
            yield from self._refresh()
            self._check_epoch()
            highest = max(witnessed.highest, self.row.seen)
            end: int = yield FindEnd()
            if highest < end:
                self._compared_end = end if self._compared_end is None else min(end, self._compared_end)
                return
            if (yield from self._claim_loss(log_epoch, highest, end)):
                raise LogReplaced(f"the log ends at {end}, and was read up to {highest + 1}")
        # What was asked was of an earlier log epoch.
        yield from self._compare()

    def _check_end(self, end: int, read_below: int) -> Procedure:
        """Check that the log still goes as far as it was read; what is so twice is sure.

        An end is compared with what was read before it was asked for: while the answer is under way, the log grows, and
        is read.
        """
        if end < read_below:
            yield Wait(SURE_MS)
            read_below = self._state.position
            again: int = yield FindEnd()
            if again < read_below:
                raise LogReplaced(f"the log ends at {again}, and was read up to {read_below}", end=again)

    def _check_reported(self) -> Generator[Question, Any, int]:
        """Check that the log goes as far as the registry has it from any proxy; what is not so twice is sure. The log
        may have lost its end since this proxy looked at it first, before it read any of that.

        Return where the log ends.
        """
        while True:
            yield from self._refresh()
            self._check_epoch()
            log_epoch, seen = self.row.log_epoch, self.row.seen
            end: int = yield FindEnd()
            if seen >= end:
                yield Wait(SURE_MS)
                end = yield FindEnd()
            if seen < end:
                return end
            if (yield from self._claim_loss(log_epoch, seen, end)):
                raise LogReplaced(f"the log ends at {end}, and was read up to {seen + 1}", end=end)

    def _check_ended(self, origin: Origin, offset: int) -> _Questions:
        """Return whether the registry has it now; False: somebody changed the row meanwhile."""
        new = with_seen(self.row, origin, offset)
        if new == self.row and log_confirms(self._state, self._federation, self.row):
            return True
        if new != self.row and not (yield from self._claim(new)):
            return False
        yield from self._append(record_of(self._state.site, self._federation, new))
        return True

    def _append(self, record: LogBegun) -> Procedure:
        """Append a record.

        Raises:
            LogReplaced: its offset is one that this proxy, or one that reported it, has read: the log has lost its end.
                The record is in the log, which then may go as far as it was read: nobody else would see the loss.
        """
        read_below = max(self._state.position, self.row.seen + 1 if self.row.log_epoch == self.log_epoch else 0)
        (offset,) = yield AppendRecord(record)
        if offset < read_below:
            raise LogReplaced(f"the log appends at {offset}, and was read up to {read_below}", end=offset)

    def _check_present(self, offset: int) -> _Questions:
        """Return True: the log has it; False: somebody changed the row meanwhile."""
        log_epoch = self.log_epoch
        while lost_above(self._state, offset, (yield FindEnd())) is not None or self._state.position <= offset:
            # Sure is what is so twice, and after all of it was read.
            yield Wait(SURE_MS)
            end = lost_above(self._state, offset, (yield FindEnd()))
            if end is not None:
                break
        else:
            return True
        if not (yield from self._claim_loss(log_epoch, offset, end)):
            self._check_epoch()
            return False
        raise LogReplaced(f"the log ends at {end}, and a neighbour has seen it up to {offset}")

    def _claim_loss(self, log_epoch: int, seen: int, end: int) -> _Questions:
        """Claim the row of the log without all from `end` on, which was seen up to `seen` in this log epoch. Return as
        :meth:`_claim`; False, too, where the row has entered another log epoch, as another proxy has claimed, or
        another procedure of this one.

        Raises LogReplaced: it is one that this proxy has not read of.
        """
        is_same = yield from self._is_same_log(end)
        self._check_epoch()
        if self.row.log_epoch != log_epoch:
            return False
        return (yield from self._claim(after_loss(self.site, self.row, seen, end, is_same=is_same)))

    def _is_same_log(self, end: int) -> _Questions:
        """Tell whether the log is the one that was read, or its rest; else it was made anew, and may have our own
        appends by now.
        """
        first: int = yield FindFirst()
        if first > 0:
            return True
        try:
            begun = yield from find_identity(first, end)
        except HistoryTruncated:
            return True
        return begun is not None and begun.identity == self.row.identity

    def _report(self, log_epoch: int, seen: int) -> Procedure:
        """Report to the registry that the log was read up to `seen`, in this log epoch; nothing once that has ended."""
        while self._is_identified and log_epoch == self.row.log_epoch and seen > self.row.seen:
            if (yield from self._claim(self.row.model_copy(update={"seen": seen}))):
                return

    def _claim(self, new: SiteLogRow) -> _Questions:
        """Return whether the row is `new` now; else read it again."""
        if (yield ClaimLogRow(self.row, new)):
            self.row = new
            return True
        yield from self._refresh()
        return False

    def _refresh(self) -> Procedure:
        row: SiteLogRow | None = yield ReadLogRow()
        if row is None or is_older_row(row, self.row):
            # The registry has lost it, or was restored from an older copy; nobody knows better than we do.
            yield ClaimLogRow(row, self.row)
            row = yield ReadLogRow()
        self.row = row or self.row

    def _check_epoch(self) -> None:
        """Raises LogReplaced: others know of a later log epoch than we have read of, or begun in."""
        if self.row.log_epoch > self.log_epoch:
            raise LogReplaced(f"the log has entered log epoch {self.row.log_epoch} meanwhile")
