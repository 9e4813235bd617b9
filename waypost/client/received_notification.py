"""A notification as an application receives it."""

from __future__ import annotations

from waypost.client.delivery_state import DeliveredItem
from waypost.identity import Coordinate, NotificationId, SubscriptionId
from waypost.notification import Notification


class Received(Notification):
    """A notification as received: a mapping of its attributes, and its origin.

    `coordinate` is where it was first appended, `id` its producer's, `at_ms` when it was published, in ms of Unix time
    by the clock of its proxy. `subscriptions` are the ids of all subscriptions of the session that it matched, `secure`
    those of them whose keys it met (:class:`waypost.Keys`).
    """

    __slots__ = ("at_ms", "coordinate", "id", "secure", "subscriptions")

    coordinate: Coordinate
    id: NotificationId
    at_ms: int
    subscriptions: tuple[SubscriptionId, ...]
    secure: tuple[SubscriptionId, ...]

    @classmethod
    def of(cls, item: DeliveredItem) -> Received:
        """Return the notification of an item that :meth:`DeliveryState.next_items` returned. Its body is not decoded
        yet.
        """
        received = cls.__new__(cls)
        entry, received.subscriptions, received.secure = item
        received._body = entry.body
        received._attributes = None
        received.coordinate = Coordinate(entry.origin, entry.offset)
        received.id = NotificationId(entry.producer, entry.incarnation, entry.sequence)
        received.at_ms = entry.at_ms
        return received
