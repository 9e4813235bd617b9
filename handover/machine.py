"""A state machine whose transitions are data.

A table maps (state, kind of input) to (effects, next state). Only :meth:`Machine.step` changes the state, and it logs
the change. An input that the table does not list for the state is an error that changes nothing.

Law of the order: effects are performed in the order in which they come out; a later one may rely on an earlier one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from waypost.errors import UnexpectedInput
from waypost.identity import Ownership

# ---------------------------------------------------------------- inputs that both sides have


@dataclass(frozen=True, slots=True)
class Retry:
    """What was sent has had no answer for a while."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """Patience is at an end."""


@dataclass(frozen=True, slots=True)
class PeerGone:
    """The lease of the proxy on the other side has ended."""


@dataclass(frozen=True, slots=True)
class ClaimUnknown:
    """The registry did not answer the compare-and-set: it may have been applied."""


@dataclass(frozen=True, slots=True)
class OwnerUnchanged:
    """The registry still names the source at the epoch that is being handed over."""


@dataclass(frozen=True, slots=True)
class OwnedByUs:
    """The registry names this proxy at the epoch that it wanted."""


@dataclass(frozen=True, slots=True)
class OwnedByOther:
    """The registry names somebody else, or another epoch."""


# ---------------------------------------------------------------- effects that both sides have


@dataclass(frozen=True, slots=True)
class Claim:
    """Compare and set the session's row from `expected` to `new`."""

    expected: Ownership
    new: Ownership


@dataclass(frozen=True, slots=True)
class ReadOwner:
    """Read the session's row; the answer is OwnerUnchanged, OwnedByUs or OwnedByOther."""


Cell = tuple[tuple[type, ...], Enum]
Table = Mapping[tuple[Enum, type], Cell]


@dataclass(frozen=True, slots=True)
class Timing:
    """Patience of a transfer, in milliseconds."""

    retry_ms: int = 250
    prepare_ms: int = 5_000
    """Until the target gives up without a freeze."""
    coverage_ms: int = 500
    """How long the target waits to learn from where it is covered; what is unknown then is caught up later."""
    passing_ms: int = 150
    """How long the source runs on for its frontier to pass what the target is covered from."""
    frozen_ms: int = 3_000
    """Until a frozen source takes the session back."""


class Machine:
    """Base of source and target. `trace` is called with every transition that changes the state."""

    table: Table
    ended: Enum

    def __init__(self, state: Enum) -> None:
        self.state = state

    @property
    def over(self) -> bool:
        return self.state is self.ended

    def transition(self, given: object) -> tuple[type, ...]:
        """Change the state as the table says, and return the kinds of effects.

        Raises:
            UnexpectedInput: the table has no row for it; nothing was changed.
        """
        cell = self.table.get((self.state, type(given)))
        if cell is None:
            raise UnexpectedInput(
                f"{type(self).__name__} in state {self.state.name} has no row for {type(given).__name__}"
            )
        effects, self.state = cell
        return effects


def owner_input(current: Ownership | None, expected: Ownership, wanted: Ownership) -> object:
    """Return what a registry row means for a transfer from `expected` to `wanted`."""
    if current == wanted:
        return OwnedByUs()
    if current == expected:
        return OwnerUnchanged()
    return OwnedByOther()


def render(table: Table) -> str:
    """Return the table as Markdown, for the room's README."""
    lines = ["| state | input | effects, in order | next state |", "|---|---|---|---|"]
    for (state, given), (effects, after) in table.items():
        names = ", ".join(effect.__name__ for effect in effects) or "-"
        lines.append(f"| {state.name} | {given.__name__} | {names} | {after.name} |")
    return "\n".join(lines)
