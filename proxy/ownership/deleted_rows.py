"""Rows of deleted sessions, removed from the registry some time later (handover rule 28).

A row that says that a session was deleted keeps epochs from beginning anew; who makes and deletes sessions without an
end would fill the registry with them. So they are removed, and the registry's floor keeps what they said: a session
without a row counts as deleted in the generation of the floor. All proxies see the same rows; the one whose name is
the first of those that live removes them. When such a row is gone, nobody looks for a checkpoint of that session any
more; the first one of each site removes what its changelog has of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice, takewhile

from proxy.core.effects import ForgetCheckpoints, ForgetRows
from proxy.core.environment import Environment
from proxy.core.output import Output
from waypost.clock import NEVER
from waypost.errors import WaypostError
from waypost.identity import Ownership, SessionId
from waypost.limits import ROWS_FORGOTTEN


class DeletedRows:
    """The rows of deleted sessions, in the order in which the watch reported them, until they are removed."""

    def __init__(self, env: Environment, output: Output) -> None:
        self._env = env
        self._output = output
        self._deleted: dict[SessionId, tuple[Ownership, int]] = {}
        """Each with the time from which on it may be removed."""
        self._gone: dict[SessionId, int] = {}
        """Sessions whose rows are gone, with the epochs of their ends: our changelog may have something of them."""
        self._is_under_way = False
        self._next_check_ms = 0

    def watched(self, session: SessionId, current: Ownership | None) -> None:
        """Note a session's row, as the watch reports it; None: it was removed.

        A row of a deleted session is removed `Settings.forget_ms` later (handover rule 28).
        """
        known = self._deleted.get(session)
        if known is not None and known[0] == current:
            # It keeps its turn: the oldest come first.
            return
        self._deleted.pop(session, None)
        if current is None and known is not None and self._env.cluster.is_first(self._env.cluster.at_site()):
            self._gone[session] = known[0].epoch
        if current is not None and current.deleted:
            self._deleted[session] = (current, self._env.time.now_ms + self._env.settings.forget_ms)

    def reloaded(self, owners: Mapping[SessionId, Ownership]) -> None:
        """Replace all rows by these, because the watch begins again; sessions without a row count as removed."""
        for session in sorted(self._deleted.keys() - owners.keys()):
            self.watched(session, None)
        for session, current in owners.items():
            if session not in self._deleted or self._deleted[session][0] != current:
                self.watched(session, current)

    def tick(self) -> None:
        """Remove rows of sessions deleted `forget_ms` ago, if this proxy is the first of all live ones; later, what our
        changelog has of such sessions, if it was the first of its site (:meth:`ClusterView.is_first`).
        """
        now = self._env.time.now_ms
        if now < self.next_deadline():
            return
        self._next_check_ms = now + self._env.settings.row_sweep_ms
        if not self._env.lease.may_serve() or not self._env.cluster.is_watching:
            return
        if self._gone:
            self._forget_checkpoints()
        if self._removes_rows:
            self._forget_rows(now)

    @property
    def _removes_rows(self) -> bool:
        return bool(self._deleted) and not self._is_under_way and self._env.cluster.is_first(self._env.cluster.proxies)

    def _forget_rows(self, now: int) -> None:
        due = takewhile(lambda row: row[1][1] <= now, self._deleted.items())
        rows = {session: current for session, (current, _) in islice(due, ROWS_FORGOTTEN)}

        def on_done(answer: WaypostError | None) -> None:
            self._is_under_way = False
            if answer is None:
                # The watch will tell. One that is still there for some reason comes again when it begins anew.
                for session, current in rows.items():
                    if self._deleted.get(session, (None, 0))[0] == current:
                        self.watched(session, None)
                self._next_check_ms = 0

        if rows:
            self._is_under_way = True
            self._output.emit(ForgetRows(rows, on_done))

    def _forget_checkpoints(self) -> None:
        deleted = dict(islice(self._gone.items(), ROWS_FORGOTTEN))
        for session in deleted:
            del self._gone[session]

        def on_done(answer: WaypostError | None) -> None:
            # A failure may have to do with a session: the others have their turn first.
            if answer is not None:
                self._gone |= {session: max(epoch, self._gone.get(session, 0)) for session, epoch in deleted.items()}

        self._output.emit(ForgetCheckpoints(deleted, on_done))

    def next_deadline(self) -> int:
        """Return when :meth:`tick` has something to do, in ms of the engine's clock; NEVER: nothing."""
        if self._gone:
            return self._next_check_ms
        if not self._removes_rows:
            return NEVER
        _, due = next(iter(self._deleted.values()))
        return max(due, self._next_check_ms)
