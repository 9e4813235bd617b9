"""The local store, written in groups: all that changed up to one position of the site log in one transaction.

The store is never on the way of a delivery. After a crash the proxy reads on from the position of the last write; what
it then takes again, the receivers' frontiers drop. What all receivers acknowledged before a write is never written.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.core.effects import Save
from proxy.core.environment import Environment
from proxy.core.output import Output
from proxy.core.session_table import SessionTable
from proxy.core.store_port import SavedSession, SessionChange, StoreBatch
from proxy.session.retention import Mark
from proxy.session.session import Session
from proxy.session.stored_notification import Entry, StoredNotification
from proxy.session.subscription import Matched
from waypost.clock import NEVER
from waypost.errors import WaypostError
from waypost.identity import SessionId
from waypost.limits import (
    MATCH_BYTES,
    QUEUE_BYTES,
    QUEUE_BYTES_LEAST,
    STORE_BATCH,
    STORE_BYTES,
    UNATTENDED_IN_MEMORY,
)

OnDone = Callable[[WaypostError | None], None]


class StoreWriter:
    """Decides what goes to the proxy's store, and when. One write is under way at a time."""

    def __init__(self, env: Environment, sessions: SessionTable, output: Output) -> None:
        self._env = env
        self._sessions = sessions
        self._output = output
        self._deleted: set[SessionId] = set()
        self._replaced: set[SessionId] = set()
        self._dropping: frozenset[SessionId] = frozenset()
        """What the write under way deletes."""
        self._waiting: list[OnDone] = []
        self._saving = False
        self._kept_version = -1
        """The version of the site's state that the store has or is about to have."""
        self._state_at = 0
        """The time before which the site's state is not written as a whole again."""
        self._flush_at = 0
        self._flushed: set[SessionId] = set()
        """Sessions that were written since :meth:`drain_flushed`."""
        self._unstored = 0
        """Entries taken since the last flush."""
        self._unstored_bytes = 0
        self._saving_bytes = 0
        """The size of entries that are being written."""

    def drop(self, session: SessionId) -> None:
        """Delete the session from the store at the next write; its changes are not written any more. The session must
        not be in the session table any more.
        """
        self._deleted.add(session)
        self._sessions.unmark(session)
        self._flushed.discard(session)

    def drain_flushed(self) -> set[SessionId]:
        """Return the sessions of which a write has begun since the last call."""
        flushed, self._flushed = self._flushed, set()
        return flushed

    def once_dropped(self, session: SessionId, on_done: OnDone) -> None:
        """Call `on_done` with None once the store has no dropped copy of this session, or with the write's error.

        It is called at once if there is no such copy. A process that ends before would find the copy on its disk, and
        its own name in the row of a later epoch: it would take the copy for the latest one (handover rule 28).
        """
        if self.is_dropping(session):
            self.save(on_done)
        else:
            on_done(None)

    def is_dropping(self, session: SessionId) -> bool:
        """Tell whether the store may still have a copy of the session that was dropped."""
        return session in self._deleted or session in self._dropping

    def replace_copy(self, session: SessionId) -> None:
        """Have the next write replace the store's copy of the session, and its entries, by the one that is here."""
        self._deleted.discard(session)
        self._replaced.add(session)
        self._sessions.mark_changed(session)

    def save(self, on_done: OnDone) -> None:
        """Write what changed in all sessions; call `on_done` with None once the store has all as it is now, or with the
        error. What failed is written again with a later write.

        While a write is under way, or the log is read again after a start, the write begins later. Entries that are
        owed to receivers of best-effort events alone may stay in memory (:meth:`Session.unsaved`).
        """
        self._waiting.append(on_done)
        self.flush()

    def flush(self) -> None:
        """Begin to write what changed in all sessions. Nothing is done while a write is under way, or the log is still
        read again.

        A write that has callers of :meth:`save` waiting is followed by the next one. The log is read again after a
        start until the site's state is as new as the store.
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
        self._flushed.update(marked)
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
        size = len(state.registered) + sum(len(known.filters) for known in state.neighbour_filters.values())
        self._state_at = now_ms + size * self._env.settings.bounds.site_state_ms_per_interest
        return state.snapshot()

    def include_site_state(self) -> None:
        """Write the site's state with the next write, whether it is time or not: the process is about to end."""
        self._state_at = 0

    def _change(self, session: Session, unsaved: list[Entry], *, described: bool) -> SessionChange:
        time, is_replaced = self._env.time, session.id in self._replaced
        since = time.unix_ms - time.now_ms
        return SessionChange(
            saved=self._row(session, described=described or is_replaced),
            entries=unsaved,
            replaces=is_replaced,
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
            gates=session.gates.seen_apart(self._env.state.frontier),
            source=session.source or "",
            checkpointed=session.checkpointed,
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

        An attached receiver may want them soon. All sessions without one have UNATTENDED_IN_MEMORY together.
        """
        settings, sessions = self._env.settings, max(1, len(self._sessions))
        max_entries = settings.bounds.queue_in_memory
        if not session.receivers.attached():
            max_entries = min(max_entries, UNATTENDED_IN_MEMORY // sessions)
        max_bytes = max(QUEUE_BYTES_LEAST, min(QUEUE_BYTES, settings.queued_bytes // sessions))
        return session.entries.fitting(max_entries, max_bytes)

    def tick(self) -> None:
        """Write what changed, if `flush_ms` are over or there is much to write."""
        if self._is_much() or (self._env.time.now_ms >= self._flush_at and self._has_anything()):
            self.flush()

    def next_deadline(self) -> int:
        """Return when :meth:`tick` is due, in ms of the engine's clock; NEVER: nothing is to be written, or a write is
        under way, or the log is read again after a start.
        """
        is_held = self._saving or self._env.rereading
        return self._flush_at if not is_held and self._has_anything() else NEVER

    def _is_much(self) -> bool:
        return self._unstored >= STORE_BATCH or self._unstored_bytes >= STORE_BYTES

    @property
    def unstored_count(self) -> int:
        """The number of entries that came since the last write began."""
        return self._unstored

    @property
    def unstored_bytes(self) -> int:
        """The bytes of entries that came since the last write began, or are being written."""
        return self._unstored_bytes + self._saving_bytes

    def count_unstored(self, stored: StoredNotification, matched: Matched) -> None:
        """Count an entry that has come, and its bytes; :meth:`tick` writes earlier where there are many."""
        self._unstored += 1
        self._unstored_bytes += stored.size + MATCH_BYTES * len(matched)

    def _has_anything(self) -> bool:
        return bool(self._sessions.has_changes or self._deleted or self._waiting or self._unstored)
