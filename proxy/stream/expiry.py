"""Expiry of stored entries: ages are noted, times to live end, and entries that no subscription holds any more go. What
the times and counts are, `proxy/session/retention.py` decides.

Sessions without an attached receiver, and registrations of receivers that are away, expire here as well. Their clock
stands still while the session is not served, and while a transfer runs (failures, F33).

Nothing is removed of which the journal does not say so first, with the policy's name (P1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from proxy.core import journal_facts
from proxy.core.effects import FindOutdated, LoadEntries
from proxy.core.environment import Environment
from proxy.core.events import DeletionRequested
from proxy.core.output import Output
from proxy.core.session_table import SessionTable
from proxy.core.store_port import Swept
from proxy.session.queue_limits import QueuedEntry, QueueLimits
from proxy.session.receivers import Receiver
from proxy.session.retention import GRAIN_MS, Policies, Window
from proxy.session.role import Role
from proxy.session.session import Session
from proxy.session.session_policy import SessionPolicy
from proxy.session.stored_notification import Entry
from waypost.clock import NEVER
from waypost.errors import WaypostError
from waypost.facts import Departure, FactKind, RemovalPolicy
from waypost.identity import Origin, SessionId
from waypost.limits import COUNTS_AT_ONCE, READ_AHEAD


class Expiry:
    """Applies times to live, bounds of queues and expiries to the sessions that are served here."""

    def __init__(self, env: Environment, sessions: SessionTable, output: Output) -> None:
        self._env = env
        self._sessions = sessions
        self._output = output
        self._watched: dict[SessionId, Session] = {}
        self._sweeping: set[SessionId] = set()
        self._counting: set[SessionId] = set()
        """Sessions of which the store is asked what it has."""
        self._mark_at = self._sweep_at = 0

    def watch(self, session: Session) -> None:
        """Watch the session, if it has a retention policy or deadlines, or if it or a receiver may expire."""
        if _has_policy(session):
            self._watched[session.id] = session

    def apply_policy(self, session: Session, policy: SessionPolicy) -> None:
        """Set the policy of a session. The expiry is in force at once, the reliability from each receiver's next attach
        on. Bounds of the queue that have changed are attested at once; entries beyond them are discarded by the next
        :meth:`bound`.

        The session is watched and marked as changed; the caller has the store write it.
        """
        before = session.queue
        session.apply_policy(policy.expiry_s, policy.reliability, policy.queue)
        if policy.queue != before:
            session.bound(policy.queue.within(self._env.settings.queue))
            journal_facts.bounded(self._output.journal, session)
        self.watch(session)
        self._sessions.mark_changed(session.id)

    def expire(self, session: Session) -> None:
        """Apply times to live and deadlines as of now; call it before every delivery.

        Entries past their deadline are attested, and removed when the journal has that.
        """
        session.retention.expire(self._env.time.now_ms)
        if session.queue_limits is not None and session.queue_limits.queue.deadlines:
            self._discard(session, session.queue_limits.expired(self._env.time.unix_ms), RemovalPolicy.DEADLINE)

    def bound(self, session: Session) -> None:
        """Apply the maximum counts of subscriptions, then discard entries beyond the bounds of the session's queue: in
        this order, as what no subscription holds any more does not count for the queue. Call it after attached
        receivers were sent what their windows allow.

        Discarded entries are attested, and removed when the journal has that. None is discarded while a receiver waits
        for the store or the journal. Where entries in the store are not counted yet, they are read first.
        """
        session.retention.displace()
        queue_limits = session.queue_limits
        if queue_limits is None or any(receiver.window.is_waiting for receiver in session.receivers.values()):
            return
        if queue_limits.known:
            if queue_limits.is_too_much and session.retention.active:
                held = session.retention.retained_for
                queue_limits.purge(session.retention.take_let_go(), lambda kept: bool(held(kept.number, kept.matched)))
            self._discard(session, queue_limits.surplus(), RemovalPolicy.MAX_QUEUE)
        elif session.id not in self._counting and len(self._counting) < COUNTS_AT_ONCE:
            self._counting.add(session.id)
            self._count(session, queue_limits, session.entries.first_number - 1, [])

    def _count(self, session: Session, queue_limits: QueueLimits, after: int, found: list[QueuedEntry]) -> None:
        """Read what the store has and memory has not, to know what there is; what fails is tried again with what comes
        next.
        """

        def on_done(answer: list[Entry] | WaypostError) -> None:
            if session.queue_limits is not queue_limits or self._sessions.serving(session.id) is not session:
                self._counting.discard(session.id)
                return
            if isinstance(answer, WaypostError):
                self._counting.discard(session.id)
                return
            leaving = {*session.retention.leaving_one_by_one}
            stored = [
                entry for entry in answer if entry[0] <= session.entries.unloaded_number and entry[0] not in leaving
            ]
            found.extend(map(queue_limits.measure, stored))
            last = answer[-1][0] if answer else after
            if last < session.entries.unloaded_number and (answer or session.entries.unloaded_number > upto):
                self._count(session, queue_limits, last, found)
                return
            self._counting.discard(session.id)
            in_memory = session.entries.after(session.entries.unloaded_number, session.entries.last_number) or []
            queue_limits.prepend([*found, *map(queue_limits.measure, in_memory)], session.entries.first_number)
            self.bound(session)

        upto = session.entries.unloaded_number
        self._output.emit(LoadEntries(session.id, after, READ_AHEAD, on_done))

    def resume(self, session: Session) -> None:
        """Attest and remove the entries that were being discarded when the session was last served. Call it when
        serving begins, after :meth:`Session.bound`.
        """
        if session.queue_limits is not None:
            by_policy: dict[RemovalPolicy, list[QueuedEntry]] = {}
            for kept, policy in session.queue_limits.discarding.values():
                by_policy.setdefault(policy, []).append(kept)
            for policy, discarding in by_policy.items():
                self._discard(session, discarding, policy)

    def _discard(self, session: Session, discarding: list[QueuedEntry], policy: RemovalPolicy) -> None:
        """Have these delivered no more, and removed when that is on record."""
        if not discarding:
            return
        session.retention.discard({kept.number: policy for kept in discarding})
        self.note(session, [(kept.origin, kept.offset, (policy,)) for kept in sorted(discarding)])

        def go() -> None:
            if self._sessions.get(session.id) is not session or session.role is not Role.SERVING:
                return
            session.remove_entries([kept.number for kept in discarding if kept.number >= session.entries.first_number])
            queue_limits = session.queue_limits
            if queue_limits is not None and queue_limits.known:
                lowest = session.entries.next_number if queue_limits.lowest is None else queue_limits.lowest
                session.pass_over(lowest, [(kept.number, kept.origin, kept.offset) for kept in discarding])
            self._sessions.mark_changed(session.id)

        self._output.journal.once_attested(go)

    def note(self, session: Session, removed: Iterable[tuple[Origin, int, Policies]]) -> None:
        """Attest entries that policies removed from the session; nothing is removed here.

        Args:
            removed: (origin, offset, policies that removed the entry).
        """
        by_policies: dict[tuple[Origin, Policies], list[int]] = {}
        for origin, offset, policies in removed:
            by_policies.setdefault((origin, policies), []).append(offset)
        for (origin, policies), offsets in by_policies.items():
            self._output.journal.attest(
                FactKind.REMOVED, session, origin=origin, offsets=offsets, policies=list(policies)
            )

    # ------------------------------------------------------------ time

    def tick(self) -> None:
        """Let entries, registrations and sessions expire. Call it once a second (GRAIN_MS) or more often: calls in
        between do nothing, and each other one counts a second. Every `entry_sweep_ms` it sweeps the stores, too.
        """
        now = self._env.time.now_ms
        if now < self._mark_at or not self._watched:
            return
        self._mark_at = now + GRAIN_MS
        all_of_them = now >= self._sweep_at
        if all_of_them:
            self._sweep_at = now + self._env.settings.entry_sweep_ms
        for session in list(self._watched.values()):
            if self._sessions.get(session.id) is not session or not _has_policy(session):
                del self._watched[session.id]
            elif self._sessions.serving(session.id) is session:
                self._expire_in(session, now, sweep=all_of_them)

    def _expire_in(self, session: Session, now: int, *, sweep: bool) -> None:
        self._check_receiver_expiry(session, persist=sweep)
        self._check_session_expiry(session, persist=sweep)
        if session.queue_limits is not None:
            self.expire(session)
            self.bound(session)
        retention = session.retention
        if retention.aging:
            retention.mark(now, session.entries.next_number)
            if retention.unsaved_marks():
                self._sessions.mark_changed(session.id)
        if sweep or retention.overdue > self._env.settings.bounds.sweep_batch:
            self.sweep(session)

    def _check_session_expiry(self, session: Session, *, persist: bool) -> None:
        """Count for how long nobody has been attached."""
        idle_time = session.idle_time
        if idle_time.expiry_s is None:
            return
        is_in_transfer = session.id in self._sessions.transfers
        if idle_time.count(0 if is_in_transfer else GRAIN_MS, is_idle=not session.receivers.attached()):
            if persist:
                self._sessions.mark_changed(session.id)
            if idle_time.has_expired:
                self._output.report(DeletionRequested(session, "nobody was attached"))

    def _check_receiver_expiry(self, session: Session, *, persist: bool) -> None:
        """Count for how long each receiver has been away, and give up the places of those that were for too long."""
        grain_ms = 0 if session.id in self._sessions.transfers else GRAIN_MS
        for receiver in list(session.receivers.values()):
            idle_time = receiver.idle_time
            if idle_time.expiry_s is None or not idle_time.count(grain_ms, is_idle=receiver.connection is None):
                continue
            if persist:
                self._sessions.mark_changed(session.id)
            if idle_time.has_expired:
                # If the journal takes its time, it is said again in a second.
                self.forget(session, receiver, Departure.EXPIRED, f"not attached for {idle_time.expiry_s} s")

    def forget(
        self,
        session: Session,
        receiver: Receiver,
        cause: Departure = Departure.LEFT,
        reason: str = "",
        on_done: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """Unregister a detached receiver, once the journal has that on record; entries kept for it alone go.

        Note that the fact is attested at once: it stays on record, also where the receiver attaches again before the
        journal has it.

        Args:
            cause: why its registration ends.
            reason: the same for people, where there is more to say.
            on_done: called with True once the receiver is unregistered; False: it attached again, was unregistered
                meanwhile, or the session is not served here any more.
        """
        given = dict(self._env.frontier(session))
        self._output.journal.attest(
            FactKind.UNREGISTERED, session, receiver=receiver.id, cause=cause, reason=reason, frontier=given
        )

        def go() -> None:
            is_here = self._sessions.serving(session.id) is session
            is_gone = is_here and session.receivers.get(receiver.id) is receiver and receiver.connection is None
            if is_gone:
                session.unregister(receiver, self._env.state.frontier)
                self._sessions.mark_changed(session.id)
            on_done(is_gone)

        self._output.journal.once_attested(go)

    def next_deadline(self) -> int:
        """Return when :meth:`tick` has something to do, in ms of the engine's clock; NEVER: nothing."""
        return self._mark_at if self._watched else NEVER

    # ------------------------------------------------------------ sweeping

    def sweep(self, session: Session) -> None:
        """Begin to remove stored entries that no subscription holds, after times to live and deadlines were applied
        (:meth:`expire`); one sweep of a session runs at a time.

        They are attested first, and removed when the journal has that. A sweep whose read of the store fails removes
        nothing.
        """
        self.expire(session)
        session.retention.sweep_begins(session.entries.first_number)
        through = session.entries.saved_number
        windows = session.retention.windows(through)
        if not windows or session.id in self._sweeping:
            return
        self._sweeping.add(session.id)

        def on_done(answer: Swept | WaypostError) -> None:
            self._sweeping.discard(session.id)
            if not isinstance(answer, WaypostError) and self._sessions.serving(session.id) is session:
                self._found(session, windows, through, answer)

        self._output.emit(FindOutdated(session.id, windows, self._env.settings.bounds.sweep_batch, on_done))

    def _found(self, session: Session, windows: list[Window], through: int, answer: Swept) -> None:
        found = answer.outdated
        removed_by = session.retention.removed_by
        # No policy removes what all receivers have by now, although the store may still have it.
        first = session.entries.first_number
        removed = (outdated for outdated in found if outdated.number >= first)
        self.note(
            session,
            [(outdated.origin, outdated.offset, removed_by(outdated.number, outdated.matched)) for outdated in removed],
        )
        more = len(found) == self._env.settings.bounds.sweep_batch
        upto = found[-1].number if more else through
        lowest = min(through + 1 if answer.lowest is None else answer.lowest, through + 1)

        def go() -> None:
            if self._sessions.get(session.id) is not session or session.role is not Role.SERVING:
                return
            session.retention.schedule_removal([left for left in (_up_to(window, upto) for window in windows) if left])
            if session.queue_limits is not None:
                session.queue_limits.forget([outdated.number for outdated in found])
            session.pass_over(lowest, [(outdated.number, outdated.origin, outdated.offset) for outdated in found])
            self._sessions.mark_changed(session.id)
            if more:
                self.sweep(session)

        self._output.journal.once_attested(go)


def _has_policy(session: Session) -> bool:
    if session.retention.active or session.idle_time.expiry_s is not None:
        return True
    if session.queue_limits is not None and session.queue_limits.queue.deadlines:
        return True
    return any(receiver.idle_time.expiry_s is not None for receiver in session.receivers.values())


def _up_to(window: Window, number: int) -> Window | None:
    below = min(window.below, number + 1)
    return window._replace(below=below) if below > window.start else None
