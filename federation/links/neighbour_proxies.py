"""The live proxies of each site, as the registry's watch reports them. Pure."""

from __future__ import annotations

from federation.ports import ProxyDown, ProxyRow, ProxyUp, RegistryEvent, Reloaded
from waypost.identity import ProxyId, SiteId


class NeighbourProxies:
    """Whom the ends of links may ask, by site."""

    def __init__(self) -> None:
        self._rows: dict[ProxyId, ProxyRow] = {}

    def reported(self, event: RegistryEvent) -> None:
        """Take the next event of the registry's watch; one that is about no proxy changes nothing."""
        match event:
            case Reloaded(proxies=proxies):
                self._rows = dict(proxies)
            case ProxyUp(row):
                self._rows[row.proxy] = row
            case ProxyDown(proxy, incarnation):
                known = self._rows.get(proxy)
                if known is not None and known.incarnation == incarnation:
                    del self._rows[proxy]
            case _:
                pass

    def of(self, site: SiteId) -> list[ProxyRow]:
        """Return the rows of the live proxies of a site, sorted by name; empty: none is live."""
        return sorted((row for row in self._rows.values() if row.site == site), key=lambda row: row.proxy)
