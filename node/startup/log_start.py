"""The start of reading a site log: at the position of the proxy's store, or later where the log has removed that.

The identity of the log, and whether it has lost its end, is judged in federation/log_epochs.py.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from federation.acceptance import Acceptance, LogMark
from federation.log_epochs import LogSeen, federation_of, first_epoch, is_lost, judge, row_as_read
from federation.ports import SiteLogRow, SiteSnapshot
from federation.site_state import Snapshot, read_snapshot
from node.health.dependency_health import Dependency, DependencyHealth
from node.startup.backends import Backends
from proxy.core.store_port import Restored
from waypost.errors import BadConfiguration, BadRecord, HistoryTruncated
from waypost.identity import SiteId, new_incarnation
from waypost.limits import IDENTITY_RECORDS, LOG_BATCH
from waypost.records import Damaged, LogBegun, checksum_of

SECRET_BACK_S = 5.0
"""So long a registry that has lost everything may take to be told its secret by a proxy that lives."""
SECRET_POLL_S = 0.2
NAMED_S = 15.0
"""So long a proxy waits, at an empty log, for the identity that another one is about to write there. If that one has
another log by mistake, it says within this time how far it has read that, and this proxy is refused; if that one has
ended, this one writes the identity.
"""
NAME_POLL_S = 0.1
log = structlog.get_logger("waypost")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStart:
    """The result of :func:`where_to_begin`.

    Args:
        first: the offset of the log's first record.
        known: the state of the site up to an offset, for a proxy that cannot go on from its store; None: it goes on
            from its store, or nothing is known of the site.
        is_intact: whether the store was read from this very log; else the sessions catch up all origins.
        federation: the identity of the federation.
        row: the identity of the log, as the registry has it now.
        log_epoch: of the log's first record.
    """

    first: int
    known: Snapshot | None
    is_intact: bool
    federation: str
    row: SiteLogRow
    log_epoch: int


async def where_to_begin(
    site: SiteId, backends: Backends, restored: Restored | None, troubles: DependencyHealth
) -> LogStart:
    """Return where to begin, and have the registry name the log epoch.

    A log that has lost its end enters the next log epoch. A backend that does not answer is asked again, for ever.

    Args:
        restored: the contents of the proxy's store; None: it is empty.
        troubles: where a backend that does not answer is reported.

    Raises:
        BadConfiguration: it is another log than the one that was read, or the registry is another federation's.
    """
    kept = None
    if restored is None or not restored.site.state:
        kept = _readable(await troubles.retry(Dependency.CHANGELOG, backends.changelog.latest_site))
    read = Acceptance.restore(site, restored.acceptance) if restored else kept
    mark = read.mark if read else LogMark()
    known = row_as_read(site, mark, read.ended) if read else None
    federation = await _federation(site, backends, mark, troubles)
    clock = asyncio.get_running_loop().time
    named_until_s = clock() + NAMED_S
    while True:
        # In this order: by the time that a log that has lost its end answers, the others have said what they had seen.
        seen = await troubles.retry(Dependency.LOG, lambda: _inspect_log(backends, mark, known))
        row = await troubles.retry(Dependency.REGISTRY, lambda: backends.registry.site_log(site))
        judgement = judge(site, federation, row, seen, new_incarnation())
        new = judgement.row
        if row is not None and _is_to_be_named(row, seen) and clock() < named_until_s:
            # Another proxy of the site has just claimed its row, and names the log: is it this very log?
            await asyncio.sleep(NAME_POLL_S)
            continue
        if new == row or await troubles.retry(
            Dependency.REGISTRY,
            lambda: backends.registry.claim_site_log(site, row, new),  # noqa: B023 - awaited at once
        ):
            break
    if judgement.why:
        log.warning(
            "the site log has lost its end; another log epoch begins",
            site=site,
            why=judgement.why,
            log_epoch=new.log_epoch,
            ended=dict(new.ended),
        )
    is_intact = restored is not None and judgement.is_intact
    if restored is not None and is_intact and restored.site.position >= seen.first:
        return LogStart(
            first=seen.first,
            known=None,
            is_intact=True,
            federation=federation,
            row=new,
            log_epoch=first_epoch(new, seen),
        )
    if kept is None:
        kept = _readable(await troubles.retry(Dependency.CHANGELOG, backends.changelog.latest_site))
    if kept is not None and is_lost(site, new, kept.mark):
        # Where what stands there now is damaged, the log itself does not tell.
        kept = None
    snapshot = await troubles.retry(Dependency.LOG, lambda: _of_this_log(backends, kept, seen))
    return LogStart(
        first=seen.first,
        known=snapshot,
        is_intact=restored is None or is_intact,
        federation=federation,
        row=new,
        log_epoch=first_epoch(new, seen),
    )


def _is_to_be_named(row: SiteLogRow, seen: LogSeen) -> bool:
    """Tell whether nobody has read anything of the site's log yet, and this one says nothing of itself."""
    return seen.begun is None and seen.end == 0 and row.seen < 0 and row.log_epoch == 1


async def _federation(site: SiteId, backends: Backends, mark: LogMark, troubles: DependencyHealth) -> str:
    """Return the identity of the federation.

    A registry that lost everything gets its secret again from a live proxy. If this one made another secret first,
    every proxy of the federation would be refused at its site's log from then on.

    Raises:
        BadConfiguration: the log belongs to a federation, and the registry is empty and stays so.
    """
    registry, clock = backends.registry, asyncio.get_running_loop().time
    begun = (await troubles.retry(Dependency.LOG, lambda: _inspect_log(backends, mark, None))).begun
    theirs, until_s = begun.federation if begun is not None else mark.federation, clock() + SECRET_BACK_S
    while not (secret := await troubles.retry(Dependency.REGISTRY, lambda: registry.secret(make=not theirs))):
        if clock() > until_s:
            raise BadConfiguration(
                f"the log of site {site} belongs to federation {theirs}, and this registry is empty",
                field="log",
                hint="is --etcd right, and --prefix, or --data? A registry that is lost for good takes "
                "its sessions with it: begin with another --prefix or --data",
            )
        await asyncio.sleep(SECRET_POLL_S)
    return federation_of(secret)


async def _inspect_log(backends: Backends, mark: LogMark, known: SiteLogRow | None) -> LogSeen:
    """Return the bounds and the identity of the log, and whether it has the record that was read last."""
    first, end = await backends.log.first_offset(), await backends.log.end_offset()
    intact = await _has(backends, mark, first, end)
    if intact and mark.identity:
        log_begun: LogBegun | None = LogBegun(
            federation=mark.federation, identity=mark.identity, log_epoch=mark.log_epoch
        )
    else:
        log_begun = await _find_identity(backends, first, end)
    return LogSeen(first=first, end=end, begun=log_begun, mark=mark, intact=intact, known=known)


async def _has(backends: Backends, mark: LogMark, first: int, end: int) -> bool | None:
    """Tell whether the log has the record that was read last; None: it cannot be compared."""
    if not first <= mark.offset < end or not mark.checksum:
        return None
    try:
        found = await backends.log.read(mark.offset, 1)
    except HistoryTruncated:
        return None
    if not found or isinstance(found[0][1], Damaged):
        # Damage at rest is no other log.
        return None
    return found[0][0] == mark.offset and checksum_of(found[0][1]) == mark.checksum


async def _find_identity(backends: Backends, first: int, end: int) -> LogBegun | None:
    """Return the identity record near the log's beginning; there is one, and one wherever a proxy has begun."""
    offset = first
    while offset < min(end, first + IDENTITY_RECORDS):
        batch = await backends.log.read(offset, LOG_BATCH)
        for _, record in batch:
            if isinstance(record, LogBegun):
                return record
        if not batch:
            return None
        offset = batch[-1][0] + 1
    return None


def _readable(kept: SiteSnapshot | None) -> Snapshot | None:
    if kept is None:
        return None
    try:
        return read_snapshot(kept.state)
    except BadRecord as error:
        log.warning("what the changelog has of the site is not used", error=str(error))
        return None


async def _of_this_log(backends: Backends, known: Snapshot | None, seen: LogSeen) -> Snapshot | None:
    """Return the changelog's snapshot of the site; None where it is of another log, or there is none."""
    if known is None:
        return None
    intact = await _has(backends, known.mark, seen.first, seen.end)
    if known.position > seen.end or intact is False:
        log.warning(
            "what the changelog has of the site is of another log", known_up_to=known.position, log_ends_at=seen.end
        )
        return None
    if known.position < seen.first:
        log.warning("the log begins behind what is known of it", known_up_to=known.position, log_begins_at=seen.first)
    return known
