"""Changes of a session by operators over HTTP, at the proxy that owns it. It answers when the change is durable
(proxy/clients/admin.py). Each function returns the session, and raises WaypostError.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec.structs import asdict, replace

from node.http.schemas import (
    AccessRequest,
    PolicyRequest,
    ReceiverRequest,
    RetentionRequest,
    SessionRequest,
    SubscriptionRequest,
)
from node.shell.node import Node
from proxy.clients.admin import Administration, OnDone
from proxy.core.inputs import Administered
from proxy.session.session import Session
from proxy.session.session_policy import SessionPolicy, policy_of
from proxy.session.subscription import Subscription
from waypost.errors import BadMessage, NoAnswer
from waypost.identity import ReceiverId, SessionId, SubscriptionId
from waypost.messages import Granted
from waypost.queue import UNBOUNDED
from waypost.reliability import reliability_of

CHANGE_S = 10.0
"""A change that takes longer is answered with NoAnswer: it may have been made."""


async def set_access(node: Node, body: AccessRequest) -> SessionId:
    """Replace all grants of a session."""
    grants = {name: Granted(grant.rights, grant.password, grant.by_token) for name, grant in body.grants.items()}
    return await _changed(
        node, body.session, lambda admin, session, on_done: admin.set_access(session, grants, on_done)
    )


async def set_policy(node: Node, body: PolicyRequest) -> SessionId:
    """Change the expiry, the queue and the reliability of a session; a field that is not named stays as it was."""
    _check_named(body, "expiry_s", "queue", "reliability")

    def wanted(session: Session) -> SessionPolicy:
        policy, named = policy_of(session), body.model_fields_set
        if "expiry_s" in named:
            policy = policy._replace(expiry_s=body.expiry_s)
        if "queue" in named:
            fields = body.queue.model_dump(exclude_unset=True) if body.queue else None
            policy = policy._replace(queue=UNBOUNDED if fields is None else replace(policy.queue, **fields))
        if "reliability" in named:
            levels = asdict(policy.reliability) | body.reliability.model_dump(exclude_unset=True)
            policy = policy._replace(reliability=reliability_of(**levels))
        return policy

    return await _changed(
        node, body.session, lambda admin, session, on_done: admin.set_policy(session, wanted, on_done)
    )


async def set_retention(node: Node, body: RetentionRequest) -> SessionId:
    """Change how long, and how many, notifications are stored for a subscription; a field not named stays."""
    name, named = SubscriptionId(body.subscription), body.model_fields_set
    _check_named(body, "ttl_s", "max_count")

    def wanted(known: Subscription) -> tuple[int | None, int | None]:
        return (
            body.ttl_s if "ttl_s" in named else known.ttl_s,
            body.max_count if "max_count" in named else known.max_count,
        )

    return await _changed(
        node, body.session, lambda admin, session, on_done: admin.retain(session, name, wanted, on_done)
    )


async def unsubscribe(node: Node, body: SubscriptionRequest) -> SessionId:
    """End a subscription of a session, for all its receivers."""
    name = SubscriptionId(body.subscription)
    return await _changed(node, body.session, lambda admin, session, on_done: admin.unsubscribe(session, name, on_done))


async def forget(node: Node, body: ReceiverRequest) -> SessionId:
    """Unregister a receiver that is away: nothing is stored for it any more."""
    name = ReceiverId(body.receiver)
    return await _changed(node, body.session, lambda admin, session, on_done: admin.unregister(session, name, on_done))


def _check_named(body: SessionRequest, *fields: str) -> None:
    """Raises BadMessage: none of the fields that change something is named."""
    if not body.model_fields_set.intersection(fields):
        raise BadMessage(f"nothing is to be changed; name one of {', '.join(fields)}", field=fields[0])


async def _changed(node: Node, session: str, change: Callable[[Administration, SessionId, OnDone], None]) -> SessionId:
    """Make a change, and return its session once it is durable. Raises WaypostError."""
    administration, identity = node.serving_engine.dispatcher.administration, SessionId(session)

    def requested(on_done: OnDone) -> Administered:
        return Administered(partial(change, administration, identity, on_done))

    try:
        failure = await node.answer_to(requested, CHANGE_S)
    except TimeoutError:
        raise NoAnswer("the change was not written in time; see how the session is now", field="session") from None
    if failure is not None:
        raise failure
    return identity
