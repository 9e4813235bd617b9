"""The filters that a neighbour requests of a site, as its log has them. Pure.

A request changes what is in force, or states all of it, in one record or in several: no record of a log has room for a
hundred thousand expressions. A change names the *digest* of the filters that it changes, so it has no effect on any
others: after a loss, or an earlier request that came late, the neighbour states all again. Until the last part of that
is in force nothing is removed, so no match is missed meanwhile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from waypost.identity import Origin
from waypost.keys import OPEN, Protection
from waypost.records import FiltersRequested, RequestPart

Wanted = tuple[int, tuple[Protection, ...]]
"""The number of an installation, and the keys by which the expression is wanted."""


class Filter(msgspec.Struct):
    """An expression that a neighbour requested. `at`: our frontier at the log position of the installation. `above`:
    the offsets above which it was announced as effective. `protections`: the keys by which it is wanted there.
    """

    installation: int
    at: dict[Origin, int]
    above: dict[Origin, int] = {}
    protections: tuple[Protection, ...] = (OPEN,)


@dataclass(slots=True)
class FilterChanges:
    """The effect of a request.

    Attributes:
        installed: filters that were installed by it.
        toggled: expressions that were requested before, or are now, and not both.
        changed: these, and those whose keys are others now.
    """

    installed: dict[str, Filter] = field(default_factory=dict)
    toggled: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)


class NeighbourFilters(msgspec.Struct, kw_only=True):
    """The filters that a neighbour requests, with the leader's epoch and serial of the last request.

    `digest`: of all of them. `stated`: the expressions stated since a statement of all began; None: none is under way.
    """

    epoch: int = 0
    serial: int = -1
    filters: dict[str, Filter] = {}
    digest: int = 0
    stated: set[str] | None = None

    @property
    def rank(self) -> tuple[int, int]:
        """The (epoch, serial) of the last request that is in force; a request of a lower or the same rank has no
        effect.
        """
        return self.epoch, self.serial

    def fits(self, request: FiltersRequested) -> bool:
        """Tell whether a request, were it the next one by its rank, would come into force; nothing changes."""
        match request.part:
            case RequestPart.CHANGE:
                return self.stated is None and request.base == self.digest
            case RequestPart.NEXT | RequestPart.LAST:
                return self.stated is not None and request.link_epoch == self.epoch
            case RequestPart.FIRST | RequestPart.ALL:
                return True

    def apply(self, request: FiltersRequested, frontier: Mapping[Origin, int]) -> FilterChanges | None:
        """Apply a request of the site's log; return its effect; None: it has none, for its rank is not higher, or it
        does not fit (handover rule 11).

        Args:
            request: as the log has it.
            frontier: of the site at that position of the log: the start of what is installed newly.
        """
        if rank_of(request) <= self.rank or not self.fits(request):
            return None
        self.epoch, self.serial = rank_of(request)
        changes, at = FilterChanges(), dict(frontier)
        if request.part in (RequestPart.FIRST, RequestPart.ALL):
            self.stated = set()
        if self.stated is not None:
            self.stated.update(request.installations)
        for expression, installation in request.installations.items():
            self._state(expression, installation, request.protections.get(expression, (OPEN,)), at, changes)
        self._remove(request.removed, changes)
        if self.stated is not None and request.part in (RequestPart.LAST, RequestPart.ALL):
            self._remove([expression for expression in self.filters if expression not in self.stated], changes)
            self.stated = None
        return changes

    def _state(
        self,
        expression: str,
        installation: int,
        protections: tuple[Protection, ...],
        at: dict[Origin, int],
        changes: FilterChanges,
    ) -> None:
        known = self.filters.get(expression)
        if known is None:
            changes.toggled.add(expression)
        else:
            self.digest ^= digest_of(expression, (known.installation, known.protections))
        if known is None or known.protections != protections:
            changes.changed.add(expression)
        if known is None or known.installation != installation:
            known = self.filters[expression] = changes.installed[expression] = Filter(installation, at)
        known.protections = protections
        self.digest ^= digest_of(expression, (installation, protections))

    def _remove(self, expressions: Iterable[str], changes: FilterChanges) -> None:
        for expression in expressions:
            known = self.filters.pop(expression, None)
            if known is not None:
                self.digest ^= digest_of(expression, (known.installation, known.protections))
                changes.toggled.add(expression)
                changes.changed.add(expression)


def rank_of(request: FiltersRequested) -> tuple[int, int]:
    """Return the (epoch, serial) of a request: the epoch of the neighbour's leader, and the request's number there."""
    return request.link_epoch, request.serial


def digest_of(expression: str, wanted: Wanted) -> int:
    """Return the digest of one filter, of 64 bits; that of several filters is the exclusive or of theirs.

    Args:
        expression: of the filter, in its canonical text.
        wanted: the installation's number, and the keys by which the expression is wanted.
    """
    encoded = msgspec.msgpack.encode((expression, *wanted))
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest())
