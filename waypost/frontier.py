"""The only kind of cursor: origin -> offset, everything up to there has been seen.

Two proxies cannot compare positions in their own logs, because sites interleave differently. But every log keeps
each origin's notifications in that origin's order, so a frontier means the same everywhere: what lies at or
below it is a repeat, and a gap above it is a loss.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping

from waypost.identity import NOTHING, Coordinate, NotificationId, Origin
from waypost.limits import RECENT_IDS


class Frontier(Mapping[Origin, int]):
    """An immutable frontier. An origin that is not named has been seen up to :data:`NOTHING`."""

    __slots__ = ("_offsets",)

    def __init__(self, offsets: Mapping[Origin, int] | None = None) -> None:
        self._offsets: dict[Origin, int] = dict(offsets or {})

    def __getitem__(self, origin: Origin) -> int:
        return self._offsets.get(origin, NOTHING)

    def __contains__(self, origin: object) -> bool:
        return origin in self._offsets

    def __iter__(self) -> Iterator[Origin]:
        return iter(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)

    def __repr__(self) -> str:
        inside = ", ".join(f"{origin}:{offset}" for origin, offset in sorted(self._offsets.items()))
        return f"Frontier({inside})"

    def covers(self, coordinate: Coordinate) -> bool:
        return coordinate.offset <= self[coordinate.origin]

    def joined(self, other: Mapping[Origin, int]) -> Frontier:
        """Return the frontier that covers what either covers."""
        return Frontier(join(dict(self._offsets), other))

    def reaches(self, other: Mapping[Origin, int]) -> bool:
        """Tell whether everything that `other` covers is covered here too."""
        return all(self[origin] >= offset for origin, offset in other.items())

    def to_dict(self) -> dict[Origin, int]:
        return dict(self._offsets)


def join(into: dict[Origin, int], other: Mapping[Origin, int]) -> dict[Origin, int]:
    """Raise `into`, in place, so that it covers `other` too; return it."""
    for origin, offset in other.items():
        if offset > into.get(origin, NOTHING):
            into[origin] = offset
    return into


class RecentIds:
    """The ids that a receiver was given lately, bounded; the oldest go first.

    The frontier alone does not know a publish that was retried at another origin (handover rules 17 and 18).
    An id enters only when its notification was delivered.
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
        self._ids[identity] = None
        if len(self._ids) > self._limit:
            self._ids.popitem(last=False)
