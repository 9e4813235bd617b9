"""The one shape of a pure machine: it is stepped with inputs, returns effects, and says when time alone is an input.

No machine looks at a clock, waits, or does I/O. A shell steps it, performs the effects in order, answers them by
further inputs, and calls :meth:`Machine.tick` no later than :meth:`Machine.next_deadline`. A node has a shell for each
machine; the simulator has others, over a clock of its own (docs/adr/0023).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

InputT_contra = TypeVar("InputT_contra", contravariant=True)
"""What a machine takes: a union of kinds of inputs."""
EffectT_co = TypeVar("EffectT_co", covariant=True)
"""What it has performed: a union of kinds of effects."""


class Machine(Protocol[InputT_contra, EffectT_co]):
    """A pure machine. Times are milliseconds of the caller's clock, which never steps back."""

    def step(self, input: InputT_contra, now_ms: int) -> Sequence[EffectT_co]:
        """Take one input at `now_ms`; return the effects, to be performed in this order."""
        ...

    def tick(self, now_ms: int) -> Sequence[EffectT_co]:
        """Do what is due at `now_ms`; return the effects, in order. Earlier than it is due it does nothing."""
        ...

    def next_deadline(self) -> int:
        """Return when :meth:`tick` has something to do, in ms of the caller's clock; `waypost.clock.NEVER`: nothing."""
        ...
