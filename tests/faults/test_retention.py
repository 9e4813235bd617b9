"""What Kafka's retention and etcd's compaction take away while proxies run, are down, or are stopped.

What all have read may go at any time. What somebody has not read is a gap, and is told; everything else is given.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aetcd
import pytest

from chaos.cluster import Cluster, ProxySpec
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from federation.kafka import KafkaSiteLog
from tests.faults.test_log_epochs import TIMEOUT_S, Reader, accounts, publish
from tests.helpers.polling import until
from waypost.identity import new_incarnation

FLAGS = {"no-discovery": "", "lease-ttl-ms": "3000"}


@pytest.fixture
async def cluster(kafka: KafkaServer, etcd: EtcdServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    shared = {**FLAGS, "etcd": etcd.endpoint, "kafka": kafka.bootstrap, "prefix": f"retention-{new_incarnation()}"}
    places = [ProxySpec(name, site, shared) for name, site in (("a1", "A"), ("a2", "A"), ("b1", "B"))]
    with Cluster(places, [("A", "B")], tmp_path / "proxies") as cluster:
        yield cluster


async def forget(kafka: KafkaServer, cluster: Cluster, site: str, keep: int) -> int:
    """Let retention remove all but the last records of a site's log; return the offset of the first that is left."""
    log = KafkaSiteLog(kafka.bootstrap, f"{cluster._specs[0].flags['prefix']}.{site}.log")
    try:
        await log.start()
        first = await log.end_offset() - keep
        await log.truncate(first)
        return first
    finally:
        await log.close()


async def compact(etcd: EtcdServer) -> None:
    """Let etcd forget all revisions but the present one."""
    host, _, port = etcd.endpoint.rpartition(":")
    async with aetcd.Client(host, int(port)) as client:
        await client.put(b"something else", b"a revision of its own")
        revision = (await client.kvstub.Range(aetcd.rpc.RangeRequest(key=b"nothing"))).header.revision
        await client.kvstub.Compact(aetcd.rpc.CompactionRequest(revision=revision, physical=True))


async def test_removal_of_read_records_is_harmless_and_removal_of_unread_records_is_reported(
    cluster: Cluster, kafka: KafkaServer
) -> None:
    a1, b1 = cluster.proxies["a1"], cluster.proxies["b1"]
    near, far, away = Reader("near"), Reader("far"), Reader("away")
    await near.prepare(a1.url)
    for reader in (far, away):
        await reader.prepare(b1.url)
    near.start(a1.url)
    far.start(b1.url)
    readers = (near, far, away)
    try:
        safe = await publish(a1.url, range(1, 201))
        await until(lambda: len(near.numbers) == len(far.numbers) == 200, "everything has arrived")
        await forget(kafka, cluster, "A", keep=0)
        safe |= await publish(a1.url, range(201, 301))
        await until(lambda: len(near.numbers) == len(far.numbers) == 300, "it goes on without what all had read")
        # The far site is down while what it has not read goes.
        await asyncio.to_thread(b1.kill)
        safe |= await publish(a1.url, range(301, 401))
        first = await forget(kafka, cluster, "A", keep=20)
        safe |= await publish(a1.url, range(401, 421))
        await asyncio.to_thread(b1.start)
        safe |= await publish(a1.url, range(421, 431))
        away.start(b1.url)
        await until(lambda: all(430 in reader.numbers for reader in readers), "the last one has come", TIMEOUT_S)
        await until(lambda: not any(accounts(reader, safe) for reader in readers), "what is not given is told", 10)
    finally:
        wrong = [line for reader in readers for line in accounts(reader, safe)[:3]]
        for each in readers:
            await each.stop()
        assert wrong == []
    assert near.numbers == list(range(1, 431)) and not near.gaps
    far_gaps = [gap for gap in far.gaps if gap.origin == "A/0"]
    assert far_gaps and max(gap.last for gap in far_gaps) < first
    assert set(range(1, 201)) <= set(away.numbers)


async def test_a_proxy_that_was_stopped_while_its_place_in_the_log_went_goes_on(
    cluster: Cluster, kafka: KafkaServer
) -> None:
    a1, a2 = cluster.proxies["a1"], cluster.proxies["a2"]
    here, there = Reader("here"), Reader("there")
    await here.prepare(a1.url)
    await there.prepare(a2.url)
    here.start(a1.url)
    there.start(a2.url)
    try:
        safe = await publish(a1.url, range(1, 51))
        await until(lambda: len(here.numbers) == len(there.numbers) == 50, "everything has arrived")
        a2.process.pause()
        try:
            safe |= await publish(a1.url, range(51, 151))
            await forget(kafka, cluster, "A", keep=5)
        finally:
            a2.process.resume()
        safe |= await publish(a1.url, range(151, 161))
        await until(lambda: 160 in here.numbers and 160 in there.numbers, "the last one has come", TIMEOUT_S)
        await until(lambda: not accounts(here, safe) and not accounts(there, safe), "what is not given is told", 10)
    finally:
        wrong = [*accounts(here, safe)[:3], *accounts(there, safe)[:3]]
        await here.stop()
        await there.stop()
        assert wrong == []


async def test_a_registry_that_is_compacted_again_and_again_costs_nothing(cluster: Cluster, etcd: EtcdServer) -> None:
    a1, a2 = cluster.proxies["a1"], cluster.proxies["a2"]
    reader = Reader("compacted")
    await reader.prepare(a1.url)
    reader.start(a1.url)
    safe: dict[int, object] = {}
    try:
        for turn in range(6):
            a2.process.pause()
            try:
                safe |= await publish(a1.url, range(1 + 20 * turn, 11 + 20 * turn))
                await compact(etcd)
            finally:
                a2.process.resume()
            await reader.stop()
            reader.start((a2 if turn % 2 == 0 else a1).url)
            await compact(etcd)
            safe |= await publish(a1.url, range(11 + 20 * turn, 21 + 20 * turn))
        await until(lambda: len(reader.numbers) == 120, "the last one has come", TIMEOUT_S)
    finally:
        wrong = accounts(reader, safe)  # type: ignore[arg-type]
        await reader.stop()
        assert wrong == []
