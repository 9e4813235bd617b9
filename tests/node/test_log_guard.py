"""What a proxy tells the registry of a log that lost its end: what it knows itself, whatever others said before."""

from __future__ import annotations

import pytest

from federation.memory import MemoryLogStorage, MemoryRegistry, MemoryRegistryStorage, MemorySiteLog
from federation.ports import SiteLogRow
from federation.site_state import SiteState
from node.log_guard import LogGuard
from waypost.clock import ManualClock
from waypost.errors import LogReplaced
from waypost.identity import Incarnation, SiteId, origin_of
from waypost.records import Published

A = SiteId("A")


def published(number: int) -> Published:
    return Published("p", Incarnation("i"), number, 0, b"\x80")


async def guard(read: int, there: int, known: SiteLogRow, row: SiteLogRow) -> tuple[LogGuard, MemoryRegistry]:
    """Return the guard of a proxy that has read so many records of a log that has others now."""
    state, registry = SiteState(A), MemoryRegistry(MemoryRegistryStorage(), ManualClock())
    for offset in range(read):
        state.fold(offset, published(offset))
    site_log = MemorySiteLog(MemoryLogStorage())
    await site_log.append([published(each) for each in range(there)])
    await registry.claim_site_log(A, None, row)
    return LogGuard(state, site_log, registry, "federation", known), registry


def notice(guard: LogGuard, end: int | None) -> None:
    with pytest.raises(LogReplaced), guard.noticing():
        raise LogReplaced("another one", end=end)


async def test_a_row_that_others_have_changed_since_is_raised_all_the_same() -> None:
    """Where it is not, whoever begins next sees the log as it has grown by then, and takes that for what was read."""
    known = SiteLogRow(identity="log", seen=3)
    mine, registry = await guard(read=10, there=8, known=known, row=known.model_copy(update={"seen": 7}))
    notice(mine, end=6)
    await mine.raise_epoch()
    row = await registry.site_log(A)
    assert row is not None and (row.log_epoch, row.ended) == (2, {"A/0": (5, 9)})


async def test_who_knows_of_an_earlier_end_than_was_said_says_so() -> None:
    said = SiteLogRow(identity="log", log_epoch=2, ended={origin_of(A): (7, 8)})
    mine, registry = await guard(read=10, there=9, known=SiteLogRow(identity="log"), row=said)
    notice(mine, end=6)
    await mine.raise_epoch()
    row = await registry.site_log(A)
    assert row is not None and (row.log_epoch, row.ended) == (2, {"A/0": (5, 9)})


async def test_a_log_that_has_all_that_was_read_stays_in_its_epoch() -> None:
    known = SiteLogRow(identity="log")
    mine, registry = await guard(read=5, there=9, known=known, row=known)
    await mine.raise_epoch()
    assert await registry.site_log(A) == known
