"""The queue of a session: its bounds, which notification is discarded past them, and the order of a receiver. The
model is the queue of CosNotification, with its discard and order policies.

Three of its properties are attributes of notifications, and count only where the queue or the order says so:

Priority            a whole number, 0 if there is none; the lowest is discarded first, the highest is given first
StopTime, Timeout   when it is of no use any more: in milliseconds of Unix time; after so many since it was published

What of them a notification has, it has by its producer's word; times are compared by the clocks of two proxies, the one
where it was published and the one that serves the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from waypost.arguments import flag, one_of, whole_or_none
from waypost.clock import NEVER
from waypost.limits import MAX_STORED, MAX_STORED_BYTES
from waypost.notification import Value

PRIORITY, STOP_TIME, TIMEOUT = "Priority", "StopTime", "Timeout"
Discard = Literal["any", "fifo", "lifo", "priority", "deadline"]
"""Which notification is discarded first: whichever is easiest; the oldest; the newest; the one of the lowest
priority, or of the soonest deadline, and of several such ones the oldest.
"""
DISCARDS: tuple[Discard, ...] = ("any", "fifo", "lifo", "priority", "deadline")
Order = Literal["any", "fifo", "priority", "deadline"]
"""Which waiting notification a receiver gets first: whichever is easiest, which is the oldest; the oldest; the one
of the highest priority, or of the soonest deadline, and of several such ones the oldest.
"""
ORDERS: tuple[Order, ...] = ("any", "fifo", "priority", "deadline")


class Queue(msgspec.Struct, frozen=True, array_like=True):
    """The bounds of a session's stored notifications.

    Args:
        max_count: notifications; None: no bound.
        max_bytes: bytes of their bodies; None: no bound.
        discard: which notification is discarded first past a bound.
        deadlines: whether notifications past their StopTime or Timeout are discarded, whatever the bounds.

    Raises:
        BadArgument: a value is of the wrong type or out of its range.
    """

    max_count: Annotated[int, Meta(ge=1, le=MAX_STORED)] | None = None
    max_bytes: Annotated[int, Meta(ge=1, le=MAX_STORED_BYTES)] | None = None
    discard: Discard = "fifo"
    deadlines: bool = False

    def __post_init__(self) -> None:
        """Raise BadArgument for a value of the wrong type or out of its range."""
        whole_or_none(self.max_count, "max_count", 1, MAX_STORED)
        whole_or_none(self.max_bytes, "max_bytes", 1, MAX_STORED_BYTES)
        one_of(self.discard, "discard", DISCARDS)
        flag(self.deadlines, "deadlines")

    def within(self, other: Queue) -> Queue:
        """Return the tighter bounds of the two, with the discard policy and the deadlines of this one."""
        return msgspec.structs.replace(
            self,
            max_count=_least(self.max_count, other.max_count),
            max_bytes=_least(self.max_bytes, other.max_bytes),
        )

    @property
    def uses_attributes(self) -> bool:
        """Whether the discard policy depends on attributes of notifications."""
        return self.deadlines or self.discard in ("priority", "deadline")


UNBOUNDED = Queue()


def goes_by_attributes(order: Order) -> bool:
    """Tell whether a later notification may be returned before an earlier one."""
    return order in ("priority", "deadline")


def rank(order: Order, attributes: Mapping[str, Value], at_ms: int) -> int:
    """Return the sort key of a notification, the lowest first.

    Args:
        order: ``priority``, or else by deadline.
        attributes: of the notification.
        at_ms: when it was published, Unix time.
    """
    return -priority_of(attributes) if order == "priority" else deadline_of(attributes, at_ms)


def _least(left: int | None, right: int | None) -> int | None:
    return min((bound for bound in (left, right) if bound is not None), default=None)


def priority_of(attributes: Mapping[str, Value]) -> int:
    """Return the notification's Priority; 0: it has none that is a whole number."""
    found = attributes.get(PRIORITY)
    return int(found) if isinstance(found, int) else 0


def deadline_of(attributes: Mapping[str, Value], at_ms: int) -> int:
    """Return the deadline of a notification that was published at `at_ms`, in ms of Unix time; NEVER: it has none."""
    stop, timeout = attributes.get(STOP_TIME), attributes.get(TIMEOUT)
    return min(
        int(stop) if isinstance(stop, int) else NEVER,
        at_ms + int(timeout) if isinstance(timeout, int) else NEVER,
    )
