"""Parts of the ends of links that hand over to a test at once what they are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from federation.links.effects import LinkEffect
from federation.links.neighbour_proxies import NeighbourProxies
from federation.links.output import LinkEvent, LinkOutput
from federation.ports import ProxyRow
from waypost.identity import SiteId


class ToTest(LinkOutput):
    """Hands effects, and events, to functions."""

    def __init__(
        self, emit: Callable[[LinkEffect], None], report: Callable[[LinkEvent], None] = lambda event: None
    ) -> None:
        super().__init__()
        self._emit = emit
        self._report = report

    def emit(self, effect: LinkEffect) -> None:
        self._emit(effect)

    def report(self, event: LinkEvent) -> None:
        self._report(event)


class ProxiesOfTest(NeighbourProxies):
    """Live proxies as a function of the test says."""

    def __init__(self, of: Callable[[SiteId], Sequence[ProxyRow]]) -> None:
        super().__init__()
        self._of = of

    def of(self, site: SiteId) -> list[ProxyRow]:
        return list(self._of(site))
