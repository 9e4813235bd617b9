"""The inputs of an engine: all that a proxy is told, by its log, the registry, clients, peers, operators, and answers.

Times in them are ms of the clock by which the engine is stepped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET, UnsetType

from federation.messages import LogEndMessage
from federation.ports import Batch, RegistryEvent
from handover.messages import HandoverOffer, MoveRequest, RelayMessage, ToSource, ToTarget
from waypost.errors import WaypostError
from waypost.identity import Incarnation, Ownership, ProxyId, ReceiverId, SessionId, SubscriptionId
from waypost.messages import ClientMessage, Granted

ToProxy = ToSource | ToTarget | HandoverOffer | MoveRequest | RelayMessage | LogEndMessage
"""Messages of one proxy to another: of a handover, a drain, a relay, or a question for the end of a log."""


@dataclass(frozen=True, slots=True)
class RecordsRead:
    """Input: the next records of the site log. The engine applies as many as it has time for: the position of its state
    says how many, and the rest is to be given again.

    Args:
        batch: (offset, record) each, in order, from the position of the engine's state on.
    """

    batch: Batch


# ---------------------------------------------------------------- clients and peers


@dataclass(frozen=True, slots=True)
class ClientConnected:
    """Input: a client's connection begins.

    Args:
        connection: a number above 0 that no other connection of this process has had; relays have numbers below 0.
        address: the client's network address; empty: it is not known.
    """

    connection: int
    address: str = ""


@dataclass(frozen=True, slots=True)
class ClientDisconnected:
    """Input: a client's connection has ended. Its receiver stays registered, and what it is owed is stored.

    Args:
        connection: the number of the connection.
    """

    connection: int


@dataclass(frozen=True, slots=True)
class ClientSent:
    """Input: a client has sent a message.

    Args:
        connection: the number of the connection by which it came.
        message: the decoded message, whose fields were validated.
    """

    connection: int
    message: ClientMessage


@dataclass(frozen=True, slots=True)
class PeerSent:
    """Input: another proxy has sent a message.

    Args:
        peer: the sender, which the caller has verified.
        message: the decoded message.
    """

    peer: ProxyId
    message: ToProxy


# ---------------------------------------------------------------- the registry


@dataclass(frozen=True, slots=True)
class RegistryReported:
    """Input: an event of the registry's watch.

    Args:
        event: the change of a row, or all rows when the watch begins anew.
    """

    event: RegistryEvent


@dataclass(frozen=True, slots=True)
class LeaseGranted:
    """Input: the registry has announced this incarnation under a lease; sessions may be served from now on.

    Args:
        incarnation: of this start, and of this lease.
        until_ms: when the lease ends, by the engine's clock in milliseconds.
        ended: incarnations that have had the name before, and have certainly ended. Where no other proxy watched the
            registry then, nobody else says so in a journal.
    """

    incarnation: Incarnation
    until_ms: int
    ended: tuple[Incarnation, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaseRenewed:
    """Input: the proxy's lease was renewed.

    Args:
        until_ms: when it ends, by the engine's clock in milliseconds; the lease is lost then, unless it is renewed
            again.
    """

    until_ms: int


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """Input: the lease has ended, or may have; nothing is served from now on."""


@dataclass(frozen=True, slots=True)
class SecretRead:
    """Input: the registry has answered with the federation's secret.

    Args:
        secret: tokens are verified with a key derived of it.
    """

    secret: bytes


# ---------------------------------------------------------------- operators, and the end


@dataclass(frozen=True, slots=True)
class ChangelogLost:
    """Input: the changelog may have lost what was written; all checkpoints and the site's state are written again."""


@dataclass(frozen=True, slots=True)
class DeletedByOperator:
    """Input: an operator has deleted a session in the registry. Its owner may be dead, and attest nothing, so this
    proxy attests it.

    Args:
        session: the session.
        before: the row that the deletion took the place of.
        reason: for people.
    """

    session: SessionId
    before: Ownership
    reason: str


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Input: make the moves that :meth:`proxy.engine.Engine.planned_moves` has: request each of its session's owner."""


@dataclass(frozen=True, slots=True)
class ChangeAccess:
    """A change by an operator, to be given by Administered: replace a session's access.

    Args:
        session: the session.
        grants: the whole new access, by principal; empty: everybody may do everything.
    """

    session: SessionId
    grants: Mapping[str, Granted]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePolicy:
    """A change by an operator, to be given by Administered: what holds for a session as a whole. What is UNSET stays as
    it is.

    Args:
        session: the session.
        expiry_s: in seconds; None: it does not expire.
        queue: the bounds that change, by their names in :class:`waypost.queue.Queue`; None: no bounds of its own.
        reliability: the levels that change, by their names in :class:`waypost.reliability.Reliability`.
    """

    session: SessionId
    expiry_s: int | UnsetType | None = UNSET
    queue: Mapping[str, Any] | UnsetType | None = UNSET
    reliability: Mapping[str, Any] | UnsetType = UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRetention:
    """A change by an operator, to be given by Administered: the retention of a subscription. What is UNSET stays as it
    is, and None is no bound.

    Args:
        session: the session that has it.
        subscription: its id.
        ttl_s: the time to live, in seconds.
        max_count: the maximum count, in notifications.
    """

    session: SessionId
    subscription: SubscriptionId
    ttl_s: int | UnsetType | None = UNSET
    max_count: int | UnsetType | None = UNSET


@dataclass(frozen=True, slots=True)
class EndSubscription:
    """A change by an operator, to be given by Administered: end a subscription, for all receivers of its session.

    Args:
        session: the session that has it.
        subscription: its id.
    """

    session: SessionId
    subscription: SubscriptionId


@dataclass(frozen=True, slots=True)
class UnregisterReceiver:
    """A change by an operator, to be given by Administered: unregister a receiver that is away; nothing is stored for
    it any more. One that is attached is refused.

    Args:
        session: the receiver's session.
        receiver: its name.
    """

    session: SessionId
    receiver: ReceiverId


SessionChange = ChangeAccess | ChangePolicy | ChangeRetention | EndSubscription | UnregisterReceiver


@dataclass(frozen=True, slots=True)
class Administered:
    """Input: an operator changes a session that is served here.

    Args:
        change: the change.
        on_done: called with the error; with None once the change is done, and durable.
    """

    change: SessionChange
    on_done: Callable[[WaypostError | None], None]


@dataclass(frozen=True, slots=True)
class CloseLog:
    """Input: append a closing marker: what this proxy has read of the site log is complete up to here.

    Args:
        on_done: called with the marker's offset once log and journal have it, or with the error of the append.
    """

    on_done: Callable[[int | WaypostError], None]


@dataclass(frozen=True, slots=True)
class StopHandovers:
    """Input: begin no handover any more, and take frozen sessions back; the process is about to end in good order.
    Leave once :attr:`proxy.engine.Engine.is_handing_over` is False, which waits for the registry's answers.
    """


@dataclass(frozen=True, slots=True)
class Leave:
    """Input: stop serving, and write the last checkpoints; the process is about to end in good order.

    Sessions stay ours in the registry until another proxy takes their next epoch; it reads the changelog, and finds
    there what receivers have acknowledged up to this moment.

    Args:
        on_done: called once the changelog has taken, or has refused, the last checkpoints.
        marked: whether to append a closing marker (:class:`CloseLog`); False where the site log has been replaced.
    """

    on_done: Callable[[None], None]
    marked: bool = True


@dataclass(frozen=True, slots=True)
class StoreAll:
    """Input: write what changed to the store.

    Args:
        on_done: called with None once the store has everything as it is now, or with the error.
    """

    on_done: Callable[[WaypostError | None], None]


@dataclass(frozen=True, slots=True)
class EffectCompleted:
    """Input: an effect has its answer.

    Args:
        on_done: the effect's own; the engine calls it with the result.
        result: what the effect's docstring says, or an error.
    """

    on_done: Callable[[Any], None]
    result: Any


OperatorInput = (
    ChangelogLost | DeletedByOperator | Rebalance | Administered | CloseLog | StopHandovers | Leave | StoreAll
)
"""What an operator requests, and what the process itself does at its end."""
EngineInput = (
    RecordsRead
    | ClientConnected
    | ClientDisconnected
    | ClientSent
    | PeerSent
    | RegistryReported
    | LeaseGranted
    | LeaseRenewed
    | LeaseLost
    | SecretRead
    | OperatorInput
    | EffectCompleted
)
