"""The way to a proxy that is not reached directly: over the sites of the dispatching tree. Pure.

Sites that are linked reach each other; others need not, as the sites behind a gateway. A handover or a catch-up between
them goes from site to site along the tree, each time to any proxy that is reached there (docs/adr/0036-routes.md).
"""

from __future__ import annotations

from collections.abc import Collection, Container

import msgspec

from federation.ports import ProxyRow
from federation.site.dispatching_tree import Tree
from waypost.identity import Incarnation, ProxyId, SiteId


class Routed(msgspec.Struct, frozen=True, tag="routed", kw_only=True):
    """A message of one proxy to another one, which others pass on.

    Args:
        target: the proxy that it is for.
        sender: the proxy that has sent it, in its present `incarnation`.
        passed: how many proxies it has left so far.
        data: the message, encoded.
    """

    target: ProxyId
    sender: ProxyId
    incarnation: Incarnation
    passed: int
    data: bytes


class Routes:
    """The routes of one site.

    Args:
        site: this one.
    """

    def __init__(self, site: SiteId) -> None:
        self._site = site
        self._tree = Tree(-1)
        self._next_hops = self._tree.next_hops(site)

    def next_proxy(
        self, target: ProxyRow, live: Collection[ProxyRow], unreached: Container[ProxyId], tree: Tree, passed: int
    ) -> ProxyRow | None:
        """Return the proxy that a message for `target` goes to, of the next site on the way; None: there is no way.

        Args:
            target: a proxy that is not reached directly.
            live: the proxies that have a lease.
            unreached: proxies to which no connection could be made lately.
            tree: as the site log has it.
            passed: how many proxies the message has left so far. A way has no more of them than there are sites, so a
                message that went in a circle, while sites knew different trees, ends.
        """
        if tree != self._tree:
            self._tree, self._next_hops = tree, tree.next_hops(self._site)
        site = self._next_hops.get(target.site)
        if site is None or passed > len({row.site for row in live}):
            return None
        there = [row for row in live if row.site == site and row.proxy != target.proxy and row.proxy not in unreached]
        return min(there, key=lambda row: row.proxy, default=None)
