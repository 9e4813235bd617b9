"""What the client library's machine tells the shell around it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from waypost.client.publish_buffer import Published
from waypost.errors import WaypostError
from waypost.identity import ProxyId, SessionId, SubscriptionId
from waypost.messages import Attached, BecameEffective, Deleted, Gap, Interest, Problem, SubscriptionChanged, Welcome


@dataclass(frozen=True, slots=True)
class Outcome:
    """An answer to a subscribe or unsubscribe; `error` None: done."""

    subscription: SubscriptionId
    error: WaypostError | None


class RequestKind(Enum):
    """What is asked of a session as a whole, one of each at a time."""

    ACCESS = "a change of the access"
    KEYS = "a change of the receiver's keys"
    DELETION = "its deletion"
    REGISTRATION = "to give up the receiver's place"


@dataclass(frozen=True, slots=True)
class RequestResult:
    """An answer to what was asked; `error` None: it is done. Of a deletion that is done, the session tells."""

    kind: RequestKind
    error: WaypostError | None


@dataclass(frozen=True, slots=True)
class Redirected:
    """The session is served at `url` now."""

    proxy: ProxyId
    url: str


@dataclass(frozen=True, slots=True)
class SessionReplaced:
    """The session in which the receiver was by its state is no more; this is another one of its name, made since."""

    session: SessionId


@dataclass(frozen=True, slots=True)
class Retry:
    """Attach again after so long."""

    reason: str
    after_ms: int


@dataclass(frozen=True, slots=True)
class PublishFailed:
    """The log took nothing of what is published, the `attempts`-th time in a row: publish again after a pause."""

    attempts: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """The session cannot be had at all."""

    error: WaypostError


ClientEvent = (
    Outcome
    | RequestResult
    | Published
    | Redirected
    | SessionReplaced
    | Retry
    | PublishFailed
    | Refusal
    | Attached
    | BecameEffective
    | Interest
    | SubscriptionChanged
    | Deleted
    | Gap
    | Problem
    | Welcome
)
