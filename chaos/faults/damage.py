"""Damage: a TCP proxy of our own that turns bits over in what proxies say to each other; toxiproxy cannot."""

from __future__ import annotations

import asyncio
import random
from types import TracebackType
from typing import Self

from chaos.servers.process import LOOPBACK, free_port

PEER = b"GET /v1/peer"
SMALLEST = 60
"""Bytes; control frames of a WebSocket are smaller, and pass."""
INTRODUCED = 2
"""Reads from a caller before its frames are sealed: the request and the hello."""


class Damage:
    """Stands before a port. What clients say passes as it is.

    While injected it damages one read in `one_in`, by the seed; `due` of them are damaged in any case, one each.

    Args:
        behind: host:port that is served through it.
        port: where it listens; else any.
    """

    def __init__(self, behind: str, seed: int = 0, *, one_in: int = 20, port: int | None = None) -> None:
        self.port = port or free_port()
        self.due = 0
        self.changed = 0
        self.connections = 0
        """The number of connections of peers."""
        host, _, number = behind.rpartition(":")
        self._behind = (host, int(number))
        self._rng = random.Random(seed)
        self._one_in = one_in
        self._injected = False
        self._listener: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """The address where clients connect, as host:port."""
        return f"{LOOPBACK}:{self.port}"

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, LOOPBACK, self.port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listener is not None:
            self._listener.close()

    async def inject(self) -> None:
        """Begin to damage what proxies send that call this port, one read of theirs in `one_in`, drawn by the seed."""
        self._injected = True

    async def heal(self) -> None:
        """End the damage that :meth:`inject` began; as many more reads as :attr:`due` says are still damaged."""
        self._injected = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection(*self._behind)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._pump(reader, up_writer, inward=True), self._pump(up_reader, writer, inward=False))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, inward: bool) -> None:
        reads = 0
        try:
            while data := await reader.read(65536):
                if reads == 0 and inward:
                    inward = data.startswith(PEER)
                    self.connections += inward
                if inward and reads >= INTRODUCED and len(data) > SMALLEST:
                    data = self._damaged(data)
                reads += 1
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def _damaged(self, data: bytes) -> bytes:
        """Turn the last bit over: of a tag, if frames were read whole."""
        if self.due:
            self.due -= 1
        elif not self._injected or self._rng.randrange(self._one_in):
            return data
        self.changed += 1
        return data[:-1] + bytes([data[-1] ^ 1])
