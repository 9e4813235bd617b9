"""The messages between proxies of different sites about links and catch-up.

A link is pulled: the far site's leader opens it with its frontier and its filters, and gets records ready to be
appended to its own log, in this site's log order.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from waypost.identity import NOTHING, Incarnation, Origin, SiteId
from waypost.keys import Protection
from waypost.records import Effective, FilterRequest, Forwarded, InTree, OriginEnded, Progress, Severed

LARGEST = 1 << 62
"""No log has so many records, and nothing here is counted so far."""
NO_ORIGIN = Origin("")
Ordinal = Annotated[int, msgspec.Meta(ge=0, lt=LARGEST)]
Offset = Annotated[int, msgspec.Meta(ge=NOTHING, lt=LARGEST)]

LinkRecord = Forwarded | Progress | Effective | OriginEnded | Severed


class LinkOpen(InTree, msgspec.Struct, frozen=True, tag="link-open", kw_only=True):
    """Leader of a link to a proxy of the neighbour: resume the link. The records of the link follow as LinkRecords.

    Args:
        site: the leader's site, to which records are to be sent.
        epoch: of the leader.
        frontier: by origin, up to where the log of `site` has everything that it requested.
        serial: numbers the openings and requests of filters of the leader.
        digest: of the filters that the leader requests; where the neighbour has others, all are stated again.
    """

    site: SiteId
    epoch: Ordinal
    frontier: dict[Origin, Offset]
    serial: Ordinal
    digest: int


class LinkWants(FilterRequest, msgspec.Struct, frozen=True, tag="link-wants"):
    """Leader of a link to a proxy of the neighbour: a request of filters, as :class:`waypost.records.FiltersRequested`
    has it; answered with the `applied_serial` or `refused_serial` of a LinkRecords. The next request follows once this
    one is answered.

    Args:
        site: the leader's site, which requests them.
        epoch: of the leader.
        serial: of the request.
        installations: by canonical text of each filter to be added, the number of its installation.
        protections: by canonical text, the keys by which it is wanted; an absent one is open to everybody.
    """

    site: SiteId
    epoch: Ordinal
    serial: Ordinal
    installations: dict[str, Ordinal]
    protections: dict[str, tuple[Protection, ...]] = {}


NO_OPENING = 0
"""In place of `opening`, in a message that refuses one: the link has a later leader, or a later serial, than that."""


class LinkRecords(msgspec.Struct, frozen=True, tag="link-records", kw_only=True):
    """Neighbour to the leader of a link: records for the log of the leader's site; answered with LinkAppended. One
    without records is a heartbeat.

    Args:
        site: the sender's site.
        epoch: of the leader that opened the link; of a later leader where `opening` is NO_OPENING.
        opening: the serial of the opening that is served; NO_OPENING: an opening, or a change of filters, is refused,
            because there is a later leader or a later serial.
        number: 1, 2, 3, ... in an opening: after a hole the leader opens again. Where `opening` is NO_OPENING, the
            later serial.
        records: in the order of the sender's log.
        applied_serial: the serial of the leader's last request that is in force here.
        refused_serial: of the last one that is not, because it does not fit to what is: all filters are to be stated.
    """

    site: SiteId
    epoch: Ordinal
    opening: Ordinal
    number: Ordinal
    records: list[LinkRecord]
    applied_serial: Ordinal = 0
    refused_serial: Ordinal = 0


class LinkAppended(msgspec.Struct, frozen=True, tag="link-appended"):
    """An answer to LinkRecords: more records are in the log of the far site, and the sender may send as many again.

    Args:
        site: the sender's site, whose log has them.
        epoch: of the leader that opened the link.
        opening: the serial of that opening.
        count: how many more records.
    """

    site: SiteId
    epoch: Ordinal
    opening: Ordinal
    count: Ordinal


class LeaseRequest(msgspec.Struct, frozen=True, tag="lease-request"):
    """Proxy of a site to a proxy of a neighbour: a request for a lease on the link; answered with LeaseGranted, or with
    nothing.

    Args:
        site: of the requester, which leads the link from there or would.
        number: of the request.
        lease_ms: how long the lease is to last, in milliseconds from the sending of the request.
    """

    site: SiteId
    number: int
    lease_ms: int


class LeaseGranted(msgspec.Struct, frozen=True, tag="lease-granted"):
    """The answer to a LeaseRequest: the proxy that was asked has a lease of the registry, and its log answers. Where
    either is not so, there is no answer.

    Args:
        site: of the proxy that grants.
        number: of the request; the lease runs from when that was sent.
    """

    site: SiteId
    number: int


class CatchUp(msgspec.Struct, frozen=True, tag="catch-up"):
    """Proxy to a proxy of another site: a request for notifications from the log of that site; answered with CaughtUp
    or CatchUpFailed.

    Args:
        request: the number of the request.
        origin: one of the other site's origins.
        after: an offset; those above it are wanted.
        upto: the last offset that is wanted.
        expressions: canonical texts; a notification is wanted that matches any of them.
    """

    request: int
    origin: Origin
    after: int
    upto: int
    expressions: tuple[str, ...]


class CaughtUp(msgspec.Struct, frozen=True, tag="caught-up", kw_only=True):
    """The answer to a CatchUp. It may end before what was asked for: the rest is to be asked for again.

    Args:
        request: the number of the request.
        origin: the origin.
        records: in order; everything that matches up to `through`.
        through: an offset; see `records`.
        first_kept: the log no longer has offsets below it.
        lost_above: offsets above it, up to `through`, were lost with the end of the origin's log; None: none were.
        damaged: ranges of offsets, first to last, that cannot be read any more.
    """

    request: int
    origin: Origin
    records: list[Forwarded]
    through: int
    first_kept: int = 0
    lost_above: int | None = None
    damaged: list[tuple[int, int]] = []


class CatchUpFailed(msgspec.Struct, frozen=True, tag="catch-up-failed"):
    """A refusal of a CatchUp.

    Args:
        request: the number of the CatchUp.
        origin: the origin that it asked for.
        reason: for people.
    """

    request: int
    origin: Origin
    reason: str


class SeenRequest(msgspec.Struct, frozen=True, tag="seen-request"):
    """A question to another proxy, how far its site has seen an origin: the log of that origin's site was out of reach
    of the requester.

    Args:
        request: the number of the question; the answer has it too.
        origin: the origin.
        before: the origin of the log epoch before, which is asked about at the same time; "": there is none.
    """

    request: int
    origin: Origin
    before: Origin = NO_ORIGIN


class SeenResponse(msgspec.Struct, frozen=True, tag="seen-response"):
    """The answer to a SeenRequest.

    Args:
        request: the number of the request.
        offset: the highest offset of the origin that the answering site has seen; -1: none.
        is_confirmed: whether the answering proxy is of the origin's site, and has compared the log, as it is in this
            log epoch, with what other sites had seen of it.
        before: the same as `offset`, of the origin of the log epoch before.
    """

    request: int
    offset: int
    is_confirmed: bool
    before: int = NOTHING


class LogEndRequest(msgspec.Struct, frozen=True, tag="log-end-request"):
    """Proxy to a proxy of another site: a question how far the log of that site goes; answered with LogEndResponse.

    Args:
        incarnation: of the requester; with `request` it names the question.
        request: the number of the question.
    """

    incarnation: Incarnation
    request: int


class LogEndResponse(msgspec.Struct, frozen=True, tag="log-end-response"):
    """The answer to a LogEndRequest.

    Args:
        incarnation: that of the question.
        request: that of the question.
        frontier: by origin of the answering site: every notification that was acknowledged there before the question is
            at or below it.
    """

    incarnation: Incarnation
    request: int
    frontier: dict[Origin, int]


LogEndMessage = LogEndRequest | LogEndResponse
LinkMessage = LinkOpen | LinkWants | LinkRecords | LinkAppended | LeaseRequest | LeaseGranted
FederationMessage = LinkMessage | CatchUp | CaughtUp | CatchUpFailed | SeenRequest | SeenResponse | LogEndMessage
