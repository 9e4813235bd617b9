"""Rows of deleted sessions, removed from the registry some time later (handover rule 28).

A row that says that a session was deleted keeps epochs from beginning anew; who makes and deletes sessions without an
end would fill the registry with them. So they are removed, and the registry's floor keeps what they said: a session
without a row counts as deleted in the generation of the floor. All proxies see the same rows; the one whose name is
the first of those that live removes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice, takewhile

from proxy.context import Context
from proxy.effects import ForgetRows
from waypost.clock import NEVER
from waypost.errors import WaypostError
from waypost.identity import Ownership, SessionId
from waypost.limits import ROWS_FORGOTTEN


class Forgetting:
    """Knows the rows of deleted sessions, in the order in which the watch told of them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._deleted: dict[SessionId, tuple[Ownership, int]] = {}
        """Each with the time from which on it may be removed."""
        self._is_under_way = False
        self._look_at = 0

    def watched(self, session: SessionId, current: Ownership | None) -> None:
        """The watch says who owns a session; None: it has no row."""
        known = self._deleted.pop(session, None)
        if current is not None and current.deleted:
            due = self._context.clock.now_ms() + self._context.settings.forget_ms
            self._deleted[session] = known if known is not None and known[0] == current else (current, due)

    def reloaded(self, owners: Mapping[SessionId, Ownership]) -> None:
        """These are all the rows that there are."""
        for session in self._deleted.keys() - owners.keys():
            del self._deleted[session]
        for session, current in owners.items():
            if session not in self._deleted or self._deleted[session][0] != current:
                self.watched(session, current)

    def tick(self) -> None:
        context, now = self._context, self._context.clock.now_ms()
        if now < self.next_deadline():
            return
        self._look_at = now + context.settings.sweep_ms
        if not context.may_serve() or not context.watching:
            return
        due = takewhile(lambda each: each[1][1] <= now, self._deleted.items())
        rows = {session: current for session, (current, _) in islice(due, ROWS_FORGOTTEN)}

        def then(answer: WaypostError | None) -> None:
            self._is_under_way = False
            if answer is None:
                # The watch will tell. One that is still there for some reason comes again when it begins anew.
                for session, current in rows.items():
                    if self._deleted.get(session, (None, 0))[0] == current:
                        del self._deleted[session]
                self._look_at = 0

        if rows:
            self._is_under_way = True
            context.emit(ForgetRows(rows, then))

    def next_deadline(self) -> int:
        context = self._context
        if not self._deleted or self._is_under_way or context.proxy != min(context.proxies, default=None):
            return NEVER
        _, due = next(iter(self._deleted.values()))
        return max(due, self._look_at)
