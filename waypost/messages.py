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
    """The credential of a client, in an Attach or Hello.

    Args:
        principal: one of the session's access; "": that of a client without a name.
        password: the principal's; "": none.
        token: names a principal, and proves it; "": none. With a token the password does not count, and `principal` is
            empty or the same.
    """

    principal: Principal = ""
    password: Password = ""
    token: Annotated[str, Meta(max_length=MAX_TOKEN_LENGTH)] = ""

    def __repr__(self) -> str:
        return f"Credential({self.principal!r})"


class Hello(_Message, tag="hello", frozen=True):
    """Client to proxy: the first message of a connection; answered with Welcome.

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
    """Client to proxy: a request to serve a session to a receiver; answered with Attached, Moved, Wait, or a Problem
    about AboutSession. Deliveries follow an Attached.

    Args:
        session: its name.
        receiver: its name; another connection that attaches by it later takes its place.
        incarnation: of this receiver; another one begins whenever the state of the receiver is given anew.
        frontier: by origin, the offset up to which the receiver has all; nothing at or below it is delivered.
        window: how many notifications may be under way without an acknowledgement.
        create: make the session if there is none.
        session_expiry_s: from now on the session is deleted once no receiver was attached for so long; None: as it was,
            which is never, if it was never set.
        credential: of the client.
        receiver_expiry_s: this receiver's registration ends once it was not attached for so long, and what is stored
            for it alone is removed; None: as it was.
        epoch: at which the client was served last; without `create` the client means the session of that generation.
        reliability: of this receiver; None: that of the session.
        session_reliability: of the session, from now on; None: as it was.
        queue: the bounds of what the session stores, from now on; None: as they were.
        order: which notification the application gets first; the library sees to it.
        selective: by origin, offsets above `frontier` that the receiver has.
        attach_seq: the number of this attach among those of this incarnation, by which a late message is recognised; 0:
            not counted.
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
    """A subscription, as the receivers of its session see it.

    Args:
        expression: as it was requested.
        ttl_s: a matching notification is kept for so many seconds; None: until all receivers have it.
        max_count: only so many of the newest are kept; None: all.
        owner: the receiver that made it.
        keys: how many keys it has, including those of its owner; their values are not shown.
        insecure: whether notifications that are published as insecure match without keys.
    """

    expression: str
    ttl_s: int | None = None
    max_count: int | None = None
    owner: str = ""
    keys: int = 0
    insecure: bool = True


class Subscribe(_Message, tag="subscribe", frozen=True, kw_only=True):
    """Client to proxy: a request to add a subscription to the session of this connection; answered with Subscribed, or
    a Problem about AboutSubscription. If the subscription exists, its policy and its keys are changed, exactly between
    two notifications.

    Args:
        subscription: its id, which the client chooses; the same request again changes nothing.
        expression: in the subscription language.
        ttl_s: a matching notification is kept for so many seconds; None: until all receivers have it.
        max_count: only so many of the newest are kept; None: all, until all receivers have them.
        keys: a notification must meet one of them, or, with `insecure`, be published as insecure (waypost/keys.py).
        insecure: see `keys`.
        number: of the request, which the client chooses; the answer has it too.
    """

    subscription: Label
    expression: Annotated[str, Meta(max_length=MAX_EXPRESSION_BYTES)]
    ttl_s: Annotated[int, Meta(ge=1, le=MAX_TTL_S)] | None = None
    max_count: Annotated[int, Meta(ge=1, le=MAX_COUNT)] | None = None
    keys: KeyList = []
    insecure: bool = True
    number: Serial = 0


class Unsubscribe(_Message, tag="unsubscribe", frozen=True):
    """Client to proxy: a request to end a subscription of the session of this connection; answered with Unsubscribed
    once the offsets at which it ends are known, or with a Problem about AboutSubscription. An id that does not exist is
    answered with Unsubscribed all the same.

    Args:
        subscription: its id.
        number: of the request, which the client chooses; the answer has it too.
    """

    subscription: Label
    number: Serial = 0


class SetKeys(_Message, tag="set-keys", frozen=True):
    """Client to proxy: a request to replace the keys that go with every subscription of this receiver in the session,
    present and future; answered with KeysChanged, or a Problem about AboutKeys. Idempotent.

    Args:
        number: of the request, which the client chooses; the answer has it too.
        keys: all keys of the receiver from now on.
    """

    number: Serial
    keys: KeyList


class Publish(_Message, tag="publish", frozen=True, kw_only=True):
    """Client to proxy: notifications to publish; answered with Acknowledged, or a Problem about AboutPublish.

    Args:
        producer: its name.
        secret: of this incarnation of the producer, chosen at random, at least 128 bits. The incarnation in a published
            notification is its hash (:func:`waypost.identity.producer_incarnation`), so only a holder of the secret can
            publish as this incarnation, or repeat one of its numbers.
        first: the sequence number of the first one; the others follow one by one.
        bodies: the encoded attributes of each.
        keys: by which they are protected.
        insecure: whether subscriptions without these keys may have them too.
        checks: the CRC-32C of each body; without any, the proxy trusts the bodies.
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
    """Client to proxy, without an answer: keys that go with every notification published on this connection from here
    on.

    Args:
        keys: beside those of each Publish.
    """

    keys: KeyList


class Attestation(_Message, frozen=True, kw_only=True):
    """A receiver's statement of what its library returned to its application, of one origin. The proxy writes it to the
    journal as it is. Each incarnation numbers its attestations 1, 2, 3, ..., and sends each again until
    :class:`Attested` confirms it.

    Args:
        number: of the attestation.
        epoch: of the session, when these were delivered.
        proxy: which delivered them.
        origin: where they were published.
        offsets: in the log of the origin, in the order in which they were returned.
        digests: the CRC-32 of each.
        order: by which the library chose what it returned first.
        incarnation: of the receiver that made it, if that is not the one that is attached.
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
    """Client to proxy: a request for the interest in attributes, now and as it changes; answered with Interest, again
    and again. A later Quench replaces it.

    Args:
        number: of the request, which the client chooses; each answer has it.
        names: of the attributes; empty: no interest is reported any more.
        keys: those of the notifications to be published; a subscription that could not get them does not count.
        insecure: whether they are to be published as insecure.
    """

    number: Serial
    names: Annotated[list[Label], Meta(max_length=MAX_QUENCH_NAMES)]
    keys: KeyList = []
    insecure: bool = True


class Acknowledge(_Message, tag="acknowledge", frozen=True):
    """Client to proxy, without an answer, but Attested for the attestations: the application has deliveries.

    Args:
        through: the number up to which it has all deliveries; 0: none as a whole.
        attestations: what the library returned to the application.
        frontier: by origin, what the application has, where that ends within a delivery.
        gaps: how many gaps arrived since the attach; gaps that are not acknowledged so are reported again to the next
            attach.
        selective: by origin, offsets above all that, which the application has before earlier ones.
    """

    through: Serial
    attestations: Annotated[list[Attestation], Meta(max_length=ATTESTATIONS)] = []
    frontier: ReportedFrontier = {}
    gaps: Serial = 0
    selective: ReportedCoordinates = {}


class Detach(_Message, tag="detach", frozen=True):
    """Client to proxy: a request to end the attachment; answered with Left or Forgotten; with Wait where the session
    changes hands, or store or changelog does not take it; with a Problem where the registration cannot end. There is no
    answer where nothing is attached.

    Args:
        forget: the receiver's registration ends too, and what is stored for it is removed.
        frontier: by origin, what the application has, in the middle of a delivery too.
        selective: by origin, offsets above it that the application has.
    """

    forget: bool = False
    frontier: ReportedFrontier = {}
    selective: ReportedCoordinates = {}


class Delete(_Message, tag="delete", frozen=True):
    """Client to proxy: a request to delete the session that this connection is attached to, with all that is stored for
    any of its receivers; answered with Deleted, or a Problem about AboutDeletion.
    """


class Granted(_Message, frozen=True):
    """The rights of a principal, in a SetAccess.

    Args:
        rights: their names.
        password: proves the principal; "": its name is enough; None: its present password stays.
        by_token: only a token proves it; neither a password nor its name does.
    """

    rights: Annotated[list[Right], Meta(min_length=1)]
    password: Password | None = None
    by_token: bool = False

    def __repr__(self) -> str:
        return f"Granted({self.rights!r})"


class SetAccess(_Message, tag="set-access", frozen=True):
    """Client to proxy: a request to replace the access of the session; answered with AccessChanged, or a Problem about
    AboutAccess. Idempotent.

    Args:
        number: of the request, which the client chooses; the answer has it too.
        grants: by principal, its rights; no other has any. Empty: everybody has all rights.
    """

    number: Serial
    grants: Annotated[dict[Principal, Granted], Meta(max_length=MAX_PRINCIPALS)]


class ListProxies(_Message, tag="list-proxies", frozen=True):
    """Client to proxy: a request for the addresses of proxies at which the client may be instead; answered with
    Proxies.
    """


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
    """The address of a proxy for clients, with what is known of the proxy.

    Args:
        url: ``ws://host:port`` or ``wss://host:port``.
        proxy: its name; "": not known.
        site: the name of its site; "": not known.
        load: the number of sessions that it serves.
        federation: its identity; "": not known.
    """

    url: Annotated[str, Meta(max_length=MAX_URL_LENGTH)]
    proxy: Principal = ""
    site: Principal = ""
    load: Serial = 0
    federation: Principal = ""


class Proxies(_Message, tag="proxies", frozen=True):
    """Proxy to client, the answer to ListProxies: the proxies of the federation that the client may go to.

    Args:
        proxies: as the registry knows them; of many those of this site first, then the least loaded. None of them is
            being drained.
    """

    proxies: Annotated[list[ProxyAddress], Meta(max_length=MAX_LISTED_PROXIES)]


class Attached(_Message, tag="attached", frozen=True, kw_only=True):
    """Proxy to client, an answer to Attach: the session is served to this receiver from now on.

    Args:
        session: its name.
        epoch: at which it is served.
        proxy: the owner, which serves it.
        site: that of the owner.
        subscriptions: all that the session has, by id.
        stored: how many notifications are stored for the session.
        joined: the receiver is newly registered; it was unknown, or had expired.
    """

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
    """Proxy to client: the session exists, but is not served at the moment; attach again later, here or elsewhere.

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
    """Proxy to client, the answer to Unsubscribe: the request is done and durable; the subscription does not exist any
    more.

    Args:
        subscription: its id.
        number: of the request.
    """

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
    """Proxy to client, an answer to Quench: how the interest has changed. A term is one alternative of subscriptions,
    as an expression: a notification that anybody wants matches one of the terms.

    Args:
        number: of the Quench.
        added: terms that are wanted from now on.
        removed: terms that nobody wants any more.
        caught_up: the proxy has now reported all terms that it knows.
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
    """Proxy to client: notifications, in the session's order.

    Args:
        epoch: at which the session is served.
        through: the number of the last of them, by which the client acknowledges them.
        matches: each combination of subscriptions that an entry matched.
        matched: for each entry, the index of its combination in `matches`.
        entries: the notifications.
        secure: by index into `matches`, those of the combination whose keys were met; a missing index: none.
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
    """Proxy to client, the answer to Publish: the notifications are durable.

    Args:
        first: the sequence number of the first one; the others follow one by one.
        origin: whose log has them.
        offsets: of each in that log.
    """

    first: int
    origin: Origin
    offsets: list[int]


class Attested(_Message, tag="attested", frozen=True):
    """Proxy to client: the journal has attestations, in the order in which they were sent.

    Args:
        number: of the last of them.
        incarnation: of the receiver that made them; "": the one that is attached.
    """

    number: int
    incarnation: Incarnation = Incarnation("")


class Gap(_Message, tag="gap", frozen=True):
    """Proxy to client: notifications that this receiver does not get.

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
    """What a Problem is about: being attached to a session. It answers an Attach, or comes unasked where an attachment
    was ended, as another client has attached by the receiver's name, or the right to read was taken away. The
    connection serves no session any more.

    Args:
        session: its name.
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
    """The request that a Problem answers: a Delete."""


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
    """Proxy to client: a refusal.

    Args:
        code: stable, for programs; that of a class of waypost/errors.py.
        message: one line for people.
        field: what is wrong in the request; None: no field of it.
        about: the request that is refused, or the attachment that was ended; None: a frame that is no request.
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
