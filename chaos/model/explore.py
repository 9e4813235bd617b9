"""Breadth-first search through every state, with what must hold in each of them."""

from __future__ import annotations

import gc
import time
from array import array
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

from chaos.model.clients import LOSS, owed
from chaos.model.copies import serves
from chaos.model.protocol import initial, steps
from chaos.model.state import A, B, Setup, State

OWNER = "P4 whoever serves is named by the registry, at that epoch"
KEPT = "P1 a promise outlives the proxy that made it"
PLACE = "P5 the session is whole somewhere"
SETTLES = "P5 the session comes to rest again"


@dataclass(slots=True)
class Result:
    """What was found. `violation` empty: everything held."""

    states: int = 0
    steps: int = 0
    depth: int = 0
    seconds: float = 0.0
    ends: int = 0
    """States from which nothing can happen any more."""
    violation: str = ""
    trace: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    """How often which step was taken."""


def broken(setup: Setup, state: State) -> str:
    """Return which invariant does not hold here; empty: all do."""
    if state.wrong:
        return state.wrong
    for which in (A, B):
        copy = state.proxies[which].copy
        if copy is None or not serves(state, which):
            continue
        if (state.row.owner, state.row.epoch) != (which, copy.epoch):
            return OWNER
        if state.promised is not None and (copy.second is None or copy.second.start > state.promised):
            return KEPT
    if not state.row.rebuilt and not any(_whole(state, which) for which in (A, B)):
        return PLACE
    return ""


def _whole(state: State, which: int) -> bool:
    """Tell whether this proxy has the session, in memory or on its disk."""
    proxy = state.proxies[which]
    return any(copy is not None and copy.role != "SHADOW" for copy in (proxy.copy, proxy.disk.copy))


def settled(setup: Setup, state: State) -> bool:
    """Tell whether all was published and all that is owed was given, by an owner that serves on."""
    client = state.client
    if state.published < len(setup.world.kinds) or owed(setup, state) - state.given:
        return False
    if setup.world.subscribes and state.promised is None:
        return False
    return client.attached and serves(state, client.at)


class Explorer:
    """Visits every state once. States are numbered as they are found; only those at the border are kept whole.

    Args:
        most: states after which it gives up.
    """

    def __init__(self, setup: Setup, most: int = 3_000_000) -> None:
        self._setup = setup
        self._most = most
        self._numbers: dict[State, int] = {}
        self._parents = array("i")
        self._sources, self._targets = array("i"), array("i")
        """Steps that nobody had to break anything for."""
        self._good: list[int] = []
        self.result = Result()

    def run(self) -> Result:
        began = time.perf_counter()
        first = initial(self._setup)
        self._numbers[first] = 0
        self._parents.append(-1)
        border = [first]
        while border and not self.result.violation:
            border = self._layer(border)
            self.result.depth += bool(border)
        if not self.result.violation:
            self._find_stuck()
        self.result.states = len(self._numbers)
        self.result.seconds = time.perf_counter() - began
        return self.result

    def _layer(self, border: list[State]) -> list[State]:
        """Take every step from every state of the border; return the states that are new."""
        found: list[State] = []
        numbers, result, setup = self._numbers, self.result, self._setup
        for state in border:
            number, ends = numbers[state], True
            if settled(setup, state):
                self._good.append(number)
            for label, after, fault in steps(setup, state):
                result.steps += 1
                result.seen[label] += 1
                known = numbers.get(after)
                if known is None:
                    known = numbers[after] = len(numbers)
                    self._parents.append(number)
                    found.append(after)
                    name = broken(setup, after)
                    if name:
                        self._fail(name, known)
                        return []
                if not fault:
                    ends = False
                    self._sources.append(number)
                    self._targets.append(known)
            if ends:
                result.ends += 1
                if not settled(setup, state):
                    self._fail(LOSS, number)
                    return []
        if len(numbers) > self._most:
            raise RuntimeError(f"more than {self._most} states")
        return found

    def _find_stuck(self) -> None:
        """Find the first state from which no end is reached in which all is well, without another fault."""
        before: list[list[int]] = [[] for _ in self._parents]
        for source, target in zip(self._sources, self._targets, strict=True):
            before[target].append(source)
        well = bytearray(len(self._parents))
        waiting = list(self._good)
        for number in waiting:
            well[number] = 1
        while waiting:
            for source in before[waiting.pop()]:
                if not well[source]:
                    well[source] = 1
                    waiting.append(source)
        stuck = well.find(0)
        if stuck >= 0:
            self._fail(SETTLES, stuck)

    def _fail(self, name: str, number: int) -> None:
        self.result.violation = name
        self.result.trace = self._trace(number)

    def _trace(self, number: int) -> list[str]:
        """Return the labels of a shortest way to a state."""
        way = [number]
        while self._parents[way[-1]] >= 0:
            way.append(self._parents[way[-1]])
        wanted = set(way)
        states = {each: state for state, each in self._numbers.items() if each in wanted}
        way.reverse()
        return [
            next(step.label for step in steps(self._setup, states[before]) if step.state == states[after])
            for before, after in pairwise(way)
        ]


def explore(setup: Setup, most: int = 3_000_000) -> Result:
    """Visit every state that can be reached, or the first that breaks an invariant."""
    # Nothing that is made here is a cycle, and looking for some takes longer than everything else.
    gc.disable()
    try:
        return Explorer(setup, most).run()
    finally:
        gc.enable()
