"""`waypost sites`: what the registry knows of each, and what it is to know no more."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from federation.ports import LinkRow, Registry, Reloaded
from federation.site.log_epochs import raised
from node.cli.commands.registry import all_rows, registry_of
from node.configuration.config import NodeConfig
from node.machines.forgotten_site import LOOK_MS, OWNED_MS, OwnershipStability
from waypost.clock import Clock, SystemClock
from waypost.errors import BadArgument, InUse, NotFound, Refused
from waypost.identity import Edge, SessionId, SiteId

MAX_NAMES_SHOWN = 5
"""Names in a refusal."""
STABLE_TIMEOUT_MS = 60_000
"""Time that is waited for sessions to stay with an owner, in ms."""


async def begin_log(config: NodeConfig, site: str, *, as_json: bool) -> None:
    """Have the registry begin the next log epoch of a site, whose log has nothing of the earlier ones (handover rule
    27); print the new log epoch.

    Args:
        config: names the registry, and the TLS files with which to ask it; nothing else of it counts.

    Raises:
        BadConfiguration: these files cannot be used.
        NotFound: there is no such registry, or it knows of no log of that site.
        InUse: a proxy of the site runs.
        Refused: somebody else changed the row at the same time.
        RegistryUnavailable: the registry does not answer.
    """
    async with registry_of(config) as registry:
        row = await registry.site_log(SiteId(site))
        if row is None:
            raise NotFound(f"the registry knows of no log of site {site}", field="site")
        if live := _live(await all_rows(registry), SiteId(site)):
            raise InUse(
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


async def show(config: NodeConfig, *, as_json: bool) -> None:
    """Print the sites that the registry knows, each with its live proxies, its links and the address of its
    checkpoints.

    Args:
        config: names the registry, and the TLS files with which to ask it; nothing else of it counts.

    Raises:
        BadConfiguration: these files cannot be used.
        NotFound: there is no such registry.
        RegistryUnavailable: the registry does not answer.
    """
    async with registry_of(config) as registry:
        state = await all_rows(registry)
    rows = [_described(state, site) for site in _known(state)]
    if as_json:
        print(json.dumps({"v": 1, "sites": rows}))
        return
    if not rows:
        print("there are no sites: a proxy makes its own known, waypost serve --site SITE")
    for row in rows:
        proxies, links = ", ".join(row["proxies"]) or "none", ", ".join(row["links"]) or "none"
        checkpoints = "none" if row["checkpoints"] is None else row["checkpoints"]
        print(f"{row['site']}  proxies: {proxies}; links to: {links}; checkpoints: {checkpoints}")


async def forget(config: NodeConfig, site: str, *, anyway: bool, as_json: bool) -> None:
    """Remove the links of a site, and the address of its checkpoints, from the registry; print what was removed.

    It takes five seconds, longer where sessions move: a session that was taken over just now has to have a checkpoint
    elsewhere first, and nobody knows for how long one has had its owner.

    Args:
        config: names the registry, and the TLS files with which to ask it; nothing else of it counts.
        anyway: whether to do so at once, even if sessions may have their last checkpoint at that site alone.

    Raises:
        BadArgument: `site` is empty.
        BadConfiguration: a TLS file cannot be used.
        NotFound: there is no such registry, or it knows of no such site.
        InUse: a proxy of the site runs.
        Refused: sessions may have their last checkpoint there alone, and not `anyway`.
        RegistryUnavailable: the registry does not answer.
    """
    name = SiteId(site)
    if not name:
        raise BadArgument("a site has a name", field="site", hint="waypost sites ls shows them")
    async with registry_of(config) as registry:
        state = await all_rows(registry)
        if name not in _known(state):
            there = ", ".join(_known(state)) or "none"
            raise NotFound(f"the registry knows of no site {site}, or no more; there are {there}", field="site")
        _refuse_if_live(state, name)
        clock = SystemClock()
        owners = OwnershipStability(state.owners, clock.now_ms())
        may_forget = owners.look(state.owners, state.proxies, clock.now_ms())
        if not may_forget and not anyway:
            await _wait_for_checkpoints(registry, owners, site, clock)
        # First, and all or nothing: a proxy of the site may have begun meanwhile.
        if not await registry.forget_site(name):
            raise InUse(f"a proxy of site {site} has begun to run", field="site", hint="stop it first")
        links = _links(state, name)
        for sites in links:
            await registry.set_link(LinkRow(sites=sites, removed=True), seed=False)
    if as_json:
        print(
            json.dumps(
                {
                    "v": 1,
                    "site": site,
                    "links": [list(sites) for sites in links],
                    "unserved_sessions": len(owners.unserved),
                }
            )
        )
    else:
        removed = ", ".join(" - ".join(sites) for sites in links) or "none"
        print(f"site {site} is forgotten; links removed: {removed}. If it comes back: waypost links add")


def _described(state: Reloaded, site: SiteId) -> dict[str, Any]:
    return {
        "site": site,
        "proxies": _live(state, site),
        "links": [other for sites in _links(state, site) for other in sites if other != site],
        "checkpoints": state.changelogs.get(site),
    }


def _refuse_if_live(state: Reloaded, site: SiteId) -> None:
    if live := _live(state, site):
        raise InUse(
            f"proxies of site {site} run: {', '.join(live)}",
            field="site",
            hint="stop them first, and wait until their leases have ended",
        )


def _refuse_if_unserved(unserved: list[SessionId], site: str) -> None:
    if unserved:
        raise Refused(
            f"{len(unserved)} sessions are owned by proxies that do not run ({_shown(unserved)}); the last checkpoint "
            f"of some may be at {site} alone",
            field="site",
            hint="attach to them first, so that they are taken over; or --anyway: what only it has is lost",
        )


async def _wait_for_checkpoints(registry: Registry, owners: OwnershipStability, site: str, clock: Clock) -> None:
    """Wait until each session has had one owner for a while (node/machines/forgotten_site.py)."""
    _refuse_if_unserved(owners.unserved, site)
    print(f"waiting {OWNED_MS / 1000:g} s: sessions that moved just now get a checkpoint first", file=sys.stderr)
    ends_ms, may_forget = clock.now_ms() + STABLE_TIMEOUT_MS, False
    while not may_forget:
        if clock.now_ms() > ends_ms:
            raise Refused(
                f"{len(owners.waiting)} sessions move again and again ({_shown(owners.waiting)}); the last checkpoint "
                f"of some may be at {site} alone",
                field="site",
                hint="try again later; or --anyway: what only it has is lost",
            )
        await asyncio.sleep(LOOK_MS / 1000)
        state = await all_rows(registry)
        may_forget = owners.look(state.owners, state.proxies, clock.now_ms())
        _refuse_if_unserved(owners.unserved, site)


def _shown(sessions: list[SessionId]) -> str:
    return ", ".join(sessions[:MAX_NAMES_SHOWN]) + (", ..." if len(sessions) > MAX_NAMES_SHOWN else "")


def _known(state: Reloaded) -> list[SiteId]:
    linked = {site for sites, row in state.links.items() if not row.removed for site in sites}
    return sorted(linked.union(state.changelogs, (row.site for row in state.proxies.values())))


def _links(state: Reloaded, site: SiteId) -> list[Edge]:
    return [sites for sites, row in sorted(state.links.items()) if site in sites and not row.removed]


def _live(state: Reloaded, site: SiteId) -> list[str]:
    """Return the proxies of a site that have a lease."""
    return sorted(row.proxy for row in state.proxies.values() if row.site == site)
