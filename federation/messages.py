"""What proxies of different sites say to each other about links and catch-up.

A link is pulled: the far side's leader opens it with its frontier and with what it wants, and gets records ready to be
appended to its own log, in this side's log order.
"""

from __future__ import annotations

import msgspec

from waypost.identity import Incarnation, Origin, SiteId
from waypost.keys import Protection
from waypost.records import Effective, Forwarded, OriginEnded, Progress, Severed

LinkRecord = Forwarded | Progress | Effective | OriginEnded | Severed


class LinkOpen(msgspec.Struct, frozen=True, tag="link-open", kw_only=True):
    """`site`'s leader at `epoch` resumes the link from `frontier`."""

    site: SiteId
    epoch: int
    frontier: dict[Origin, int]
    serial: int
    installations: dict[str, int]
    protections: dict[str, tuple[Protection, ...]] = {}


class LinkWants(msgspec.Struct, frozen=True, tag="link-wants"):
    """What the far site wants from now on: expression -> its number of the installation, and by which keys."""

    site: SiteId
    epoch: int
    serial: int
    installations: dict[str, int]
    protections: dict[str, tuple[Protection, ...]] = {}


NO_OPENING = 0
"""Of a message that answers no opening: something later was said of the link, of this epoch, and with this number."""


class LinkRecords(msgspec.Struct, frozen=True, tag="link-records", kw_only=True):
    """`epoch` and `opening` (its serial) name the opening; answers to an earlier one are ignored. With `opening`
    NO_OPENING it refuses an opening or a word: of this `epoch` the serial `number` was said before.

    Messages of an opening are numbered 1, 2, 3, ...: after a hole the far side opens again. One without records
    says that the sender lives. `applied_serial`: the serial of the last of the far side's words that is in force here.
    """

    site: SiteId
    epoch: int
    opening: int
    number: int
    records: list[LinkRecord]
    applied_serial: int = 0


class LinkAppended(msgspec.Struct, frozen=True, tag="link-appended"):
    """So many more records are in the far log; the sender may send as many again."""

    site: SiteId
    epoch: int
    opening: int
    count: int


class CatchUp(msgspec.Struct, frozen=True, tag="catch-up"):
    """Send of `origin`, from its own log, what lies in (`after`, `upto`] and matches any expression."""

    request: int
    origin: Origin
    after: int
    upto: int
    expressions: tuple[str, ...]


class CaughtUp(msgspec.Struct, frozen=True, tag="caught-up", kw_only=True):
    """Records in order; all up to `through` is complete.

    `first_kept`: what lies below is no longer there. `lost_above`: what lies above, up to `through`, was lost with the
    end of the origin's log; None: nothing was. `damaged`: from the first to the last, what cannot be read any more.
    """

    request: int
    origin: Origin
    records: list[Forwarded]
    through: int
    first_kept: int = 0
    lost_above: int | None = None
    damaged: list[tuple[int, int]] = []


class CatchUpFailed(msgspec.Struct, frozen=True, tag="catch-up-failed"):
    request: int
    origin: Origin
    reason: str


class SeenRequest(msgspec.Struct, frozen=True, tag="seen-request"):
    """The log of `origin` was out of reach of who asks: how far has the other one seen it?"""

    request: int
    origin: Origin


class SeenResponse(msgspec.Struct, frozen=True, tag="seen-response"):
    """Up to `offset`; -1: nothing of it."""

    request: int
    offset: int


class LogEndRequest(msgspec.Struct, frozen=True, tag="log-end-request"):
    """How far does the log of the other one's site go? `incarnation` and `request` name the question."""

    incarnation: Incarnation
    request: int


class LogEndResponse(msgspec.Struct, frozen=True, tag="log-end-response"):
    """What was acknowledged at the site before it was asked lies at or below `frontier`, of the site's own origins."""

    incarnation: Incarnation
    request: int
    frontier: dict[Origin, int]


LogEndMessage = LogEndRequest | LogEndResponse
LinkMessage = LinkOpen | LinkWants | LinkRecords | LinkAppended
FederationMessage = LinkMessage | CatchUp | CaughtUp | CatchUpFailed | SeenRequest | SeenResponse | LogEndMessage
