"""What operators change of a session, by HTTP: at the proxy that owns it, which answers when the change would survive
it (proxy/clients/admin.py).
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
from node.node import Node
from proxy.clients.admin import Administration, OnDone
from proxy.clients.session_policy import SessionPolicy, policy_of
from proxy.session.session import Session
from proxy.session.subscription import Subscription
from waypost.errors import BadMessage, NoAnswer
from waypost.identity import ReceiverId, SessionId, SubscriptionId
from waypost.messages import Granted
from waypost.queue import UNBOUNDED
from waypost.reliability import reliability_of

CHANGE_S = 10.0
"""So long a change may take, before it is said that nobody knows what became of it."""


async def set_access(node: Node, wish: AccessRequest) -> SessionId:
    grants = {name: Granted(each.rights, each.password, each.by_token) for name, each in wish.grants.items()}
    return await _changed(node, wish.session, lambda here, session, on_done: here.set_access(session, grants, on_done))


async def set_policy(node: Node, wish: PolicyRequest) -> SessionId:
    _check_named(wish, "expiry_s", "queue", "reliability")

    def wanted(session: Session) -> SessionPolicy:
        terms, named = policy_of(session), wish.model_fields_set
        if "expiry_s" in named:
            terms = terms._replace(expiry_s=wish.expiry_s)
        if "queue" in named:
            said = wish.queue.model_dump(exclude_unset=True) if wish.queue else None
            terms = terms._replace(queue=UNBOUNDED if said is None else replace(terms.queue, **said))
        if "reliability" in named:
            levels = asdict(terms.reliability) | wish.reliability.model_dump(exclude_unset=True)
            terms = terms._replace(reliability=reliability_of(**levels))
        return terms

    return await _changed(node, wish.session, lambda here, session, on_done: here.set_policy(session, wanted, on_done))


async def set_retention(node: Node, wish: RetentionRequest) -> SessionId:
    name, named = SubscriptionId(wish.subscription), wish.model_fields_set
    _check_named(wish, "ttl_s", "max_count")

    def wanted(known: Subscription) -> tuple[int | None, int | None]:
        return (
            wish.ttl_s if "ttl_s" in named else known.ttl_s,
            wish.max_count if "max_count" in named else known.max_count,
        )

    return await _changed(
        node, wish.session, lambda here, session, on_done: here.retain(session, name, wanted, on_done)
    )


async def unsubscribe(node: Node, wish: SubscriptionRequest) -> SessionId:
    name = SubscriptionId(wish.subscription)
    return await _changed(node, wish.session, lambda here, session, on_done: here.unsubscribe(session, name, on_done))


async def forget(node: Node, wish: ReceiverRequest) -> SessionId:
    name = ReceiverId(wish.receiver)
    return await _changed(node, wish.session, lambda here, session, on_done: here.unregister(session, name, on_done))


def _check_named(wish: SessionRequest, *fields: str) -> None:
    """Raises BadMessage: none of the fields that change something is named."""
    if not wish.model_fields_set.intersection(fields):
        raise BadMessage(f"nothing is to be changed; name one of {', '.join(fields)}", field=fields[0])


async def _changed(node: Node, session: str, change: Callable[[Administration, SessionId, OnDone], None]) -> SessionId:
    """Have it changed; return which session that was. Raises WaypostError."""
    here, identity = node.serving_engine.dispatcher.administration, SessionId(session)
    try:
        failure = await node.answer_to(partial(change, here, identity), CHANGE_S)
    except TimeoutError:
        raise NoAnswer("the change was not written in time; see how the session is now", field="session") from None
    if failure is not None:
        raise failure
    return identity
