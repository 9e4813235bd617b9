"""The ground floor of a run: one clock, a heap of actions, chance, and the trace. It knows no proxies.

Everything happens at a time on one clock, in an order that the seed alone decides. Without a seed every delay is 1 ms,
and nothing is lost. :attr:`Kernel.trace` has all that happened, :attr:`Kernel.narrative` what a person would tell.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

from chaos.simulator.kernel.recorder import VIOLATED, Recording
from waypost.clock import ManualClock

SKEW_MS = 3_600_000
"""So far the clocks of two machines may be apart, where people read them."""


@dataclass(slots=True, frozen=True)
class Faults:
    """Probabilities from 0 to 1, and the longest extra delay of a handover message in ms."""

    loss: float = 0.0
    double: float = 0.0
    slow_ms: int = 0
    answers: float = 0.0
    """An answer of the registry gets lost; half the time the action was never done."""
    writes: float = 0.0
    """A write to a store, changelog or log fails, or its answer gets lost."""


class Kernel:
    """A clock, a heap of actions, a source of chance, and the trace.

    Args:
        seed: of delays and all random events; None: there are none, and every delay is 1 ms.
    """

    def __init__(self, seed: int | None) -> None:
        self.clock = ManualClock(1_000)
        self.seed = seed
        self.rng = random.Random(seed)
        self.tree_rng = random.Random(f"tree {seed}")
        """For the leases of links and the registry's word of the tree, which do not concern sessions."""
        self.faults = Faults()
        self.trace: list[str] = []
        self.narrative: list[str] = []
        self.violations: list[str] = []
        self.recording: Recording | None = None
        self._times: list[int] = []
        """A heap of the times of `_actions`."""
        self._actions: dict[int, list[Callable[[], None]]] = {}
        """Time -> the actions at that time, in order."""
        self._salts = 0

    # ------------------------------------------------------------ time

    def delay(self, most_ms: int = 20) -> int:
        """Return a random delay from 1 to `most_ms` ms; 1 without a seed."""
        return 1 if self.seed is None else 1 + int(self.rng.random() * most_ms)

    def tree_delay(self, most_ms: int = 20) -> int:
        """Return a random delay as :meth:`delay`, of what concerns the tree alone."""
        return 1 if self.seed is None else 1 + int(self.tree_rng.random() * most_ms)

    def later(self, wait_ms: int, action: Callable[[], None]) -> None:
        """Schedule an action, behind those of the same time."""
        at = self.clock.time_ms + wait_ms
        if at in self._actions:
            self._actions[at].append(action)
        else:
            self._actions[at] = [action]
            heappush(self._times, at)

    def run(self, for_ms: int, until: Callable[[], bool] | None = None) -> bool:
        """Let `for_ms` pass, or less if `until` comes true before; return whether it did."""
        times, clock = self._times, self.clock
        end = clock.time_ms + for_ms
        while times and (at := times[0]) <= end:
            if until is not None and at > clock.time_ms and until():
                return True
            clock.time_ms = at
            for action in self._actions[at]:
                # May add to what happens now.
                action()
            if self.recording is not None:
                self.recording.observe(at)
            del self._actions[heappop(times)]
        clock.time_ms = end
        return until is not None and until()

    # ------------------------------------------------------------ chance

    def chances(self, probability: float) -> bool:
        """Return True with this probability."""
        return probability > 0 and self.rng.random() < probability

    def salt(self) -> int:
        """Return 1, 2, 3, ...: another number each time."""
        self._salts += 1
        return self._salts

    def skew(self) -> int:
        """Return the random skew of a clock in ms; 0 without a seed."""
        return 0 if self.seed is None else self.rng.randint(-SKEW_MS, SKEW_MS)

    # ------------------------------------------------------------ trace, narrative and recording

    def note(self, line: str, *, narrate: bool = False, by: str | None = None) -> None:
        """Add a line to the trace, and with `narrate` to the scenario; a picture shows it in the lane `by`, if any."""
        self.trace.append(f"{self.clock.time_ms:6} {line}")
        if narrate:
            self.narrative.append(line)
        if self.recording is not None:
            self.recording.observe(self.clock.time_ms)
            if by is not None:
                self.recording.note(self.clock.time_ms, by, line)

    def carries(self, sender: str, to: str, kind: str, wait_ms: int | None) -> None:
        """Record a message that is under way for `wait_ms`; None: it is lost."""
        if self.recording is not None:
            self.recording.carries(self.clock.time_ms, sender, to, kind, wait_ms)

    def add_violation(self, what: str) -> None:
        """Add a violation, which begins with its kind, such as LOST."""
        self.violations.append(what)
        self.note(f"WRONG {what}", narrate=True, by=VIOLATED)

    def hash(self) -> str:
        """Return a hash of the trace: the same seed gives the same one."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()
