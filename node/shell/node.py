"""One running node: it receives, steps the engine, performs what comes out, and sets the timer again.

What is decided, the engine decides; what fails here is told to the engine, or tried again with back-off. Beside that it
runs the loops that a process needs (log, watch, lease, journal, watchdog), and lets clients wait where it is full.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar, assert_never

import structlog

from federation.links.effects import LinkEffect
from federation.links.endpoints import LinkEndpoints
from federation.links.inputs import LinkInput, LogAnswers, NeighbourSent
from federation.links.link_receiver import ReceiverView
from federation.messages import (
    CatchUp,
    CatchUpFailed,
    CaughtUp,
    LeaseGranted,
    LeaseRequest,
    LinkAppended,
    LinkOpen,
    LinkRecords,
    LinkWants,
    SeenRequest,
    SeenResponse,
)
from federation.ports import Batch, Claimed, LinkRow, Reloaded, WatchAlive
from federation.site.log_epochs import federation_of
from handover.messages import RelayDown
from node.configuration.config import NodeConfig
from node.health.dependency_health import LINK_FROM, STALLED, Dependency, DependencyHealth
from node.health.operator_log import OperatorLog
from node.health.rate_limited_log import RateLimitedLog
from node.health.readiness import Condition, why_not_ready
from node.health.self_check import SelfCheck
from node.health.supervision import endless
from node.health.watchdog import INTERVAL_S as WATCHDOG_INTERVAL_S
from node.health.watchdog import Progress, Watchdog
from node.machines import lifecycle
from node.machines.append_admission import AppendCompleted
from node.machines.lifecycle import (
    LeaseEffect,
    LeavingEffect,
    Lifecycle,
    LifecycleEffect,
    LifecycleInput,
    LifecycleState,
)
from node.machines.log_guard import LogGuard
from node.machines.runtime import Begin, Broke, Runtime, RuntimeEffect, Stream
from node.peers.directory import NodeDirectory
from node.peers.history_requests import Requests
from node.peers.peers import PeerMessage, Peers
from node.peers.routes import Routed
from node.resources.client_shares import ClientShares
from node.resources.free_memory import trim_memory
from node.resources.garbage_collection import without_collection
from node.security.certificate_check import CertificateCheck
from node.security.tls import TlsFiles, tls_of
from node.shell.appends import Appends
from node.shell.client_connections import ClientConnections, Connection
from node.shell.effect_runner import EffectRunner
from node.shell.journal_writer import JournalWriter
from node.shell.lease_renewal import Heart
from node.shell.links import Links
from node.shell.name_claim import NameClaim
from node.shell.tasks import Tasks
from node.site_log.guarded_log import GuardedLog
from node.site_log.log_fold import LogFolding
from node.site_log.witnesses import Witnesses
from node.startup.backends import Backends, own_folder
from node.startup.engine_settings import engine_settings
from node.startup.instance import Instance
from node.startup.log_start import run_log_start
from proxy.core import effects, inputs
from proxy.core.store_port import Restored
from proxy.engine import Engine
from proxy.queue_lengths import Waiting
from waypost.clock import NEVER, Clock, SystemClock
from waypost.errors import (
    HistoryTruncated,
    Internal,
    LogReplaced,
    NameTaken,
    NoAnswer,
    Refused,
    StoreDamaged,
    Unreachable,
    WaypostError,
)
from waypost.identity import Incarnation, ProxyId, SiteId, edge, new_incarnation
from waypost.limits import (
    APPENDS_UNDER_WAY,
    CONNECTION_QUEUE_BYTES,
    EFFECT_STALL_MS,
    FACTS_BYTES,
    FACTS_WAITING,
    FILTERS_STALL_MS,
    GUARD_STALL_MS,
    JOURNAL_STALL_MS,
    LINK_STALL_MS,
    MAX_UNANSWERED_PUBLISHES,
    PEER_QUEUE,
    STORE_BATCH,
    TAIL_STALL_MS,
    TIMER_STALL_MS,
    WATCH_STALL_MS,
)
from waypost.messages import ClientMessage, DeliverEncoded
from waypost.table_machine import Deadline

T = TypeVar("T")
log = structlog.get_logger("waypost")
STARTING = "the proxy is starting"
MARK_S = 10.0
POLL_S = 2.0
RESTART_ERRORS = (StoreDamaged, LogReplaced, HistoryTruncated)
"""After these another node begins in place of the one that ended (node/service.py)."""
LOG_END_S = 2.5
"""Time for the log to say where it ends, in seconds. With POLL_S before that, one that stands still is noticed in 5 s.
"""
LOG_GUARD_S = 10.0
APPENDS_FAIL_MS = 20_000
"""Time after a failed append for which new clients are better sent elsewhere, in ms: longer than an append may take."""
LEASE_STALLS = 3
"""Times to live of a lease without a renewal."""


class Node:
    """The process of a proxy: it performs what engine, links and life cycle decide. `backends` and `links` are there
    once it has started.

    Args:
        open_backends: opens the backends that the node stands on; the node closes them.
        incarnation: the name under which it takes its first lease.
        url: returns the address at which clients and peers reach this node, once it listens.
        clock: None: the system's.
        rng: None: seeded by the system.
    """

    backends: Backends
    links: Links
    guarded_log: GuardedLog
    witnesses: Witnesses
    instance: Instance
    name: NameClaim
    _appends: Appends

    def __init__(
        self,
        config: NodeConfig,
        open_backends: Callable[[], Awaitable[Backends]],
        incarnation: Incarnation,
        url: Callable[[], str],
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.config = config
        self.tls = tls_of(config)
        self.proxy = ProxyId(config.name)
        self.site = SiteId(config.site)
        self.engine: Engine | None = None
        self._open_backends = open_backends
        self.log_end = 0
        """Where the site log ended when we looked last."""
        self._url = url
        self._lifecycle = Lifecycle(incarnation)
        self.clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self.health = DependencyHealth(
            self._rng,
            self.clock,
            log=f"Kafka at {config.kafka}" if config.kafka else f"the log in {config.data}",
            registry=f"etcd at {config.etcd}" if config.etcd else f"the registry in {config.data}",
        )
        self._rate_limited = RateLimitedLog(self.clock)
        self._tasks = Tasks(self._rate_limited)
        self.watchdog = Watchdog()
        self._watch_signs = self._ticks = self._guard_checks = 0
        self._connections = ClientConnections(config.max_connections, config.max_connections_per_address)
        self.shares = ClientShares(config.memory, config.address_change_rate)
        self._timer: asyncio.TimerHandle | None = None
        self._arming = False
        self._closing = False
        self._is_log_replaced = False
        self.certificate: CertificateCheck | None = None
        self._store_damaged = False
        """The disk had been damaged when this node began."""
        self._heart = Heart()
        self._room = asyncio.Event()
        self._to_confirm = asyncio.Event()
        """The life cycle wants the log to be compared with what other proxies have seen of it."""
        self._journal = JournalWriter(self.clock, self._on_facts_written, self._on_journal_tried)
        self._has_opened = False
        self.directory = NodeDirectory(self.site)
        peer_tls = self.tls.peers if self.tls else None
        self.peers = Peers(self.proxy, self.directory, clock=self.clock, tls=peer_tls)
        self.effect_runner = EffectRunner(config, Requests(self.peers, self.directory), self.health, self.clock)
        self._operator_log = OperatorLog(self.proxy, url, self.health, self.clock)

    @property
    def why_not_ready(self) -> str:
        """Why no new client is to be sent to this node now, in words; empty: nothing speaks against it.

        A registry that is away for longer than our lease ends that lease: sessions cannot be served without one.
        """
        if self._closing:
            return "it is shutting down"
        if self.engine is None:
            return "it is starting"
        cluster, lease = self.engine.env.cluster, self.engine.env.lease
        condition = Condition(
            name_taken_at=self.name.waits_for,
            compares_log=self._lifecycle.state is LifecycleState.CONFIRMING,
            has_lease=lease.holds_at(self.clock.now_ms()),
            is_watching=cluster.is_watching,
            health=self.health.now,
            appends_fail=self.health.has_failed_within(Dependency.APPENDS, APPENDS_FAIL_MS),
            stalled=self.watchdog.why_not_ready,
            is_drained=self.engine.session_moves.drain_row is not None,
        )
        return why_not_ready(condition)

    @property
    def _engine(self) -> Engine:
        if self.engine is None:
            raise Internal("the node has not started yet")
        return self.engine

    @property
    def serving_engine(self) -> Engine:
        """The engine of this node. Raises Unreachable: the node has not started yet."""
        if self.engine is None:
            raise Unreachable(STARTING)
        return self.engine

    # ------------------------------------------------------------ life cycle

    async def run(self) -> None:
        """Start, and serve until cancelled; in any case leave in order, and close all. Call it once.

        Raises:
            LogReplaced, HistoryTruncated, StoreDamaged: another node has to begin in the place of this one
                (RESTART_ERRORS).
            WaypostError: any other reason for which the node cannot go on, such as NameTaken.
            ExceptionGroup: a loop failed by an exception that is no WaypostError; such errors as above may be in it,
                too.
        """
        try:
            await self._start()
            async with asyncio.TaskGroup() as group:
                loops = {
                    "tail": self._follow(self.runtime.log, self._read_log, Dependency.LOG),
                    "watch": self._follow(self.runtime.watch, self._read_watch, Dependency.REGISTRY),
                    "lease": self._live(),
                    "journal": self._journal.run(self.backends.journal),
                    "log end": self._follow_log_end(),
                    "watchdog": self._watch_progress(),
                    "self check": self._check_self(),
                    "memory": trim_memory(),
                    "heart": self._heart.beat(),
                    "log guard": self.guarded_log.until_replaced(),
                    "interruptions": self.guarded_log.after_interruptions(),
                    "confirmation": self._confirm_log(),
                    "store": self.effect_runner.until_damaged(),
                    "changelog": self._mend_changelog(),
                }
                for name, loop in loops.items():
                    group.create_task(endless(name, loop), name=name)
        except* WaypostError as errors:
            self._is_log_replaced = any(isinstance(each, LogReplaced) for each in errors.exceptions)
            # Of several that came together, the one after which the proxy begins anew.
            raise min(errors.exceptions, key=lambda each: not isinstance(each, RESTART_ERRORS)) from None
        finally:
            await self._stop()

    async def _start(self) -> None:
        self.instance = await asyncio.to_thread(Instance, own_folder(self.config), self.site)
        self.backends = backends = await self.health.retry(Dependency.ALL, self._open_backends)
        self.name = NameClaim(self.config, self.instance, backends, self.health, self.clock, self._url)
        self._has_opened = True
        restored = await self._restored(backends)
        for neighbour in self.config.neighbours:
            row = LinkRow(sites=edge(self.site, SiteId(neighbour)))
            await self.health.retry(Dependency.REGISTRY, partial(backends.registry.set_link, row, seed=True))
        begin = await run_log_start(self.site, backends, restored, self.health)
        with without_collection():
            engine = Engine(
                engine_settings(self.config),
                self._rng,
                self._lifecycle.incarnation,
                now_ms=self.clock.now_ms(),
                unix_ms=self.clock.unix_ms(),
                restored=restored,
                first=begin.first,
                known=begin.known,
                is_intact=begin.is_intact,
                log_epoch=begin.log_epoch,
            )
            del restored
        engine.output.counters.damaged["store"] += self._store_damaged
        self.witnesses = Witnesses(self.proxy, self.site, self.peers, self.directory, self.clock)
        guard = LogGuard(engine.state, begin.federation, begin.row)
        self.guarded_log = GuardedLog(guard, backends.log, backends.registry, self.witnesses)
        self.effect_runner.begin(backends, engine.env)
        self._appends = Appends(
            engine,
            self.guarded_log,
            self.effect_runner,
            self._tasks,
            clock=self.clock,
            on_completed=self._on_appended,
        )
        ends = LinkEndpoints(engine.state, self._rng)
        self.runtime = Runtime(engine, ends)
        self.links = Links(
            self.proxy,
            ends,
            log=backends.log,
            registry=backends.registry,
            peers=self.peers,
            clock=self.clock,
            guarded_log=self.guarded_log,
            health=self.health,
            step=self.step,
        )
        # Not before all of it is there: a client may come at any moment.
        self.engine = engine
        self.directory.begin(engine)

    async def _restored(self, backends: Backends) -> Restored | None:
        """Return what the disk has; where that is damaged, nothing: changelog and logs have what it held."""
        try:
            restored: Restored | None = await self.health.retry(Dependency.STORE, backends.store.load, within_s=None)
        except StoreDamaged as error:
            kept = await backends.store.set_aside()
            self._store_damaged = True
            log.error(
                "the store is damaged; it is kept aside, and what it held is rebuilt from changelog and logs",
                error=str(error),
                kept=kept,
            )
            return None
        return restored

    async def _stop(self) -> None:
        """Leave in order (node/machines/lifecycle.py), and close all."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        try:
            if self.engine is not None:
                if self._is_log_replaced:
                    await self.links.close()
                    with contextlib.suppress(WaypostError, TimeoutError):
                        async with asyncio.timeout(5):
                            await self.guarded_log.enter_next_epoch()
                self._operator_log.prepare_to_leave()
                await self._live_by(lifecycle.Leave(marked=not self._is_log_replaced))
                await self.links.close()
        finally:
            # From here on nothing can be done for them; elsewhere it can.
            self.health.close()
            for connection in self._connections:
                connection.hang_up("this proxy is ending")
            self._operator_log.close(self.engine)
            await self.peers.close()
            await self._tasks.cancel()
            await self.effect_runner.close()
            if self._has_opened:
                await self.backends.close()

    # ------------------------------------------------------------ the life cycle's effects

    async def _live_by(self, input: LifecycleInput) -> None:
        """Perform what follows from an input of the life cycle, one effect after the other, until nothing does."""
        following: LifecycleInput | Deadline | None = input
        while following is not None:
            effects = self._lifecycle.step(following, self.clock.now_ms())
            following = None
            for effect in effects:
                following = await self._perform_in_time(effect)

    async def _perform_in_time(self, effect: LifecycleEffect) -> LifecycleInput | Deadline | None:
        """Perform an effect of the life cycle; return its answer. What has had its time is waited for no longer, and
        what fails has had it: both are the Deadline, which comes before the time of the state is over then.
        """
        due = self._lifecycle.next_deadline()
        if due == NEVER:
            return await self._perform_lifecycle(effect)
        try:
            with contextlib.suppress(WaypostError):
                async with asyncio.timeout(max(0, due - self.clock.now_ms()) / 1000):
                    return await self._perform_lifecycle(effect)
        except TimeoutError:
            pass
        return Deadline()

    async def _perform_lifecycle(self, effect: LifecycleEffect) -> LifecycleInput | None:
        match effect:
            case lifecycle.FindLogEnd():
                self.guarded_log.prepare_to_read()
                self.log_end = await self.health.retry(Dependency.LOG, self.backends.log.end_offset)
                return lifecycle.LogEndFound(self.log_end)
            case lifecycle.AwaitLog(end=end):
                await self.guarded_log.until_read(end)
                return lifecycle.LogRead()
            case lifecycle.IdentifyLog():
                await self.health.retry(Dependency.LOG, self.guarded_log.identify)
                return lifecycle.LogIdentified()
            case lifecycle.LearnSecret():
                await self._read_secret()
                return lifecycle.SecretLearnt()
            case lifecycle.Announce(incarnation=incarnation):
                began = await self.name.claim(incarnation)
                self.directory.incarnation = incarnation
                return lifecycle.Announced(began + self.config.lease_ttl_ms)
            case lifecycle.ConfirmLog():
                self._to_confirm.set()
            case lifecycle.KeepLease():
                await self.name.keep(self._heart, self._lease_renewed)
                return lifecycle.LeaseEnded(new_incarnation())
            case lifecycle.GrantLease() | lifecycle.ProlongLease() | lifecycle.LoseLease():
                self._perform_lease(effect)
            case lifecycle.HandBack() | lifecycle.WriteFinally() | lifecycle.RevokeLease() | lifecycle.End():
                return await self._perform_leaving(effect)
            case _:
                assert_never(effect)
        return None

    def _perform_lease(self, effect: LeaseEffect) -> None:
        match effect:
            case lifecycle.GrantLease(incarnation=incarnation, until_ms=until_ms):
                assert self.name.lease is not None
                self.links.lease = self.name.lease
                self.step(inputs.LeaseGranted(incarnation, until_ms, self.name.ended))
            case lifecycle.ProlongLease(until_ms=until_ms):
                self.step(inputs.LeaseRenewed(until_ms))
            case lifecycle.LoseLease():
                self.step(inputs.LeaseLost())
                self._end_if_name_taken()
            case _:
                assert_never(effect)

    async def _perform_leaving(self, effect: LeavingEffect) -> LifecycleInput | None:
        match effect:
            case lifecycle.HandBack():
                self.step(inputs.StopHandovers())
                while self._engine.is_handing_over:
                    await asyncio.sleep(0.01)
                return lifecycle.HandedBack()
            case lifecycle.WriteFinally(marked=marked):
                await self._write_finally(marked=marked)
                return lifecycle.FinalWritesDone()
            case lifecycle.RevokeLease():
                if self.name.lease is not None:
                    # Also where the journal is away: others need not wait for the lease to run out.
                    await self.name.lease.revoke()
                return lifecycle.Revoked()
            case lifecycle.End():
                return None
            case _:
                assert_never(effect)

    async def _write_finally(self, *, marked: bool) -> None:
        loop = asyncio.get_running_loop()
        saved: asyncio.Future[WaypostError | None] = loop.create_future()
        checkpointed: asyncio.Future[None] = loop.create_future()
        # After the time for it nobody waits any more, and an answer may come all the same.
        self.step(inputs.Leave(lambda answer: None if checkpointed.done() else checkpointed.set_result(answer), marked))
        self.step(inputs.StoreAll(lambda answer: None if saved.done() else saved.set_result(answer)))
        await saved
        # Either may have its answer from the other: what is told is on record first.
        await asyncio.gather(self._journal.write_all(self.backends.journal), checkpointed)

    # ------------------------------------------------------------ the engine's inputs

    async def _follow(self, stream: Stream, read: Callable[[], Awaitable[None]], dependency: Dependency) -> None:
        """Read a stream for ever."""
        effects = stream.step(Begin(), self.clock.now_ms())
        while True:
            for _ in effects:
                try:
                    await read()
                except LogReplaced:
                    raise
                except Unreachable as error:
                    self.health.unavailable(dependency, error)
                stream.step(Broke(), self.clock.now_ms())
            await asyncio.sleep(max(0, stream.next_deadline() - self.clock.now_ms()) / 1000)
            effects = stream.tick(self.clock.now_ms())

    async def _read_log(self) -> None:
        """Fold the site log, until its stream breaks."""
        folding = LogFolding(self._engine, self._fold, self._folded)
        with self.guarded_log.remember_replacement():
            async for batch in self.backends.log.tail(self._engine.state.position):
                self.health.available(Dependency.LOG)
                await folding.fold(batch)

    def _fold(self, records: Batch) -> int:
        self.step(inputs.RecordsRead(records))
        position = self._engine.state.position
        return sum(offset < position for offset, _ in records)

    def _folded(self, spent_s: float) -> None:
        self._appends.folded(spent_s)
        self._room.set()

    async def _follow_log_end(self) -> None:
        """Notice that the log is away also while nobody wants anything of it: its tail only waits."""
        while True:
            await asyncio.sleep(POLL_S)
            read_below = self._engine.state.position
            try:
                async with asyncio.timeout(LOG_END_S):
                    self.log_end = await self.backends.log.end_offset()
            except LogReplaced:
                raise
            except (Unreachable, TimeoutError) as error:
                self.health.unavailable(Dependency.LOG, error)
                self.step(LogAnswers(False))
                continue
            self.health.available(Dependency.LOG)
            self.step(LogAnswers(True))
            engine = self._engine
            reports = engine.env.lease.holds_at(self.clock.now_ms()) and engine.env.cluster.is_site_reporter
            try:
                async with asyncio.timeout(LOG_GUARD_S):
                    await self.guarded_log.check(self.log_end, read_below=read_below, reports=reports)
                self._guard_checks += 1
            except LogReplaced:
                raise
            except (WaypostError, TimeoutError) as error:
                # The log has just answered, and the registry has troubles of its own. The watchdog sees the rest.
                log.debug("the site log cannot be looked after now", error=str(error))

    async def _mend_changelog(self) -> None:
        """Write again what the changelog has lost, whenever it has."""
        while True:
            await self.backends.changelog.lost()
            log.warning("the changelog has lost its end; what we have of it is written again", site=self.site)
            self.step(inputs.ChangelogLost())

    async def _watch_progress(self) -> None:
        """See what stands still although nothing has failed (node/health/watchdog.py)."""
        while True:
            await asyncio.sleep(WATCHDOG_INTERVAL_S)
            self.health.tick()
            self._rate_limited.report_suppressed()
            now_ms = self.clock.now_ms()
            before = set(self.watchdog.stalled)
            receiving, _ = self.links.shown()
            for progress in self.watchdog.check(self._progress(receiving), now_ms):
                standing_s = self.watchdog.standing_ms(progress.name, now_ms) // 1000
                at = f" at {progress.position}" if isinstance(progress.position, int) else ""
                why = f"has stood still{at} for {standing_s} s, with something left to do"
                self.health.unavailable(STALLED + progress.name, Unreachable(why))
            for name in before - self.watchdog.stalled.keys():
                self.health.available(STALLED + name)
            for link in receiving:
                if link.leader not in (None, self.proxy):
                    self.health.drop(LINK_FROM + link.neighbour, f"{link.leader} leads the link by now")

    async def _check_self(self) -> None:
        """See what is wrong with the configuration that only shows when it runs (node/health/self_check.py)."""
        config, engine = self.config, self._engine
        check = SelfCheck(self.proxy, self.site, config.advertise, self.health, self.clock.now_ms())
        if self.tls is not None:
            self.certificate = CertificateCheck(TlsFiles(config, self.tls), self.tls, self._url(), self.health)
        while True:
            await asyncio.sleep(POLL_S)
            now_ms = self.clock.now_ms()
            if self.certificate is not None:
                self.certificate.renew()
                await self.certificate.check(now_ms, self.clock.unix_ms())
            if engine.env.cluster.is_watching:
                rows = [*engine.env.cluster.proxies.values()]
                known, neighbours = engine.env.cluster.changelogs.keys(), self.links.neighbours
                check.check_site(neighbours, known, now_ms)
                check.check_neighbours(neighbours, rows, known, now_ms)
                self.peers.probe_unreached()
                check.check_peers(self.peers.unroutable(), engine.env.cluster.proxies)
                check.check_address(self._url(), (row for row in rows if row.proxy != self.proxy), now_ms)
            await check.try_advertised(now_ms)

    def _progress(self, receiving: Iterable[ReceiverView]) -> Iterator[Progress]:
        """Yield how far everything is that must move by itself.

        Args:
            receiving: the receiving ends of the site's links.
        """
        engine = self._engine
        position = engine.state.position
        yield Progress("log", position, position < self.log_end, TAIL_STALL_MS)
        yield Progress("watch", self._watch_signs, True, WATCH_STALL_MS)
        yield Progress("journal", self._journal.queue.written, len(self._journal.queue) > 0, JOURNAL_STALL_MS)
        yield Progress("timers", self._ticks, self.runtime.next_deadline() < self.clock.now_ms(), TIMER_STALL_MS)
        answer = self.health.now.keys().isdisjoint((Dependency.LOG, Dependency.REGISTRY))
        yield Progress("log guard", self._guard_checks, answer, GUARD_STALL_MS, vital=False)
        oldest = self.effect_runner.oldest
        yield Progress("effects", oldest, oldest is not None, EFFECT_STALL_MS)
        yield Progress(
            "lease", self.name.renewals, self.name.renewals > 0, LEASE_STALLS * self.config.lease_ttl_ms, vital=False
        )
        for link in receiving:
            name, place = f"link from {link.neighbour}", (link.phase, link.last_received_ms)
            is_pending = not link.stands_by and (link.leads or link.phase == "electing")
            yield Progress(name, place, is_pending, LINK_STALL_MS, vital=False)
            is_unanswered = link.peer is not None and not link.is_answered
            yield Progress(f"filters at {link.neighbour}", link.requested, is_unanswered, FILTERS_STALL_MS, vital=False)

    async def _read_watch(self) -> None:
        """Take what the registry's watch reports, until it breaks."""
        async for event in self.backends.registry.watch():
            self._watch_signs += 1
            # Not at once: a registry on a full disk can be read, and not watched.
            if not isinstance(event, Reloaded):
                self.health.available(Dependency.REGISTRY)
            if not isinstance(event, WatchAlive):
                self.step(inputs.RegistryReported(event))

    async def _live(self) -> None:
        """Live under leases, until cancelled."""
        await self._live_by(lifecycle.Start())

    async def _confirm_log(self) -> None:
        """Compare the log with what other proxies have seen of it, whenever the life cycle wants that, beside the
        renewals of the lease.
        """
        while True:
            await self._to_confirm.wait()
            self._to_confirm.clear()
            await self.guarded_log.confirm()
            # The lease may have ended meanwhile, or the process be leaving.
            if self._lifecycle.state is LifecycleState.CONFIRMING:
                self._lifecycle_step(lifecycle.LogConfirmed())

    async def _read_secret(self) -> None:
        """Anew under every lease: a registry that was lost takes the one that we know, or has another one already."""
        before = self.directory.secret or b""
        registry = self.backends.registry
        secret = await self.health.retry(Dependency.REGISTRY, lambda: registry.secret(before))
        self.directory.secret = secret
        if before not in (b"", secret):
            log.warning(
                "the registry has another secret than it had: it was lost, or is another federation's",
                earlier=federation_of(before),
                federation=federation_of(secret),
                hint="tokens hold no more, and proxies that start again at their site's log are refused",
            )
        self.step(inputs.SecretRead(secret))

    def _end_if_name_taken(self) -> None:
        """Raises NameTaken: another process took our name: it was told to, or our lease had ended."""
        row = self.directory.row(self.proxy)
        ended = self._engine.env.lease.incarnation
        if row is not None and row.incarnation != ended and not self.name.is_earlier(row):
            raise NameTaken(
                f"another process took the name of proxy {self.proxy}, at {row.url}; this one ends",
                field="name",
                hint="give every proxy a name of its own",
            )

    def _lease_renewed(self, until_ms: int) -> None:
        self._lifecycle_step(lifecycle.Renewed(until_ms))

    def _lifecycle_step(self, input: lifecycle.Renewed | lifecycle.LogConfirmed) -> None:
        """Step the life cycle by what comes while the lease is kept."""
        for effect in self._lifecycle.step(input, self.clock.now_ms()):
            assert isinstance(effect, lifecycle.ProlongLease | lifecycle.GrantLease)
            self._perform_lease(effect)

    def refusal(self, address: str) -> str:
        """Return why no other client may connect from this IP address, in words; "": one may."""
        if self._closing:
            return "this proxy is ending"
        return self._connections.refusal(address)

    def connect(self, connection: Connection) -> int:
        """Tell the engine of a client's connection; return the connection's number, for all other calls about it.

        Check :meth:`refusal` first. Raises Internal: the node has not started yet.
        """
        number = self._connections.add(connection)
        self.step(inputs.ClientConnected(number, connection.address))
        return number

    def disconnect(self, number: int) -> None:
        """Forget the connection of this number, and tell the engine, if the node has started, that it has ended."""
        self._connections.remove(number)
        if self.engine is not None:
            self.step(inputs.ClientDisconnected(number))

    def client_message(self, number: int, message: ClientMessage) -> None:
        """Give the engine a message of the client on this connection, and perform what follows.

        A message that is refused is answered with a Problem; the connection goes on. One of a connection that has ended
        is dropped.

        Args:
            number: of the connection, from :meth:`connect`.

        Raises:
            Internal: the node has not started yet.
        """
        self.step(inputs.ClientSent(number, message))

    def introduced(self, number: int) -> bool:
        """Tell whether the client on the connection of this number has sent a Hello that was accepted; False: not, or
        the connection has ended. Raises Internal: the node has not started yet.
        """
        connection = self._engine.dispatcher.connections.get(number)
        return connection is not None and bool(connection.client)

    def refused_client(self, error: Refused) -> None:
        """Count an error for which a frame, request or handshake of a client was refused before the engine had it."""
        if self.engine is not None:
            self.engine.output.counters.refused[error.kind] += 1

    def _on_facts_written(self, attest: effects.Attest) -> None:
        self.step(inputs.EffectCompleted(attest.on_done, None))

    def _on_appended(self, completed: AppendCompleted) -> None:
        self._room.set()
        self.step(inputs.EffectCompleted(completed.append.on_done, completed.answer))

    def _on_journal_tried(self, error: Unreachable | None) -> None:
        """The journal took facts, or did not."""
        if error is not None:
            self.health.unavailable(Dependency.JOURNAL, error)
            # A client that has left meanwhile waits no longer.
            self._room.set()
            return
        self.health.available(Dependency.JOURNAL)
        self._room.set()

    async def room(self, number: int) -> bool:
        """Wait until the client on the connection of this number may publish more.

        It waits while too much is on its way to log or journal, or much of what came by this connection is not appended
        yet.

        Returns:
            True: there is room. False: the client has gone before there was.
        """
        connection, publishing = self._connections.get(number), self._engine.dispatcher.publishing
        while self._is_full(number) or publishing.unanswered(number) > MAX_UNANSWERED_PUBLISHES:
            if connection is None or connection.is_lost():
                return False
            self._room.clear()
            await self._room.wait()
        return True

    def _is_full(self, number: int) -> bool:
        facts = self._journal.queue
        return len(facts) >= FACTS_WAITING or facts.bytes > FACTS_BYTES or not self._appends.has_room(number)

    async def peer_message(self, peer: ProxyId, message: PeerMessage) -> None:
        """Take a message of a proxy whose identity was proven, and pass it on to links, catch-up, witnesses or the
        engine. Call it only once the node has started.

        Raises:
            Refused: an expression in a message for links is not valid, or the message names another site than its
                sender's.
        """
        match message:
            case LinkOpen() | LinkWants() | LinkRecords() | LinkAppended() | LeaseRequest() | LeaseGranted():
                self.step(NeighbourSent(peer, message))
            case CatchUp():
                self._tasks.spawn(self._serve_history(peer, message))
            case SeenRequest():
                if (answer := self.guarded_log.answer(message)) is not None:
                    self.peers.send(peer, answer)
            case Routed():
                if (received := self.peers.receive(peer, message)) is not None:
                    await self.peer_message(*received)
            case SeenResponse():
                self.witnesses.receive(peer, message)
            case CaughtUp() | CatchUpFailed():
                self.effect_runner.requests.answer(peer, message)
            case _:
                self.step(inputs.PeerSent(peer, message))

    async def _serve_history(self, peer: ProxyId, wanted: CatchUp) -> None:
        try:
            if (answer := await self.effect_runner.history.serve(wanted)) is not None:
                self.peers.send(peer, answer)
        except WaypostError as error:
            self.peers.send(peer, CatchUpFailed(wanted.request, wanted.origin, error.message))

    async def mark(self) -> int:
        """Append a closing marker to the site log; return its offset once log and journal have it.

        Raises:
            NoAnswer: there was no answer within MARK_S seconds; the marker may be in the log.
            WaypostError: the node has not started yet, or the log or the journal does not take the marker.
        """
        try:
            answer: int | WaypostError = await self.answer_to(inputs.CloseLog, MARK_S)
        except TimeoutError:
            raise NoAnswer(
                f"log or journal have not answered for {MARK_S:g} s, and the marker may be in the log; "
                "look at /v1/status, and ask again"
            ) from None
        if isinstance(answer, WaypostError):
            raise answer
        return answer

    async def answer_to(self, request: Callable[[Callable[[T], None]], inputs.EngineInput], within_s: float) -> T:
        """Step the engine with a request, and return the engine's answer.

        Args:
            request: called with a callback; returns the input that makes the engine call that callback with the answer.
            within_s: how long the answer may take.

        Raises:
            TimeoutError: the answer took longer; what was requested may be done all the same.
            Unreachable: the node has not started yet.
            WaypostError: the engine refuses the request; nothing was changed.
        """
        if self.engine is None:
            raise Unreachable(STARTING)
        answered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.step(request(lambda answer: None if answered.done() else answered.set_result(answer)))
        async with asyncio.timeout(within_s):
            return await answered

    @property
    def unrecorded(self) -> int:
        """The number of things that are not on record yet; 0: all is.

        They are the sessions whose receivers have not been attested to have all since the last closing marker
        (:attr:`proxy.engine.Engine.undrained`), and the effects whose facts are not in the journal.
        """
        return (self.engine.undrained if self.engine else 0) + len(self._journal.queue)

    # ------------------------------------------------------------ who is there

    def queues(self) -> Iterator[Waiting]:
        """Yield the queues of this node, but for those within the engine and of links, each as (name, length, bound); a
        name may come several times.

        "log" counts appends under way, "journal" batches of facts, "store" changes since the last write began, "client
        bytes" the unsent bytes of one connection, "peer" the messages that wait for one proxy. Raises Internal, as the
        iterator advances: the node has not started yet.
        """
        # Appends on their way, and lots of facts.
        yield "log", self._appends.under_way, APPENDS_UNDER_WAY
        yield "journal", len(self._journal.queue), FACTS_WAITING
        # Entries and other changes since the last write.
        yield "store", self._engine.persister.store.unstored_count, STORE_BATCH
        for connection in self._connections:
            yield "client bytes", connection.unsent(), CONNECTION_QUEUE_BYTES
        for messages in self.peers.waiting():
            yield "peer", messages, PEER_QUEUE

    @property
    def leading(self) -> list[SiteId]:
        """The neighbours whose link to this site this node leads; empty before the node has started."""
        return self.links.leading if self.engine is not None else []

    def knows(self, proxy: ProxyId, incarnation: Incarnation) -> bool:
        """Tell whether the registry's watch shows this incarnation of a proxy under a lease; False before the node has
        started.
        """
        row = self.directory.row(proxy)
        return row is not None and row.incarnation == incarnation

    # ------------------------------------------------------------ the engine's effects

    def step(self, input: inputs.EngineInput | LinkInput) -> None:
        """Step engine and links with an input, perform the effects in order, and set the timers again.

        Raises:
            Internal: the node has not started yet.
            WaypostError: the change of an Administered is refused; nothing was changed.
        """
        if self.engine is None:
            raise Internal("the node has not started yet")
        self._perform_all(self.runtime.step(input, self.clock.now_ms(), self.clock.unix_ms()))

    def _perform_all(self, wanted: list[RuntimeEffect]) -> None:
        for effect in wanted:
            self._perform(effect)
        self.directory.log_refusals()
        self._arm_soon()

    def _arm_soon(self) -> None:
        if not self._arming:
            # Once for all that this turn of the loop brings: the deadline is asked of every running transfer.
            self._arming = True
            asyncio.get_running_loop().call_soon(self._arm)

    def _arm(self) -> None:
        """Tell the log what has changed, and set the timer."""
        self._arming = False
        if self._timer is not None:
            self._timer.cancel()
        if self.engine is None or self._closing:
            return
        self._operator_log.report_changes(self.engine)
        wait_ms = max(1, self.runtime.next_deadline() - self.clock.now_ms())
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._ticks += 1
        try:
            self._perform_all(self.runtime.tick(self.clock.now_ms(), self.clock.unix_ms()))
        finally:
            # Whatever went wrong: without a timer the node would stand still for ever.
            self._arm_soon()

    def _perform(self, effect: RuntimeEffect) -> None:
        match effect:
            case effects.Send():
                self._send(effect)
            case effects.SendPeer():
                # Where the lease ended within the step, the other side misses a number, and ends the relay.
                if not isinstance(effect.message, RelayDown) or not self._is_fenced():
                    self.peers.send(effect.proxy, effect.message)
            case effects.Append():
                self._appends.request(effect)
            case effects.Attest():
                self._operator_log.attested(effect.facts)
                self._journal.put(effect)
            case effects.Hangup():
                connection = self._connections.get(effect.connection)
                if connection is not None:
                    connection.hang_up(effect.reason)
            case _ if isinstance(effect, LinkEffect):
                self.links.perform(effect)
            case _:
                self._tasks.spawn(self._ask(effect))

    def _send(self, send: effects.Send) -> None:
        connection = self._connections.get(send.connection)
        if connection is None:
            return
        if isinstance(send.message, DeliverEncoded) and self._is_fenced():
            connection.hang_up("the lease of this proxy has ended")
        else:
            connection.send(send.message)

    def _is_fenced(self) -> bool:
        """Tell whether nothing may be delivered: time stands still within a step, and a process may be paused in it."""
        return not self._engine.env.lease.holds_at(self.clock.now_ms())

    async def _ask(self, effect: effects.PortCall) -> None:
        """Perform an effect that is answered."""
        answer = await self.effect_runner.answer(effect)
        if isinstance(effect, effects.ClaimRow) and isinstance(answer, Claimed):
            self._operator_log.claimed(effect, answer)
        self.step(inputs.EffectCompleted(effect.on_done, answer))
