"""A cluster of which one broker hangs is entered by way of another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from chaos.servers.kafka import KafkaServer
from chaos.servers.process import free_port
from federation.kafka import KafkaSiteLog
from federation.kafka.brokers import PROBE_S, find_answering_broker


@pytest.fixture
async def hung() -> AsyncIterator[str]:
    """The address of a server that accepts connections and answers nothing, like a process that is stopped."""
    held: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: held.append(writer), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    yield f"{host}:{port}"
    server.close()
    for writer in held:
        writer.close()


async def test_the_broker_that_answers_is_found(kafka: KafkaServer, hung: str) -> None:
    absent = f"127.0.0.1:{free_port()}"
    assert await find_answering_broker(f"{hung},{absent},{kafka.bootstrap}", None) == kafka.bootstrap


async def test_where_none_answers_all_are_left(hung: str) -> None:
    addresses = f"{hung},127.0.0.1:{free_port()}"
    async with asyncio.timeout(10 * PROBE_S):
        assert await find_answering_broker(addresses, None) == addresses


async def test_a_site_log_starts_and_appends_while_a_broker_hangs(
    kafka: KafkaServer, hung: str, topic_prefix: str
) -> None:
    """aiokafka asks the addresses in an order of chance: five starts meet the one that hangs first."""
    for _ in range(5):
        log = KafkaSiteLog(f"{hung},{kafka.bootstrap}", f"{topic_prefix}log")
        await log.start()
        assert await log.end_offset() >= 0
        await log.close()
