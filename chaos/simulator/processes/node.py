"""One proxy in a world: its process, its disk, its lease, and its shell.

The shell performs the effects as node/shell/node.py does, on the plain parts of
chaos/simulator/environment/fake_backends.py; the world says when each of them happens, and what comes of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, assert_never

import msgspec

from chaos.simulator.checks.invariants import Invariants
from chaos.simulator.environment.environment import Environment, Process
from chaos.simulator.environment.fake_backends import PlainStore
from chaos.simulator.kernel.narration import NARRATED_FACTS, line_of
from chaos.simulator.processes.clients import Wire
from chaos.simulator.processes.guarded_log import GuardedLog
from chaos.simulator.processes.links import SECRET, Links, LinkShell, history
from federation.links.effects import LinkEffect
from federation.messages import LogEndMessage
from federation.ports import ProxyRow, RegistryEvent
from handover.machine import Deadline
from handover.messages import HandoverOffer, MoveRequest, RelayMessage, ToSource, ToTarget
from node.machines import lifecycle
from node.machines.journal_queue import Answer, Failed, JournalQueue, Put, Write, Written
from node.machines.lifecycle import Lifecycle, LifecycleEffect, LifecycleInput, LifecycleState
from node.machines.log_guard import ClaimLogRow, FindEnd, FindFirst, LogGuard, ReadLogRow, Wait
from node.machines.log_start import (
    FindSnapshot,
    FindTime,
    LogStart,
    ReadRecords,
    ReadSecret,
    Report,
    StartQuestion,
    find_log_start,
)
from node.machines.procedure import resume
from node.machines.runtime import CONCERN_LINKS, Begin, Broke, Runtime, RuntimeEffect, Stream, StreamState
from node.peers.peers import name_of
from proxy.core import effects
from proxy.core.durability_law import LAW
from proxy.core.inputs import (
    EffectCompleted,
    EngineInput,
    LeaseGranted,
    LeaseLost,
    LeaseRenewed,
    Leave,
    PeerSent,
    RecordsRead,
    RegistryReported,
    StopHandovers,
    StoreAll,
)
from proxy.core.settings import Bounds, Settings
from proxy.core.store_port import Restored
from proxy.engine import Engine
from waypost.clock import NEVER
from waypost.errors import (
    CheckpointOutdated,
    HistoryTruncated,
    LogReplaced,
    LogUnavailable,
    Refused,
    RegistryUnavailable,
    StoreDamaged,
    StoreFailed,
    Unreachable,
    WaypostError,
)
from waypost.facts import Fact
from waypost.identity import Incarnation, Origin, ProxyId, SiteId
from waypost.messages import DeliverEncoded

LEASE_MS = 2_000
SLOW_DISK_MS = 1_500
EXPIRY_MS = 1_500
FORGET_MS = 50
SNAPSHOT_MS = 1_500
PUT_SITE_MS = 10
NOTE_MS = 2
HASH_MS = 40
_Between = ToSource | ToTarget | HandoverOffer | MoveRequest | RelayMessage | LogEndMessage
_handover: msgspec.msgpack.Decoder[_Between] = msgspec.msgpack.Decoder(_Between)


class Node(Process):
    """One proxy's process, its disk, and its shell: it performs the effects as node/shell/node.py does."""

    guarded_log: GuardedLog
    """The guarded log of its site, in this process."""
    link_shell: LinkShell
    """The shell of its site's links, in this process."""
    wires: dict[int, Wire]

    def __init__(
        self,
        world: Environment,
        invariants: Invariants,
        links: Links,
        *,
        proxy: ProxyId,
        site: SiteId,
        neighbours: tuple[SiteId, ...],
        bounds: Bounds,
    ) -> None:
        settings = Settings(
            proxy=proxy,
            site=site,
            neighbours=neighbours,
            entry_sweep_ms=EXPIRY_MS,
            snapshot_ms=SNAPSHOT_MS,
            forget_ms=FORGET_MS,
            bounds=bounds,
        )
        super().__init__(world, settings)
        self.invariants = invariants
        self._links = links
        self.unreadable = 0
        """Number of the next reads of the disk that fail."""
        self.append_ms = 0
        """Delay of an append to the log, in ms."""
        self.journal_ms = 0
        """Delay of facts on their way to the journal, in ms."""
        self.slow_until = 0
        """Until then the disk takes its time."""
        self.newer = False
        """Whether it adds fields that no other proxy knows."""
        self.sent: dict[str, Callable[[], None]] = {}
        """What was last said of every kind of handover message, to be said again."""
        self._starts = self._started_at = 0
        self._received_at = 0
        self._watched = 0
        """The revision of the registry up to which the watch has told."""
        self._loaded = 0
        """How often the registry had been put back to a copy when the watch told of all rows."""
        self.appends_until = 0
        """Until then appends are under way."""
        self._tick_at = 0
        self._will_read = False
        """The tail will look into the log by itself."""
        self._replaced: Engine | None = None
        """The engine whose log was replaced: it keeps what it has, and ends."""
        self._lifecycle = Lifecycle(Incarnation(""))
        self._life_due = NEVER

    # ------------------------------------------------------------ life cycle

    def start(self) -> None:
        """Begin a process, with what the store has."""
        world = self.world
        restored = self.store.load()
        self._starts += 1
        self._started_at = world.clock.time_ms
        self.invariants.restores.disturbed(f"{self.proxy} starts")
        rng = random.Random(f"{world.seed}/{self.proxy}/{self._starts}")
        incarnation = Incarnation(f"{self.proxy}#{self._starts}")
        self._lifecycle, self._life_due = Lifecycle(incarnation), NEVER
        start = self._find_log_start(restored)
        self.engine = Engine(
            self.settings,
            rng,
            incarnation,
            now_ms=self.clock.now_ms(),
            unix_ms=self.clock.unix_ms(),
            restored=restored,
            first=start.first,
            known=start.known,
            is_intact=start.is_intact,
            log_epoch=start.log_epoch,
        )
        self.read_below = 0
        self.guarded_log = GuardedLog(self, LogGuard(self.engine.state, start.federation, start.row))
        self.link_shell = LinkShell(self, self.invariants, self._links)
        self._received_at = self.appends_until = world.clock.time_ms
        world.registry.expire(world.clock.time_ms)
        world.registry_changed()
        self._watched, self._loaded = world.revision, world.registry.restored
        self._runtime = Runtime(self.engine, self.link_shell.machine)
        self._journal, self._journal_due = JournalQueue(), NEVER
        self._follow(self._runtime.watch, self._open_watch, Begin())
        self._follow(self._runtime.log, self.read, Begin())
        if self.leaving:
            # The log is confirmed already, while its tail finds that it is another one.
            self.guarded_log.begin(lambda: None)
        else:
            self._live_by(lifecycle.Start())
        self._trace("starts")

    def _find_log_start(self, restored: Restored | None) -> LogStart:
        """Find where the log is read from; all parts answer at once."""
        procedure = find_log_start(self.site, restored, "log")
        answer: Any = None
        while True:
            try:
                question = resume(procedure, answer)
            except StopIteration as done:
                start: LogStart = done.value
                break
            answer = self._answer_at_start(question)
        if start.why:
            self._trace(f"begins log epoch {start.row.log_epoch} of {self.site}")
        return start

    def _answer_at_start(self, question: StartQuestion) -> Any:
        log, registry = self.world.logs[self.site], self.world.registry
        match question:
            case FindTime():
                return self.world.clock.time_ms
            case FindFirst():
                return log.first
            case FindEnd():
                return len(log)
            case ReadRecords(offset=offset, limit=limit):
                try:
                    return log.read(offset, offset + limit)
                except HistoryTruncated as error:
                    return error
            case FindSnapshot():
                return self.world.changelogs[self.site].site
            case ReadLogRow():
                return registry.site_logs.get(self.site)
            case ClaimLogRow(expected=expected, new=new):
                return registry.claim_site_log(self.site, expected, new)
            case ReadSecret():
                return SECRET
            case Report() | Wait():
                return None
            case _:
                assert_never(question)

    @property
    def leaving(self) -> bool:
        """The process ends in good order."""
        return self._lifecycle.is_leaving

    @property
    def is_log_replaced(self) -> bool:
        """The log is not the one that was read: the process keeps what it has, and ends."""
        return self._replaced is not None and self._replaced is self.engine

    def advance_seen(self, below: int) -> None:
        """All below this offset was read, or its append was answered."""
        log = self.world.logs[self.site]
        self.read_below, log.seen_below = max(self.read_below, below), max(log.seen_below, below)

    def seen_beyond(self, origin: Origin, offset: int) -> None:
        """A neighbour has seen an origin of this site up to `offset`: it is checked with the next renewal."""
        self.guarded_log.guard.seen_beyond(origin, offset)

    def seen(self, origin: Origin) -> int:
        """Return the highest offset of an origin that this process has seen; -1: none."""
        return self.guarded_log.guard.seen(origin, self.read_below)

    def could_act_for(self, for_ms: int) -> bool:
        """Tell whether the process was up all that time, and in touch with the registry."""
        world, since = self.world, self.world.clock.time_ms - for_ms
        hindered_until = (self._started_at, self.deaf_until, self.stalled_until, world.registry_away_until)
        return self.ready and not self.leaving and not self.still and max(hindered_until) < since

    @property
    def is_watch_current(self) -> bool:
        """Tell whether the registry's watch has told the process of all that happened, if it runs."""
        is_open = self._runtime.watch.state is StreamState.OPEN
        return self.engine is None or (is_open and self._received_at < self.world.clock.time_ms)

    @property
    def appends_wait(self) -> bool:
        """The log was out of reach, and nothing is appended until it was compared with what was read of it."""
        return self.guarded_log.is_interrupted

    def log_interrupted(self) -> None:
        """The log was out of reach: it is compared with what was seen of it."""
        if self.engine is not None and not self.is_log_replaced:
            self.schedule(self.world.delay(), self.guarded_log.compare)

    def restart_on_new_log(self, why: str, end: int | None = None) -> None:
        """The log is not what was read of it: the node begins anew, and with it its links and clients."""
        engine = self.engine
        if engine is None or self._replaced is engine:
            return
        self._replaced = engine
        self._trace(f"begins anew: {why}")
        self.guarded_log.raise_epoch(end, lambda: self._live_by(lifecycle.Leave(marked=False)))

    def shut_down(self) -> None:
        """End in good order, as by SIGTERM."""
        if self.engine is not None and not self.leaving:
            self._trace("shuts down")
            self._live_by(lifecycle.Leave(marked=True))

    def _trace(self, what: str) -> None:
        """Say what this proxy does, in the trace and in the scenario."""
        self.world.note(f"{self.proxy} {what}", narrate=True, by=self.proxy)

    def crash(self, *, disk_lost: bool = False) -> None:
        """End the process at once, with its disk or without."""
        if disk_lost:
            self.store = PlainStore()
        self._gone(f"crashes{' and loses its disk' if disk_lost else ''}")

    def _gone(self, how: str) -> None:
        self.invariants.restores.disturbed(f"{self.proxy} {how}")
        self.engine, self.ready = None, False
        self._trace(how)
        for wire in list(self.wires.values()):
            wire.close()

    def step_engine(self, input: EngineInput) -> None:
        """Step engine and links, perform what comes out, and set the timers again."""
        engine = self.engine
        if engine is None:
            return
        if self.still and self.stalls(partial(self._for_incarnation, engine, input)):
            return
        wanted = self._runtime.step(input, self.clock.now_ms(), self.clock.unix_ms())
        self._perform_all(engine, wanted)
        if isinstance(input, CONCERN_LINKS):
            self.link_shell.arm()

    def _perform_all(self, engine: Engine, wanted: Sequence[RuntimeEffect]) -> None:
        for effect in wanted:
            if isinstance(effect, LinkEffect):
                self.link_shell.perform(effect)
            else:
                self._performers[type(effect)](self, effect)
        self._arm(engine)

    def stall(self, for_ms: int) -> None:
        """Stop the process where it is, for so many ms."""
        self._trace(f"stalls for {for_ms} ms")
        self.invariants.restores.disturbed(f"{self.proxy} stalls")
        self.still = True
        self.stalled_until = max(self.stalled_until, self.world.clock.time_ms + for_ms)

    def _arm(self, engine: Engine) -> None:
        if self.leaving:
            return
        now = self.world.clock.time_ms
        due = max(now + 1, engine.next_deadline())
        if now < self._tick_at <= due:
            return
        self._tick_at = due
        self.world.later(due - now, partial(self._tick, engine, due))

    def _tick(self, engine: Engine, due: int) -> None:
        if self.engine is engine and self._tick_at == due and not self.leaving:
            self._tick_engine(engine)
            self.invariants.rests(self)

    def _tick_engine(self, engine: Engine) -> None:
        if self.engine is engine and not (self.still and self.stalls(partial(self._tick_engine, engine))):
            self._perform_all(engine, self._runtime.tick(self.clock.now_ms(), self.clock.unix_ms()))

    def _afterwards(self, wait_ms: int, action: Callable[[Engine], None]) -> None:
        """Answer effects later, as `action` does, if the process still lives then."""
        completed = EffectCompleted(action, self.engine)
        self.world.later(wait_ms, partial(self._for_incarnation, self.engine, completed))

    def _for_incarnation(self, engine: Engine | None, input: EngineInput) -> None:
        if self.engine is engine:
            self.step_engine(input)

    def schedule(self, wait_ms: int, action: Callable[[], None]) -> None:
        """Let the process do something later that is not the engine's, if it still lives."""
        engine = self.engine

        def act() -> None:
            if self.engine is engine and not (self.still and self.stalls(act)):
                action()

        self.world.later(wait_ms, act)

    def _answer(self, wait_ms: int, on_done: effects.OnDone, answer: object) -> None:
        """Answer an effect, if somebody waits for it."""
        if on_done is not effects.ignore_result:
            self._afterwards(wait_ms, lambda engine: on_done(answer))

    def log_grew(self) -> None:
        """Have the process read on, a moment later."""
        if not self._will_read:
            self._will_read = True
            self.world.later(self.world.delay(), self.read)

    def read(self) -> None:
        """Take the next records of the log, and come back as long as there are any."""
        self._will_read = False
        if self.engine is None or self.leaving or (self.still and self.stalls(self.read)):
            return
        log, stream = self.world.logs[self.site], self._runtime.log
        if stream.state is not StreamState.OPEN:
            return
        if self.world.chances(self.world.faults.writes):
            self._follow(stream, self.read, Broke())
            return
        if self.appends_wait:
            # It reads on once the log was compared.
            return
        start = self.engine.state.position
        if start > len(log) or (start > log.first and log.has(self.engine.state.acceptance.mark) is False):
            self.restart_on_new_log(f"the log ends at {len(log)}, and was read up to {start}")
            return
        try:
            batch = log.read(start, start + self.world.delay(6) + 2)
        except HistoryTruncated as error:
            self._trace(f"cannot go on: {error}")
            self.crash()
            return
        if batch:
            self.step_engine(RecordsRead(batch))
            self.advance_seen(batch[-1][0] + 1)
            self._will_read = True
            self.world.later(self.world.delay(4), self.read)

    def _follow(self, stream: Stream, read: Callable[[], None], input: Begin | Broke | None = None) -> None:
        """Step a stream, or do what is due of it; read it if it is to be opened, and set its timer."""
        now = self.world.clock.time_ms
        for _ in stream.tick(now) if input is None else stream.step(input, now):
            read()
        due = stream.next_deadline()
        if due != NEVER:
            self.schedule(max(0, due - now), lambda: self._follow(stream, read))

    # ------------------------------------------------------------ leases

    def _live_by(self, input: LifecycleInput | Deadline) -> None:
        """Perform what follows from an input of the life cycle, and set its timer."""
        running = self._lifecycle
        for effect in running.step(input, self.world.clock.time_ms):
            self._perform_lifecycle(effect)
        due = running.next_deadline()
        if due not in (NEVER, self._life_due) and running is self._lifecycle:
            self._life_due = due
            self.schedule(max(0, due - self.world.clock.time_ms), lambda: self._overdue(due))

    def _overdue(self, due: int) -> None:
        if self._lifecycle.next_deadline() == due:
            self._live_by(Deadline())

    def _perform_lifecycle(self, effect: LifecycleEffect) -> None:
        """Perform an effect of the life cycle, as node/shell/node.py does."""
        match effect:
            case lifecycle.FindLogEnd():
                self._live_by(lifecycle.LogEndFound(len(self.world.logs[self.site])))
            case lifecycle.AwaitLog(end=end):
                self._await_log(end)
            case lifecycle.ConfirmLog():
                self.guarded_log.begin(lambda: self._live_by(lifecycle.LogConfirmed()))
            case lifecycle.LearnSecret():
                self._live_by(lifecycle.SecretLearnt())
            case lifecycle.Announce(incarnation=incarnation):
                self._announce(incarnation)
            case lifecycle.GrantLease(incarnation=incarnation, until_ms=until_ms):
                self.ready = True
                self.link_shell.incarnation = incarnation
                self.step_engine(LeaseGranted(incarnation, until_ms))
            case lifecycle.KeepLease(incarnation=incarnation):
                self.schedule(LEASE_MS // 3, lambda: self._renew(incarnation))
            case lifecycle.ProlongLease(until_ms=until_ms):
                self.step_engine(LeaseRenewed(until_ms))
            case lifecycle.LoseLease():
                self.ready = False
                self.step_engine(LeaseLost())
            case lifecycle.HandBack():
                self.step_engine(StopHandovers())
                self._await_handed_back()
            case lifecycle.WriteFinally(marked=marked):
                self._write_finally(marked=marked)
            case lifecycle.RevokeLease():
                self._revoke()
            case lifecycle.End():
                self._end()
            case _:
                assert_never(effect)

    def _await_log(self, end: int) -> None:
        assert self.engine is not None
        if self._lifecycle.state is not LifecycleState.READING:
            return
        if not self.guarded_log.guard.has_read(end):
            self.schedule(10, lambda: self._await_log(end))
        else:
            self._live_by(lifecycle.LogRead())

    def _announce(self, incarnation: Incarnation) -> None:
        world = self.world
        if self._lifecycle.state is not LifecycleState.ANNOUNCING:
            return
        if world.clock.time_ms < self.deaf_until:
            self.schedule(10, lambda: self._announce(incarnation))
            return
        until_ms = world.clock.time_ms + LEASE_MS
        row = ProxyRow(
            proxy=self.proxy,
            incarnation=incarnation,
            site=self.site,
            url=self.proxy,
            changelog=self.site,
            lease_ttl_ms=LEASE_MS,
        )
        world.registry.announce(row, until_ms)
        world.registry_changed()
        self._live_by(lifecycle.Announced(until_ms))

    def _await_handed_back(self) -> None:
        assert self.engine is not None
        if self.engine.is_handing_over:
            self.schedule(10, self._await_handed_back)
        else:
            self._live_by(lifecycle.HandedBack())

    def _write_finally(self, *, marked: bool) -> None:
        waits = 3

        def one(_: object = None) -> None:
            nonlocal waits
            waits -= 1
            if not waits:
                self.schedule(0, lambda: self._live_by(lifecycle.FinalWritesDone()))

        self.step_engine(Leave(one, marked))
        self.step_engine(StoreAll(one))
        self._step_journal(Put(effects.Attest((), one)))

    def _revoke(self) -> None:
        if self.world.clock.time_ms >= self.deaf_until and self.world.registry_answers():
            self.world.registry.revoke(self.proxy, self._lifecycle.incarnation)
            self.world.registry_changed()
            self._live_by(lifecycle.Revoked())

    def _end(self) -> None:
        replaced = self.is_log_replaced
        self._gone("ends")
        if replaced:
            self.start()

    def _renew(self, incarnation: Incarnation) -> None:
        now = self.world.clock.time_ms
        if self.leaving or self.is_log_replaced:
            return
        if now >= self.deaf_until and self.world.registry_answers():
            self.guarded_log.check(reports=self.engine is not None and self.engine.env.cluster.is_site_reporter)
            self.world.registry.expire(now)
            held = self.world.registry.renew(self.proxy, incarnation, now + LEASE_MS)
            self.world.registry_changed()
            if not held:
                self._starts += 1
                self._live_by(lifecycle.LeaseEnded(Incarnation(f"{self.proxy}#{self._starts}")))
                return
            self.schedule(self.world.delay(), lambda: self._live_by(lifecycle.Renewed(now + LEASE_MS)))
        self.schedule(LEASE_MS // 3, lambda: self._renew(incarnation))

    def receive_event(self, event: RegistryEvent) -> None:
        """The watch: in order, after a while. While it is broken it tells nothing."""
        revision = self.world.revision

        def deliver() -> None:
            if revision > self._watched and self._runtime.watch.state is StreamState.OPEN and not self.leaving:
                self._watched = revision
                self.step_engine(RegistryReported(event))

        self.schedule(self._next_word(), deliver)

    def watch_breaks(self) -> None:
        """The registry's watch breaks: it begins anew with all that there is."""
        if self.engine is not None and self._runtime.watch.state is StreamState.OPEN:
            self._follow(self._runtime.watch, self._open_watch, Broke())

    def _open_watch(self) -> None:
        """Be told of all rows; at the start of the process at once."""

        def deliver() -> None:
            if not self.leaving:
                self._watched, self._loaded = self.world.revision, self.world.registry.restored
                reloaded = self.world.registry.reloaded()
                self.step_engine(RegistryReported(reloaded))

        if self._started_at == self.world.clock.time_ms:
            deliver()
        else:
            self.schedule(self._next_word(), deliver)

    def _next_word(self) -> int:
        """Return in how many milliseconds the registry's next word comes: not before any earlier one."""
        now = self.world.clock.time_ms
        away = max(self.deaf_until, self.world.registry_away_until)
        self._received_at = max(self._received_at, now + self.world.delay(30), away)
        return self._received_at - now

    # ------------------------------------------------------------ effects

    def _send(self, effect: effects.Send) -> None:
        wire = self.wires.get(effect.connection)
        if wire is None:
            return
        if isinstance(effect.message, DeliverEncoded):
            self.invariants.delivers(self, wire.client, effect.message.epoch)
        elif type(effect.message) in LAW:
            self.invariants.tells(self, wire.client, effect.message)
        wire.to_client(effect.message)

    def _hang_up(self, effect: effects.Hangup) -> None:
        if effect.connection in self.wires:
            wire = self.wires[effect.connection]
            self._trace(f"hangs up on {wire.client.name}: {effect.reason}")
            wire.hang_up()

    def _send_peer(self, effect: effects.SendPeer) -> None:
        world, kind = self.world, type(effect.message).__name__
        data = msgspec.msgpack.encode(effect.message)
        if self.newer:
            data = msgspec.msgpack.encode(msgspec.msgpack.decode(data) | {"of a later build": 1})
        world.count(effect.message)
        self.invariants.on_message(self.proxy, effect.message)
        self.sent[kind] = lambda: self._reach(effect.proxy, data)
        world.note(f"{self.proxy} -> {effect.proxy} {kind}", narrate=True)
        way = world.channels.get((self.proxy, effect.proxy))
        if way is not None:
            way.carry(data)
            return
        faults = world.faults
        parted = world.clock.time_ms < world.parted.get((self.proxy, effect.proxy), 0)
        if parted or world.loses(kind) or world.chances(faults.loss):
            world.note(f"  lost {kind}", narrate=True)
            world.carries(self.proxy, effect.proxy, kind, None)
            return
        for _ in range(1 + world.chances(faults.double)):
            wait = world.delay() + (world.rng.randint(0, faults.slow_ms) if faults.slow_ms else 0)
            world.carries(self.proxy, effect.proxy, kind, wait)
            world.later(wait, lambda: self._reach(effect.proxy, data))

    def _reach(self, proxy: ProxyId, data: bytes) -> None:
        self.world.nodes[proxy].step_engine(PeerSent(self.proxy, _handover.decode(data)))

    def refuse(self, peer: ProxyId, error: Refused, what: str) -> None:
        """Count what another proxy said wrong, as node/http/server.py does."""
        if self.engine is not None:
            self.engine.output.refused.note(name_of(error), peer, str(error))
            self._trace(f"refuses {what}: {error}")

    def _attest(self, effect: effects.Attest) -> None:
        """Have the facts written to the journal; what they say is looked at now."""
        world = self.world
        for fact in effect.facts:
            world.facts.append(fact)
            self.invariants.attests(self.proxy, fact)
            if fact.kind in NARRATED_FACTS:
                world.note(line_of(fact), narrate=True, by=self.proxy)
        self._step_journal(Put(effect))

    def _step_journal(self, input: Put | Written | Failed | Deadline) -> None:
        """Step the journal's queue, perform what comes out, and set its timer."""
        journal, now = self._journal, self.world.clock.time_ms
        for effect in journal.step(input, now):
            match effect:
                case Write(facts=facts):
                    self._write(facts)
                case Answer(written=written):
                    for attest in written:
                        self._answer(0, attest.on_done, None)
                case _:
                    assert_never(effect)
        due = journal.next_deadline()
        if due not in (NEVER, self._journal_due):
            self._journal_due = due
            self.schedule(max(0, due - now), lambda: self._journal_is_due(due))

    def _journal_is_due(self, due: int) -> None:
        if self._journal_due == due:
            self._journal_due = NEVER
            if self._journal.next_deadline() <= self.world.clock.time_ms:
                self._step_journal(Deadline())

    def _write(self, facts: Sequence[Fact]) -> None:
        """Facts reach the journal later, and are lost with the process; a write that fails may be done."""
        world, engine = self.world, self.engine

        def act() -> None:
            failed = bool(facts) and world.chances(world.faults.writes)
            if self.engine is not engine:
                return
            if not failed or world.chances(0.5):
                world.journal.extend(facts)
            self.schedule(0, lambda: self._step_journal(Failed() if failed else Written()))

        world.later(world.delay() + self.journal_ms, act)

    def _ask_registry(
        self, effect: effects.CreateRow | effects.ClaimRow | effects.ReadRow | effects.ForgetRows
    ) -> None:
        world, answering = self.world, f"answer {self.proxy}"
        if isinstance(effect, effects.ClaimRow | effects.CreateRow):
            self.invariants.ownership(self, effect)
        writes = not isinstance(effect, effects.ReadRow)
        stalled = max(0, world.stalled.get(self.proxy, 0) - world.clock.time_ms) if writes else 0
        engine = self.engine

        def act() -> None:
            lost = world.chances(world.faults.answers)
            lost = (writes and world.loses(answering)) or lost
            answer: object = None
            away = world.clock.time_ms < self.deaf_until or not world.registry_answers()
            # Its watch has broken, and until it has all rows again nothing is claimed, as federation/etcd.py has it.
            away = away or (writes and self._loaded != world.registry.restored)
            if away or (lost and world.seed is not None and world.chances(0.5)):
                lost = True
            else:
                answer = self._act(effect)
                world.registry_changed()
            if lost:
                self._trace("has no answer from the registry")
                answer = RegistryUnavailable("no answer")
            if self.engine is engine:
                self._answer(world.delay(), effect.on_done, answer)

        world.later(world.delay() + stalled, act)

    def _act(self, effect: effects.CreateRow | effects.ClaimRow | effects.ReadRow | effects.ForgetRows) -> object:
        registry = self.world.registry
        if isinstance(effect, effects.ForgetRows):
            registry.forget(effect.rows)
            self._trace(f"removes the row of {', '.join(sorted(effect.rows))}")
            return None
        if isinstance(effect, effects.ReadRow):
            return registry.owner(effect.session)
        new = effect.ownership if isinstance(effect, effects.CreateRow) else effect.new
        answer = registry.claim(effect.session, getattr(effect, "expected", None), new)
        word = ("deletes" if new.deleted else "takes") if answer.won else "does not get"
        self._trace(f"{word} {effect.session} at epoch {new.epoch}")
        return answer

    def append(self, effect: effects.Append) -> None:
        """Appends of one proxy stay in order; after an error nobody knows whether it was done."""
        world, now = self.world, self.world.clock.time_ms
        if self.is_log_replaced:
            self._answer(1, effect.on_done, LogReplaced("the log is not what was read of it"))
            return
        if self.guarded_log.has_to_wait:
            self.guarded_log.add_waiting(lambda: self.append(effect))
            return
        self.appends_until = max(self.appends_until, now + world.delay() + self.append_ms)
        failed = world.chances(world.faults.writes)
        done = not failed or world.chances(0.5)
        engine, interruptions = self.engine, world.logs[self.site].interruptions

        def replaced(why: str, end: int | None = None) -> LogReplaced:
            # Answered first: what is not known is published again.
            world.later(1, lambda: self.restart_on_new_log(why, end) if self.engine is engine else None)
            return LogReplaced(why)

        def act() -> None:
            read_below = self.read_below if self.engine is engine else 0
            answer: Any = None
            if interruptions != world.logs[self.site].interruptions:
                answer = LogUnavailable("the connection broke off")
            elif done:
                answer = world.appended(self.site, list(effect.records))
                if answer and answer[0] < read_below:
                    answer = replaced("the log appends where it was read already", answer[0])
                elif answer and self.engine is engine and not failed:
                    self.advance_seen(answer[-1] + 1)
            if failed and not isinstance(answer, LogReplaced):
                answer = LogUnavailable("no answer")
            if self.engine is engine:
                self._answer(world.delay(), effect.on_done, answer)

        world.later(self.appends_until - now, act)

    def _use_store(self, effect: effects.Save | effects.LoadEntries | effects.FindOutdated) -> None:
        saving = isinstance(effect, effects.Save)
        if isinstance(effect, effects.Save):
            self.invariants.saves(self, effect)
        full = saving and (self.full or self.world.chances(self.world.faults.writes))
        unreadable = not saving and self.unreadable > 0
        self.unreadable -= unreadable
        why = "the disk is full" if full else "the disk cannot be read"

        def act(engine: Engine) -> None:
            if full or unreadable:
                self.world.note(f"{self.proxy}: {why}", by=self.proxy)
                effect.on_done(StoreFailed(why))
                return
            try:
                effect.on_done(self._stored(effect))
            except StoreDamaged as error:
                self._trace(f"begins anew: {error}")
                effect.on_done(error)
                self.world.later(1, partial(self._begin_without_disk, engine))

        slow = self.world.delay(SLOW_DISK_MS) if self.world.clock.time_ms < self.slow_until else 0
        self._afterwards(self.world.delay() + slow, act)

    def _stored(self, effect: effects.Save | effects.LoadEntries | effects.FindOutdated) -> Any:
        """Raises StoreDamaged."""
        if isinstance(effect, effects.Save):
            self.store.apply(effect.batch)
            return None
        if isinstance(effect, effects.FindOutdated):
            return self.store.outdated(effect.session, effect.windows, effect.limit)
        return self.store.entries(effect.session, effect.after, effect.limit, effect.passing)

    def _begin_without_disk(self, engine: Engine) -> None:
        """The store is damaged: the node ends, and begins with an empty one, as node/service.py does."""
        if self.engine is engine:
            self.crash(disk_lost=True)
            self.start()

    def _put(self, effect: effects.PutCheckpoint) -> None:
        engine, world = self.engine, self.world
        error: WaypostError | None = None
        if world.loses(f"put {self.proxy}") or world.chances(world.faults.writes):
            error = LogUnavailable("no answer")

        def act() -> None:
            answer = error
            if answer is None:
                try:
                    self.invariants.restores.recorded(effect.checkpoint, world.changelogs[self.site])
                    world.changelogs[self.site].put(effect.checkpoint)
                except CheckpointOutdated as outdated:
                    answer = outdated
            if self.engine is engine:
                self._answer(world.delay(), effect.on_done, answer)

        world.later(world.delay(), act)

    def _note(self, effect: effects.NoteCheckpoints) -> None:
        def act(engine: Engine) -> None:
            if self.world.registry_answers():
                self.world.registry.note_checkpoints(effect.ranks)
                effect.on_done(None)
            else:
                effect.on_done(RegistryUnavailable("no answer"))

        self._afterwards(NOTE_MS, act)

    def _put_site(self, effect: effects.PutSite) -> None:
        """Write it, or not, with the process that writes it."""

        def act(engine: Engine) -> None:
            self.world.changelogs[self.site].put_site(effect.snapshot)
            effect.on_done(None)

        self._afterwards(PUT_SITE_MS, act)

    def _forget_checkpoints(self, effect: effects.ForgetCheckpoints) -> None:
        """Remove them, or not, with the process that does it."""

        def act(engine: Engine) -> None:
            self.world.changelogs[self.site].forget(effect.deleted)
            self._trace(f"removes the checkpoints of {', '.join(sorted(effect.deleted))}")
            effect.on_done(None)

        self._afterwards(PUT_SITE_MS, act)

    def _find(self, effect: effects.FindCheckpoint | effects.FetchHistory) -> None:
        world = self.world
        world.catch_ups += isinstance(effect, effects.FetchHistory)

        def act(engine: Engine) -> None:
            if isinstance(effect, effects.FetchHistory):
                there = [node for node in world.live_nodes(effect.site) if node.version == self.version]
                serving = engine if effect.site == self.site else there[0].engine if there else None
                answer: Any = RegistryUnavailable("nobody there")
                if serving is not None:
                    with suppress(Unreachable):
                        answer = history(world, serving.state, effect)
                self._answer(world.delay(), effect.on_done, answer)
            else:
                noted = world.registry.noted.get(effect.session)
                others = [] if effect.own_site else sorted({*engine.env.cluster.changelogs.values()} - {self.site})
                read = [site for site in others if not world.chances(world.faults.answers)]
                changelogs = [world.changelogs[site] for site in (self.site, *read)]
                checkpoints = tuple(found for changelog in changelogs for found in changelog.latest(effect.session))
                complete = len(read) == len(others)
                self._answer(world.delay(), effect.on_done, effects.FoundCheckpoint(checkpoints, complete, noted=noted))

        self._afterwards(world.delay(), act)

    def _find_log_end(self, effect: effects.FindLogEnd) -> None:
        failed = self.world.chances(self.world.faults.writes)

        def act(engine: Engine) -> None:
            is_away = self.world.clock.time_ms < self.world.logs[self.site].away_until
            answer = LogUnavailable("no answer") if failed or is_away else len(self.world.logs[self.site])
            self._answer(self.world.delay(), effect.on_done, answer)

        self._afterwards(self.world.delay(), act)

    def _check_password(self, effect: effects.Verify | effects.Hash) -> None:
        """Plain comparison, and a salt that is a number, in place of a hash."""

        def act(engine: Engine) -> None:
            if isinstance(effect, effects.Verify):
                effect.on_done(effect.hash.partition("/")[2] == effect.password)
            else:
                effect.on_done([f"{self.world.salt()}/{password}" for password in effect.passwords])

        self._afterwards(self.world.delay(HASH_MS), act)

    _performers: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        effects.Send: _send,
        effects.Hangup: _hang_up,
        effects.SendPeer: _send_peer,
        effects.Attest: _attest,
        effects.CreateRow: _ask_registry,
        effects.ClaimRow: _ask_registry,
        effects.ReadRow: _ask_registry,
        effects.ForgetRows: _ask_registry,
        effects.Append: append,
        effects.Save: _use_store,
        effects.LoadEntries: _use_store,
        effects.FindOutdated: _use_store,
        effects.PutCheckpoint: _put,
        effects.PutSite: _put_site,
        effects.NoteCheckpoints: _note,
        effects.ForgetCheckpoints: _forget_checkpoints,
        effects.FindCheckpoint: _find,
        effects.FetchHistory: _find,
        effects.FindLogEnd: _find_log_end,
        effects.Verify: _check_password,
        effects.Hash: _check_password,
    }
    """Who performs what."""
