"""A client's connection, as the dispatcher knows it, and how a refusal is told on it."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.clients.authorization import Proof
from proxy.clients.tokens import Named
from waypost.clock import NEVER
from waypost.errors import WaypostError
from waypost.identity import ReceiverId, SessionId, SubscriptionId
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
"""What is asked of a session by a receiver that is attached to it."""
OfSession = Acknowledge | Change
"""All that such a receiver says of it."""


@dataclass(slots=True, kw_only=True)
class Connection:
    """One client's connection."""

    number: int
    address: str = ""
    """Where the client comes from, also by a relay; "": nobody knows."""
    client: str = ""
    session: SessionId | None = None
    receiver: ReceiverId | None = None
    incarnation: str = ""
    """Which life of it."""
    attach_seq: int = 0
    """So often that one had asked for its session."""
    attach: Attach | None = None
    """What it waits for."""
    proof: Proof | None = None
    """What was found out of its password."""
    principal: str = ""
    """As whom it was let in, and by which hash."""
    hash: str = ""
    until_ms: int = NEVER
    """When the token ends by which it was let in, on our clock; NEVER: it was by a password, or by none."""
    access_changes: int = 0
    """How many changes of who may do what it has asked for; the last one counts."""
    access_number: int = 0
    """The number that the client gave that one."""
    keys: tuple[Key, ...] = ()
    """Those that go with all that is published on it, public."""
    named: Named | None = None
    """As whom it publishes, and until when, by a token."""

    @property
    def attached(self) -> tuple[SessionId | None, ReceiverId | None, str, int]:
        """Which attach let it in; the same after another one only where the client does not count them
        (`attach_seq`).
        """
        return self.session, self.receiver, self.incarnation, self.attach_seq

    @property
    def payer(self) -> str:
        """Whose bounds count for what it subscribes to; "": nobody's."""
        # A session's own passwords and names prove nothing to others: whoever makes a session makes them up.
        if self.principal and self.until_ms != NEVER:
            return f"principal {self.principal}"
        return f"address {self.address}" if self.address else ""


def problem(error: WaypostError, message: ClientMessage) -> Problem:
    """Return what answers the message that met the error."""
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
