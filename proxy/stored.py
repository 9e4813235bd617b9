"""A notification as a session stores it: encoded once, numbered, with the subscriptions that it matched."""

from __future__ import annotations

import msgspec

from proxy.retention import Matched
from waypost.identity import Origin
from waypost.messages import Delivery
from waypost.records import Forwarded, Published

_encode = msgspec.msgpack.Encoder().encode


class Stored:
    """One notification, one copy, whatever number of sessions hold it; encoded as it is delivered."""

    __slots__ = ("delivery", "offset", "origin", "raw", "size")

    def __init__(self, origin: Origin, offset: int, delivery: bytes) -> None:
        self.origin = origin
        self.offset = offset
        self.delivery = delivery
        self.raw = msgspec.Raw(delivery)
        self.size = len(delivery)

    @classmethod
    def of(cls, origin: Origin, offset: int, record: Published | Forwarded) -> Stored:
        delivery = Delivery(
            origin, offset, record.producer, record.incarnation, record.sequence, record.at_ms, record.body
        )
        return cls(origin, offset, _encode(delivery))


Entry = tuple[int, Stored, Matched]
"""Its number in the session, itself, and the subscriptions that it matched."""
