"""A producer without a session, as an application has it.

async with waypost.produce("weather") as producer:
    await producer.publish({"temperature": 21})
"""

from __future__ import annotations

from waypost.client.client import Client


class Producer(Client):
    """Publishes, and may ask what anybody wants (:meth:`quench`); made by :func:`produce`. It has no subscriptions."""
