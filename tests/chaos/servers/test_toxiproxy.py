"""toxiproxy in front of Kafka: a path is cut and healed, and the clients on it go on by themselves."""

from __future__ import annotations

import asyncio
import time

import psutil
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from chaos.servers.kafka import KafkaServer
from chaos.servers.toxiproxy import ToxiproxyServer
from tests.chaos.servers.test_kafka import create, produce
from tests.servers import FaultyPath


async def test_clients_go_on_after_a_cut(kafka: KafkaServer, faulty_kafka: FaultyPath, topic_prefix: str) -> None:
    topic = f"{topic_prefix}cut"
    await create(kafka.bootstrap, topic)
    bootstrap = faulty_kafka.bootstrap
    async with (
        AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True) as producer,
        AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer,
    ):
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        await producer.send_and_wait(topic, b"before", partition=0)
        assert (await consumer.getone()).value == b"before"

        faulty_kafka.proxy.disable()
        during = asyncio.create_task(producer.send_and_wait(topic, b"during", partition=0))
        # The broker itself is well, and others reach it; only those on the path that is cut do not.
        await produce(kafka.bootstrap, topic, [b"beside"])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.getone(), 1)
        assert not during.done()

        faulty_kafka.proxy.enable()
        await asyncio.wait_for(during, 30)
        rest = [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in range(2)]
        assert rest == [b"beside", b"during"]


async def test_a_slow_path_is_slow(kafka: KafkaServer, faulty_kafka: FaultyPath, topic_prefix: str) -> None:
    topic = f"{topic_prefix}slow"
    await create(kafka.bootstrap, topic)
    faulty_kafka.proxy.add_toxic(type="latency", attributes={"latency": 300})
    async with AIOKafkaProducer(bootstrap_servers=faulty_kafka.bootstrap) as producer:
        started = time.monotonic()
        await producer.send_and_wait(topic, b"at last", partition=0)
    assert time.monotonic() - started >= 0.3


def test_no_process_is_left_behind(toxiproxy: ToxiproxyServer) -> None:
    with ToxiproxyServer() as server:
        assert server.process is not None
        pid = server.process.pid
        assert server.client.proxies() == {}
    assert not psutil.pid_exists(pid)
    assert toxiproxy.client.running()
