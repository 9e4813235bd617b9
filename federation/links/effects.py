"""The effects of the ends of links. An effect with `on_done` is answered by one call of it, with the result or the
error, and the time.

Effects are performed in the order in which they come out. Answers may come in any order and at any later time, or
never, if the process dies; an end has at most one append and one read under way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from federation.messages import LinkMessage
from federation.ports import Batch, TreeRow
from waypost.errors import WaypostError
from waypost.identity import Edge, Origin, ProxyId, SiteId
from waypost.records import Record


class SendNeighbour(msgspec.Struct, frozen=True):
    """Send a message to a proxy; it may be lost."""

    proxy: ProxyId
    message: LinkMessage


class AppendRecords(msgspec.Struct, frozen=True):
    """Append records to our site log."""

    records: Sequence[Record]
    on_done: Callable[[list[int] | WaypostError, int], None]


class ReadLog(msgspec.Struct, frozen=True):
    """Read up to `limit` records of our site log from `offset` on."""

    offset: int
    limit: int
    on_done: Callable[[Batch | WaypostError, int], None]


class FindFirst(msgspec.Struct, frozen=True):
    """Find the offset of the first record that our site log keeps."""

    on_done: Callable[[int | WaypostError, int], None]


class FindEnd(msgspec.Struct, frozen=True):
    """Find the offset that the next record of our site log will have, at least."""

    on_done: Callable[[int | WaypostError, int], None]


class Elect(msgspec.Struct, frozen=True):
    """Try to become the leader of `link` under the present lease; answered with the leader's epoch, or None."""

    link: str
    on_done: Callable[[int | WaypostError | None, int], None]


class Resign(msgspec.Struct, frozen=True):
    """Give the leadership of `link` back, if this proxy has it under its present lease; answered with None."""

    link: str
    on_done: Callable[[WaypostError | None, int], None]


class ClaimTree(msgspec.Struct, frozen=True):
    """Compare and set the registry's row of the dispatching tree; answered with whether it was as expected."""

    expected: TreeRow
    new: TreeRow
    on_done: Callable[[bool | WaypostError, int], None]


class Ended(msgspec.Struct, frozen=True):
    """Report to the operator that sending to that site has ended; its leader will open the link again."""

    site: SiteId
    reason: str


class EnteredTree(msgspec.Struct, frozen=True):
    """Report to the operator that the site's log has entered another dispatching tree."""

    epoch: int
    links: Sequence[Edge]


class SeenBeyond(msgspec.Struct, frozen=True):
    """Report that a neighbour, whose proxies are proven, has seen an origin of ours beyond the end of our log as
    read here.
    """

    origin: Origin
    offset: int


LinkEffect = (
    SendNeighbour
    | AppendRecords
    | ReadLog
    | FindFirst
    | FindEnd
    | Elect
    | Resign
    | ClaimTree
    | Ended
    | EnteredTree
    | SeenBeyond
)
