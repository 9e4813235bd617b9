"""The records of a site log: the shape that the service writes and the audit reads.

A log is a sequence of records at offsets
0, 1, 2, ...; an offset is also the coordinate of a notification that was first appended there.

Records of a link carry the epoch of the link's leader. After a record of a newer epoch, older ones mean nothing
(:mod:`federation.site_state` says what every record means).
"""

from __future__ import annotations

import msgspec

from waypost.checksum import SEAL_BYTES, checksum, is_whole, seal_of, sealed
from waypost.errors import LogUnavailable
from waypost.identity import Incarnation, Origin, ProxyId, SessionId, SiteId
from waypost.keys import OPEN, Protection


class Published(msgspec.Struct, tag="published", frozen=True, array_like=True, kw_only=True):
    """A notification first appended here. `at_ms`: the proxy's clock, Unix time. `check`: the CRC-32C of the body, as
    its producer, or else the proxy's door, took it; it goes with it as far as the receiver's library.
    """

    producer: str
    incarnation: Incarnation
    sequence: int
    at_ms: int
    body: bytes
    protection: Protection = OPEN
    check: int = 0


class Forwarded(msgspec.Struct, tag="forwarded", frozen=True, array_like=True, kw_only=True):
    """A notification of another site, come over a link. `path`: the sites it was appended at before; `check`: as
    of :class:`Published`.
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
    """Silence, spoken: of `origin`, everything up to `upto` that this site asked for has come."""

    link: SiteId
    link_epoch: int
    origin: Origin
    upto: int


class Effective(msgspec.Struct, tag="effective", frozen=True, array_like=True, kw_only=True):
    """From above `above` on, everything of `origin` that matches `expression` comes over this link."""

    link: SiteId
    link_epoch: int
    expression: str
    installation: int
    origin: Origin
    above: int


class InterestRegistered(msgspec.Struct, tag="interest-registered", frozen=True, array_like=True):
    """From here on `proxy` needs these expressions for `session`; none: it needs nothing more.

    `protections`: by which keys, of those that are not open to everybody. It decides nothing of what comes; it is told
    to producers who ask (quench).
    """

    proxy: ProxyId
    incarnation: Incarnation
    session: SessionId
    expressions: tuple[str, ...]
    protections: dict[str, tuple[Protection, ...]] = {}


class InterestsExpired(msgspec.Struct, tag="interests-expired", frozen=True, array_like=True):
    """The lease of that life of `proxy` has ended; what it held is held no more."""

    proxy: ProxyId
    incarnation: Incarnation


class FiltersRequested(msgspec.Struct, tag="filters-requested", frozen=True, array_like=True):
    """From here on neighbour `link` wants exactly these: expression -> its number of the installation.

    `protections`: as those of :class:`InterestRegistered`.
    """

    link: SiteId
    link_epoch: int
    serial: int
    installations: dict[str, int]
    protections: dict[str, tuple[Protection, ...]] = {}


class Closed(msgspec.Struct, tag="closed", frozen=True, array_like=True):
    """A closing marker: `writer` says that up to `frontier` all that this log owes has been handed over."""

    writer: str
    at_ms: int
    frontier: dict[Origin, int]


class LogBegun(msgspec.Struct, tag="log-begun", frozen=True, array_like=True, kw_only=True):
    """A log epoch begins here, or is named again: a log may forget its beginning.

    Args:
        federation: the identity of the federation.
        identity: of the site's log, made once and the same in all its log epochs.
        log_epoch: from 1.
        ended: origins of earlier log epochs -> the last offset of it that the log still has, and the highest that
            anybody is known to have seen. What lies between is lost.
    """

    federation: str
    identity: str
    log_epoch: int
    ended: dict[Origin, tuple[int, int]] = {}
    again: bool = False
    """The log epoch began before: what stands just below belongs to it too."""


class OriginEnded(msgspec.Struct, tag="origin-ended", frozen=True, array_like=True, kw_only=True):
    """An origin of another site has ended: another log epoch has begun there.

    Args:
        end: up to here its log has it.
        seen: up to here anybody is known to have seen it; what lies between `end` and there is lost.
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
    """Of what comes over this link, of any origin, something above what has come may be lost: coverage begins anew.

    `path`: the sites that say so, each over its link to the next.
    """

    link: SiteId
    link_epoch: int
    path: tuple[SiteId, ...]


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


class Repaired(msgspec.Struct, tag="repaired", frozen=True, array_like=True):
    """Some proxy could not read records up to offset `upto`, which may have been of any kind: all that the site knows
    of holds, asks and coverage ends here, and is said again behind it (handover rule 29).
    """

    upto: int


class Unreadable(msgspec.Struct, frozen=True):
    """What stands in a log whole, and is no record of this version: it means nothing, and stops nobody."""

    why: str


class Damaged(msgspec.Struct, frozen=True):
    """What stands in a log and is not what was written, or does not stand there any more. It may have been anything."""

    why: str


_OfLink = Forwarded | Progress | Effective | OriginEnded | Severed | LinkLed
_Known = Published | InterestRegistered | InterestsExpired | FiltersRequested | Closed | LogBegun | Repaired | _OfLink
Record = _Known | Unreadable | Damaged

MISSING = Damaged("it is missing")
_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[_Known] = msgspec.msgpack.Decoder(_Known)


def body_size(record: Record) -> int:
    """Return the bytes of a notification's body; 0: it is none."""
    return len(record.body) if isinstance(record, Published | Forwarded) else 0


def is_altered(record: Record) -> bool:
    """Tell whether the body of a notification is another one than its producer's proxy looked at."""
    return isinstance(record, Published | Forwarded) and record.check not in (0, checksum(record.body))


def encode_record(record: Record) -> bytes:
    """Return the record as it stands in a log, sealed.

    Raises LogUnavailable: it was altered on its way here. Sealed it would look whole, and no receiver could take it.
    """
    if is_altered(record):
        raise LogUnavailable("a notification was altered in memory, and is not written")
    return sealed(_encode(record))


def decode_record(data: bytes | None) -> Record:
    """Return the record, or what is there in its place; never raises."""
    if data is None or not is_whole(data):
        return Damaged("its checksum is wrong") if data else MISSING
    try:
        return _decoder.decode(data[:-SEAL_BYTES])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return Unreadable(str(error))


def checksum_of(record: Record) -> int:
    """Return a checksum of the record as it stands in a log; 0: it cannot be written again, nor compared."""
    return 0 if isinstance(record, Unreadable | Damaged) else checksum(_encode(record))


SITE_LOG_DDL = (
    "CREATE TABLE IF NOT EXISTS log (offset INTEGER PRIMARY KEY, record BLOB NOT NULL, place INTEGER NOT NULL)"
)
"""The embedded site log: one SQLite file per site, this table, offsets without a gap. `place`: :func:`position_tag`."""


def position_tag(data: bytes, offset: int) -> int:
    """Return what says that a record stands where it was put: damage can move one that is whole."""
    return seal_of(data) ^ offset
