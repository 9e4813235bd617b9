"""Handovers as this proxy takes part in them: the machines of `handover/`, joined to sessions, store and registry.

The machines decide; what is here performs their effects and feeds them with what happened. Messages that belong to no
transfer here are answered, because a refusal is an answer and silence is not (handover rule 5).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

from federation.ports import Claimed
from handover import machine, source, target
from handover.messages import (
    Aborted,
    Chunk,
    ChunkStored,
    Frozen,
    Prepare,
    Prepared,
    Ready,
    Refused,
    StoredEntry,
    ToSource,
    ToTarget,
)
from handover.source import SourceState, SourceTransfer
from handover.target import TargetState, TargetTransfer
from proxy.context import Context
from proxy.coverage import Coverage
from proxy.effects import ClaimRow, LoadEntries, ReadRow, SendPeer
from proxy.keeper import Keeper
from proxy.ownership import NOBODY, Asker, Claims
from proxy.session import Entry, Role, Session, Stored
from waypost.batches import batches
from waypost.errors import UnexpectedInput, WaypostError
from waypost.identity import NOTHING, Origin, Ownership, ProxyId, SessionId
from waypost.limits import CHUNK_BYTES, CHUNK_ENTRIES, CHUNK_WINDOW, TRANSFERS_REMEMBERED


@dataclass(slots=True)
class Outgoing:
    """A transfer from here: the machine, and how far the copy has come."""

    machine: SourceTransfer
    receiver: Asker
    """Who attached at the target and made it ask."""
    start: int
    """Chunk 1 begins after this entry."""
    bounds: list[int] = field(default_factory=list)
    """bounds[i]: the last entry of chunk i + 1. A chunk that is sent again has the same bounds as before."""
    sent: int = 0
    """Chunks sent, since the last time that they were sent again."""
    acknowledged: int = 0
    loading: bool = False
    cut: dict[Origin, int] | None = None


@dataclass(slots=True)
class Incoming:
    """A transfer to here: the machine, the shadow, and how many chunks have come."""

    machine: TargetTransfer
    receiver: Asker = NOBODY
    """Who attached here and made us ask."""
    shadow: Session | None = None
    chunks: int = 0
    upto: int | None = None
    """The last number that the chunks so far span."""
    stored: int = 0
    progress_ms: int = 0
    """When the shadow was installed, or the last chunk came."""
    frozen: Frozen | None = None


class Transfers:
    """All running transfers of this proxy."""

    def __init__(
        self,
        context: Context,
        keeper: Keeper,
        coverage: Coverage,
        claims: Callable[[], Claims],
        *,
        thawed: Callable[[Session], None],
        unavailable: Callable[[SessionId, str], None],
    ) -> None:
        self._context = context
        self._keeper = keeper
        self._coverage = coverage
        self._claims = claims
        self._thawed = thawed
        self._unavailable = unavailable
        self.outgoing: dict[SessionId, Outgoing] = {}
        self.incoming: dict[SessionId, Incoming] = {}
        self._over: dict[str, None] = {}
        """Transfers from here that ended or were superseded lately: a late question does not begin them again."""
        self.refused_inputs = 0

    # ------------------------------------------------------------ feeding the machines

    def _feed_source(self, out: Outgoing, given: object) -> None:
        self._run_source(out, self._step(out.machine, given))

    def _feed_target(self, into: Incoming, given: object) -> None:
        self._run_target(into, self._step(into.machine, given))

    def _step(self, transfer: SourceTransfer | TargetTransfer, given: object) -> list[object]:
        before = transfer.state
        try:
            effects = transfer.step(given, self._context.clock.now_ms())
        except UnexpectedInput:
            self.refused_inputs += 1
            return []
        self._note(transfer, before)
        return effects

    def _note(self, transfer: SourceTransfer | TargetTransfer, before: object) -> None:
        if transfer.state is before:
            return
        side = "source" if isinstance(transfer, SourceTransfer) else "target"
        self._context.attest(
            "handover",
            session=None,
            reason=f"{side} {transfer.state.name.lower()}",
            transfer=transfer.transfer,
            epoch=transfer.owned.epoch,
        )

    def tick(self) -> None:
        now = self._context.clock.now_ms()
        for out in list(self.outgoing.values()):
            before = out.machine.state
            effects = out.machine.tick(now)
            self._note(out.machine, before)
            self._run_source(out, effects)
        for into in list(self.incoming.values()):
            before_target = into.machine.state
            target_effects = into.machine.tick(now)
            self._note(into.machine, before_target)
            self._run_target(into, target_effects)
        self.moved()

    def next_deadline(self) -> int | None:
        deadlines = [each.machine.next_deadline() for each in self.outgoing.values()]
        deadlines += [each.machine.next_deadline() for each in self.incoming.values()]
        deadlines += [
            each.progress_ms + self._context.settings.timing.coverage_ms
            for each in self.incoming.values()
            if each.machine.state is TargetState.SHADOWING
        ]
        return min((each for each in deadlines if each is not None), default=None)

    def moved(self) -> None:
        """The log moved: a source may have passed what it waited for, a target may have learnt its coverage."""
        for out in list(self.outgoing.values()):
            if out.machine.state is SourceState.WAITING and self._passed(out):
                self._feed_source(out, source.Passed())
        for into in list(self.incoming.values()):
            if into.machine.state is TargetState.SHADOWING and self._complete(into):
                self._feed_target(into, target.Complete())

    def owner_changed(self, session: SessionId, current: Ownership | None) -> None:
        out, into = self.outgoing.get(session), self.incoming.get(session)
        if out and not _older(current, out.machine.owned):
            given = machine.owner_input(current, out.machine.owned, out.machine.wanted)
            if not (isinstance(given, machine.OwnedByUs) and out.machine.state is not SourceState.RECLAIMING):
                self._feed_source_owner(out, given, current)
        if into and not _older(current, into.machine.owned):
            self._feed_target(into, machine.owner_input(current, into.machine.owned, into.machine.wanted))

    def _feed_source_owner(self, out: Outgoing, given: object, current: Ownership | None) -> None:
        if isinstance(given, machine.OwnedByOther) and current is not None:
            self._context.owners[out.machine.session] = current
        if not isinstance(given, machine.OwnerUnchanged):
            self._feed_source(out, given)

    def proxy_down(self, proxy: ProxyId) -> None:
        for out in list(self.outgoing.values()):
            if out.machine.target == proxy:
                self._feed_source(out, machine.PeerGone())
        for into in list(self.incoming.values()):
            if into.machine.owned.proxy == proxy:
                self._feed_target(into, machine.PeerGone())

    def fence(self) -> None:
        """Our lease may have ended: no transfer goes on; what is staged is settled by the registry later."""
        for session_id in list(self.outgoing):
            del self.outgoing[session_id]
            session = self._context.sessions.get(session_id)
            if session and session.role is Role.FROZEN:
                session.role = Role.DORMANT
        for session_id, into in list(self.incoming.items()):
            del self.incoming[session_id]
            if into.shadow is None:
                continue
            if into.shadow.role is Role.STAGED:
                into.shadow.orphan = True
            else:
                self._claims().drop(into.shadow)

    # ------------------------------------------------------------ the source

    def prepare(self, asker: ProxyId, message: Prepare) -> None:
        """A proxy asks for a session."""
        running = self.outgoing.get(message.session)
        if running and running.machine.transfer == message.transfer:
            self._feed_source(running, message)
            return
        reason = self._why_not(asker, message, running)
        if reason:
            refusal = Refused(message.session, message.transfer, message.epoch, reason)
            self._context.emit(SendPeer(asker, refusal))
            return
        if running:
            self._remember(running)
        owned = Ownership(self._context.proxy, message.epoch)
        now = self._context.clock.now_ms()
        timing = self._context.settings.timing
        transfer = SourceTransfer(message.session, owned, asker, message.transfer, timing, now)
        session = self._context.sessions[message.session]
        out = Outgoing(transfer, (message.receiver, message.incarnation), start=session.first_number - 1)
        self.outgoing[message.session] = out
        self._feed_source(out, message)

    def _why_not(self, asker: ProxyId, message: Prepare, running: Outgoing | None) -> str:
        session = self._context.serving(message.session)
        if asker == self._context.proxy:
            return "target is the source"
        if message.transfer in self._over:
            return "that transfer is over"
        if session is None:
            held = self._context.sessions.get(message.session)
            return f"the session is {held.role.value} here" if held else "the session is not here"
        if session.epoch != message.epoch:
            return f"the epoch here is {session.epoch}"
        if running and running.machine.state in (SourceState.FROZEN, SourceState.RECLAIMING):
            return "another transfer is under way"
        return ""

    def to_source(self, sender: ProxyId, message: ToSource) -> None:
        """A target says something to us as the source."""
        if isinstance(message, Prepare):
            self.prepare(sender, message)
            return
        out = self.outgoing.get(message.session)
        if out is None or out.machine.transfer != message.transfer or out.machine.target != sender:
            if not isinstance(message, Aborted):
                refusal = Refused(message.session, message.transfer, message.epoch, "no such transfer")
                self._context.emit(SendPeer(sender, refusal))
            return
        if isinstance(message, ChunkStored):
            out.acknowledged = max(out.acknowledged, min(message.number, len(out.bounds)))
        self._feed_source(out, message)
        self.moved()

    def cancel(self, session: SessionId) -> None:
        """A receiver is back here before the freeze: the session stays (failures, F25)."""
        out = self.outgoing.get(session)
        if out and out.machine.state in (SourceState.COPYING, SourceState.WAITING):
            transfer = out.machine
            refusal = Refused(session, transfer.transfer, transfer.owned.epoch, "a receiver came back here")
            self._context.emit(SendPeer(transfer.target, refusal))
            self._feed_source(out, Aborted(session, transfer.transfer, transfer.owned.epoch, refusal.reason))

    def _passed(self, out: Outgoing) -> bool:
        session = self._context.sessions[out.machine.session]
        seen = self._context.frontier(session)
        return all(
            above is None or seen.get(origin, NOTHING) >= above for origin, above in out.machine.coverage.items()
        )

    def _run_source(self, out: Outgoing, effects: list[object]) -> None:
        for effect in effects:
            match effect:
                case source.SendPrepared():
                    self._send_prepared(out)
                case source.SendChunks(again=again):
                    self._send_chunks(out, again=again)
                case source.Freeze():
                    self._freeze(out)
                case source.SendFrozen():
                    out.sent = out.acknowledged
                    self._copy_on(out)
                case machine.Claim() as claim:
                    self._claim_for_source(out, claim)
                case machine.ReadOwner():
                    self._read_for_source(out)
                case source.Thaw(epoch=epoch):
                    session = self._end_source(out)
                    self._claims().serve(session, epoch, "thaw")
                case source.Release():
                    session = self._end_source(out)
                    self._claims().release(session, self._context.owners.get(session.id), out.receiver)
                case source.Forget():
                    self._thawed(self._end_source(out))

    def _end_source(self, out: Outgoing) -> Session:
        self.outgoing.pop(out.machine.session, None)
        self._remember(out)
        return self._context.sessions[out.machine.session]

    def _remember(self, out: Outgoing) -> None:
        self._over[out.machine.transfer] = None
        if len(self._over) > TRANSFERS_REMEMBERED:
            del self._over[next(iter(self._over))]

    def _send_prepared(self, out: Outgoing) -> None:
        session = self._context.sessions[out.machine.session]
        transfer = out.machine
        prepared = Prepared(
            session.id,
            transfer.transfer,
            session.epoch,
            session.descriptor(),
            session.last_number if session.stored_count else 0,
        )
        self._context.emit(SendPeer(transfer.target, prepared))
        self._send_chunks(out, again=True)

    def _send_chunks(self, out: Outgoing, *, again: bool) -> None:
        """Send chunks as far as the window allows."""
        if again:
            out.sent = out.acknowledged
        self._copy_on(out)

    def _copy_on(self, out: Outgoing) -> None:
        """Send the next chunks; a frozen session's all, and then its cut."""
        session = self._context.sessions.get(out.machine.session)
        frozen = out.machine.state is SourceState.FROZEN
        if session is None or out.machine.over or out.loading:
            return
        while frozen or out.sent - out.acknowledged < CHUNK_WINDOW:
            after, limit = _next_range(out, session)
            if limit == 0:
                if frozen:
                    self._send_cut(out)
                return
            entries = session.entries_after(after, limit)
            if entries is None:
                self._load(out, session, after, limit)
                return
            self._send_chunk(out, session, after + limit, entries)

    def _load(self, out: Outgoing, session: Session, after: int, limit: int) -> None:
        out.loading = True
        sent = out.sent

        def then(answer: list[Entry] | WaypostError) -> None:
            out.loading = False
            if out.machine.over or isinstance(answer, WaypostError):
                return
            if out.sent == sent:
                self._send_chunk(out, session, after + limit, answer)
            self._copy_on(out)

        self._context.emit(LoadEntries(session.id, max(after, session.first_number - 1), limit, then))

    def _send_chunk(self, out: Outgoing, session: Session, upto: int, entries: list[Entry]) -> None:
        """Send the next chunk; what all receivers got since it was bounded is left out."""
        stored = [
            StoredEntry(number, matched, each.origin, each.offset, each.delivery)
            for number, each, matched in entries
            if number <= upto
        ]
        if out.sent == len(out.bounds):
            stored = _first_chunk(stored)
            out.bounds.append(stored[-1].number if stored else session.first_number - 1)
        out.sent += 1
        chunk = Chunk(
            session.id,
            out.machine.transfer,
            out.machine.owned.epoch,
            number=out.sent,
            after=out.bounds[out.sent - 2] if out.sent > 1 else None,
            upto=out.bounds[out.sent - 1],
            entries=stored,
            checksum=_checksum(stored),
        )
        self._context.emit(SendPeer(out.machine.target, chunk))

    def _freeze(self, out: Outgoing) -> None:
        session = self._context.sessions[out.machine.session]
        out.cut = dict(session.freeze(self._context.state.frontier))
        self._context.dirty.add(session.id)

    def _send_cut(self, out: Outgoing) -> None:
        session = self._context.sessions[out.machine.session]
        assert out.cut is not None
        frozen = Frozen(
            session.id,
            out.machine.transfer,
            out.machine.owned.epoch,
            session.descriptor(),
            out.cut,
            len(out.bounds),
            session.first_number,
            session.next_number,
        )
        self._context.emit(SendPeer(out.machine.target, frozen))

    def _claim_for_source(self, out: Outgoing, claim: machine.Claim) -> None:
        def then(answer: Claimed | WaypostError) -> None:
            if out.machine.over or self.outgoing.get(out.machine.session) is not out:
                return
            if isinstance(answer, WaypostError):
                self._feed_source(out, machine.ClaimUnknown())
            else:
                self._answer_source(out, answer.current)

        self._context.emit(ClaimRow(out.machine.session, claim.expected, claim.new, then))

    def _read_for_source(self, out: Outgoing) -> None:
        def then(answer: Ownership | WaypostError | None) -> None:
            if not isinstance(answer, WaypostError) and self.outgoing.get(out.machine.session) is out:
                self._answer_source(out, answer)

        self._context.emit(ReadRow(out.machine.session, then))

    def _answer_source(self, out: Outgoing, current: Ownership | None) -> None:
        given = machine.owner_input(current, out.machine.owned, out.machine.wanted)
        if current is not None:
            self._context.owners[out.machine.session] = current
        self._feed_source(out, given)

    # ------------------------------------------------------------ the target

    def fetch(self, session: SessionId, owner: Ownership, receiver: Asker = NOBODY) -> None:
        """Begin to take a session from its live owner."""
        if session in self.incoming or session in self._context.sessions:
            return
        if not self._context.may_serve():
            self._unavailable(session, "this proxy has no lease at the moment")
            return
        now = self._context.clock.now_ms()
        name = f"{self._context.proxy}-{self._context.chance.getrandbits(64):016x}"
        transfer = TargetTransfer(session, owner, self._context.proxy, name, self._context.settings.timing, now)
        into = self.incoming[session] = Incoming(transfer, receiver)
        self._run_target(into, transfer.begin())

    def to_target(self, sender: ProxyId, message: ToTarget) -> None:
        """A source says something to us as the target."""
        into = self.incoming.get(message.session)
        if into is None or into.machine.transfer != message.transfer or into.machine.owned.proxy != sender:
            self._unknown_transfer(sender, message)
            return
        if isinstance(message, Frozen) and into.machine.state is TargetState.READY:
            if message.chunks != into.chunks or not _whole(into.shadow, message):
                self._acknowledge(into)
                return
            into.frozen = message
        if isinstance(message, Prepared) and into.shadow is None:
            into.shadow = Session(message.session, into.machine.owned.epoch, Role.SHADOW)
            into.shadow.describe(message.descriptor)
            into.stored = message.stored
        if isinstance(message, Chunk) and message.number == into.chunks + 1 and message.after == into.upto:
            self._take_chunk(into, message)
        self._feed_target(into, message)
        self.moved()

    def _unknown_transfer(self, sender: ProxyId, message: ToTarget) -> None:
        """A frozen source must know that nobody will take the session (handover rule 5)."""
        row = self._context.owners.get(message.session)
        if isinstance(message, Frozen) and (row is None or row.proxy != self._context.proxy):
            gone = Aborted(message.session, message.transfer, message.epoch, "no such transfer")
            self._context.emit(SendPeer(sender, gone))

    def _complete(self, into: Incoming) -> bool:
        shadow = into.shadow
        if shadow is None:
            return False
        copied = shadow.last_number >= into.stored
        known = all(self._coverage.covered_from(shadow, origin) is not None for origin in shadow.gates)
        waited = self._context.clock.now_ms() - into.progress_ms
        return (copied and known) or waited >= self._context.settings.timing.coverage_ms

    def _run_target(self, into: Incoming, effects: list[object]) -> None:
        transfer = into.machine
        for effect in effects:
            match effect:
                case target.SendPrepare():
                    self._say(
                        into,
                        Prepare(
                            transfer.session,
                            transfer.transfer,
                            transfer.owned.epoch,
                            receiver=into.receiver[0],
                            incarnation=into.receiver[1],
                        ),
                    )
                case target.Install():
                    self._install(into)
                case target.TakeChunk() | target.AcknowledgeChunks():
                    self._acknowledge(into)
                case target.SendReady():
                    self._send_ready(into)
                case target.Merge():
                    self._merge(into)
                case machine.Claim() as claim:
                    self._claim_for_target(into, claim)
                case machine.ReadOwner():
                    self._read_for_target(into)
                case target.Adopt():
                    self._adopt(into)
                case target.SendAborted():
                    self._say(into, Aborted(transfer.session, transfer.transfer, transfer.owned.epoch, "gave up"))
                case target.Discard():
                    self._discard(into)
                case target.FailOver():
                    self._claims().seek(transfer.session, create=False)

    def _say(self, into: Incoming, message: ToSource) -> None:
        self._context.emit(SendPeer(into.machine.owned.proxy, message))

    def _install(self, into: Incoming) -> None:
        shadow, context = into.shadow, self._context
        assert shadow is not None
        into.progress_ms = context.clock.now_ms()
        shadow.close_gates(context.state.frontier, seen=None)
        context.sessions[shadow.id] = shadow
        context.matcher.put(shadow)
        context.hold(shadow.id, shadow.held_expressions())
        self._keeper.renew(shadow.id)

    def _take_chunk(self, into: Incoming, chunk: Chunk) -> None:
        """Take the next chunk; one that is damaged is as good as lost, and will be sent again."""
        shadow = into.shadow
        if shadow is None or chunk.checksum != _checksum(chunk.entries):
            return
        into.chunks, into.upto = chunk.number, chunk.upto
        into.progress_ms = self._context.clock.now_ms()
        shadow.take_entries(
            (each.number, Stored(each.origin, each.offset, each.delivery), each.matched)  # type: ignore[misc]
            for each in chunk.entries
        )
        self._context.dirty.add(shadow.id)
        self._keeper.pending += len(chunk.entries)

    def _acknowledge(self, into: Incoming) -> None:
        transfer = into.machine
        self._say(into, ChunkStored(transfer.session, transfer.transfer, transfer.owned.epoch, into.chunks))

    def _send_ready(self, into: Incoming) -> None:
        assert into.shadow is not None
        coverage = {origin: self._coverage.covered_from(into.shadow, origin) for origin in into.shadow.gates}
        transfer = into.machine
        self._say(into, Ready(transfer.session, transfer.transfer, transfer.owned.epoch, coverage))

    def _merge(self, into: Incoming) -> None:
        """Join the shadow with the cut: what lies at or below it waits no more, what lies above is ours to keep."""
        shadow, frozen, context = into.shadow, into.frozen, self._context
        assert shadow is not None and frozen is not None
        before = _interests(shadow)
        shadow.describe(frozen.descriptor)
        shadow.merge(frozen.cut, context.state.frontier, frozen.oldest, frozen.next_number)
        shadow.epoch = into.machine.wanted.epoch
        if _interests(shadow) != before:
            for origin, gate in shadow.gates.items():
                gate.restart(context.state.frontier.get(origin, NOTHING))
            context.matcher.put(shadow)
            context.hold(shadow.id, shadow.held_expressions())
        self._claims().lift_floors(shadow, frozen.cut)
        self._coverage.watch(shadow)
        self._coverage.advance(shadow)

        def then(error: WaypostError | None) -> None:
            if self.incoming.get(shadow.id) is into:
                self._feed_target(into, target.StoreFailed() if error else target.Staged())

        self._keeper.saved(then)

    def _claim_for_target(self, into: Incoming, claim: machine.Claim) -> None:
        def then(answer: Claimed | WaypostError) -> None:
            if self.incoming.get(into.machine.session) is not into:
                return
            if isinstance(answer, WaypostError):
                self._feed_target(into, machine.ClaimUnknown())
            else:
                self._answer_target(into, answer.current)

        self._context.emit(ClaimRow(into.machine.session, claim.expected, claim.new, then))

    def _read_for_target(self, into: Incoming) -> None:
        def then(answer: Ownership | WaypostError | None) -> None:
            if not isinstance(answer, WaypostError) and self.incoming.get(into.machine.session) is into:
                self._answer_target(into, answer)

        self._context.emit(ReadRow(into.machine.session, then))

    def _answer_target(self, into: Incoming, current: Ownership | None) -> None:
        given = machine.owner_input(current, into.machine.owned, into.machine.wanted)
        self._feed_target(into, given)

    def _adopt(self, into: Incoming) -> None:
        shadow = into.shadow
        assert shadow is not None
        del self.incoming[shadow.id]
        self._claims().serve(shadow, into.machine.wanted.epoch, "handover")

    def _discard(self, into: Incoming) -> None:
        session = into.machine.session
        self.incoming.pop(session, None)
        if into.shadow is not None:
            self._claims().drop(into.shadow)
        self._unavailable(session, "the session could not be handed over yet")


def _whole(shadow: Session | None, frozen: Frozen) -> bool:
    """Tell whether the shadow has every entry that is left at the cut."""
    if shadow is None:
        return False
    return frozen.oldest >= frozen.next_number or shadow.last_number == frozen.next_number - 1


def _interests(session: Session) -> set[tuple[str, str]]:
    return {(subscription.id, subscription.expression.canonical) for subscription in session.active()}


def _older(current: Ownership | None, owned: Ownership) -> bool:
    """Tell whether this is old news: the watch may be behind what was claimed and read."""
    return current is None or current.epoch < owned.epoch


def _first_chunk(stored: list[StoredEntry]) -> list[StoredEntry]:
    """Return as many of the entries as a chunk may hold; its bound is taken from them."""
    cut = batches(stored, lambda entry: len(entry.delivery), most=CHUNK_ENTRIES, most_bytes=CHUNK_BYTES)
    return list(next(cut, []))


def _next_range(out: Outgoing, session: Session) -> tuple[int, int]:
    """Return after which entry the next chunk begins, and how many numbers it spans at most; 0: there is none."""
    after = out.bounds[out.sent - 1] if out.sent else out.start
    if out.sent < len(out.bounds):
        return after, max(1, out.bounds[out.sent] - after)
    after = max(after, session.first_number - 1)
    return after, min(CHUNK_ENTRIES, session.last_number - after)


def _checksum(entries: list[StoredEntry]) -> int:
    checksum = 0
    for entry in entries:
        checksum = zlib.crc32(entry.delivery, checksum)
    return checksum
