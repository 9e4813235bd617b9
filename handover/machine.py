"""What both sides of a transfer share: inputs, effects, time-outs, and the machine that they are made of.

Both are tables (waypost/table_machine.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Generic

from waypost.clock import NEVER
from waypost.identity import Ownership
from waypost.table_machine import Deadline, EffectT, InputT, TimedMachine

# ---------------------------------------------------------------- inputs that both sides have


@dataclass(frozen=True, slots=True)
class Retry:
    """Input of either side, by the clock: what was sent last has had no answer for `Timing.retry_ms`."""


@dataclass(frozen=True, slots=True)
class PeerGone:
    """Input of either side: the lease of the proxy on the other side has ended."""


@dataclass(frozen=True, slots=True)
class ClaimUnknown:
    """Input of either side, an answer to Claim or ReadOwner: the registry did not answer. The compare-and-set may have
    been applied.
    """


@dataclass(frozen=True, slots=True)
class OwnerUnchanged:
    """Input of either side, an answer to Claim or ReadOwner: the registry still names the source at the epoch that is
    being handed over.
    """


@dataclass(frozen=True, slots=True)
class OwnedByUs:
    """Input of either side, an answer to Claim or ReadOwner, or the watch's report: the registry names this proxy at
    the epoch that it wanted.
    """


@dataclass(frozen=True, slots=True)
class OwnedByOther:
    """Input of either side, an answer to Claim or ReadOwner: the registry names another owner than the two, or another
    epoch.
    """


# ---------------------------------------------------------------- effects that both sides have


@dataclass(frozen=True, slots=True)
class Claim:
    """Effect of either side: compare and set the session's row in the registry, the only commit point of a handover;
    answered with OwnedByUs, OwnerUnchanged, OwnedByOther or ClaimUnknown.

    Args:
        expected: the owner and epoch that must be in force.
        new: the owner and epoch to put in their place.
    """

    expected: Ownership
    new: Ownership


@dataclass(frozen=True, slots=True)
class FindLaterOwner:
    """Effect of the source: find in all changelogs what a later owner wrote; answered NothingLater or ServedSince."""


@dataclass(frozen=True, slots=True)
class ReadOwner:
    """Effect of either side: read the row; answered with OwnerUnchanged, OwnedByUs or OwnedByOther. Where the registry
    does not answer nothing comes, and the next Retry asks again.
    """


@dataclass(frozen=True, slots=True)
class Timing:
    """Time-outs of a transfer, in milliseconds.

    Args:
        retry_ms: a message without an answer is sent again after this time.
    """

    retry_ms: int = 250
    prepare_ms: int = 5_000
    """Time after which the target gives up without a freeze."""
    coverage_ms: int = 500
    """How long the target waits to learn from where it is covered; what is unknown then is caught up later."""
    passing_ms: int = 150
    """How long the source runs on for its frontier to pass what the target is covered from."""
    frozen_ms: int = 3_000
    """Time after which a frozen source takes the session back."""


class TransferMachine(TimedMachine[InputT | Retry, EffectT], Generic[InputT, EffectT]):
    """Base of source and target: a state's deadline, and a timer for what was sent; every progress sets both again."""

    progress: type
    """An input that sets the timers again though the state stays, where a row does something for it."""

    def __init__(self, state: Enum, timing: Timing, now_ms: int) -> None:
        self.timing = timing
        self._retry_at = 0
        super().__init__(state, now_ms)

    def rearm(self, now_ms: int) -> None:
        """Begin the times of the present state anew, from `now_ms` on: until its Deadline, and until the next Retry."""
        super().rearm(now_ms)
        self._retry_at = now_ms + self.timing.retry_ms

    def step(self, input: InputT | Retry | Deadline, now_ms: int) -> list[EffectT]:
        """Take one input; return the effects, to be performed in order. A change of state sets both timers again, and
        so does an input of type :attr:`progress` that has effects.

        Args:
            now_ms: by the caller's clock.

        Raises:
            UnexpectedInput: the table has no row for this input in this state; nothing was changed.
        """
        before = self.state
        effects = super().step(input, now_ms)
        # An input whose row does nothing is no progress: it must not put off what is due.
        if self.state is before and effects and isinstance(input, self.progress):
            self.rearm(now_ms)
        return effects

    def tick(self, now_ms: int) -> list[EffectT]:
        """Step with Deadline or Retry if one is due at `now_ms`; return the effects, to be performed in order. Call it
        at :meth:`next_deadline`; earlier it does nothing.

        Raises:
            UnexpectedInput: the table has no row for a Deadline, or a Retry, in this state.
        """
        if self.over:
            return []
        if now_ms >= self._deadline_at:
            self._deadline_at = now_ms + self.timeout_ms()
            return self.step(Deadline(), now_ms)
        if now_ms >= self._retry_at:
            self._retry_at = now_ms + self.timing.retry_ms
            return self.step(Retry(), now_ms)
        return []

    def timeout_ms(self) -> int:
        """Return how long the present state may last, in milliseconds."""
        return self.timing.prepare_ms

    def next_deadline(self) -> int:
        """Return when :meth:`tick` has something to do, in ms of the caller's clock; NEVER: nothing."""
        return min(super().next_deadline(), NEVER if self.over else self._retry_at)


def owner_input(
    current: Ownership | None, expected: Ownership, wanted: Ownership
) -> OwnedByUs | OwnerUnchanged | OwnedByOther:
    """Return the input that a session's row is to a transfer from `expected` to `wanted`.

    Args:
        current: the row, as read or reported; None: there is none, which counts as another owner.
        expected: the row of the source, at the epoch that is being handed over.
        wanted: the row that this side of the transfer claims.
    """
    if current == wanted:
        return OwnedByUs()
    if current == expected:
        return OwnerUnchanged()
    return OwnedByOther()
