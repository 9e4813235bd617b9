"""What is written down: the records of a site log, and the facts of a journal.

These shapes are the one thing that the service and the audit share. A log is a sequence of records at offsets
0, 1, 2, ...; an offset is also the coordinate of a notification that was first appended there.

Records of a link carry the epoch of the link's leader. After a record of a newer epoch, older ones mean nothing
(:mod:`federation.site_state` says what every record means).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from waypost.checksum import SEAL_BYTES, checksum, is_whole, seal_of, sealed
from waypost.errors import BadRecord, LogUnavailable
from waypost.identity import Incarnation, Origin, ProxyId, SessionId, SiteId
from waypost.keys import OPEN, Protection

# ---------------------------------------------------------------- the site log


class Published(msgspec.Struct, tag="published", frozen=True, array_like=True):
    """A notification first appended here. `at_ms`: the proxy's clock, Unix time. `check`: the CRC-32C of the body, as
    its producer, or else the proxy's door, took it; it goes with it as far as the receiver's library."""

    producer: str
    incarnation: Incarnation
    sequence: int
    at_ms: int
    body: bytes
    protection: Protection = OPEN
    check: int = 0


class Forwarded(msgspec.Struct, tag="forwarded", frozen=True, array_like=True):
    """A notification of another site, come over a link. `path`: the sites it was appended at before; `check`: as
    of :class:`Published`."""

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


class Effective(msgspec.Struct, tag="effective", frozen=True, array_like=True):
    """From above `above` on, everything of `origin` that matches `expression` comes over this link."""

    link: SiteId
    link_epoch: int
    expression: str
    installation: int
    origin: Origin
    above: int


class Held(msgspec.Struct, tag="held", frozen=True, array_like=True):
    """From here on `proxy` needs these expressions for `session`; none: it needs nothing more.

    `protections`: by which keys, of those that are not open to everybody. It decides nothing of what comes; it is told
    to producers who ask (quench).
    """

    proxy: ProxyId
    incarnation: Incarnation
    session: SessionId
    expressions: tuple[str, ...]
    protections: dict[str, tuple[Protection, ...]] = {}


class Dropped(msgspec.Struct, tag="dropped", frozen=True, array_like=True):
    """The lease of that life of `proxy` has ended; what it held is held no more."""

    proxy: ProxyId
    incarnation: Incarnation


class Asked(msgspec.Struct, tag="asked", frozen=True, array_like=True):
    """From here on neighbour `link` wants exactly these: expression -> its number of the installation.

    `protections`: as those of :class:`Held`.
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


class Repaired(msgspec.Struct, tag="repaired", frozen=True, array_like=True):
    """Some proxy could not read records up to offset `upto`, which may have been of any kind: all that the site knows
    of holds, asks and coverage ends here, and is said again behind it (handover rule 29)."""

    upto: int


class Unreadable(msgspec.Struct, frozen=True):
    """What stands in a log whole, and is no record of this version: it means nothing, and stops nobody."""

    why: str


class Damaged(msgspec.Struct, frozen=True):
    """What stands in a log and is not what was written, or does not stand there any more. It may have been anything."""

    why: str


_OfLink = Forwarded | Progress | Effective | OriginEnded | Severed
_Known = Published | Held | Dropped | Asked | Closed | LogBegun | Repaired | _OfLink
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
"""The embedded site log: one SQLite file per site, this table, offsets without a gap. `place`: :func:`place_of`."""


def place_of(data: bytes, offset: int) -> int:
    """Return what says that a record stands where it was put: damage can move one that is whole."""
    return seal_of(data) ^ offset


# ---------------------------------------------------------------- the journal


class FactKind(StrEnum):
    """What a fact says, and so which of its fields are filled."""

    OPENED = "opened"
    """The writer's life begins."""
    CLOSED = "closed"
    """It has ended, and `number` is that of its last fact."""
    MARKED = "marked"
    """The writer goes on, and has written down all so far: a closing marker stands in the log."""
    ACKNOWLEDGED = "acknowledged"
    """The producer was told that `offsets` of `origin` are safe."""
    ENDED = "ended"
    """The lease of the writer that `proxy` names has ended; it will say `closed` no more."""
    ATTACHED = "attached"
    """`receiver` attached with `frontier`; or, with a `reason` that begins with :data:`FORGOTTEN`, it left for good, or
    its place was given up; or, with the reason :data:`JOINED`, it was given a place: it is owed what lies above
    `frontier`."""
    DRAINED = "drained"
    """A closing marker was read, and `receiver` has all that was owed up to `frontier`."""
    SUBSCRIBED = "subscribed"
    """`subscription`, `expression`, `keys`, `secure_only`: asked for and accepted; nothing below `frontier` is wanted.
    """
    POLICY = "policy"
    """`subscription`, `ttl_s`, `max_count`: how long what it matches is stored, 0: without an end. Without a
    subscription: of the session as a whole, `max_count` and `bytes`, and in `reason` what is discarded then, and
    whether deadlines count."""
    RESTATED = "restated"
    """`subscription`, with its `expression`, `keys`, `secure_only`, `ttl_s`, `max_count`, and as `frontier` what was
    promised so far: said of each at every start of serving, for a crash may have come before the fact that said so
    first."""
    ACCESS = "access"
    """The session's access was changed by `receiver`; `reason` says who may do what now."""
    EFFECTIVE = "effective"
    """`subscription`, `frontier`: from above this, P1 holds for it."""
    UNSUBSCRIBED = "unsubscribed"
    """`subscription`, `frontier`: up to this, P1 held for it; restated too, as long as it is owed."""
    RECEIVED = "received"
    """`receiver` got `offsets` of `origin`, in this order, digests of the bodies beside them."""
    OWNED = "owned"
    """`proxy` serves `session` at `epoch` from now on; `reason` says how it came to it."""
    RELEASED = "released"
    """`proxy` serves `session` at `epoch` no more; `frontier` is its cut."""
    DELETED = "deleted"
    """`session` is no more, and what was stored of it went with it; beyond `frontier`, as far as the writer has read,
    nothing was wanted of that generation of its epochs; `reason`."""
    REMOVED = "removed"
    """`offsets` of `origin` were removed from the session by a stated policy; `reason` names "time to live", "maximum
    count", or both; or, of the session's queue, "maximum queue" or "its own deadline"."""
    GAP = "gap"
    """`offsets` = [first, last] of `origin` could not be had any more, `reason`; with the reason :data:`LAPSED`, by
    `receiver`."""
    ROTATED = "rotated"
    """A part of a journal begins, the `number`th; in the parts before it were facts of each writer in `frontier` up to
    that number. The writer is the journal itself."""
    HANDOVER = "handover"
    """A transfer, of id `transfer`, of the session owned at `epoch`, began the phase that `reason` names after the
    role, or ended so; `entries` notifications of `bytes` were copied until then."""


LOG_LOST, RETENTION, DAMAGE = "the log lost its end", "retention", "damage"
"""Reasons of :attr:`FactKind.GAP` beside :data:`LAPSED`."""
FORGOTTEN, JOINED = "forgotten", "joined"
"""Reasons of :attr:`FactKind.ATTACHED` that mean another thing than that a receiver attached."""
LAPSED = "best effort"
"""The reason of a gap."""
TIME_TO_LIVE, TOO_OLD, MAXIMUM_COUNT = "time to live", "time to live, by the time in its log", "maximum count"
MAXIMUM_QUEUE, DEADLINE = "maximum queue", "its own deadline"
"""Policies, as the journal names them where they removed something."""
HEEDED = "deadlines"
"""What the journal says of a queue in which they count."""
"""Reason of :attr:`FactKind.GAP`: what waited for a receiver of best-effort events went with the process that kept it.
"""


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attested fact. Facts of a writer are numbered 1, 2, 3, ..., so that a hole is visible.

    `life` goes with every `subscription`: one name may be taken back and made again, and is another one then.
    """

    writer: str
    number: int
    at_ms: int
    kind: FactKind
    proxy: str = ""
    site: str = ""
    session: str = ""
    epoch: int = 0
    receiver: str = ""
    subscription: str = ""
    expression: str = ""
    origin: str = ""
    offsets: list[int] = []
    digests: list[int] = []
    frontier: dict[str, int] = {}
    reason: str = ""
    transfer: str = ""
    entries: int = 0
    bytes: int = 0
    ttl_s: int = 0
    max_count: int = 0
    life: str = ""
    keys: list[str] = []
    """Public keys, as :func:`waypost.keys.texts` writes them."""
    secure_only: bool = False
    """Nothing is wanted where no keys meet."""
    best_effort: bool = False
    """The receiver that attached has best-effort events."""
    order: str = "any"
    """In which the library that received gives what it is sent (:mod:`waypost.queue`)."""


_fact_encoder = msgspec.json.Encoder()
_fact_decoder = msgspec.json.Decoder(Fact)


def encode_fact(fact: Fact) -> bytes:
    """Return the fact as one line of JSON, without the line end."""
    return _fact_encoder.encode(fact)


def decode_fact(line: bytes) -> Fact:
    """Decode a line. Raises BadRecord."""
    try:
        return _fact_decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRecord(f"a fact cannot be read: {error}") from None


def fact_fields() -> tuple[str, ...]:
    return Fact.__struct_fields__
