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
    from waypost.client.join import join
    from waypost.client.outbox import Outbox, open_outbox
    from waypost.client.producer import Producer
    from waypost.client.received_notification import Received
    from waypost.client.receiver import Receiver, grant
    from waypost.client.rendezvous import connect_rendezvous, offer
    from waypost.errors import WaypostError
    from waypost.frontier import Frontier
    from waypost.keys import Keys, public_key
    from waypost.notification import Int64, Notification
    from waypost.queue import Queue
    from waypost.reliability import Reliability
    from waypost.rendezvous import Request, Resource
    from waypost.subscription import parse

__all__ = [
    "Frontier",
    "Int64",
    "Keys",
    "Notification",
    "Outbox",
    "Producer",
    "Queue",
    "Received",
    "Receiver",
    "ReceiverState",
    "Reliability",
    "Request",
    "Resource",
    "WaypostError",
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

_HOMES = {
    "Frontier": "waypost.frontier",
    "Int64": "waypost.notification",
    "Keys": "waypost.keys",
    "Notification": "waypost.notification",
    "Outbox": "waypost.client.outbox",
    "Producer": "waypost.client.producer",
    "Queue": "waypost.queue",
    "Received": "waypost.client.received_notification",
    "Receiver": "waypost.client.receiver",
    "ReceiverState": "waypost.client.delivery_state",
    "Reliability": "waypost.reliability",
    "Request": "waypost.rendezvous",
    "Resource": "waypost.rendezvous",
    "WaypostError": "waypost.errors",
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


def __getattr__(name: str) -> Any:
    if name == "blocking":
        return import_module("waypost.blocking")
    if name not in _HOMES:
        raise AttributeError(f"module 'waypost' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
