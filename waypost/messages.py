"""What clients and proxies say to each other, version 1: one MessagePack message a WebSocket frame.

A message that does not decode is answered with :class:`Problem`, which names the field; the connection goes on.

A client says `Hello`, then publishes, or attaches to one session, or both. A delivery is acknowledged by its last
number (`Deliver.through`), which means something only on the connection that brought it; what survives
connections is the frontier.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from waypost.access import Right
from waypost.facts import GapCause
from waypost.identity import NOTHING, Epoch, Incarnation, Origin, ProxyId, SessionId, SiteId, SubscriptionId
from waypost.keys import KeyList
from waypost.limits import (
    ATTESTATIONS,
    MAX_COUNT,
    MAX_EXPRESSION_BYTES,
    MAX_ID_LENGTH,
    MAX_ORIGIN_LENGTH,
    MAX_ORIGINS,
    MAX_PASSWORD_LENGTH,
    MAX_PRINCIPALS,
    MAX_PUBLISH_BATCH,
    MAX_QUENCH_NAMES,
    MAX_REPORTED_OFFSETS,
    MAX_TOKEN_LENGTH,
    MAX_TTL_S,
    RECEIVER_WINDOW,
)
from waypost.queue import Order, Queue
from waypost.reliability import Reliability

VERSION = 6
_T = TypeVar("_T")

Name = Annotated[str, Meta(min_length=1, max_length=MAX_ID_LENGTH)]
LARGEST = 2**63 - 1
"""Of all whole numbers that a client says: they go into logs and journals, and through the audit, as 64 bits."""
Serial = Annotated[int, Meta(ge=0, le=LARGEST)]
Offset = Annotated[int, Meta(ge=NOTHING, le=LARGEST)]
Secret = Annotated[str, Meta(min_length=1, max_length=MAX_ID_LENGTH)]
Principal = Annotated[str, Meta(max_length=MAX_ID_LENGTH)]
ReportedOrigin = Annotated[Origin, Meta(max_length=MAX_ORIGIN_LENGTH)]
ReportedFrontier = Annotated[dict[ReportedOrigin, Offset], Meta(max_length=MAX_ORIGINS)]
ReportedOffsets = Annotated[list[Offset], Meta(max_length=MAX_REPORTED_OFFSETS)]
ReportedCoordinates = Annotated[dict[ReportedOrigin, ReportedOffsets], Meta(max_length=MAX_ORIGINS)]
Password = Annotated[str, Meta(max_length=MAX_PASSWORD_LENGTH)]


class _Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    pass


# ---------------------------------------------------------------- from a client


class Credential(_Message, frozen=True):
    """As whom a client attaches: a principal of the session's access, and its password, or a token that names it."""

    principal: Principal = ""
    password: Password = ""
    token: Annotated[str, Meta(max_length=MAX_TOKEN_LENGTH)] = ""

    def __repr__(self) -> str:
        return f"Credential({self.principal!r})"


class Hello(_Message, tag="hello", frozen=True):
    """The first word. `credential`: as whom it publishes, where not everybody may; only a token proves that."""

    version: int
    client: Name
    credential: Credential = Credential()


class Attach(_Message, tag="attach", frozen=True, kw_only=True):
    """Serve me this session. `frontier`: what this receiver has; nothing at or below it is sent.

    `session_expiry_s`: from now on the session is deleted once nobody was attached to it for so long; None: as it was
    before, which is for ever, if nobody ever said. `receiver_expiry_s`: this receiver's place is given up once it was
    not attached for so long, and what is stored for it alone goes with it. `epoch`: at which the client was served
    last; one who does not create means the session of that generation. `reliability`: of this receiver, and from now on
    `session_reliability`, of the session; None: as the level above has it, and as it was. `queue`: how much the session
    stores at most, from now on. `order`: what the application is given first; it is the library that sees to it.
    `selective`: what it has above `frontier`. `attach_seq`: so often this life of the library has asked for it, which
    tells what comes late from what was asked since; 0: it does not count.
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
    """A subscription as the session's receivers see it. `owner`: the receiver that made it.

    `keys`: how many it has, its owner's among them; which ones is nobody else's business.
    """

    expression: str
    ttl_s: int | None = None
    max_count: int | None = None
    owner: str = ""
    keys: int = 0
    insecure: bool = True


class Subscribe(_Message, tag="subscribe", frozen=True, kw_only=True):
    """Idempotent by `subscription`, which the client chooses. Said again, it changes what is stored for how long, and
    by which keys: exactly between two notifications.

    `ttl_s`: what matches is kept for so many seconds; `max_count`: only so many, the newest. None: until all have it.
    `keys`: what comes must meet one, or, with `insecure`, be sent for everybody too (waypost/keys.py). `number`, which
    the client chooses, is in the answer.
    """

    subscription: Name
    expression: Annotated[str, Meta(max_length=MAX_EXPRESSION_BYTES)]
    ttl_s: Annotated[int, Meta(ge=1, le=MAX_TTL_S)] | None = None
    max_count: Annotated[int, Meta(ge=1, le=MAX_COUNT)] | None = None
    keys: KeyList = []
    insecure: bool = True
    number: Serial = 0


class Unsubscribe(_Message, tag="unsubscribe", frozen=True):
    """`number`, which the client chooses, is in the answer."""

    subscription: Name
    number: Serial = 0


class SetKeys(_Message, tag="set-keys", frozen=True):
    """From now on these keys go with every subscription that this receiver has made in the session, or makes.

    Idempotent; `number`, which the client chooses, is in the answer.
    """

    number: Serial
    keys: KeyList


class Publish(_Message, tag="publish", frozen=True, kw_only=True):
    """Notifications `first`, `first` + 1, ... of this life of the producer. `keys` and `insecure`: who gets them.

    `secret`: of this life, chosen at random, at least 128 bits. The incarnation in what is published is its hash
    (:func:`waypost.identity.producer_incarnation`), so only who knows it can publish as this life, or repeat a number
    of it.
    `checks`: the CRC-32C of each body; without any, the proxy takes the bodies to be what was sent.
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
    """From here on these keys go with all that is published on this connection, beside its own."""

    keys: KeyList


class Attestation(_Message, frozen=True, kw_only=True):
    """What the receiver's library gave to its application of one origin, in this order, with CRC-32 digests.

    `order`: by which it chose what it gave first. The proxy writes it to the journal as it is; the library numbers its
    attestations 1, 2, 3, ... and says each again until it is told that it is there.
    """

    number: Annotated[int, Meta(ge=1, le=LARGEST)]
    epoch: Annotated[Epoch, Meta(ge=0, le=LARGEST)]
    proxy: Annotated[ProxyId, Meta(max_length=MAX_ID_LENGTH)]
    origin: ReportedOrigin
    offsets: ReportedOffsets
    digests: Annotated[list[Annotated[int, Meta(ge=0, le=2**32 - 1)]], Meta(max_length=MAX_REPORTED_OFFSETS)]
    order: Order = "any"


class Quench(_Message, tag="quench", frozen=True):
    """Tell me what anybody wants that has to do with these attributes, and what changes; without any, no more.

    `keys` and `insecure`: as those of what is going to be published: who could not have it does not count.
    """

    number: Serial
    names: Annotated[list[Name], Meta(max_length=MAX_QUENCH_NAMES)]
    keys: KeyList = []
    insecure: bool = True


class Acknowledge(_Message, tag="acknowledge", frozen=True):
    """All deliveries up to number `through` are the application's; 0 acknowledges none as a whole.

    `frontier`: what the application was given, where it has a part of the next one. `gaps`: so many gaps were heard of
    since the attach; those of which it is not said so are told again to the next one. `selective`: coordinates above
    all that, one by one, of what the application was given sooner than what came before it.
    """

    through: Serial
    attestations: Annotated[list[Attestation], Meta(max_length=ATTESTATIONS)] = []
    frontier: ReportedFrontier = {}
    gaps: Serial = 0
    selective: ReportedCoordinates = {}


class Detach(_Message, tag="detach", frozen=True):
    """Serve this connection no more; with `forget` the receiver, its cursor and what it held back go too.

    `frontier`: what the application was given, in the middle of a delivery too; `selective`: what above it.
    """

    forget: bool = False
    frontier: ReportedFrontier = {}
    selective: ReportedCoordinates = {}


class Delete(_Message, tag="delete", frozen=True):
    """Delete the session that this connection is attached to, with all that is stored for any of its receivers."""


class Granted(_Message, frozen=True):
    """What a principal may do. `password`: the one that proves it; empty: its name does; None: the one that it has.

    `by_token`: no password proves it, and its name neither: only a token does.
    """

    rights: Annotated[list[Right], Meta(min_length=1)]
    password: Password | None = None
    by_token: bool = False

    def __repr__(self) -> str:
        return f"Granted({self.rights!r})"


class SetAccess(_Message, tag="set-access", frozen=True):
    """From now on these principals may do that, and nobody else anything; without any, everybody may do everything.

    Idempotent; `number`, which the client chooses, is in the answer.
    """

    number: Serial
    grants: Annotated[dict[Principal, Granted], Meta(max_length=MAX_PRINCIPALS)]


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
)

# ---------------------------------------------------------------- to a client


class Welcome(_Message, tag="welcome", frozen=True):
    version: int
    proxy: ProxyId
    site: SiteId


class Attached(_Message, tag="attached", frozen=True, kw_only=True):
    """The session is served to this receiver. `joined`: it had no place in it before, or has lost the one it had."""

    session: SessionId
    epoch: Epoch
    proxy: ProxyId
    site: SiteId
    subscriptions: dict[SubscriptionId, SubscriptionSettings]
    stored: int
    joined: bool = False


class Wait(_Message, tag="wait", frozen=True):
    """The session is whole but cannot be served at this moment; attach again later, here or elsewhere."""

    reason: str
    retry_after_ms: int


class Moved(_Message, tag="moved", frozen=True):
    """The session is served by another proxy; attach there."""

    session: SessionId
    proxy: ProxyId
    url: str


class Deleted(_Message, tag="deleted", frozen=True):
    """The session is no more; `reason` says by what."""

    session: SessionId
    reason: str


class Left(_Message, tag="left", frozen=True):
    """The owner has what the receiver had when it left; this connection serves no session any more."""

    receiver: Name


class Forgotten(_Message, tag="forgotten", frozen=True):
    """The receiver has given up its place, for good; this connection serves no session any more."""

    receiver: Name


class Subscribed(_Message, tag="subscribed", frozen=True):
    """What was asked under this number is done, and would survive this proxy: there is such a subscription now."""

    subscription: SubscriptionId
    number: int = 0


class SubscriptionChanged(_Message, tag="subscription-changed", frozen=True):
    """Another receiver changed the session's subscriptions; no settings: it is gone."""

    subscription: SubscriptionId
    settings: SubscriptionSettings | None


class BecameEffective(_Message, tag="effective", frozen=True):
    """From above these offsets on, P1 holds for this subscription."""

    subscription: SubscriptionId
    above: dict[Origin, int]


class Unsubscribed(_Message, tag="unsubscribed", frozen=True):
    """What was asked under this number is done, and would survive this proxy: there is no such subscription now."""

    subscription: SubscriptionId
    number: int = 0


class AccessChanged(_Message, tag="access-changed", frozen=True):
    """What `SetAccess` asked for is in force, and would survive this proxy."""

    number: int


class KeysChanged(_Message, tag="keys-changed", frozen=True):
    """What `SetKeys` asked for is in force, and would survive this proxy."""

    number: int


class Interest(_Message, tag="interest", frozen=True):
    """Terms that somebody wants now, and that nobody wants any more, for the `Quench` of this number.

    A term is one alternative of subscriptions, as an expression: whoever wants a notification, one of the terms is true
    of it. `level`: that is all there is, as far as the proxy knows; the first time so, nothing was said before.
    """

    number: int
    added: list[str]
    removed: list[str]
    caught_up: bool


class Delivery(_Message, frozen=True, kw_only=True):
    """One notification as delivered. `check`: the CRC-32C of its body, as it was published."""

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

    `secure[i]`: those of them whose keys it met; what is not there met none.
    """

    epoch: Epoch
    through: int
    matches: list[tuple[SubscriptionId, ...]]
    matched: list[int]
    entries: list[Delivery]
    secure: dict[int, tuple[SubscriptionId, ...]] = {}


class DeliverEncoded(_Message, tag="deliver", frozen=True, kw_only=True):
    """The same message with its entries already encoded, once for all receivers."""

    epoch: Epoch
    through: int
    matches: list[tuple[SubscriptionId, ...]]
    matched: list[int]
    entries: list[msgspec.Raw]
    secure: dict[int, tuple[SubscriptionId, ...]] = {}


class Acknowledged(_Message, tag="acknowledged", frozen=True):
    """Notifications `first`, `first` + 1, ... of the producer are safe; their coordinates."""

    first: int
    origin: Origin
    offsets: list[int]


class Attested(_Message, tag="attested", frozen=True):
    """Attestations up to this number are in the journal."""

    number: int


class Gap(_Message, tag="gap", frozen=True):
    """Offsets `first` to `last` of this origin cannot be had any more, for this cause."""

    origin: Origin
    first: int
    last: int
    cause: GapCause


class AboutSession(_Message, tag="session", frozen=True):
    session: str


class AboutSubscription(_Message, tag="subscription", frozen=True):
    subscription: SubscriptionId
    number: int = 0


class AboutPublish(_Message, tag="publish", frozen=True):
    first: int


class AboutDeletion(_Message, tag="deletion", frozen=True):
    pass


class AboutAccess(_Message, tag="access", frozen=True):
    number: int


class AboutKeys(_Message, tag="keys", frozen=True):
    number: int


class Problem(_Message, tag="problem", frozen=True):
    """A refusal. `about` names what it answers: an attach, a subscription, a publish; None: a frame that said none."""

    code: str
    message: str
    field: str | None = None
    about: AboutSession | AboutSubscription | AboutPublish | AboutDeletion | AboutAccess | AboutKeys | None = None


ProxyMessage = (
    Welcome
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
