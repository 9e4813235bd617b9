"""Source and target, joined by a wire that loses, doubles, delays and reorders, over a registry that loses answers."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from handover import machine, source, target
from handover.messages import Aborted, Chunk, ChunkStored, Frozen, Prepare, Prepared, Ready, TransferRefused
from handover.source import SourceState, SourceTransfer
from handover.target import TargetState, TargetTransfer
from waypost.checkpoint import Descriptor
from waypost.errors import UnexpectedInput
from waypost.identity import Epoch, Ownership, ProxyId, SessionId

NAMED = (SessionId("session"), "t-1", Epoch(1))
FIRST = Ownership(ProxyId("s"), Epoch(1))
TIMING = machine.Timing()


class Pair:
    """Both machines in shells as thin as can be: no sessions, only who serves."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.loss, self.answers = self.rng.choice([0, 0.2, 0.6]), self.rng.choice([0, 0.3])
        self.slow_ms = self.rng.choice([5, 300, 4_000])
        self.row = FIRST
        self.now = 0
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.count = 0
        self.source: SourceTransfer | None = None
        self.target = TargetTransfer(NAMED[0], FIRST, ProxyId("t"), NAMED[1], TIMING, 0)
        self.serving: Ownership | None = FIRST
        """What the source serves at; None: it is frozen, or has let go."""
        self.adopted: Ownership | None = None
        self._to_do(self.target, self.target.begin())

    def later(self, wait_ms: int, action: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.queue, (self.now + wait_ms, self.count, action))

    def run(self) -> None:
        while self.now < 60_000:
            if self.now > 20_000:
                self.loss = self.answers = 0
                self.slow_ms = 5
            while self.queue and self.queue[0][0] <= self.now:
                heapq.heappop(self.queue)[2]()
            for side in (self.source, self.target):
                if side is not None:
                    self._to_do(side, side.tick(self.now))
            self.now += 5

    def send(self, message: object) -> None:
        to_source = isinstance(message, Prepare | ChunkStored | Ready | Aborted)
        arrive = self._to_source if to_source else self._to_target
        for _ in range(self.rng.choice([1, 1, 2])):
            if self.rng.random() >= self.loss:
                self.later(self.rng.randint(1, self.slow_ms), lambda: arrive(message))

    def _to_source(self, message: object) -> None:
        if self.source is None and isinstance(message, Prepare) and self.serving:
            self.source = SourceTransfer(NAMED[0], FIRST, ProxyId("t"), NAMED[1], TIMING, self.now)
        if self.source is None or self.source.over:
            if not isinstance(message, Aborted):
                self.send(TransferRefused(*NAMED, "no such transfer"))
            return
        self.feed(self.source, message)
        if self.source.state is SourceState.WAITING and self.rng.random() < 0.5:
            self.feed(self.source, source.Passed())

    def _to_target(self, message: object) -> None:
        if self.target.over:
            if isinstance(message, Frozen) and self.adopted is None:
                self.send(Aborted(*NAMED, "no such transfer"))
            return
        self.feed(self.target, message)
        if self.target.state is TargetState.SHADOWING:
            self.feed(self.target, target.Complete())

    def feed(self, which: SourceTransfer | TargetTransfer, input: Any) -> None:
        try:
            effects = which.step(input, self.now)
        except UnexpectedInput:
            return
        self._to_do(which, effects)

    def _to_do(self, which: SourceTransfer | TargetTransfer, effects: Sequence[object]) -> None:
        for effect in effects:
            match effect:
                case machine.Claim() | machine.ReadOwner():
                    self._ask(which, effect)
                case machine.FindLaterOwner():
                    self.later(5, self._look)
                case source.Freeze() | source.Release():
                    self.serving = None
                case source.Thaw(epoch=epoch):
                    self.serving = Ownership(ProxyId("s"), epoch)
                case target.Adopt():
                    self.adopted = self.target.wanted
                case target.Merge():
                    self.later(5, self._store)
                case _ if type(effect) in MESSAGES:
                    self.send(MESSAGES[type(effect)])

    def _store(self) -> None:
        self.feed(self.target, target.StoreFailed() if self.rng.random() < 0.1 else target.Staged())

    def _look(self) -> None:
        assert self.source is not None
        has_served = self.adopted is not None and self.rng.random() < 0.5
        self.feed(self.source, source.ServedSince() if has_served else source.NothingLater())

    def _ask(self, which: SourceTransfer | TargetTransfer, effect: machine.Claim | machine.ReadOwner) -> None:
        def act() -> None:
            lost = self.rng.random() < self.answers
            if isinstance(effect, machine.Claim) and self.row == effect.expected:
                self.row = effect.new
            given = machine.owner_input(self.row, which.owned, which.wanted)
            if not lost:
                self.later(self.rng.randint(1, 50), lambda: self.feed(which, given))
            elif isinstance(effect, machine.Claim):
                self.later(50, lambda: self.feed(which, machine.ClaimUnknown()))
            # What the registry says, its watch says too, to everybody and later.
            for each in (self.source, self.target):
                if each is not None and self.row != FIRST:
                    self.later(self.rng.randint(50, 500), lambda each=each: self.watch(each))  # type: ignore[misc]

        self.later(self.rng.randint(1, self.slow_ms), act)

    def watch(self, which: SourceTransfer | TargetTransfer) -> None:
        given = machine.owner_input(self.row, which.owned, which.wanted)
        if not (isinstance(given, machine.OwnedByUs) and which.state is SourceState.FROZEN):
            self.feed(which, given)


MESSAGES: dict[type, object] = {
    source.SendPrepared: Prepared(*NAMED, descriptor=Descriptor(), stored=0),
    source.SendChunks: Chunk(*NAMED, number=1, after=None, upto=0, entries=[], checksum=0),
    source.SendFrozen: Frozen(*NAMED, descriptor=Descriptor(), cut={}, chunks=1, oldest=1, next_number=1),
    target.SendPrepare: Prepare(*NAMED),
    target.TakeChunk: ChunkStored(*NAMED, 1),
    target.AcknowledgeChunks: ChunkStored(*NAMED, 1),
    target.SendReady: Ready(*NAMED, {}),
    target.SendAborted: Aborted(*NAMED, "gave up"),
}


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_handover_over_a_faulty_wire_ends_with_one_owner(first: int) -> None:
    for seed in range(first, first + 50):
        pair = Pair(seed)
        pair.run()
        owners = [owner for owner in (pair.serving, pair.adopted) if owner is not None]
        assert owners == [pair.row], f"seed {seed}: served at {owners}, the registry names {pair.row}"
        assert pair.target.over and (pair.source is None or pair.source.over), f"seed {seed} has not ended"


def test_both_endings_happen() -> None:
    ends = set()
    for seed in range(60):
        pair = Pair(seed)
        pair.run()
        ends.add(pair.row)
    assert ends == {FIRST, Ownership(ProxyId("s"), Epoch(2)), Ownership(ProxyId("t"), Epoch(2))}
