"""The only cursor: by origin, the offset up to which every notification has been seen.

Two proxies cannot compare positions in their own logs, because sites interleave differently. But every log keeps each
origin's notifications in that origin's order, so a frontier means the same everywhere: a coordinate at or below it is a
duplicate, and a gap above it is a loss.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping

from waypost.identity import NOTHING, NotificationId, Origin
from waypost.limits import RECENT_IDS

Frontier = Mapping[Origin, int]
"""An origin that is not named has been seen up to :data:`NOTHING`."""


def join(into: dict[Origin, int], other: Frontier) -> dict[Origin, int]:
    """Raise `into`, in place, so that it covers `other` too; return it."""
    for origin, offset in other.items():
        if offset > into.get(origin, NOTHING):
            into[origin] = offset
    return into


class Selective:
    """A set of coordinates above a frontier: a selective acknowledgement, as in TCP (RFC 2018)."""

    __slots__ = ("_offsets",)

    def __init__(self, rows: Mapping[Origin, Iterable[int]] | None = None) -> None:
        self._offsets: dict[Origin, set[int]] = {}
        for origin, offsets in (rows or {}).items():
            self.add(origin, offsets)

    def __len__(self) -> int:
        return sum(map(len, self._offsets.values()))

    def __bool__(self) -> bool:
        return bool(self._offsets)

    def has(self, origin: Origin, offset: int) -> bool:
        """Tell whether the coordinate is in the set."""
        return offset in self._offsets.get(origin, ())

    def any_of(self, origin: Origin) -> bool:
        """Tell whether the set has a coordinate of this origin."""
        return origin in self._offsets

    def add(self, origin: Origin, offsets: Iterable[int]) -> None:
        """Add offsets of an origin."""
        if new := set(offsets):
            self._offsets.setdefault(origin, set()).update(new)

    def reached(self, frontier: Frontier) -> None:
        """Remove the coordinates that this frontier covers."""
        for origin in self._offsets.keys() & frontier.keys():
            above = {offset for offset in self._offsets[origin] if offset > frontier[origin]}
            if above:
                self._offsets[origin] = above
            else:
                del self._offsets[origin]

    def digest(self) -> int:
        """Return a hash of the set, valid in this process only."""
        return hash(frozenset((origin, frozenset(offsets)) for origin, offsets in self._offsets.items()))

    def rows(self) -> dict[Origin, list[int]]:
        """Return the offsets by origin, ascending."""
        return {origin: sorted(offsets) for origin, offsets in self._offsets.items()}


class RecentIds:
    """The ids of the notifications that a receiver got last, bounded; the oldest are removed first.

    The frontier does not recognise a publish that was retried at another origin (handover rules 17 and 18).

    Args:
        limit: how many ids are kept.
    """

    def __init__(self, limit: int = RECENT_IDS) -> None:
        self._limit = limit
        self._ids: OrderedDict[NotificationId, None] = OrderedDict()

    def __contains__(self, identity: NotificationId) -> bool:
        return identity in self._ids

    def __iter__(self) -> Iterator[NotificationId]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, identity: NotificationId) -> None:
        """Add the id of a notification that was delivered; remove the oldest id past the limit."""
        self._ids[identity] = None
        if len(self._ids) > self._limit:
            self._ids.popitem(last=False)
