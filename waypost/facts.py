"""The facts of a journal: reports of proxies and receivers, which the audit reads (docs/journal.md describes each).

Programs read only the codes of the enums below; `reason` is for people and never decides anything.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from waypost.errors import BadRecord


class FactKind(StrEnum):
    """The kind of a fact: it decides which of its fields are filled."""

    OPENED = "opened"
    """The writer's incarnation begins."""
    CLOSED = "closed"
    """The writer ended in order; `number` is that of its last fact."""
    MARKED = "marked"
    """The writer goes on, and has written down all so far: a closing marker stands in the log."""
    ACKNOWLEDGED = "acknowledged"
    """The proxy acknowledged to the producer that `offsets` of `origin` are safe."""
    ENDED = "ended"
    """The lease of the writer that `proxy` names has ended; that writer will attest no `closed` any more."""
    ATTACHED = "attached"
    """`receiver` attached with `frontier`."""
    DETACHED = "detached"
    """The right of `receiver` to read `session` was taken away: it was given nothing beyond `frontier` until it is
    attached again."""
    REGISTERED = "registered"
    """`receiver` was registered with the session: it is owed what lies above `frontier`."""
    UNREGISTERED = "unregistered"
    """The registration of `receiver` ended, for the :class:`Departure` in `cause`: it is owed nothing any more, and was
    given nothing beyond `frontier`."""
    DRAINED = "drained"
    """A closing marker was read, and `receiver` has all that was owed up to `frontier`."""
    SUBSCRIBED = "subscribed"
    """`subscription`, `expression`, `keys`, `secure_only` were accepted; nothing below `frontier` is wanted."""
    POLICY = "policy"
    """`subscription`, `ttl_s`, `max_count`: how long what it matches is stored, 0: without an end. Without a
    subscription: the queue of the session as a whole, with `max_count`, `bytes`, `discard` and `deadlines`."""
    RESTATED = "restated"
    """`subscription`, with its `expression`, `keys`, `secure_only`, `ttl_s`, `max_count`, and as `frontier` what was
    promised so far. Attested of each at every start of serving, for a crash may have come before the first fact."""
    ACCESS = "access"
    """`receiver` changed the session's access; `reason` is the access from now on, for people."""
    EFFECTIVE = "effective"
    """P1 holds for `subscription` above `frontier`."""
    UNSUBSCRIBED = "unsubscribed"
    """P1 held for `subscription` up to `frontier`, and for `unknown_ends` nobody knows yet how far; restated too, as
    long as it is owed."""
    RECEIVED = "received"
    """`receiver` got `offsets` of `origin`, in this order, digests of the bodies beside them."""
    OWNED = "owned"
    """`proxy` serves `session` at `epoch` from now on; `cause` is the :class:`OwnedCause`."""
    RELEASED = "released"
    """`proxy` serves `session` at `epoch` no more; `frontier` is its cut."""
    DELETED = "deleted"
    """`session` is no more, and what was stored of it went with it. Beyond `frontier`, as far as the writer has read,
    nothing was wanted of that generation of its epochs."""
    REMOVED = "removed"
    """`offsets` of `origin` were removed from the session by the `policies` (:class:`RemovalPolicy`)."""
    GAP = "gap"
    """`offsets` = [first, last] of `origin` could not be had any more; `cause` is the :class:`GapCause`. With
    :attr:`GapCause.LOST_WITH_PROCESS` it concerns `receiver` alone."""
    ROTATED = "rotated"
    """A part of a journal begins, the `number`th; in the parts before it were facts of each writer in `frontier` up to
    that number. The writer is the journal itself."""
    HANDOVER = "handover"
    """A transfer, of id `transfer`, of the session owned at `epoch`, began `phase` in the `role` of the proxy, or ended
    so, with a `reason` for people; `entries` notifications of `bytes` were copied until then."""


class TransferEnd(StrEnum):
    """The phase in which a transfer ends: no other one of its role follows."""

    COMMITTED = "committed"
    """The target owns the session."""
    ABORTED = "aborted"
    """The session stays where it was."""
    THAWED = "thawed"
    """The source had frozen the session, and has taken it back."""
    RELAYED = "relayed"
    """The session stays at its owner, and the receiver is relayed there."""
    UNSETTLED = "unsettled"
    """The lease of this proxy ended first; the registry says later who has the session."""


TRANSFER_ENDS: frozenset[str] = frozenset(TransferEnd)
"""The phases in which a transfer ends."""


class OwnedCause(StrEnum):
    """How a proxy came to serve a session."""

    CREATE = "create"
    HANDOVER = "handover"
    FAILOVER = "failover"
    RESTART = "restart"
    THAW = "thaw"


class Departure(StrEnum):
    """Why the registration of a receiver ended."""

    LEFT = "left"
    """The receiver asked for it."""
    OPERATOR = "operator"
    """An operator asked for it."""
    EXPIRED = "expired"
    """The receiver was not attached for its expiry, which a best-effort connection always has."""


class RemovalPolicy(StrEnum):
    """The policy by which a stored notification was removed before a receiver had it."""

    TIME_TO_LIVE = "time-to-live"
    """The time to live of a subscription, counted from when the session stored it."""
    TIME_TO_LIVE_BY_LOG = "time-to-live-by-log"
    """The time to live of a subscription, counted by the time in the log: a session that was rebuilt does not store it
    again."""
    MAX_COUNT = "max-count"
    """The maximal count of a subscription."""
    MAX_QUEUE = "max-queue"
    """The bound of the session's queue, in notifications or bytes."""
    DEADLINE = "deadline"
    """The notification's own, which counts in the session's queue."""


class GapCause(StrEnum):
    """Why a part of an origin cannot be had any more."""

    LOG_LOST = "log-lost"
    """The origin's log lost its end."""
    RETENTION = "retention"
    """The log keeps it no more."""
    DAMAGE = "damage"
    """What stands in the log is not what was written."""
    LOST_WITH_PROCESS = "lost-with-process"
    """Best-effort events that waited went with the process that kept them."""


class Fact(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One attested fact. The facts of a writer are numbered 1, 2, 3, ..., so that a missing one is noticed.

    `subscription_generation` goes with every `subscription`: an id that was unsubscribed and subscribed again is
    another subscription.
    """

    writer: str
    number: int
    at_ms: int
    kind: FactKind
    proxy: str = ""
    site: str = ""
    session: str = ""
    epoch: int = 0
    receiver: str = ""
    subscription: str = ""
    expression: str = ""
    origin: str = ""
    offsets: list[int] = []
    digests: list[int] = []
    frontier: dict[str, int] = {}
    cause: str = ""
    """A code: :class:`OwnedCause`, :class:`Departure` or :class:`GapCause`, by the kind."""
    policies: list[str] = []
    """Codes of :class:`RemovalPolicy`."""
    reason: str = ""
    """For people."""
    role: str = ""
    phase: str = ""
    discard: str = ""
    deadlines: bool = False
    """Notifications' own deadlines count in the session's queue."""
    transfer: str = ""
    entries: int = 0
    bytes: int = 0
    ttl_s: int = 0
    max_count: int = 0
    subscription_generation: str = ""
    unknown_ends: list[str] = []
    """Origins of which it is not known yet where the subscription ended; a later fact says so."""
    unconfirmed_ends: list[str] = []
    """Origins of which it ended though their site did not say in time how far its log went."""
    keys: list[str] = []
    """Public keys, as :func:`waypost.keys.texts` writes them."""
    secure_only: bool = False
    """Nothing is wanted where no keys meet."""
    best_effort: bool = False
    """The receiver that attached has best-effort events."""
    order: str = "any"
    """In which the library that received gives what it is sent (:mod:`waypost.queue`)."""


_fact_encoder = msgspec.json.Encoder()
_fact_decoder = msgspec.json.Decoder(Fact)


def encode_fact(fact: Fact) -> bytes:
    """Return the fact as one line of JSON, without the line end."""
    return _fact_encoder.encode(fact)


def decode_fact(line: bytes) -> Fact:
    """Return the fact of a line that :func:`encode_fact` made. Raises BadRecord: the line is no fact."""
    try:
        return _fact_decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRecord(f"a fact cannot be read: {error}") from None
