"""The effects that an engine has asked for, in the order in which the shell begins them."""

from __future__ import annotations

from collections.abc import Callable

from proxy.core.effects import Append, Effect, ignore_result
from waypost.errors import WaypostError
from waypost.records import Record


class Outbox:
    """Effects since the last take."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []

    def emit(self, effect: Effect) -> None:
        """Add an effect behind the others."""
        self._effects.append(effect)

    def append(self, record: Record, on_done: Callable[[list[int] | WaypostError], None] | None = None) -> None:
        """Have the record appended to the site log.

        Args:
            on_done: called with a list of its one offset, or with the error; None: nobody needs the result.
        """
        self.emit(Append([record], on_done or ignore_result))

    def drain(self) -> list[Effect]:
        """Return the effects since the last call, in order."""
        effects, self._effects = self._effects, []
        return effects
