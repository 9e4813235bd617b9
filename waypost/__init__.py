"""Waypost: a roaming client's place in a stream of content-based notifications, kept and handed on.

    async with waypost.attach("travellers/alice") as session:
        await session.subscribe('origin == "JFK" && dep_delay > 30')
        async for notification in session:
            ...

Names are loaded when they are first used, so that a command that needs little starts quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from waypost import blocking
    from waypost.client.attaching import attach, produce
    from waypost.client.joining import join
    from waypost.client.received import Received
    from waypost.client.receiving import ReceiverState
    from waypost.client.rendezvous import meet, offer
    from waypost.client.session import Session, allow
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
    "Queue",
    "Received",
    "ReceiverState",
    "Reliability",
    "Request",
    "Resource",
    "Session",
    "WaypostError",
    "allow",
    "attach",
    "blocking",
    "join",
    "meet",
    "offer",
    "parse",
    "produce",
    "public_key",
]

_HOMES = {
    "Frontier": "waypost.frontier",
    "Int64": "waypost.notification",
    "Keys": "waypost.keys",
    "Notification": "waypost.notification",
    "Queue": "waypost.queue",
    "Received": "waypost.client.received",
    "ReceiverState": "waypost.client.receiving",
    "Reliability": "waypost.reliability",
    "Request": "waypost.rendezvous",
    "Resource": "waypost.rendezvous",
    "Session": "waypost.client.session",
    "WaypostError": "waypost.errors",
    "allow": "waypost.client.session",
    "attach": "waypost.client.attaching",
    "join": "waypost.client.joining",
    "meet": "waypost.client.rendezvous",
    "offer": "waypost.client.rendezvous",
    "parse": "waypost.subscription",
    "produce": "waypost.client.attaching",
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
