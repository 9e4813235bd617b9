"""A notification as an application receives it."""

from __future__ import annotations

from waypost.client.delivery_state import DeliveredItem
from waypost.identity import Coordinate, NotificationId, SubscriptionId
from waypost.notification import Notification


class Received(Notification):
    """A notification as received: a mapping of its attributes, and where it comes from.

    `subscriptions` are the ids of all subscriptions of the session that it matched, `secure` those of them whose keys
    it met (:class:`waypost.Keys`).
    """

    __slots__ = ("at_ms", "coordinate", "id", "secure", "subscriptions")

    coordinate: Coordinate
    id: NotificationId
    at_ms: int
    subscriptions: tuple[SubscriptionId, ...]
    secure: tuple[SubscriptionId, ...]

    @classmethod
    def of(cls, taken: DeliveredItem) -> Received:
        """Return the notification as the application gets it."""
        received = cls.__new__(cls)
        entry, received.subscriptions, received.secure = taken
        received._body = entry.body
        received._attributes = None
        received.coordinate = Coordinate(entry.origin, entry.offset)
        received.id = NotificationId(entry.producer, entry.incarnation, entry.sequence)
        received.at_ms = entry.at_ms
        return received
