"""Which of a cluster's brokers answers: a client learns of all others from it."""

from __future__ import annotations

import asyncio
import ssl

from aiokafka.conn import AIOKafkaConnection, collect_hosts
from aiokafka.errors import KafkaError

PROBE_S = 1.5
"""Time for one of several brokers to answer, in seconds."""


async def find_answering_broker(bootstrap: str, context: ssl.SSLContext | None) -> str:
    """Ask all brokers at once, and return the address, host:port, of the first one that answers within PROBE_S seconds.
    It raises nothing for silence.

    `bootstrap` itself is returned if no broker answers, or if it is one address, which is not asked.

    aiokafka asks addresses one after the other, in an order of chance, and gives each of them the time of a request: a
    broker that hangs would cost every connection as long as that.

    Args:
        bootstrap: addresses, host:port, with commas between.
        context: for TLS; None: without TLS.
    """
    if "," not in bootstrap:
        return bootstrap
    probes = [asyncio.create_task(_probe(address, context)) for address in bootstrap.split(",")]
    try:
        for probe in asyncio.as_completed(probes, timeout=PROBE_S):
            address = await probe
            if address is not None:
                return address
    except TimeoutError:
        pass
    finally:
        for task in probes:
            task.cancel()
        await asyncio.gather(*probes, return_exceptions=True)
    return bootstrap


async def _probe(address: str, context: ssl.SSLContext | None) -> str | None:
    """Return the address if the broker says which versions it speaks; None: it cannot be reached, or is another one."""
    ((host, port, _),) = collect_hosts(address)
    connection = AIOKafkaConnection(
        host,
        port,
        client_id="waypost",
        request_timeout_ms=round(PROBE_S * 1_000),
        ssl_context=context,
        security_protocol="PLAINTEXT" if context is None else "SSL",
    )
    try:
        await connection.connect()
    except (OSError, KafkaError, TimeoutError):
        return None
    else:
        return address
    finally:
        connection.close()
