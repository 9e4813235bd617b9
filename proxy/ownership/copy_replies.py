"""Answers about a session that has a copy here: they are taken as long as what they were asked for has not changed.

An answer decides who owns a session, or whether a copy of it is the right one. So it names the copy, its epoch and the
lease under which it was asked for, as those of an acquisition do (:class:`handover.acquisition.ReplyKey`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from proxy.core.environment import Environment
from proxy.core.output import Output
from proxy.core.session_table import SessionTable
from proxy.ownership.stale_replies import refuse, why_stale
from proxy.session.session import Session

Answer = TypeVar("Answer")


class CopyReplies:
    """Takes the answers of the registry about copies that are here; what is stale is refused, and counted by name."""

    def __init__(self, env: Environment, sessions: SessionTable, output: Output) -> None:
        self._env = env
        self._sessions = sessions
        self._output = output

    def to(self, session: Session, take: Callable[[Answer], None]) -> Callable[[Answer], None]:
        """Return the `on_done` of an effect that asks about a copy as it is now.

        Args:
            session: the copy that is here.
            take: called with the answer, unless the copy, its epoch or the lease has changed since: then the answer is
                only counted as stale.
        """
        epoch, incarnation = session.epoch, self._env.lease.incarnation

        def on_done(answer: Answer) -> None:
            is_same_copy = self._sessions.get(session.id) is session and session.epoch == epoch
            stale = why_stale(self._env.lease, incarnation, is_same_copy=is_same_copy)
            if not refuse(self._output.counters, stale):
                take(answer)

        return on_done
