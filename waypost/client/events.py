"""The events that the client's protocol reports to the shell around it, and through it to the application."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from waypost.client.publish_buffer import Published
from waypost.errors import WaypostError
from waypost.identity import ProxyId, SessionId, SubscriptionId
from waypost.messages import (
    Attached,
    BecameEffective,
    Deleted,
    Gap,
    Interest,
    Problem,
    Proxies,
    SubscriptionChanged,
    WaitCause,
    Welcome,
)


@dataclass(frozen=True, slots=True)
class SubscriptionResult:
    """Event: the proxy has answered a request to subscribe or unsubscribe.

    Args:
        subscription: the id that the request named.
        error: why it failed; None: it succeeded, and that is durable.
    """

    subscription: SubscriptionId
    error: WaypostError | None


class RequestKind(Enum):
    """The kinds of requests about a session as a whole; one of each kind may be outstanding."""

    ACCESS = "a change of the access"
    KEYS = "a change of the receiver's keys"
    DELETION = "its deletion"
    REGISTRATION = "to unregister the receiver"


@dataclass(frozen=True, slots=True)
class RequestResult:
    """Event: the proxy has answered a request about the session. A deletion that succeeds is reported by Deleted
    instead.

    Args:
        kind: which request it was.
        error: why it failed; None: it succeeded, and that is durable.
    """

    kind: RequestKind
    error: WaypostError | None


@dataclass(frozen=True, slots=True)
class Redirected:
    """Event: the session moved, and the library attaches there.

    Args:
        proxy: the proxy that serves it now.
        url: the address of that proxy.
    """

    proxy: ProxyId
    url: str


@dataclass(frozen=True, slots=True)
class WrongFederation:
    """Event: the proxy is of another federation than the one that has the session, or in which the producer publishes;
    the library goes on at another address.

    Args:
        reason: for people.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class SessionReplaced:
    """Event: the session of the receiver's state was deleted; this is a later one of the same name, of which the state
    says nothing.

    Args:
        session: its name.
    """

    session: SessionId


@dataclass(frozen=True, slots=True)
class Retry:
    """Event: the session cannot be attached now, or the connection was lost; the library tries again.

    Args:
        reason: for people.
        after_ms: the pause before that, in milliseconds.
        cause: for programs; None: the connection was lost, or the proxy has refused.
    """

    reason: str
    after_ms: int
    cause: WaitCause | None = None


@dataclass(frozen=True, slots=True)
class NearerProxy:
    """Event: the client moves to a nearer proxy, by its policy (:class:`waypost.Roaming`).

    Args:
        url: the address of that proxy.
        round_trip_ms: to that proxy, in milliseconds.
        present_ms: the round trip to the proxy that it leaves, in milliseconds.
    """

    url: str
    round_trip_ms: float
    present_ms: float


@dataclass(frozen=True, slots=True)
class PublishFailed:
    """Event: the site's log did not accept a publish; the library publishes again after a pause.

    Args:
        attempts: failures in a row.
    """

    attempts: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Event, the last one: the session is refused for good, or with this configuration no proxy can be reached.

    Args:
        error: why.
    """

    error: WaypostError


ClientEvent = (
    SubscriptionResult
    | RequestResult
    | Published
    | Redirected
    | NearerProxy
    | Proxies
    | WrongFederation
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
