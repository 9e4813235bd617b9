"""With how many replicas topics are made on Kafka, and what is said of those that exist."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.protocol.metadata import MetadataRequest

from chaos.servers import parts
from chaos.servers.kafka import KafkaServer
from federation.kafka import KafkaChangelog, KafkaJournal, KafkaSiteLog
from federation.kafka.replication import (
    BY_BROKER,
    CLEANUP,
    MAX_MESSAGE,
    MIN_INSYNC,
    TIMESTAMPS,
    Replicas,
    Replication,
    check,
)
from waypost.errors import BadConfiguration, LogUnavailable
from waypost.identity import Incarnation
from waypost.records import Published


@pytest.mark.parametrize(
    ("wanted", "brokers", "made"),
    [
        (Replication(), 1, Replicas(1, 1)),
        (Replication(), 2, Replicas(2, 1)),
        (Replication(), 3, Replicas(3, 2)),
        (Replication(), 9, Replicas(3, 2)),
        (Replication(replicas=5), 9, Replicas(5, 4)),
        (Replication(min_insync=1), 3, Replicas(3, 1)),
        (Replication(3, 3), 3, Replicas(3, 3)),
    ],
)
def test_topics_are_made_as_asked_for_or_else_as_the_cluster_allows(
    wanted: Replication, brokers: int, made: Replicas
) -> None:
    assert wanted.of(brokers) == made


@pytest.mark.parametrize(
    ("wanted", "found", "field", "why"),
    [
        (Replication(replicas=3), Replicas(1, 1), "replication", "topic t has 1 replica, and 3 were asked for"),
        (Replication(min_insync=2), Replicas(3, 1), "min_insync", f"topic t has {MIN_INSYNC}=1, and 2 was asked for"),
        (Replication(), Replicas(1, 2), "min_insync", "it takes no record"),
    ],
)
def test_a_topic_with_less_than_was_asked_for_is_refused_by_name(
    wanted: Replication, found: Replicas, field: str, why: str
) -> None:
    with pytest.raises(BadConfiguration) as refusal:
        check("t", wanted, found, 3)
    assert refusal.value.field == field
    assert why in refusal.value.message and "\n" not in refusal.value.message


@pytest.mark.parametrize(
    ("wanted", "found", "brokers", "warning"),
    [
        (Replication(), Replicas(1, 1), 1, ""),
        (Replication(), Replicas(1, 1), 3, "topic t has 1 replica; 3 are recommended on 3 brokers"),
        (Replication(), Replicas(3, 1), 3, f"topic t has {MIN_INSYNC}=1; 2 is recommended for 3 replicas"),
        (Replication(), Replicas(3, 2), 3, ""),
        (Replication(1, 1), Replicas(1, 1), 3, ""),
        (Replication(replicas=2), Replicas(3, 2), 3, ""),
    ],
)
def test_less_than_is_recommended_is_a_warning_where_there_are_several_brokers(
    wanted: Replication, found: Replicas, brokers: int, warning: str
) -> None:
    assert check("t", wanted, found, brokers) == warning


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaServer, KafkaServer]]:
    """The two brokers of a cluster."""
    parts.install(["kafka"])
    root = tmp_path_factory.mktemp("pair")
    with (
        KafkaServer(root / "1", heap_mb=256) as first,
        KafkaServer(root / "2", heap_mb=256, joins=first, node=2) as second,
    ):
        yield first, second


@pytest.fixture
def pair(brokers: tuple[KafkaServer, KafkaServer]) -> KafkaServer:
    """A cluster of two brokers, by the first of them."""
    return brokers[0]


async def _make(kafka: KafkaServer, name: str, replicas: int, min_insync: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    try:
        await admin.start()
        await admin.create_topics([NewTopic(name, 1, replicas, topic_configs={MIN_INSYNC: str(min_insync)})])
    finally:
        await admin.close()


async def _spread(brokers: tuple[KafkaServer, KafkaServer], name: str) -> None:
    """Wait until every broker knows a topic: from one that does not, a sender learns that the topic is gone."""
    for broker in brokers:
        host, _, port = broker.bootstrap.partition(":")
        connection = await create_conn(host, int(port))
        try:
            async with asyncio.timeout(30):
                while name not in await _topics(connection):
                    await asyncio.sleep(0.05)
        finally:
            connection.close()


async def _topics(connection: AIOKafkaConnection) -> set[str]:
    answer = await connection.send(MetadataRequest())
    return {topic[1] for topic in answer.topics}


async def _replicas(kafka: KafkaServer, name: str) -> int:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    try:
        await admin.start()
        (found,) = [topic for topic in await admin.describe_topics() if topic["topic"] == name]
        return len(found["partitions"][0]["replicas"])
    finally:
        await admin.close()


@pytest.mark.parametrize("kind", [KafkaSiteLog, KafkaChangelog, KafkaJournal])
async def test_on_a_cluster_every_topic_has_more_than_one_replica(
    pair: KafkaServer, kind: type[KafkaSiteLog], topic_prefix: str
) -> None:
    warnings: list[str] = []
    log = kind(pair.bootstrap, f"{topic_prefix}new", warn=warnings.append)
    await log.start()
    await log.close()
    assert await _replicas(pair, f"{topic_prefix}new") == 2
    assert warnings == []


async def test_topic_with_one_replica_gives_a_warning_and_is_refused_when_two_are_required(
    brokers: tuple[KafkaServer, KafkaServer], pair: KafkaServer, topic_prefix: str
) -> None:
    name, warnings = f"{topic_prefix}old", list[str]()
    await _make(pair, name, 1, 1)
    await _spread(brokers, name)
    log = KafkaSiteLog(pair.bootstrap, name, warn=warnings.append)
    await log.start()
    assert await log.append([Published(producer="p", incarnation=Incarnation(""), sequence=1, at_ms=0, body=b"")]) == [
        0
    ]
    await log.close()
    assert warnings == [f"topic {name} has 1 replica; 2 are recommended on 2 brokers"]
    for wanted, field in ((Replication(replicas=2), "replication"), (Replication(min_insync=2), "min_insync")):
        log = KafkaSiteLog(pair.bootstrap, name, replication=wanted)
        with pytest.raises(BadConfiguration, match=name) as refusal:
            await log.start()
        assert refusal.value.field == field


@pytest.mark.parametrize(
    ("kind", "partitions", "settings", "why"),
    [
        (KafkaChangelog, 1, {CLEANUP: "delete"}, "has cleanup.policy=delete, and must have compact"),
        (KafkaSiteLog, 1, {CLEANUP: "compact"}, "has cleanup.policy=compact, and must have delete"),
        (KafkaJournal, 1, {CLEANUP: "compact,delete"}, "has cleanup.policy=compact,delete, and must have delete"),
        (KafkaSiteLog, 3, {CLEANUP: "delete"}, "has 3 partitions"),
        (KafkaSiteLog, 1, {CLEANUP: "delete", MAX_MESSAGE: "100000"}, "has max.message.bytes=100000, and must have"),
    ],
)
async def test_topic_whose_records_would_vanish_or_have_no_order_or_be_refused_is_refused_itself(
    pair: KafkaServer,
    topic_prefix: str,
    kind: type[KafkaSiteLog],
    partitions: int,
    settings: dict[str, str],
    why: str,
) -> None:
    name = f"{topic_prefix}by-hand"
    admin = AIOKafkaAdminClient(bootstrap_servers=pair.bootstrap)
    try:
        await admin.start()
        await admin.create_topics([NewTopic(name, partitions, 2, topic_configs=settings)])
    finally:
        await admin.close()
    with pytest.raises(BadConfiguration) as refusal:
        await kind(pair.bootstrap, name).start()
    assert why in refusal.value.message and refusal.value.hint


async def test_a_topic_that_some_brokers_do_not_know_yet_is_compared_all_the_same(
    pair: KafkaServer, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, asked = f"{topic_prefix}spreads", count()
    described = AIOKafkaAdminClient.describe_topics

    async def describe_topics(admin: AIOKafkaAdminClient) -> list[Any]:
        found: list[Any] = await described(admin)
        return [] if next(asked) < 3 else found

    await _make(pair, name, 1, 1)
    monkeypatch.setattr(AIOKafkaAdminClient, "describe_topics", describe_topics)
    with pytest.raises(BadConfiguration, match="has 1 replica, and 2 were asked for"):
        await KafkaSiteLog(pair.bootstrap, name, replication=Replication(replicas=2)).start()


async def test_two_names_that_kafka_takes_for_one_are_refused(pair: KafkaServer, topic_prefix: str) -> None:
    log = KafkaSiteLog(pair.bootstrap, f"{topic_prefix}A.B")
    await log.start()
    await log.close()
    with pytest.raises(BadConfiguration, match=r"Kafka refuses topic .*A_B.* collides") as refusal:
        await KafkaSiteLog(pair.bootstrap, f"{topic_prefix}A_B").start()
    assert refusal.value.field == "site" and refusal.value.hint


async def test_more_replicas_than_there_are_brokers_are_waited_for(pair: KafkaServer, topic_prefix: str) -> None:
    log = KafkaSiteLog(pair.bootstrap, f"{topic_prefix}three", replication=Replication(replicas=3))
    with pytest.raises(LogUnavailable, match="to have 3 replicas, and the cluster has 2 brokers now"):
        await log.start()


async def test_record_larger_than_the_topic_takes_is_refused_with_what_to_do(
    pair: KafkaServer, topic_prefix: str
) -> None:
    """The setting was changed while the proxy ran."""
    name = f"{topic_prefix}shrunk"
    log = KafkaSiteLog(pair.bootstrap, name)
    await log.start()
    admin = AIOKafkaAdminClient(bootstrap_servers=pair.bootstrap)
    try:
        await admin.start()
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {MAX_MESSAGE: "1000"})])
        large = Published(producer="p", incarnation=Incarnation(""), sequence=1, at_ms=0, body=b"x" * 200_000)
        async with asyncio.timeout(30):
            while True:
                # The broker hears of it a moment later.
                try:
                    await log.append([large])
                except LogUnavailable as error:
                    assert f"{name} does not take a record" in error.message
                    assert error.hint is not None and MAX_MESSAGE in error.hint
                    break
                await asyncio.sleep(0.1)
    finally:
        await admin.close()
        await log.close()


@pytest.mark.parametrize("made_by_hand", [False, True])
async def test_records_of_a_proxy_whose_clock_is_ahead_are_taken_or_refused_with_what_to_do(
    pair: KafkaServer, topic_prefix: str, monkeypatch: pytest.MonkeyPatch, made_by_hand: bool
) -> None:
    """A topic that was made by hand has the writer's time, unless its broker is set otherwise."""
    name = f"{topic_prefix}ahead"
    if made_by_hand:
        admin = AIOKafkaAdminClient(bootstrap_servers=pair.bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic(name, 1, 1, topic_configs={CLEANUP: "delete"})])
        await admin.close()
    log = KafkaSiteLog(pair.bootstrap, name)
    await log.start()
    batches = BatchBuilder.append
    ahead_ms = (int(time.time()) + 48 * 3600) * 1000

    def append(self: BatchBuilder, *, timestamp: int | None, key: bytes | None, value: bytes | None) -> Any:
        return batches(self, timestamp=ahead_ms, key=key, value=value)

    monkeypatch.setattr(BatchBuilder, "append", append)
    record = Published(producer="p", incarnation=Incarnation(""), sequence=1, at_ms=0, body=b"x")
    try:
        if not made_by_hand:
            await log.append([record])
            return
        with pytest.raises(LogUnavailable, match=f"{name} does not take a record: the clock") as refusal:
            await log.append([record])
        assert refusal.value.hint is not None and f"{TIMESTAMPS}={BY_BROKER}" in refusal.value.hint
    finally:
        await log.close()
