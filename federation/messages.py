"""The messages between proxies of different sites about links and catch-up.

A link is pulled: the far site's leader opens it with its frontier and its filters, and gets records ready to be
appended to its own log, in this site's log order.
"""

from __future__ import annotations

import msgspec

from waypost.identity import Incarnation, Origin, SiteId
from waypost.keys import Protection
from waypost.records import Effective, FilterRequest, Forwarded, InTree, OriginEnded, Progress, Severed

LinkRecord = Forwarded | Progress | Effective | OriginEnded | Severed


class LinkOpen(InTree, msgspec.Struct, frozen=True, tag="link-open", kw_only=True):
    """The leader of `site` at `epoch` resumes the link from `frontier`, with the filters of this digest.

    `serial` numbers the openings and requests of filters of the leader. `tree_epoch`: of the dispatching tree in the
    log of `site`: an opening is served by a log in the same one, so that all that is said over a link is said in one
    tree.
    """

    site: SiteId
    epoch: int
    frontier: dict[Origin, int]
    serial: int
    digest: int


class LinkWants(FilterRequest, msgspec.Struct, frozen=True, tag="link-wants"):
    """A request of filters by the leader of `site`, as :class:`waypost.records.FiltersRequested` has it. The next one
    follows once this one is answered.
    """

    site: SiteId
    epoch: int
    serial: int
    installations: dict[str, int]
    protections: dict[str, tuple[Protection, ...]] = {}


NO_OPENING = 0
"""In place of `opening`, in a message that refuses one: the link has a later leader, or a later serial, than that."""


class LinkRecords(msgspec.Struct, frozen=True, tag="link-records", kw_only=True):
    """Records for the far log. `epoch` and `opening` (its serial) name the opening; answers to an earlier one are
    ignored.

    With `opening` NO_OPENING it refuses an opening or a change of filters: `epoch` and `number` are the later leader's
    epoch and serial. Messages of an opening are numbered 1, 2, 3, ...: after a hole the far site opens again. One
    without records is a heartbeat. `applied_serial`: the serial of the far site's last request that is in force here;
    `refused_serial`: of the last one that is not, because it does not fit to what is: all filters are to be stated.
    """

    site: SiteId
    epoch: int
    opening: int
    number: int
    records: list[LinkRecord]
    applied_serial: int = 0
    refused_serial: int = 0


class LinkAppended(msgspec.Struct, frozen=True, tag="link-appended"):
    """An answer to LinkRecords: more records are in the log of the far site, and the sender may send as many again.

    Args:
        site: the sender's site, whose log has them.
        epoch: of the leader that opened the link.
        opening: the serial of that opening.
        count: how many more records.
    """

    site: SiteId
    epoch: int
    opening: int
    count: int


class LeaseRequest(msgspec.Struct, frozen=True, tag="lease-request"):
    """A proxy of `site`, which leads the link from here or would, asks for a lease of `lease_ms`. `number`: of its
    requests.
    """

    site: SiteId
    number: int
    lease_ms: int


class LeaseGranted(msgspec.Struct, frozen=True, tag="lease-granted"):
    """A proxy of `site` has a lease of the registry, and its log answers: the request of that number is granted."""

    site: SiteId
    number: int


class CatchUp(msgspec.Struct, frozen=True, tag="catch-up"):
    """A request for the notifications of `origin`, from its own log, in (`after`, `upto`] that match any expression."""

    request: int
    origin: Origin
    after: int
    upto: int
    expressions: tuple[str, ...]


class CaughtUp(msgspec.Struct, frozen=True, tag="caught-up", kw_only=True):
    """Records in order; everything up to `through` is complete.

    `first_kept`: the log no longer has offsets below it. `lost_above`: offsets above it, up to `through`, were lost
    with the end of the origin's log; None: none were. `damaged`: ranges, first to last, that cannot be read any more.
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
    """

    request: int
    origin: Origin


class SeenResponse(msgspec.Struct, frozen=True, tag="seen-response"):
    """The answer to a SeenRequest.

    Args:
        request: the number of the request.
        offset: the highest offset of the origin that the answering site has seen; -1: none.
    """

    request: int
    offset: int


class LogEndRequest(msgspec.Struct, frozen=True, tag="log-end-request"):
    """A question how far the log of the other proxy's site goes. `incarnation` and `request` name the question."""

    incarnation: Incarnation
    request: int


class LogEndResponse(msgspec.Struct, frozen=True, tag="log-end-response"):
    """The frontier of the site's own origins: every notification acknowledged there before the question is at or
    below it.
    """

    incarnation: Incarnation
    request: int
    frontier: dict[Origin, int]


LogEndMessage = LogEndRequest | LogEndResponse
LinkMessage = LinkOpen | LinkWants | LinkRecords | LinkAppended | LeaseRequest | LeaseGranted
FederationMessage = LinkMessage | CatchUp | CaughtUp | CatchUpFailed | SeenRequest | SeenResponse | LogEndMessage
