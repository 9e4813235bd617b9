"""The policy of a session as a whole, set by a client on attach, or by an operator."""

from __future__ import annotations

from typing import NamedTuple

from proxy.core import journal_facts
from proxy.core.context import Context
from proxy.session.session import Session
from proxy.stream.expiry import Expiry
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
    return SessionPolicy(session.expiry_s, session.reliability, session.queue)


def apply_policy(context: Context, expiry: Expiry, session: Session, policy: SessionPolicy) -> None:
    """Set the policy of a session, in force at once; bounds of the queue that have changed are attested."""
    session.expiry_s, session.reliability = policy.expiry_s, policy.reliability
    if policy.queue != session.queue:
        session.queue = policy.queue
        session.bound(policy.queue.within(context.settings.queue))
        journal_facts.bounded(context, session)
    expiry.watch(session)
    context.sessions.mark_changed(session.id)
