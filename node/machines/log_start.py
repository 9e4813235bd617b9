"""Where a proxy begins to read its site log, and in which log epoch: what is read, and in which order. Pure.

A generator of questions, as in node/machines/log_guard.py: node/startup/log_start.py performs them on the real parts,
and the simulator on its own. Whether a log has lost its end is judged in federation/site/log_epochs.py.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from federation.ports import Batch, SiteLogRow, SiteSnapshot
from federation.site.acceptance import Acceptance, LogMark
from federation.site.log_epochs import LogSeen, federation_of, first_epoch, is_lost, judge, row_as_read
from federation.site.state import Snapshot, read_snapshot
from node.machines.log_guard import ClaimLogRow, FindEnd, FindFirst, ReadLogRow, ReadRecords, Wait, find_identity
from proxy.core.store_port import Restored
from waypost.errors import BadConfiguration, BadRecord, HistoryTruncated
from waypost.identity import SiteId
from waypost.records import Damaged, LogBegun

SECRET_BACK_MS = 5_000
"""Time for a live proxy to give its secret back to a registry that has lost everything, in ms."""
SECRET_POLL_MS = 200
IDENTITY_WAIT_MS = 15_000
"""Time that a proxy waits at an empty log for the identity that another one is about to write there, in ms. If that one
has another log by mistake, it says within this time how far it has read that, and this proxy is refused; if that one
has ended, this one writes the identity."""
IDENTITY_POLL_MS = 100

# ------------------------------------------------------------ questions


@dataclass(frozen=True, slots=True)
class FindTime:
    """Question: what time is it? The reply is an int, in milliseconds of a clock that never steps back."""


@dataclass(frozen=True, slots=True)
class FindSnapshot:
    """Question: what is the last state of the site in its changelog? The reply is a SiteSnapshot, or None: there is
    none.
    """


@dataclass(frozen=True, slots=True)
class ReadSecret:
    """Question: what is the federation's secret in the registry? The reply is bytes, or None: there is none, and none
    was to be made.

    Args:
        make: make a secret if there is none.
    """

    make: bool


@dataclass(frozen=True, slots=True)
class Report:
    """Question: tell operators what was found. The reply is None.

    Args:
        message: one line.
        details: by name, what the line of the log has beside it.
    """

    message: str
    details: dict[str, Any]


StartQuestion = (
    FindTime | FindFirst | FindEnd | ReadRecords | FindSnapshot | ReadLogRow | ClaimLogRow | ReadSecret | Report | Wait
)
"""What is to be performed; a part that does not answer is asked again until it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStart:
    """The result of :func:`find_log_start`.

    Args:
        first: the offset of the log's first record.
        known: the state of the site up to an offset, for a proxy that cannot go on from its store; it may end below
            `first`, and the records between are lost. None: the proxy goes on from its store, or nothing is known of
            the site.
        is_intact: whether the proxy may read on where its store ends, which may be empty; else it begins anew, and its
            sessions catch up all origins.
        federation: the identity of the federation.
        row: the identity of the log, as the registry has it now.
        log_epoch: of the record at `first`; where the log still has the record that was read last, of that one.
        why: the reason why a log epoch ended, for operators; empty: none did.
    """

    first: int
    known: Snapshot | None
    is_intact: bool
    federation: str
    row: SiteLogRow
    log_epoch: int
    why: str = ""


AnswerT = TypeVar("AnswerT")
_Questions: TypeAlias = Generator[StartQuestion, Any, AnswerT]


def find_log_start(site: SiteId, restored: Restored | None, new_identity: str) -> _Questions[LogStart]:
    """Find where the site log is read from, and have the registry name its log epoch (handover rule 27).

    A procedure (:func:`node.machines.procedure.resume`), whose result is the LogStart. A log that has lost its end
    enters the next log epoch. At an empty log whose row another proxy has just made, it waits for IDENTITY_WAIT_MS at
    most; at an empty registry, while the log belongs to a federation, for SECRET_BACK_MS.

    Args:
        site: the site of the log.
        restored: the contents of the proxy's store; None: the store is empty.
        new_identity: the identity to be given to a log that states none.

    Raises:
        BadConfiguration: the log is another one than the store was read from, or of another federation than the
            registry, or the registry is empty, and stays so, although log or store belong to a federation.
        WaypostError: as a question fails.
    """
    kept = None
    if restored is None or not restored.site.state:
        kept = yield from _find_snapshot()
    read = Acceptance.restore(site, restored.acceptance) if restored else kept
    mark = read.mark if read else LogMark()
    known = row_as_read(site, mark, read.ended) if read else None
    federation = yield from _find_federation(site, mark)
    began: int = yield FindTime()
    while True:
        # In this order: by the time that a log that has lost its end answers, the others have said what they had seen.
        seen = yield from _inspect(mark, known)
        row: SiteLogRow | None = yield ReadLogRow()
        if row is None and mark.identity:
            # A snapshot that was found may be of the site whose log this is, too: only the log itself says which.
            try:
                stated = yield from find_identity(seen.first, seen.end)
            except HistoryTruncated:
                continue
            seen = replace(seen, begun=stated or seen.begun)
        judgement = judge(site, federation, row, seen, new_identity)
        new = judgement.row
        if row is not None and _is_to_be_named(row, seen) and (yield FindTime()) < began + IDENTITY_WAIT_MS:
            # Another proxy of the site has just claimed its row, and names the log: is it this very log?
            yield Wait(IDENTITY_POLL_MS)
        elif new == row or (yield ClaimLogRow(row, new)):
            break
    if judgement.why:
        details = {"site": site, "why": judgement.why, "log_epoch": new.log_epoch, "ended": dict(new.ended)}
        yield Report("the site log has lost its end; another log epoch begins", details)
    is_intact = restored is not None and judgement.is_intact
    snapshot: Snapshot | None = None
    if restored is None or not is_intact or restored.site.position < seen.first:
        if kept is None:
            kept = yield from _find_snapshot()
        if kept is not None and not is_lost(site, new, kept.mark):
            # Where what stands there now is damaged, the log itself does not tell.
            snapshot = yield from _of_this_log(kept, seen)
    return LogStart(
        first=seen.first,
        known=snapshot,
        is_intact=restored is None or is_intact,
        federation=federation,
        row=new,
        log_epoch=first_epoch(new, seen),
        why=judgement.why,
    )


def _is_to_be_named(row: SiteLogRow, seen: LogSeen) -> bool:
    """Tell whether nobody has read anything of the site's log yet, and this one states no identity."""
    return seen.begun is None and seen.end == 0 and row.seen < 0 and row.log_epoch == 1


def _find_federation(site: SiteId, mark: LogMark) -> _Questions[str]:
    """Find the identity of the federation.

    A registry that lost everything gets its secret again from a live proxy. If this one made another secret first,
    every proxy of the federation would be refused at its site's log from then on.

    Raises:
        BadConfiguration: the log belongs to a federation, and the registry is empty and stays so.
    """
    begun = (yield from _inspect(mark, None)).begun
    federation = begun.federation if begun is not None else mark.federation
    found = f"the log of site {site}" if begun is not None else "what this proxy's folder has read of its site's log"
    until_ms = (yield FindTime()) + SECRET_BACK_MS
    while not (secret := (yield ReadSecret(make=not federation))):
        if (yield FindTime()) > until_ms:
            raise BadConfiguration(
                f"{found} belongs to federation {federation}, and this registry is empty",
                field="log" if begun is not None else "data",
                hint="is --etcd right, and --prefix, or --data? A registry that is lost for good takes "
                "its sessions with it: begin with another --prefix or --data",
            )
        yield Wait(SECRET_POLL_MS)
    return federation_of(secret)


def _inspect(mark: LogMark, known: SiteLogRow | None) -> _Questions[LogSeen]:
    """Find the bounds and the identity of the log, and whether it has the record that was read last."""
    while True:
        first: int = yield FindFirst()
        end: int = yield FindEnd()
        intact = yield from _has(mark, first, end)
        begun: LogBegun | None
        if intact and mark.identity:
            begun = LogBegun(federation=mark.federation, identity=mark.identity, log_epoch=mark.log_epoch)
        else:
            try:
                begun = yield from find_identity(first, end)
            except HistoryTruncated:
                # Retention has removed more of it meanwhile.
                continue
        return LogSeen(first=first, end=end, begun=begun, mark=mark, intact=intact, known=known)


def _has(mark: LogMark, first: int, end: int) -> _Questions[bool | None]:
    """Tell whether the log has the record that was read last; None: it cannot be compared."""
    if not mark.is_comparable or not first <= mark.offset < end:
        return None
    try:
        found: Batch = yield ReadRecords(mark.offset, 1)
    except HistoryTruncated:
        return None
    if not found or isinstance(found[0][1], Damaged):
        # Damage at rest is no other log.
        return None
    return mark.is_confirmed_by(*found[0])


def _find_snapshot() -> _Questions[Snapshot | None]:
    kept: SiteSnapshot | None = yield FindSnapshot()
    if kept is None:
        return None
    try:
        return read_snapshot(kept.state)
    except BadRecord as error:
        yield Report("what the changelog has of the site is not used", {"error": str(error)})
        return None


def _of_this_log(known: Snapshot, seen: LogSeen) -> _Questions[Snapshot | None]:
    """Return the changelog's snapshot of the site; None where it is of another log."""
    intact = yield from _has(known.mark, seen.first, seen.end)
    if known.position > seen.end or intact is False:
        details = {"known_up_to": known.position, "log_ends_at": seen.end}
        yield Report("what the changelog has of the site is of another log", details)
        return None
    if known.position < seen.first:
        details = {"known_up_to": known.position, "log_begins_at": seen.first}
        yield Report("the log begins behind what is known of it", details)
    return known
