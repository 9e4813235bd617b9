"""The options with which a client connects, and with which a receiver attaches to a session."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from waypost.arguments import flag, instance, one_of, whole, whole_or_none
from waypost.client.roaming import Roaming
from waypost.limits import MAX_TTL_S, RECEIVER_WINDOW
from waypost.messages import ProxyAddress
from waypost.queue import ORDERS, Order, Queue
from waypost.reliability import Reliability

Finder: TypeAlias = Callable[[], Awaitable[Sequence[ProxyAddress]]]
"""A function that returns the proxies of the local network, best first. Raises NoProxy: it is not clear which to
use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """The options with which a client connects.

    Args:
        addresses: of proxies, ``ws://host:port``; empty: `find` finds them.
        find: finds proxies on the local network; None: there is no way to find one.
        tls: the TLS context for ``wss://`` addresses; None: made from the environment (`tls_from_environment`).
        roaming: the policy by which the client goes to the nearest proxy; None: it uses its addresses in their order.
    """

    addresses: Sequence[str] = ()
    find: Finder | None = None
    tls: ssl.SSLContext | None = None
    roaming: Roaming | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachOptions:
    """What a receiver asks for when it attaches; :func:`waypost.client.entry.attach` says what each means.

    Args:
        create: create the session if there is none.
        window: the number of notifications that may be delivered and not acknowledged.
        session_expiry_s: the session is deleted when no receiver was attached for so many seconds; None: as it was.
        receiver_expiry_s: the registration ends when the receiver was not attached for so many seconds; None: never.
            Over a best-effort connection it is BEST_EFFORT_EXPIRY_S at most, and never None.
        reliability: of this receiver; None: that of the session.
        session_reliability: of the session from now on; None: as it was.
        queue: the bounds of what the session stores from now on; None: as they were.
        order: which of the notifications that wait is returned first.
    """

    create: bool = True
    window: int = RECEIVER_WINDOW
    session_expiry_s: int | None = None
    receiver_expiry_s: int | None = None
    reliability: Reliability | None = None
    session_reliability: Reliability | None = None
    queue: Queue | None = None
    order: Order = "any"

    def check(self) -> None:
        """Check the type and the range of every option. Raises Refused: one is wrong; `field` names it."""
        for field, option, kind in (
            ("reliability", self.reliability, Reliability),
            ("session_reliability", self.session_reliability, Reliability),
            ("queue", self.queue, Queue),
        ):
            if option is not None:
                instance(option, field, kind, f"a waypost.{kind.__name__}")
        flag(self.create, "create")
        whole(self.window, "window", 1, RECEIVER_WINDOW)
        one_of(self.order, "order", ORDERS)
        whole_or_none(self.session_expiry_s, "session_expiry_s", 1, MAX_TTL_S)
        whole_or_none(self.receiver_expiry_s, "receiver_expiry_s", 1, MAX_TTL_S)
