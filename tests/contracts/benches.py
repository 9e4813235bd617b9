"""A bench makes any number of handles on one backing store, and closes them in the end.

Two at a time are two processes; one after the other is a crash and a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar, runtime_checkable

from federation.journal_segments import Rotation
from federation.ports import Journal, Registry, SiteLog
from waypost.facts import Fact


@runtime_checkable
class Startable(Protocol):
    async def start(self) -> None: ...


class Closable(Protocol):
    async def close(self) -> None: ...


Port = TypeVar("Port", bound=Closable)


class Bench(Generic[Port]):
    def __init__(self, maker: Callable[[], Port]) -> None:
        self._maker = maker
        self._made: list[Port] = []

    async def open(self) -> Port:
        """Return another handle on the same store."""
        port = self._maker()
        self._made.append(port)
        if isinstance(port, Startable):
            await port.start()
        return port

    async def close(self) -> None:
        await asyncio.gather(*(port.close() for port in self._made))


class Logs(Bench[SiteLog]):
    """`truncate(log, before)` makes the store forget the records below."""

    def __init__(self, maker: Callable[[], SiteLog], truncate: Callable[[SiteLog, int], Awaitable[None]]) -> None:
        super().__init__(maker)
        self.truncate = truncate


class Registries(Bench[Registry]):
    """`ttl_ms`: the shortest lease that this registry gives."""

    def __init__(self, maker: Callable[[], Registry], ttl_ms: int) -> None:
        super().__init__(maker)
        self.ttl_ms = ttl_ms


class Journals(Bench[Journal]):
    """`facts()` reads back what was attested; `rotation` is that of journals opened from then on."""

    def __init__(self, maker: Callable[[Rotation], Journal], facts: Callable[[], Awaitable[list[Fact]]]) -> None:
        self.rotation = Rotation()
        super().__init__(lambda: maker(self.rotation))
        self.facts = facts
