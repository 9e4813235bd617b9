"""The effects of the ends of links. An effect with `on_done` is answered by one call of it, with the result or the
error, and the time.

Effects are performed in the order in which they come out. Answers may come in any order and at any later time, or
never, if the process dies; an end has at most one append and one read under way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from federation.messages import LinkMessage
from federation.ports import Batch, LinkRow, TreeRow
from waypost.errors import WaypostError
from waypost.identity import Edge, Origin, ProxyId, SiteId
from waypost.records import Record


class SendNeighbour(msgspec.Struct, frozen=True):
    """Effect, without an answer: send a message to a proxy of a neighbour; it may be lost.

    Args:
        proxy: the proxy that is to get it.
        message: any message between links.
    """

    proxy: ProxyId
    message: LinkMessage


class AppendRecords(msgspec.Struct, frozen=True):
    """Effect: append records to our site log, in their order.

    Args:
        records: one or more records.
        on_done: takes the offsets that they have in the log, or the error, and the time in milliseconds.
    """

    records: Sequence[Record]
    on_done: Callable[[list[int] | WaypostError, int], None]


class ReadLog(msgspec.Struct, frozen=True):
    """Effect: read records of our site log.

    Args:
        offset: of the first record to read.
        limit: how many records to read at most.
        on_done: takes the records, or the error, and the time in milliseconds.
    """

    offset: int
    limit: int
    on_done: Callable[[Batch | WaypostError, int], None]


class FindFirst(msgspec.Struct, frozen=True):
    """Effect: find the first record that our site log keeps.

    Args:
        on_done: takes its offset, or the error, and the time in milliseconds.
    """

    on_done: Callable[[int | WaypostError, int], None]


class FindEnd(msgspec.Struct, frozen=True):
    """Effect: find the end of our site log.

    Args:
        on_done: takes the least offset that the next record can have, or the error, and the time in milliseconds.
    """

    on_done: Callable[[int | WaypostError, int], None]


class Elect(msgspec.Struct, frozen=True):
    """Effect: try to become the leader of a link under the present lease.

    Args:
        link: the name of the link.
        on_done: takes the epoch of our leadership, None if another proxy leads, or the error, and the time in
            milliseconds.
    """

    link: str
    on_done: Callable[[int | WaypostError | None, int], None]


class Resign(msgspec.Struct, frozen=True):
    """Effect: give the leadership of a link back, if this proxy has it under its present lease.

    Args:
        link: the name of the link.
        on_done: takes None, or the error, and the time in milliseconds.
    """

    link: str
    on_done: Callable[[WaypostError | None, int], None]


class ClaimTree(msgspec.Struct, frozen=True):
    """Effect: compare and set the registry's row of the dispatching tree.

    Args:
        expected: the row that must be in force.
        new: the row to put in its place.
        on_done: takes whether `expected` was in force, and `new` is now, or the error, and the time in milliseconds.
    """

    expected: TreeRow
    new: TreeRow
    on_done: Callable[[bool | WaypostError, int], None]


class RestoreLink(msgspec.Struct, frozen=True):
    """Effect: write the registry's row of a link again, unless there is one.

    Args:
        row: as the registry had it.
        on_done: takes None, or the error, and the time in milliseconds.
    """

    row: LinkRow
    on_done: Callable[[WaypostError | None, int], None]


class Ended(msgspec.Struct, frozen=True):
    """Effect, without an answer: report to the operator that sending to a site has ended; that site's leader will open
    the link again.

    Args:
        site: the site to which records were sent.
        reason: why it has ended, for people.
    """

    site: SiteId
    reason: str


class EnteredTree(msgspec.Struct, frozen=True):
    """Effect, without an answer: report to the operator that the site's log has entered another dispatching tree.

    Args:
        epoch: of the tree; each tree has a greater one than those before it.
        links: the links that the tree uses, each as a pair of sites.
    """

    epoch: int
    links: Sequence[Edge]


class SeenBeyond(msgspec.Struct, frozen=True):
    """Effect, without an answer: report that a neighbour, whose proxies are proven, has seen an origin of ours beyond
    the end of our log as it was read here.

    Args:
        origin: of this site.
        offset: the highest offset that the neighbour has seen.
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
    | RestoreLink
    | Ended
    | EnteredTree
    | SeenBeyond
)
