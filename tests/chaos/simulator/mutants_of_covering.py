"""Bugs in covering: which filters are requested, and what holds of those that another one covers."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from federation.links.filter_exchange import FilterRequester
from federation.messages import LinkWants
from federation.site.requested_filters import RequestChanges, RequestedFilters
from federation.site.state import SiteState
from matching.covering import CoveringIndex
from tests.chaos.simulator.mutation import Mutant, replaced
from waypost.records import RequestPart

_remove, _change, _change_needed = RequestedFilters._remove, FilterRequester._change, RequestedFilters.change


def _leave_uncovered(
    self: RequestedFilters, expression: str, index: CoveringIndex, changes: RequestChanges
) -> set[str]:
    _remove(self, expression, index, changes)
    return set()


def _remove_first(self: FilterRequester, serial: int) -> LinkWants | None:
    wanted = {text for text in self._changed if self._state.wanted(self._neighbour, text) is not None}
    removed = sorted(text for text in self._changed - wanted if text in self._in_force)
    if not removed:
        return _change(self, serial)
    base, self._changed = self._digest, self._changed & wanted
    for text in removed:
        self._want(text)
    return self._request(serial, RequestPart.CHANGE, base, (), tuple(removed))


def _nothing_apart(
    self: RequestedFilters, added: Mapping[str, bool], removed: Collection[str], installation: int
) -> RequestChanges:
    return _change_needed(self, dict.fromkeys(added, False), removed, installation)


MUTANTS = [
    Mutant(
        "covered and forgotten",
        "what a filter covered is not requested when that filter ends",
        replaced(RequestedFilters, "_remove", _leave_uncovered),
        ("LOST", "ASKS"),
        (750000295, 750000796, 750001172),
    ),
    Mutant(
        "removed before added",
        "a covering filter is removed at the neighbour before those are there that it covered",
        replaced(FilterRequester, "_change", _remove_first),
        ("LOST",),
        (750000702, 750000747, 750000941),
    ),
    Mutant(
        "announced for one alone",
        "from where on a covering filter is effective says nothing of what it covers",
        replaced(SiteState, "_cover_as", lambda self, cover, expression, neighbour: []),
        ("STUCK",),
        (21, 24, 632),
    ),
    Mutant(
        "covered by what is near",
        "an expression that may cover another one is taken to cover it",
        replaced(RequestedFilters, "_covers_by_outline", lambda self, wide, narrow: True),
        ("LOST",),
        (750000060, 750000133, 750000134),
    ),
    Mutant(
        "keys of one for all",
        "what is wanted by keys is covered, and the covering filter is requested by its own keys alone",
        replaced(RequestedFilters, "change", _nothing_apart),
        ("QUENCH",),
        (750000085, 750001170, 750001421),
    ),
]
