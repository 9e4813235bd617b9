"""The events of the fold of a site log: the meaning of a record for the parts of a proxy."""

from __future__ import annotations

import msgspec

from waypost.identity import Incarnation, Origin, ProxyId, SessionId, SiteId
from waypost.records import Effective, Forwarded, OriginEnded, Published


class NotificationArrived(msgspec.Struct, frozen=True):
    """A notification arrived that is new here."""

    origin: Origin
    offset: int
    record: Published | Forwarded


class Advanced(msgspec.Struct, frozen=True):
    """An origin's frontier advanced without a notification."""

    origin: Origin
    upto: int


class Covered(msgspec.Struct, frozen=True):
    """Above `above`, this log has every match of the expression from that origin."""

    expression: str
    origin: Origin
    above: int


class Interrupted(msgspec.Struct, frozen=True):
    """Coverage of the expression has a hole for that origin: matches between its frontier and the offset from which
    it is covered again are not in this log, and never will be.
    """

    expression: str
    origin: Origin


class OriginClosed(msgspec.Struct, frozen=True):
    """An origin has ended, here or at another site, or more of it is known to be lost than before.

    `before`: its frontier here. `is_first`: it had not ended before.
    """

    origin: Origin
    before: int
    is_first: bool


class EndedAnnounced(msgspec.Struct, frozen=True):
    """An announcement to a neighbour, in the order of the log: an origin has ended."""

    neighbour: SiteId
    ended: OriginEnded


class LogDamaged(msgspec.Struct, frozen=True):
    """The record at this offset cannot be read; it may have been of any kind. `before`: the own origin's frontier
    then.
    """

    offset: int
    before: int


class StateReset(msgspec.Struct, frozen=True):
    """All interests and filters stated by the site's proxies and neighbours end here, and are to be stated again."""


class SeveranceAnnounced(msgspec.Struct, frozen=True):
    """An announcement to a neighbour, in the order of the log: notifications may be lost (:class:`Severed`), of these
    origins, or of all.
    """

    neighbour: SiteId
    path: tuple[SiteId, ...]
    origins: tuple[Origin, ...] = ()


class RegistrationsExpired(msgspec.Struct, frozen=True):
    """Every interest of this incarnation of a proxy has ended with its lease."""

    proxy: ProxyId
    incarnation: Incarnation


class InterestWithdrawn(msgspec.Struct, frozen=True):
    """The proxy has withdrawn its interest in these expressions for the session."""

    proxy: ProxyId
    session: SessionId
    expressions: frozenset[str]


class WantsChanged(msgspec.Struct, frozen=True):
    """The filters that this site requests of that neighbour have changed."""

    neighbour: SiteId


class InterestChanged(msgspec.Struct, frozen=True):
    """Interest in the expression may have changed: more or fewer want it, or by other keys."""

    expression: str


class Announced(msgspec.Struct, frozen=True):
    """An announcement to a neighbour, in the order of the log: the offset above which its filter is effective."""

    neighbour: SiteId
    effective: Effective


Event = (
    NotificationArrived
    | Advanced
    | Covered
    | Interrupted
    | OriginClosed
    | EndedAnnounced
    | LogDamaged
    | StateReset
    | SeveranceAnnounced
    | RegistrationsExpired
    | InterestWithdrawn
    | WantsChanged
    | InterestChanged
    | Announced
)
