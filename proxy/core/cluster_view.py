"""What the registry's watch has reported: live proxies, owners of sessions, drains, changelogs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

from federation.ports import DrainRow, ProxyRow
from waypost.identity import Incarnation, Ownership, ProxyId, SessionId, SiteId

K = TypeVar("K")
V = TypeVar("V")


class ClusterView:
    """The registry as this proxy knows it; nobody else changes what is in here.

    Args:
        proxy: our own name.
        site: our own site.
    """

    def __init__(self, proxy: ProxyId, site: SiteId) -> None:
        self._proxy = proxy
        self._site = site
        self._proxies: dict[ProxyId, ProxyRow] = {}
        self._changelogs: dict[SiteId, str] = {}
        self._drains: dict[ProxyId, DrainRow] = {}
        self._owners: dict[SessionId, Ownership] = {}
        self._missed_until: dict[ProxyId, int] = {}
        """Proxies whose row was gone when the watch began anew, and how long each may act, in ms of the clock."""
        self._unseen: set[SessionId] = set()
        """Sessions of which the watch has not reported yet what we claimed or read."""
        self.token_key = b""
        """What tokens are signed with; empty: the registry has not reported the federation's secret yet."""
        self.is_watching = False
        """All rows were reported once."""
        self.proxies: Mapping[ProxyId, ProxyRow] = MappingProxyType(self._proxies)
        """The live proxies."""
        self.changelogs: Mapping[SiteId, str] = MappingProxyType(self._changelogs)
        """Where the checkpoints are of every site that ever had a proxy."""
        self.drains: Mapping[ProxyId, DrainRow] = MappingProxyType(self._drains)
        """Proxies that are to be emptied."""
        self.owners: Mapping[SessionId, Ownership] = MappingProxyType(self._owners)
        """The owner of each session, as the watch reported, or as we claimed or read since."""

    # ------------------------------------------------------------ what is reported

    def reloaded(
        self,
        owners: Mapping[SessionId, Ownership],
        proxies: Mapping[ProxyId, ProxyRow],
        changelogs: Mapping[SiteId, str],
    ) -> None:
        """Take all the rows that there are: the watch begins anew."""
        self._unseen.clear()
        _replace(self._owners, owners)
        _replace(self._proxies, proxies)
        _replace(self._changelogs, changelogs)
        self.is_watching = True

    def missed(self, proxies: Iterable[ProxyId], now_ms: int) -> None:
        """Note which proxies have no row any more, now that the watch begins anew with these.

        Each may act for as long as its lease lasts (handover rule 26): where the registry was restored from an older
        copy, that lease has not ended, but is forgotten.
        """
        for proxy in self._proxies.keys() - proxies:
            self._missed_until[proxy] = now_ms + self._proxies[proxy].lease_ttl_ms

    def owner_changed(self, session: SessionId, current: Ownership | None) -> None:
        """Take what the watch reports; None: there is no such row."""
        self._unseen.discard(session)
        if current is None:
            self._owners.pop(session, None)
        else:
            self._owners[session] = current

    def owned_by(self, session: SessionId, current: Ownership) -> None:
        """Take what we claimed or read ourselves; the watch may report it later."""
        if self._owners.get(session) != current:
            self._owners[session] = current
            self._unseen.add(session)

    def proxy_up(self, row: ProxyRow) -> None:
        """Take the row of a live proxy, and where its site's checkpoints are."""
        self._proxies[row.proxy] = row
        self._missed_until.pop(row.proxy, None)
        self._changelogs[row.site] = row.changelog

    def proxy_down(self, proxy: ProxyId, incarnation: Incarnation) -> bool:
        """The lease of that incarnation has ended; tell whether it was the one that we knew."""
        row = self._proxies.get(proxy)
        if row is None or row.incarnation != incarnation:
            return False
        del self._proxies[proxy]
        return True

    def drain_changed(self, proxy: ProxyId, row: DrainRow | None) -> None:
        """Take what an operator wants of a proxy; None: nothing any more."""
        if row is None:
            self._drains.pop(proxy, None)
        else:
            self._drains[proxy] = row

    def secret_reported(self, token_key: bytes) -> None:
        """Take the key that is made of the federation's secret."""
        self.token_key = token_key

    # ------------------------------------------------------------ what follows from it

    def alive(self, proxy: ProxyId) -> bool:
        """Tell whether the proxy has a lease."""
        return proxy in self._proxies

    def may_act(self, proxy: ProxyId, now_ms: int) -> bool:
        """Tell whether the proxy may have a lease that the registry has forgotten."""
        return now_ms < self._missed_until.get(proxy, now_ms)

    def has_seen(self, session: SessionId, current: Ownership) -> bool:
        """Tell whether the watch has reported this row, and so every lease that was granted before it was written."""
        return self._owners.get(session) == current and session not in self._unseen

    def is_first(self, proxies: Iterable[ProxyId]) -> bool:
        """Tell whether ours is the first name of these: what one of them has to do, that one does."""
        return self._proxy == min(proxies, default=None)

    def at_site(self, site: SiteId | None = None) -> list[ProxyId]:
        """Return the live proxies of a site; None: of ours."""
        return [row.proxy for row in self._proxies.values() if row.site == (site or self._site)]


def _replace(mine: dict[K, V], reported: Mapping[K, V]) -> None:
    mine.clear()
    mine.update(reported)
