"""The records of a site log, which proxies write and the audit reads.

A log is a sequence of records at offsets 0, 1, 2, ...; an offset is also the coordinate of a notification that was
first appended there.

Records of a link carry the epoch of the link's leader. After a record of a newer epoch, older ones mean nothing
(:mod:`federation.site.state` says what every record means).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from waypost.checksum import SEAL_BYTES, checksum, is_whole, seal_of, sealed
from waypost.errors import LogUnavailable
from waypost.identity import Edge, Incarnation, Origin, ProxyId, SessionId, SiteId
from waypost.keys import OPEN, Protection


class Published(msgspec.Struct, tag="published", frozen=True, array_like=True, kw_only=True):
    """A notification first appended here. `at_ms`: Unix time by the proxy's clock. `check`: the CRC-32C of the body,
    computed by its producer, or else by the proxy on arrival; it goes with the body as far as the receiver's
    library.
    """

    producer: str
    incarnation: Incarnation
    sequence: int
    at_ms: int
    body: bytes
    protection: Protection = OPEN
    check: int = 0


class Forwarded(msgspec.Struct, tag="forwarded", frozen=True, array_like=True, kw_only=True):
    """A notification of another site, received over a link.

    Args:
        link: the neighbour that sent it.
        link_epoch: of the leader of the link, by which what a stale leader sends is refused.
        origin: where it was appended first.
        offset: in the origin's log, not in this one; with `origin`, its coordinate.
        path: the sites that appended it before this one, in this order.
        producer: the name of its producer; `incarnation` and `sequence` number the notification there.
        at_ms: when it was published, in ms of Unix time.
        body: the encoded attributes, as of :class:`Published`.
        protection: its keys, hashed, and whether it may come where none meet.
        check: of the body, as of :class:`Published`.
    """

    link: SiteId
    link_epoch: int
    origin: Origin
    offset: int
    path: tuple[SiteId, ...]
    producer: str
    incarnation: Incarnation
    sequence: int
    at_ms: int
    body: bytes
    protection: Protection = OPEN
    check: int = 0


class Progress(msgspec.Struct, tag="progress", frozen=True, array_like=True):
    """Record by a link's leader: everything of an origin up to an offset that this site requested has arrived over this
    link.

    Args:
        link: the neighbour from which it came.
        link_epoch: of the leader that appended it.
        origin: the origin.
        upto: an offset in the log of the origin.
    """

    link: SiteId
    link_epoch: int
    origin: Origin
    upto: int


class Effective(msgspec.Struct, tag="effective", frozen=True, array_like=True, kw_only=True):
    """Record by a link's leader: everything of an origin above an offset that matches an expression arrives over this
    link.

    Args:
        link: the neighbour from which it comes.
        link_epoch: of the leader that appended it.
        expression: canonical text of the filter.
        installation: which installation of the filter at the neighbour is meant; an earlier one has ended.
        origin: the origin.
        above: an offset in the log of the origin.
    """

    link: SiteId
    link_epoch: int
    expression: str
    installation: int
    origin: Origin
    above: int


class InterestRegistered(msgspec.Struct, tag="interest-registered", frozen=True, array_like=True):
    """From here on `proxy` needs these expressions for `session`; none: the interest is withdrawn.

    `protections`: the keys of those expressions that are not open to everybody. They do not filter what arrives; they
    are reported to producers that quench.
    """

    proxy: ProxyId
    incarnation: Incarnation
    session: SessionId
    expressions: tuple[str, ...]
    protections: dict[str, tuple[Protection, ...]] = {}


class InterestsExpired(msgspec.Struct, tag="interests-expired", frozen=True, array_like=True):
    """The lease of that incarnation of `proxy` has ended, and every interest that it registered with it."""

    proxy: ProxyId
    incarnation: Incarnation


class InTree(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a neighbour, which means something in one dispatching tree alone.

    Args:
        tree_epoch: of the tree over which the neighbour forwards.
    """

    tree_epoch: int = 0


class RequestPart(StrEnum):
    """What a request of a neighbour is: a change of its filters, or a part of all of them."""

    CHANGE = "change"
    """A change of the filters that have the digest `base`."""
    FIRST = "first"
    NEXT = "next"
    LAST = "last"
    """What is in force and was not stated since the first part is not requested any more."""
    ALL = "all"
    """The first and last part."""


class FilterRequest(InTree, frozen=True, kw_only=True):
    """The common fields of :class:`federation.messages.LinkWants`, which a link's leader sends to a proxy of the
    neighbour, and of :class:`FiltersRequested`, the record of it in the neighbour's log. It is not sent itself. The
    answer is the `applied_serial` or `refused_serial` of a LinkRecords.

    Args:
        removed: canonical texts of filters that are not requested any more, in a CHANGE.
        part: what becomes of the filters that are not named.
        base: in a CHANGE, the digest of all filters before it; one with another digest is refused. Else 0.
    """

    removed: tuple[str, ...] = ()
    part: RequestPart = RequestPart.ALL
    base: int = 0


class FiltersRequested(FilterRequest, tag="filters-requested", frozen=True, array_like=True):
    """From here on neighbour `link` requests these filters, each with the number of its installation.

    `serial` numbers the requests of the leader of epoch `link_epoch`. `protections`: as those of
    :class:`InterestRegistered`.
    """

    link: SiteId
    link_epoch: int
    serial: int
    installations: dict[str, int]
    protections: dict[str, tuple[Protection, ...]] = {}


class Closed(msgspec.Struct, tag="closed", frozen=True, array_like=True):
    """A closing marker: `writer` reports that everything that this log owes up to `frontier` was delivered."""

    writer: str
    at_ms: int
    frontier: dict[Origin, int]


class LogBegun(msgspec.Struct, tag="log-begun", frozen=True, array_like=True, kw_only=True):
    """A log epoch begins here, or is named again: a log may lose its beginning.

    Args:
        federation: the identity of the federation.
        identity: of the site's log, made once and the same in all its log epochs.
        log_epoch: from 1.
        ended: origins of earlier log epochs -> the last offset of it that the log still has, and the highest that was
            seen anywhere, as far as known. Those in between are lost.
        again: the log epoch began before; the records just below belong to it too.
        site: whose log it is; "": not said.
    """

    federation: str
    identity: str
    log_epoch: int
    ended: dict[Origin, tuple[int, int]] = {}
    again: bool = False
    site: str = ""


class OriginEnded(msgspec.Struct, tag="origin-ended", frozen=True, array_like=True, kw_only=True):
    """An origin of another site has ended: another log epoch has begun there.

    Args:
        end: the last offset that its log has.
        seen: the highest offset that was seen anywhere, as far as known; those between `end` and there are lost.
        following: the origin of the next log epoch.
        begins: the offset below which the following origin has nothing.
    """

    link: SiteId
    link_epoch: int
    origin: Origin
    end: int
    seen: int
    following: Origin
    begins: int


class Severed(msgspec.Struct, tag="severed", frozen=True, array_like=True):
    """Notifications of this link above those that have arrived may be lost: coverage begins anew.

    `path`: the sites that report it, each over its link to the next. `origins`: those concerned; none: all of the link.
    """

    link: SiteId
    link_epoch: int
    path: tuple[SiteId, ...]
    origins: tuple[Origin, ...] = ()


class LinkLed(msgspec.Struct, tag="link-led", frozen=True, array_like=True):
    """The first record of a leader's term. Of two with one epoch the first in the log leads (handover rule 12).

    Args:
        link: the neighbour from which the link comes.
        link_epoch: the epoch at which it is led from here on.
        claim: 64 random bits in hex, which tell two leaders of one epoch apart.
    """

    link: SiteId
    link_epoch: int
    claim: str


class TreeEntered(msgspec.Struct, tag="tree-entered", frozen=True, array_like=True):
    """From here on this site forwards over these edges of the dispatching tree, and over no other ones.

    Args:
        tree_epoch: of the registry's row of the tree.
        edges: all edges of the tree, also those of other sites.
    """

    tree_epoch: int
    edges: tuple[Edge, ...]


class Repaired(msgspec.Struct, tag="repaired", frozen=True, array_like=True):
    """A proxy could not read records up to offset `upto`, which may have been of any kind: all interests, filters
    and coverage that the site knows end here, and are stated again behind it (handover rule 29).
    """

    upto: int


class Unreadable(msgspec.Struct, frozen=True):
    """What is read in place of an intact record that this version does not know. It is ignored.

    Args:
        why: what was not understood, for people.
    """

    why: str


class Damaged(msgspec.Struct, frozen=True):
    """A record that is not what was written, or is missing. It may have been of any kind."""

    why: str


_OfLink = Forwarded | Progress | Effective | OriginEnded | Severed | LinkLed
_OfSite = (
    Published | InterestRegistered | InterestsExpired | FiltersRequested | Closed | LogBegun | TreeEntered | Repaired
)
_Known = _OfSite | _OfLink
Record = _Known | Unreadable | Damaged

MISSING = Damaged("it is missing")
_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[_Known] = msgspec.msgpack.Decoder(_Known)


def body_size(record: Record) -> int:
    """Return the bytes of a notification's body; 0: the record is no notification."""
    return len(record.body) if isinstance(record, Published | Forwarded) else 0


def is_altered(record: Record) -> bool:
    """Tell whether the body of a notification differs from the one that its producer's proxy checked. False for other
    records, and where no check is known.
    """
    return isinstance(record, Published | Forwarded) and record.check not in (0, checksum(record.body))


def encode_record(record: Record) -> bytes:
    """Return the record as it is written to a log: encoded, and followed by its checksum.

    Raises:
        LogUnavailable: the body of the notification was altered since it was checked. With a checksum it would look
            intact, and no receiver could accept it.
    """
    if is_altered(record):
        raise LogUnavailable("a notification was altered in memory, and is not written")
    return sealed(_encode(record))


def decode_record(data: bytes | None) -> Record:
    """Return the record of sealed bytes of a log, or an :class:`Unreadable` or :class:`Damaged` in its place. Never
    raises.

    Args:
        data: as the log has it; None: the log has nothing at that offset.
    """
    if data is None or not is_whole(data):
        return Damaged("its checksum is wrong") if data else MISSING
    try:
        return _decoder.decode(data[:-SEAL_BYTES])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return Unreadable(str(error))


def checksum_of(record: Record) -> int:
    """Return a checksum of the encoded record, by which two records are compared; 0: the record is :class:`Unreadable`
    or :class:`Damaged`, and cannot be compared.
    """
    return 0 if isinstance(record, Unreadable | Damaged) else checksum(_encode(record))


SITE_LOG_DDL = (
    "CREATE TABLE IF NOT EXISTS log (offset INTEGER PRIMARY KEY, record BLOB NOT NULL, place INTEGER NOT NULL)"
)
"""The embedded site log: one SQLite file per site, this table, offsets without a gap. `place`: :func:`position_tag`."""


def position_tag(data: bytes, offset: int) -> int:
    """Return the tag of a sealed record at its offset, by which an intact record in a wrong place is noticed."""
    return seal_of(data) ^ offset
