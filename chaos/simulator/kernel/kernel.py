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
"""The largest difference between the clocks of two machines, where people read them."""


@dataclass(slots=True, frozen=True)
class Faults:
    """What goes wrong by chance: probabilities from 0 to 1, and a delay. Messages are those between proxies, but for
    those of links.

    Args:
        loss: a message gets lost.
        double: a message arrives twice.
        slow_ms: the longest extra delay of a handover message, in milliseconds.
    """

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
        seed: of delays and all random events; None: nothing happens by chance, and every delay is 1 ms.
    """

    def __init__(self, seed: int | None) -> None:
        self.clock = ManualClock(1_000)
        self.seed = seed
        self.rng = random.Random(seed)
        self.tree_rng = random.Random(f"tree {seed}")
        """For the leases of links and the registry's word of the tree, which do not concern sessions."""
        self.witness_rng = random.Random(f"witness {seed}")
        """For what proxies ask each other of a log, and answer: nothing else changes by it."""
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
        """Return a random delay from 1 to `most_ms` ms, for leases of links and the dispatching tree; 1 without a seed.

        The delay comes from a random source of its own, so that it changes no delay of a session.
        """
        return 1 if self.seed is None else 1 + int(self.tree_rng.random() * most_ms)

    def later(self, wait_ms: int, action: Callable[[], None]) -> None:
        """Schedule an action in `wait_ms` ms, 0 or more, behind those that are scheduled for the same time.

        :meth:`run` performs it.
        """
        at = self.clock.time_ms + wait_ms
        if at in self._actions:
            self._actions[at].append(action)
        else:
            self._actions[at] = [action]
            heappush(self._times, at)

    def run(self, for_ms: int, until: Callable[[], bool] | None = None) -> bool:
        """Perform what is scheduled for the next `for_ms` ms, and set the clock to their end.

        Args:
            for_ms: the time that passes at most.
            until: a condition that is tested before the time goes on to the next action within `for_ms`; once it holds,
                the clock stays where it is. It is tested once more at the end.

        Returns:
            Whether `until` holds; False without it.

        Raises:
            Exception: what an action raises. The other actions of that time are dropped.
        """
        times, clock = self._times, self.clock
        end = clock.time_ms + for_ms
        while times and (at := times[0]) <= end:
            if until is not None and at > clock.time_ms and until():
                return True
            clock.time_ms = at
            try:
                for action in self._actions[at]:
                    # May add to what happens now.
                    action()
                if self.recording is not None:
                    self.recording.observe(at)
            finally:
                del self._actions[heappop(times)]
        clock.time_ms = end
        return until is not None and until()

    # ------------------------------------------------------------ chance

    def chances(self, probability: float) -> bool:
        """Draw from the random source of the run whether something of this probability, from 0 to 1, happens now; False
        without a seed.
        """
        return self.seed is not None and probability > 0 and self.rng.random() < probability

    def salt(self) -> int:
        """Return 1, 2, 3, ...: another number each time."""
        self._salts += 1
        return self._salts

    def skew(self) -> int:
        """Return a random skew of a machine's clock: at most an hour (SKEW_MS) either way, in ms; 0 without a seed."""
        return 0 if self.seed is None else self.rng.randint(-SKEW_MS, SKEW_MS)

    # ------------------------------------------------------------ trace, narrative and recording

    def note(self, line: str, *, narrate: bool = False, by: str | None = None) -> None:
        """Add a line, with the present time, to the trace.

        Args:
            narrate: add the line to the narrative too, without the time.
            by: the lane in which a picture shows the line; None: a picture does not show it.
        """
        self.trace.append(f"{self.clock.time_ms:6} {line}")
        if narrate:
            self.narrative.append(line)
        if self.recording is not None:
            self.recording.observe(self.clock.time_ms)
            if by is not None:
                self.recording.note(self.clock.time_ms, by, line)

    def carries(self, sender: str, to: str, kind: str, wait_ms: int | None) -> None:
        """Record, for a picture alone, that a message is sent now; nothing is delivered by this call.

        Args:
            sender: the lane of the sender: the name of a proxy or client.
            to: the lane of the addressee.
            kind: the name of the message.
            wait_ms: how long the message is under way; None: it is lost.
        """
        if self.recording is not None:
            self.recording.carries(self.clock.time_ms, sender, to, kind, wait_ms)

    def add_violation(self, what: str) -> None:
        """Add a violation to the violations, the trace and the narrative; its first word is its kind, such as LOST."""
        self.violations.append(what)
        self.note(f"WRONG {what}", narrate=True, by=VIOLATED)

    def hash(self) -> str:
        """Return the SHA-256 of the trace, in hex: runs of one seed by the same code have the same one."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()
