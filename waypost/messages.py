"""The messages between clients and proxies, one in MessagePack per WebSocket frame. VERSION is the protocol's version.

A message that does not decode is answered with :class:`Problem`, which names the field; the connection goes on.

A client sends `Hello`, then publishes, or attaches to one session, or both. A delivery is acknowledged by its number
(`Deliver.through`), which is valid only on the connection that brought it; the frontier is valid on all of them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from waypost.access import Right
from waypost.facts import GapCause
from waypost.identity import (
    NAME_PATTERN,
    NOTHING,
    Epoch,
    Incarnation,
    Origin,
    ProxyId,
    SessionId,
    SiteId,
    SubscriptionId,
)
from waypost.keys import KeyList
from waypost.limits import (
    ATTESTATIONS,
    MAX_COUNT,
    MAX_EXPRESSION_BYTES,
    MAX_ID_LENGTH,
    MAX_LISTED_PROXIES,
    MAX_ORIGIN_LENGTH,
    MAX_ORIGINS,
    MAX_PASSWORD_LENGTH,
    MAX_PRINCIPALS,
    MAX_PUBLISH_BATCH,
    MAX_QUENCH_NAMES,
    MAX_REPORTED_OFFSETS,
    MAX_TOKEN_LENGTH,
    MAX_TTL_S,
    MAX_URL_LENGTH,
    RECEIVER_WINDOW,
)
from waypost.queue import Order, Queue
from waypost.reliability import Reliability

VERSION = 11
_T = TypeVar("_T")

Name = Annotated[str, Meta(min_length=1, max_length=MAX_ID_LENGTH, pattern=NAME_PATTERN)]
Label = Annotated[str, Meta(min_length=1, max_length=MAX_ID_LENGTH)]
"""The id of a subscription, which may be its expression of several lines; or the name of an attribute."""
LARGEST = 2**63 - 1
"""The largest whole number that a client may send: logs, journals and the audit keep 64 bits."""
Serial = Annotated[int, Meta(ge=0, le=LARGEST)]
Offset = Annotated[int, Meta(ge=NOTHING, le=LARGEST)]
Secret = Annotated[str, Meta(min_length=1, max_length=MAX_ID_LENGTH)]
Principal = Annotated[str, Meta(max_length=MAX_ID_LENGTH)]
ReportedOrigin = Annotated[Origin, Meta(max_length=MAX_ORIGIN_LENGTH)]
AttestedOrigin = Annotated[Origin, Meta(max_length=MAX_ORIGIN_LENGTH, pattern=r"^[^/\s]+/[0-9]+(\.[0-9]+)?$")]
AttestedOffsets = Annotated[list[Serial], Meta(min_length=1, max_length=MAX_REPORTED_OFFSETS)]
ReportedFrontier = Annotated[dict[ReportedOrigin, Offset], Meta(max_length=MAX_ORIGINS)]
ReportedOffsets = Annotated[list[Offset], Meta(max_length=MAX_REPORTED_OFFSETS)]
ReportedCoordinates = Annotated[dict[ReportedOrigin, ReportedOffsets], Meta(max_length=MAX_ORIGINS)]
Password = Annotated[str, Meta(max_length=MAX_PASSWORD_LENGTH)]


class _Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    pass


# ---------------------------------------------------------------- from a client


class Credential(_Message, frozen=True):
    """The credential of a client: a principal of the session's access, and its password, or a token that names it."""

    principal: Principal = ""
    password: Password = ""
    token: Annotated[str, Meta(max_length=MAX_TOKEN_LENGTH)] = ""

    def __repr__(self) -> str:
        return f"Credential({self.principal!r})"


class Hello(_Message, tag="hello", frozen=True):
    """The first message of a connection.

    Args:
        version: of the protocol.
        client: its name, for people.
        credential: the publisher's, where publishing is restricted; only a token counts.
        federation: in which the client has published; a proxy of another one refuses it. "": any will do.
    """

    version: int
    client: Name
    credential: Credential = Credential()
    federation: Annotated[str, Meta(max_length=MAX_ID_LENGTH)] = ""


class Attach(_Message, tag="attach", frozen=True, kw_only=True):
    """A request to serve a session to a receiver. Nothing at or below `frontier`, which the receiver has, is delivered.

    `session_expiry_s`: from now on the session is deleted once no receiver was attached for so long; None: as it was,
    which is never, if it was never set. `receiver_expiry_s`: this receiver's registration ends once it was not attached
    for so long, and what is stored for it alone is removed. `epoch`: at which the client was served last; without
    `create` the client means the session of that generation. `reliability`: of this receiver, and from now on
    `session_reliability`, of the session; None: that of the level above, and as it was. `queue`: the bounds of what the
    session stores, from now on. `order`: which notification the application gets first; the library sees to it.
    `selective`: coordinates above `frontier` that the receiver has. `attach_seq`: the number of this attach among those
    of this incarnation of the library, by which a late message is recognised; 0: not counted.
    """

    session: Name
    receiver: Name
    incarnation: Name
    frontier: ReportedFrontier
    window: Annotated[int, Meta(ge=1, le=RECEIVER_WINDOW)] = RECEIVER_WINDOW
    create: bool = True
    session_expiry_s: Annotated[int, Meta(ge=1, le=MAX_TTL_S)] | None = None
    credential: Credential = Credential()
    receiver_expiry_s: Annotated[int, Meta(ge=1, le=MAX_TTL_S)] | None = None
    epoch: Serial = 0
    reliability: Reliability | None = None
    session_reliability: Reliability | None = None
    queue: Queue | None = None
    order: Order = "any"
    selective: ReportedCoordinates = {}
    attach_seq: Serial = 0


class SubscriptionSettings(_Message, frozen=True, kw_only=True):
    """A subscription, as the receivers of the session see it. `owner`: the receiver that made it.

    `keys`: how many it has, including those of its owner; their values are not shown.
    """

    expression: str
    ttl_s: int | None = None
    max_count: int | None = None
    owner: str = ""
    keys: int = 0
    insecure: bool = True


class Subscribe(_Message, tag="subscribe", frozen=True, kw_only=True):
    """A request to add a subscription; idempotent by `subscription`, which the client chooses. If it exists, its policy
    and its keys are changed, exactly between two notifications.

    `ttl_s`: a matching notification is kept for so many seconds; `max_count`: only so many of the newest. None: until
    all receivers have it. `keys`: a notification must meet one, or, with `insecure`, be published as insecure too
    (waypost/keys.py). `number`, which the client chooses, is repeated in the answer.
    """

    subscription: Label
    expression: Annotated[str, Meta(max_length=MAX_EXPRESSION_BYTES)]
    ttl_s: Annotated[int, Meta(ge=1, le=MAX_TTL_S)] | None = None
    max_count: Annotated[int, Meta(ge=1, le=MAX_COUNT)] | None = None
    keys: KeyList = []
    insecure: bool = True
    number: Serial = 0


class Unsubscribe(_Message, tag="unsubscribe", frozen=True):
    """A request to end a subscription; the answer comes once it is known where that is.

    `number`, which the client chooses, is repeated in the answer.
    """

    subscription: Label
    number: Serial = 0


class SetKeys(_Message, tag="set-keys", frozen=True):
    """A request to replace the keys that go with every subscription of this receiver in the session, present and
    future.

    Idempotent; `number`, which the client chooses, is repeated in the answer.
    """

    number: Serial
    keys: KeyList


class Publish(_Message, tag="publish", frozen=True, kw_only=True):
    """Notifications `first`, `first` + 1, ... of this incarnation of the producer. `keys`, `insecure`: how they are
    protected.

    `secret`: of this incarnation, chosen at random, at least 128 bits. The incarnation in a published notification is
    its hash (:func:`waypost.identity.producer_incarnation`), so only a holder of the secret can publish as this
    incarnation, or repeat one of its numbers. `checks`: the CRC-32C of each body; without any, the proxy trusts the
    bodies.
    """

    producer: Name
    secret: Secret
    first: Serial
    bodies: Annotated[list[bytes], Meta(min_length=1, max_length=MAX_PUBLISH_BATCH)]
    keys: KeyList = []
    insecure: bool = True
    checks: Annotated[list[int], Meta(max_length=MAX_PUBLISH_BATCH)] = []

    def __repr__(self) -> str:
        return f"Publish({self.producer!r}, first={self.first}, {len(self.bodies)} bodies)"


class PublishWith(_Message, tag="publish-with", frozen=True):
    """From here on these keys go with every notification published on this connection, beside its own."""

    keys: KeyList


class Attestation(_Message, frozen=True, kw_only=True):
    """A report of what the receiver's library returned to its application of one origin, in this order, with CRC-32
    digests.

    `order`: by which the library chose what it returned first. `incarnation`: of the receiver that made it, if that is
    not the one that is attached. The proxy writes it to the journal as it is. Each incarnation numbers its attestations
    1, 2, 3, ..., and sends each again until :class:`Attested` confirms it.
    """

    number: Annotated[int, Meta(ge=1, le=LARGEST)]
    epoch: Annotated[Epoch, Meta(ge=0, le=LARGEST)]
    proxy: Annotated[ProxyId, Meta(max_length=MAX_ID_LENGTH)]
    origin: AttestedOrigin
    offsets: AttestedOffsets
    digests: Annotated[list[Annotated[int, Meta(ge=0, le=2**32 - 1)]], Meta(max_length=MAX_REPORTED_OFFSETS)]
    order: Order = "any"
    incarnation: Annotated[Incarnation, Meta(max_length=MAX_ID_LENGTH)] = Incarnation("")


class Quench(_Message, tag="quench", frozen=True):
    """A request for the interest in these attributes, now and as it changes; without names, it is not reported any
    more.

    `keys` and `insecure`: those of the notifications to be published; a subscription that could not get them does not
    count.
    """

    number: Serial
    names: Annotated[list[Label], Meta(max_length=MAX_QUENCH_NAMES)]
    keys: KeyList = []
    insecure: bool = True


class Acknowledge(_Message, tag="acknowledge", frozen=True):
    """The application has all deliveries up to number `through`; 0 acknowledges no delivery as a whole.

    `frontier`: what the application has, where that ends within a delivery. `gaps`: how many gaps arrived since the
    attach; gaps that are not acknowledged so are reported again to the next attach. `selective`: coordinates above all
    that, which the application has before earlier ones.
    """

    through: Serial
    attestations: Annotated[list[Attestation], Meta(max_length=ATTESTATIONS)] = []
    frontier: ReportedFrontier = {}
    gaps: Serial = 0
    selective: ReportedCoordinates = {}


class Detach(_Message, tag="detach", frozen=True):
    """A request to end the attachment; with `forget` the receiver's registration ends too, and what is stored for it is
    removed.

    `frontier`: what the application has, in the middle of a delivery too; `selective`: coordinates above it.
    """

    forget: bool = False
    frontier: ReportedFrontier = {}
    selective: ReportedCoordinates = {}


class Delete(_Message, tag="delete", frozen=True):
    """Delete the session that this connection is attached to, with all that is stored for any of its receivers."""


class Granted(_Message, frozen=True):
    """The rights of a principal. `password`: proves it; empty: its name is enough; None: its present password stays.

    `by_token`: only a token proves it; neither a password nor its name does.
    """

    rights: Annotated[list[Right], Meta(min_length=1)]
    password: Password | None = None
    by_token: bool = False

    def __repr__(self) -> str:
        return f"Granted({self.rights!r})"


class SetAccess(_Message, tag="set-access", frozen=True):
    """A request to replace the access: these principals have these rights, and no other has any; without grants,
    everybody has all rights.

    Idempotent; `number`, which the client chooses, is repeated in the answer.
    """

    number: Serial
    grants: Annotated[dict[Principal, Granted], Meta(max_length=MAX_PRINCIPALS)]


class ListProxies(_Message, tag="list-proxies", frozen=True):
    """A request for the addresses of proxies at which the client may be instead: it is answered with `Proxies`."""


ClientMessage = (
    Hello
    | Attach
    | Subscribe
    | Unsubscribe
    | SetKeys
    | Publish
    | PublishWith
    | Quench
    | Acknowledge
    | Detach
    | Delete
    | SetAccess
    | ListProxies
)

# ---------------------------------------------------------------- to a client


class Welcome(_Message, tag="welcome", frozen=True):
    """Proxy to client: the answer to a Hello that the proxy accepts.

    Args:
        version: of the protocol, which both use from now on.
        proxy: the name of this proxy.
        site: where it runs.
    """

    version: int
    proxy: ProxyId
    site: SiteId
    federation: str
    """The identity of the federation whose proxy answers; "": the proxy has not read the registry's secret yet."""


class ProxyAddress(_Message, frozen=True, kw_only=True):
    """The address of a proxy for clients, ``ws://host:port``, with what is known of the proxy.

    `proxy`, `site`: their names; `federation`: its identity; "": not known. `load`: the number of sessions that the
    proxy serves.
    """

    url: Annotated[str, Meta(max_length=MAX_URL_LENGTH)]
    proxy: Principal = ""
    site: Principal = ""
    load: Serial = 0
    federation: Principal = ""


class Proxies(_Message, tag="proxies", frozen=True):
    """The proxies of the federation that a client may go to, as the registry knows them; of many those of this site
    first, then the least loaded. None of them is being drained.
    """

    proxies: Annotated[list[ProxyAddress], Meta(max_length=MAX_LISTED_PROXIES)]


class Attached(_Message, tag="attached", frozen=True, kw_only=True):
    """The session is served to this receiver. `joined`: it is newly registered; it was unknown, or had expired."""

    session: SessionId
    epoch: Epoch
    proxy: ProxyId
    site: SiteId
    subscriptions: dict[SubscriptionId, SubscriptionSettings]
    stored: int
    joined: bool = False


class WaitCause(StrEnum):
    """The cause for which a receiver has to attach again later."""

    ACCESS_CHANGED = "access-changed"
    """The session's access was changed since the receiver proved who it is."""
    BUSY = "busy"
    """The proxy does as much of this as it may already."""
    MOVED = "moved"
    """The session changes hands, or has another owner."""
    NO_LEASE = "no-lease"
    """The proxy has no lease."""
    NO_SESSION = "no-session"
    """The session is not made yet."""
    OWNER_SILENT = "owner-silent"
    """The session's owner does not answer this proxy, which relays."""
    RECEIVER_IN_USE = "receiver-in-use"
    """Two clients attach again and again under one receiver's name."""
    TOKEN_ENDED = "token-ended"
    """The time of the token is over."""
    UNAVAILABLE = "unavailable"
    """A part that the answer needs does not answer, or has refused."""


class Wait(_Message, tag="wait", frozen=True):
    """The session exists, but is not served at the moment; attach again later, here or elsewhere.

    Args:
        cause: for programs.
        reason: for people, one line.
        retry_after_ms: the pause before that, in milliseconds.
    """

    cause: WaitCause
    reason: str
    retry_after_ms: int


class Moved(_Message, tag="moved", frozen=True):
    """Proxy to client: another proxy serves the session; the client is to attach there.

    Args:
        session: the session.
        proxy: the proxy that serves it.
        url: the address of that proxy.
    """

    session: SessionId
    proxy: ProxyId
    url: str


class Deleted(_Message, tag="deleted", frozen=True):
    """Proxy to client: the session was deleted; this connection serves no session any more.

    Args:
        session: the session.
        reason: for people.
    """

    session: SessionId
    reason: str


class Left(_Message, tag="left", frozen=True):
    """Proxy to client, the answer to a Detach: the owner has the receiver's last frontier; this connection serves no
    session any more.

    Args:
        receiver: the name of the receiver, which stays registered.
    """

    receiver: Name


class Forgotten(_Message, tag="forgotten", frozen=True):
    """Proxy to client: the receiver was unregistered for good; this connection serves no session any more.

    Args:
        receiver: the name of the receiver.
    """

    receiver: Name


class Subscribed(_Message, tag="subscribed", frozen=True):
    """Proxy to client: a request to subscribe or change a subscription is done and durable; the subscription exists.

    Args:
        subscription: its id.
        number: of the request.
    """

    subscription: SubscriptionId
    number: int = 0


class SubscriptionChanged(_Message, tag="subscription-changed", frozen=True):
    """Proxy to client: another receiver, or an operator, has changed the session's subscriptions.

    Args:
        subscription: the id of the one that changed.
        settings: what it is now; None: it ended.
    """

    subscription: SubscriptionId
    settings: SubscriptionSettings | None


class BecameEffective(_Message, tag="effective", frozen=True):
    """Proxy to client: everything that matches the subscription is delivered above these offsets (promise P1).

    Args:
        subscription: its id.
        above: by origin, the offset above which it is complete.
    """

    subscription: SubscriptionId
    above: dict[Origin, int]


class Unsubscribed(_Message, tag="unsubscribed", frozen=True):
    """The request of this number is done and durable: the subscription does not exist any more."""

    subscription: SubscriptionId
    number: int = 0


class AccessChanged(_Message, tag="access-changed", frozen=True):
    """Proxy to client: a new access is in force and durable.

    Args:
        number: of the `SetAccess` that asked for it.
    """

    number: int


class KeysChanged(_Message, tag="keys-changed", frozen=True):
    """Proxy to client: new keys of the receiver are in force and durable.

    Args:
        number: of the `SetKeys` that brought them.
    """

    number: int


class Interest(_Message, tag="interest", frozen=True):
    """Terms that are wanted from now on, and terms that nobody wants any more, for the `Quench` of this number.

    A term is one alternative of subscriptions, as an expression: a notification that anybody wants matches one of the
    terms. `caught_up`: the proxy has now reported all terms that it knows.
    """

    number: int
    added: list[str]
    removed: list[str]
    caught_up: bool


class Delivery(_Message, frozen=True, kw_only=True):
    """One notification as it is delivered.

    Args:
        origin: where it was published.
        offset: in the log of its origin; both are its coordinate.
        producer: who published it.
        incarnation: of the producer.
        sequence: its number among the producer's notifications of this incarnation.
        at_ms: when the proxy accepted it, in Unix time (ms).
        body: the encoded attributes.
        check: the CRC-32C of the body, as it was published.
    """

    origin: Origin
    offset: int
    producer: str
    incarnation: Incarnation
    sequence: int
    at_ms: int
    body: bytes
    check: int


class Deliver(_Message, tag="deliver", frozen=True, kw_only=True):
    """Notifications, in the session's order. `matches[matched[i]]` are the subscriptions that entry i matched.

    `secure`: by index into `matches`, those of them whose keys were met; a missing index: none.
    """

    epoch: Epoch
    through: int
    matches: list[tuple[SubscriptionId, ...]]
    matched: list[int]
    entries: list[Delivery]
    secure: dict[int, tuple[SubscriptionId, ...]] = {}


class DeliverEncoded(_Message, tag="deliver", frozen=True, kw_only=True):
    """Proxy to client: the message :class:`Deliver`, whose fields these are, with its entries already encoded, once for
    all receivers. The client decodes it as a Deliver.
    """

    epoch: Epoch
    through: int
    matches: list[tuple[SubscriptionId, ...]]
    matched: list[int]
    entries: list[msgspec.Raw]
    secure: dict[int, tuple[SubscriptionId, ...]] = {}


class Acknowledged(_Message, tag="acknowledged", frozen=True):
    """Notifications `first`, `first` + 1, ... of the producer are durable, at these offsets of `origin`."""

    first: int
    origin: Origin
    offsets: list[int]


class Attested(_Message, tag="attested", frozen=True):
    """The journal has the attestations up to the one of this number and incarnation, in the order in which they were
    sent.
    """

    number: int
    incarnation: Incarnation = Incarnation("")


class Gap(_Message, tag="gap", frozen=True):
    """Notifications that this receiver does not get.

    Args:
        origin: where they were published.
        first: the offset of the first that may be missing, in the log of the origin.
        last: of the last one.
        cause: why.
    """

    origin: Origin
    first: int
    last: int
    cause: GapCause


class AboutSession(_Message, tag="session", frozen=True):
    """The request that a Problem answers: an attach.

    Args:
        session: the session that it named.
    """

    session: str


class AboutSubscription(_Message, tag="subscription", frozen=True):
    """The request that a Problem answers: a Subscribe or Unsubscribe.

    Args:
        subscription: the id that it named.
        number: of the request.
    """

    subscription: SubscriptionId
    number: int = 0


class AboutPublish(_Message, tag="publish", frozen=True):
    """The request that a Problem answers: a Publish.

    Args:
        first: the sequence number of its first notification.
    """

    first: int


class AboutDeletion(_Message, tag="deletion", frozen=True):
    """The answered request: a Delete."""


class AboutAccess(_Message, tag="access", frozen=True):
    """The request that a Problem answers: a SetAccess.

    Args:
        number: of the request.
    """

    number: int


class AboutKeys(_Message, tag="keys", frozen=True):
    """The request that a Problem answers: a SetKeys.

    Args:
        number: of the request.
    """

    number: int


class Problem(_Message, tag="problem", frozen=True):
    """A refusal. `about` names the request: an attach, a subscription, a publish, ...; None: a frame that is no
    request.
    """

    code: str
    message: str
    field: str | None = None
    about: AboutSession | AboutSubscription | AboutPublish | AboutDeletion | AboutAccess | AboutKeys | None = None


ProxyMessage = (
    Welcome
    | Proxies
    | Attached
    | Wait
    | Moved
    | Deleted
    | Left
    | Forgotten
    | Subscribed
    | SubscriptionChanged
    | BecameEffective
    | Unsubscribed
    | AccessChanged
    | KeysChanged
    | Interest
    | Deliver
    | Acknowledged
    | Attested
    | Gap
    | Problem
)
