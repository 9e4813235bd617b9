"""The policy of a session as a whole, set by a client on attach, or by an operator."""

from __future__ import annotations

from typing import NamedTuple

from proxy.session.session import Session
from waypost.queue import Queue
from waypost.reliability import Reliability


class SessionPolicy(NamedTuple):
    """The settings of a session as a whole.

    `expiry_s`: seconds without an attached receiver after which it is deleted; None: never. `reliability`: the bound of
    its receivers', from their next attach on. `queue`: the bounds of its queue.
    """

    expiry_s: int | None
    reliability: Reliability
    queue: Queue


def policy_of(session: Session) -> SessionPolicy:
    """Return the policy of the session as it is now."""
    return SessionPolicy(session.idle_time.expiry_s, session.reliability, session.queue)
