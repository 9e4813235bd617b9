"""Changes of a session by operators over HTTP, at the proxy that owns it. It answers when the change is durable
(proxy/clients/admin.py). Each function returns the session, and raises WaypostError.
"""

from __future__ import annotations

from functools import partial

from node.http.schemas import (
    AccessRequest,
    PolicyRequest,
    ReceiverRequest,
    RetentionRequest,
    SessionRequest,
    SubscriptionRequest,
)
from node.shell.node import Node
from proxy.core.inputs import (
    Administered,
    ChangeAccess,
    ChangePolicy,
    ChangeRetention,
    EndSubscription,
    SessionChange,
    UnregisterReceiver,
)
from waypost.errors import BadMessage, NoAnswer
from waypost.identity import ReceiverId, SessionId, SubscriptionId
from waypost.messages import Granted

CHANGE_S = 10.0
"""A change that takes longer is answered with NoAnswer: it may have been made."""


async def set_access(node: Node, body: AccessRequest) -> SessionId:
    """Replace all grants of a session that this proxy owns; return the session once the change is durable.

    Raises:
        NotFound: there is no such session.
        NotServed: another proxy owns the session (the message says which), or it cannot be changed at this moment.
        NoAnswer: the change was not written within CHANGE_S; it may have been made.
        WaypostError: the change is refused, or a part of the proxy that it needs does not answer.
    """
    grants = {name: Granted(grant.rights, grant.password, grant.by_token) for name, grant in body.grants.items()}
    return await _changed(node, ChangeAccess(SessionId(body.session), grants))


async def set_policy(node: Node, body: PolicyRequest) -> SessionId:
    """Change the expiry, the queue and the reliability of a session that this proxy owns; return the session once the
    change is durable. A field that the body does not name stays as it was.

    Raises:
        BadMessage: the body names nothing to be changed.
        NotFound: there is no such session.
        NotServed: another proxy owns the session (the message says which), or it cannot be changed at this moment.
        NoAnswer: the change was not written within CHANGE_S; it may have been made.
        WaypostError: the change is refused, or a part of the proxy that it needs does not answer.
    """
    _check_named(body, "expiry_s", "queue", "reliability")
    named = body.model_dump(include=body.model_fields_set - {"session"}, exclude_unset=True)
    return await _changed(node, ChangePolicy(session=SessionId(body.session), **named))


async def set_retention(node: Node, body: RetentionRequest) -> SessionId:
    """Change how long, and how many, notifications are stored for a subscription of a session that this proxy owns;
    return the session once that is durable. A field that the body does not name stays as it was.

    Raises:
        BadMessage: the body names nothing to be changed.
        NotFound: there is no such session or subscription.
        NotServed: another proxy owns the session (the message says which), or it cannot be changed at this moment.
        NoAnswer: the change was not written within CHANGE_S; it may have been made.
        WaypostError: the change is refused, or a part of the proxy that it needs does not answer.
    """
    _check_named(body, "ttl_s", "max_count")
    session, subscription = SessionId(body.session), SubscriptionId(body.subscription)
    named = body.model_dump(include=body.model_fields_set & {"ttl_s", "max_count"})
    return await _changed(node, ChangeRetention(session=session, subscription=subscription, **named))


async def unsubscribe(node: Node, body: SubscriptionRequest) -> SessionId:
    """End a subscription, for all receivers of a session that this proxy owns; return the session once the change is
    durable.

    Raises:
        NotFound: there is no such session or subscription.
        NotServed: another proxy owns the session (the message says which), or it cannot be changed at this moment.
        NoAnswer: the change was not written within CHANGE_S; it may have been made.
        WaypostError: the change is refused, or a part of the proxy that it needs does not answer.
    """
    return await _changed(node, EndSubscription(SessionId(body.session), SubscriptionId(body.subscription)))


async def forget(node: Node, body: ReceiverRequest) -> SessionId:
    """Unregister a receiver that is away, for which nothing is stored any more, from a session that this proxy owns;
    return the session once that is durable.

    Raises:
        NotFound: there is no such session or receiver.
        NotServed: another proxy owns the session (the message says which), or it cannot be changed at this moment.
        NoAnswer: the change was not written within CHANGE_S; it may have been made.
        WaypostError: the receiver is attached, or a part of the proxy that the change needs does not answer.
    """
    return await _changed(node, UnregisterReceiver(SessionId(body.session), ReceiverId(body.receiver)))


def _check_named(body: SessionRequest, *fields: str) -> None:
    """Raises BadMessage: none of the fields that change something is named."""
    if not body.model_fields_set.intersection(fields):
        raise BadMessage(f"nothing is to be changed; name one of {', '.join(fields)}", field=fields[0])


async def _changed(node: Node, change: SessionChange) -> SessionId:
    """Make a change, and return its session once it is durable. Raises WaypostError."""
    try:
        failure = await node.answer_to(partial(Administered, change), CHANGE_S)
    except TimeoutError:
        raise NoAnswer("the change was not written in time; see how the session is now", field="session") from None
    if failure is not None:
        raise failure
    return change.session
