"""What is set of a session as a whole: by its owner on attach, or by an operator."""

from __future__ import annotations

from typing import NamedTuple

from proxy.core import journal_facts
from proxy.core.context import Context
from proxy.session.session import Session
from proxy.stream.expiry import Expiry
from waypost.queue import Queue
from waypost.reliability import Reliability


class SessionPolicy(NamedTuple):
    """`expiry_s`: it ends when nobody was attached for so many seconds; None: never. `reliability`: what those of its
    receivers may not exceed, from their next attach on. `queue`: how much it stores.
    """

    expiry_s: int | None
    reliability: Reliability
    queue: Queue


def policy_of(session: Session) -> SessionPolicy:
    """Return what is set of the session as a whole."""
    return SessionPolicy(session.expiry_s, session.reliability, session.queue)


def apply_policy(context: Context, expiry: Expiry, session: Session, policy: SessionPolicy) -> None:
    """Let these hold from now on."""
    session.expiry_s, session.reliability = policy.expiry_s, policy.reliability
    if policy.queue != session.queue:
        session.queue = policy.queue
        session.bound(policy.queue.within(context.settings.queue))
        journal_facts.bounded(context, session)
    expiry.watch(session)
    context.sessions.mark_changed(session.id)
