"""What is kept, and when: the local store in groups, checkpoints in the changelog.

The store is never on the way of a delivery. It is written as a whole, everything up to one position of the site
log in one transaction, so after a crash the proxy reads on from that position; what it then takes again, the
receivers' frontiers drop. What all receivers acknowledged meanwhile is never written at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import NamedTuple

from federation.ports import SiteSnapshot
from proxy.core.effects import NoteCheckpoints, PutCheckpoint, PutSite, Save, ignore_result
from proxy.core.environment import Environment
from proxy.core.output import Output
from proxy.core.session_table import SessionTable
from proxy.core.store_port import SavedSession, SessionChange, StoreBatch
from proxy.session.retention import Mark, Matched
from proxy.session.session import Role, Session
from proxy.session.stored_notification import Entry, StoredNotification
from proxy.stream.incremental_scan import IncrementalScan
from waypost.checkpoint import Checkpoint, Rank
from waypost.errors import CheckpointOutdated, WaypostError
from waypost.identity import Origin, SessionId, log_epoch_of
from waypost.limits import (
    CHECKPOINTS_AT_ONCE,
    MATCH_BYTES,
    NOTED_AT_ONCE,
    QUEUE_BYTES,
    QUEUE_BYTES_LEAST,
    STORE_BATCH,
    STORE_BYTES,
    UNATTENDED_IN_MEMORY,
)

OnDone = Callable[[WaypostError | None], None]
CHECKPOINTS_A_ROUND = 60
"""In so many looks all sessions are looked at, also those that did not change."""


class _Written(NamedTuple):
    rank: Rank
    reached: int | None
    """How far all receivers were, as a digest; None: it is to be written again."""


class Persister:
    """Decides what goes to the store and to the changelog."""

    def __init__(self, env: Environment, sessions: SessionTable, output: Output) -> None:
        self._env = env
        self._sessions = sessions
        self._output = output
        self._deleted: set[SessionId] = set()
        self._replaced: set[SessionId] = set()
        self._dropping: frozenset[SessionId] = frozenset()
        """What the write under way deletes."""
        self._waiting: list[OnDone] = []
        self.outdated: dict[SessionId, CheckpointOutdated] = {}
        """Sessions that are served here, of which a changelog has what counts more than what is written of them."""
        self._saving = False
        self._kept_version = -1
        """The version of the site's state that the store has or is about to have."""
        self._state_at = 0
        """Not before this is it written as a whole again."""
        self._flush_at = 0
        self._checkpoint_at = 0
        self._snapshot_at = 0
        self._snapshot_position = 0
        """Up to where the last snapshot of the site's state goes that we wrote."""
        self._checkpointed: dict[SessionId, _Written] = {}
        """The last checkpoint of each session that is durable."""
        self._to_note: dict[SessionId, Rank] = {}
        """Up to which checkpoint clients were answered, as the registry is to know it."""
        self._noting = False
        self._next: dict[Session, list[OnDone]] = {}
        """By session whose checkpoint is under way, who waits for the one after it."""
        self._touched: set[SessionId] = set()
        """Sessions that changed since checkpoints were looked at."""
        self._others: IncrementalScan[SessionId] = IncrementalScan(CHECKPOINTS_AT_ONCE, CHECKPOINTS_A_ROUND)
        self._unstored = 0
        """Entries taken since the last flush."""
        self._unstored_bytes = 0
        self._saving_bytes = 0
        """The size of entries that are being written."""

    # ------------------------------------------------------------ the store

    def drop(self, session: SessionId) -> None:
        """Delete the session from the store at the next flush."""
        self._deleted.add(session)
        self._sessions.unmark(session)
        self._checkpointed.pop(session, None)
        self._touched.discard(session)

    def once_dropped(self, session: SessionId, on_done: OnDone) -> None:
        """Call `on_done` once the store has no copy of this session any more that was dropped.

        Else a process that ends before that is written finds the copy on its disk, and its own name in the row of a
        later epoch: it would take the copy for the latest one.
        """
        if self.is_dropping(session):
            self.saved(on_done)
        else:
            on_done(None)

    def is_dropping(self, session: SessionId) -> bool:
        """Tell whether the store may still have a copy of the session that was dropped."""
        return session in self._deleted or session in self._dropping

    def replace_copy(self, session: SessionId) -> None:
        """Replace the store's copy of the session by the new one, with the next flush; its entries go."""
        self._deleted.discard(session)
        self._replaced.add(session)
        self._sessions.mark_changed(session)

    def saved(self, on_done: OnDone) -> None:
        """Flush, and call `on_done` once the store has everything as it is now, or with the error of the write."""
        self._waiting.append(on_done)
        self.flush()

    def flush(self) -> None:
        """Write what changed, unless a write is under way; it is followed by the next one.

        Nothing is written before the log is read up to where the store is already.
        """
        if self._saving or self._env.rereading:
            return
        waiting, self._waiting = self._waiting, []
        marked = self._sessions.drain_changed()
        changed = [self._sessions[identity] for identity in marked if identity in self._sessions]
        unsaved = [session.unsaved(self._kept_in_memory(session)) for session in changed]
        numbers = {session.id: upto for session, (_, upto) in zip(changed, unsaved, strict=True)}
        changes = [
            self._change(session, entries, described=marked[session.id])
            for session, (entries, _) in zip(changed, unsaved, strict=True)
        ]
        batch = self._batch(changes)
        self._touched.update(marked)
        self._dropping = frozenset(self._deleted)
        self._deleted, self._replaced, self._unstored = set(), set(), 0
        self._saving_bytes, self._unstored_bytes = self._unstored_bytes, 0
        self._saving = True
        self._flush_at = self._env.time.now_ms + self._env.settings.flush_ms

        def on_done(error: WaypostError | None) -> None:
            self._saving, self._dropping = False, frozenset()
            self._saving_bytes = 0
            self._after(changed, numbers, batch, error)
            for callback in waiting:
                callback(error)
            if self._waiting:
                self.flush()

        self._output.emit(Save(batch, on_done))

    def _batch(self, changes: list[SessionChange]) -> StoreBatch:
        state = self._env.state
        whole = self._site_state()
        behind = state.version != self._kept_version
        return StoreBatch(
            position=state.position,
            acceptance=state.acceptance.snapshot(),
            site_state=whole,
            changes=changes,
            deleted=tuple(sorted(self._deleted)),
            behind=behind,
        )

    def _site_state(self) -> bytes | None:
        """Return the site's state, if it has changed and it is time: it is as large as all sessions of the site."""
        state, now_ms = self._env.state, self._env.time.now_ms
        if state.version == self._kept_version or now_ms < self._state_at:
            return None
        self._kept_version = state.version
        size = len(state.registered) + sum(len(asks.filters) for asks in state.neighbour_filters.values())
        self._state_at = now_ms + size * self._env.settings.bounds.site_state_ms_per_interest
        return state.snapshot()

    def leaving(self) -> None:
        """Prepare for the end of the process: the next write has the site's state, and ranks are noted."""
        self._state_at = 0
        self._note()

    def _change(self, session: Session, unsaved: list[Entry], *, described: bool) -> SessionChange:
        time, fresh = self._env.time, session.id in self._replaced
        since = time.unix_ms - time.now_ms
        return SessionChange(
            saved=self._row(session, described=described or fresh),
            entries=unsaved,
            replaces=fresh,
            marks=[Mark(mark.below, mark.at_ms + since) for mark in session.retention.unsaved_marks()],
            removed=list(session.retention.leaving),
            discarded=list(session.retention.leaving_one_by_one),
        )

    def _row(self, session: Session, *, described: bool) -> SavedSession:
        return SavedSession(
            id=session.id,
            epoch=session.epoch,
            role=session.role.value,
            descriptor=session.descriptor() if described else None,
            first_number=session.entries.first_number,
            next_number=session.entries.next_number,
            gates=session.seen_apart(self._env.state.frontier),
            source=session.source or "",
        )

    def _after(
        self,
        changed: list[Session],
        numbers: dict[SessionId, int],
        batch: StoreBatch,
        error: WaypostError | None,
    ) -> None:
        if error is None:
            for session, change in zip(changed, batch.changes, strict=True):
                session.entries.saved(numbers[session.id], self._kept_in_memory(session))
                session.retention.saved(change.marks, change.removed, change.discarded)
            return
        if batch.site_state is not None:
            self._kept_version, self._state_at = -1, 0
        self._deleted.update(identity for identity in batch.deleted if identity not in self._sessions)
        self._replaced.update(change.saved.id for change in batch.changes if change.replaces)
        self._sessions.mark_all_changed(session.id for session in changed)

    def _kept_in_memory(self, session: Session) -> int:
        """Return how many entries of a session stay in memory that the store has.

        Whoever is attached may want them soon. All sessions to which nobody is attached have so many together.
        """
        settings, sessions = self._env.settings, max(1, len(self._sessions))
        most = settings.bounds.queue_in_memory
        if not session.receivers.attached():
            most = min(most, UNATTENDED_IN_MEMORY // sessions)
        most_bytes = max(QUEUE_BYTES_LEAST, min(QUEUE_BYTES, settings.queued_bytes // sessions))
        return session.entries.fitting(most, most_bytes)

    # ------------------------------------------------------------ the changelog

    def changelog_lost(self) -> None:
        """Write all checkpoints and the site's snapshot again, each in its turn: the changelog may have lost them.

        At an orderly end all that are not written again by then are, of sessions that were served here.
        """
        self._checkpointed = {
            session: checkpoint._replace(reached=None) for session, checkpoint in self._checkpointed.items()
        }
        self._snapshot_at = self._snapshot_position = 0

    def checkpoint(self, session: Session, on_done: OnDone) -> None:
        """Write the session's checkpoint to the changelog; `on_done` is called once it is durable there, or has failed.

        One of a session is under way at a time: all who ask meanwhile wait for the next one, however many they are.
        """
        if session in self._next:
            self._next[session].append(on_done)
        else:
            self._write(session, [on_done])

    def _write(self, session: Session, waiting: list[OnDone]) -> None:
        outdated = self.outdated.get(session.id)
        if outdated is not None and session.epoch <= outdated.epoch:
            # One of a higher serial would take the place of what is there.
            for on_done in waiting:
                on_done(outdated)
            return
        self._next[session] = []
        serial = self._next_serial(session)
        session.mark_caught_up(self._env.state.frontier)
        acknowledged = session.acknowledged_frontier(self._env.state.frontier)
        checkpoint = Checkpoint(session.id, session.epoch, serial, session.descriptor(), acknowledged)
        reached = _reached(session, acknowledged)

        def written(error: WaypostError | None) -> None:
            if self._sessions.get(session.id) is session:
                if error is None:
                    self._checkpointed[session.id] = _Written(checkpoint.rank, reached)
                    self.outdated.pop(session.id, None)
                else:
                    self._try_again(session.id)
                if isinstance(error, CheckpointOutdated):
                    self.outdated[session.id] = error
            try:
                for on_done in waiting:
                    on_done(error)
            finally:
                self._write_next(session)

        self._output.emit(PutCheckpoint(checkpoint, written))

    @staticmethod
    def _next_serial(session: Session) -> int:
        """From 1 in each epoch: what another owner of that epoch wrote is no lower, and whoever is second is told."""
        epoch, serial = session.checkpointed
        serial = serial + 1 if epoch == session.epoch else 1
        session.checkpointed = (session.epoch, serial)
        return serial

    def _try_again(self, session: SessionId) -> None:
        """What could not be written is written again, also where nothing changes meanwhile."""
        self._touched.add(session)
        if (written := self._checkpointed.get(session)) is not None:
            self._checkpointed[session] = written._replace(reached=None)

    def _write_next(self, session: Session) -> None:
        """Write the checkpoint for those who asked meanwhile; not of a session that is ours no more, which they see."""
        waiting = self._next.pop(session)
        if waiting and self._sessions.get(session.id) is session:
            self._write(session, waiting)
        else:
            for on_done in waiting:
                on_done(None)

    def first_checkpoint(self, session: Session, on_done: OnDone) -> None:
        """Write the checkpoint of a session before it is created, with serial 0: all that follow have a higher one.

        Args:
            on_done: called once it is durable in the changelog, or has failed.
        """
        frontier = self._env.state.frontier
        checkpoint = Checkpoint(
            session.id, session.epoch, 0, session.descriptor(), session.acknowledged_frontier(frontier)
        )
        self._output.emit(PutCheckpoint(checkpoint, on_done))

    def written(self, session: Session, on_done: OnDone) -> None:
        """Call `on_done` once store and changelog have the session as it is, or one of them failed (handover rule 6).

        Both: after a crash with the disk kept the store counts, without it the changelog. What was answered, the
        registry notes: a changelog that has lost it says so by that.
        """
        waits = 2
        failure: WaypostError | None = None

        def on_part_done(error: WaypostError | None) -> None:
            nonlocal waits, failure
            waits -= 1
            failure = failure or error
            if not waits:
                if failure is None and session.id in self._checkpointed:
                    self._to_note[session.id] = self._checkpointed[session.id].rank
                on_done(failure)

        self.saved(on_part_done)
        self.checkpoint(session, on_part_done)

    def _note(self) -> None:
        """Let the registry note what clients were answered: of each session once a look, however often it changes."""
        if self._noting or not self._to_note:
            return
        ranks = dict(islice(self._to_note.items(), NOTED_AT_ONCE))
        self._noting = True

        def on_done(error: WaypostError | None) -> None:
            self._noting = False
            if error is None:
                for identity, rank in ranks.items():
                    later = self._to_note.pop(identity)
                    if later != rank:
                        # Behind all others that wait.
                        self._to_note[identity] = later
                if len(ranks) == NOTED_AT_ONCE:
                    self._note()

        self._output.emit(NoteCheckpoints(ranks, on_done))

    def _checkpoint_changed(self) -> None:
        """Write the checkpoints of those that changed, and of some others: their frontiers move with the site's.

        The others have theirs in turn, once a minute where they are many: a failover reads on from there, and logs
        keep their records for longer than that.
        """
        touched, self._touched = self._touched, set()
        for identity in sorted(touched.union(self._others.next_batch(self._sessions))):
            session = self._sessions.get(identity)
            if session is None or session.role is not Role.SERVING:
                continue
            if session in self._next:
                self._touched.add(identity)
                continue
            acknowledged = session.acknowledged_frontier(self._env.state.frontier)
            if session.ended:
                session.forget_ended(session.acknowledged_by_all(self._env.state.frontier))
            written = self._checkpointed.get(identity)
            if written is None or _reached(session, acknowledged) != written.reached:
                self.checkpoint(session, ignore_result)

    def last_checkpoints(self, on_done: Callable[[None], None]) -> None:
        """Write the checkpoints of all sessions that changed since their last one; `on_done` is called after the last.

        The lease is given up: sessions that were served or frozen are dormant by now. A copy that was never served by
        this process has nothing that its last checkpoint lacks. What the changelog has lost is written again.
        """
        sessions = self._sessions
        unwritten = {identity for identity, written in self._checkpointed.items() if written.reached is None}
        due = [
            session
            for session in map(sessions.get, sorted(unwritten.union(self._touched, sessions.changed)))
            if session is not None and session.role is Role.DORMANT and session.was_served and self._is_behind(session)
        ]
        waits = len(due)

        def written(_: WaypostError | None) -> None:
            nonlocal waits
            waits -= 1
            if not waits:
                on_done(None)

        for session in due:
            self.checkpoint(session, written)
        if not due:
            on_done(None)

    def _is_behind(self, session: Session) -> bool:
        """Tell whether the session's last checkpoint lacks something, or another one is under way."""
        written = self._checkpointed.get(session.id)
        acknowledged = session.acknowledged_frontier(self._env.state.frontier)
        return session in self._next or written is None or _reached(session, acknowledged) != written.reached

    def _keep_site(self, now_ms: int) -> None:
        """Write the site's state where it is time: all its proxies have the same, and the first of them writes it."""
        position = self._env.state.position
        is_due = now_ms >= self._snapshot_at and position != self._snapshot_position
        if not is_due or not self._env.cluster.is_site_reporter:
            return
        if self._env.state.is_broken:
            # Others may know better.
            return

        def written(error: WaypostError | None) -> None:
            if error is None:
                self._snapshot_position = position
            else:
                self._snapshot_at = 0

        self._snapshot_at = now_ms + self._env.settings.snapshot_ms
        snapshot = SiteSnapshot(position, self._env.state.snapshot(), log_epoch_of(self._env.state.origin))
        self._output.emit(PutSite(snapshot, written))

    # ------------------------------------------------------------ time

    def tick(self) -> None:
        """Write what changed, and the checkpoints that are due."""
        now = self._env.time.now_ms
        if self._is_much() or (now >= self._flush_at and self._anything()):
            self.flush()
        if now >= self._checkpoint_at:
            self._checkpoint_at = now + self._env.settings.checkpoint_ms
            self._note()
            if self._env.lease.may_serve():
                self._checkpoint_changed()
                self._keep_site(now)

    def _is_much(self) -> bool:
        return self._unstored >= STORE_BATCH or self._unstored_bytes >= STORE_BYTES

    @property
    def unstored_count(self) -> int:
        """The number of entries that came since the last write began."""
        return self._unstored

    @property
    def unstored_bytes(self) -> int:
        """Bytes of entries that came since the last write, or are being written."""
        return self._unstored_bytes + self._saving_bytes

    def count_unstored(self, stored: StoredNotification, matched: Matched) -> None:
        """Count an entry that has come, and its bytes: the store has it with the next write.

        The names of the subscriptions are theirs in memory, and written once for all entries of the same.
        """
        self._unstored += 1
        self._unstored_bytes += stored.size + MATCH_BYTES * len(matched)

    def _anything(self) -> bool:
        return bool(self._sessions.has_changes or self._deleted or self._waiting or self._unstored)

    def next_deadline(self) -> int:
        """Return when :meth:`tick` has something to do, in ms of the engine's clock."""
        if not self._saving and self._anything():
            return min(self._flush_at, self._checkpoint_at)
        return self._checkpoint_at


def _reached(session: Session, acknowledged: Mapping[Origin, int]) -> int:
    """Return a digest of how far all receivers are, and each of them, and where subscriptions ended: what a failover is
    to know soon.
    """
    places = (
        (receiver.id, frozenset(receiver.frontier.items()), receiver.selective.digest())
        for receiver in session.receivers.values()
    )
    return hash((frozenset(acknowledged.items()), frozenset(places), session.known_ends()))
