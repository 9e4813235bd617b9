"""Handovers to here: the target's machine of `handover/target.py`, joined to the shadow, the store and the registry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import assert_never

from handover import machine, target
from handover.acquisition import ReplyKey
from handover.messages import (
    Aborted,
    Chunk,
    ChunkStored,
    Frozen,
    Prepare,
    Prepared,
    Ready,
    ToSource,
    ToTarget,
    TransferDeclined,
    TransferRefused,
    Trigger,
    checksum,
)
from handover.target import TargetState, TargetTransfer
from proxy.core.effects import SendPeer
from proxy.core.environment import Environment
from proxy.core.events import AcquireRequest, RelayRequested, SessionRequested, TransferFailed
from proxy.core.output import Output
from proxy.core.refusals import Violation
from proxy.core.session_table import SessionTable
from proxy.core.transfer_record import (
    FINAL_COPY,
    LEASE_LOST,
    PRE_COPY,
    TransferRecord,
)
from proxy.ownership.served_sessions import ServedSessions
from proxy.ownership.transfer_driver import TransferDriver, is_of_earlier_epoch
from proxy.session.retention import Mark
from proxy.session.role import Role
from proxy.session.session import Session
from proxy.session.stored_notification import StoredNotification
from proxy.stream.stream import Stream
from waypost.errors import WaypostError
from waypost.facts import OwnedCause, TransferEnd
from waypost.identity import NOTHING, Ownership, ProxyId, SessionId, site_of
from waypost.limits import COPIES_KEPT, COPY_KEPT_MS


@dataclass(frozen=True, slots=True)
class PartialCopy:
    """The part of a copy that a transfer brought before it came to nothing: the next one need not bring it again.

    Args:
        shadow: the session, with the entries that came.
        copy: the name of the copy.
        until_ms: how long it is kept, by the engine's clock.
    """

    shadow: Session
    copy: str
    until_ms: int


class PreCopyState(Enum):
    """Whether what came while the source served is on the disk, which it is to be before the source freezes."""

    NOT_YET = "not yet"
    STORING = "under way"
    DONE = "done"


@dataclass(slots=True, kw_only=True)
class Incoming:
    """A transfer to here: the machine, the shadow, and how many chunks have come."""

    machine: TargetTransfer
    record: TransferRecord
    request: AcquireRequest
    """The receiver that made this proxy ask, and what the request rests on."""
    key: ReplyKey | None
    """The acquisition that waits for it; None: none does."""
    partial_copy: PartialCopy | None = None
    """What an earlier transfer brought; it is this one's until it ends."""
    shadow: Session | None = None
    chunks: int = 0
    acknowledged: int = 0
    upto: int | None = None
    """The last number that the chunks so far span."""
    stored: int = 0
    pre_copy: PreCopyState = PreCopyState.NOT_YET
    copy: str = ""
    """The name of what is copied."""
    progress_ms: int = 0
    """The time at which the shadow was installed, or the last chunk of what was stored then came."""
    departures: int = 0
    """How many receivers had left for good at the owner, as it says where it declines."""
    why_lost: str | None = None
    """Why nobody has the session any more, as its owner says; None: it does not."""


class IncomingTransfers(TransferDriver[Incoming]):
    """All transfers of which this proxy is the target."""

    role = "target"

    def __init__(
        self,
        env: Environment,
        sessions: SessionTable,
        output: Output,
        stream: Stream,
        served: ServedSessions,
    ) -> None:
        super().__init__(env, sessions, output)
        self._partial_copies: dict[SessionId, PartialCopy] = {}
        """Copies that were broken off; the oldest first."""
        self._persister = stream.persister
        self._coverage = stream.coverage
        self._served = served

    def fetch(
        self,
        session: SessionId,
        owner: Ownership,
        request: AcquireRequest,
        *,
        key: ReplyKey | None = None,
        trigger: Trigger = Trigger.ATTACH,
    ) -> None:
        """Begin to take a session over from its live owner; nothing is done while a transfer of it runs.

        Where a copy of the session is here, or no lease holds, TransferFailed is reported at once.

        Args:
            owner: the row that names the owner and its epoch.
            request: kept for a failover, should the owner end meanwhile.
            key: of the acquisition that waits for it, also if a transfer runs already; None: the owner made the offer.
            trigger: of the handover.
        """
        if session in self.running:
            self.running[session].key = key or self.running[session].key
            return
        if session in self._sessions or not self._env.lease.may_serve():
            self._output.report(TransferFailed(session, owner, key))
            return
        now = self._env.time.now_ms
        name = f"{self._env.proxy}-{self._env.rng.getrandbits(64):016x}"
        transfer = TargetTransfer(session, owner, self._env.proxy, name, self._env.settings.timing, now)
        incoming = Incoming(
            machine=transfer,
            record=self.record(trigger),
            request=request,
            key=key,
            partial_copy=self._partial_copies.pop(session, None),
        )
        self.begin(incoming)
        self.perform(incoming, transfer.state, transfer.begin())

    def message(self, sender: ProxyId, message: ToTarget) -> None:
        """Take a message of a source. One that belongs to no transfer here is refused; it is counted, but for one of a
        transfer that has ended lately. A chunk out of order, or with a wrong checksum, is refused too, and comes again.

        Frozen of a transfer that does not run here is answered with Aborted, unless this proxy owns the session by the
        registry's row, or has a copy of a later epoch (handover rule 5).

        Args:
            sender: the proxy that sent it, which the caller has verified.
            message: the message.
        """
        incoming = self.running.get(message.session)
        violation = self.violation(incoming, sender, message)
        if incoming is None or violation is not None:
            self.refuse(violation or Violation.UNKNOWN_TRANSFER, sender, message)
            self._unknown_transfer(sender, message)
        elif isinstance(message, Chunk) and incoming.shadow and (violation := _misfit(incoming, message)):
            self.refuse(violation, sender, message)
        elif isinstance(message, TransferRefused) and message.lost:
            incoming.why_lost = message.reason
            self.feed(incoming, message)
        elif isinstance(message, TransferDeclined):
            incoming.departures = message.departures
            self.feed(incoming, message)
        elif isinstance(message, Frozen) and not _whole(incoming, message):
            self.feed(incoming, target.Incomplete(), message)
        else:
            self.feed(incoming, message)

    def _unknown_transfer(self, sender: ProxyId, message: ToTarget) -> None:
        """A frozen source must know that nobody will take the session (handover rule 5).

        Where the session was served here since, and the registry has lost that, our row ends its freeze (rule 28).
        """
        row, held = self._env.cluster.owners.get(message.session), self._sessions.get(message.session)
        served = (Role.SERVING, Role.FROZEN, Role.DORMANT)
        is_later = held is not None and held.role in served and held.epoch > message.epoch
        if isinstance(message, Frozen) and (row is None or row.proxy != self._env.proxy) and not is_later:
            gone = Aborted(message.session, message.transfer, message.epoch, "no such transfer")
            self._output.emit(SendPeer(sender, gone))

    def proceed(self) -> None:
        """Step the transfers whose copy is complete, and whose coverage is known or was waited for
        (`Timing.coverage_ms` since the last progress), with Complete. A large copy for which nobody waits is written to
        the store before.
        """
        for incoming in list(self.running.values()):
            if self._complete(incoming):
                if self._needs_writing(incoming):
                    self._write(incoming)
                else:
                    self.feed(incoming, target.Complete())

    def _needs_writing(self, incoming: Incoming) -> bool:
        """Tell whether the source would stand still while we write what it sent when it served.

        A copy for which nobody waits, because its receiver is relayed, is on the disk before the source is to freeze.
        """
        shadow, bounds = incoming.shadow, self._env.settings.bounds
        if shadow is None or incoming.pre_copy is PreCopyState.DONE or incoming.stored <= bounds.copy_at_attach:
            return False
        return shadow.entries.unsaved_count > bounds.chunk_entries

    def _write(self, incoming: Incoming) -> None:
        incoming.pre_copy = PreCopyState.STORING

        def on_done(error: WaypostError | None) -> None:
            incoming.pre_copy = PreCopyState.DONE if error is None else PreCopyState.NOT_YET
            if self._is_stale(incoming):
                return
            if error is not None and incoming.machine.state is TargetState.SHADOWING:
                self.feed(incoming, target.StoreFailed())
            else:
                self.proceed()

        self._persister.store.save(on_done)

    @property
    def idle(self) -> bool:
        """Whether no transfer runs, and no partial copy is kept."""
        return not self.running and not self._partial_copies

    def next_deadline(self) -> int:
        """Return when :meth:`tick` or, by the time for coverage, :meth:`proceed` has something to do, in ms of the
        engine's clock; NEVER: nothing.
        """
        begun = [partial_copy.until_ms for partial_copy in islice(self._partial_copies.values(), 1)]
        coverage_ms = self._env.settings.timing.coverage_ms
        # The rest of a copy goes on with a chunk, not with time: its time may be over for long.
        covering = [incoming.progress_ms + coverage_ms for incoming in self.running.values() if self._copied(incoming)]
        return min([super().next_deadline(), *begun, *covering])

    def tick(self) -> None:
        """Step each transfer's machine with what is due, and drop partial copies that were kept for COPY_KEPT_MS."""
        super().tick()
        now = self._env.time.now_ms
        for session in [
            identity for identity, partial_copy in self._partial_copies.items() if now >= partial_copy.until_ms
        ]:
            self._forget(session)

    def answered(self, incoming: Incoming, current: Ownership | None) -> None:
        """Feed the transfer with the session's row, as it was read or reported.

        Where the row is older than the transfer's and nobody corrects it, the staged copy is all that there is, and
        commits (handover rule 28).

        Args:
            current: the row; None: there is none.
        """
        owned, wanted = incoming.machine.owned, incoming.machine.wanted
        committing = incoming.machine.state is TargetState.COMMITTING
        if committing and is_of_earlier_epoch(current, owned) and self._row_is_final(incoming, current):
            self.claim_after(incoming, current, wanted)
        else:
            super().answered(incoming, current)

    def _row_is_final(self, incoming: Incoming, row: Ownership | None) -> bool:
        is_final = self._env.registry_memory.is_final(incoming.machine.session, row)
        return is_final or not self._env.cluster.alive(incoming.machine.owned.proxy)

    def owner_changed(self, session: SessionId, current: Ownership | None) -> None:
        """Feed a session's row to its transfer to here, which may end by it; nothing is done if none runs.

        Args:
            current: the row, as the watch reports it; None, or a row older than the transfer's, is passed over.
        """
        incoming = self.running.get(session)
        if incoming is not None and not is_of_earlier_epoch(current, incoming.machine.owned):
            self.answered(incoming, current)

    def proxy_down(self, proxy: ProxyId) -> None:
        """Go on without a source whose lease has ended: staged copies commit, other transfers fail over."""
        for incoming in list(self.running.values()):
            if incoming.machine.owned.proxy == proxy:
                self.feed(incoming, machine.PeerGone())

    def fence(self) -> None:
        """End all transfers: our lease may have ended. Staged copies become orphans, and the registry decides later."""
        for incoming in list(self.running.values()):
            staged = incoming.shadow is not None and incoming.shadow.role is Role.STAGED
            self.cut_short(incoming, TransferEnd.UNSETTLED if staged else TransferEnd.ABORTED, LEASE_LOST)
            if incoming.shadow is not None and staged:
                self.remove(incoming)
                incoming.shadow.become(Role.ORPHAN)
            else:
                self._end(incoming)

    def peer(self, incoming: Incoming) -> ProxyId:
        """Return the source of the transfer."""
        return incoming.machine.owned.proxy

    def outcome(self, incoming: Incoming, effects: Sequence[object]) -> TransferEnd:
        """Return the outcome of a transfer that ends with these effects: COMMITTED, RELAYED or ABORTED."""
        kinds = {type(effect) for effect in effects}
        if target.Adopt in kinds:
            return TransferEnd.COMMITTED
        return TransferEnd.RELAYED if target.Relay in kinds else TransferEnd.ABORTED

    def act(self, incoming: Incoming, effect: target.TargetAction) -> None:
        """Perform an effect that only the target's machine has. Called by :meth:`perform`."""
        transfer = incoming.machine
        match effect:
            case target.SendPrepare():
                requester, partial_copy = incoming.request.requester, incoming.partial_copy
                prepare = Prepare(
                    session=transfer.session,
                    transfer=transfer.transfer,
                    epoch=transfer.owned.epoch,
                    trigger=incoming.record.trigger,
                    receiver=requester.receiver,
                    incarnation=requester.incarnation,
                    copy=partial_copy.copy if partial_copy else "",
                    has=partial_copy.shadow.entries.last_number if partial_copy else 0,
                )
                self._send(incoming, prepare)
            case target.Install(prepared=prepared):
                self._install(incoming, prepared)
            case target.TakeChunk(chunk=chunk):
                self._take_chunk(incoming, chunk)
                self._acknowledge_stored(incoming)
            case target.AcknowledgeChunks():
                self._acknowledge(incoming)
            case target.SendReady():
                self._send_ready(incoming)
            case target.Merge(frozen=frozen):
                self._merge(incoming, frozen)
            case target.Adopt():
                self._adopt(incoming)
            case target.SendAborted():
                self._send(incoming, Aborted(transfer.session, transfer.transfer, transfer.owned.epoch, "gave up"))
            case target.Discard():
                self._discard(incoming)
            case target.Relay():
                self._end(incoming)
                owner, departures = transfer.owned.proxy, incoming.departures
                self._output.report(RelayRequested(transfer.session, owner, incoming.key, departures))
            case target.FailOver():
                self._output.report(SessionRequested(transfer.session, incoming.request))
            case _:
                assert_never(effect)

    def _copied(self, incoming: Incoming) -> bool:
        """Tell whether all that was stored at Prepare has come, and only coverage is waited for."""
        shadowing = incoming.machine.state is TargetState.SHADOWING
        if incoming.shadow is None or not shadowing or incoming.pre_copy is PreCopyState.STORING:
            return False
        return max(incoming.shadow.entries.last_number, incoming.upto or 0) >= incoming.stored

    def _complete(self, incoming: Incoming) -> bool:
        shadow = incoming.shadow
        if shadow is None or not self._copied(incoming):
            return False
        reaches = self._env.state.acceptance.reaches
        # Of a site that is down nothing comes: its gates stay closed, whoever serves.
        known = all(
            self._coverage.covered_from(shadow, origin) is not None
            for origin in shadow.gates
            if reaches(site_of(origin))
        )
        waited = self._env.time.now_ms - incoming.progress_ms
        # Without a word of coverage it is caught up later; without the copy all of the rest would follow the freeze.
        return known or waited >= self._env.settings.timing.coverage_ms

    def _send(self, incoming: Incoming, message: ToSource) -> None:
        self._output.emit(SendPeer(incoming.machine.owned.proxy, message))

    def _install(self, incoming: Incoming, prepared: Prepared) -> None:
        if incoming.partial_copy is not None and incoming.partial_copy.copy == prepared.copy:
            shadow = incoming.partial_copy.shadow
            self._sessions.mark_changed(shadow.id)
        else:
            shadow = Session(prepared.session, incoming.machine.owned.epoch, Role.SHADOW)
            self._persister.store.replace_copy(shadow.id)
        incoming.shadow, incoming.copy = shadow, prepared.copy
        shadow.copied_from(incoming.machine.owned.proxy, incoming.machine.owned.epoch)
        shadow.describe(prepared.descriptor)
        incoming.stored = prepared.stored
        incoming.progress_ms = self._env.time.now_ms
        shadow.gates.close_all(self._env.state.frontier, seen=None)
        self._sessions.put(shadow)
        self._sessions.interest.register(shadow)

    def _take_chunk(self, incoming: Incoming, chunk: Chunk) -> None:
        """Take the next chunk; one that comes again is acknowledged again, and nothing more."""
        shadow = incoming.shadow
        if shadow is None or chunk.number <= incoming.chunks:
            return
        if not self._copied(incoming):
            # Later notifications come in more chunks: those do not begin the wait for coverage anew.
            incoming.progress_ms = self._env.time.now_ms
        incoming.chunks, incoming.upto = chunk.number, chunk.upto
        copied = [
            (
                entry.number,
                StoredNotification(entry.origin, entry.offset, entry.delivery, entry.keys),
                self._sessions.matcher.shared(entry.matched),
            )
            for entry in chunk.entries
        ]
        shadow.take_entries(copied)
        for _, stored, matched in copied:
            self._persister.store.count_unstored(stored, matched)
        now = self._env.time.now_ms
        shadow.retention.take_marks(Mark(age.below, now - age.age_ms) for age in chunk.ages)
        self._sessions.mark_changed(shadow.id)
        part = FINAL_COPY if incoming.machine.state is TargetState.READY else PRE_COPY
        self.carried(incoming, part, chunk.entries)

    def _acknowledge_stored(self, incoming: Incoming) -> None:
        """Acknowledge what came, at once as long as little of it waits for the disk: memory bounds the copy."""
        chunks, shadow = incoming.chunks, incoming.shadow
        if shadow is None or shadow.entries.unsaved_count <= self._env.settings.bounds.copy_unsaved:
            incoming.acknowledged = chunks
            self._acknowledge(incoming)
            return

        def on_done(error: WaypostError | None) -> None:
            if error is None and not self._is_stale(incoming):
                incoming.acknowledged = max(incoming.acknowledged, chunks)
                self._acknowledge(incoming)

        self._persister.store.save(on_done)

    def _acknowledge(self, incoming: Incoming) -> None:
        transfer = incoming.machine
        self._send(
            incoming, ChunkStored(transfer.session, transfer.transfer, transfer.owned.epoch, incoming.acknowledged)
        )

    def _send_ready(self, incoming: Incoming) -> None:
        assert incoming.shadow is not None
        coverage = {origin: self._coverage.covered_from(incoming.shadow, origin) for origin in incoming.shadow.gates}
        transfer = incoming.machine
        self._send(incoming, Ready(transfer.session, transfer.transfer, transfer.owned.epoch, coverage))

    def _merge(self, incoming: Incoming, frozen: Frozen) -> None:
        """Join the shadow with the cut: what lies at or below it waits no more, what lies above is ours to keep."""
        shadow = incoming.shadow
        assert shadow is not None
        before = _interests(shadow)
        shadow.describe(frozen.descriptor)
        shadow.merge(self._env.state.continued(frozen.cut), self._env.state.frontier, frozen.oldest, frozen.next_number)
        shadow.copied_from(incoming.machine.owned.proxy, incoming.machine.wanted.epoch)
        if _interests(shadow) != before:
            for origin, gate in shadow.gates.items():
                gate.restart(self._env.state.frontier.get(origin, NOTHING))
            self._sessions.interest.register(shadow)
        self._sessions.subscriptions_changed(shadow)
        self._sessions.mark_changed(shadow.id)
        shadow.subscriptions.raise_promise_floors(frozen.cut)
        self._coverage.watch(shadow)
        self._coverage.advance(shadow)

        def on_done(error: WaypostError | None) -> None:
            if not self._is_stale(incoming):
                self.feed(incoming, target.StoreFailed() if error else target.Staged())

        self._persister.store.save(on_done)

    def _adopt(self, incoming: Incoming) -> None:
        shadow = incoming.shadow
        assert shadow is not None
        self.remove(incoming)
        self._served.serve(shadow, incoming.machine.wanted.epoch, OwnedCause.HANDOVER)

    def _end(self, incoming: Incoming) -> None:
        self.remove(incoming)
        partial_copy = incoming.partial_copy if incoming.shadow is None else self._set_aside(incoming, incoming.shadow)
        if partial_copy is not None:
            kept = {**self._partial_copies, incoming.machine.session: partial_copy}
            # One that a transfer has had, and not used, is older than others.
            self._partial_copies = dict(sorted(kept.items(), key=lambda item: item[1].until_ms))
            if len(self._partial_copies) > COPIES_KEPT:
                self._forget(next(iter(self._partial_copies)))

    def _set_aside(self, incoming: Incoming, shadow: Session) -> PartialCopy | None:
        """Drop the shadow, but keep for a while what the store has of the copy: the next transfer goes on behind it.

        What all receivers get meanwhile goes at the merge, as it does within one transfer: entries only ever go from
        the front, and the cut says where the front is.
        """
        if (
            shadow.role is not Role.SHADOW
            or shadow.entries.saved_number < shadow.entries.first_number
            or not incoming.copy
        ):
            self._served.drop(shadow)
            return None
        self._served.withdraw(shadow)
        shadow.gates.clear()
        return PartialCopy(shadow, incoming.copy, self._env.time.now_ms + COPY_KEPT_MS)

    def _forget(self, session: SessionId) -> None:
        """Delete what an earlier transfer brought; a copy that came to be here otherwise has written over it."""
        del self._partial_copies[session]
        if session not in self._sessions:
            self._persister.drop(session)

    def _discard(self, incoming: Incoming) -> None:
        self._end(incoming)
        machine = incoming.machine
        self._output.report(TransferFailed(machine.session, machine.owned, incoming.key, incoming.why_lost))


def _misfit(incoming: Incoming, chunk: Chunk) -> Violation | None:
    """Return what is wrong with a chunk; it is as good as lost, and will be sent again. None: nothing."""
    if chunk.number <= incoming.chunks:
        return None if chunk.number > 0 else Violation.CHUNK_OUT_OF_ORDER
    if chunk.number != incoming.chunks + 1 or chunk.after != incoming.upto:
        return Violation.CHUNK_OUT_OF_ORDER
    return None if chunk.checksum == checksum(chunk.entries, chunk.ages) else Violation.WRONG_CHECKSUM


def _whole(incoming: Incoming, frozen: Frozen) -> bool:
    """Tell whether the shadow has every entry that is left at the cut."""
    if incoming.shadow is None or frozen.chunks != incoming.chunks:
        return False
    copied = max(incoming.shadow.entries.last_number, incoming.upto or 0)
    return frozen.oldest >= frozen.next_number or copied == frozen.next_number - 1


def _interests(session: Session) -> tuple[object, object]:
    """Return by what live notifications are matched: in one generation neither the expression nor the keys ever change,
    but where it ends may become known.
    """
    return {
        (subscription.id, subscription.generation) for subscription in session.subscriptions.active()
    }, session.subscriptions.known_ends()
