"""What this room changes in aiokafka: three faults for which it has no setting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from weakref import WeakSet

import aiokafka.client
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection, CloseReason
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


_closed: WeakSet[AIOKafkaClient] = WeakSet()
_close, _get_conn = AIOKafkaClient.close, AIOKafkaClient._get_conn


async def close_client(client: AIOKafkaClient) -> None:
    """Close a client as AIOKafkaClient.close does, and from now on every connection that it is just opening."""
    _closed.add(client)
    await _close(client)


async def connection_of(client: AIOKafkaClient, node_id: Any, **arguments: Any) -> AIOKafkaConnection | None:
    """Return the connection to a broker, as AIOKafkaClient._get_conn does, and None too if the client is closed.

    A request that was under way when the client was closed may come to its connection only then, and aiokafka would
    leave it open.
    """
    connection = await _get_conn(client, node_id, **arguments)
    if connection is not None and client in _closed:
        connection.close(reason=CloseReason.SHUTDOWN)
        return None
    return connection


def patch_client() -> None:
    """Mend aiokafka's client, in this process, for good."""
    aiokafka.client.create_conn = open_connection
    AIOKafkaClient.close, AIOKafkaClient._get_conn = close_client, connection_of
    # A client that asks a broker for a topic by name may have it made, empty and by the broker's settings, in place
    # of one that was lost. aiokafka asks by name, and every few seconds.
    aiokafka.client.MetadataRequest = partial(MetadataRequest, allow_auto_topic_creation=False)
