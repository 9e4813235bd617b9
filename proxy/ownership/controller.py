"""How this proxy comes to own a session, and how it learns that it does not.

The registry's row (owner, epoch) is the only truth, and compare-and-set the only way to change it. Every start of
serving takes a new epoch: creation, commit of a handover, thaw, restart, a new lease, a failover (handover rule 1). An
answer that is lost is settled by reading; a sweep finds rows that name us for sessions that we do not hold (rule 2).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from federation.ports import Claimed
from proxy.core import journal_facts
from proxy.core.context import Context
from proxy.core.effects import ClaimRow, FindCheckpoint, FoundCheckpoint, ReadRow, Send, claim_row, ignore_result
from proxy.core.events import (
    NO_REQUESTER,
    AcquireRequest,
    FetchWanted,
    OwnerRead,
    Requester,
    SessionServed,
    SessionUnavailable,
)
from proxy.ownership.activation_queue import ActivationQueue
from proxy.session.session import Role, Session
from proxy.stream.coverage import Coverage
from proxy.stream.incremental_scan import IncrementalScan
from proxy.stream.persister import Persister
from waypost.checkpoint import Checkpoint
from waypost.clock import NEVER
from waypost.errors import CheckpointOutdated, ReceiverTaken, Refused, SessionLost, WaypostError
from waypost.facts import Acquisition, FactKind
from waypost.identity import NO_PROXY, Epoch, Incarnation, Origin, Ownership, ProxyId, SessionId
from waypost.limits import CREATIONS_AT_ONCE, LOOKED_AFTER
from waypost.messages import AboutSession, Deleted, Moved, Problem, Wait

SWEEPS_A_ROUND = 15
"""In so many sweeps all of many sessions are looked at."""


class Lost(NamedTuple):
    """A session that nobody has any more: its row, and how that is known."""

    row: Ownership
    why: str


class OwnershipController:
    """Takes, keeps and gives up ownership."""

    def __init__(
        self,
        context: Context,
        persister: Persister,
        coverage: Coverage,
    ) -> None:
        self._context = context
        self._persister = persister
        self._coverage = coverage
        self._seeking: set[SessionId] = set()
        """Sessions that we are about to come to: from the question to the registry until the last answer."""
        self.lost: dict[SessionId, Lost] = {}
        """Sessions that nobody has any more, as long as the registry says of them what it said then."""
        self._earlier_rows: dict[SessionId, tuple[Ownership | None, int]] = {}
        """Rows that a registry which went back has of sessions, and since when."""
        self._reasons: dict[SessionId, str] = {}
        """Why we want sessions deleted."""
        self._rows_lost_ms = -(1 << 60)
        """When the registry was last seen to have lost rows."""
        self.activation_queue = ActivationQueue(context)
        self._sweep_at = 0
        self._created_until_ms = 0.0
        """When all sessions so far would be made, at the rate at which they may be."""
        self._mine = IncrementalScan(lambda: list(context.sessions), LOOKED_AFTER, SWEEPS_A_ROUND)
        self._rows = IncrementalScan(lambda: list(context.cluster.owners), LOOKED_AFTER, SWEEPS_A_ROUND)
        self._holds = IncrementalScan(lambda: list(context.state.holds), LOOKED_AFTER, SWEEPS_A_ROUND)

    # ------------------------------------------------------------ somebody wants a session

    def seek(self, session: SessionId, request: AcquireRequest) -> None:
        """Come to serve the session, by whatever way the registry leaves.

        An owner whom the watch names, or else the client, is asked at once. It may be the owner no more: then the
        registry is read, as it is where there is nobody to ask.
        """
        if session in self._seeking:
            return
        owner = self._context.cluster.owners.get(session) or request.hint
        if owner is not None and session not in self._context.sessions and self._lives_elsewhere(owner):
            self._context.events.report(FetchWanted(session, owner, request))
        else:
            self._ask(session, request)

    def acquire_failed(self, session: SessionId, owner: Ownership, request: AcquireRequest, lost: str = "") -> None:
        """That owner did not hand the session over. `lost`: why nobody ever will, as it says."""
        if request.certain:
            self._context.events.report(SessionUnavailable(session, _not_to_be_had(session, lost)))
        else:
            self._ask(session, request, tried=owner, lost=lost)

    def _ask(
        self, session: SessionId, request: AcquireRequest, *, tried: Ownership | None = None, lost: str = ""
    ) -> None:
        """Read the row, and act on it. `tried`: an owner of whom the session was not to be had; `lost`: as above."""
        self._seeking.add(session)

        def on_done(answer: Ownership | WaypostError | None) -> None:
            if isinstance(answer, WaypostError):
                self._give_up(session, "the registry does not answer")
            elif answer is not None and answer == tried and self._lives_elsewhere(answer):
                self._give_up(session, _not_to_be_had(session, lost))
            else:
                self._decide(session, answer, request)

        self._context.outbox.emit(ReadRow(session, on_done))

    def _lives_elsewhere(self, owner: Ownership) -> bool:
        return not owner.deleted and owner.proxy != self._context.proxy and self._context.cluster.alive(owner.proxy)

    def _is_gone(self, session: SessionId, owner: Ownership) -> bool:
        """Tell whether the life that took this very epoch has certainly ended: the watch shows no life of the owner.

        It says so of that life only once it has told of the row (handover rule 26): what it told before may be the end
        of an earlier life, and the owner may serve under its next lease. Where the row is ours, nobody else serves.
        """
        return owner.proxy == self._context.proxy or self._context.cluster.has_seen(session, owner)

    def _still(self, life: Incarnation) -> bool:
        """Tell whether an answer still counts: the lease under which it was asked for holds (handover rule 1).

        What was taken under an earlier one, the sweep finds in the registry, and takes the next epoch for it.
        """
        return self._context.lease.incarnation == life and self._context.lease.may_serve()

    def _give_up(self, session: SessionId, reason: str | Refused | None) -> None:
        self._seeking.discard(session)
        self._context.events.report(SessionUnavailable(session, reason))

    def _decide(self, session: SessionId, current: Ownership | None, request: AcquireRequest) -> None:
        """Act on the row of a session that is wanted here and not served here."""
        held = self._context.sessions.get(session)
        if held is not None:
            self._seeking.discard(session)
            if held.role in (Role.DORMANT, Role.ORPHAN):
                self._settle(held, current, waited_for=True)
            elif self._context.sessions.serving(session) is held:
                self._context.events.report(SessionServed(held))
            elif held.role is Role.SERVING:
                # Its lease is in doubt: either it is renewed in time, or the session goes to sleep.
                self._give_up(session, "this proxy has no lease at the moment")
        elif current is None or current.deleted:
            self._create(session, request, current)
        elif self._lives_elsewhere(current):
            self._seeking.discard(session)
            self._context.events.report(FetchWanted(session, current, request._replace(certain=True)))
        elif not self._is_gone(session, current):
            self._give_up(session, "the registry's watch is behind: the owner may be alive")
        elif not self._context.lease.may_serve() or not self._context.cluster.is_watching:
            self._give_up(session, "this proxy has no lease at the moment")
        else:
            self._rebuild(session, current)

    def _may_create_now(self) -> bool:
        """Keep to the rate at which sessions are made; some may be made at once after a while without."""
        now, rate = self._context.clock.now_ms(), self._context.settings.creations_a_s
        if not rate:
            return True
        due = max(self._created_until_ms, now) + 1_000 / rate
        if due > now + CREATIONS_AT_ONCE * 1_000 / rate:
            return False
        self._created_until_ms = due
        return True

    def _create(self, session: SessionId, request: AcquireRequest, before: Ownership | None, *, above: int = 0) -> None:
        """Create the session, in the place of one that was deleted, if there was one: epochs never begin anew.

        Its first checkpoint is durable before its row is there: a row without one means that the session was lost.

        Args:
            above: the epoch of a checkpoint that there is, of a session of the name that the registry has lost: this
                one is of a later generation, or its own checkpoints would count less (rule 19).
        """
        if not request.create:
            self._give_up(session, None)
            return
        if not self._context.lease.may_serve():
            self._give_up(session, "this proxy has no lease at the moment")
            return
        if before is None and self._context.clock.now_ms() < self._rows_lost_ms + self._context.settings.rows_back_ms:
            self._give_up(session, "the registry has lost rows: the session may be one that there is")
            return
        if len(self._context.sessions) >= self._context.settings.max_sessions:
            self._give_up(session, "this proxy has as many sessions as it may; attach at another one")
            return
        if not self._may_create_now():
            self._give_up(session, "many sessions are being made here at the moment")
            return
        earlier = Ownership(NO_PROXY, Epoch(above)).gone() if above else before
        first = (earlier or Ownership(self._context.proxy, Epoch(0))).next(self._context.proxy)
        life = self._context.lease.incarnation
        fresh = Session(session, first.epoch, Role.DORMANT)
        fresh.created_at = dict(self._context.state.frontier)

        def kept(error: WaypostError | None) -> None:
            if isinstance(error, CheckpointOutdated):
                self._create_above(session, request, before, error)
            elif error is not None:
                self._give_up(session, "the changelog does not answer")
            elif not self._still(life):
                self._give_up(session, "this proxy has no lease at the moment")
            else:
                self._context.outbox.emit(claim_row(session, before, first, on_done))

        def on_done(answer: Claimed | WaypostError) -> None:
            if not self._still(life):
                self._give_up(session, "this proxy has no lease at the moment")
            elif isinstance(answer, Claimed) and answer.won:
                fresh.created_at = dict(self._context.state.frontier)
                self._persister.renew(session)
                self.serve(fresh, first.epoch, Acquisition.CREATE)
            elif isinstance(answer, Claimed) and answer.current is not None:
                self._decide(session, answer.current, request)
            else:
                self._give_up(session, "the registry does not answer")

        self._persister.first_checkpoint(fresh, kept)

    def _create_above(
        self, session: SessionId, request: AcquireRequest, before: Ownership | None, outdated: CheckpointOutdated
    ) -> None:
        """Create it above a checkpoint that there is, unless the session was created by somebody else meanwhile.

        The registry has lost a session of that name. Who serves it may live, and is to write its row again first.
        """

        def on_done(answer: Ownership | WaypostError | None) -> None:
            if isinstance(answer, WaypostError):
                self._give_up(session, "the registry does not answer")
            elif answer != before:
                self._decide(session, answer, request)
            elif outdated.by_owner and not self._is_past(session, before):
                self._give_up(session, "the registry has gone back: who owns the session may be alive")
            else:
                self._create(session, request, before, above=outdated.epoch)

        self._context.outbox.emit(ReadRow(session, on_done))

    # ------------------------------------------------------------ without a living owner

    def _rebuild(self, session: SessionId, current: Ownership) -> None:
        """Rebuild from the changelog; the row names a dead owner, or us without data."""

        def found(answer: FoundCheckpoint | WaypostError) -> None:
            if isinstance(answer, WaypostError):
                self._give_up(session, "the session's last checkpoint cannot be read yet")
            elif answer.damaged and answer.complete and not self._is_owners(answer, current):
                self._lost(session, current, answer.damaged)
            elif not answer.complete and not self._is_owners(answer, current):
                self._give_up(session, "the session's last checkpoint cannot be read yet")
            elif answer.checkpoint is None or current.outlives(answer.checkpoint.epoch):
                self._lost(session, current, "no changelog has a checkpoint of it")
            elif answer.is_older:
                self._lost(
                    session,
                    current,
                    "the changelog has lost its last checkpoint, and with it what clients were answered",
                )
            elif answer.checkpoint.epoch > current.epoch and not self._is_past(session, current):
                self._give_up(session, "the registry has gone back: who owns the session may be alive")
            else:
                self._take_over(session, current, answer.checkpoint)

        self._context.outbox.emit(FindCheckpoint(session, found))

    def rows_lost(self) -> None:
        """The registry has lost rows that nobody removed: it was restored from an older copy, or is another one.

        Who serves a session, or did so until its lease ended, writes its row again. Until all have, nobody makes a
        session in the place of one that there is.
        """
        self._rows_lost_ms = self._context.clock.now_ms()

    def _is_past(self, session: SessionId, row: Ownership | None) -> bool:
        """Tell whether a row, than which we know of a later epoch, has stood for so long that nobody will correct it.

        The registry was restored from an older copy. Who serves at a later epoch writes its row again once it is told
        of this one, or looks after its sessions; so what this one says of its owner's life says nothing of that.
        """
        now = self._context.clock.now_ms()
        known, since_ms = self._earlier_rows.get(session, (row, now))
        if known != row:
            since_ms = now
        self._earlier_rows[session] = (row, since_ms)
        return now >= since_ms + (SWEEPS_A_ROUND + 1) * self._context.settings.sweep_ms

    def _lost(self, session: SessionId, current: Ownership, why: str) -> None:
        """It is never served empty (P5). To begin anew is for its owner to say: by deleting it."""
        self._context.cluster.owned_by(session, current)
        if self.lost.get(session) != Lost(current, why):
            self.lost[session] = Lost(current, why)
            self._context.counters.damaged["session"] += 1
        self._give_up(session, session_lost(session, why))

    def why_lost(self, session: SessionId, epoch: Epoch) -> str:
        """Return why nobody has the session any more that we own at that epoch; empty: nothing is known of that."""
        lost = self.lost.get(session)
        return lost.why if lost is not None and lost.row == Ownership(self._context.proxy, epoch) else ""

    def _is_owners(self, found: FoundCheckpoint, current: Ownership) -> bool:
        """Tell whether nothing newer can be anywhere else: it is the owner's own, of its very epoch (P5).

        Else all changelogs must have been read: the registry's watch has told of all, for a site's changelog is written
        there before its first session is. A first checkpoint is nobody's: whoever tried to create the session has
        written one of that epoch, and the one that did has perhaps written others since.
        """
        last = found.checkpoint
        return last is not None and last.epoch == current.epoch and last.serial > 0

    def _take_over(self, session: SessionId, current: Ownership, checkpoint: Checkpoint) -> None:
        if not self._context.lease.may_serve() or session in self._context.sessions:
            self._give_up(session, "this proxy has no lease at the moment")
            return
        # A registry that was restored from an older copy may name an epoch long past.
        new = Ownership(self._context.proxy, Epoch(max(current.epoch, checkpoint.epoch) + 1))
        life = self._context.lease.incarnation

        def on_done(answer: Claimed | WaypostError) -> None:
            if not self._still(life):
                self._give_up(session, "this proxy has no lease at the moment")
            elif isinstance(answer, WaypostError):
                self._give_up(session, "the registry does not answer")
            elif not answer.won:
                # Also if the row is as we wanted it: an earlier life of ours may have served at that epoch.
                self._give_up(session, "another proxy took the session over")
            else:
                self._raise(session, new.epoch, checkpoint)

        self._context.outbox.emit(ClaimRow(session, current, new, on_done))

    def _raise(self, identity: SessionId, epoch: Epoch, checkpoint: Checkpoint) -> None:
        """Make the session from its checkpoint: every origin gated at what was acknowledged (failover)."""
        session = Session(identity, epoch, Role.DORMANT)
        frontier = self._context.state.frontier
        session.describe(checkpoint.descriptor)
        session.expire_unpersisted(checkpoint.acknowledged)
        session.renumber()
        session.rebuilding = True
        acknowledged = self._context.state.continued(checkpoint.acknowledged)
        session.close_gates(frontier, seen=acknowledged)
        session.lift_floors(acknowledged)
        self._persister.renew(identity)
        self.serve(session, epoch, Acquisition.FAILOVER)

    # ------------------------------------------------------------ serving

    def serve(self, session: Session, epoch: Epoch, cause: Acquisition) -> None:
        """Serve the session from now on; the registry names us at this epoch."""
        context = self._context
        session.epoch = epoch
        session.become(Role.SERVING)
        session.was_served = True
        session.since_ms = context.clock.now_ms()
        session.delivered.clear()
        session.remove_acknowledged()
        self._seeking.discard(session.id)
        self.lost.pop(session.id, None)
        self._earlier_rows.pop(session.id, None)
        if context.sessions.get(session.id) is not session:
            context.sessions.put(session)
        context.cluster.owned_by(session.id, Ownership(context.proxy, epoch))
        context.sessions.mark_changed(session.id)
        if session.held_expressions():
            context.interest.register(session)
        context.counters.served[cause] += 1
        context.journal.attest(FactKind.OWNED, session, cause=cause, frontier=context.frontier(session))
        session.bound(session.queue.within(context.settings.queue))
        journal_facts.restated(context, session)
        journal_facts.lost_with_process(context, session)
        self._persister.checkpoint(session, ignore_result)
        self._coverage.watch(session)
        self._coverage.advance(session)
        self._context.events.report(SessionServed(session))

    def wake(self, session: Session, *, waited_for: bool = False) -> None:
        """Take the next epoch for a session that the store says is ours, in its turn."""
        self.activation_queue.wake(session, Ownership(self._context.proxy, session.epoch), waited_for=waited_for)

    def activated(self, session: Session, epoch: Epoch, incarnation: Incarnation) -> None:
        """The registry gave a copy that sleeps that epoch: serve it, if the lease still holds."""
        session.is_activating = False
        if self._sleeps(session) and self._still(incarnation):
            self.serve(session, epoch, Acquisition.RESTART)

    def not_activated(self, session: Session, current: Ownership | None) -> None:
        """The registry names somebody else, or a later session of the name; or it went back, and has an earlier row."""
        session.is_activating = False
        if not self._sleeps(session):
            return
        if current is None or current.epoch < session.epoch:
            self._look_up(session)
        else:
            # What the store has is none of it (handover rule 22).
            self.release(session, current)

    def _sleeps(self, session: Session) -> bool:
        return self._context.sessions.get(session.id) is session and session.role is Role.DORMANT

    def delete(self, session: Session, reason: str) -> None:
        """Delete the session in the registry. What came of it, the watch says: a handover may have been first (F32)."""
        self._reasons[session.id] = reason
        mine = Ownership(self._context.proxy, session.epoch)
        self._context.outbox.emit(ClaimRow(session.id, mine, mine.gone(), ignore_result))

    def release(self, session: Session, to: Ownership | None, taken_by: Requester = NO_REQUESTER) -> None:
        """The registry names another owner: say where the session went, and delete it here.

        The receiver `taken_by` attached there itself; whoever else uses its name here is told to stop.
        """
        frontier = self._context.frontier(session)
        if to is not None and to.deleted:
            self._say_deleted(session, frontier)
        self._context.journal.attest(FactKind.RELEASED, session, frontier=frontier)
        row = self._context.cluster.proxies.get(to.proxy) if to else None
        for receiver in session.receivers.values():
            if receiver.connection is None or (to is not None and to.deleted):
                continue
            if receiver.id == taken_by.receiver and receiver.incarnation != taken_by.incarnation:
                self._context.outbox.emit(Send(receiver.connection, taken(session.id, receiver.id)))
            elif row is not None:
                self._context.outbox.emit(Send(receiver.connection, Moved(session.id, row.proxy, row.url)))
            else:
                wait = Wait("the session has moved", self._context.settings.retry_ms)
                self._context.outbox.emit(Send(receiver.connection, wait))
        self.drop(session)
        self._context.events.report(SessionUnavailable(session.id, "the session has moved"))

    def _say_deleted(self, session: Session, frontier: dict[Origin, int]) -> None:
        reason = self._reasons.pop(session.id, "it was deleted; attach again to make a new one")
        self._context.journal.attest(FactKind.DELETED, session, frontier=frontier, reason=reason)
        for receiver in session.receivers.values():
            if receiver.connection is not None:
                self._context.outbox.emit(Send(receiver.connection, Deleted(session.id, reason)))

    def drop(self, session: Session) -> None:
        """Delete this copy, with what it holds at the site."""
        if self.withdraw(session):
            self._persister.drop(session.id)

    def withdraw(self, session: Session) -> bool:
        """Take no part in the session any more; what the store has of it stays. Tell whether we took part."""
        context = self._context
        if context.sessions.get(session.id) is not session:
            return False
        context.sessions.remove(session.id)
        context.interest.withdraw(session.id)
        return True

    # ------------------------------------------------------------ leases

    def fence(self) -> None:
        """Our lease may have ended: serve nothing until a new epoch is taken under a new one."""
        self.activation_queue.fence()
        for session in self._context.sessions.values():
            if session.role in (Role.SERVING, Role.FROZEN):
                for receiver in session.receivers.values():
                    receiver.disconnect()
            if session.role is Role.SERVING:
                session.become(Role.DORMANT)

    def owner_changed(self, identity: SessionId, current: Ownership | None) -> None:
        """The registry's watch says who owns a session. One in a transfer is the transfer's, until that is over."""
        session = self._context.sessions.get(identity)
        if session is None or session.role in (Role.SHADOW, Role.STAGED, Role.ORPHAN, Role.FROZEN):
            return
        if current is None:
            self._look_up(session)
        elif current.epoch > session.epoch and current.proxy != self._context.proxy:
            self.release(session, current)

    def _look_up(self, session: Session) -> None:
        """The watch shows no row of a copy that is here, or one of an earlier epoch than that at which it is served.

        The registry says what that means (handover rule 28). Where it was restored from an older copy, whoever serves
        writes the row again: nobody could ever ask for the session at its epoch, or others would make it anew.
        """

        def on_done(answer: Ownership | WaypostError | None) -> None:
            if isinstance(answer, WaypostError) or self._context.sessions.get(session.id) is not session:
                return
            if self._went_back(session, answer):
                self._write_again(session, answer)
            elif answer is None and session.role is not Role.DORMANT:
                return
            elif answer is not None and session.role in (Role.SERVING, Role.FROZEN):
                self._context.events.report(OwnerRead(session.id, answer))
            else:
                self._settle(session, answer)

        self._context.outbox.emit(ReadRow(session.id, on_done))

    def _went_back(self, session: Session, current: Ownership | None) -> bool:
        """Tell whether a registry that says so was restored from an older copy: it has said otherwise before.

        At the epoch of a session that was made since, another may have been made.
        """
        if session.role is Role.SERVING and current is not None and current.epoch == session.epoch:
            return current.proxy != self._context.proxy
        return session.role in (Role.SERVING, Role.FROZEN) and (current is None or current.epoch < session.epoch)

    def _sleep(self, session: Session, reason: str) -> None:
        """Serve the session no more until a later epoch is taken for it; who is attached asks again."""
        for receiver in session.receivers.values():
            if receiver.connection is not None:
                self._context.outbox.emit(Send(receiver.connection, Wait(reason, self._context.settings.retry_ms)))
            receiver.disconnect()
        session.become(Role.DORMANT)
        self._context.events.report(SessionUnavailable(session.id, reason))

    def _write_again(self, session: Session, earlier: Ownership | None) -> None:
        context, served = self._context, Ownership(self._context.proxy, session.epoch)

        def on_done(answer: Claimed | WaypostError) -> None:
            if not isinstance(answer, Claimed) or answer.current is None:
                return
            context.cluster.owned_by(session.id, answer.current)
            context.counters.rows_lost += int(answer.won and earlier is None)
            if not answer.won and context.sessions.get(session.id) is session:
                self._context.events.report(OwnerRead(session.id, answer.current))

        if not context.lease.may_serve():
            return
        if earlier is not None and earlier.epoch == session.epoch:
            if session.id not in self._context.transfers:
                self._sleep(session, "the registry has lost what it knew of the session")
                self.activation_queue.wake(session, earlier)
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
                self._sleep(session, "the session's changelog is ahead of the registry")
                if outdated.by_owner:
                    self.drop(session)
                else:
                    session.epoch = max(session.epoch, Epoch(outdated.epoch))
                    self.activation_queue.wake(session, answer)
            elif answer.epoch > session.epoch:
                self._context.events.report(OwnerRead(identity, answer))

        if self._context.sessions.serving(identity) is None:
            self._persister.outdated.pop(identity, None)
        elif identity not in self._context.transfers:
            self._context.outbox.emit(ReadRow(identity, on_done))

    def tick(self) -> None:
        """Now and then: wake what sleeps, and seek what the registry says is ours and is not here."""
        context = self._context
        if context.clock.now_ms() < self._sweep_at or not context.lease.may_serve() or not context.cluster.is_watching:
            return
        self._sweep_at = context.clock.now_ms() + context.settings.sweep_ms
        self._sweep(self._mine.take(), self._rows.take(), self._holds.take())

    def next_deadline(self) -> int:
        """When the next sweep is due, in ms of the engine's clock; NEVER: there is no lease."""
        return (
            self._sweep_at
            if self._context.lease.fence_at_ms is not None and self._context.cluster.is_watching
            else NEVER
        )

    def sweep(self) -> None:
        """Look at all of them."""
        self._sweep(list(self._context.sessions), list(self._context.cluster.owners), list(self._context.state.holds))

    def _sweep(
        self, mine: Iterable[SessionId], rows: Iterable[SessionId], holds: Iterable[tuple[ProxyId, SessionId]]
    ) -> None:
        context = self._context
        for identity, outdated in list(islice(self._persister.outdated.items(), LOOKED_AFTER)):
            self._settle_outdated(identity, outdated)
        here = [context.sessions[each] for each in mine if each in context.sessions]
        for session in here:
            current = context.cluster.owners.get(session.id)
            in_question = current is None or self._went_back(session, current)
            if in_question and session.role not in (Role.SHADOW, Role.STAGED):
                self._look_up(session)
            elif session.role is not Role.SERVING:
                self._settle(session, current)
        # An append of a hold may have failed: say again what the log does not have.
        context.interest.register_all(
            each for each in here if context.sessions.get(each.id) is each and not context.interest.is_exact(each)
        )
        for proxy, identity in holds:
            if proxy == context.proxy and identity not in context.sessions:
                context.interest.withdraw(identity)
        for identity in [each for each, lost in self.lost.items() if context.cluster.owners.get(each) != lost.row]:
            del self.lost[identity]
        for identity in [
            each for each, (row, _) in self._earlier_rows.items() if context.cluster.owners.get(each) != row
        ]:
            del self._earlier_rows[identity]
        for identity in rows:
            current = context.cluster.owners.get(identity)
            if current is not None and current.proxy == context.proxy and identity not in context.sessions:
                self.seek(identity, AcquireRequest())

    def _settle(self, session: Session, current: Ownership | None, *, waited_for: bool = False) -> None:
        """Compare a copy that is not served with its row."""
        mine = current is not None and current.proxy == self._context.proxy
        if session.role is Role.DORMANT:
            # A copy of an earlier generation is none of this session, though both are ours (rule 22).
            if current is None or (current.epoch, mine) < (session.epoch, True):
                self._settle_later(session, current, waited_for=waited_for)
            elif mine and current is not None and not current.outlives(session.epoch):
                session.epoch = max(session.epoch, current.epoch)
                self.wake(session, waited_for=waited_for)
            elif current is not None and current.epoch > session.epoch:
                self.release(session, current)
        elif session.role is Role.ORPHAN:
            self._settle_orphan(session, current)

    def _settle_later(self, session: Session, earlier: Ownership | None, *, waited_for: bool) -> None:
        """The registry went back: it has an earlier row than the copy is of, or none. The copy takes the next epoch.

        At once if it was served by this process. Else whoever took it over since may live, and corrects the row.
        """
        if not (session.was_served or self._is_past(session.id, earlier)):
            if waited_for:
                self._context.events.report(
                    SessionUnavailable(session.id, "the registry has gone back: who owns the session may be alive")
                )
        elif self._context.lease.may_serve() and not session.is_activating:
            self.activation_queue.wake(session, earlier, waited_for=waited_for)

    def _settle_orphan(self, session: Session, current: Ownership | None, *, read: bool = False) -> None:
        """A staged copy without its transfer: ours if the row has its very epoch; else it is nothing.

        As long as the row has the epoch before, the source has not served since the cut, and an earlier claim of ours
        may still be applied: the copy commits after all, once it is certainly stored. Where the watch is further behind
        than that, the row may be ours meanwhile: the registry is asked.

        Args:
            read: `current` was read from the registry for this, and not told by the watch.
        """
        if current == Ownership(self._context.proxy, session.epoch):
            session.become(Role.DORMANT)
            self.wake(session)
        elif current is not None and current.epoch + 1 == session.epoch:
            self._commit_orphan(session, current)
        elif current is not None and current.epoch < session.epoch and not read:
            self._read_for_orphan(session)
        elif current is not None:
            self.drop(session)
            self._context.events.report(SessionUnavailable(session.id, "the session was not handed over"))

    def _read_for_orphan(self, session: Session) -> None:
        def on_done(answer: Ownership | WaypostError | None) -> None:
            here = self._context.sessions.get(session.id) is session and session.role is Role.ORPHAN
            if here and isinstance(answer, Ownership):
                self._settle_orphan(session, answer, read=True)

        self._context.outbox.emit(ReadRow(session.id, on_done))

    def _commit_orphan(self, session: Session, source: Ownership) -> None:
        if not self._context.lease.may_serve() or session.is_activating:
            return
        session.is_activating = True
        life = self._context.lease.incarnation

        def still() -> bool:
            here = self._context.sessions.get(session.id) is session and session.role is Role.ORPHAN
            return here and self._still(life)

        def stored(error: WaypostError | None) -> None:
            if error is None and still():
                self._context.outbox.emit(ClaimRow(session.id, source, source.next(self._context.proxy), answered))
            else:
                session.is_activating = False

        def answered(answer: Claimed | WaypostError) -> None:
            session.is_activating = False
            if isinstance(answer, WaypostError) or not still():
                return
            if answer.won:
                session.become(Role.DORMANT)
                self.serve(session, session.epoch, Acquisition.HANDOVER)
            else:
                self._settle_orphan(session, answer.current)

        self._persister.saved(stored)


def session_lost(session: SessionId, why: str) -> SessionLost:
    """Return what whoever wants the session is told."""
    return SessionLost(f"session {session} was lost: {why}; waypost sessions rm {session} lets it begin anew")


def _not_to_be_had(session: SessionId, lost: str) -> str | Refused:
    return session_lost(session, lost) if lost else "the session could not be handed over yet"


def taken(session: SessionId, receiver: str) -> Problem:
    """Return what a connection is told whose receiver has attached elsewhere: the newest one counts."""
    hint = "give each client a receiver's name of its own"
    text = f"receiver {receiver} of session {session} attached somewhere else; {hint}"
    return Problem(ReceiverTaken.code, text, "receiver", AboutSession(session))
