"""Handovers from here: the source's machine of `handover/source.py`, joined to the session, the store and the registry.

The machine decides; what is here performs its effects and feeds it with what happened. Messages that belong to no
transfer here are answered, because a refusal is an answer and silence is not (handover rule 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, assert_never

from handover import machine, source
from handover.messages import (
    Aborted,
    Age,
    Chunk,
    ChunkStored,
    DeclineReason,
    Frozen,
    Prepare,
    Prepared,
    StoredEntry,
    ToSource,
    TransferDeclined,
    TransferRefused,
    Trigger,
    checksum,
)
from handover.source import SourceState, SourceTransfer
from proxy.core.effects import LOOK_MS, FindCheckpoint, FoundCheckpoint, LoadEntries, SendPeer
from proxy.core.environment import Environment
from proxy.core.events import ActivationRequested, MoveRequested, Requester, SessionServed
from proxy.core.output import Output
from proxy.core.refusals import Violation
from proxy.core.session_table import SessionTable
from proxy.core.transfer_record import (
    FINAL_COPY,
    LEASE_LOST,
    LEAVING,
    PRE_COPY,
    RECEIVER_BACK,
    SUPERSEDED,
    TransferRecord,
)
from proxy.ownership.served_sessions import ServedSessions
from proxy.ownership.transfer_driver import TransferDriver, is_of_earlier_epoch
from proxy.session.role import Role
from proxy.session.session import Session
from proxy.session.stored_notification import Entry
from waypost.batches import batches
from waypost.errors import WaypostError
from waypost.facts import OwnedCause, TransferEnd
from waypost.identity import NOTHING, Epoch, Origin, Ownership, ProxyId, ReceiverId, SessionId
from waypost.keys import bytes_of
from waypost.limits import CHUNK_BYTES

"""The requester's watch of the registry is behind: it asks who was the owner before. Now and then that is so."""


@dataclass(slots=True, kw_only=True)
class Outgoing:
    """A transfer from here: the machine, and how far the copy has come."""

    machine: SourceTransfer
    record: TransferRecord
    receiver: Requester
    """The receiver that attached at the target and made it ask."""
    start: int
    """Chunk 1 begins after this entry."""
    stored: int = 0
    """The last entry when the transfer began: the target waits until chunks span it."""
    bounds: list[int] = field(default_factory=list)
    """bounds[i]: the last entry of chunk i + 1. A chunk that is sent again has the same bounds as before."""
    sent: int = 0
    """Chunks sent, since the last time that they were sent again."""
    acknowledged: int = 0
    loading: bool = False
    cut: dict[Origin, int] | None = None

    @property
    def spanned(self) -> int:
        """The last number that the chunks so far span; without chunks, the number after which the copy begins."""
        return self.bounds[-1] if self.bounds else self.start


class _Refusal(NamedTuple):
    """Why a session is not handed over. `violation`: what is wrong with the question itself; None: nothing is."""

    text: str
    violation: Violation | None = None
    lost: bool = False


class OutgoingTransfers(TransferDriver[Outgoing]):
    """All transfers of which this proxy is the source."""

    role = "source"

    def __init__(
        self,
        env: Environment,
        sessions: SessionTable,
        output: Output,
        served: ServedSessions,
    ) -> None:
        super().__init__(env, sessions, output)
        self._served = served
        self._is_leaving = False

    def prepare(self, requester: ProxyId, message: Prepare) -> None:
        """Answer a proxy that asks for a session: begin a transfer, decline it (the receiver is relayed), or refuse it.
        A Prepare of the transfer that runs is taken as a repeat.

        An earlier transfer of the session ends when a new one begins. Where a transfer is declined because the copy is
        long, MoveRequested is reported: the session follows. Where a dormant copy is here, the refusal comes with
        ActivationRequested. A receiver that takes over from another incarnation counts as a takeover
        (:class:`TakeoverBackoff`).

        Args:
            requester: the proxy that asks, which is the target.
            message: the request.
        """
        running = self.running.get(message.session)
        if running and not self.violation(running, requester, message):
            self.feed(running, message)
            return
        reason = self._why_not(requester, message, running) or self._why_wait(message)
        if reason:
            self._activate_first(message.session)
            if reason.violation:
                self.refuse(reason.violation, requester, message)
            refusal = TransferRefused(message.session, message.transfer, message.epoch, reason.text, reason.lost)
            self._output.emit(SendPeer(requester, refusal))
            return
        session = self._sessions[message.session]
        why = self._decline_reason(session, message) if message.trigger == Trigger.ATTACH else None
        if why is not None:
            if why is DeclineReason.LONG_COPY:
                # Served here until all but the rest is copied.
                self._output.report(MoveRequested(session.id, requester))
            declined = TransferDeclined(
                message.session, message.transfer, message.epoch, why, self._sessions.departures
            )
            self._output.emit(SendPeer(requester, declined))
            return
        if running:
            self.cut_short(running, TransferEnd.ABORTED, SUPERSEDED)
        owned = Ownership(self._env.proxy, message.epoch)
        now = self._env.time.now_ms
        timing = self._env.settings.timing
        transfer = SourceTransfer(message.session, owned, requester, message.transfer, timing, now)
        receiver = Requester(message.receiver, message.incarnation)
        # No other copy of the session is ever served under this name, and no later one at this epoch.
        session.name_copy(self._env.lease.incarnation)
        outgoing = Outgoing(
            machine=transfer, record=self.record(message.trigger), receiver=receiver, start=_copied(session, message)
        )
        self.begin(outgoing)
        self.feed(outgoing, message)

    def _activate_first(self, session: SessionId) -> None:
        """Move a session that waits for its activation to the front: a repeated request finds it served."""
        held = self._sessions.get(session)
        if held is not None and held.role is Role.DORMANT:
            self._output.report(ActivationRequested(session))

    def _decline_reason(self, session: Session, message: Prepare) -> DeclineReason | None:
        """Return why the asking receiver is to be relayed; None: the session goes to it."""
        if session.access:
            return DeclineReason.ACCESS
        if session.receivers.attached() - {message.receiver}:
            return DeclineReason.OTHERS_ATTACHED
        if session.entries.last_number - _copied(session, message) > self._env.settings.bounds.copy_at_attach:
            return DeclineReason.LONG_COPY
        return None

    def _why_not(self, requester: ProxyId, message: Prepare, running: Outgoing | None) -> _Refusal | None:
        session = self._sessions.serving(message.session)
        if requester == self._env.proxy:
            return _Refusal("target is the source", violation=Violation.TARGET_IS_SOURCE)
        if self._is_leaving:
            return _Refusal(LEAVING.why)
        if message.transfer in self.recent_ids:
            return _Refusal("that transfer is over", violation=Violation.TRANSFER_OVER)
        if running and running.machine.transfer == message.transfer:
            violation = self.violation(running, requester, message)
            return _Refusal(f"{violation} for that transfer", violation)
        if session is None:
            held = self._sessions.get(message.session)
            if held:
                return _Refusal(f"the session is {held.role.value} here", _epoch_violation(held.epoch, message))
            if why := self._env.registry_memory.why_lost(message.session, message.epoch):
                return _Refusal(why, lost=True)
            row = self._env.cluster.owners.get(message.session)
            is_late = row is not None and row.epoch > message.epoch
            return _Refusal("the session is not here", Violation.LATE_PREPARE if is_late else Violation.UNKNOWN_SESSION)
        if session.epoch != message.epoch:
            return _Refusal(f"the epoch here is {session.epoch}", _epoch_violation(session.epoch, message))
        return None

    def _why_wait(self, message: Prepare) -> _Refusal | None:
        """Return why the asking receiver may not take over from another incarnation of itself yet; None: it may, which
        is counted as a takeover if there is another one.
        """
        session = self._sessions[message.session]
        attached = session.receivers.get(ReceiverId(message.receiver))
        if message.trigger != Trigger.ATTACH or session.access or attached is None:
            return None
        if attached.connection is None or attached.incarnation == message.incarnation:
            return None
        now = self._env.time.now_ms
        if not self._sessions.takeover_backoff.try_takeover(session.id, attached.id, message.incarnation, now):
            return None
        return _Refusal(f"receiver {message.receiver} is in use in two places")

    def message(self, sender: ProxyId, message: ToSource) -> None:
        """Take a message of a target. Prepare begins a transfer, or is answered with TransferDeclined or
        TransferRefused.

        Any other that belongs to no transfer here is refused, and answered with TransferRefused, an Aborted with
        nothing (handover rule 5). It is counted, but for one of a transfer that has ended lately. ChunkStored of a
        chunk that was never sent is refused and counted, without an answer.

        Args:
            sender: the proxy that sent it, which the caller has verified.
            message: the message.
        """
        if isinstance(message, Prepare):
            self.prepare(sender, message)
            return
        outgoing = self.running.get(message.session)
        violation = self.violation(outgoing, sender, message)
        if outgoing is None or violation is not None:
            self.refuse(violation or Violation.UNKNOWN_TRANSFER, sender, message)
            if not isinstance(message, Aborted):
                refusal = TransferRefused(message.session, message.transfer, message.epoch, "no such transfer")
                self._output.emit(SendPeer(sender, refusal))
        elif isinstance(message, ChunkStored) and not 0 <= message.number <= len(outgoing.bounds):
            self.refuse(Violation.NEVER_SENT, sender, message)
        else:
            self.feed(outgoing, message)

    def cancel(self, session: SessionId) -> None:
        """Abort the transfer of the session to the proxy where its receiver had attached: the receiver is back here.

        Only a transfer with the trigger ATTACH that is not frozen yet is aborted; its target gets TransferRefused.
        Otherwise nothing is done (docs/failures.md, F25).
        """
        outgoing = self.running.get(session)
        if (
            outgoing
            and outgoing.record.trigger == Trigger.ATTACH
            and outgoing.machine.state in (SourceState.COPYING, SourceState.WAITING)
        ):
            transfer = outgoing.machine
            refusal = TransferRefused(session, transfer.transfer, transfer.owned.epoch, RECEIVER_BACK.why)
            self._output.emit(SendPeer(transfer.target, refusal))
            outgoing.record.ending = RECEIVER_BACK
            self.feed(outgoing, Aborted(session, transfer.transfer, transfer.owned.epoch, refusal.reason))

    def leave(self) -> None:
        """Hand over no session any more, and take frozen ones back: the process is about to end in good order.

        What receivers have acknowledged since the cut is not in the copy that a target has staged. So that copy must
        not be served: this proxy takes the next epoch, or finds that the target has it already. That needs the
        registry's answers.
        """
        self._is_leaving = True
        for outgoing in list(self.running.values()):
            transfer, before = outgoing.machine, outgoing.machine.state
            if before in (SourceState.COPYING, SourceState.WAITING):
                refusal = TransferRefused(transfer.session, transfer.transfer, transfer.owned.epoch, LEAVING.why)
                self._output.emit(SendPeer(transfer.target, refusal))
            elif before is not SourceState.FROZEN:
                continue
            aborted = Aborted(transfer.session, transfer.transfer, transfer.owned.epoch, LEAVING.why)
            self.perform(outgoing, before, transfer.step(aborted, self._env.time.now_ms), LEAVING)

    def proceed(self) -> None:
        """Freeze the sessions whose frontier has passed the target's coverage by now."""
        for outgoing in list(self.running.values()):
            if outgoing.machine.state is SourceState.WAITING and self._passed(outgoing):
                self.feed(outgoing, source.Passed())

    def owner_changed(self, session: SessionId, current: Ownership | None) -> None:
        """Feed a session's row to its transfer from here, which may end by it; nothing is done if none runs.

        Args:
            current: the row, as the watch reports it; None, or a row older than the transfer's, is passed over.
        """
        outgoing = self.running.get(session)
        if outgoing is None or current is None or is_of_earlier_epoch(current, outgoing.machine.owned):
            return
        input = machine.owner_input(current, outgoing.machine.owned, outgoing.machine.wanted)
        if isinstance(input, machine.OwnedByUs) and outgoing.machine.state is not SourceState.RECLAIMING:
            return
        if not isinstance(input, machine.OwnerUnchanged):
            self.feed(outgoing, input)

    def proxy_down(self, proxy: ProxyId) -> None:
        """End the transfers to a proxy whose lease has ended. Where the session is frozen already, the transfer goes on
        until this proxy has taken the next epoch, or the registry names another owner.
        """
        for outgoing in list(self.running.values()):
            if outgoing.machine.target == proxy:
                self.feed(outgoing, machine.PeerGone())

    def fence(self) -> None:
        """End all transfers: our lease may have ended. Frozen sessions become dormant; the registry says later who owns
        them.
        """
        for outgoing in list(self.running.values()):
            self.remove(outgoing)
            session = self._sessions.get(outgoing.machine.session)
            frozen = session is not None and session.role is Role.FROZEN
            self.cut_short(outgoing, TransferEnd.UNSETTLED if frozen else TransferEnd.ABORTED, LEASE_LOST)
            if session and frozen:
                session.become(Role.DORMANT)

    def _passed(self, outgoing: Outgoing) -> bool:
        session = self._sessions[outgoing.machine.session]
        seen = self._env.frontier(session)
        return all(
            above is None or seen.get(origin, NOTHING) >= above for origin, above in outgoing.machine.coverage.items()
        )

    def peer(self, outgoing: Outgoing) -> ProxyId:
        """Return the target of the transfer."""
        return outgoing.machine.target

    def act(self, outgoing: Outgoing, effect: source.SourceAction) -> None:
        """Perform an effect that only the source's machine has. Called by :meth:`perform`."""
        match effect:
            case source.SendPrepared():
                self._send_prepared(outgoing)
            case source.CountStored(number=number):
                outgoing.acknowledged = max(outgoing.acknowledged, min(number, len(outgoing.bounds)))
            case source.SendChunks(again=again):
                self._send_chunks(outgoing, again=again)
            case source.Freeze():
                self._freeze(outgoing)
            case source.SendFrozen():
                outgoing.sent = outgoing.acknowledged
                self._copy_on(outgoing)
            case machine.FindLaterOwner():
                self._look_for_later(outgoing)
            case source.Thaw(epoch=epoch):
                session = self._end(outgoing)
                self._served.serve(session, epoch, OwnedCause.THAW)
            case source.Release():
                session = self._end(outgoing)
                row = self._env.cluster.owners.get(session.id)
                # A registry that has lost the row of the next owner still names us.
                next_row = row if row is not None and row.proxy != self._env.proxy else None
                self._served.release(session, next_row, outgoing.receiver)
            case source.Forget():
                self._output.report(SessionServed(self._end(outgoing)))
            case _:
                assert_never(effect)

    def _look_for_later(self, outgoing: Outgoing) -> None:
        """Look whether the target has served, in a registry that has lost its row since; none that is away counts."""
        transfer = outgoing.machine

        def on_done(answer: FoundCheckpoint | WaypostError) -> None:
            if self._is_stale(outgoing) or transfer.state is not SourceState.CONFIRMING:
                return
            found = None if isinstance(answer, WaypostError) else answer.last_of_owner
            is_later = found is not None and found.epoch >= transfer.wanted.epoch
            self.feed(outgoing, source.ServedSince() if is_later else source.NothingLater())

        self._output.emit(FindCheckpoint(transfer.session, on_done, LOOK_MS))

    def _claim(self, outgoing: Outgoing, claim: machine.Claim) -> None:
        """Claim the next epoch, unless the registry has just lost rows; then the machine tries again.

        The target may have committed at that very epoch before the registry was restored from an older copy, and is
        about to write its row again. To the claim ours would look like the latest one (handover rule 28).
        """
        if not self._env.registry_memory.awaits_row_repair:
            super()._claim(outgoing, claim)

    def outcome(self, outgoing: Outgoing, effects: Sequence[object]) -> TransferEnd:
        """Return the outcome of a transfer that ends with these effects: THAWED, COMMITTED or ABORTED."""
        kinds = {type(effect) for effect in effects}
        if source.Thaw in kinds:
            return TransferEnd.THAWED
        owner = self._env.cluster.owners.get(outgoing.machine.session)
        taken = owner is not None and owner.proxy == outgoing.machine.target
        return TransferEnd.COMMITTED if source.Release in kinds and taken else TransferEnd.ABORTED

    def answered(self, outgoing: Outgoing, current: Ownership | None) -> None:
        """Feed the transfer with the row that the registry has answered with; the cluster view is told of the row too.

        Args:
            current: the row; None: there is none.
        """
        if current is not None:
            self._env.cluster.owned_by(outgoing.machine.session, current)
        super().answered(outgoing, current)

    def _end(self, outgoing: Outgoing) -> Session:
        self.remove(outgoing)
        return self._sessions[outgoing.machine.session]

    def _send_prepared(self, outgoing: Outgoing) -> None:
        session = self._sessions[outgoing.machine.session]
        transfer = outgoing.machine
        outgoing.stored = session.entries.last_number if session.entries.count else 0
        prepared = Prepared(
            session=session.id,
            transfer=transfer.transfer,
            epoch=session.epoch,
            descriptor=session.descriptor(),
            stored=outgoing.stored,
            copy=session.copy,
        )
        self._output.emit(SendPeer(transfer.target, prepared))
        self._send_chunks(outgoing, again=True)

    def _send_chunks(self, outgoing: Outgoing, *, again: bool) -> None:
        """Send chunks as far as the window allows."""
        if again:
            outgoing.sent = outgoing.acknowledged
        self._copy_on(outgoing)

    def _copy_on(self, outgoing: Outgoing) -> None:
        """Send the next chunks; a frozen session's all, and then its cut."""
        session = self._sessions.get(outgoing.machine.session)
        frozen = outgoing.machine.state is SourceState.FROZEN
        if session is None or outgoing.machine.over or outgoing.loading:
            return
        bounds = self._env.settings.bounds
        while frozen or outgoing.sent - outgoing.acknowledged < bounds.chunk_window:
            after, limit = _next_range(outgoing, session, bounds.chunk_entries)
            if limit == 0 and outgoing.spanned < outgoing.stored:
                # All receivers have the rest by now; an empty chunk says so.
                self._send_chunk(outgoing, session, after, [])
                continue
            if limit == 0:
                if frozen:
                    self._send_cut(outgoing)
                return
            entries = session.entries.after(after, limit)
            if entries is None:
                self._load(outgoing, session, after, limit)
                return
            self._send_chunk(outgoing, session, after + limit, entries)

    def _load(self, outgoing: Outgoing, session: Session, after: int, limit: int) -> None:
        """Read the next chunk from the store; what of it is in memory now may not be there yet."""
        outgoing.loading = True
        sent, unloaded = outgoing.sent, session.entries.unloaded_number
        rest = session.entries.after(unloaded, max(0, after + limit - unloaded)) or []

        def on_done(answer: list[Entry] | WaypostError) -> None:
            outgoing.loading = False
            if self._is_stale(outgoing) or outgoing.machine.over or isinstance(answer, WaypostError):
                return
            if outgoing.sent == sent:
                stored = [entry for entry in answer if entry[0] <= unloaded]
                self._send_chunk(outgoing, session, after + limit, stored + rest)
            self._copy_on(outgoing)

        self._output.emit(LoadEntries(session.id, max(after, session.entries.first_number - 1), limit, on_done))

    def _send_chunk(self, outgoing: Outgoing, session: Session, upto: int, entries: list[Entry]) -> None:
        """Send the next chunk; what all receivers got since it was bounded is left out."""
        stored = [
            StoredEntry(
                number=number,
                matched=matched,
                origin=notification.origin,
                offset=notification.offset,
                delivery=notification.delivery,
                keys=notification.keys,
            )
            for number, notification, matched in entries
            if number <= upto
        ]
        if outgoing.sent == len(outgoing.bounds):
            first = _first_chunk(stored)
            outgoing.bounds.append(first[-1].number if len(first) < len(stored) else upto)
            stored = first
        outgoing.sent += 1
        after, upto = (
            outgoing.bounds[outgoing.sent - 2] if outgoing.sent > 1 else None,
            outgoing.bounds[outgoing.sent - 1],
        )
        now = self._env.time.now_ms
        marks = session.retention.marks(outgoing.start if after is None else after, upto)
        ages = tuple(Age(mark.below, now - mark.at_ms) for mark in marks)
        chunk = Chunk(
            session=session.id,
            transfer=outgoing.machine.transfer,
            epoch=outgoing.machine.owned.epoch,
            number=outgoing.sent,
            after=after,
            upto=upto,
            entries=stored,
            ages=ages,
            checksum=checksum(stored, ages),
        )
        part = FINAL_COPY if outgoing.machine.state is SourceState.FROZEN else PRE_COPY
        self.carried(outgoing, part, stored)
        self._output.emit(SendPeer(outgoing.machine.target, chunk))

    def _freeze(self, outgoing: Outgoing) -> None:
        session = self._sessions[outgoing.machine.session]
        outgoing.cut = dict(session.freeze(self._env.state.frontier))
        self._sessions.mark_changed(session.id)

    def _send_cut(self, outgoing: Outgoing) -> None:
        session = self._sessions[outgoing.machine.session]
        assert outgoing.cut is not None
        frozen = Frozen(
            session=session.id,
            transfer=outgoing.machine.transfer,
            epoch=outgoing.machine.owned.epoch,
            descriptor=session.descriptor(),
            cut=outgoing.cut,
            chunks=len(outgoing.bounds),
            oldest=session.entries.first_number,
            next_number=session.entries.next_number,
        )
        self._output.emit(SendPeer(outgoing.machine.target, frozen))


def _epoch_violation(copy_epoch: Epoch, message: Prepare) -> Violation | None:
    if copy_epoch == message.epoch:
        return None
    return Violation.LATE_PREPARE if copy_epoch > message.epoch else Violation.WRONG_EPOCH


def _copied(session: Session, message: Prepare) -> int:
    """Return the number up to which the requester has all that is stored, from an earlier transfer of the same copy."""
    has = message.has if session.copy and message.copy == session.copy else 0
    return max(session.entries.first_number - 1, min(has, session.entries.last_number))


def _first_chunk(stored: list[StoredEntry]) -> list[StoredEntry]:
    """Return as many of the entries as the bytes of a chunk allow; its bound is taken from them."""
    cut = batches(stored, _size_of, max_items=max(1, len(stored)), max_bytes=CHUNK_BYTES)
    return list(next(cut, []))


def _size_of(entry: StoredEntry) -> int:
    """Return about how many bytes an entry takes in a chunk, with the names of the subscriptions that it matched."""
    return len(entry.delivery) + bytes_of(entry.keys) + sum(len(name) + 5 for name in entry.matched)


def _next_range(outgoing: Outgoing, session: Session, max_entries: int) -> tuple[int, int]:
    """Return after which entry the next chunk begins, and how many numbers it spans at most; 0: there is none."""
    after = outgoing.bounds[outgoing.sent - 1] if outgoing.sent else outgoing.start
    if outgoing.sent < len(outgoing.bounds):
        return after, max(1, outgoing.bounds[outgoing.sent] - after)
    after = max(after, session.entries.first_number - 1)
    return after, min(max_entries, session.entries.last_number - after)
