"""How this proxy comes to own a session, and how it learns that it does not.

The registry's row (owner, epoch) is the only truth, and compare-and-set the only way to change it. Every start of
serving takes a new epoch: creation, commit of a handover, thaw, restart, a new lease, a failover (handover rule 1). An
answer that is lost is settled by reading; a sweep finds rows that name us for sessions that we do not hold (rule 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from federation.ports import Claimed
from proxy import attesting
from proxy.context import Context
from proxy.coverage import Coverage
from proxy.effects import ClaimRow, CreateRow, FindCheckpoint, FoundCheckpoint, ReadRow, Send, nobody_waits
from proxy.keeper import Keeper
from proxy.rounds import Rounds
from proxy.session import Role, Session
from proxy.waking import Waking
from waypost.checkpoint import Checkpoint
from waypost.clock import NEVER
from waypost.errors import ReceiverTaken, Refused, SessionLost, WaypostError
from waypost.identity import Epoch, Incarnation, Origin, Ownership, ProxyId, SessionId
from waypost.limits import CREATIONS_AT_ONCE, LOOKED_AFTER
from waypost.messages import AboutSession, Deleted, Moved, Problem, Wait
from waypost.records import FactKind


class Asker(NamedTuple):
    """The receiver that wants a session somewhere, and the name of its present life."""

    receiver: str = ""
    incarnation: str = ""


NOBODY = Asker()
SWEEPS_A_ROUND = 15
"""In so many sweeps all of many sessions are looked at."""


class Wish(NamedTuple):
    """That a session be served here.

    Args:
        create: also if there is none yet.
        certain: the owner that is asked for it is the owner: the registry says so, or he himself. Else the watch does,
            or the client.
        hint: the owner by what the client knows; asked where the watch knows none.
    """

    asker: Asker = NOBODY
    create: bool = False
    certain: bool = False
    hint: Ownership | None = None


class Claims:
    """Takes, keeps and gives up ownership.

    Args:
        fetch_from: starts a handover of the session from a live owner; if it comes to nothing, :meth:`in_vain` is told.
        owner_read: told what a row says that was read for a session which is served or frozen here.
        served: called when the session is served here.
        unavailable: called when it cannot be had at this moment; those who wait try again later, or are refused.
    """

    def __init__(
        self,
        context: Context,
        keeper: Keeper,
        coverage: Coverage,
        *,
        fetch_from: Callable[[SessionId, Ownership, Wish], None],
        owner_read: Callable[[SessionId, Ownership], None],
        served: Callable[[Session], None],
        unavailable: Callable[[SessionId, str | Refused], None],
    ) -> None:
        self._context = context
        self._keeper = keeper
        self._coverage = coverage
        self._fetch_from = fetch_from
        self._owner_read = owner_read
        self._served = served
        self._unavailable = unavailable
        self._seeking: set[SessionId] = set()
        """Sessions that we are about to come to: from the question to the registry until the last answer."""
        self._reasons: dict[SessionId, str] = {}
        """Why we want sessions deleted."""
        self.waking = Waking(context, lambda session, epoch: self.serve(session, epoch, "restart"), self.release)
        self._sweep_at = 0
        self._created_until_ms = 0.0
        """When all sessions so far would be made, at the rate at which they may be."""
        self._mine = Rounds(lambda: list(context.sessions), LOOKED_AFTER, SWEEPS_A_ROUND)
        self._rows = Rounds(lambda: list(context.owners), LOOKED_AFTER, SWEEPS_A_ROUND)
        self._holds = Rounds(lambda: list(context.state.holds), LOOKED_AFTER, SWEEPS_A_ROUND)

    # ------------------------------------------------------------ somebody wants a session

    def seek(self, session: SessionId, wish: Wish) -> None:
        """Come to serve the session, by whatever way the registry leaves.

        An owner whom the watch names, or else the client, is asked at once. It may be the owner no more: then the
        registry is read, as it is where there is nobody to ask.
        """
        if session in self._seeking:
            return
        told = self._context.owners.get(session) or wish.hint
        if told is not None and session not in self._context.sessions and self._lives_elsewhere(told):
            self._fetch_from(session, told, wish)
        else:
            self._ask(session, wish)

    def in_vain(self, session: SessionId, owner: Ownership, wish: Wish) -> None:
        """That owner did not hand the session over."""
        if wish.certain:
            self._unavailable(session, "the session could not be handed over yet")
        else:
            self._ask(session, wish, tried=owner)

    def _ask(self, session: SessionId, wish: Wish, *, tried: Ownership | None = None) -> None:
        """Read the row, and act on it. `tried`: an owner of whom the session was not to be had."""
        self._seeking.add(session)

        def then(answer: Ownership | WaypostError | None) -> None:
            if isinstance(answer, WaypostError):
                self._give_up(session, "the registry does not answer")
            elif answer is None:
                self._create(session, wish, None)
            elif answer == tried and self._lives_elsewhere(answer):
                self._give_up(session, "the session could not be handed over yet")
            else:
                self._decide(session, answer, wish)

        self._context.emit(ReadRow(session, then))

    def _lives_elsewhere(self, owner: Ownership) -> bool:
        return not owner.deleted and owner.proxy != self._context.proxy and self._context.alive(owner.proxy)

    def _is_gone(self, session: SessionId, owner: Ownership) -> bool:
        """Tell whether the life that took this very epoch has certainly ended: the watch shows no life of the owner.

        It says so of that life only once it has told of the row (handover rule 26): what it told before may be the end
        of an earlier life, and the owner may serve under its next lease. Where the row is ours, nobody else serves.
        """
        return owner.proxy == self._context.proxy or self._context.has_seen(session, owner)

    def _still(self, life: Incarnation) -> bool:
        """Tell whether an answer still counts: the lease under which it was asked for holds (handover rule 1).

        What was taken under an earlier one, the sweep finds in the registry, and takes the next epoch for it.
        """
        return self._context.incarnation == life and self._context.may_serve()

    def _give_up(self, session: SessionId, reason: str) -> None:
        self._seeking.discard(session)
        self._unavailable(session, reason)

    def _decide(self, session: SessionId, current: Ownership, wish: Wish) -> None:
        """Act on the row of a session that is wanted here and not served here."""
        held = self._context.sessions.get(session)
        if held is not None:
            self._seeking.discard(session)
            if held.role in (Role.DORMANT, Role.ORPHAN):
                self._settle(held, current, waited_for=True)
            elif self._context.serving(session) is held:
                self._served(held)
            elif held.role is Role.SERVING:
                # Its lease is in doubt: either it is renewed in time, or the session goes to sleep.
                self._give_up(session, "this proxy has no lease at the moment")
        elif current.deleted:
            self._create(session, wish, current)
        elif self._lives_elsewhere(current):
            self._seeking.discard(session)
            self._fetch_from(session, current, wish._replace(certain=True))
        elif not self._is_gone(session, current):
            self._give_up(session, "the registry's watch is behind: the owner may be alive")
        elif not self._context.may_serve() or not self._context.watching:
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

    def _create(self, session: SessionId, wish: Wish, before: Ownership | None) -> None:
        """Create the session, in the place of one that was deleted, if there was one: epochs never begin anew.

        Its first checkpoint is durable before its row is there: a row without one means that the session was lost.
        """
        if not wish.create:
            self._give_up(session, "")
            return
        if not self._context.may_serve():
            self._give_up(session, "this proxy has no lease at the moment")
            return
        if len(self._context.sessions) >= self._context.settings.max_sessions:
            self._give_up(session, "this proxy has as many sessions as it may; attach at another one")
            return
        if not self._may_create_now():
            self._give_up(session, "many sessions are being made here at the moment")
            return
        first = (before or Ownership(self._context.proxy, Epoch(0))).next(self._context.proxy)
        life = self._context.incarnation
        fresh = Session(session, first.epoch, Role.DORMANT)
        fresh.base = dict(self._context.state.frontier)

        def kept(error: WaypostError | None) -> None:
            if error is not None:
                self._give_up(session, "the changelog does not answer")
            elif not self._still(life):
                self._give_up(session, "this proxy has no lease at the moment")
            else:
                self._context.emit(
                    ClaimRow(session, before, first, then) if before else CreateRow(session, first, then)
                )

        def then(answer: Claimed | WaypostError) -> None:
            if not self._still(life):
                self._give_up(session, "this proxy has no lease at the moment")
            elif isinstance(answer, Claimed) and answer.won:
                fresh.base = dict(self._context.state.frontier)
                self._keeper.renew(session)
                self.serve(fresh, first.epoch, "create")
            elif isinstance(answer, Claimed) and answer.current is not None:
                self._decide(session, answer.current, wish)
            else:
                self._give_up(session, "the registry does not answer")

        self._keeper.first_checkpoint(fresh, kept)

    # ------------------------------------------------------------ without a living owner

    def _rebuild(self, session: SessionId, current: Ownership) -> None:
        """Rebuild from the changelog; the row names a dead owner, or us without data."""

        def found(answer: FoundCheckpoint | WaypostError) -> None:
            if isinstance(answer, WaypostError):
                self._give_up(session, "the session's last checkpoint cannot be read yet")
            elif answer.damaged and answer.complete and not self._is_owners(answer, current):
                self._lost(session, answer.damaged)
            elif not answer.complete and not self._is_owners(answer, current):
                self._give_up(session, "the session's last checkpoint cannot be read yet")
            elif answer.checkpoint is None or current.outlives(answer.checkpoint.epoch):
                self._lost(session, "no changelog has a checkpoint of it")
            else:
                self._take_over(session, current, answer.checkpoint)

        self._context.emit(FindCheckpoint(session, found))

    def _lost(self, session: SessionId, why: str) -> None:
        """It is never served empty (P5). To begin anew is for its owner to say: by deleting it."""
        self._context.tally.damaged["session"] += 1
        self._seeking.discard(session)
        hint = f"waypost sessions rm {session} lets it begin anew"
        self._unavailable(session, SessionLost(f"session {session} was lost: {why}; {hint}"))

    def _is_owners(self, found: FoundCheckpoint, current: Ownership) -> bool:
        """Tell whether nothing newer can be anywhere else: it is the owner's own, of its very epoch (P5).

        Else all changelogs must have been read: the registry's watch has told of all, for a site's changelog is written
        there before its first session is. A first checkpoint is nobody's: whoever tried to create the session has
        written one of that epoch, and the one that did has perhaps written others since.
        """
        last = found.checkpoint
        return last is not None and last.epoch == current.epoch and last.serial > 0

    def _take_over(self, session: SessionId, current: Ownership, checkpoint: Checkpoint) -> None:
        if not self._context.may_serve() or session in self._context.sessions:
            self._give_up(session, "this proxy has no lease at the moment")
            return
        new = current.next(self._context.proxy)
        life = self._context.incarnation

        def then(answer: Claimed | WaypostError) -> None:
            if not self._still(life):
                self._give_up(session, "this proxy has no lease at the moment")
            elif isinstance(answer, WaypostError):
                self._give_up(session, "the registry does not answer")
            elif not answer.won:
                # Also if the row is as we wanted it: an earlier life of ours may have served at that epoch.
                self._give_up(session, "another proxy took the session over")
            else:
                self._raise(session, new.epoch, checkpoint)

        self._context.emit(ClaimRow(session, current, new, then))

    def _raise(self, identity: SessionId, epoch: Epoch, checkpoint: Checkpoint) -> None:
        """Make the session from its checkpoint: every origin gated at what was acknowledged (failover)."""
        session = Session(identity, epoch, Role.DORMANT)
        frontier = self._context.state.frontier
        session.describe(checkpoint.descriptor)
        session.lapse(checkpoint.acknowledged)
        session.renumber()
        session.rebuilding = True
        acknowledged = self._context.state.continued(checkpoint.acknowledged)
        session.close_gates(frontier, seen=acknowledged)
        session.lift_floors(acknowledged)
        self._keeper.renew(identity)
        self.serve(session, epoch, "failover")

    # ------------------------------------------------------------ serving

    def serve(self, session: Session, epoch: Epoch, reason: str) -> None:
        """Serve the session from now on; the registry names us at this epoch."""
        context = self._context
        session.epoch = epoch
        session.become(Role.SERVING)
        session.since_ms = context.clock.now_ms()
        session.delivered.clear()
        session.remove_acknowledged()
        self._seeking.discard(session.id)
        if context.sessions.get(session.id) is not session:
            context.sessions[session.id] = session
            context.matcher.put(session)
        context.owned_by(session.id, Ownership(context.proxy, epoch))
        context.dirty.add(session.id)
        if session.held_expressions():
            context.hold(session)
        context.tally.served[reason] += 1
        context.attest(FactKind.OWNED, session, reason=reason, frontier=context.frontier(session))
        session.bound(session.queue.within(context.settings.queue))
        attesting.restated(context, session)
        attesting.lapsed(context, session)
        self._keeper.checkpoint(session, nobody_waits)
        self._coverage.watch(session)
        self._coverage.advance(session)
        self._served(session)

    def wake(self, session: Session, *, waited_for: bool = False) -> None:
        """Take the next epoch for a session that the store says is ours, in its turn."""
        self.waking.wake(session, waited_for=waited_for)

    def delete(self, session: Session, reason: str) -> None:
        """Delete the session in the registry. What came of it, the watch says: a handover may have been first (F32)."""
        self._reasons[session.id] = reason
        mine = Ownership(self._context.proxy, session.epoch)
        self._context.emit(ClaimRow(session.id, mine, mine.gone(), nobody_waits))

    def release(self, session: Session, to: Ownership | None, taken_by: Asker = NOBODY) -> None:
        """The registry names another owner: say where the session went, and delete it here.

        The receiver `taken_by` attached there itself; whoever else uses its name here is told to stop.
        """
        frontier = self._context.frontier(session)
        if to is not None and to.deleted:
            self._say_deleted(session, frontier)
        self._context.attest(FactKind.RELEASED, session, frontier=frontier)
        row = self._context.proxies.get(to.proxy) if to else None
        for receiver in session.receivers.values():
            if receiver.connection is None or (to is not None and to.deleted):
                continue
            if receiver.id == taken_by.receiver and receiver.incarnation != taken_by.incarnation:
                self._context.emit(Send(receiver.connection, taken(session.id, receiver.id)))
            elif row is not None:
                self._context.emit(Send(receiver.connection, Moved(session.id, row.proxy, row.url)))
            else:
                wait = Wait("the session has moved", self._context.settings.retry_ms)
                self._context.emit(Send(receiver.connection, wait))
        self.drop(session)
        self._unavailable(session.id, "the session has moved")

    def _say_deleted(self, session: Session, frontier: dict[Origin, int]) -> None:
        reason = self._reasons.pop(session.id, "it was deleted; attach again to make a new one")
        self._context.attest(FactKind.DELETED, session, frontier=frontier, reason=reason)
        for receiver in session.receivers.values():
            if receiver.connection is not None:
                self._context.emit(Send(receiver.connection, Deleted(session.id, reason)))

    def drop(self, session: Session) -> None:
        """Delete this copy, with what it holds at the site."""
        if self.withdraw(session):
            self._keeper.drop(session.id)

    def withdraw(self, session: Session) -> bool:
        """Take no part in the session any more; what the store has of it stays. Tell whether we took part."""
        context = self._context
        if context.sessions.get(session.id) is not session:
            return False
        del context.sessions[session.id]
        context.matcher.remove(session.id)
        context.dirty.discard(session.id)
        context.let_go(session.id)
        return True

    # ------------------------------------------------------------ leases

    def fence(self) -> None:
        """Our lease may have ended: serve nothing until a new epoch is taken under a new one."""
        self.waking.fence()
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

        The registry says what that means (handover rule 28). An earlier row it has where it was restored from an older
        copy: whoever serves writes the row again, or nobody could ever ask for the session at its epoch.
        """

        def then(answer: Ownership | WaypostError | None) -> None:
            if not isinstance(answer, Ownership) or self._context.sessions.get(session.id) is not session:
                return
            if session.role is Role.SERVING and answer.epoch < session.epoch:
                self._write_again(session, answer)
            elif session.role in (Role.SERVING, Role.FROZEN):
                self._owner_read(session.id, answer)
            else:
                self._settle(session, answer)

        self._context.emit(ReadRow(session.id, then))

    def _write_again(self, session: Session, earlier: Ownership) -> None:
        context, served = self._context, Ownership(self._context.proxy, session.epoch)

        def then(answer: Claimed | WaypostError) -> None:
            if isinstance(answer, Claimed) and answer.current is not None:
                context.owned_by(session.id, answer.current)

        if context.may_serve():
            context.emit(ClaimRow(session.id, earlier, served, then))

    def tick(self) -> None:
        """Now and then: wake what sleeps, and seek what the registry says is ours and is not here."""
        context = self._context
        if context.clock.now_ms() < self._sweep_at or not context.may_serve() or not context.watching:
            return
        self._sweep_at = context.clock.now_ms() + context.settings.sweep_ms
        self._sweep(self._mine.take(), self._rows.take(), self._holds.take())

    def next_deadline(self) -> int:
        return self._sweep_at if self._context.fence_at_ms is not None and self._context.watching else NEVER

    def sweep(self) -> None:
        """Look at all of them."""
        self._sweep(list(self._context.sessions), list(self._context.owners), list(self._context.state.holds))

    def _sweep(
        self, mine: Iterable[SessionId], rows: Iterable[SessionId], holds: Iterable[tuple[ProxyId, SessionId]]
    ) -> None:
        context = self._context
        here = [context.sessions[each] for each in mine if each in context.sessions]
        for session in here:
            current = context.owners.get(session.id)
            is_earlier = current is None or (session.role is Role.SERVING and current.epoch < session.epoch)
            if is_earlier and session.role not in (Role.SHADOW, Role.STAGED):
                self._look_up(session)
            elif session.role is not Role.SERVING:
                self._settle(session, current)
        # An append of a hold may have failed: say again what the log does not have.
        context.hold_all(each for each in here if context.sessions.get(each.id) is each and not context.is_told(each))
        for proxy, identity in holds:
            if proxy == context.proxy and identity not in context.sessions:
                context.let_go(identity)
        for identity in rows:
            current = context.owners.get(identity)
            if current is not None and current.proxy == context.proxy and identity not in context.sessions:
                self.seek(identity, Wish())

    def _settle(self, session: Session, current: Ownership | None, *, waited_for: bool = False) -> None:
        """Compare a copy that is not served with its row."""
        mine = current is not None and current.proxy == self._context.proxy
        if session.role is Role.DORMANT:
            # A copy of an earlier generation is none of this session, though both are ours (rule 22).
            if mine and current is not None and not current.outlives(session.epoch):
                session.epoch = max(session.epoch, current.epoch)
                self.wake(session, waited_for=waited_for)
            elif current is not None and current.epoch > session.epoch:
                self.release(session, current)
        elif session.role is Role.ORPHAN:
            self._settle_orphan(session, current)

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
            self._unavailable(session.id, "the session was not handed over")

    def _read_for_orphan(self, session: Session) -> None:
        def then(answer: Ownership | WaypostError | None) -> None:
            here = self._context.sessions.get(session.id) is session and session.role is Role.ORPHAN
            if here and isinstance(answer, Ownership):
                self._settle_orphan(session, answer, read=True)

        self._context.emit(ReadRow(session.id, then))

    def _commit_orphan(self, session: Session, source: Ownership) -> None:
        if not self._context.may_serve() or session.waking:
            return
        session.waking = True
        life = self._context.incarnation

        def still() -> bool:
            here = self._context.sessions.get(session.id) is session and session.role is Role.ORPHAN
            return here and self._still(life)

        def stored(error: WaypostError | None) -> None:
            if error is None and still():
                self._context.emit(ClaimRow(session.id, source, source.next(self._context.proxy), answered))
            else:
                session.waking = False

        def answered(answer: Claimed | WaypostError) -> None:
            session.waking = False
            if isinstance(answer, WaypostError) or not still():
                return
            if answer.won:
                session.become(Role.DORMANT)
                self.serve(session, session.epoch, "handover")
            else:
                self._settle_orphan(session, answer.current)

        self._keeper.saved(stored)


def taken(session: SessionId, receiver: str) -> Problem:
    """Return what a connection is told whose receiver has attached elsewhere: the newest one counts."""
    hint = "give each client a receiver's name of its own"
    text = f"receiver {receiver} of session {session} attached somewhere else; {hint}"
    return Problem(ReceiverTaken.code, text, "receiver", AboutSession(session))
