"""A producer without a session, the application's view.

    async with waypost.produce("weather") as producer:
        await producer.publish({"temperature": 21})

It acknowledges nothing and subscribes to nothing.
"""

from __future__ import annotations

from waypost.client.client import Client


class Producer(Client):
    """A client that publishes, and may ask for interest (:meth:`quench`); made by :func:`waypost.produce`. It has no
    subscriptions.
    """
