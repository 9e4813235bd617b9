"""TLS credentials for Kafka and etcd."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from dataclasses import dataclass

REFUSAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """The trusted authorities, and this proxy's certificate, in the two forms that the libraries need.

    Args:
        certificate: this proxy's certificate chain, as PEM; None: it has none.
        key: the certificate's private key, as PEM; None: it has none.
    """

    context: ssl.SSLContext
    """For Kafka."""
    authorities: bytes
    """The authorities in PEM, for etcd, because gRPC takes no context; so are the next two."""
    certificate: bytes | None = None
    key: bytes | None = None

    async def try_by_hand(self, host: str, port: int) -> None:
        """Connect to a server once over TLS, wait up to 1 s for its refusal, and disconnect, to learn the reason of a
        failure that a library does not report. The connecting has no time limit of its own.

        Raises:
            OSError: the reason; without an error the server accepts the connection.
        """
        reader, writer = await asyncio.open_connection(host, port, ssl=self.context)
        try:
            # A server that rejects our certificate answers only now; otherwise it may send nothing.
            with suppress(TimeoutError):
                async with asyncio.timeout(REFUSAL_S):
                    await reader.read(1)
        finally:
            writer.transport.abort()
