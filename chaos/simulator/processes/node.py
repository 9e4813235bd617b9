"""One proxy in a world: its process, its disk, its lease, and its shell.

The shell performs the effects as node/shell/node.py does, on the plain parts of
chaos/simulator/environment/fake_backends.py; the world says when each of them happens, and what comes of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, assert_never

from chaos.simulator.checks.invariants import Invariants
from chaos.simulator.environment.environment import Environment, url_of
from chaos.simulator.environment.fake_backends import PlainStore
from chaos.simulator.processes.effect_runner import EffectRunner, PerformingProcess
from chaos.simulator.processes.guarded_log import GuardedLog
from chaos.simulator.processes.links import SECRET, Links, LinkShell
from federation.links.effects import LinkEffect
from federation.links.inputs import LinkInput
from federation.messages import SeenRequest, SeenResponse
from federation.ports import ProxyRow, RegistryEvent
from node.machines import lifecycle
from node.machines.lease_keeper import LeaseKeeper
from node.machines.lifecycle import LeaseEffect, Lifecycle, LifecycleEffect, LifecycleInput, LifecycleState
from node.machines.log_guard import ClaimLogRow, FindEnd, FindFirst, LogGuard, ReadLogRow, ReadRecords, Wait
from node.machines.log_start import (
    FindSnapshot,
    FindTime,
    LogStart,
    ReadSecret,
    Report,
    StartQuestion,
    find_log_start,
)
from node.machines.procedure import resume
from node.machines.runtime import Begin, Broke, Runtime, RuntimeEffect, Stream, StreamState
from node.peers.peers import name_of
from proxy.core import effects
from proxy.core.answers import after_all
from proxy.core.inputs import (
    EffectCompleted,
    EngineInput,
    LeaseGranted,
    LeaseLost,
    LeaseRenewed,
    Leave,
    RecordsRead,
    RegistryReported,
    StopHandovers,
    StoreAll,
)
from proxy.core.settings import EngineBounds, Settings
from proxy.core.store_port import Restored
from proxy.engine import Engine
from waypost.clock import NEVER
from waypost.errors import (
    HistoryTruncated,
    LogUnavailable,
    Refused,
)
from waypost.identity import Incarnation, Origin, ProxyId, SiteId

LEASE_MS = 2_000
EXPIRY_MS = 1_500
FORGET_MS = 50
SNAPSHOT_MS = 1_500


class Node(PerformingProcess):
    """One proxy's process, its disk, and its shell: it performs the effects as node/shell/node.py does."""

    link_shell: LinkShell
    """The shell of its site's links, in this process."""

    def __init__(
        self,
        world: Environment,
        invariants: Invariants,
        links: Links,
        *,
        proxy: ProxyId,
        site: SiteId,
        neighbours: tuple[SiteId, ...],
        bounds: EngineBounds,
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
        super().__init__(world, invariants, settings)
        self._links = links
        self._starts = self._started_at = 0
        self._received_at = 0
        self._watched = 0
        """The revision of the registry up to which the watch has told."""
        self._tree_received_at = self._tree_watched = 0
        self._tick_at = 0
        self._will_read = False
        """The tail will look into the log by itself."""
        self._replaced: Engine | None = None
        """The engine whose log was replaced: it keeps what it has, and ends."""
        self._lifecycle = Lifecycle(Incarnation(""))
        self._life_due = NEVER

    # ------------------------------------------------------------ life cycle

    def start(self) -> None:
        """Begin a process of this proxy, which is down, with what its store has; not if its site has ended for good."""
        world = self.world
        if self.site in world.dead_sites:
            return
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
        self._received_at = world.clock.time_ms
        world.registry.expire(world.clock.time_ms)
        world.registry_changed()
        self._watched, self.loaded = world.revision, world.registry.restored
        self._tree_watched, self._tree_received_at = world.tree_revision, world.clock.time_ms
        self._runtime = Runtime(self.engine, self.link_shell.machine)
        self._effects = EffectRunner(self)
        self._follow(self._runtime.watch, self._open_watch, Begin())
        self._follow(self._runtime.log, self.read, Begin())
        if self.leaving:
            # The log is confirmed already, while its tail finds that it is another one.
            self.guarded_log.identify(lambda: None)
        else:
            self._live_by(lifecycle.Start())
        self.trace("starts")

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
            self.trace(f"begins log epoch {start.row.log_epoch} of {self.site}")
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
        """Whether the process is ending in good order, as after SIGTERM."""
        return self._lifecycle.is_leaving

    @property
    def is_log_replaced(self) -> bool:
        """Whether the log was found not to be the one that was read; the process ends for that, and begins anew."""
        return self._replaced is not None and self._replaced is self.engine

    def advance_seen(self, below: int) -> None:
        """Note that the process has read its site's log, or has an answer to an append, up to below this offset.

        A lower offset than an earlier one changes nothing.
        """
        log = self.world.logs[self.site]
        self.read_below, log.seen_below = max(self.read_below, below), max(log.seen_below, below)

    def seen_beyond(self, origin: Origin, offset: int) -> None:
        """Note that a neighbour has seen an origin of this site up to `offset`; the next renewal checks the log."""
        self.guarded_log.guard.seen_beyond(origin, offset)

    def seen(self, origin: Origin) -> int:
        """Return the highest offset of an origin that this process has seen; -1: none."""
        return self.guarded_log.guard.seen(origin, self.read_below)

    def answer_seen(self, request: SeenRequest) -> SeenResponse | None:
        """Return what this process, which runs, has seen of the origin that another one asks for; None: it does not
        know yet.
        """
        return self.guarded_log.guard.answer(request, self.read_below)

    @property
    def is_announced(self) -> bool:
        """Whether the process can be asked by others: the registry has its row, and it was not stopped since."""
        is_confirming = self.engine is not None and self._lifecycle.state is LifecycleState.CONFIRMING
        return self.ready or is_confirming

    def could_act_for(self, for_ms: int) -> bool:
        """Tell whether the process has a lease, is not ending, and was up, not stalled, and in touch with the registry
        for the last `for_ms` ms; 0: whether this is so now.
        """
        world, since = self.world, self.world.clock.time_ms - for_ms
        hindered_until = (self._started_at, self.deaf_until, self.stalled_until, world.registry_away_until)
        return self.ready and not self.leaving and not self.still and max(hindered_until) < since

    @property
    def is_watch_current(self) -> bool:
        """Whether the registry's watch has told the process of all that happened; True also if the process is down."""
        is_open = self._runtime.watch.state is StreamState.OPEN
        return self.engine is None or (is_open and self._received_at < self.world.clock.time_ms)

    @property
    def appends_wait(self) -> bool:
        """Whether the log was out of reach, and nothing is appended until it was compared with what was read of it."""
        return self.guarded_log.is_interrupted

    def log_interrupted(self) -> None:
        """Have the process compare its site's log, which was out of reach, with what was seen of it, a moment later.

        A process that is down, or ends because its log was replaced, ignores it.
        """
        if self.engine is not None and not self.is_log_replaced:
            self.schedule(self.world.delay(), self.guarded_log.compare)

    def restart_on_new_log(self, why: str, end: int | None = None) -> None:
        """Have the process end and begin anew, with its links and clients, since its log is not what was read of it.

        A process that is down, or ends for this reason already, ignores it.

        Args:
            why: the reason, in words, for the trace.
            end: the offset from which on the log was another one when that was noticed; None: where the log ends now.
        """
        engine = self.engine
        if engine is None or self._replaced is engine:
            return
        self._replaced = engine
        self.trace(f"begins anew: {why}")
        self.guarded_log.enter_next_epoch(end, lambda: self._live_by(lifecycle.Leave(marked=False)))

    def shut_down(self) -> None:
        """Begin to end the process in good order, as after SIGTERM; without effect if it is down or ending."""
        if self.engine is not None and not self.leaving:
            self.trace("shuts down")
            self._live_by(lifecycle.Leave(marked=True))

    def trace(self, what: str) -> None:
        """Note, in the trace and in the narrative, what the process does.

        Args:
            what: in words, such as ``starts``; the name of the proxy is put before.
        """
        self.world.note(f"{self.proxy} {what}", narrate=True, by=self.proxy)

    def crash(self, *, disk_lost: bool = False) -> None:
        """End the process at once; its connections break, and what it had not stored is lost.

        Args:
            disk_lost: whether its store is lost too.
        """
        if disk_lost:
            self.store = PlainStore()
        self._gone(f"crashes{' and loses its disk' if disk_lost else ''}")

    def _gone(self, how: str) -> None:
        self.invariants.restores.disturbed(f"{self.proxy} {how}")
        self.engine, self.ready = None, False
        self.trace(how)
        for wire in list(self.wires.values()):
            wire.close()

    def step(self, input: EngineInput | LinkInput) -> None:
        """Step engine and links, perform what comes out, and set the timers again; do nothing if the process is down.

        A process that is stalled does so when the stall is over.
        """
        engine = self.engine
        if engine is None:
            return
        if self.still and self.stalls(partial(self._for_incarnation, engine, input)):
            return
        wanted = self._runtime.step(input, self.clock.now_ms(), self.clock.unix_ms())
        self._perform_all(engine, wanted)

    def _perform_all(self, engine: Engine, wanted: Sequence[RuntimeEffect]) -> None:
        for effect in wanted:
            if isinstance(effect, LinkEffect):
                self.link_shell.perform(effect)
            else:
                self._effects.perform(effect)
        self._arm(engine)

    def stall(self, for_ms: int) -> None:
        """Stop the process where it is, for `for_ms` ms or the rest of a longer stall; what comes meanwhile waits."""
        self.trace(f"stalls for {for_ms} ms")
        self.invariants.restores.disturbed(f"{self.proxy} stalls")
        self.still = True
        self.stalled_until = max(self.stalled_until, self.world.clock.time_ms + for_ms)

    def _arm(self, engine: Engine) -> None:
        if self.leaving:
            return
        now = self.world.clock.time_ms
        due = max(now + 1, self._runtime.next_deadline())
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
            wanted = self._runtime.tick(self.clock.now_ms(), self.clock.unix_ms())
            self.invariants.ticked(self.proxy, bool(wanted))
            self._perform_all(engine, wanted)

    def afterwards(self, wait_ms: int, action: Callable[[Engine], None]) -> None:
        """Call `action` with the engine in `wait_ms` ms, as a step of the engine, and perform what comes out.

        `action` is not called if the process has ended by then.
        """
        completed = EffectCompleted(action, self.engine)
        self.world.later(wait_ms, partial(self._for_incarnation, self.engine, completed))

    def _for_incarnation(self, engine: Engine | None, input: EngineInput | LinkInput) -> None:
        if self.engine is engine:
            self.step(input)

    def schedule(self, wait_ms: int, action: Callable[[], None]) -> None:
        """Call `action` in `wait_ms` ms, outside the engine, unless the process has ended by then.

        If the process is stalled then, `action` is called when the stall is over.
        """
        engine = self.engine

        def act() -> None:
            if self.engine is engine and not (self.still and self.stalls(act)):
                action()

        self.world.later(wait_ms, act)

    def log_grew(self) -> None:
        """Have the process read on in its site's log, a moment later, if it runs then."""
        if not self._will_read:
            self._will_read = True
            self.world.later(self.world.delay(), self.read)

    def read(self) -> None:
        """Step the engine with the next records of the site's log, and schedule the next read as long as there are any.

        Nothing is read if the process is down or ending, the log's stream is not open, or the log was not compared
        since it was out of reach; by the world's faults the stream breaks instead, and is opened again later. A stalled
        process reads when the stall is over. A log that is not what was read of it restarts the process; one whose
        beginning is gone crashes it.
        """
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
        if self.world.clock.time_ms < log.away_until:
            # It began while the log was away.
            self._will_read = True
            self.world.later(log.away_until - self.world.clock.time_ms + self.world.delay(), self.read)
            return
        start = self.engine.state.position
        if start > len(log) or (start > log.first and log.has(self.engine.state.acceptance.mark) is False):
            self.restart_on_new_log(f"the log ends at {len(log)}, and was read up to {start}")
            return
        try:
            batch = log.read(start, start + self.world.delay(6) + 2)
        except HistoryTruncated as error:
            self.trace(f"cannot go on: {error}")
            self.crash()
            return
        if batch:
            self.step(RecordsRead(batch))
            self.advance_seen(batch[-1][0] + 1)
            self._effects.log_folded(batch[-1][0] + 1)
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

    def _live_by(self, input: LifecycleInput | None = None) -> None:
        """Perform what follows from an input of the life cycle, or is due of it, and set its timer."""
        running, now = self._lifecycle, self.world.clock.time_ms
        for effect in running.tick(now) if input is None else running.step(input, now):
            self._perform_lifecycle(effect)
        due = running.next_deadline()
        if due not in (NEVER, self._life_due) and running is self._lifecycle:
            self._life_due = due
            self.schedule(max(0, due - self.world.clock.time_ms), lambda: self._overdue(due))

    def _overdue(self, due: int) -> None:
        if self._lifecycle.next_deadline() == due:
            self._live_by()

    def _perform_lifecycle(self, effect: LifecycleEffect) -> None:
        """Perform an effect of the life cycle, as node/shell/node.py does."""
        match effect:
            case lifecycle.FindLogEnd():
                self._find_log_end()
            case lifecycle.AwaitLog(end=end):
                self._await_log(end)
            case lifecycle.IdentifyLog():
                self.guarded_log.identify(lambda: self._live_by(lifecycle.LogIdentified()))
            case lifecycle.LearnSecret():
                self._learn_secret()
            case lifecycle.Announce(incarnation=incarnation):
                self._announce(incarnation)
            case lifecycle.ConfirmLog():
                self.guarded_log.confirm(self._log_confirmed)
            case lifecycle.KeepLease(incarnation=incarnation):
                self._renew_when_due(incarnation, LeaseKeeper(LEASE_MS, self.world.clock.time_ms))
            case lifecycle.GrantLease() | lifecycle.ProlongLease() | lifecycle.LoseLease():
                self._perform_lease(effect)
            case lifecycle.HandBack():
                self.step(StopHandovers())
                self._await_handed_back()
            case lifecycle.WriteFinally(marked=marked):
                self._write_finally(marked=marked)
            case lifecycle.RevokeLease():
                self._revoke()
            case lifecycle.End():
                self._end()
            case _:
                assert_never(effect)

    def _perform_lease(self, effect: LeaseEffect) -> None:
        match effect:
            case lifecycle.GrantLease(incarnation=incarnation, until_ms=until_ms):
                self.ready = True
                self.link_shell.incarnation = incarnation
                self.step(LeaseGranted(incarnation, until_ms))
            case lifecycle.ProlongLease(until_ms=until_ms):
                self.step(LeaseRenewed(until_ms))
            case lifecycle.LoseLease():
                self.ready = False
                self.step(LeaseLost())
            case _:
                assert_never(effect)

    def _find_log_end(self) -> None:
        if self._lifecycle.state is not LifecycleState.STARTING:
            return
        self.guarded_log.guard.prepare_to_read()
        try:
            self.world.check_log(self.site)
        except LogUnavailable:
            self.schedule(10, self._find_log_end)
            return
        self._live_by(lifecycle.LogEndFound(len(self.world.logs[self.site])))

    def _learn_secret(self) -> None:
        if self._lifecycle.state is not LifecycleState.LEARNING:
            return
        if self._is_deaf:
            self.schedule(10, self._learn_secret)
        else:
            self._live_by(lifecycle.SecretLearnt())

    @property
    def _is_deaf(self) -> bool:
        """The registry does not answer this process now."""
        return self.world.clock.time_ms < self.deaf_until or not self.world.registry_answers()

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
        if self._is_deaf or world.stalled.get(self.proxy, 0) > world.clock.time_ms:
            self.schedule(10, lambda: self._announce(incarnation))
            return
        until_ms = world.clock.time_ms + LEASE_MS
        row = ProxyRow(
            proxy=self.proxy,
            incarnation=incarnation,
            site=self.site,
            url=url_of(self.proxy),
            changelog=self.site,
            lease_ttl_ms=LEASE_MS,
        )
        world.registry.announce(row, until_ms)
        world.registry_changed()
        self._live_by(lifecycle.Announced(until_ms))

    def _log_confirmed(self) -> None:
        # The lease may have ended meanwhile, or the process be leaving.
        if self._lifecycle.state is LifecycleState.CONFIRMING:
            self._live_by(lifecycle.LogConfirmed())

    def _await_handed_back(self) -> None:
        assert self.engine is not None
        if self.engine.is_handing_over:
            self.schedule(10, self._await_handed_back)
        else:
            self._live_by(lifecycle.HandedBack())

    def _write_finally(self, *, marked: bool) -> None:
        on_done = after_all(3, lambda _: self.schedule(0, lambda: self._live_by(lifecycle.FinalWritesDone())))
        self.step(Leave(on_done, marked))
        self.step(StoreAll(on_done))
        self._effects.once_written(lambda _: on_done(None))

    def _revoke(self) -> None:
        self.invariants.gives_back(self)
        if not self._is_deaf:
            self.world.registry.revoke(self.proxy, self._lifecycle.incarnation)
            self.world.registry_changed()
            self._live_by(lifecycle.Revoked())

    def _end(self) -> None:
        replaced = self.is_log_replaced
        self._gone("ends")
        if replaced:
            self.start()

    def _renew_when_due(self, incarnation: Incarnation, keeper: LeaseKeeper) -> None:
        pause_ms = max(0, keeper.next_deadline() - self.world.clock.time_ms)
        self.schedule(pause_ms, lambda: self._renew(incarnation, keeper))

    def _renew(self, incarnation: Incarnation, keeper: LeaseKeeper) -> None:
        now = self.world.clock.time_ms
        if self.leaving or self.is_log_replaced:
            return
        if not self._is_deaf:
            reports = self.ready and self.engine is not None and self.engine.env.cluster.is_site_reporter
            self.guarded_log.check(reports=reports)
            self.world.registry.expire(now)
            held = self.world.registry.renew(self.proxy, incarnation, now + LEASE_MS)
            self.world.registry_changed()
            if not held:
                self._starts += 1
                self._live_by(lifecycle.LeaseEnded(Incarnation(f"{self.proxy}#{self._starts}")))
                return
            self.schedule(self.world.delay(), lambda: self._renewed(incarnation, keeper, now))
        else:
            keeper.failed(now)
            self._renew_when_due(incarnation, keeper)

    def _renewed(self, incarnation: Incarnation, keeper: LeaseKeeper, began_ms: int) -> None:
        until_ms = keeper.renewed(began_ms)
        self._live_by(lifecycle.Renewed(until_ms))
        self._renew_when_due(incarnation, keeper)

    def receive_event(self, event: RegistryEvent) -> None:
        """Have the registry's watch bring the process an event that concerns no link: later, behind all earlier ones.

        A process does not get it if it has ended or is ending by then, if its watch is broken then, or if the watch has
        reported all rows since.
        """
        revision = self.world.revision

        def deliver() -> None:
            if revision > self._watched and self._runtime.watch.state is StreamState.OPEN and not self.leaving:
                self._watched = revision
                self.step(RegistryReported(event))

        self.schedule(self._next_word(), deliver)

    def receive_tree_event(self, event: RegistryEvent) -> None:
        """Have the registry's watch bring the process an event of links or their tree: later, behind all earlier ones.

        A process does not get it if it has ended or is ending by then, if its watch is broken then, or if the watch has
        reported all rows since.
        """
        revision, world = self.world.tree_revision, self.world
        now, away = world.clock.time_ms, max(self.deaf_until, world.registry_away_until)
        self._tree_received_at = max(self._tree_received_at, now + world.tree_delay(30), away)

        def deliver() -> None:
            if revision > self._tree_watched and self._runtime.watch.state is StreamState.OPEN and not self.leaving:
                self._tree_watched = revision
                self.step(RegistryReported(event))

        self.schedule(self._tree_received_at - now, deliver)

    def watch_breaks(self) -> None:
        """Break the registry's watch; when it is open again, all rows come first. A process that is down ignores it."""
        if self.engine is not None and self._runtime.watch.state is StreamState.OPEN:
            self._follow(self._runtime.watch, self._open_watch, Broke())

    def _open_watch(self) -> None:
        """Be told of all rows; at the start of the process at once."""

        def deliver() -> None:
            if not self.leaving:
                self._watched, self.loaded = self.world.revision, self.world.registry.restored
                self._tree_watched = self.world.tree_revision
                reloaded = self.world.registry.reloaded()
                self.step(RegistryReported(reloaded))

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

    # ------------------------------------------------------------ peers and appends

    def append(self, effect: effects.Append) -> None:
        """Append the effect's records to the site's log, behind all earlier appends of this process.

        `effect.on_done` is called later with the offsets, or with a WaypostError: after LogUnavailable the records may
        or may not be in the log. It is never called if the process has ended by then.
        """
        self._effects.perform(effect)

    def refuse(self, peer: ProxyId, error: Refused, what: str) -> None:
        """Count and trace the refusal of a message of another proxy, as node/http/server.py does, if the process runs.

        Args:
            peer: the proxy that sent the message.
            error: why it is refused.
            what: the message, in words: ``what a1 says``.
        """
        if self.engine is not None:
            self.engine.output.refused.note(name_of(error), peer, str(error))
            self.trace(f"refuses {what}: {error}")
