"""What the parts of an engine give: effects, events, facts, counts. They only add to it; the engine takes it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from proxy.core.counters import Counters
from proxy.core.effects import Append, Effect, ignore_result
from proxy.core.events import EngineEvent
from proxy.core.journal import Journal
from proxy.core.refusals import Refusals
from waypost.errors import WaypostError
from waypost.records import Record


class Output:
    """What has come out since the engine was last asked.

    Args:
        journal: takes the facts that this proxy attests.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.counters = Counters()
        self.refused = Refusals()
        """Messages of other proxies that were refused."""
        self._effects: list[Effect] = []
        self._events: deque[EngineEvent] = deque()

    def emit(self, effect: Effect) -> None:
        """Add an effect behind the others. The shell begins effects in this order, once the step is over."""
        self._effects.append(effect)

    def append(self, record: Record, on_done: Callable[[list[int] | WaypostError], None] | None = None) -> None:
        """Emit the effect that appends a record to the site log.

        Args:
            on_done: called with a list of the record's one offset, or with the error; None: nobody needs the result.
        """
        self.emit(Append([record], on_done or ignore_result))

    def report(self, event: EngineEvent) -> None:
        """Add an event behind the others; the engine hands it to the parts that it concerns, in the same step."""
        self._events.append(event)

    def next_event(self) -> EngineEvent | None:
        """Remove and return the first event; None: there is none."""
        return self._events.popleft() if self._events else None

    def drain_effects(self) -> list[Effect]:
        """Return the effects since the last call, in order; the journal's facts come last."""
        if attest := self.journal.drain():
            self.emit(attest)
        effects, self._effects = self._effects, []
        return effects
