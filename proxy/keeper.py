"""What is kept, and when: the local store in groups, checkpoints in the changelog.

The store is never on the way of a delivery. It is written as a whole, everything up to one position of the site
log in one transaction, so after a crash the proxy reads on from that position; what it then takes again, the
receivers' frontiers drop. What all receivers acknowledged meanwhile is never written at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from federation.ports import SiteSnapshot
from proxy.context import Context
from proxy.effects import PutCheckpoint, PutSite, Save, nobody_waits
from proxy.ports import SavedSession, SessionChange, StoreBatch
from proxy.retention import Mark
from proxy.rounds import Rounds
from proxy.session import Role, Session
from proxy.stored import Entry
from waypost.checkpoint import Checkpoint
from waypost.errors import WaypostError
from waypost.identity import Origin, SessionId, log_epoch_of
from waypost.limits import (
    CHECKPOINTS_AT_ONCE,
    QUEUE_BYTES,
    QUEUE_BYTES_LEAST,
    STORE_BATCH,
    STORE_BYTES,
    UNATTENDED_IN_MEMORY,
)

Done = Callable[[WaypostError | None], None]
CHECKPOINTS_A_ROUND = 60
"""In so many looks all sessions are looked at, also those that did not change."""


class Keeper:
    """Decides what goes to the store and to the changelog."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._dropped: set[SessionId] = set()
        self._fresh: set[SessionId] = set()
        self._waiting: list[Done] = []
        self._saving = False
        self._kept_version = -1
        """Of the site's state, as the store has it or is about to."""
        self._state_at = 0
        """Not before this is it written as a whole again."""
        self._flush_at = 0
        self._checkpoint_at = 0
        self._snapshot_at = 0
        self._snapshot_position = 0
        """Up to where the last snapshot of the site's state goes that we wrote."""
        self._serial = 0
        self._checkpointed: dict[SessionId, int] = {}
        self._next: dict[Session, list[Done]] = {}
        """Of each session whose checkpoint is on its way to the changelog, who waits for the one after it."""
        self._touched: set[SessionId] = set()
        """Sessions that changed since checkpoints were looked at."""
        self._others = Rounds(lambda: list(context.sessions), CHECKPOINTS_AT_ONCE, CHECKPOINTS_A_ROUND)
        self.pending = 0
        """Entries taken since the last flush."""
        self.pending_bytes = 0
        self._saving_bytes = 0
        """Of entries that were taken before it, and are being written."""

    # ------------------------------------------------------------ the store

    def drop(self, session: SessionId) -> None:
        """Delete the session from the store at the next flush."""
        self._dropped.add(session)
        self._context.dirty.discard(session)
        self._checkpointed.pop(session, None)
        self._touched.discard(session)

    def renew(self, session: SessionId) -> None:
        """What the store has of an earlier copy of this session goes at the next flush; the new one takes its place."""
        self._dropped.discard(session)
        self._fresh.add(session)
        self._context.dirty.add(session)

    def saved(self, then: Done) -> None:
        """Call `then` once everything as it is now is durable."""
        self._waiting.append(then)
        self.flush()

    def flush(self) -> None:
        """Write what changed, unless a write is under way; it is followed by the next one.

        Nothing is written before the log is read up to where the store is already.
        """
        context = self._context
        if self._saving or context.rereading:
            return
        waiting, self._waiting = self._waiting, []
        changed = [context.sessions[each] for each in context.dirty if each in context.sessions]
        unsaved = [session.unsaved(self._kept_in_memory(session)) for session in changed]
        numbers = {session.id: upto for session, (_, upto) in zip(changed, unsaved, strict=True)}
        batch = self._batch(changed, [entries for entries, _ in unsaved])
        self._touched |= context.dirty
        context.dirty.clear()
        self._dropped, self._fresh, self.pending = set(), set(), 0
        self._saving_bytes, self.pending_bytes = self.pending_bytes, 0
        self._saving = True
        self._flush_at = context.clock.now_ms() + context.settings.flush_ms

        def then(error: WaypostError | None) -> None:
            self._saving = False
            self._saving_bytes = 0
            self._after(changed, numbers, batch, error)
            for each in waiting:
                each(error)
            if self._waiting:
                self.flush()

        context.emit(Save(batch, then))

    def _batch(self, changed: list[Session], unsaved: list[list[Entry]]) -> StoreBatch:
        state = self._context.state
        whole = self._site_state()
        behind = state.version != self._kept_version
        changes = [self._change(session, entries) for session, entries in zip(changed, unsaved, strict=True)]
        return StoreBatch(state.position, state.acceptance.snapshot(), whole, changes, tuple(self._dropped), behind)

    def _site_state(self) -> bytes | None:
        """Return the site's state, if it has changed and it is time: it is as large as all sessions of the site."""
        state, now_ms = self._context.state, self._context.clock.now_ms()
        if state.version == self._kept_version or now_ms < self._state_at:
            return None
        self._kept_version = state.version
        size = len(state.holds) + sum(len(asks.filters) for asks in state.asks.values())
        self._state_at = now_ms + size * self._context.settings.bounds.state_ms_a_hold
        return state.snapshot()

    def leaving(self) -> None:
        """The process is about to end in good order: the next write has all of it."""
        self._state_at = 0

    def _change(self, session: Session, unsaved: list[Entry]) -> SessionChange:
        clock, fresh = self._context.clock, session.id in self._fresh
        since = clock.unix_ms() - clock.now_ms()
        return SessionChange(
            self._row(session),
            unsaved,
            fresh,
            [Mark(mark.below, mark.at_ms + since) for mark in session.retention.unsaved_marks()],
            list(session.retention.leaving),
            list(session.retention.leaving_one_by_one),
        )

    def _row(self, session: Session) -> SavedSession:
        return SavedSession(
            session.id,
            session.epoch,
            session.role.value,
            session.descriptor(),
            session.entries.first_number,
            session.entries.next_number,
            session.seen_apart(self._context.state.frontier),
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
        self._dropped.update(each for each in batch.dropped if each not in self._context.sessions)
        self._fresh.update(change.saved.id for change in batch.changes if change.fresh)
        self._context.dirty.update(session.id for session in changed)

    def _kept_in_memory(self, session: Session) -> int:
        """Return how many entries of a session stay in memory that the store has.

        Whoever is attached may want them soon. All sessions to which nobody is attached have so many together.
        """
        settings, sessions = self._context.settings, max(1, len(self._context.sessions))
        most = settings.bounds.queue_in_memory
        if not session.receivers.attached():
            most = min(most, UNATTENDED_IN_MEMORY // sessions)
        most_bytes = max(QUEUE_BYTES_LEAST, min(QUEUE_BYTES, settings.queued_bytes // sessions))
        return session.entries.fitting(most, most_bytes)

    # ------------------------------------------------------------ the changelog

    def changelog_lost(self) -> None:
        """The changelog has lost something: all that it had of ours is written again, each in its turn."""
        self._checkpointed.clear()
        self._snapshot_at = self._snapshot_position = 0

    def checkpoint(self, session: Session, then: Done) -> None:
        """Write the session's checkpoint; `then` is called once it would survive this proxy and its disk.

        One of a session is under way at a time: all who ask meanwhile wait for the next one, however many they are.
        """
        if session in self._next:
            self._next[session].append(then)
        else:
            self._write(session, [then])

    def _write(self, session: Session, waiting: list[Done]) -> None:
        self._next[session] = []
        self._serial += 1
        session.level(self._context.state.frontier)
        acknowledged = session.acknowledged_frontier(self._context.state.frontier)
        checkpoint = Checkpoint(session.id, session.epoch, self._serial, session.descriptor(), acknowledged)
        reached = _reached(session, acknowledged)

        def written(error: WaypostError | None) -> None:
            if self._context.sessions.get(session.id) is session:
                if error is None:
                    self._checkpointed[session.id] = reached
                else:
                    self._touched.add(session.id)
            try:
                for then in waiting:
                    then(error)
            finally:
                self._write_next(session)

        self._context.emit(PutCheckpoint(checkpoint, written))

    def _write_next(self, session: Session) -> None:
        """Write the checkpoint for those who asked meanwhile; not of a session that is ours no more, which they see."""
        waiting = self._next.pop(session)
        if waiting and self._context.sessions.get(session.id) is session:
            self._write(session, waiting)
        else:
            for then in waiting:
                then(None)

    def first_checkpoint(self, session: Session, then: Done) -> None:
        """Write the checkpoint of a session that is to be; `then` as above. All that follow have a higher serial."""
        frontier = self._context.state.frontier
        checkpoint = Checkpoint(
            session.id, session.epoch, 0, session.descriptor(), session.acknowledged_frontier(frontier)
        )
        self._context.emit(PutCheckpoint(checkpoint, then))

    def written(self, session: Session, then: Done) -> None:
        """Call `then` once store and changelog have the session as it is, or one of them failed (handover rule 6).

        Both: after a crash with the disk kept the store counts, without it the changelog.
        """
        waits = 2
        failure: WaypostError | None = None

        def one(error: WaypostError | None) -> None:
            nonlocal waits, failure
            waits -= 1
            failure = failure or error
            if not waits:
                then(failure)

        self.saved(one)
        self.checkpoint(session, one)

    def _checkpoint_changed(self) -> None:
        """Write the checkpoints of those that changed, and of some others: their frontiers move with the site's.

        The others have theirs in turn, once a minute where they are many: a failover reads on from there, and logs
        keep their records for longer than that.
        """
        touched, self._touched = self._touched, set()
        for identity in sorted(touched.union(self._others.take())):
            session = self._context.sessions.get(identity)
            if session is None or session.role is not Role.SERVING:
                continue
            if session in self._next:
                self._touched.add(identity)
                continue
            acknowledged = session.acknowledged_frontier(self._context.state.frontier)
            if session.ended:
                session.forget_ended(session.had_by_all(self._context.state.frontier))
            if _reached(session, acknowledged) != self._checkpointed.get(identity):
                self.checkpoint(session, nobody_waits)

    def _keep_site(self, now_ms: int) -> None:
        """Write the site's state where it is time: all its proxies have the same, and the first of them writes it."""
        context = self._context
        position, here = context.state.position, [context.proxy, *context.at_site()]
        if now_ms < self._snapshot_at or position == self._snapshot_position or min(here) != context.proxy:
            return
        if context.state.is_broken:
            # Others may know better.
            return

        def written(error: WaypostError | None) -> None:
            if error is None:
                self._snapshot_position = position
            else:
                self._snapshot_at = 0

        self._snapshot_at = now_ms + context.settings.snapshot_ms
        snapshot = SiteSnapshot(position, context.state.snapshot(), log_epoch_of(context.state.origin))
        context.emit(PutSite(snapshot, written))

    # ------------------------------------------------------------ time

    def tick(self) -> None:
        now = self._context.clock.now_ms()
        if self._is_much() or (now >= self._flush_at and self._anything()):
            self.flush()
        if now >= self._checkpoint_at:
            self._checkpoint_at = now + self._context.settings.checkpoint_ms
            if self._context.may_serve():
                self._checkpoint_changed()
                self._keep_site(now)

    def _is_much(self) -> bool:
        return self.pending >= STORE_BATCH or self.pending_bytes >= STORE_BYTES

    @property
    def unstored_bytes(self) -> int:
        """Bytes of entries that came since the last write, or are being written."""
        return self.pending_bytes + self._saving_bytes

    def took(self, size: int) -> None:
        """An entry of so many bytes has come."""
        self.pending += 1
        self.pending_bytes += size

    def _anything(self) -> bool:
        return bool(self._context.dirty or self._dropped or self._waiting or self.pending)

    def next_deadline(self) -> int:
        if not self._saving and self._anything():
            return min(self._flush_at, self._checkpoint_at)
        return self._checkpoint_at


def _reached(session: Session, acknowledged: Mapping[Origin, int]) -> int:
    """Return a digest of how far all receivers are, and each of them: what a failover is to know soon."""
    places = (
        (each.id, frozenset(each.frontier.items()), each.selective.digest()) for each in session.receivers.values()
    )
    return hash((frozenset(acknowledged.items()), frozenset(places)))
