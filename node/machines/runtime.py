"""What a proxy's process is told, and in which order its parts hear of it. Pure; node/ and the simulator run the same.

Engine and links are stepped together: what the site log says is folded by the engine before the links pass it on, the
registry's watch is believed by the engine before the links elect by it. A lease that has ended, or that a process which
ends gives back, ends for the links first, for they speak in the engine's name: none of them leads for a proxy that
serves no more.

The site log and the registry's watch are streams: one that breaks is opened again after a while, the log's where the
engine has read up to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from federation.links.effects import LinkEffect
from federation.links.endpoints import LinkEndpoints
from federation.links.inputs import LinkInput, LinksLeaseGranted, LinksLeaseLost, RecordsFolded, RegistryChanged
from federation.ports import OwnerChanged
from proxy.core.effects import Effect
from proxy.core.inputs import EngineInput, LeaseGranted, LeaseLost, Leave, RecordsRead, RegistryReported
from proxy.engine import Engine
from waypost.table_machine import Deadline, Table, TimedMachine, render

RuntimeEffect = LinkEffect | Effect
REOPEN_MS = 200
"""Pause before a stream that broke is opened again, in ms."""


class StreamState(Enum):
    """Whether a stream can be read."""

    CLOSED = auto()
    OPEN = auto()
    BROKEN = auto()


@dataclass(frozen=True, slots=True)
class Begin:
    """Input: read the stream from now on."""


@dataclass(frozen=True, slots=True)
class Broke:
    """Input, the answer to OpenStream: the stream has ended, which it never does by itself."""


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Effect: read what comes; answered with Broke when nothing does any more."""


_S = StreamState

STREAM_TABLE: Table = {
    (_S.CLOSED, Begin): ((OpenStream,), _S.OPEN),
    (_S.OPEN, Broke): ((), _S.BROKEN),
    (_S.BROKEN, Deadline): ((OpenStream,), _S.OPEN),
}
_TIMEOUTS_MS: Mapping[Enum, int] = {_S.BROKEN: REOPEN_MS}


class Stream(TimedMachine[Begin | Broke, OpenStream]):
    """A stream that is read for ever, and opened again REOPEN_MS after it broke: the site log, or the registry's watch.

    Its effect is OpenStream: whoever performs it reads until the stream breaks, and answers Broke.
    """

    table = STREAM_TABLE

    def __init__(self) -> None:
        super().__init__(StreamState.CLOSED, 0)

    def timeout_ms(self) -> int | None:
        """Return how long the present state may last, in ms: REOPEN_MS for a stream that is broken; else None: for
        ever.
        """
        return _TIMEOUTS_MS.get(self.state)


class Runtime:
    """The engine and the ends of links of one process: one input may concern both, and the effects have one order.

    A process has one runtime, with one timer for all that is due in it. :attr:`links` and :attr:`engine` are to be
    read; whoever steps them directly leaves the other out.
    """

    def __init__(self, engine: Engine, links: LinkEndpoints) -> None:
        self.engine = engine
        self.links = links
        self.log = Stream()
        self.watch = Stream()

    def step(self, input: EngineInput | LinkInput, now_ms: int, unix_ms: int | None = None) -> list[RuntimeEffect]:
        """Take one input of the proxy; return the effects of the links and of the engine, to be performed in order.

        Args:
            input: of what concerns the ends of links alone, theirs; of everything else, the engine's.
            now_ms: by the caller's clock, which never steps back.
            unix_ms: Unix time at `now_ms`; None: Unix time has not stepped since a call gave it last.

        Raises:
            WaypostError: the change of an :class:`proxy.core.inputs.Administered` is refused, or a neighbour's message
                is not valid; nothing was changed.
        """
        if isinstance(input, LinkInput):
            return [*self.links.step(input, now_ms)]
        first = self.links.step(LinksLeaseLost(), now_ms) if isinstance(input, LeaseLost | Leave) else []
        effects = self.engine.step(input, now_ms, unix_ms)
        match input:
            case RecordsRead(batch):
                position = self.engine.state.position
                taken = RecordsFolded([record for record in batch if record[0] < position])
                return [*self.links.step(taken, now_ms), *effects]
            case RegistryReported(event) if not isinstance(event, OwnerChanged):
                return [*self.links.step(RegistryChanged(event), now_ms), *effects]
            case LeaseGranted():
                return [*self.links.step(LinksLeaseGranted(), now_ms), *effects]
            case _:
                return [*first, *effects]

    def tick(self, now_ms: int, unix_ms: int | None = None) -> list[RuntimeEffect]:
        """Do what is due at `now_ms` of the links and of the engine; return the effects, to be performed in order.
        `unix_ms`: as of :meth:`step`.
        """
        links = self.links.tick(now_ms) if self.links.next_deadline() <= now_ms else []
        engine = self.engine.tick(now_ms, unix_ms) if self.engine.next_deadline() <= now_ms else []
        return [*links, *engine]

    def next_deadline(self) -> int:
        """Return when :meth:`tick` has something to do, in ms of the caller's clock; NEVER: nothing."""
        return min(self.links.next_deadline(), self.engine.next_deadline())


if __name__ == "__main__":
    print(render(STREAM_TABLE))
