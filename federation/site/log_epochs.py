"""The identity of a site log, and its loss: whether it is the log that was read before, as a whole. Pure (rule 27).

A log may come back shorter than what was read of it (a broker that lost its page cache), rewritten from some place on,
empty, or as another site's log. Offsets alone do not tell: a log that lost its end grows again, and notifications
appended then have offsets that others have seen already, and would drop as duplicates. So:

* A log has an *identity*, made once, and a *log epoch*. The registry has both (:class:`SiteLogRow`), so has the log
  (:class:`LogBegun`), and every position that was read is stored with them (:class:`LogMark`).
* The last record read is remembered by offset and checksum, and compared before any record behind it is read.
* A log of the same identity that is shorter, or another one from some place on, enters the next log epoch, whose
  notifications are of an origin of their own. The registry's compare-and-set makes that one decision for the site.
* A log that is empty, or of another identity or federation, is refused: a proxy may have been pointed at the wrong one.
  ``waypost sites begin-log SITE`` says that it is meant.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace

from federation.ports import SiteLogRow
from federation.site.acceptance import EndedOrigin, LogMark
from federation.site.state import SiteState
from waypost.errors import BadConfiguration
from waypost.identity import NOTHING, Origin, SiteId, log_epoch_of, origin_of, site_of
from waypost.records import LogBegun


def federation_of(secret: bytes) -> str:
    """Return the identity of the federation whose registry has this secret; it does not reveal the secret."""
    return hashlib.sha256(b"waypost federation\0" + secret).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSeen:
    """The findings of a proxy about its site's log when it starts.

    Args:
        first: the first offset that the log has.
        end: the offset that the next record will have.
        begun: the log's own record of its identity; None: none was found.
        mark: up to where this proxy, or its site's changelog, had read; its identity is empty if it never had.
        intact: the record at the mark's offset is the one that was read; None: the log has it no more.
        known: the log epochs of which this proxy, or its site's changelog, had read.
    """

    first: int
    end: int
    begun: LogBegun | None
    mark: LogMark
    intact: bool | None
    known: SiteLogRow | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """The decision about a log.

    Args:
        row: the registry's row from now on; the same as before if nothing changes.
        is_intact: the proxy may read on where it was; else it begins anew and its sessions catch up.
        why: for operators, the reason why a log epoch ended; empty: none did.
    """

    row: SiteLogRow
    is_intact: bool
    why: str = ""


def judge(site: SiteId, federation: str, row: SiteLogRow | None, seen: LogSeen, new_identity: str) -> Judgement:
    """Decide whether a proxy may continue with this log, and in which log epoch. Nothing is written.

    The caller writes the returned row to the registry by compare-and-set, if it is another one than `row`.

    Args:
        site: whose log it is.
        federation: the identity of the registry's federation.
        row: the registry's row of the site's log; None: it has none.
        seen: the findings about the log.
        new_identity: the identity of a log that has none.

    Raises:
        BadConfiguration: it is another site's or federation's log, or another log than the registry's row or this
            proxy's mark is of; or it is empty, or does not state its identity, in place of one that was read.
    """
    if row is not None and seen.known is not None:
        row = _with_read(row, seen.known)
    seen = _looked_at_again(site, row, seen)
    _check_federation(site, federation, seen)
    if row is not None and seen.mark.identity not in ("", row.identity):
        raise BadConfiguration(
            f"this proxy's folder has read log {seen.mark.identity}, and that of site {site} is {row.identity}",
            field="site",
            hint="is --site right, and --data? What a folder has is of one proxy at one site: give this one another",
        )
    if row is None:
        begun = seen.begun
        if begun is None:
            row = SiteLogRow(identity=new_identity)
        else:
            # The registry has lost its row, or was begun before there were any.
            row = SiteLogRow(identity=begun.identity, log_epoch=begun.log_epoch, ended=dict(begun.ended))
            row = _with_read(row, seen.known) if seen.known is not None else row
    _check_identity(site, row, seen)
    last_read = seen.mark.offset if seen.mark.log_epoch == row.log_epoch else NOTHING
    highest = max(row.seen, last_read)
    if highest >= seen.end:
        why = f"it ends at {seen.end}, and was read up to {highest + 1}"
        return Judgement(raised(site, row, highest, seen.end), seen.intact is True, why)
    if seen.mark.offset < seen.end and seen.intact is False:
        if seen.mark.log_epoch == row.log_epoch:
            why = f"its record at {seen.mark.offset} is another one than was read"
            return Judgement(raised(site, row, highest, seen.mark.offset), False, why)
        return Judgement(with_seen(row, origin_of(site, log_epoch=seen.mark.log_epoch), seen.mark.offset), False)
    if seen.mark.log_epoch < row.log_epoch and seen.mark.offset >= seen.end:
        return Judgement(with_seen(row, origin_of(site, log_epoch=seen.mark.log_epoch), seen.mark.offset), False)
    return Judgement(row, True)


def is_older_row(now: SiteLogRow, before: SiteLogRow) -> bool:
    """Tell whether the row `now` has an earlier log epoch of the same log than the row `before`.

    If so, the registry was restored from an older copy. Rows of different logs are never older.
    """
    return now.identity == before.identity and now.log_epoch < before.log_epoch


def _with_read(row: SiteLogRow, read: SiteLogRow) -> SiteLogRow:
    """Return the row with what was read of the same log: an ended origin only loses more, and was seen further."""
    if is_older_row(row, read):
        return read
    if row.identity != read.identity or row.log_epoch != read.log_epoch:
        return row
    ended = dict(row.ended)
    for origin, (end, seen) in read.ended.items():
        known = ended.get(origin, (end, seen))
        ended[origin] = (min(end, known[0]), max(seen, known[1]))
    return row if ended == row.ended else row.model_copy(update={"ended": ended})


def row_as_read(site: SiteId, mark: LogMark, ended: Mapping[Origin, EndedOrigin]) -> SiteLogRow:
    """Return the row of the site's log as the log itself states it, as far as it was read; its `seen` is not set.

    Args:
        site: whose log it is.
        mark: the identity of the log, and its log epoch.
        ended: origins of earlier log epochs; those of other sites are left out.
    """
    own = {
        origin: (ended_origin.end, ended_origin.seen)
        for origin, ended_origin in ended.items()
        if site_of(origin) == site
    }
    return SiteLogRow(identity=mark.identity, log_epoch=mark.log_epoch, ended=own)


def _looked_at_again(site: SiteId, row: SiteLogRow | None, seen: LogSeen) -> LogSeen:
    """Return the findings corrected by the registry: a log that has grown again may have the same record at the
    mark, or a damaged one.
    """
    is_another = row is not None and is_lost(site, row, seen.mark)
    return replace(seen, intact=False) if is_another and seen.intact is not False else seen


def is_lost(site: SiteId, row: SiteLogRow, mark: LogMark) -> bool:
    """Tell whether, by the row, the log has lost the record at the mark: what the log has at that offset now is another
    one.

    Args:
        site: whose log it is.
        row: of the site's log, in the registry.
        mark: the last record that was read.
    """
    ended = row.ended.get(origin_of(site, log_epoch=mark.log_epoch))
    return ended is not None and mark.offset > ended[0]


def first_epoch(row: SiteLogRow, seen: LogSeen) -> int:
    """Return the log epoch of the first record that the log has, by the registry's row and the log's own record of its
    identity.

    Note that the mark plays no part: where the log still has the record at the mark (`seen.intact`), the caller reads
    on from there, in the log epoch of the mark.

    Args:
        row: of the site's log, in the registry.
        seen: the findings about the log.
    """
    begun = seen.begun
    ended, present = (row.ended, row.log_epoch) if begun is None else (begun.ended, begun.log_epoch)
    is_present = row.seen >= 0 if begun is None else begun.again or seen.first == 0
    earlier = [log_epoch_of(origin) for origin, (end, _) in ended.items() if end >= seen.first]
    return present if is_present or not earlier else max(earlier)


def lost_above(state: SiteState, offset: int, log_end: int) -> int | None:
    """Return the offset from which on the log has lost what a neighbour has seen; None: nothing is lost, as far as
    known.

    A log that goes further, and has no notification at `offset`, has grown again since the loss. That is unknown until
    the log was read so far.

    Args:
        state: of the site.
        offset: of the present origin, seen by a neighbour.
        log_end: the offset that the next record will have.
    """
    if offset >= log_end:
        return log_end
    if state.position > offset > state.frontier[state.origin]:
        return state.frontier[state.origin] + 1
    return None


def raised(site: SiteId, row: SiteLogRow, seen: int, end: int) -> SiteLogRow:
    """Return the row of the next log epoch (handover rule 27); nothing is written.

    Args:
        site: whose log it is.
        row: of the present log epoch.
        seen: the highest offset of the present log epoch that was seen.
        end: the offset from which on the log has lost everything, also of earlier log epochs.
    """
    present = {origin_of(site, log_epoch=row.log_epoch): (sys.maxsize, max(seen, row.seen))}
    return SiteLogRow(identity=row.identity, log_epoch=row.log_epoch + 1, ended=_cut(row.ended | present, end))


def _cut(ended: Mapping[Origin, tuple[int, int]], end: int) -> dict[Origin, tuple[int, int]]:
    """Return the origins of a log that has lost everything from `end` on: each with the last offset that it has, and
    the highest that was seen. Of one that began behind the lost end of the one before, nothing is left: what stands
    below is of that one.
    """
    cut: dict[Origin, tuple[int, int]] = {}
    is_gone = False
    for origin in sorted(ended, key=log_epoch_of):
        last, seen = ended[origin]
        cut[origin] = (NOTHING if is_gone else min(last, end - 1), seen)
        is_gone = is_gone or last >= end - 1
    return cut


def after_loss(site: SiteId, row: SiteLogRow, seen: int, end: int, *, is_same: bool) -> SiteLogRow:
    """Return the row of a log that proxies have found shorter than it was read: that of :func:`raised`, or `row`
    itself.

    An empty log, or one that does not state the identity, enters no log epoch by itself, and its row stays as it is: it
    may be another log, and an operator says which.

    Args:
        site: whose log it is.
        row: the registry's row of the log.
        seen: the highest offset of the present log epoch that was seen.
        end: the offset from which on the log has lost everything.
        is_same: whether the log still states the row's identity.
    """
    return raised(site, row, seen, end) if is_same else row


def as_lost(site: SiteId, row: SiteLogRow, log_epoch: int, seen: int, end: int, *, is_same: bool) -> SiteLogRow:
    """Return the row with a loss that a proxy has found; the same row if nothing of it is new. Nothing is written.

    Another proxy may have recorded a smaller loss first, in a later log epoch: if the log has grown again since, it
    found a later end.

    Args:
        site: whose log it is.
        row: the registry's row of the log, of `log_epoch` or a later one.
        log_epoch: the one that the proxy has read.
        seen: the highest offset of that log epoch that was seen.
        end: the offset from which on the log has lost everything of that log epoch and of earlier ones.
        is_same: whether the log still states the row's identity.
    """
    if row.log_epoch == log_epoch:
        return after_loss(site, row, seen, end, is_same=is_same) if seen >= end else row
    found = {origin: row.ended[origin] for origin in row.ended if log_epoch_of(origin) <= log_epoch}
    present = origin_of(site, log_epoch=log_epoch)
    if present in found:
        last, top = found[present]
        found[present] = (last, max(top, seen))
    return row.model_copy(update={"ended": row.ended | _cut(found, end)})


def with_seen(row: SiteLogRow, origin: Origin, offset: int) -> SiteLogRow:
    """Return the row with the highest offset that was seen of an origin that has ended; nothing is written.

    The same row is returned if the offset is not above the known one, or the origin has not ended by the row.

    Args:
        row: of a site's log.
        origin: of that log, in an earlier log epoch.
        offset: that some proxy has seen of the origin.
    """
    end, highest = row.ended.get(origin, (NOTHING, offset))
    if highest >= offset:
        return row
    return row.model_copy(update={"ended": {**row.ended, origin: (end, offset)}})


def record_of(site: SiteId, federation: str, row: SiteLogRow, *, again: bool = False) -> LogBegun:
    """Return the log's own record of its identity and log epoch, to be appended to the log.

    Args:
        site: whose log it is.
        federation: the hex identity that follows from the federation's secret.
        row: of the site's log, in the registry.
        again: whether the log epoch began earlier, and is only named once more, because retention may remove its first
            record; then the records just below this one belong to that epoch too.
    """
    ended = dict(row.ended)
    return LogBegun(
        federation=federation, identity=row.identity, log_epoch=row.log_epoch, ended=ended, again=again, site=site
    )


def log_confirms(state: SiteState, federation: str, row: SiteLogRow) -> bool:
    """Tell whether the log, as far as it was read, states the row's identity and log epoch, and all losses of the row.

    Args:
        state: of the site, as far as its log was read.
        federation: the identity of the registry's federation.
        row: of the site's log, in the registry.
    """
    mark = state.acceptance.mark
    named = (mark.federation, mark.identity, mark.log_epoch) == (federation, row.identity, row.log_epoch)
    known = {origin: (ended.end, ended.seen) for origin, ended in state.ended.items()}
    return named and all(
        origin in known and known[origin][0] <= end and known[origin][1] >= seen
        for origin, (end, seen) in row.ended.items()
    )


def _check_federation(site: SiteId, federation: str, seen: LogSeen) -> None:
    log_federation = seen.begun.federation if seen.begun is not None else federation
    if log_federation != federation:
        raise BadConfiguration(
            f"the log of site {site} belongs to federation {log_federation}, and this registry to {federation}",
            field="log",
            hint="every proxy of a federation needs the same registry (--etcd), and the log of its own site (--kafka)",
        )
    if seen.begun is not None and seen.begun.site not in ("", site):
        raise BadConfiguration(
            f"the log of site {site} is the log of site {seen.begun.site}",
            field="log",
            hint="every site needs a log of its own: is --site right, and is no folder a link or a copy?",
        )


def _check_identity(site: SiteId, row: SiteLogRow, seen: LogSeen) -> None:
    never_read = row.seen < 0 and (row.log_epoch > 1 or not seen.mark.identity)
    if seen.begun is None:
        # Retention may have removed all that the log said of itself.
        if seen.intact or never_read or seen.first > 0:
            return
        finding = "is empty" if seen.end == 0 else f"from {seen.first} to {seen.end} does not say whose it is"
    elif seen.begun.identity == row.identity:
        return
    else:
        finding = f"is log {seen.begun.identity}, not {row.identity}"
    raise BadConfiguration(
        f"the log of site {site} is another one than was read: it {finding}",
        field="log",
        hint="are --site and --kafka with --prefix, or --data, right? If so bring that log back; or, if it is lost for "
        f"good: waypost sites begin-log {site}, with the same --etcd and --prefix, or --data",
    )
