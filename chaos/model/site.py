"""The far site's log and what it means, as `federation/site/state.py` folds it, for one origin and one proxy there.

Records: ("held", incarnation, kinds as bits, -), ("dropped", incarnation, -, -), ("forwarded", n, -, -), ("progress",
n, -, -), ("effective", kind, installation, above). The link is an ideal pipe: the far site's ask is installed and
announced in one step, wherever the link stands.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from chaos.model.state import Record

Wants = tuple[tuple[int, int], ...]


class Site(NamedTuple):
    """The state of the far site, folded from its log: the model's counterpart of `federation.site.state.SiteState`.

    Args:
        frontier: the number of the last notification that the log has, or has passed over; 0: none.
        interest: (incarnation, kinds as a bit mask) that proxy b has registered; None: nothing is registered.
        wants: (kind, installation) of each filter that the site requests.
        effective: (kind, offset): the log has every match of that kind above the offset.
    """

    frontier: int = 0
    interest: tuple[int, int] | None = None
    wants: Wants = ()
    effective: tuple[tuple[int, int], ...] = ()


@cache
def fold(log: tuple[Record, ...]) -> Site:
    """Return what a log of the far site, or the part of it that was read, means at its end."""
    if not log:
        return Site()
    before, (kind, first, second, third) = fold(log[:-1]), log[-1]
    match kind:
        case "forwarded" | "progress":
            return before._replace(frontier=max(before.frontier, first))
        case "held":
            return _rewant(before._replace(interest=(first, second) if second else None), len(log))
        case "dropped" if before.interest and before.interest[0] == first:
            return _rewant(before._replace(interest=None), len(log))
        case "effective" if (first, second) in before.wants and first not in dict(before.effective):
            known = (*before.effective, (first, max(third, before.frontier)))
            return before._replace(effective=tuple(sorted(known)))
    return before


def _rewant(site: Site, offset: int) -> Site:
    """An installation's number is the offset that turned it on: an off-and-on cannot pass for the earlier one."""
    bits = site.interest[1] if site.interest else 0
    kinds = [kind for kind in (0, 1) if bits & 1 << kind]
    before = dict(site.wants)
    wants = tuple((kind, before.get(kind, offset)) for kind in kinds)
    return site._replace(wants=wants, effective=tuple(each for each in site.effective if each[0] in kinds))


def covered_above(site: Site, bits: int) -> int | None:
    """Return the offset above which the far site's log has every match of all these kinds.

    Args:
        site: the site's state (:func:`fold`).
        bits: the kinds, as a bit mask of kinds 0 and 1; at least one.

    Returns:
        None: not known yet, or the site has no interest in all of these kinds.
    """
    if site.interest is None or bits & ~site.interest[1]:
        return None
    known = dict(site.effective)
    starts = [known.get(kind) for kind in (0, 1) if bits & 1 << kind]
    return None if None in starts else max(start for start in starts if start is not None)
