"""A notification as a session stores it: encoded once, numbered, with the subscriptions that it matched."""

from __future__ import annotations

import msgspec

from proxy.retention import Matched
from waypost.identity import Origin
from waypost.keys import Key
from waypost.messages import Delivery
from waypost.records import Forwarded, Published

_encode = msgspec.msgpack.Encoder().encode


class Stored:
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
        self.size = len(delivery)

    @classmethod
    def of(cls, origin: Origin, offset: int, record: Published | Forwarded) -> Stored:
        delivery = Delivery(
            origin, offset, record.producer, record.incarnation, record.sequence, record.at_ms, record.body
        )
        return cls(origin, offset, _encode(delivery), record.protection.keys)


Entry = tuple[int, Stored, Matched]
"""Its number in the session, itself, and the subscriptions that it matched."""
