"""What a record of a site's log means to whoever reads it."""

from __future__ import annotations

import msgspec

from waypost.identity import Incarnation, Origin, ProxyId, SessionId, SiteId
from waypost.records import Effective, Forwarded, OriginEnded, Published


class NotificationArrived(msgspec.Struct, frozen=True):
    """A notification came that is new here."""

    origin: Origin
    offset: int
    record: Published | Forwarded


class Advanced(msgspec.Struct, frozen=True):
    """An origin's frontier moved without a notification."""

    origin: Origin
    upto: int


class Covered(msgspec.Struct, frozen=True):
    """From above `above` on, this log has every match of the expression from that origin."""

    expression: str
    origin: Origin
    above: int


class Interrupted(msgspec.Struct, frozen=True):
    """What matches the expression and lies between that origin's frontier and where it is covered from now on is not
    in this log, and never will be.
    """

    expression: str
    origin: Origin


class OriginClosed(msgspec.Struct, frozen=True):
    """An origin has ended, here or at another site, or more of it is known to be lost than before.

    `before`: how far it had come here. `is_first`: it had not ended before.
    """

    origin: Origin
    before: int
    is_first: bool


class EndedAnnounced(msgspec.Struct, frozen=True):
    """To be told to a neighbour, in the order of the log: an origin has ended."""

    neighbour: SiteId
    ended: OriginEnded


class LogDamaged(msgspec.Struct, frozen=True):
    """A record at this offset cannot be read, and may have been of any kind. `before`: where the own origin was."""

    offset: int
    before: int


class StateReset(msgspec.Struct, frozen=True):
    """All that the site's proxies and neighbours have said ends here, and is to be said again."""


class SeveranceAnnounced(msgspec.Struct, frozen=True):
    """To be told to a neighbour, in the order of the log."""

    neighbour: SiteId
    path: tuple[SiteId, ...]


class RegistrationsExpired(msgspec.Struct, frozen=True):
    proxy: ProxyId
    incarnation: Incarnation


class InterestWithdrawn(msgspec.Struct, frozen=True):
    """From here on the proxy needs these expressions no more for the session, as it said."""

    proxy: ProxyId
    session: SessionId
    expressions: frozenset[str]


class WantsChanged(msgspec.Struct, frozen=True):
    """What this site asks of that neighbour is different now."""

    neighbour: SiteId


class InterestChanged(msgspec.Struct, frozen=True):
    """Somebody more wants what matches the expression, or nobody any more, or by other keys; perhaps."""

    expression: str


class Announced(msgspec.Struct, frozen=True):
    """To be told to a neighbour, in the order of the log: from where on its filter is effective."""

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
