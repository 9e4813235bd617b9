"""The state of a client's connection, and the message that tells it of a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from proxy.clients.authorization import Proof
from proxy.clients.tokens import Named
from waypost.clock import NEVER
from waypost.errors import WaypostError
from waypost.identity import ProxyId, ReceiverId, SessionId, SubscriptionId
from waypost.keys import Key
from waypost.messages import (
    AboutAccess,
    AboutDeletion,
    AboutKeys,
    AboutPublish,
    AboutSession,
    AboutSubscription,
    Acknowledge,
    Attach,
    ClientMessage,
    Delete,
    Detach,
    Problem,
    Publish,
    SetAccess,
    SetKeys,
    Subscribe,
    Unsubscribe,
)

Change = Subscribe | Unsubscribe | SetKeys | Delete | SetAccess | Detach
"""Requests of an attached receiver that change its session."""
OfSession = Acknowledge | Change
"""All messages of an attached receiver that concern its session."""


class Attaches(NamedTuple):
    """Attaches to one session, one after the other.

    Args:
        session: the session.
        since_ms: when the first one came, in ms of the engine's clock.
        last_ms: when the last one came.
    """

    session: SessionId
    since_ms: int
    last_ms: int


@dataclass(slots=True, kw_only=True)
class Connection:
    """One client's connection."""

    number: int
    address: str = ""
    """The client's network address, also by a relay; "": not known."""
    relayed_by: ProxyId | None = None
    """The proxy at which the client is connected; None: it is connected here."""
    is_closed: bool = False
    client: str = ""
    session: SessionId | None = None
    receiver: ReceiverId | None = None
    incarnation: str = ""
    """The incarnation of the receiver."""
    attach_seq: int = 0
    """The attach counter of that incarnation."""
    attach: Attach | None = None
    """The attach that is not answered yet."""
    attaches: Attaches | None = None
    """The attaches that it was not let in by; None: it was, or has asked for nothing."""
    proof: Proof | None = None
    """The proof of its password, for the attach that is not answered yet."""
    principal: str = ""
    """The principal as which it was admitted, and the hash that its password was proved by."""
    hash: str = ""
    until_ms: int = NEVER
    """When the token ends by which it was admitted, in ms of the engine's clock; NEVER: it was by no token."""
    access_changes: int = 0
    """The number of changes of access that it has asked for; the last one counts."""
    access_number: int = 0
    """The number that the client gave that one."""
    keys: tuple[Key, ...] = ()
    """The public keys that go with all notifications published on it."""
    named: Named | None = None
    """The principal as which it publishes, by a token; None: it has brought none."""

    @property
    def attached(self) -> tuple[SessionId | None, ReceiverId | None, str, int]:
        """The identity of the attach that was admitted: equal for another one only if the client counts none."""
        return self.session, self.receiver, self.incarnation, self.attach_seq

    @property
    def payer(self) -> str:
        """The client whose bounds its subscriptions count for (proxy/core/cost_budget.py); "": nobody's."""
        # A session's own passwords and names prove nothing to others: whoever makes a session makes them up.
        if self.principal and self.until_ms != NEVER:
            return f"principal {self.principal}"
        return f"address {self.address}" if self.address else ""


def problem(error: WaypostError, message: ClientMessage) -> Problem:
    """Return the answer to a client's message that met the error; it names what the message was about."""
    about: AboutSession | AboutSubscription | AboutPublish | AboutDeletion | AboutAccess | AboutKeys | None = None
    match message:
        case Attach():
            about = AboutSession(message.session)
        case Subscribe() | Unsubscribe():
            about = AboutSubscription(SubscriptionId(message.subscription), message.number)
        case Publish():
            about = AboutPublish(message.first)
        case Delete():
            about = AboutDeletion()
        case SetAccess():
            about = AboutAccess(message.number)
        case SetKeys():
            about = AboutKeys(message.number)
        case _:
            pass
    return Problem(error.code, error.message, error.field, about)
