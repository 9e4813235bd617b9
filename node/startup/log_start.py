"""Performs on the real parts what node/machines/log_start.py asks, to find where the site log is read from."""

from __future__ import annotations

import asyncio
from typing import Any, assert_never

import structlog

from federation.ports import Batch, SiteLog
from node.health.dependency_health import Dependency, DependencyHealth
from node.machines.log_guard import ClaimLogRow, FindEnd, FindFirst, ReadLogRow, ReadRecords, Wait
from node.machines.log_start import (
    FindSnapshot,
    FindTime,
    LogStart,
    ReadSecret,
    Report,
    StartQuestion,
    find_log_start,
)
from node.machines.procedure import resume
from node.startup.backends import Backends
from proxy.core.store_port import Restored
from waypost.errors import HistoryTruncated
from waypost.identity import SiteId, new_incarnation

log = structlog.get_logger("waypost")


async def run_log_start(
    site: SiteId, backends: Backends, restored: Restored | None, health: DependencyHealth
) -> LogStart:
    """Find where the site log is read from, and have the registry name its log epoch (handover rule 27).

    Runs :func:`node.machines.log_start.find_log_start`; a backend that does not answer is asked again, for ever.

    Args:
        site: the site of the log.
        restored: the contents of the proxy's store; None: the store is empty.
        health: where a backend that does not answer is reported.

    Raises:
        BadConfiguration: the log is another one than the store was read from, or the registry is another federation's,
            or is empty, and stays so, although log or store belong to a federation.
        Refused, LogReplaced: as a backend raises them.
    """
    procedure = find_log_start(site, restored, new_incarnation())
    answer: Any = None
    while True:
        try:
            question = resume(procedure, answer)
        except StopIteration as done:
            start: LogStart = done.value
            return start
        answer = await _answer(site, backends, health, question)


async def _answer(site: SiteId, backends: Backends, health: DependencyHealth, question: StartQuestion) -> Any:
    registry, site_log = backends.registry, backends.log
    match question:
        case FindTime():
            return round(asyncio.get_running_loop().time() * 1000)
        case FindFirst():
            return await health.retry(Dependency.LOG, site_log.first_offset)
        case FindEnd():
            return await health.retry(Dependency.LOG, site_log.end_offset)
        case ReadRecords(offset=offset, limit=limit):
            return await health.retry(Dependency.LOG, lambda: _read(site_log, offset, limit))
        case FindSnapshot():
            return await health.retry(Dependency.CHANGELOG, backends.changelog.latest_site)
        case ReadLogRow():
            return await health.retry(Dependency.REGISTRY, lambda: registry.site_log(site))
        case ClaimLogRow(expected=expected, new=new):
            return await health.retry(Dependency.REGISTRY, lambda: registry.claim_site_log(site, expected, new))
        case ReadSecret(make=make):
            return await health.retry(Dependency.REGISTRY, lambda: registry.secret(make=make))
        case Report(message=message, details=details):
            log.warning(message, **details)
            return None
        case Wait(for_ms=for_ms):
            return await asyncio.sleep(for_ms / 1000)
        case _:
            assert_never(question)


async def _read(site_log: SiteLog, offset: int, limit: int) -> Batch | HistoryTruncated:
    """What retention has removed is not asked for again."""
    try:
        return await site_log.read(offset, limit)
    except HistoryTruncated as error:
        return error
