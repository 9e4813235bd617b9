"""A state machine whose transitions are data.

A table maps (state, kind of input) to (effects, next state). Only :meth:`TableMachine.step` changes the
state. An input that the table does not list for the state is an error that changes nothing.

Law of the order: effects are performed in the order in which they come out; a later one may rely on an earlier one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from waypost.clock import NEVER
from waypost.errors import UnexpectedInput


@dataclass(frozen=True, slots=True)
class Deadline:
    """Input, by the clock: the time of the present state is over."""


InputT = TypeVar("InputT")
"""What a machine takes: a union of kinds of inputs."""
EffectT = TypeVar("EffectT")
"""What it has performed: a union of kinds of effects."""

Cell = tuple[tuple[type, ...], Enum]
Table = Mapping[tuple[Enum, type], Cell]


class TableMachine(Generic[InputT, EffectT]):
    """A machine whose transitions are data: a state, and one place that changes it.

    Every machine has the same three calls: :meth:`step` takes one input, :meth:`tick` does what is due, and
    :meth:`next_deadline` says when that is. Times are milliseconds of the caller's clock.

    Args:
        state: the state to begin in.
    """

    table: Table
    ended: Enum | None = None
    """The state in which it takes no input any more; None: it has none."""

    def __init__(self, state: Enum) -> None:
        self.state = state

    @property
    def over(self) -> bool:
        """Whether the machine has ended, and takes no input any more."""
        return self.state is self.ended

    def step(self, input: InputT, now_ms: int) -> list[EffectT]:
        """Take one input: change the state as the table says, and return the effects, to be performed in order.

        Args:
            now_ms: by the caller's clock.

        Raises:
            UnexpectedInput: the table has no row for this input in this state; nothing was changed.
        """
        kinds = self._transition(input)
        self.remember(input)
        return [self.effect(kind, input) for kind in kinds]

    def tick(self, now_ms: int) -> list[EffectT]:
        """Return the effects of what is due at `now_ms`. Call it at :meth:`next_deadline`; earlier calls do nothing."""
        return []

    def next_deadline(self) -> int:
        """Return when :meth:`tick` has something to do, in ms of the caller's clock; NEVER: nothing."""
        return NEVER

    def remember(self, input: InputT) -> None:
        """Keep the content of an accepted input that later effects need. Called by :meth:`step` only, after the change
        of state.
        """

    def effect(self, kind: type[Any], input: InputT) -> EffectT:
        """Return the effect of this kind, with the fields that it takes from the input and the machine. Called by
        :meth:`step`, for each kind in the row of the table.

        Args:
            kind: the class of the effect.
            input: the accepted input.
        """
        made: EffectT = kind()
        return made

    def _transition(self, input: InputT) -> tuple[type, ...]:
        """Change the state as the table says, and return the kinds of effects, in order. :meth:`step` makes the effects
        of them.

        Raises:
            UnexpectedInput: the table has no row for this input in this state; nothing was changed.
        """
        cell = self.table.get((self.state, type(input)))
        if cell is None:
            raise UnexpectedInput(
                f"{type(self).__name__} in state {self.state.name} has no row for {type(input).__name__}"
            )
        effects, self.state = cell
        return effects


class TimedMachine(TableMachine[InputT | Deadline, EffectT], Generic[InputT, EffectT]):
    """A machine whose states may last only so long each: then it takes a Deadline.

    Args:
        state: the state to begin in.
        now_ms: the caller's clock.
    """

    def __init__(self, state: Enum, now_ms: int) -> None:
        super().__init__(state)
        self._deadline_at = NEVER
        self.rearm(now_ms)

    def timeout_ms(self) -> int | None:
        """Return how long the present state may last; None: for ever."""
        return None

    def rearm(self, now_ms: int) -> None:
        """Begin the time of the present state anew: it ends :meth:`timeout_ms` after `now_ms` (the caller's clock), and
        :meth:`tick` then steps with a Deadline.
        """
        timeout_ms = self.timeout_ms()
        self._deadline_at = NEVER if timeout_ms is None else now_ms + timeout_ms

    def step(self, input: InputT | Deadline, now_ms: int) -> list[EffectT]:
        """Take one input; return the effects, to be performed in order. A change of state begins the time of the new
        state.

        Args:
            now_ms: by the caller's clock.

        Raises:
            UnexpectedInput: the table has no row for this input in this state; nothing was changed.
        """
        before = self.state
        effects = super().step(input, now_ms)
        if self.state is not before:
            self.rearm(now_ms)
        return effects

    def tick(self, now_ms: int) -> list[EffectT]:
        """Step with a Deadline if the time of the present state is over at `now_ms`; return the effects, to be
        performed in order. Call it at :meth:`next_deadline`; earlier it does nothing.

        Raises:
            UnexpectedInput: the table has no row for a Deadline in this state.
        """
        if self.over or now_ms < self._deadline_at:
            return []
        self.rearm(now_ms)
        return self.step(Deadline(), now_ms)

    def next_deadline(self) -> int:
        """Return when :meth:`tick` has something to do, in ms of the caller's clock; NEVER: nothing."""
        return NEVER if self.over else self._deadline_at


def render(table: Table) -> str:
    """Return a transition table as Markdown; `python -m handover` prints all of them."""
    lines = ["| state | input | effects, in order | next state |", "|---|---|---|---|"]
    for (state, input), (effects, after) in table.items():
        names = ", ".join(effect.__name__ for effect in effects) or "-"
        lines.append(f"| {state.name} | {input.__name__} | {names} | {after.name} |")
    return "\n".join(lines)
