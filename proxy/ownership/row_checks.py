"""Compares the copies that are here with the registry's rows, as the watch reports them, or a read, or a sweep."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from federation.ports import Claimed
from handover.acquisition import went_back
from proxy.core.context import Context
from proxy.core.effects import ReadRow, claim_row
from proxy.core.events import AcquireRequest, OwnerRead
from proxy.ownership.acquisitions import Acquisitions
from proxy.ownership.registry_memory import SWEEPS_A_ROUND, RegistryMemory
from proxy.ownership.served_sessions import ServedSessions
from proxy.session.session import Role, Session
from proxy.stream.incremental_scan import IncrementalScan
from proxy.stream.persister import Persister
from waypost.clock import NEVER
from waypost.errors import CheckpointOutdated, WaypostError
from waypost.identity import Epoch, Ownership, ProxyId, SessionId
from waypost.limits import SCANNED_AT_ONCE


class RowChecks:
    """Compares what is here with the registry, and has what does not fit put right."""

    def __init__(
        self,
        context: Context,
        persister: Persister,
        served: ServedSessions,
        acquisitions: Acquisitions,
        memory: RegistryMemory,
    ) -> None:
        self._context = context
        self._persister = persister
        self._served = served
        self._acquisitions = acquisitions
        self._memory = memory
        self._sweep_at = 0
        self._session_scan: IncrementalScan[SessionId] = IncrementalScan(SCANNED_AT_ONCE, SWEEPS_A_ROUND)
        self._rows: IncrementalScan[SessionId] = IncrementalScan(SCANNED_AT_ONCE, SWEEPS_A_ROUND)
        self._interest_scan: IncrementalScan[tuple[ProxyId, SessionId]] = IncrementalScan(
            SCANNED_AT_ONCE, SWEEPS_A_ROUND
        )

    def owner_changed(self, identity: SessionId, current: Ownership | None) -> None:
        """The registry's watch says who owns a session. One in a transfer is the transfer's, until that is over."""
        session = self._context.sessions.get(identity)
        if session is None or session.role in (Role.SHADOW, Role.STAGED, Role.ORPHAN, Role.FROZEN):
            return
        if session.role is Role.DORMANT and current is None:
            self._acquisitions.compare(session, None)
        elif current is None:
            self._look_up(session)
        elif current.epoch > session.epoch and current.proxy != self._context.proxy:
            self._served.release(session, current)

    def _look_up(self, session: Session) -> None:
        """The watch shows no row of a session that is served here, or one of an earlier epoch.

        The registry says what that means (handover rule 28). Where it was restored from an older copy, whoever serves
        writes the row again: nobody could ever ask for the session at its epoch, or others would make it anew.
        """

        def on_done(answer: Ownership | WaypostError | None) -> None:
            if isinstance(answer, WaypostError) or self._context.sessions.get(session.id) is not session:
                return
            if self._went_back(session, answer):
                self._write_again(session, answer)
            elif answer is not None and session.role in (Role.SERVING, Role.FROZEN):
                self._context.events.report(OwnerRead(session.id, answer))

        self._context.outbox.emit(ReadRow(session.id, on_done))

    def _went_back(self, session: Session, current: Ownership | None) -> bool:
        """Tell whether a registry that says so was restored from an older copy: it has said otherwise before.

        At the epoch of a session that was made since, another may have been made.
        """
        if session.role is Role.SERVING:
            return went_back(session.epoch, self._context.proxy, current)
        return session.role is Role.FROZEN and (current is None or current.epoch < session.epoch)

    def _write_again(self, session: Session, earlier: Ownership | None) -> None:
        context, served = self._context, Ownership(self._context.proxy, session.epoch)

        def on_done(answer: Claimed | WaypostError) -> None:
            if not isinstance(answer, Claimed) or answer.current is None:
                return
            context.cluster.owned_by(session.id, answer.current)
            context.counters.rows_lost += int(answer.won and earlier is None)
            if not answer.won and context.sessions.get(session.id) is session:
                context.events.report(OwnerRead(session.id, answer.current))

        if not context.lease.may_serve():
            return
        if earlier is not None and earlier.epoch == session.epoch:
            if session.id not in context.transfers:
                self._served.sleep(session, "the registry has lost what it knew of the session")
                self._acquisitions.activate_after(session, earlier)
        else:
            context.outbox.emit(claim_row(session.id, earlier, served, on_done))

    def _settle_outdated(self, identity: SessionId, outdated: CheckpointOutdated) -> None:
        """A changelog has a checkpoint that counts more than what is written of a session served here (rule 19).

        Nothing of that counts, then, and nobody is answered. Where an owner wrote it, the registry went back to before
        that one: what clients were answered is there and not here, so the session is rebuilt from it. Where it is one
        from before a session was created, or damaged, the copy here takes an epoch above it.
        """

        def on_done(answer: Ownership | WaypostError | None) -> None:
            session = self._context.sessions.serving(identity)
            if session is None or not isinstance(answer, Ownership) or identity in self._context.transfers:
                return
            if answer == Ownership(self._context.proxy, session.epoch):
                self._context.counters.outdated += 1
                self._served.sleep(session, "the session's changelog is ahead of the registry")
                if outdated.by_owner:
                    self._served.drop(session)
                else:
                    session.epoch = max(session.epoch, Epoch(outdated.epoch))
                    self._acquisitions.activate_after(session, answer)
            elif answer.epoch > session.epoch:
                self._context.events.report(OwnerRead(identity, answer))

        if self._context.sessions.serving(identity) is None:
            self._persister.outdated.pop(identity, None)
        elif identity not in self._context.transfers:
            self._context.outbox.emit(ReadRow(identity, on_done))

    # ------------------------------------------------------------ the sweep

    def tick(self) -> None:
        """Now and then: wake what sleeps, and acquire what the registry says is ours and is not here."""
        context = self._context
        if context.clock.now_ms() < self._sweep_at or not context.lease.may_serve() or not context.cluster.is_watching:
            return
        self._sweep_at = context.clock.now_ms() + context.settings.sweep_ms
        self._sweep(
            self._session_scan.next_batch(context.sessions),
            self._rows.next_batch(context.cluster.owners),
            self._interest_scan.next_batch(context.state.registered),
        )

    def next_deadline(self) -> int:
        """Return when the next sweep is due, in ms of the engine's clock; NEVER: there is no lease."""
        return (
            self._sweep_at
            if self._context.lease.fence_at_ms is not None and self._context.cluster.is_watching
            else NEVER
        )

    def sweep(self) -> None:
        """Look at all of them."""
        self._sweep(
            list(self._context.sessions), list(self._context.cluster.owners), list(self._context.state.registered)
        )

    def _sweep(
        self,
        session_ids: Iterable[SessionId],
        rows: Iterable[SessionId],
        registrations: Iterable[tuple[ProxyId, SessionId]],
    ) -> None:
        context = self._context
        for identity, outdated in list(islice(self._persister.outdated.items(), SCANNED_AT_ONCE)):
            self._settle_outdated(identity, outdated)
        present = [context.sessions[identity] for identity in session_ids if identity in context.sessions]
        for session in present:
            self._check(session)
        # An append of a hold may have failed: say again what the log does not have.
        context.interest.register_all(
            session
            for session in present
            if context.sessions.get(session.id) is session and not context.interest.is_exact(session)
        )
        for proxy, identity in registrations:
            if proxy == context.proxy and identity not in context.sessions:
                context.interest.withdraw(identity)
        self._memory.prune()
        for identity in rows:
            current = context.cluster.owners.get(identity)
            if current is not None and current.proxy == context.proxy and identity not in context.sessions:
                self._acquisitions.acquire(identity, AcquireRequest())

    def _check(self, session: Session) -> None:
        """Compare a copy with its row, as the watch has it. One that the watch never told of is read: the registry may
        have gone back before that.
        """
        cluster = self._context.cluster
        current = cluster.owners.get(session.id)
        if session.role in (Role.DORMANT, Role.ORPHAN):
            self._acquisitions.compare(session, current)
        elif session.role not in (Role.SERVING, Role.FROZEN):
            return
        elif current is None or self._went_back(session, current) or not cluster.has_seen(session.id, current):
            self._look_up(session)
