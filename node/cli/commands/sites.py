"""`waypost sites`: the log of a site begins anew, at an operator's request."""

from __future__ import annotations

import json

from federation.ports import Registry
from federation.site.log_epochs import raised
from node.cli.commands.registry import all_rows, registry_of
from node.configuration.config import NodeConfig
from waypost.errors import NotFound, Refused
from waypost.identity import SiteId


async def begin_log(config: NodeConfig, site: str, *, as_json: bool) -> None:
    """Have the registry begin the next log epoch of the site, whose log has nothing of the earlier ones.

    Raises:
        NotFound: there is no such registry, or it knows of no log of that site.
        Refused: a proxy of the site runs, or somebody else changed the row at the same time.
        RegistryUnavailable: the registry does not answer.
    """
    async with registry_of(config) as registry:
        row = await registry.site_log(SiteId(site))
        if row is None:
            raise NotFound(f"the registry knows of no log of site {site}", field="site")
        if live := await _live(registry, SiteId(site)):
            raise Refused(
                f"site {site} has a log, and proxies of it that run: {', '.join(live)}",
                field="site",
                hint="stop it first, and wait until its lease has ended; what its log has would be told to be lost",
            )
        new = raised(SiteId(site), row, row.seen, 0)
        if not await registry.claim_site_log(SiteId(site), row, new):
            raise Refused("a proxy of the site reads its log at this very time; stop them first", field="site")
    if as_json:
        print(json.dumps({"v": 1, "site": site, "log_epoch": new.log_epoch}))
    else:
        print(f"the log of site {site} begins log epoch {new.log_epoch}; start its proxies at an empty log")


async def _live(registry: Registry, site: SiteId) -> list[str]:
    """Return the proxies of a site that have a lease."""
    proxies = (await all_rows(registry)).proxies
    return sorted(row.proxy for row in proxies.values() if row.site == site)
