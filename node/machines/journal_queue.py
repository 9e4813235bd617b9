"""Facts on their way to the journal: in order, one write at a time, each tried again until the journal has it. Pure.

A fact whose record somebody waits for is written at once, with all before it. One that nobody waits for may wait a
moment for others: a handover has a dozen of them, and each request to the journal costs the proxy time while it moves a
session. Nobody is answered before the journal has what was asked for, nor before those that asked earlier.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from typing import Any

from proxy.core.effects import Attest, ignore_result
from waypost.clock import NEVER
from waypost.facts import Fact
from waypost.limits import FACTS_BYTES
from waypost.table_machine import Deadline, Table, TableMachine, render

LINGER_MS = 20
RETRY_MS = 200
"""Pause before a journal that failed is tried again, in ms."""
FACT_BYTES, COORDINATE_BYTES = 300, 20


class JournalState(Enum):
    """Whether a write is under way."""

    IDLE = auto()
    WRITING = auto()


@dataclass(frozen=True, slots=True)
class Put:
    """Input: facts are to be written, after all that came before them.

    Args:
        attest: the engine's effect, with the facts and who waits for them.
    """

    attest: Attest


@dataclass(frozen=True, slots=True)
class Written:
    """Input, an answer to Write: the journal has the facts of the write that was under way."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Input, an answer to Write: the journal did not say that it has the facts. The same write comes again."""


@dataclass(frozen=True, slots=True)
class Write:
    """Effect: write facts to the journal, in this order; answered with Written or Failed.

    Args:
        facts: one or more.
    """

    facts: list[Fact]


@dataclass(frozen=True, slots=True)
class Answer:
    """Effect, without an answer: tell those who wait that the journal has their facts.

    Args:
        written: the engine's effects, in the order in which they came.
    """

    written: list[Attest]


_S = JournalState

TABLE: Table = {
    (_S.IDLE, Put): ((), _S.IDLE),
    (_S.IDLE, Deadline): ((Write,), _S.WRITING),
    (_S.WRITING, Put): ((), _S.WRITING),
    (_S.WRITING, Written): ((Answer,), _S.IDLE),
    (_S.WRITING, Failed): ((), _S.IDLE),
}


class JournalQueue(TableMachine[Put | Written | Failed | Deadline, Write | Answer]):
    """The queue. Who fills it bounds its length: a node with too much in it reads no more from its clients."""

    table = TABLE

    def __init__(self) -> None:
        super().__init__(JournalState.IDLE)
        self._waiting: deque[Attest] = deque()
        self._under_way = 0
        """The number of batches of facts in the write that is under way."""
        self._due_at = NEVER
        self._retry_at = -NEVER
        """The time before which nothing is written again, since a write has failed."""
        self.bytes = 0
        """Size of all that waits, about."""
        self.written = 0
        """The number of batches that the journal has taken."""

    def __len__(self) -> int:
        return len(self._waiting)

    def step(self, input: Put | Written | Failed | Deadline, now_ms: int) -> list[Write | Answer]:
        """Take one input at `now_ms`; return the effects, to be performed in order.

        A Put is only queued, and :meth:`tick` returns its Write later. Written returns the Answer for that write; after
        Failed the same facts are due again RETRY_MS later.

        Raises:
            UnexpectedInput: Written or Failed came while no write is under way; nothing was changed.
        """
        effects = super().step(input, now_ms)
        match input:
            case Put(attest=attest):
                linger_ms = 0 if attest.on_done is not ignore_result else LINGER_MS
                self._due_at = min(self._due_at, now_ms + linger_ms)
            case Written():
                self._due_at, self._retry_at = now_ms if self._waiting else NEVER, -NEVER
            case Failed():
                self._due_at = self._retry_at = now_ms + RETRY_MS
            case _:
                pass
        return effects

    def tick(self, now_ms: int) -> list[Write | Answer]:
        """Return the Write that is due at `now_ms`; empty: none is. Call it at :meth:`next_deadline`; answer a Write by
        :meth:`step` with Written or Failed.
        """
        return self.step(Deadline(), now_ms) if now_ms >= self.next_deadline() else []

    def next_deadline(self) -> int:
        """Return when :meth:`tick` is due, in ms of the caller's clock; NEVER: nothing waits, or a write goes on."""
        return max(self._due_at, self._retry_at) if self.state is JournalState.IDLE else NEVER

    def remember(self, input: Put | Written | Failed | Deadline) -> None:
        """Put the facts of a Put at the end of the queue; other inputs change nothing. For :meth:`step` only."""
        if isinstance(input, Put):
            self._waiting.append(input.attest)
            self.bytes += _size(input.attest)

    def effect(self, kind: type[Any], input: Put | Written | Failed | Deadline) -> Write | Answer:
        """Return the effect of that kind, and move the queue on. For :meth:`step` only.

        A Write has the next facts, up to the first Attest with which they are more than FACTS_BYTES // 8 bytes. An
        Answer goes to those whose facts were written, which leave the queue. `input` does not count.
        """
        return Write(self._next_facts()) if kind is Write else Answer(self._take_written())

    def _next_facts(self) -> list[Fact]:
        size = 0
        self._under_way = 0
        for attest in self._waiting:
            self._under_way += 1
            size += _size(attest)
            if size > FACTS_BYTES // 8:
                break
        return [fact for attest in islice(self._waiting, self._under_way) for fact in attest.facts]

    def _take_written(self) -> list[Attest]:
        written = [self._waiting.popleft() for _ in range(self._under_way)]
        self.written += len(written)
        self.bytes -= sum(map(_size, written))
        return written


def _size(attest: Attest) -> int:
    """Return about how many bytes these facts are."""
    return sum(FACT_BYTES + COORDINATE_BYTES * (len(fact.offsets) + len(fact.digests)) for fact in attest.facts)


if __name__ == "__main__":
    print(render(TABLE))
