"""Both sides of a handover as tests see them: a machine in any state, and one input of every kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import Any

from handover import source, target
from handover.machine import (
    ClaimUnknown,
    OwnedByOther,
    OwnedByUs,
    OwnerUnchanged,
    PeerGone,
    Retry,
    Timing,
    TransferMachine,
)
from handover.messages import (
    Aborted,
    Chunk,
    ChunkStored,
    DeclineReason,
    Frozen,
    Prepare,
    Prepared,
    Ready,
    TransferDeclined,
    TransferRefused,
)
from handover.source import SourceState, SourceTransfer
from handover.target import TargetState, TargetTransfer
from waypost.checkpoint import Descriptor
from waypost.identity import Epoch, Origin, Ownership, ProxyId, SessionId
from waypost.table_machine import Deadline, Table

S, T = ProxyId("s"), ProxyId("t")
SESSION = SessionId("session")
OWNED = Ownership(S, Epoch(7))
TIMING = Timing()
NAMED = (SESSION, "t-1", Epoch(7))

PREPARE, READY = Prepare(*NAMED), Ready(*NAMED, {Origin("A/0"): 5})
CHUNK_STORED, ABORTED = ChunkStored(*NAMED, 1), Aborted(*NAMED, "gave up")
PREPARED, CHUNK = (
    Prepared(*NAMED, descriptor=Descriptor(), stored=0),
    Chunk(*NAMED, number=1, after=None, upto=0, entries=[], checksum=0),
)
FROZEN, REFUSED = (
    Frozen(*NAMED, descriptor=Descriptor(), cut={}, chunks=0, oldest=1, next_number=1),
    TransferRefused(*NAMED, "no"),
)

ALIKE = (Retry(), Deadline(), PeerGone(), ClaimUnknown(), OwnerUnchanged(), OwnedByUs(), OwnedByOther())
TO_SOURCE = (PREPARE, CHUNK_STORED, READY, ABORTED, source.Passed(), source.NothingLater(), source.ServedSince())
TO_TARGET = (
    PREPARED,
    CHUNK,
    FROZEN,
    REFUSED,
    TransferDeclined(*NAMED, DeclineReason.OTHERS_ATTACHED),
    target.Incomplete(),
    target.Complete(),
    target.Staged(),
    target.StoreFailed(),
)


def source_in(state: SourceState = SourceState.COPYING) -> SourceTransfer:
    made = SourceTransfer(SESSION, OWNED, T, "t-1", TIMING, now_ms=0)
    made.state = state
    return made


def target_in(state: TargetState = TargetState.PREPARING) -> TargetTransfer:
    made = TargetTransfer(SESSION, OWNED, T, "t-1", TIMING, now_ms=0)
    made.state = state
    return made


@dataclass(frozen=True, slots=True)
class Side:
    """One side: its table, and every (state, input) that there can be."""

    name: str
    states: type[Enum]
    table: Table
    make: Callable[..., TransferMachine[Any, Any]]
    inputs: dict[type, object]

    @property
    def pairs(self) -> list[tuple[Enum, type]]:
        return list(product(self.states, self.inputs))


SIDES = (
    Side("source", SourceState, source.TABLE, source_in, {type(kind): kind for kind in (*TO_SOURCE, *ALIKE)}),
    Side("target", TargetState, target.TABLE, target_in, {type(kind): kind for kind in (*TO_TARGET, *ALIKE)}),
)
