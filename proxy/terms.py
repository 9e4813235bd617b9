"""What is set of a session as a whole: by its owner when he attaches, or by an operator."""

from __future__ import annotations

from typing import NamedTuple

from proxy import attesting
from proxy.context import Context
from proxy.session import Session
from proxy.sweeping import Sweeps
from waypost.queue import Queue
from waypost.reliability import Reliability


class Terms(NamedTuple):
    """`lasts_s`: it ends when nobody was attached for so many seconds; None: never. `reliability`: what those of its
    receivers may not exceed, from their next attach on. `queue`: how much it stores."""

    lasts_s: int | None
    reliability: Reliability
    queue: Queue


def terms_of(session: Session) -> Terms:
    return Terms(session.lasts_s, session.reliability, session.queue)


def settle(context: Context, sweeps: Sweeps, session: Session, terms: Terms) -> None:
    """Let these hold from now on."""
    session.lasts_s, session.reliability = terms.lasts_s, terms.reliability
    if terms.queue != session.queue:
        session.queue = terms.queue
        session.bound(terms.queue.within(context.settings.queue))
        attesting.bounded(context, session)
    sweeps.watch(session)
    context.dirty.add(session.id)
