"""What becomes of receivers of best-effort events when the process ends that had their backlog in memory alone.

The backlog of such a receiver is lost with its process (waypost/reliability.py): the receiver is told of a gap, and
goes on behind it. Receivers of persistent events are not touched.
"""

from __future__ import annotations

from collections.abc import Mapping

from proxy.session.session import Session
from waypost.checkpoint import GapRow
from waypost.facts import GapCause
from waypost.identity import NOTHING, Origin, site_of


def mark_caught_up(session: Session, site: Mapping[Origin, int]) -> None:
    """Raise the frontiers of best-effort receivers that have every entry to the session's: no gap lies below it.

    Args:
        session: a session that is served, or was restored.
        site: the frontier of the site log, as read here.
    """
    for receiver in session.receivers.values():
        if receiver.is_best_effort and receiver.acknowledged >= session.entries.last_number:
            receiver.raise_frontier(session.frontier(site))


def expire_unpersisted(session: Session, upto: Mapping[Origin, int]) -> None:
    """Turn the backlog of best-effort receivers, which was lost with its process, into gaps, and move them past it.

    Their frontiers move, their numbers do not (:func:`expire_unpersisted_copy`). If there is such a receiver, the
    session promises nothing any more at or below `upto`, in origins without a promise.

    Args:
        session: a session that is rebuilt or restored, and not served yet.
        upto: the frontier above which it goes on.
    """
    start = session.subscriptions.promised_from()
    # A receiver with a promise for a site's notifications is owed all of its later log epochs, promised yet or not.
    sites = {site_of(origin) for origin in start}
    start |= {origin: NOTHING for origin in upto if origin not in start and site_of(origin) in sites}
    affected = [receiver for receiver in session.receivers.values() if receiver.is_best_effort]
    for receiver in affected:
        for origin, (first, last) in receiver.expire_unpersisted(upto, start).items():
            session.gaps.add(GapRow(origin, first, last, GapCause.LOST_WITH_PROCESS, [receiver.id]))
    if affected:
        # They get past what was promised to nobody yet, and no gap says so.
        session.subscriptions.raise_promise_floors(upto)


def expire_unpersisted_copy(session: Session, upto: Mapping[Origin, int]) -> None:
    """Turn the lost backlog of best-effort receivers into gaps, and move them past all entries of this stored copy
    (:func:`expire_unpersisted`). Entries that all receivers have then are dropped.

    A best-effort receiver that has every entry gets no gap: its frontier is raised to the session's first.

    Args:
        session: a session as the store had it.
        upto: the frontier above which it goes on.
    """
    mark_caught_up(session, upto)
    expire_unpersisted(session, upto)
    for receiver in session.receivers.values():
        if receiver.is_best_effort:
            receiver.set_acknowledged(max(receiver.acknowledged, session.entries.last_number))
    session.remove_acknowledged()
