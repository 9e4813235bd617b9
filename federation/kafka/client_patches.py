"""What this room changes in aiokafka: two faults for which it has no setting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import aiokafka.client
from aiokafka.conn import AIOKafkaConnection
from aiokafka.protocol.metadata import MetadataRequest


class BootstrapConnection(AIOKafkaConnection):  # type: ignore[misc]
    """The connection by which a client learns of a cluster's brokers: it closes itself when the wait for its answer
    is cut short. aiokafka's client forgets it then, open.
    """

    async def send(self, request: Any, expect_response: bool = True) -> Any:
        """Send a request, and return the answer, as AIOKafkaConnection.send does."""
        answer: Awaitable[Any] = super().send(request, expect_response)
        try:
            return await answer
        except asyncio.CancelledError:
            self.close()
            raise


async def open_connection(
    host: str, port: int, *, on_close: Callable[..., object] | None = None, **arguments: Any
) -> AIOKafkaConnection:
    """Return a new connection to a broker, as aiokafka's create_conn does; without `on_close` it is one for a
    bootstrap.
    """
    kind = BootstrapConnection if on_close is None else AIOKafkaConnection
    connection = kind(host, port, on_close=on_close, **arguments)
    await connection.connect()
    return connection


def patch_client() -> None:
    """Mend aiokafka's client, in this process, for good."""
    aiokafka.client.create_conn = open_connection
    # Whoever asks a broker for a topic by name may have it made, empty and with the broker's own settings, in place of
    # one that was lost. aiokafka asks by name, and every few seconds.
    aiokafka.client.MetadataRequest = partial(MetadataRequest, allow_auto_topic_creation=False)
