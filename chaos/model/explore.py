"""Breadth-first search through every state of a model, with what must hold in each of them."""

from __future__ import annotations

import gc
import time
from array import array
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Generic, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)


class Model(Protocol[S]):
    """What is explored."""

    @property
    def lost(self) -> str:
        """The invariant that does not hold in a state that is not quiescent and has no step but faults."""
        ...

    @property
    def liveness(self) -> str:
        """The invariant that does not hold where no end is reached in which all is well, without another fault."""
        ...

    def initial(self) -> S:
        """Return the state in which every run begins."""

    def steps(self, state: S) -> Iterable[tuple[str, S, str]]:
        """Yield what can happen next: a label, the state after it, and the sort of fault that it is; "": it is no
        fault.
        """
        ...

    def broken(self, state: S) -> str:
        """Return the invariant that does not hold in a state; empty: all hold.

        The explorer asks for every state that it reaches but the initial one.
        """
        ...

    def is_quiescent(self, state: S) -> bool:
        """Tell whether a run may end in a state: all that was to happen has, and all is well."""
        ...


@dataclass(slots=True, kw_only=True)
class Result:
    """What the exploration of a model has found.

    Args:
        states: how many different states were reached.
        steps: how many transitions were played.
        depth: the length of the longest shortest way to a state.
        seconds: how long it took.
        violation: the rule that a state breaks; "": everything held.
        trace: the way to that state, one line a step.
    """

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


class Explorer(Generic[S]):
    """Visits every state once. States are numbered as they are found; only those at the border are kept whole.

    Args:
        most: states after which it gives up.
    """

    def __init__(self, model: Model[S], most: int = 3_000_000) -> None:
        self._model = model
        self._most = most
        self._numbers: dict[S, int] = {}
        self._parents = array("i")
        self._sources, self._targets = array("i"), array("i")
        """Steps that nobody had to break anything for."""
        self._good: list[int] = []
        self.result = Result()

    def run(self) -> Result:
        """Visit every state that can be reached, or up to the first that breaks an invariant; return what was found.

        Call it once. The initial state itself is not checked by :meth:`Model.broken`. Garbage collection is off
        meanwhile, and on afterwards, also if it was off before.

        Raises:
            RuntimeError: there are more states than the constructor's `most`; this is tested after each layer of
                states, so that memory may have held more.
        """
        # Nothing that is made here is a cycle, and looking for some takes longer than everything else.
        gc.disable()
        try:
            return self._explore()
        finally:
            gc.enable()

    def _explore(self) -> Result:
        began = time.perf_counter()
        first = self._model.initial()
        self._numbers[first] = 0
        self._parents.append(-1)
        border = [first]
        if name := self._model.broken(first):
            self._fail(name, 0)
        while border and not self.result.violation:
            border = self._layer(border)
            self.result.depth += bool(border)
        if not self.result.violation:
            self._find_stuck()
        self.result.states = len(self._numbers)
        self.result.seconds = time.perf_counter() - began
        return self.result

    @property
    def states(self) -> Iterable[S]:
        """The states that were reached so far, in the order in which they were."""
        return self._numbers.keys()

    def _layer(self, border: list[S]) -> list[S]:
        """Take every step from every state of the border; return the states that are new."""
        found: list[S] = []
        numbers, result, model = self._numbers, self.result, self._model
        for state in border:
            number, ends = numbers[state], True
            if model.is_quiescent(state):
                self._good.append(number)
            for label, after, fault in model.steps(state):
                result.steps += 1
                result.seen[label] += 1
                known = numbers.get(after)
                if known is None:
                    known = numbers[after] = len(numbers)
                    self._parents.append(number)
                    found.append(after)
                    name = model.broken(after)
                    if name:
                        self._fail(name, known)
                        return []
                if not fault:
                    ends = False
                    self._sources.append(number)
                    self._targets.append(known)
            if ends:
                result.ends += 1
                if not model.is_quiescent(state):
                    self._fail(model.lost, number)
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
            self._fail(self._model.liveness, stuck)

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
            next(label for label, found, _ in self._model.steps(states[before]) if found == states[after])
            for before, after in pairwise(way)
        ]


def explore(model: Model[S], most: int = 3_000_000) -> Result:
    """Visit every state of a model that can be reached, or up to the first that breaks an invariant; return what was
    found.

    The initial state itself is not checked by :meth:`Model.broken`. Garbage collection is off meanwhile, and on
    afterwards.

    Args:
        model: has the first state, the steps and the invariants.
        most: the number of states above which the search ends with an error.

    Raises:
        RuntimeError: there are more states than `most`.
    """
    return Explorer(model, most).run()
