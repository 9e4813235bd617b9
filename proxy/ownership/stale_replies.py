"""Answers that come to something that has changed while they were under way: here is decided which ones are refused.

Every answer that decides who owns a session, or which copy of it is the right one, is judged by :func:`why_stale`
before anything is done about it: those of an acquisition (`acquisitions.py`), of a transfer (`transfer_driver.py`), and
about a copy that is here (`copy_replies.py`). Each of these knows what it asked for. :func:`refuse` counts what is
refused, by the name of what has changed (metric `waypost_stale_answers_total`).
"""

from __future__ import annotations

from handover.acquisition import StaleReply
from proxy.core.counters import Counters
from proxy.core.lease import Lease
from waypost.identity import Incarnation


def why_stale(
    lease: Lease,
    asked_by: Incarnation,
    *,
    is_same_attempt: bool = True,
    is_same_copy: bool = True,
    needs_lease: bool = False,
) -> StaleReply | None:
    """Return what has changed since a question was asked; None: nothing that matters, and the answer counts.

    Args:
        lease: of this proxy, as it is now.
        asked_by: the incarnation of this proxy that asked.
        is_same_attempt: whether who asked still waits for this very answer.
        is_same_copy: whether the copy of the session that it was asked about is here, as it was then.
        needs_lease: whether the answer counts only while this proxy may serve.
    """
    if asked_by != lease.incarnation:
        return StaleReply.ANOTHER_INCARNATION
    if not is_same_attempt:
        return StaleReply.ANOTHER_ATTEMPT
    if needs_lease and not lease.may_serve():
        return StaleReply.NO_LEASE
    if not is_same_copy:
        return StaleReply.ANOTHER_COPY
    return None


def refuse(counters: Counters, stale: StaleReply | None) -> bool:
    """Count an answer as refused; return whether it is.

    Args:
        stale: from :func:`why_stale`; None: the answer counts, and False is returned.
    """
    if stale is None:
        return False
    counters.stale_replies[stale] += 1
    return True
