"""The real broker: answers, keeps what it acknowledged over kill -9, says why it does not start."""

from __future__ import annotations

import socket
from pathlib import Path
from uuid import UUID

import psutil
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaTimeoutError, UnknownTopicOrPartitionError

from chaos.servers.kafka import KafkaServer
from chaos.servers.process import LOOPBACK, free_port
from waypost.errors import Unreachable


async def create(bootstrap: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    finally:
        await admin.close()


async def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
        for value in values:
            await producer.send_and_wait(topic, value, partition=0)


async def consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """The first `count` records of partition 0."""
    partition = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        return [(await consumer.getone()).value for _ in range(count)]


async def test_records_come_back_as_they_were_sent(kafka: KafkaServer, topic_prefix: str) -> None:
    topic = f"{topic_prefix}round"
    await create(kafka.bootstrap, topic)
    await produce(kafka.bootstrap, topic, [b"one", b"two"])
    assert await consume(kafka.bootstrap, topic, 2) == [b"one", b"two"]


async def test_a_topic_does_not_make_itself(kafka: KafkaServer, topic_prefix: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, request_timeout_ms=1000) as producer:
        with pytest.raises((KafkaTimeoutError, UnknownTopicOrPartitionError)):
            await producer.send_and_wait(f"{topic_prefix}nobody-made-it", b"lost")


def test_a_store_whose_id_begins_with_a_dash_is_formatted_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.servers.kafka.uuid.uuid4", lambda: UUID(bytes=b"\xf8" * 16))
    with KafkaServer(tmp_path) as server:
        assert server.ready()


async def test_acknowledged_records_survive_kill_and_a_move_to_other_ports(tmp_path: Path) -> None:
    with KafkaServer(tmp_path) as server:
        await create(server.bootstrap, "kept")
        await produce(server.bootstrap, "kept", [b"one"])
        server.kill()
        assert not server.running
        server.start()
        assert await consume(server.bootstrap, "kept", 1) == [b"one"]
        await produce(server.bootstrap, "kept", [b"two"])
    with KafkaServer(tmp_path) as heir:
        assert heir.bootstrap != server.bootstrap
        assert await consume(heir.bootstrap, "kept", 2) == [b"one", b"two"]


def test_no_process_and_no_folder_is_left_behind() -> None:
    server = KafkaServer()
    with server:
        assert server.process is not None
        pid, data = server.process.pid, server.data
        assert psutil.Process(pid).name() == "java"
    assert not psutil.pid_exists(pid)
    del server
    assert not data.exists()


def test_error_for_an_occupied_port_has_the_end_of_the_log() -> None:
    port = free_port()
    with (
        socket.create_server((LOOPBACK, port)),
        pytest.raises(Unreachable, match="kafka ended before") as caught,
    ):
        KafkaServer(port=port).start()
    assert "Address already in use" in (caught.value.hint or "")
