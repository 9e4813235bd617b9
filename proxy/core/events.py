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
    """The receiver for which a session is acquired or handed over.

    Args:
        receiver: its name; "": it is wanted for no receiver in particular.
        incarnation: of the receiver, which attached.
    """

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
    """Event: a session is served here from now on, or still: a transfer from here came to nothing.

    Args:
        session: the session, in the session table.
    """

    session: Session


@dataclass(frozen=True, slots=True)
class SubscriptionEnded:
    """Event: a subscription of a session was ended. The offsets at which it ends in each log are still to be found out.

    Args:
        session: the session that had it.
    """

    session: Session


@dataclass(frozen=True, slots=True)
class EndsChanged:
    """Event: more is known of the offsets at which ended subscriptions of a session end.

    Args:
        session: the session that had them.
    """

    session: Session


@dataclass(frozen=True, slots=True)
class SubscriptionAltered:
    """Event: an operator has changed or ended a subscription, and that is durable: the session's receivers are to be
    informed.

    Args:
        session: the session.
        subscription: what was changed, or has ended.
    """

    session: Session
    subscription: SubscriptionId


@dataclass(frozen=True, slots=True)
class AccessAltered:
    """Event: a session has another access: receivers that it does not admit any more are to be detached.

    Args:
        session: the session, which has the new access already.
    """

    session: Session


@dataclass(frozen=True, slots=True)
class AccessHashed:
    """Event: the passwords of a requested access are hashed, or could not be.

    Args:
        connection: by which it was requested.
        attached: the identity of the connection's attach then.
        session: whose access is meant; it may have gone since, or the connection may be attached to another one.
        message: the request.
        hashes: of the new passwords, by principal; an error: there are none.
    """

    connection: int
    attached: object
    session: Session
    message: SetAccess
    hashes: Mapping[str, str] | WaypostError = field(repr=False)


@dataclass(frozen=True, slots=True)
class DeliveryDue:
    """Event: there is something to deliver to receivers of a session.

    Args:
        session: the session.
    """

    session: Session


@dataclass(frozen=True, slots=True)
class NearRelayRequested:
    """Event, at the near proxy: the client of a connection is to be relayed to the owner of the session that it
    attaches to.

    Args:
        connection: the number of the client's connection here.
        attach: the client's attach, which the owner will answer.
        owner: the proxy that serves the session.
        departures: how many receivers had left for good there, as the owner has named it.
    """

    connection: int
    attach: Attach
    owner: ProxyId
    departures: int


@dataclass(frozen=True, slots=True)
class NearRelayEndRequested:
    """Event, at the near proxy: the client of a connection attaches anew, and a relay that it had is to end.

    Args:
        connection: the number of the client's connection here.
    """

    connection: int


@dataclass(frozen=True, slots=True)
class FarRelayBegun:
    """Event, at the owner: a client that is connected to another proxy has a connection here.

    Args:
        connection: its number, below 0.
        proxy: the near proxy, to which the client is connected.
        address: the client's network address; "": not known.
        departures: how many receivers had left for good here when the relay was agreed on.
    """

    connection: int
    proxy: ProxyId
    address: str
    departures: int


@dataclass(frozen=True, slots=True)
class FarRelayMessage:
    """Event, at the owner: a relayed client has sent a message.

    Args:
        connection: the number of its connection here, below 0.
        message: the message, to be treated as one of a client of ours.
    """

    connection: int
    message: ClientMessage


@dataclass(frozen=True, slots=True)
class FarRelayEnded:
    """Event, at the owner: the connection of a relayed client has ended.

    Args:
        connection: its number here, below 0.
    """

    connection: int


@dataclass(frozen=True, slots=True)
class CopyCheckRequested:
    """Event: a copy of a session lies here, and the registry may know of a later owner; the two are to be compared.

    Args:
        session: the copy.
        row: the registry's; None: it has none, or it is to be read.
    """

    session: Session
    row: Ownership | None


@dataclass(frozen=True, slots=True)
class NextEpochRequested:
    """Event: a dormant copy is to claim the epoch after that of the registry's row, which says that it is the latest.

    Args:
        session: the copy.
        row: the registry's row, as it was read.
    """

    session: Session
    row: Ownership


@dataclass(frozen=True, slots=True)
class LogEndFound:
    """Event: the site log has told where its end is; parts that wait for that look at it."""


@dataclass(frozen=True, slots=True)
class SessionUnavailable:
    """Event: an acquisition has ended without the session; receivers that wait for it are to be informed.

    Args:
        session: the session.
        reason: why, and whether it is final.
    """

    session: SessionId
    reason: Reason


@dataclass(frozen=True, slots=True)
class FetchRequested:
    """Event: a handover of a session from its live owner is to begin.

    Args:
        session: the session.
        owner: its row in the registry.
        request: for which receiver it is wanted.
        key: of the acquisition that asks for it; what becomes of the handover is reported with it.
    """

    session: SessionId
    owner: Ownership
    request: AcquireRequest
    key: ReplyKey


@dataclass(frozen=True, slots=True)
class MoveRequested:
    """Event: a session that is served here is to be handed over; nothing happens if it is not served at that moment.

    Args:
        session: the session.
        to: the proxy that is to have it.
    """

    session: SessionId
    to: ProxyId


@dataclass(frozen=True, slots=True)
class RelayRequested:
    """Event: a session stays at its owner, and clients that wait for it here are to be relayed there.

    Args:
        session: the session.
        owner: the proxy that serves it.
        key: of the acquisition that asked for the handover; None: the owner had offered the session.
        departures: how many receivers had left for good there, as the owner has named it.
    """

    session: SessionId
    owner: ProxyId
    key: ReplyKey | None
    departures: int


@dataclass(frozen=True, slots=True)
class OwnerRead:
    """Event: the registry was read, and names the owner of a session that is served or frozen here.

    Args:
        session: the session.
        ownership: its row.
    """

    session: SessionId
    ownership: Ownership


@dataclass(frozen=True, slots=True)
class TransferFailed:
    """Event: a handover to here came to nothing.

    Args:
        session: the session.
        owner: the proxy from which it was to come, with its epoch.
        key: of the acquisition that asked for it; None: the owner had offered the session.
        lost: why nobody has the session any more, as the owner says; None: it does not.
    """

    session: SessionId
    owner: Ownership
    key: ReplyKey | None
    lost: str | None = None


@dataclass(frozen=True, slots=True)
class ActivationRequested:
    """Event: a receiver waits for a dormant copy that is here; it is to take the next epoch before others.

    Args:
        session: the session.
    """

    session: SessionId


@dataclass(frozen=True, slots=True)
class SessionRequested:
    """Event: a session is to be served here: for a client that has attached, in a failover, or as its row says.

    Args:
        session: the session.
        request: for which receiver, and whether to create it.
    """

    session: SessionId
    request: AcquireRequest


@dataclass(frozen=True, slots=True)
class RequestWithdrawn:
    """Event: no receiver waits any more for a session that was to be created here; the acquisition does not create it.

    Args:
        session: the session.
    """

    session: SessionId


@dataclass(frozen=True, slots=True)
class ReceiverReturned:
    """Event: a receiver has attached here to a session that is served here; the session does not follow it to the proxy
    where it was before.

    Args:
        session: the session.
    """

    session: SessionId


@dataclass(frozen=True, slots=True)
class DeletionRequested:
    """Event: a session that is served here is to be deleted.

    Args:
        session: the session.
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
