"""The state of a client's connection, and the message that tells it of a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from proxy.clients.authorization import Admitted, Proof
from proxy.clients.tokens import Named
from waypost.access import Grant
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


ATTACHES_WITHIN_MS = 30_000
"""A client that attaches again after a longer time has been let in meanwhile, or has gone away."""


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


class AccessChange(NamedTuple):
    """A change of access.

    Args:
        serial: counts the changes that the connection has asked for.
        number: the number that the client gave it.
    """

    serial: int
    number: int


NO_CHANGE = AccessChange(0, 0)


@dataclass(slots=True, kw_only=True)
class Connection:
    """One client's connection. Its parts are read everywhere, and changed by its methods alone."""

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
    access_change: AccessChange = NO_CHANGE
    """The change of access that it has asked for last: that one counts."""
    keys: tuple[Key, ...] = ()
    """The public keys that go with all notifications published on it."""
    named: Named | None = None
    """The principal as which it publishes, by a token; None: it has brought none."""

    def greeted(self, client: str, named: Named | None) -> None:
        """Its client has said what it is, and as whom it publishes."""
        self.client, self.named = client, named

    def attach_requested(self, message: Attach, now_ms: int) -> None:
        """Wait for the answer to an attach; one that comes soon after another to the same session continues it."""
        self.attach = message
        session, before = SessionId(message.session), self.attaches
        if before is None or before.session != session or now_ms - before.last_ms > ATTACHES_WITHIN_MS:
            self.attaches = Attaches(session, since_ms=now_ms, last_ms=now_ms)
        else:
            self.attaches = before._replace(last_ms=now_ms)

    def proved(self, proof: Proof) -> None:
        """The password that came with the attach was looked at."""
        self.proof = proof

    def attach_answered(self) -> None:
        """The attach that it waited for is answered."""
        self.attach = self.proof = None

    def sent_away(self) -> None:
        """It is told to attach elsewhere; what it asks for after that is another matter."""
        self.attach_answered()
        self.attaches = None

    def attached_to(self, session: SessionId, message: Attach, admitted: Admitted) -> None:
        """The receiver of the attach is on this connection from now on."""
        self.attaches = None
        self.session, self.receiver = session, ReceiverId(message.receiver)
        self.incarnation, self.attach_seq = message.incarnation, message.attach_seq
        self.principal, self.hash, self.until_ms = admitted.principal, admitted.grant.hash, admitted.until_ms

    def detached(self) -> None:
        """It is attached to nothing, and waits for nothing."""
        self.session = self.receiver = None
        self.attach_answered()

    def access_requested(self, number: int) -> AccessChange:
        """Ask for another change of access, which counts instead of one that is under way; return it."""
        self.access_change = AccessChange(self.access_change.serial + 1, number)
        return self.access_change

    def access_refused(self, before: AccessChange) -> None:
        """The change that was asked for last is not valid: the one before it counts again."""
        self.access_change = before

    def keys_changed(self, keys: tuple[Key, ...]) -> None:
        """Other keys go with all that is published on it."""
        self.keys = keys

    def close(self) -> None:
        """Its client has gone: nobody answers it any more."""
        self.is_closed = True

    def password_changed(self, grant: Grant | None) -> None:
        """Its principal has another grant in the session, by its own change."""
        self.hash = grant.hash if grant else ""

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
