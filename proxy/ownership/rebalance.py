"""Which sessions should be served where, for the load of a site's proxies to be level. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from federation.ports import ProxyRow
from waypost.identity import Ownership, ProxyId, SessionId


class Move(NamedTuple):
    """A session that is to go from its owner to another proxy, as :func:`plan` returns it.

    Args:
        session: the session.
        owner: its row in the registry now.
        target: the proxy that is to have it.
    """

    session: SessionId
    owner: Ownership
    target: ProxyId


def plan(
    owners: Mapping[SessionId, Ownership], proxies: Collection[ProxyRow], drained: Collection[ProxyId]
) -> list[Move]:
    """Return the fewest moves after which the proxies of each site own the same number of sessions, give or take one.

    Sessions stay at their site; a proxy that is being drained neither gives nor takes.

    Args:
        owners: the rows of all sessions; those of proxies that are not in `proxies` are left out.
        proxies: the live proxies.
        drained: the proxies that are being drained.
    """
    loads: dict[ProxyId, list[SessionId]] = {row.proxy: [] for row in proxies if row.proxy not in drained}
    for session, owner in sorted(owners.items()):
        if owner.proxy in loads:
            loads[owner.proxy].append(session)
    sites: dict[str, list[ProxyId]] = defaultdict(list)
    for row in sorted(proxies, key=lambda row: row.proxy):
        if row.proxy in loads:
            sites[row.site].append(row.proxy)
    return [move for site in sorted(sites) for move in _balance({proxy: loads[proxy] for proxy in sites[site]}, owners)]


def _balance(loads: Mapping[ProxyId, list[SessionId]], owners: Mapping[SessionId, Ownership]) -> list[Move]:
    fair, more = divmod(sum(len(load) for load in loads.values()), len(loads))
    fullest = sorted(loads, key=lambda proxy: (-len(loads[proxy]), proxy))
    due = {proxy: fair + (rank < more) for rank, proxy in enumerate(fullest)}
    spare = [session for proxy in fullest for session in loads[proxy][due[proxy] :]]
    room = [proxy for proxy in fullest for _ in range(due[proxy] - len(loads[proxy]))]
    return [Move(session, owners[session], target) for session, target in zip(spare, room, strict=True)]
