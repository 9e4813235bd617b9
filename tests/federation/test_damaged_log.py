"""An embedded site log whose file was damaged at rest: each record is as it was, or told to be damaged."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from chaos.faults.flips import flip_bits
from federation.embedded import EmbeddedSiteLog
from federation.ports import Batch
from waypost.errors import LogUnavailable
from waypost.identity import Incarnation
from waypost.notification import Notification
from waypost.records import MISSING, Damaged, Published

COUNT = 2_000
RECORDS = [
    Published(
        producer="p",
        incarnation=Incarnation("i"),
        sequence=n,
        at_ms=0,
        body=Notification({"n": n, "text": "as it was"}).body,
    )
    for n in range(COUNT)
]


async def written(path: Path) -> None:
    log = EmbeddedSiteLog(path, durable=False)
    for start in range(0, COUNT, 500):
        await log.append(RECORDS[start : start + 500])
    await log.close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


async def all_of(log: EmbeddedSiteLog) -> Batch:
    found: Batch = []
    while batch := await log.read(len(found), 300):
        found += batch
    return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("flips", [20, 400])
async def test_no_flipped_bit_alters_a_record_or_hides_one(tmp_path: Path, seed: int, flips: int) -> None:
    path = tmp_path / "log.db"
    await written(path)
    flip_bits(path, flips, seed)
    log = EmbeddedSiteLog(path)
    try:
        found = await all_of(log)
    except LogUnavailable as error:
        # Its end cannot be found, and nothing can be appended: an operator must know.
        assert flips == 400 and error.hint is not None
        assert error.hint.startswith("the file is damaged beyond what can be passed over; bring back a copy of it, or")
        await log.close()
        return
    damaged = {offset for offset, record in found if isinstance(record, Damaged)}

    assert [offset for offset, _ in found] == list(range(len(found)))
    assert [record for offset, record in found if offset not in damaged] == [
        record for offset, record in enumerate(RECORDS[: len(found)]) if offset not in damaged
    ]
    assert damaged
    assert len(found) - len(damaged) > COUNT / 4
    await log.close()


async def test_missing_row_of_a_log_is_reported_and_skipped(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    await written(path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM log WHERE offset IN (0, 7, 8, 299, 300)")
    log = EmbeddedSiteLog(path)
    found = await all_of(log)
    assert [offset for offset, record in found if record == MISSING] == [0, 7, 8, 299, 300]
    assert len(found) == COUNT
    await log.close()


async def test_a_record_that_stands_elsewhere_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    await written(path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE log SET offset = 1000000000 WHERE offset = 1999")
        database.execute("UPDATE log SET record = (SELECT record FROM log WHERE offset = 4) WHERE offset = 5")
    log = EmbeddedSiteLog(path)
    found = await all_of(log)
    assert [offset for offset, record in found if isinstance(record, Damaged)] == [5]
    assert await log.end_offset() == 1999
    assert await log.append(RECORDS[:1]) == [1999]
    await log.close()
