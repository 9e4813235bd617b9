"""Where a proxy begins to read its site's log: where it was, or where it can, if the log has that no more."""

from __future__ import annotations

import structlog

from federation.ports import SiteSnapshot
from federation.site_state import Snapshot, read_snapshot
from node.parts import Parts
from node.troubles import Part, Troubles
from proxy.ports import Restored
from waypost.errors import BadConfiguration, BadRecord
from waypost.identity import SiteId

log = structlog.get_logger("waypost")


async def where_to_begin(
    site: SiteId, parts: Parts, restored: Restored | None, troubles: Troubles
) -> tuple[int, Snapshot | None]:
    """Return the log's first record, and what it meant up to a place, for who cannot go on where it was.

    Args:
        restored: what the proxy's store has.

    Raises:
        BadConfiguration: it is another log than the one that was read here.
    """
    first = int(await troubles.patiently(Part.LOG, parts.log.first))
    end = int(await troubles.patiently(Part.LOG, parts.log.end))
    if restored is None or restored.site.position < first:
        return first, _known(await troubles.patiently(Part.CHANGELOG, parts.changelog.latest_site), first, end)
    if restored.position > end:
        raise BadConfiguration(
            f"the log of site {site} ends at {end}, and this proxy has read it up to {restored.position}: "
            "it is another log",
            field="data",
            hint="bring that log back, or start with an empty folder: sessions are rebuilt from changelog and logs",
        )
    return first, None


def _known(kept: SiteSnapshot | None, first: int, end: int) -> Snapshot | None:
    """Return what the changelog has of the site's state, if it is of use at a log from `first` up to `end`."""
    if kept is None:
        return None
    try:
        known = read_snapshot(kept.state)
    except BadRecord as error:
        log.warning("what the changelog has of the site is not used", error=str(error))
        return None
    if known.position > end:
        log.warning("what the changelog has of the site is of another log", known_up_to=known.position, log_ends_at=end)
        return None
    if known.position < first:
        log.warning("the log begins behind what is known of it", known_up_to=known.position, log_begins_at=first)
    return known
