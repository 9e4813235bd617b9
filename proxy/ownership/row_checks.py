"""Compares the copies that are here with the registry's rows, as the watch reports them, or a read, or a sweep."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from federation.ports import Claimed
from handover.acquisition_rows import is_row_before_copy
from proxy.core.effects import ReadRow, claim_row
from proxy.core.environment import Environment
from proxy.core.events import AcquireRequest, CopyCheckRequested, NextEpochRequested, OwnerRead, SessionRequested
from proxy.core.output import Output
from proxy.core.registry_memory import SWEEPS_PER_ROUND
from proxy.core.session_table import SessionTable
from proxy.ownership.copy_replies import CopyReplies
from proxy.ownership.served_sessions import ServedSessions
from proxy.session.role import Role
from proxy.session.session import Session
from proxy.stream.incremental_scan import IncrementalScan
from proxy.stream.persister import Persister
from waypost.clock import NEVER
from waypost.errors import CheckpointOutdated, WaypostError
from waypost.identity import Epoch, Incarnation, Ownership, ProxyId, SessionId
from waypost.limits import SCANNED_AT_ONCE
from waypost.records import InterestsExpired

DEAD_MS = 10_000
"""An incarnation that the watch has not known for so long is not alive."""


class RowChecks:
    """Compares what is here with the registry, and has what does not fit put right."""

    def __init__(
        self,
        env: Environment,
        sessions: SessionTable,
        output: Output,
        persister: Persister,
        served: ServedSessions,
    ) -> None:
        self._env = env
        self._sessions = sessions
        self._output = output
        self._persister = persister
        self._served = served
        self._replies = CopyReplies(env, sessions, output)
        self._sweep_at = 0
        self._session_scan: IncrementalScan[SessionId] = IncrementalScan(SCANNED_AT_ONCE, SWEEPS_PER_ROUND)
        self._rows: IncrementalScan[SessionId] = IncrementalScan(SCANNED_AT_ONCE, SWEEPS_PER_ROUND)
        self._interest_scan: IncrementalScan[tuple[ProxyId, SessionId]] = IncrementalScan(
            SCANNED_AT_ONCE, SWEEPS_PER_ROUND
        )
        self._not_alive: dict[tuple[ProxyId, Incarnation], int] = {}
        """Incarnations of other proxies whose interests stand in the log, and that the watch does not know -> since
        when, in ms of the engine's clock.
        """

    def owner_changed(self, identity: SessionId, current: Ownership | None) -> None:
        """Compare a session's row with the copy that is here. A copy that is outdated is released; for a served session
        without a row, the registry is read, and a row that it has lost is written again. For a dormant copy without a
        row, CopyCheckRequested is reported.

        A copy in a transfer is left to that transfer, an orphan to the sweep.

        Args:
            current: the row, as the watch or a read reports it; None: there is none.
        """
        session = self._sessions.get(identity)
        if session is None or session.role in (Role.SHADOW, Role.STAGED, Role.ORPHAN, Role.FROZEN):
            return
        if session.role is Role.DORMANT and current is None:
            self._output.report(CopyCheckRequested(session, None))
        elif current is None:
            self._look_up(session)
        elif current.epoch > session.epoch and current.proxy != self._env.proxy:
            self._served.release(session, current)

    def _look_up(self, session: Session) -> None:
        """The watch shows no row of a session that is served here, or one of an earlier epoch.

        The registry says what that means (handover rule 28). Where it was restored from an older copy, whoever serves
        writes the row again: nobody could ever ask for the session at its epoch, or others would make it anew.
        """

        def on_done(answer: Ownership | WaypostError | None) -> None:
            if isinstance(answer, WaypostError):
                return
            if self._has_gone_back(session, answer):
                self._write_again(session, answer)
            elif answer is not None and session.role in (Role.SERVING, Role.FROZEN):
                self._output.report(OwnerRead(session.id, answer))

        self._output.emit(ReadRow(session.id, self._replies.to(session, on_done)))

    def _has_gone_back(self, session: Session, current: Ownership | None) -> bool:
        """Tell whether a registry that says so was restored from an older copy: it has said otherwise before.

        At the epoch of a session that was made since, another may have been made.
        """
        if session.role is Role.SERVING:
            return is_row_before_copy(session.epoch, self._env.proxy, current)
        return session.role is Role.FROZEN and (current is None or current.epoch < session.epoch)

    def _write_again(self, session: Session, earlier: Ownership | None) -> None:
        served = Ownership(self._env.proxy, session.epoch)

        def on_done(answer: Claimed | WaypostError) -> None:
            if not isinstance(answer, Claimed) or answer.current is None:
                return
            self._env.cluster.owned_by(session.id, answer.current)
            self._output.counters.rows_lost += int(answer.won and earlier is None)
            if not answer.won:
                self._output.report(OwnerRead(session.id, answer.current))

        if not self._env.lease.may_serve():
            return
        if earlier is not None and earlier.epoch == session.epoch:
            if session.id not in self._sessions.transfers:
                self._served.sleep(session, "the registry has lost what it knew of the session")
                self._output.report(NextEpochRequested(session, earlier))
        else:
            self._output.emit(claim_row(session.id, earlier, served, self._replies.to(session, on_done)))

    def _reconcile_outdated(self, identity: SessionId, outdated: CheckpointOutdated) -> None:
        """A changelog has a checkpoint that counts more than what is written of a session served here (rule 19).

        Nothing of that counts, then, and nobody is answered. Where an owner wrote it, the registry went back to before
        that one: what clients were answered is there and not here, so the session is rebuilt from it. Where it is
        damaged, the copy here takes an epoch above it.
        """
        session = self._sessions.serving(identity)
        if session is None:
            self._persister.checkpoints.outdated.pop(identity, None)
            return

        def on_done(answer: Ownership | WaypostError | None) -> None:
            if session.role is not Role.SERVING or identity in self._sessions.transfers:
                return
            if not isinstance(answer, Ownership):
                return
            if answer == Ownership(self._env.proxy, session.epoch):
                self._output.counters.outdated += 1
                self._served.sleep(session, "the session's changelog is ahead of the registry")
                if outdated.by_owner:
                    self._served.drop(session)
                else:
                    session.raise_epoch(Epoch(outdated.epoch))
                    self._output.report(NextEpochRequested(session, answer))
            elif answer.epoch > session.epoch:
                self._output.report(OwnerRead(identity, answer))

        if identity not in self._sessions.transfers:
            self._output.emit(ReadRow(identity, self._replies.to(session, on_done)))

    # ------------------------------------------------------------ the sweep

    def tick(self) -> None:
        """Sweep a part of the copies, rows and interests, every `row_sweep_ms`; not without lease and watch.

        Copies that are not served are compared with their rows; of served or frozen ones a row that the registry has
        lost is written again. Sessions that rows name as ours and that are not here are requested, and interests are
        corrected. A served session of which a changelog has what counts more is served no more: it is dropped if an
        owner wrote that, else it takes a later epoch. What the rows contradict is forgotten
        (:meth:`RegistryMemory.prune`).
        """
        if (
            self._env.time.now_ms < self._sweep_at
            or not self._env.lease.may_serve()
            or not self._env.cluster.is_watching
        ):
            return
        self._sweep_at = self._env.time.now_ms + self._env.settings.row_sweep_ms
        self._sweep(
            self._session_scan.next_batch(self._sessions),
            self._rows.next_batch(self._env.cluster.owners),
            self._interest_scan.next_batch(self._env.state.registered),
        )

    def next_deadline(self) -> int:
        """Return when the next sweep is due, in ms of the engine's clock; NEVER: there is no lease, or no watch."""
        return self._sweep_at if self._env.lease.fence_at_ms is not None and self._env.cluster.is_watching else NEVER

    def sweep(self) -> None:
        """Sweep all copies, rows and interests at once, as :meth:`tick` does part by part, also without a lease: rows
        are written and sessions taken only under one.
        """
        self._sweep(list(self._sessions), list(self._env.cluster.owners), list(self._env.state.registered))

    def _expire_dead(self, proxy: ProxyId, identity: SessionId) -> None:
        """Expire the interests of an incarnation that is not alive, for DEAD_MS at least: what was to do so when its
        lease ended may have failed, or its last interests came behind that. A live one may be in the log before the
        watch knows of it.
        """
        registered = self._env.state.registered.get((proxy, identity))
        row = self._env.cluster.proxies.get(proxy)
        if registered is None or self._env.rereading or not self._env.lease.may_serve():
            return
        key, now = (proxy, registered.incarnation), self._env.time.now_ms
        if row is not None and row.incarnation == registered.incarnation:
            self._not_alive.pop(key, None)
        elif now >= self._not_alive.setdefault(key, now) + DEAD_MS:
            del self._not_alive[key]
            self._output.append(InterestsExpired(proxy, registered.incarnation))

    def _sweep(
        self,
        session_ids: Iterable[SessionId],
        rows: Iterable[SessionId],
        registrations: Iterable[tuple[ProxyId, SessionId]],
    ) -> None:
        for identity, outdated in list(islice(self._persister.checkpoints.outdated.items(), SCANNED_AT_ONCE)):
            self._reconcile_outdated(identity, outdated)
        present = [self._sessions[identity] for identity in session_ids if identity in self._sessions]
        for session in present:
            self._check(session)
        # An append of a registration may have failed: append again what the log does not have.
        self._sessions.interest.correct(session for session in present if self._sessions.get(session.id) is session)
        for proxy, identity in registrations:
            if proxy != self._env.proxy:
                self._expire_dead(proxy, identity)
            elif identity not in self._sessions:
                self._sessions.interest.withdraw(identity)
        self._env.registry_memory.prune()
        for identity in rows:
            current = self._env.cluster.owners.get(identity)
            if current is not None and current.proxy == self._env.proxy and identity not in self._sessions:
                self._output.report(SessionRequested(identity, AcquireRequest()))

    def _check(self, session: Session) -> None:
        """Compare a copy with its row, as the watch has it. One that the watch never told of is read: the registry may
        have gone back before that.
        """
        cluster = self._env.cluster
        current = cluster.owners.get(session.id)
        if session.role in (Role.DORMANT, Role.ORPHAN):
            self._output.report(CopyCheckRequested(session, current))
        elif session.role not in (Role.SERVING, Role.FROZEN):
            return
        elif current is None or self._has_gone_back(session, current) or not cluster.has_seen(session.id, current):
            self._look_up(session)
