"""The events of the fold of a site log: the meaning of a record for the parts of a proxy."""

from __future__ import annotations

import msgspec

from waypost.identity import Incarnation, Origin, ProxyId, SessionId, SiteId
from waypost.records import Effective, Forwarded, OriginEnded, Published


class NotificationArrived(msgspec.Struct, frozen=True):
    """Event: the log has a notification that is new at this site.

    Args:
        origin: the origin at which it was published.
        offset: its offset in the log of its origin, not in ours.
        record: the record in our log that has it: Published for our own origin, Forwarded for another's.
    """

    origin: Origin
    offset: int
    record: Published | Forwarded


class Advanced(msgspec.Struct, frozen=True):
    """Event: an origin's frontier advanced without a notification.

    Args:
        origin: the origin.
        upto: its frontier now: everything of it up to this offset that was requested is in our log.
    """

    origin: Origin
    upto: int


class Covered(msgspec.Struct, frozen=True):
    """Event: this log has every match of the expression from that origin above an offset.

    Args:
        expression: canonical text.
        origin: the origin.
        above: an offset in the log of the origin; what is at it or below it may be missing.
    """

    expression: str
    origin: Origin
    above: int


class Interrupted(msgspec.Struct, frozen=True):
    """Event: the coverage of an expression has a hole. Matches between the origin's frontier and the offset from which
    it is covered again are not in this log, and never will be.

    Args:
        expression: canonical text.
        origin: the origin.
    """

    expression: str
    origin: Origin


class OriginClosed(msgspec.Struct, frozen=True):
    """Event: an origin has ended, here or at another site, or more of it is known to be lost than before.

    Args:
        origin: the origin.
        before: its frontier here until now.
        is_first: it had not ended before.
    """

    origin: Origin
    before: int
    is_first: bool


class EndedAnnounced(msgspec.Struct, frozen=True):
    """Event: a neighbour is to be informed, in the order of the log, that an origin has ended.

    Args:
        neighbour: the site to inform.
        ended: the record to send.
    """

    neighbour: SiteId
    ended: OriginEnded


class LogDamaged(msgspec.Struct, frozen=True):
    """Event: a record of our log cannot be read; it may have been of any kind.

    Args:
        offset: of the record.
        before: the frontier of our own origin then.
    """

    offset: int
    before: int


class StateReset(msgspec.Struct, frozen=True):
    """Event: all interests and filters stated by the site's proxies and neighbours end here, and are to be stated
    again.
    """


class SeveranceAnnounced(msgspec.Struct, frozen=True):
    """Event: a neighbour is to be informed, in the order of the log, that notifications may be lost (:class:`Severed`).

    Args:
        neighbour: the site to inform.
        path: the sites that the statement has passed.
        origins: whose notifications may be lost; empty: those of all.
    """

    neighbour: SiteId
    path: tuple[SiteId, ...]
    origins: tuple[Origin, ...] = ()


class RegistrationsExpired(msgspec.Struct, frozen=True):
    """Event: the lease of an incarnation of a proxy has ended, and with it all interest that this incarnation
    registered.

    Args:
        proxy: a proxy of this site.
        incarnation: the one whose lease has ended.
    """

    proxy: ProxyId
    incarnation: Incarnation


class InterestWithdrawn(msgspec.Struct, frozen=True):
    """Event: a proxy has withdrawn its interest in expressions for a session.

    Args:
        proxy: a proxy of this site.
        session: the session.
        expressions: canonical texts.
    """

    proxy: ProxyId
    session: SessionId
    expressions: frozenset[str]


class WantsChanged(msgspec.Struct, frozen=True):
    """Event: the filters that this site requests of a neighbour have changed.

    Args:
        neighbour: the site that is to have the filters.
    """

    neighbour: SiteId


class InterestChanged(msgspec.Struct, frozen=True):
    """Event: interest in an expression may have changed: more or fewer want it, or by other keys.

    Args:
        expression: canonical text.
    """

    expression: str


class Announced(msgspec.Struct, frozen=True):
    """Event: a neighbour is to be informed, in the order of the log, from where on its filter is effective.

    Args:
        neighbour: the site to inform.
        effective: the record to send, with the offset above which the filter holds.
    """

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
