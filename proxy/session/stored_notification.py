"""A notification as a session stores it: encoded once, numbered, with the subscriptions that it matched."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from proxy.session.subscription import Matched
from waypost.identity import Origin
from waypost.keys import Key, bytes_of
from waypost.messages import Delivery
from waypost.notification import Value, read_body
from waypost.records import Forwarded, Published

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Delivery).decode


class StoredNotification:
    """One notification, one copy, whatever number of sessions hold it; encoded as it is delivered.

    `keys`, which came with it, are not delivered: who has them may ask for more that goes with them.
    """

    __slots__ = ("delivery", "keys", "offset", "origin", "raw", "size")

    def __init__(self, origin: Origin, offset: int, delivery: bytes, keys: tuple[Key, ...] = ()) -> None:
        self.origin = origin
        self.offset = offset
        self.delivery = delivery
        self.keys = keys
        self.raw = msgspec.Raw(delivery)
        self.size = len(delivery) + bytes_of(keys)

    def read(self) -> tuple[Mapping[str, Value], int]:
        """Return the notification's attributes, and when it was published, in ms of Unix time."""
        delivery = _decode(self.delivery)
        return read_body(delivery.body), delivery.at_ms

    @classmethod
    def of(cls, origin: Origin, offset: int, record: Published | Forwarded) -> StoredNotification:
        """Return the notification of a record, encoded as it is stored and delivered.

        Args:
            origin: of the notification.
            offset: of the notification, in its origin's log.
            record: from the log of this site: published here, or forwarded.
        """
        delivery = Delivery(
            origin=origin,
            offset=offset,
            producer=record.producer,
            incarnation=record.incarnation,
            sequence=record.sequence,
            at_ms=record.at_ms,
            body=record.body,
            check=record.check,
        )
        return cls(origin, offset, _encode(delivery), record.protection.keys)


Entry = tuple[int, StoredNotification, Matched]
"""Its number in the session, itself, and the subscriptions that it matched."""
