"""What the ends of links give: effects for the shell, and events for each other. They only add to it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from federation.links.effects import LinkEffect
from waypost.errors import WaypostError
from waypost.identity import SiteId
from waypost.records import FiltersRequested


@dataclass(frozen=True, slots=True)
class SendingEnded:
    """Event of a sending end: it has come to its end.

    Args:
        site: the neighbour that it sent to.
        error: of our log; None: the far site acknowledges nothing any more.
    """

    site: SiteId
    error: WaypostError | None


@dataclass(frozen=True, slots=True)
class RequestAnswered:
    """Event of the forwarding end: the log of this site has decided a neighbour's request of filters.

    Args:
        request: the neighbour's request.
        is_applied: True: these filters are in force. False: the request does not fit those in force, and is refused.
    """

    request: FiltersRequested
    is_applied: bool


LinkEvent = SendingEnded | RequestAnswered


class LinkOutput:
    """What has come out since the ends of links were last asked."""

    def __init__(self) -> None:
        self._effects: list[LinkEffect] = []
        self._events: deque[LinkEvent] = deque()

    def emit(self, effect: LinkEffect) -> None:
        """Add an effect behind the others: in this order the shell begins them."""
        self._effects.append(effect)

    def report(self, event: LinkEvent) -> None:
        """Add an event behind the others; :meth:`next_event` returns it."""
        self._events.append(event)

    def next_event(self) -> LinkEvent | None:
        """Remove and return the first event; None: there is none."""
        return self._events.popleft() if self._events else None

    def drain_effects(self) -> list[LinkEffect]:
        """Remove and return the effects that were emitted since the last call, in order."""
        effects, self._effects = self._effects, []
        return effects
