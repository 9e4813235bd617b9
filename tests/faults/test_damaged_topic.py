"""Topics of Kafka in which bits were turned over on the broker's disk: nothing stops, and what is lost is named."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from chaos.servers.kafka import KafkaServer
from federation.kafka import KafkaChangelog, KafkaSiteLog
from federation.kafka.topic import KEEP_LAST_OF_KEY
from federation.ports import Batch
from waypost.checkpoint import Checkpoint, Descriptor
from waypost.errors import BadRecord
from waypost.identity import Epoch, Incarnation, Origin, SessionId
from waypost.notification import Notification
from waypost.records import Damaged, Published

COUNT, TOGETHER = 60, 6
RECORDS = [
    Published(
        producer="p",
        incarnation=Incarnation("i"),
        sequence=n,
        at_ms=0,
        body=Notification({"n": n, "t": f"number {n:04}"}).body,
    )
    for n in range(COUNT)
]
TOPIC = "damaged"


async def tailed(log: KafkaSiteLog) -> Batch:
    found: Batch = []
    async with asyncio.timeout(25):
        async for batch in log.tail(0):
            found += batch
            if len(found) >= COUNT:
                break
    return found


async def read(log: KafkaSiteLog) -> Batch:
    found: Batch = []
    async with asyncio.timeout(25):
        while batch := await log.read(len(found), 20):
            found += batch
    return found


def batch_at(data: bytearray, number: int) -> int:
    """Return where this batch begins. Each has its first offset and its length in front; at 23 its last offset."""
    at = 0
    for _ in range(number):
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return at


@pytest.mark.parametrize("what", ["a body", "the head of a batch"])
async def test_a_damaged_batch_is_passed_and_its_records_are_named(tmp_path: Path, what: str) -> None:
    with KafkaServer(tmp_path) as broker:
        log = KafkaSiteLog(broker.bootstrap, TOPIC)
        await log.start()
        for start in range(0, COUNT, TOGETHER):
            await log.append(RECORDS[start : start + TOGETHER])
        await log.close()
        await asyncio.to_thread(broker.stop)
        segment = max((broker.data / "store" / f"{TOPIC}-0").glob("*.log"))
        data = bytearray(segment.read_bytes())
        damaged_at = data.index(b"number 0032") + 3 if what == "a body" else batch_at(data, 30 // TOGETHER) + 26
        data[damaged_at] ^= 4
        segment.write_bytes(data)
        await asyncio.to_thread(broker.start)

        log = KafkaSiteLog(broker.bootstrap, TOPIC)
        await log.start()
        for found in (await tailed(log), await read(log)):
            damaged = [offset for offset, record in found if isinstance(record, Damaged)]
            assert [offset for offset, _ in found] == list(range(COUNT))
            assert damaged == ([32] if what == "a body" else [])
            assert all(record == RECORDS[offset] for offset, record in found if offset not in damaged)
        await log.close()


@pytest.mark.parametrize("bit", [3, 27], ids=["a little further", "beyond the end"])
async def test_batch_with_a_wrong_base_offset_is_not_accepted_and_no_offset_is_skipped(
    tmp_path: Path, bit: int
) -> None:
    """No checksum of Kafka's covers the offset at which a batch says that it stands."""
    with KafkaServer(tmp_path) as broker:
        log = KafkaSiteLog(broker.bootstrap, TOPIC)
        await log.start()
        for record in RECORDS:
            await log.append([record])
        await log.close()
        await asyncio.to_thread(broker.stop)
        segment = max((broker.data / "store" / f"{TOPIC}-0").glob("*.log"))
        data = bytearray(segment.read_bytes())
        at = batch_at(data, 32)
        data[at : at + 8] = (32 ^ (1 << bit)).to_bytes(8, "big")
        segment.write_bytes(data)
        await asyncio.to_thread(broker.start)

        log = KafkaSiteLog(broker.bootstrap, TOPIC)
        await log.start()
        assert await log.end_offset() == COUNT
        for found in (await tailed(log), await read(log)):
            assert [offset for offset, _ in found] == list(range(COUNT))
            whole = [offset for offset, record in found if not isinstance(record, Damaged)]
            assert all(record == RECORDS[offset] for offset, record in found if offset in whole)
            assert whole[:32] == [*range(32)] and 32 not in whole
            assert len(whole) >= (COUNT - 9 if bit == 3 else 32)
        # Nothing stops: what is appended is either read or told to be lost.
        assert await log.append(RECORDS[:1]) == [COUNT]
        await log.close()


def kept(session: int, serial: int) -> Checkpoint:
    floors = {Origin(f"origin {session:04} {serial:04}/0"): serial}
    return Checkpoint(SessionId(f"session {session:04}"), Epoch(1), serial, Descriptor(created_at={}), floors)


@pytest.mark.parametrize("what", ["origin", "session", "|1"], ids=["a checkpoint", "its session's name", "its key"])
async def test_a_damaged_checkpoint_costs_no_other_session_its_own(tmp_path: Path, what: str) -> None:
    """Ten were written at a time, and compaction has removed one; all but the third are read, and those behind them."""
    with KafkaServer(tmp_path, settings={"log.cleaner.backoff.ms": "200"}) as broker:
        changelog = KafkaChangelog(broker.bootstrap, TOPIC)
        await changelog.start()
        await asyncio.gather(*(changelog.put(kept(session, 1)) for session in range(10)))
        await compacted(broker, changelog)
        await changelog.close()
        await asyncio.to_thread(broker.stop)
        segment = min((broker.data / "store" / f"{TOPIC}-0").glob("*.log"))
        data = bytearray(segment.read_bytes())
        key = data.index(b"session 0003|1")
        at = key + len(b"session 0003") + 1 if what == "|1" else data.index(f"{what} 0003".encode(), key + 4) + 3
        data[at] ^= 4
        segment.write_bytes(data)
        await asyncio.to_thread(broker.start)

        changelog = KafkaChangelog(broker.bootstrap, TOPIC)
        await changelog.start()
        async with asyncio.timeout(25):
            for session in {*range(10)} - {3, 5}:
                assert await changelog.latest(SessionId(f"session {session:04}")) == (kept(session, 1),)
            if what == "|1":
                assert await changelog.latest(SessionId("session 0003")) == (kept(3, 1),)
            else:
                with pytest.raises(BadRecord):
                    await changelog.latest(SessionId("session 0003"))
            newest = await changelog.latest(SessionId("session 0005"))
            await changelog.put(kept(5, newest[0].serial + 1))
            assert await changelog.latest(SessionId("session 0005")) == (kept(5, newest[0].serial + 1),)
        await changelog.close()


async def compacted(broker: KafkaServer, changelog: KafkaChangelog) -> None:
    """Write checkpoints of session 5 until the broker has removed its first one."""
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        configs = {**KEEP_LAST_OF_KEY, "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC, configs)])
    finally:
        await admin.close()
    segments = broker.data / "store" / f"{TOPIC}-0"
    async with asyncio.timeout(60):
        for serial in count(2):
            await changelog.put(kept(5, serial))
            if b"origin 0005 0001" not in min(segments.glob("*.log")).read_bytes():
                return
            await asyncio.sleep(0.2)
