"""What the registry's watch has reported: live proxies, owners of sessions, drains, changelogs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

from federation.ports import DrainRow, ProxyRow
from waypost.clock import NEVER
from waypost.identity import Incarnation, Ownership, ProxyId, SessionId, SiteId

K = TypeVar("K")
V = TypeVar("V")


class ClusterView:
    """The registry as this proxy knows it: by its watch, and by what the proxy has claimed or read since. Changes go
    through its methods.

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
        self._loads: Counter[ProxyId] = Counter()
        """The number of sessions of each proxy: counted with each change, for a drain asks at every move."""
        self._forgotten: dict[ProxyId, int] = {}
        """Proxies whose row was gone when the watch began anew, and when the lease of each is over, in ms."""
        self._unseen: set[SessionId] = set()
        """Sessions of which the watch has not reported yet what we claimed or read."""
        self.federation = ""
        """The identity of the federation; "": the registry's secret was not read yet."""
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

    def target(self, loads: Mapping[ProxyId, int] | None = None) -> ProxyRow | None:
        """Return the best other proxy for a session; None: there is none.

        Proxies that are drained are left out. One of our own site is preferred, then the one with the fewest sessions.

        Args:
            loads: number of sessions of each proxy; None: by the registry's rows.
        """
        loads = self.loads() if loads is None else loads
        candidates = [row for row in self.proxies.values() if row.proxy not in self.drains and row.proxy != self._proxy]
        return min(
            candidates, key=lambda row: (row.site != self._site, loads.get(row.proxy, 0), row.proxy), default=None
        )

    def loads(self) -> Counter[ProxyId]:
        """Return the number of sessions of each proxy, by the rows of the registry as this view has them; a proxy
        without a session counts 0. Rows of deleted sessions count for NO_PROXY.
        """
        return self._loads.copy()

    # ------------------------------------------------------------ what is reported

    def reloaded(
        self,
        owners: Mapping[SessionId, Ownership],
        proxies: Mapping[ProxyId, ProxyRow],
        changelogs: Mapping[SiteId, str],
        now_ms: int,
    ) -> None:
        """Replace the rows of sessions, proxies and changelogs by those that the registry has now: the watch begins
        anew. Drains stay as they are: :meth:`drain_changed` sets them.

        A proxy without a row counts as live until its lease is over (handover rule 26): where the registry was restored
        from an older copy, that lease has not ended, but is forgotten. :meth:`ended_leases` returns it when it is over.

        Args:
            owners: the rows of all sessions.
            proxies: the rows of all live proxies.
            changelogs: where the checkpoints of each site are; for a site that is not named, its proxies' rows say it.
            now_ms: by the engine's clock.
        """
        self._unseen.clear()
        gone = {proxy: row for proxy, row in self._proxies.items() if proxy not in proxies}
        self._forgotten = {proxy: self._forgotten.get(proxy, now_ms + row.lease_ttl_ms) for proxy, row in gone.items()}
        proxies = {**proxies, **gone}
        _replace(self._owners, owners)
        self._loads = Counter(owner.proxy for owner in owners.values())
        _replace(self._proxies, proxies)
        _replace(self._changelogs, {**{row.site: row.changelog for row in proxies.values()}, **changelogs})
        self.is_watching = True

    def ended_leases(self, now_ms: int) -> list[ProxyRow]:
        """Return the rows that :meth:`reloaded` kept although the registry has none, and whose leases are over.

        They stay until :meth:`proxy_down` removes them.

        Args:
            now_ms: by the engine's clock.
        """
        return [self._proxies[proxy] for proxy, until_ms in self._forgotten.items() if now_ms >= until_ms]

    def next_deadline(self) -> int:
        """Return when :meth:`ended_leases` has something new, in ms of the engine's clock; NEVER: none is forgotten."""
        return min(self._forgotten.values(), default=NEVER)

    def owner_changed(self, session: SessionId, current: Ownership | None) -> None:
        """Set a session's row as the watch reports it; None: it was removed."""
        self._unseen.discard(session)
        self._set_owner(session, current)

    def owned_by(self, session: SessionId, current: Ownership) -> None:
        """Set a session's row as this proxy has claimed or read it. Until the watch reports the row, :meth:`has_seen`
        is False for it.
        """
        if self._owners.get(session) != current:
            self._set_owner(session, current)
            self._unseen.add(session)

    def proxy_up(self, row: ProxyRow) -> None:
        """Set the row of a live proxy, and where its site's checkpoints are."""
        self._proxies[row.proxy] = row
        self._forgotten.pop(row.proxy, None)
        self._changelogs[row.site] = row.changelog

    def proxy_down(self, proxy: ProxyId, incarnation: Incarnation) -> bool:
        """Remove a proxy whose lease has ended; return False, and do nothing, if that incarnation is not known."""
        row = self._proxies.get(proxy)
        if row is None or row.incarnation != incarnation:
            return False
        del self._proxies[proxy]
        self._forgotten.pop(proxy, None)
        return True

    def site_forgotten(self, site: SiteId) -> None:
        """Remove where a site's checkpoints are, unless the site has a live proxy, which has made it known again."""
        if not self.at_site(site):
            self._changelogs.pop(site, None)

    def drain_changed(self, proxy: ProxyId, row: DrainRow | None) -> None:
        """Set the drain of a proxy, as an operator wants it; None: the proxy is not to be drained any more."""
        if row is None:
            self._drains.pop(proxy, None)
        else:
            self._drains[proxy] = row

    def secret_reported(self, federation: str, token_key: bytes) -> None:
        """Set what follows from the registry's secret: the identity of the federation, and the key by which tokens are
        signed (:func:`proxy.clients.tokens.token_key`).
        """
        self.federation = federation
        self.token_key = token_key

    # ------------------------------------------------------------ what follows from it

    def alive(self, proxy: ProxyId) -> bool:
        """Tell whether the proxy has a lease, as far as the watch has reported. True also for a proxy whose row was
        gone when the watch began anew, until :meth:`proxy_down` (:meth:`reloaded`).
        """
        return proxy in self._proxies

    def has_seen(self, session: SessionId, current: Ownership) -> bool:
        """Tell whether the watch has reported this row, and so every lease granted before it (handover rule 26)."""
        return self._owners.get(session) == current and session not in self._unseen

    def is_first(self, proxies: Iterable[ProxyId]) -> bool:
        """Tell whether this proxy has the lowest name of `proxies`, and so is the one of them that does a common task.
        False if this proxy is not among them.
        """
        return self._proxy == min(proxies, default=None)

    @property
    def is_site_reporter(self) -> bool:
        """Whether this proxy, of those of its site, writes snapshots and tells the registry how far the log was read.

        The one with the lowest name does; this proxy counts among them even if it is not in the registry yet.
        """
        return self.is_first([self._proxy, *self.at_site()])

    def at_site(self, site: SiteId | None = None) -> list[ProxyId]:
        """Return the names of the live proxies of a site; None: of our own site."""
        return [row.proxy for row in self._proxies.values() if row.site == (site or self._site)]

    def _set_owner(self, session: SessionId, current: Ownership | None) -> None:
        before = self._owners.get(session)
        if before is not None:
            self._loads[before.proxy] -= 1
            if not self._loads[before.proxy]:
                del self._loads[before.proxy]
        if current is not None:
            self._owners[session] = current
            self._loads[current.proxy] += 1
        elif before is not None:
            del self._owners[session]


def _replace(known: dict[K, V], reported: Mapping[K, V]) -> None:
    known.clear()
    known.update(reported)
