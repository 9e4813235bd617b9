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
    departures: int = 0
    """How many receivers had left for good at this proxy when the connection began."""
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
    """The end of the token by which it was admitted, in ms of the engine's clock; NEVER: it was by no token."""
    access_change: AccessChange = NO_CHANGE
    """The change of access that it has asked for last: that one counts."""
    keys: tuple[Key, ...] = ()
    """The public keys that go with all notifications published on it."""
    named: Named | None = None
    """The principal as which it publishes, by a token; None: it has brought none."""

    def greeted(self, client: str, named: Named | None) -> None:
        """Set what the client has said of itself in its Hello.

        Args:
            client: the client's own name for itself; it must not be empty, or no other message is accepted.
            named: the principal as which the client publishes; None: it has brought no token.
        """
        self.client, self.named = client, named

    def attach_requested(self, message: Attach, now_ms: int) -> None:
        """Note an attach that is to be answered. An attach soon after another one to the same session counts as waiting
        since the first of them (:attr:`attaches`).

        Args:
            now_ms: by the engine's clock.
        """
        self.attach = message
        session, before = SessionId(message.session), self.attaches
        if before is None or before.session != session or now_ms - before.last_ms > ATTACHES_WITHIN_MS:
            self.attaches = Attaches(session, since_ms=now_ms, last_ms=now_ms)
        else:
            self.attaches = before._replace(last_ms=now_ms)

    def proved(self, proof: Proof) -> None:
        """Note that the password which came with the attach under way is verified.

        Args:
            proof: what :meth:`Authorizer.admit` needs to know of that.
        """
        self.proof = proof

    def attach_answered(self) -> None:
        """Note that the attach is answered: none waits any more."""
        self.attach = self.proof = None

    def sent_away(self) -> None:
        """Note that the client was told to attach at another proxy: no attach waits any more, and a later one counts as
        waiting from its own time on.
        """
        self.attach_answered()
        self.attaches = None

    def attached_to(self, session: SessionId, message: Attach, admitted: Admitted) -> None:
        """Note that the receiver of an attach is on this connection from now on.

        Args:
            admitted: the principal as which it was admitted, its grant, and the end of its token.
        """
        self.attaches = None
        self.session, self.receiver = session, ReceiverId(message.receiver)
        self.incarnation, self.attach_seq = message.incarnation, message.attach_seq
        self.principal, self.hash, self.until_ms = admitted.principal, admitted.grant.hash, admitted.until_ms

    def detached(self) -> None:
        """Note that the connection is attached to nothing any more: it forgets its session, its receiver and an attach
        that waits.
        """
        self.session = self.receiver = None
        self.attach_answered()

    def access_requested(self, number: int) -> AccessChange:
        """Note a change of access that the client asks for, and return it. It counts from now on in place of any other
        under way; :meth:`access_refused` takes it back.

        Args:
            number: the number that the client gave the change.
        """
        self.access_change = AccessChange(self.access_change.serial + 1, number)
        return self.access_change

    def access_refused(self, before: AccessChange) -> None:
        """Withdraw the change of access that was noted last, because it is not valid.

        Args:
            before: the change that counts again.
        """
        self.access_change = before

    def keys_changed(self, keys: tuple[Key, ...]) -> None:
        """Set the public keys that go with all notifications published on the connection."""
        self.keys = keys

    def close(self) -> None:
        """Note that the client has gone: nobody answers it any more."""
        self.is_closed = True

    def password_changed(self, grant: Grant | None) -> None:
        """Set the hash of the connection's principal after its own change of the access.

        Args:
            grant: the principal's new grant in the session; None: it has none any more.
        """
        self.hash = grant.hash if grant else ""

    @property
    def attached(self) -> tuple[SessionId | None, ReceiverId | None, str, int]:
        """The identity of the admitted attach: session, receiver (None: not attached), incarnation, attach counter.

        Another attach has an equal identity only if the client does not count its attaches.
        """
        return self.session, self.receiver, self.incarnation, self.attach_seq

    @property
    def payer(self) -> str:
        """The client whose bounds the connection's subscriptions count for (proxy/core/cost_budget.py): the principal
        of a token, else the address; "": nobody's.
        """
        # A session's own passwords and names prove nothing to others: whoever makes a session makes them up.
        if self.principal and self.until_ms != NEVER:
            return f"principal {self.principal}"
        return f"address {self.address}" if self.address else ""


def problem(error: WaypostError, message: ClientMessage) -> Problem:
    """Return the Problem that answers a client's message which was refused with this error; it is not sent here.

    It names the session, subscription, publish, deletion or change of access or keys that the message was about; its
    `about` is None for other messages.
    """
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
