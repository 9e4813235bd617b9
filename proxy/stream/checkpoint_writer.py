"""Checkpoints in the changelog, from which another proxy rebuilds a session; and what the registry notes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import NamedTuple

from proxy.core.answers import after_all
from proxy.core.effects import NoteCheckpoints, PutCheckpoint, ignore_result
from proxy.core.environment import Environment
from proxy.core.output import Output
from proxy.core.session_table import SessionTable
from proxy.session import best_effort
from proxy.session.role import Role
from proxy.session.session import Session
from proxy.stream.incremental_scan import IncrementalScan
from proxy.stream.store_writer import OnDone, StoreWriter
from waypost.checkpoint import Checkpoint, Rank
from waypost.errors import CheckpointOutdated, WaypostError
from waypost.identity import Origin, SessionId
from waypost.limits import CHECKPOINTS_AT_ONCE, NOTED_AT_ONCE

CHECKPOINTS_A_ROUND = 60
"""Number of looks in which all sessions are looked at, also those that did not change."""


class _Written(NamedTuple):
    rank: Rank
    reached: int | None
    """How far all receivers were, as a digest; None: it is to be written again."""


class CheckpointWriter:
    """Decides which checkpoints are written, and when. One of a session is under way at a time.

    Args:
        store: says which sessions changed.
    """

    def __init__(self, env: Environment, sessions: SessionTable, output: Output, store: StoreWriter) -> None:
        self._env = env
        self._sessions = sessions
        self._output = output
        self._store = store
        self.outdated: dict[SessionId, CheckpointOutdated] = {}
        """Sessions that are served here, of which a changelog has what counts more than what is written of them."""
        self._durable: dict[SessionId, _Written] = {}
        """The last checkpoint of each session that is durable."""
        self._answered: dict[SessionId, Rank] = {}
        """Up to which checkpoint clients were answered, as the registry is to note it."""
        self._noting = False
        self._next: dict[Session, list[OnDone]] = {}
        """By session whose checkpoint is under way, who waits for the one after it."""
        self._touched: set[SessionId] = set()
        """Sessions that changed since checkpoints were looked at."""
        self._others: IncrementalScan[SessionId] = IncrementalScan(CHECKPOINTS_AT_ONCE, CHECKPOINTS_A_ROUND)

    def drop(self, session: SessionId) -> None:
        """Forget which checkpoint of the session is durable, and that it has changed: it is here no more. The changelog
        keeps its checkpoints, and the registry still notes those on which clients were answered.
        """
        self._durable.pop(session, None)
        self._touched.discard(session)

    def changelog_lost(self) -> None:
        """Have all checkpoints of served sessions written again, each in its turn: the changelog may have lost them.

        :meth:`write_last` writes those that are not written again by then.
        """
        self._durable = {session: checkpoint._replace(reached=None) for session, checkpoint in self._durable.items()}

    def mark_answered(self, session: SessionId) -> None:
        """Note that clients are answered on the strength of the session's last durable checkpoint; the next
        :meth:`note_answered` tells the registry. Nothing is done if no checkpoint of the session is known to be
        durable.
        """
        if session in self._durable:
            self._answered[session] = self._durable[session].rank

    def write(self, session: Session, on_done: OnDone) -> None:
        """Write the session's checkpoint to the changelog, as the session is now. The caller checks that the session is
        served here, or was until the orderly end of the process.

        One checkpoint of a session is under way at a time: calls meanwhile share the next one. The frontiers of
        best-effort receivers that have every entry are raised to the session's first.

        Args:
            on_done: called with None once the checkpoint is durable, or with the error; CheckpointOutdated: the
                changelog has a checkpoint that counts more (handover rule 19), and where that is known already, the
                call comes at once. A call that waits while the session leaves gets None.
        """
        if session in self._next:
            self._next[session].append(on_done)
        else:
            self._put(session, [on_done])

    def _put(self, session: Session, waiting: list[OnDone]) -> None:
        outdated = self.outdated.get(session.id)
        if outdated is not None and session.epoch <= outdated.epoch:
            # One of a higher serial would take the place of what is there.
            for on_done in waiting:
                on_done(outdated)
            return
        self._next[session] = []
        serial = session.next_serial()
        best_effort.mark_caught_up(session, self._env.state.frontier)
        acknowledged = session.acknowledged_frontier(self._env.state.frontier)
        checkpoint = Checkpoint(session.id, session.epoch, serial, session.descriptor(), acknowledged)
        reached = _reached(session, acknowledged)

        def written(error: WaypostError | None) -> None:
            if self._sessions.get(session.id) is session:
                if error is None:
                    self._durable[session.id] = _Written(checkpoint.rank, reached)
                    self.outdated.pop(session.id, None)
                else:
                    self._try_again(session.id)
                if isinstance(error, CheckpointOutdated):
                    self.outdated[session.id] = error
            try:
                for on_done in waiting:
                    on_done(error)
            finally:
                self._put_next(session)

        self._output.emit(PutCheckpoint(checkpoint, written))

    def _try_again(self, session: SessionId) -> None:
        """What could not be written is written again, also where nothing changes meanwhile."""
        self._touched.add(session)
        if (written := self._durable.get(session)) is not None:
            self._durable[session] = written._replace(reached=None)

    def _put_next(self, session: Session) -> None:
        """Write the checkpoint for those who asked meanwhile; not of a session that is ours no more, which they see."""
        waiting = self._next.pop(session)
        if waiting and self._sessions.get(session.id) is session:
            self._put(session, waiting)
        else:
            for on_done in waiting:
                on_done(None)

    def write_first(self, session: Session, on_done: OnDone) -> None:
        """Write the checkpoint of a session before it is created, with serial 0: all that follow have a higher one.

        Args:
            on_done: called with None once it is durable in the changelog, or with the error.
        """
        frontier = self._env.state.frontier
        checkpoint = Checkpoint(
            session.id, session.epoch, 0, session.descriptor(), session.acknowledged_frontier(frontier)
        )
        self._output.emit(PutCheckpoint(checkpoint, on_done))

    def note_answered(self) -> None:
        """Have the registry note up to which checkpoint of each session clients were answered (handover rule 19). One
        request is under way at a time: calls meanwhile do nothing. What failed goes with a later call.
        """
        if self._noting or not self._answered:
            return
        ranks = dict(islice(self._answered.items(), NOTED_AT_ONCE))
        self._noting = True

        def on_done(error: WaypostError | None) -> None:
            self._noting = False
            if error is None:
                for identity, rank in ranks.items():
                    later = self._answered.pop(identity)
                    if later != rank:
                        # Behind all others that wait.
                        self._answered[identity] = later
                if len(ranks) == NOTED_AT_ONCE:
                    self.note_answered()

        self._output.emit(NoteCheckpoints(ranks, on_done))

    def write_changed(self) -> None:
        """Write checkpoints of served sessions that changed, and of some others: frontiers move with the site's. Ended
        subscriptions that no receiver is owed any more are forgotten. Call it only under a lease that holds.

        The others come in turn, within CHECKPOINTS_A_ROUND calls: a failover reads on from there, and logs keep their
        records for longer than that.
        """
        touched, self._touched = self._touched | self._store.drain_flushed(), set()
        for identity in sorted(touched.union(self._others.next_batch(self._sessions))):
            session = self._sessions.get(identity)
            if session is None or session.role is not Role.SERVING:
                continue
            if session in self._next:
                self._touched.add(identity)
                continue
            acknowledged = session.acknowledged_frontier(self._env.state.frontier)
            if session.subscriptions.ended:
                session.forget_ended(self._env.state.frontier)
            written = self._durable.get(identity)
            if written is None or _reached(session, acknowledged) != written.reached:
                self.write(session, ignore_result)

    def write_last(self, on_done: Callable[[None], None]) -> None:
        """Write the checkpoints of all sessions that changed since their last one, at an orderly end of the process.

        The lease is given up: sessions that were served or frozen are dormant by now. A copy that was never served by
        this process has nothing that its last checkpoint lacks. What the changelog has lost is written again.

        Args:
            on_done: called with None after the last write, failed or not; at once if there are none.
        """
        sessions = self._sessions
        self._touched |= self._store.drain_flushed()
        unwritten = {identity for identity, written in self._durable.items() if written.reached is None}
        due = [
            session
            for session in map(sessions.get, sorted(unwritten.union(self._touched, sessions.changed)))
            if session is not None and session.role is Role.DORMANT and session.was_served and self._is_behind(session)
        ]
        if not due:
            on_done(None)
            return
        written = after_all(len(due), lambda _: on_done(None))
        for session in due:
            self.write(session, written)

    def _is_behind(self, session: Session) -> bool:
        """Tell whether the session's last checkpoint lacks something, or another one is under way."""
        written = self._durable.get(session.id)
        acknowledged = session.acknowledged_frontier(self._env.state.frontier)
        return session in self._next or written is None or _reached(session, acknowledged) != written.reached


def _reached(session: Session, acknowledged: Mapping[Origin, int]) -> int:
    """Return a digest of how far all receivers are, and each of them, of where subscriptions ended, and of what is set
    of the session and its receivers: what a failover is to know soon.
    """
    positions = (
        (
            receiver.id,
            frozenset(receiver.frontier.items()),
            receiver.selective.digest(),
            receiver.reliability,
            receiver.idle_time.expiry_s,
        )
        for receiver in session.receivers.values()
    )
    policy = (session.idle_time.expiry_s, session.reliability, session.queue)
    return hash((frozenset(acknowledged.items()), frozenset(positions), session.subscriptions.known_ends(), policy))
