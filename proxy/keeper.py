"""What is kept, and when: the local store in groups, checkpoints in the changelog.

The store is never on the way of a delivery. It is written as a whole, everything up to one position of the site
log in one transaction, so after a crash the proxy reads on from that position; what it then takes again, the
receivers' frontiers drop. What all receivers acknowledged meanwhile is never written at all.
"""

from __future__ import annotations

from collections.abc import Callable

from federation.ports import SiteSnapshot
from proxy.context import Context
from proxy.effects import PutCheckpoint, PutSite, Save, nobody_waits
from proxy.ports import SavedSession, SessionChange, StoreBatch
from proxy.retention import Mark
from proxy.session import Role, Session
from waypost.checkpoint import Checkpoint
from waypost.errors import WaypostError
from waypost.identity import Origin, SessionId
from waypost.limits import STORE_BATCH

Done = Callable[[WaypostError | None], None]


class Keeper:
    """Decides what goes to the store and to the changelog."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._dropped: set[SessionId] = set()
        self._fresh: set[SessionId] = set()
        self._waiting: list[Done] = []
        self._saving = False
        self._kept_version = -1
        self._flush_at = 0
        self._checkpoint_at = 0
        self._snapshot_at = 0
        self._snapshot_position = 0
        """Up to where the last snapshot of the site's state goes that we wrote."""
        self._serial = 0
        self._checkpointed: dict[SessionId, dict[Origin, int]] = {}
        self.pending = 0
        """Entries taken since the last flush."""

    # ------------------------------------------------------------ the store

    def drop(self, session: SessionId) -> None:
        """Delete the session from the store at the next flush."""
        self._dropped.add(session)
        self._context.dirty.discard(session)
        self._checkpointed.pop(session, None)

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
        """Write what changed, unless a write is under way; it is followed by the next one."""
        if self._saving:
            return
        context = self._context
        waiting, self._waiting = self._waiting, []
        changed = [context.sessions[each] for each in context.dirty if each in context.sessions]
        numbers = {session.id: session.last_number for session in changed}
        batch = self._batch(changed)
        context.dirty.clear()
        self._dropped, self._fresh, self.pending = set(), set(), 0
        self._saving = True
        self._flush_at = context.clock.now_ms() + context.settings.flush_ms

        def then(error: WaypostError | None) -> None:
            self._saving = False
            self._after(changed, numbers, batch, error)
            for each in waiting:
                each(error)
            if self._waiting:
                self.flush()

        context.emit(Save(batch, then))

    def _batch(self, changed: list[Session]) -> StoreBatch:
        state = self._context.state
        whole = None if state.version == self._kept_version else state.snapshot()
        self._kept_version = state.version
        changes = [self._change(session) for session in changed]
        return StoreBatch(state.position, state.acceptance.snapshot(), whole, changes, tuple(self._dropped))

    def _change(self, session: Session) -> SessionChange:
        clock, fresh = self._context.clock, session.id in self._fresh
        since = clock.unix_ms() - clock.now_ms()
        return SessionChange(
            self._row(session),
            session.unsaved(),
            fresh,
            [Mark(mark.below, mark.at_ms + since) for mark in session.retention.unsaved_marks()],
            list(session.retention.leaving),
        )

    def _row(self, session: Session) -> SavedSession:
        return SavedSession(
            session.id,
            session.epoch,
            session.role.value,
            session.descriptor(),
            session.first_number,
            session.next_number,
            {origin: gate.seen for origin, gate in session.gates.items()},
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
                session.saved(numbers[session.id], self._context.settings.bounds.queue_in_memory)
                session.retention.saved(change.marks, change.removed)
            return
        self._kept_version = -1
        self._dropped.update(each for each in batch.dropped if each not in self._context.sessions)
        self._fresh.update(change.saved.id for change in batch.changes if change.fresh)
        self._context.dirty.update(session.id for session in changed)

    # ------------------------------------------------------------ the changelog

    def checkpoint(self, session: Session, then: Done) -> None:
        """Write the session's checkpoint; `then` is called once it would survive this proxy and its disk."""
        self._serial += 1
        acknowledged = session.acknowledged_frontier(self._context.state.frontier)
        checkpoint = Checkpoint(session.id, session.epoch, self._serial, session.descriptor(), acknowledged)

        def written(error: WaypostError | None) -> None:
            if error is None and self._context.sessions.get(session.id) is session:
                self._checkpointed[session.id] = acknowledged
            then(error)

        self._context.emit(PutCheckpoint(checkpoint, written))

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
        for session in self._context.sessions.values():
            if session.role is not Role.SERVING:
                continue
            acknowledged = session.acknowledged_frontier(self._context.state.frontier)
            session.forget_ended(acknowledged)
            if acknowledged != self._checkpointed.get(session.id):
                self.checkpoint(session, nobody_waits)

    def _keep_site(self, now_ms: int) -> None:
        """Write the site's state where it is time: all its proxies have the same, and the first of them writes it."""
        context = self._context
        position, here = context.state.position, [context.proxy, *context.at_site()]
        if now_ms < self._snapshot_at or position == self._snapshot_position or min(here) != context.proxy:
            return

        def written(error: WaypostError | None) -> None:
            if error is None:
                self._snapshot_position = position
            else:
                self._snapshot_at = 0

        self._snapshot_at = now_ms + context.settings.snapshot_ms
        context.emit(PutSite(SiteSnapshot(position, context.state.snapshot()), written))

    # ------------------------------------------------------------ time

    def tick(self) -> None:
        now = self._context.clock.now_ms()
        if self.pending >= STORE_BATCH or (now >= self._flush_at and self._anything()):
            self.flush()
        if now >= self._checkpoint_at:
            self._checkpoint_at = now + self._context.settings.checkpoint_ms
            if self._context.may_serve():
                self._checkpoint_changed()
                self._keep_site(now)

    def _anything(self) -> bool:
        return bool(self._context.dirty or self._dropped or self._waiting or self.pending)

    def next_deadline(self) -> int:
        if not self._saving and self._anything():
            return min(self._flush_at, self._checkpoint_at)
        return self._checkpoint_at
