"""How much of what is kept for a receiver outlives the process that keeps it: the two reliabilities of CosNotification.

==============  ==========================================================  ===========================================
                best effort                                                 persistent
==============  ==========================================================  ===========================================
events          what waits for the receiver is in memory, and may go with   it is stored, and delivered after whatever
                the process, however that ends: then the receiver is told
                of the gap
connection      the registration goes with the process, or soon after       it stays, with all that the receiver asked
                its client has gone                                         for, until it gives it up
==============  ==========================================================  ===========================================

Persistent events on a connection of best effort mean nothing: nobody would be left to have them.

They are set for a proxy (``waypost serve``; the same for all of a federation), for a session and for a receiver. A
lower level may only lower what the one above it says; what is in force is settled when a receiver attaches. A handover
loses nothing whatever the reliability.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from waypost.arguments import one_of
from waypost.errors import BadArgument, Refused

Degree = Literal["best-effort", "persistent"]
DEGREES: tuple[Degree, ...] = ("best-effort", "persistent")
"""From the lower to the higher."""


class Reliability(msgspec.Struct, frozen=True, array_like=True):
    """How much of what is kept for a receiver outlives the process that keeps it. It is set for a proxy, a session and
    a receiver; the lower of each property is in force. A handover loses nothing in any case.

    Args:
        events: ``persistent``: what waits for the receiver is stored. ``best-effort``: it is in memory alone; where the
            process ends, it is lost, and the receiver is told of the gap.
        connection: ``persistent``: the registration stays until the receiver gives it up, or its expiry is over.
            ``best-effort``: it ends BEST_EFFORT_EXPIRY_S seconds after the client has gone, at most, and with the
            process.

    Raises:
        BadArgument: a value is no degree, or persistent events are combined with a best-effort connection, where nobody
            would be left to have them.
    """

    events: Degree = "persistent"
    connection: Degree = "persistent"

    def __post_init__(self) -> None:
        one_of(self.events, "events", DEGREES)
        one_of(self.connection, "connection", DEGREES)
        if (self.events, self.connection) == ("persistent", "best-effort"):
            raise BadArgument("persistent events on a connection of best effort mean nothing", field="connection")

    def below(self, other: Reliability) -> Reliability:
        """Return the reliability in force where two levels are set: the lower of each property."""
        return Reliability(_lower(self.events, other.events), _lower(self.connection, other.connection))

    def __str__(self) -> str:
        return f"{self.events} events, {self.connection} connection"


PERSISTENT = Reliability()
BEST_EFFORT_EVENTS = Reliability("best-effort", "persistent")
BEST_EFFORT = Reliability("best-effort", "best-effort")


def _lower(left: Degree, right: Degree) -> Degree:
    return min(left, right, key=DEGREES.index)


def reliability_of(events: str, connection: str) -> Reliability:
    """Return the reliability of two texts, each ``best-effort`` or ``persistent``, for events and for the connection.

    Raises:
        BadArgument: a text is no degree, or persistent events are combined with a best-effort connection.
    """
    return Reliability(events, connection)  # type: ignore[arg-type]


def check_level(reliability: Reliability, above: Reliability, level: str) -> None:
    """Raise Refused if a level asks for more than the one above it allows.

    Args:
        reliability: that is asked for.
        above: of the level above.
        level: the name of the level, for the error.
    """
    if reliability.below(above) != reliability:
        raise Refused(f"{reliability}; here it is {above} at most", field=level)
