"""What Kafka and etcd are spoken to with over TLS."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from dataclasses import dataclass

REFUSAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """Whom this proxy believes, and the certificate that it shows, in the two forms that the libraries want."""

    context: ssl.SSLContext
    """For Kafka."""
    authorities: bytes
    """This and what follows: the same in PEM, for etcd, because gRPC takes no context."""
    certificate: bytes | None = None
    key: bytes | None = None

    async def try_by_hand(self, host: str, port: int) -> None:
        """Connect, and leave. Raises OSError, which says why that cannot be: the libraries keep it to themselves."""
        reader, writer = await asyncio.open_connection(host, port, ssl=self.context)
        try:
            # Who wants another certificate than ours says so only now; else there may be nothing to hear.
            with suppress(TimeoutError):
                async with asyncio.timeout(REFUSAL_S):
                    await reader.read(1)
        finally:
            writer.transport.abort()
