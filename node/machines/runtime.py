"""What a proxy's process is told, and in which order its parts hear of it. Pure; node/ and the simulator run the same.

Engine and links are stepped together: what the site log says is folded by the engine before the links pass it on, the
registry's watch is believed by the engine before the links elect by it, and nobody serves, or leads, under a lease that
the other knows to have ended. Links end first, for they speak in the engine's name.

The site log and the registry's watch are streams: one that breaks is opened again after a while, the log's where the
engine has read up to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from federation.link_endpoints import LinkEndpoints
from federation.ports import Batch, OwnerChanged, RegistryEvent
from handover.machine import Deadline, Table, TimedMachine, render
from proxy.engine import Engine
from waypost.identity import Incarnation

REOPEN_MS = 200
"""So long a stream that broke is left alone."""


class StreamState(Enum):
    """Whether a stream can be read."""

    CLOSED = auto()
    OPEN = auto()
    BROKEN = auto()


@dataclass(frozen=True, slots=True)
class Begin:
    """Read the stream from now on."""


@dataclass(frozen=True, slots=True)
class Broke:
    """The stream has ended; by itself it never does."""


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Read what comes, and say Broke when nothing does any more."""


_S = StreamState

STREAM_TABLE: Table = {
    (_S.CLOSED, Begin): ((OpenStream,), _S.OPEN),
    (_S.OPEN, Broke): ((), _S.BROKEN),
    (_S.BROKEN, Deadline): ((OpenStream,), _S.OPEN),
}
_TIMEOUTS_MS: Mapping[Enum, int] = {_S.BROKEN: REOPEN_MS}


class Stream(TimedMachine[Begin | Broke, OpenStream]):
    """A stream that is read for ever: the site log's records, or the events of the registry's watch."""

    table = STREAM_TABLE

    def __init__(self) -> None:
        super().__init__(StreamState.CLOSED, 0)

    def timeout_ms(self) -> int | None:
        """Return how long the present state may last, in milliseconds; None: for ever."""
        return _TIMEOUTS_MS.get(self.state)


class Runtime:
    """The engine and the ends of links of one process.

    After each call the caller performs the effects of the links, and then those of the engine.
    """

    def __init__(self, engine: Engine, links: LinkEndpoints) -> None:
        self.engine = engine
        self.links = links
        self.log = Stream()
        self.watch = Stream()

    def folded(self, records: Batch, now_ms: int) -> int:
        """Take the next records of the site log.

        Args:
            records: what follows the engine's position.
            now_ms: the links' clock.

        Returns:
            How many of them were taken: the engine may have had enough.
        """
        taken = self.engine.log_batch(records)
        self.links.folded(records[:taken], now_ms)
        return taken

    def registry_event(self, event: RegistryEvent, now_ms: int) -> None:
        """Take what the registry's watch reports."""
        self.engine.registry_event(event)
        if not isinstance(event, OwnerChanged):
            self.links.proxies_changed(now_ms)

    def lease_granted(self, incarnation: Incarnation, until_ms: int, now_ms: int) -> None:
        """The registry has announced this incarnation, under a lease until `until_ms` of the engine's clock."""
        self.engine.lease_granted(incarnation, until_ms)
        self.links.lease_granted(now_ms)

    def lease_ended(self) -> None:
        """The lease has ended, or may have: lead no link any more, and serve nothing."""
        self.links.lease_ended()
        self.engine.lease_lost()


if __name__ == "__main__":
    print(render(STREAM_TABLE))
