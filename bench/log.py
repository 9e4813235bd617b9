"""Append and tail of the site logs, beside bare sqlite3 and bare aiokafka with the same records and batches."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiokafka import AIOKafkaProducer

from bench.measurement import Row
from chaos.servers.kafka import KafkaServer
from federation.embedded.site_log import EmbeddedSiteLog
from federation.kafka import KafkaSiteLog
from federation.ports import SiteLog
from waypost.identity import Incarnation
from waypost.records import Published, encode_record

COUNT = 20_000
BATCH = 200
REPEATS = 3
RECORD = Published(producer="bench", incarnation=Incarnation("i"), sequence=1, at_ms=0, body=b"x" * 200)


def run() -> list[Row]:
    """Measure the embedded log, then Kafka's."""
    with tempfile.TemporaryDirectory() as root, KafkaServer() as kafka:
        return asyncio.run(_all(Path(root), kafka.bootstrap))


async def _all(root: Path, kafka: str) -> list[Row]:
    rows = await _log("log, embedded", lambda repeat: EmbeddedSiteLog(root / f"{repeat}.db"))
    rows.append(await _bare("log, bare sqlite3", lambda repeat: asyncio.to_thread(_sqlite, root / f"bare{repeat}.db")))
    rows += await _log("log, Kafka", lambda repeat: KafkaSiteLog(kafka, f"bench{repeat}"))
    # The topics exist already; nobody reads what is appended to them now.
    rows.append(await _bare("log, bare aiokafka", lambda repeat: _aiokafka(kafka, f"bench{repeat}")))
    return rows


async def _log(name: str, make: Callable[[int], SiteLog]) -> list[Row]:
    appends, tails = [], []
    for repeat in range(REPEATS):
        log = make(repeat)
        await log.start()
        appends.append(await _timed(_append(log)))
        tails.append(await _timed(_tail(log)))
        await log.close()
    return [Row(f"{name}: append", "records/s", tuple(appends)), Row(f"{name}: tail", "records/s", tuple(tails))]


async def _bare(name: str, append: Callable[[int], Awaitable[object]]) -> Row:
    return Row(f"{name}: append", "records/s", tuple([await _timed(append(repeat)) for repeat in range(REPEATS)]))


async def _timed(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return COUNT / (time.perf_counter() - began)


async def _append(log: SiteLog) -> None:
    await asyncio.gather(*(log.append([RECORD] * BATCH) for _ in range(COUNT // BATCH)))


async def _tail(log: SiteLog) -> None:
    seen = 0
    async for batch in log.tail(0):
        seen += len(batch)
        if seen >= COUNT:
            return


def _sqlite(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE log (offset INTEGER PRIMARY KEY, record BLOB)")
    for _ in range(COUNT // BATCH):
        connection.execute("BEGIN IMMEDIATE")
        records = [(encode_record(RECORD),) for _ in range(BATCH)]
        connection.executemany("INSERT INTO log (record) VALUES (?)", records)
        connection.execute("COMMIT")
    connection.close()


async def _aiokafka(kafka: str, topic: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=kafka, acks="all", enable_idempotence=True, max_batch_size=1 << 19)
    await producer.start()
    sent = [await producer.send(topic, encode_record(RECORD), partition=0) for _ in range(COUNT)]
    await asyncio.gather(*sent)
    await producer.stop()
