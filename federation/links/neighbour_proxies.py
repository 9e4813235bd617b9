"""The live proxies of each site, as the registry's watch reports them. Pure."""

from __future__ import annotations

from federation.ports import ProxyDown, ProxyRow, ProxyUp, RegistryEvent, Reloaded
from waypost.identity import ProxyId, SiteId


class NeighbourProxies:
    """The proxies that the ends of links may ask, by site."""

    def __init__(self) -> None:
        self._rows: dict[ProxyId, ProxyRow] = {}
        self._of_site: dict[SiteId, list[ProxyRow]] = {}
        """Rows by site, sorted by name; those of a site are missing until somebody asks for them."""

    def reported(self, event: RegistryEvent) -> None:
        """Take the next event of the registry's watch; one that is about no proxy changes nothing."""
        match event:
            case Reloaded(proxies=proxies):
                self._rows = dict(proxies)
                self._of_site.clear()
            case ProxyUp(row):
                self._rows[row.proxy] = row
                self._of_site.clear()
            case ProxyDown(proxy, incarnation):
                known = self._rows.get(proxy)
                if known is not None and known.incarnation == incarnation:
                    del self._rows[proxy]
                    self._of_site.clear()
            case _:
                pass

    def site_of(self, proxy: ProxyId) -> SiteId | None:
        """Return the site of a live proxy; None: none of this name is known."""
        row = self._rows.get(proxy)
        return None if row is None else row.site

    def of(self, site: SiteId) -> list[ProxyRow]:
        """Return the rows of the live proxies of a site, sorted by name; empty: none is live. The list is not to be
        changed.
        """
        if site not in self._of_site:
            rows = [row for row in self._rows.values() if row.site == site]
            self._of_site[site] = sorted(rows, key=lambda row: row.proxy)
        return self._of_site[site]
