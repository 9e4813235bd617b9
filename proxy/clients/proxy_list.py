"""The proxies that a client may go to instead of this one: what a roaming client chooses among."""

from __future__ import annotations

from proxy.core.environment import Environment
from waypost.clock import NEVER
from waypost.limits import MAX_LISTED_PROXIES
from waypost.messages import Proxies, ProxyAddress

LISTED_MS = 1_000
"""Time for which the same list is sent again, in ms: many clients ask at once, and to sort a thousand proxies takes a
ms. A proxy that has come, or is drained since, is seen that much later.
"""


class ProxyList:
    """The answer to `ListProxies`, made anew when it is asked for and older than LISTED_MS."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._listed = Proxies([])
        self._until_ms = -NEVER

    def listed(self) -> Proxies:
        """Return the live proxies that are not being drained, this one too: of our own site first, then the least
        loaded; MAX_LISTED_PROXIES at most. The list may be as old as LISTED_MS; do not change it.
        """
        if self._env.time.now_ms >= self._until_ms:
            self._until_ms = self._env.time.now_ms + LISTED_MS
            self._listed = Proxies(self._addresses()[:MAX_LISTED_PROXIES])
        return self._listed

    def _addresses(self) -> list[ProxyAddress]:
        cluster, own_site = self._env.cluster, self._env.settings.site
        loads = cluster.loads()
        rows = [row for row in cluster.proxies.values() if row.proxy not in cluster.drains]
        rows.sort(key=lambda row: (row.site != own_site, loads[row.proxy], row.proxy))
        return [ProxyAddress(url=row.url, proxy=row.proxy, site=row.site, load=loads[row.proxy]) for row in rows]
