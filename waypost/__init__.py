"""Waypost: durable sessions of content-based notifications for roaming clients, handed over from proxy to proxy.

    async with waypost.attach("travellers/alice") as receiver:
        await receiver.subscribe('origin == "JFK" && dep_delay > 30')
        async for notification in receiver:
            ...

Names are imported when they are first used, so that a command that needs few of them starts quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from waypost import blocking
    from waypost.client.delivery_state import ReceiverState
    from waypost.client.entry import attach, produce
    from waypost.client.events import NearerProxy, Redirected, Retry, SessionReplaced, WrongFederation
    from waypost.client.join import join
    from waypost.client.outbox import Outbox, PostRefused, open_outbox
    from waypost.client.producer import Producer
    from waypost.client.received_notification import Received
    from waypost.client.receiver import Receiver, grant
    from waypost.client.rendezvous import connect_rendezvous, offer
    from waypost.client.roaming import Roaming
    from waypost.errors import (
        AnotherFederation,
        BadArgument,
        BadConfiguration,
        BadMessage,
        BadNotification,
        Forbidden,
        LimitExceeded,
        LogUnavailable,
        NoAnswer,
        NoProxy,
        NotFound,
        NotServed,
        ReceiverTaken,
        Refused,
        SessionDeleted,
        SessionLost,
        StoreDamaged,
        StoreFailed,
        Unreachable,
        WaypostError,
    )
    from waypost.frontier import Frontier
    from waypost.keys import Keys, public_key
    from waypost.messages import Attached, BecameEffective, Gap, SubscriptionChanged
    from waypost.notification import Int64, Notification
    from waypost.queue import Queue
    from waypost.reliability import Reliability
    from waypost.rendezvous import Request, Resource
    from waypost.subscription import SubscriptionError, parse

__all__ = [
    "AnotherFederation",
    "Attached",
    "BadArgument",
    "BadConfiguration",
    "BadMessage",
    "BadNotification",
    "BecameEffective",
    "Forbidden",
    "Frontier",
    "Gap",
    "Int64",
    "Keys",
    "LimitExceeded",
    "LogUnavailable",
    "NearerProxy",
    "NoAnswer",
    "NoProxy",
    "NotFound",
    "NotServed",
    "Notification",
    "Outbox",
    "PostRefused",
    "Producer",
    "Queue",
    "Received",
    "Receiver",
    "ReceiverState",
    "ReceiverTaken",
    "Redirected",
    "Refused",
    "Reliability",
    "Request",
    "Resource",
    "Retry",
    "Roaming",
    "SessionDeleted",
    "SessionLost",
    "SessionReplaced",
    "StoreDamaged",
    "StoreFailed",
    "SubscriptionChanged",
    "SubscriptionError",
    "Unreachable",
    "WaypostError",
    "WrongFederation",
    "attach",
    "blocking",
    "connect_rendezvous",
    "grant",
    "join",
    "offer",
    "open_outbox",
    "parse",
    "produce",
    "public_key",
]

_MODULES = {
    "AnotherFederation": "waypost.errors",
    "Attached": "waypost.messages",
    "BadArgument": "waypost.errors",
    "BadConfiguration": "waypost.errors",
    "BadMessage": "waypost.errors",
    "BadNotification": "waypost.errors",
    "BecameEffective": "waypost.messages",
    "Forbidden": "waypost.errors",
    "Frontier": "waypost.frontier",
    "Gap": "waypost.messages",
    "Int64": "waypost.notification",
    "Keys": "waypost.keys",
    "LimitExceeded": "waypost.errors",
    "LogUnavailable": "waypost.errors",
    "NearerProxy": "waypost.client.events",
    "NoAnswer": "waypost.errors",
    "NoProxy": "waypost.errors",
    "NotFound": "waypost.errors",
    "NotServed": "waypost.errors",
    "Notification": "waypost.notification",
    "Outbox": "waypost.client.outbox",
    "PostRefused": "waypost.client.outbox",
    "Producer": "waypost.client.producer",
    "Queue": "waypost.queue",
    "Received": "waypost.client.received_notification",
    "Receiver": "waypost.client.receiver",
    "ReceiverState": "waypost.client.delivery_state",
    "ReceiverTaken": "waypost.errors",
    "Redirected": "waypost.client.events",
    "Refused": "waypost.errors",
    "Reliability": "waypost.reliability",
    "Request": "waypost.rendezvous",
    "Resource": "waypost.rendezvous",
    "Retry": "waypost.client.events",
    "Roaming": "waypost.client.roaming",
    "SessionDeleted": "waypost.errors",
    "SessionLost": "waypost.errors",
    "SessionReplaced": "waypost.client.events",
    "StoreDamaged": "waypost.errors",
    "StoreFailed": "waypost.errors",
    "SubscriptionChanged": "waypost.messages",
    "SubscriptionError": "waypost.subscription",
    "Unreachable": "waypost.errors",
    "WaypostError": "waypost.errors",
    "WrongFederation": "waypost.client.events",
    "attach": "waypost.client.entry",
    "connect_rendezvous": "waypost.client.rendezvous",
    "grant": "waypost.client.receiver",
    "join": "waypost.client.join",
    "offer": "waypost.client.rendezvous",
    "open_outbox": "waypost.client.outbox",
    "parse": "waypost.subscription",
    "produce": "waypost.client.entry",
    "public_key": "waypost.keys",
}
"""Where each name is defined."""


def __getattr__(name: str) -> Any:
    if name == "blocking":
        return import_module("waypost.blocking")
    if name not in _MODULES:
        raise AttributeError(f"module 'waypost' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
