"""`waypost links`: the links between sites, as the registry has them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from federation.ports import LinkRow, Reloaded
from node.cli.commands.registry import all_rows, registry_of
from node.configuration.config import NodeConfig, plain_name
from waypost.errors import BadArgument, NotFound
from waypost.identity import Edge, SiteId, edge, link_name


async def show(config: NodeConfig, *, as_json: bool) -> None:
    """Print the links between sites, each with whether it is in the dispatching tree, and which directions are up.

    Args:
        config: names the registry, and the TLS files with which to ask it; nothing else of it counts.

    Raises:
        BadConfiguration: these files cannot be used.
        NotFound: there is no such registry.
        RegistryUnavailable: the registry does not answer.
    """
    async with registry_of(config) as registry:
        rows = _described(await all_rows(registry))
    if as_json:
        print(json.dumps({"v": 1, "links": rows}))
        return
    if not rows:
        print("there are no links: waypost links add SITE SITE, or waypost serve --neighbours")
    for row in rows:
        one, other = row["sites"]
        state = "in the tree" if row["in_tree"] else "stands by" if len(row["up"]) == 2 else "is down"
        leaves = f"; passes nothing on: {', '.join(row['leaves'])}" if row["leaves"] else ""
        print(f"{one} - {other}  {state}; up: {', '.join(row['up']) or 'neither direction'}{leaves}")


async def change(config: NodeConfig, one: str, other: str, *, leaves: Sequence[str] | None, as_json: bool) -> None:
    """Add the link between two sites to the registry, change the one that there is, or remove it; print what was done.

    Args:
        config: names the registry, and the TLS files with which to ask it; nothing else of it counts.
        one: a site at one end.
        other: the site at the other end; the order of the two does not matter.
        leaves: the ends of the link, of `one` and `other`, that pass nothing on; None: the link is removed.

    Raises:
        BadArgument: `one` and `other` are the same site, one is no name of a site, or a leaf is no end of the link.
        BadConfiguration: a TLS file cannot be used.
        NotFound: there is no such registry, or no such link to be removed.
        RegistryUnavailable: the registry does not answer.
    """
    removed = leaves is None
    for name in (one, other):
        # A link of a name that no site can have may be there, and is removed.
        if not removed:
            _check_site(name)
    if one == other:
        raise BadArgument(f"a link has two ends, and {one} is one site", field="site")
    sites = edge(SiteId(one), SiteId(other))
    for leaf in leaves or ():
        if leaf not in sites:
            raise BadArgument(f"{leaf} is no end of the link between {one} and {other}", field="leaf")
    ends = tuple(site for site in sites if site in (leaves or ()))
    async with registry_of(config) as registry:
        state = await all_rows(registry)
        known = state.links
        if removed and (sites not in known or known[sites].removed):
            raise NotFound(f"there is no link between {one} and {other}; there are {_names(known)}", field="site")
        await registry.set_link(LinkRow(sites=sites, removed=removed, leaves=ends), seed=False)
    if as_json:
        print(json.dumps({"v": 1, "sites": list(sites), "removed": removed, "leaves": list(ends)}))
    else:
        print(f"the link between {one} and {other} is {'removed' if removed else 'there'}")
    live = {row.site for row in state.proxies.values()}
    for site in sites:
        if not removed and site not in live:
            print(f"hint: no proxy of site {site} runs; is it written so?", file=sys.stderr)


def _check_site(name: str) -> None:
    """Raises BadArgument: no site can have this name."""
    try:
        plain_name(name)
    except ValueError as error:
        raise BadArgument(str(error), field="site") from None


def _described(state: Reloaded) -> list[dict[str, Any]]:
    return [
        {
            "sites": list(sites),
            "in_tree": sites in state.tree.links,
            "leaves": list(row.leaves),
            "up": [
                link
                for link in (link_name(one, other), link_name(other, one))
                if link in state.leaders and live.issuperset(sites)
            ],
        }
        for live in [{row.site for row in state.proxies.values()}]
        for sites, row in sorted(state.links.items())
        for one, other in [sites]
        if not row.removed
    ]


def _names(links: dict[Edge, LinkRow]) -> str:
    return ", ".join(" - ".join(sites) for sites, row in sorted(links.items()) if not row.removed) or "none"
