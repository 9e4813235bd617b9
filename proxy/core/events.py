"""Events that the parts of an engine report to it. One dispatch, in `proxy/engine.py`, says which parts each concerns.

A part does not know which others there are. Events wait until the part that reports them has returned: whoever handles
one looks at the session as it is then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from handover.acquisition import ReplyKey
from handover.acquisition_inputs import Reason
from proxy.session.session import Session
from waypost.errors import WaypostError
from waypost.identity import Ownership, ProxyId, SessionId, SubscriptionId
from waypost.messages import Attach, ClientMessage, SetAccess


class Requester(NamedTuple):
    """The receiver for which a session is acquired or handed over."""

    receiver: str = ""
    incarnation: str = ""


NO_REQUESTER = Requester()


class AcquireRequest(NamedTuple):
    """A request that a session be served here.

    Args:
        requester: the receiver for which it is wanted; NO_REQUESTER: none in particular.
        create: whether to create the session if there is none yet.
    """

    requester: Requester = NO_REQUESTER
    create: bool = False

    def joined(self, other: AcquireRequest) -> AcquireRequest:
        """Return one request in place of two: for this one's receiver if it has one, and creating if either does."""
        requester = self.requester if self.requester != NO_REQUESTER else other.requester
        return AcquireRequest(requester, self.create or other.create)


@dataclass(frozen=True, slots=True)
class SessionServed:
    """The session is served here from now on, or still: a transfer from here came to nothing."""

    session: Session


@dataclass(frozen=True, slots=True)
class SubscriptionEnded:
    """A subscription of the session was ended; where, is to be found out."""

    session: Session


@dataclass(frozen=True, slots=True)
class EndsChanged:
    """More is known of where the ended subscriptions of the session end."""

    session: Session


@dataclass(frozen=True, slots=True)
class SubscriptionAltered:
    """An operator has changed or ended a subscription of the session, and that is durable: its receivers are told."""

    session: Session
    subscription: SubscriptionId


@dataclass(frozen=True, slots=True)
class AccessAltered:
    """The session has another access: receivers that it does not admit any more are detached."""

    session: Session


@dataclass(frozen=True, slots=True)
class AccessHashed:
    """The passwords of a requested access are hashed, or could not be.

    Args:
        connection: by which it was requested.
        attached: the identity of the connection's attach then.
        session: whose access is meant; it may have gone since, or the connection may be attached to another one.
        hashes: of the new passwords, by principal; an error: there are none.
    """

    connection: int
    attached: object
    session: Session
    message: SetAccess
    hashes: Mapping[str, str] | WaypostError = field(repr=False)


@dataclass(frozen=True, slots=True)
class DeliveryDue:
    """There is something to deliver to receivers of the session."""

    session: Session


@dataclass(frozen=True, slots=True)
class NearRelayRequested:
    """The client of a connection is to be relayed to the owner of the session that it attaches to."""

    connection: int
    attach: Attach
    owner: ProxyId


@dataclass(frozen=True, slots=True)
class NearRelayEndRequested:
    """The client of a connection attaches anew: a relay that it had ends."""

    connection: int


@dataclass(frozen=True, slots=True)
class FarRelayBegun:
    """A client at another proxy has a connection here, of a number below 0.

    Args:
        address: of the client; "": not known.
    """

    connection: int
    proxy: ProxyId
    address: str


@dataclass(frozen=True, slots=True)
class FarRelayMessage:
    """A relayed client has sent a message."""

    connection: int
    message: ClientMessage


@dataclass(frozen=True, slots=True)
class FarRelayEnded:
    """The connection of a relayed client has ended."""

    connection: int


@dataclass(frozen=True, slots=True)
class CopyCheckRequested:
    """A copy of the session lies here, and the registry may know of a later owner: it is to be compared.

    Args:
        row: the registry's; None: it has none, or it is to be read.
    """

    session: Session
    row: Ownership | None


@dataclass(frozen=True, slots=True)
class NextEpochRequested:
    """The copy of the session is to take the epoch after that row's."""

    session: Session
    row: Ownership


@dataclass(frozen=True, slots=True)
class LogEndFound:
    """The site log has told where its end is: who waits for that looks at it."""


@dataclass(frozen=True, slots=True)
class SessionUnavailable:
    """The session cannot be had at this moment, or at all."""

    session: SessionId
    reason: Reason


@dataclass(frozen=True, slots=True)
class FetchRequested:
    """A handover of the session from its live owner is to begin.

    Args:
        key: of the acquisition that asks for it; what becomes of the handover is reported with it.
    """

    session: SessionId
    owner: Ownership
    request: AcquireRequest
    key: ReplyKey


@dataclass(frozen=True, slots=True)
class MoveRequested:
    """The session is to be moved to that proxy while it is served here."""

    session: SessionId
    to: ProxyId


@dataclass(frozen=True, slots=True)
class RelayRequested:
    """The session stays at its owner, and clients that wait for it here are to be relayed there.

    Args:
        key: of the acquisition that asked for the handover; None: the owner had offered the session.
    """

    session: SessionId
    owner: ProxyId
    key: ReplyKey | None


@dataclass(frozen=True, slots=True)
class OwnerRead:
    """The registry was read, and names this owner of a session that is served or frozen here."""

    session: SessionId
    ownership: Ownership


@dataclass(frozen=True, slots=True)
class TransferFailed:
    """A handover to here came to nothing.

    Args:
        owner: from whom the session was to come.
        key: of the acquisition that asked for it; None: the owner had offered the session.
        lost: why nobody has the session any more, as the owner says; None: it does not.
    """

    session: SessionId
    owner: Ownership
    key: ReplyKey | None
    lost: str | None = None


@dataclass(frozen=True, slots=True)
class ActivationRequested:
    """Somebody waits for a copy that sleeps here: it is to take the next epoch before others."""

    session: SessionId


@dataclass(frozen=True, slots=True)
class SessionRequested:
    """The session is to be served here: for a client that has attached, in a failover, or as its row says."""

    session: SessionId
    request: AcquireRequest


@dataclass(frozen=True, slots=True)
class RequestWithdrawn:
    """A session for which no receiver waits here any more: it is not made."""

    session: SessionId


@dataclass(frozen=True, slots=True)
class ReceiverReturned:
    """A receiver has attached to a session that is served here: it is not to follow it elsewhere any more."""

    session: SessionId


@dataclass(frozen=True, slots=True)
class DeletionRequested:
    """The session is to be deleted.

    Args:
        reason: for people: who asked for it, or that nobody was attached for as long as the session had said.
    """

    session: Session
    reason: str


EngineEvent = (
    SubscriptionEnded
    | EndsChanged
    | SubscriptionAltered
    | AccessAltered
    | AccessHashed
    | DeliveryDue
    | NearRelayRequested
    | NearRelayEndRequested
    | FarRelayBegun
    | FarRelayMessage
    | FarRelayEnded
    | CopyCheckRequested
    | NextEpochRequested
    | LogEndFound
    | SessionServed
    | SessionUnavailable
    | FetchRequested
    | MoveRequested
    | RelayRequested
    | OwnerRead
    | TransferFailed
    | ActivationRequested
    | SessionRequested
    | RequestWithdrawn
    | ReceiverReturned
    | DeletionRequested
)
