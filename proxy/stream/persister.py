"""What is kept of sessions, and when: in the local store, and in the changelog."""

from __future__ import annotations

from proxy.core.answers import after_all
from proxy.core.environment import Environment
from proxy.core.output import Output
from proxy.core.session_table import SessionTable
from proxy.session.session import Session
from proxy.stream.checkpoint_writer import CheckpointWriter
from proxy.stream.site_snapshots import SiteSnapshots
from proxy.stream.store_writer import OnDone, StoreWriter
from waypost.errors import WaypostError
from waypost.identity import SessionId


class Persister:
    """Store, checkpoints and the site's snapshots, and what takes more than one of them."""

    def __init__(self, env: Environment, sessions: SessionTable, output: Output) -> None:
        self._env = env
        self.store = StoreWriter(env, sessions, output)
        self.checkpoints = CheckpointWriter(env, sessions, output, self.store)
        self._snapshots = SiteSnapshots(env, output)
        self._checkpoint_at = 0

    def drop(self, session: SessionId) -> None:
        """Delete the session from the store at the next flush, and forget what is known of its checkpoints; the
        changelog keeps them. The session must not be in the session table any more.
        """
        self.store.drop(session)
        self.checkpoints.drop(session)

    def write(self, session: Session, on_done: OnDone) -> None:
        """Write the session as it is now to store and changelog (handover rule 6). The caller checks that the session
        is served here.

        Both: after a crash with the disk kept the store counts, without it the changelog. Where both have it, the
        registry notes the checkpoint as answered: a changelog that has lost it is found out by that (handover rule 19).

        Args:
            on_done: called once both have answered, with None if both have the session, else with the first error. An
                answer of None comes, too, when the session has left this proxy while its checkpoint waited for another
                one. So the caller looks whether the session is served here still.
        """

        def on_both_done(error: WaypostError | None) -> None:
            if error is None:
                self.checkpoints.mark_answered(session.id)
            on_done(error)

        on_part_done = after_all(2, on_both_done)
        self.store.save(on_part_done)
        self.checkpoints.write(session, on_part_done)

    def changelog_lost(self) -> None:
        """Write all checkpoints and the site's snapshot again, each in its turn: the changelog may have lost them."""
        self.checkpoints.changelog_lost()
        self._snapshots.changelog_lost()

    def prepare_to_leave(self) -> None:
        """Prepare for the end: the next write has the site's state, and the registry notes answered checkpoints."""
        self.store.include_site_state()
        self.checkpoints.note_answered()

    def tick(self) -> None:
        """Write what changed to the store. Every `checkpoint_ms`, have the registry note answered checkpoints and,
        under a lease that holds, write the checkpoints and the site's snapshot that are due.
        """
        self.store.tick()
        now = self._env.time.now_ms
        if now >= self._checkpoint_at:
            self._checkpoint_at = now + self._env.settings.checkpoint_ms
            self.checkpoints.note_answered()
            if self._env.lease.may_serve():
                self.checkpoints.write_changed()
                self._snapshots.tick()

    def next_deadline(self) -> int:
        """Return when :meth:`tick` has something to do, in ms of the engine's clock."""
        return min(self.store.next_deadline(), self._checkpoint_at)
