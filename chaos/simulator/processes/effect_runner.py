"""How the effects of a process come about in a world: later, or not at all, or with their answer lost.

It performs them as node/shell/effect_runner.py does, on the plain backends of
chaos/simulator/environment/fake_backends.py; the world says when each of them happens, and what comes of it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, assert_never

import msgspec

from chaos.simulator.checks.invariants import Invariants
from chaos.simulator.environment.environment import Environment, Process
from chaos.simulator.kernel.narration import NARRATED_FACTS, line_of
from chaos.simulator.processes.clients import Wire
from chaos.simulator.processes.guarded_log import GuardedLog
from chaos.simulator.processes.links import history
from federation.messages import LogEndMessage
from handover.messages import HandoverOffer, MoveRequest, RelayMessage, ToSource, ToTarget
from node.machines.append_admission import (
    AdmissionEffect,
    AdmissionInput,
    AppendAdmission,
    AppendCompleted,
    AppendPart,
    AppendRequested,
    EstimateCosts,
    Estimated,
    LogFolded,
    PartAppended,
)
from node.machines.journal_queue import Answer, Failed, JournalQueue, Put, Write, Written
from proxy.core import effects
from proxy.core.durability_law import LAW
from proxy.core.inputs import EffectCompleted, PeerSent
from proxy.core.settings import Settings
from proxy.engine import Engine
from waypost.clock import NEVER
from waypost.errors import (
    CheckpointOutdated,
    LogReplaced,
    LogUnavailable,
    RegistryUnavailable,
    StoreDamaged,
    StoreFailed,
    Unreachable,
    WaypostError,
)
from waypost.facts import Fact
from waypost.identity import ProxyId
from waypost.messages import DeliverEncoded
from waypost.table_machine import Deadline

SLOW_DISK_MS = 1_500
PUT_SITE_MS = 10
NOTE_MS = 2
HASH_MS = 40
FOLDING_S = 3_600.0
"""Processor time of what is folded, in seconds: never less than was foreseen."""
_Between = ToSource | ToTarget | HandoverOffer | MoveRequest | RelayMessage | LogEndMessage
_handover: msgspec.msgpack.Decoder[_Between] = msgspec.msgpack.Decoder(_Between)


class PerformingProcess(Process):
    """A process, and the condition of what its effects need.

    Args:
        world: in which it runs.
        invariants: are told what it does.
        settings: of the proxy.
    """

    guarded_log: GuardedLog
    """The guarded log of its site, in this process."""
    wires: dict[int, Wire]

    def __init__(self, world: Environment, invariants: Invariants, settings: Settings) -> None:
        super().__init__(world, settings)
        self.invariants = invariants
        self.unreadable = 0
        """The number of the next reads of the disk that fail."""
        self.append_ms = 0
        """The delay of an append to the log, in ms."""
        self.matching_ns = 0
        """The estimate of the time that the matching of a notification takes, in ns."""
        self.journal_ms = 0
        """The delay of facts on their way to the journal, in ms."""
        self.slow_until = 0
        """The time until which the disk is slow."""
        self.newer = False
        """Whether it adds fields that no other proxy knows."""
        self.sent: dict[str, Callable[[], None]] = {}
        """The last handover message of every kind, to be sent again."""
        self.loaded = 0
        """How often the registry had been put back to a copy when the watch reported all rows."""

    @property
    @abstractmethod
    def is_log_replaced(self) -> bool:
        """Whether the log was found not to be the one that was read: the process ends, and begins anew."""

    @abstractmethod
    def start(self) -> None:
        """Begin a process of this proxy, which must be down, with what its store has; not if its site has ended for
        good.
        """

    @abstractmethod
    def crash(self, *, disk_lost: bool = False) -> None:
        """End the process at once; its connections break, and what it had not stored is lost.

        Args:
            disk_lost: whether its store is lost too.
        """

    @abstractmethod
    def trace(self, what: str) -> None:
        """Note, in the trace and in the narrative, what the process does.

        Args:
            what: in words, such as ``starts``; the name of the proxy is put before.
        """

    @abstractmethod
    def afterwards(self, wait_ms: int, action: Callable[[Engine], None]) -> None:
        """Call `action` with the engine in `wait_ms` ms, as a step of the engine, and perform what comes out.

        `action` is not called if the process has ended by then.
        """

    def answer(self, wait_ms: int, on_done: effects.OnDone, answer: object) -> None:
        """Call an effect's `on_done` with `answer` in `wait_ms` ms, as a step of the engine.

        Nothing happens if `on_done` is `ignore_result`, or if the process has ended by then.
        """
        if on_done is not effects.ignore_result:
            self.afterwards(wait_ms, lambda engine: on_done(answer))


class EffectRunner:
    """Performs the effects of one start of a process.

    Args:
        node: the process; its time has begun.
    """

    def __init__(self, node: PerformingProcess) -> None:
        self._node = node
        self._journal, self._journal_due = JournalQueue(), NEVER
        self._appends_until = node.world.clock.time_ms
        """The time until which appends are under way."""
        self._admission = AppendAdmission()

    def perform(self, effect: effects.Effect) -> None:
        """Start an effect of the engine, which happens later, or fails by the world's faults.

        The effect's `on_done`, if it has one, is called with the answer, unless the process has ended by then.
        """
        self._performers[type(effect)](self, effect)

    def once_written(self, on_done: Callable[[object], None]) -> None:
        """Call `on_done` with None when the journal has all facts attested so far; never if the process ends before."""
        self._step_journal(Put(effects.Attest((), on_done)))

    def _send(self, effect: effects.Send) -> None:
        wire = self._node.wires.get(effect.connection)
        if wire is None:
            return
        if isinstance(effect.message, DeliverEncoded):
            self._node.invariants.delivers(self._node, wire.client, effect.message.epoch)
        elif type(effect.message) in LAW:
            self._node.invariants.tells(self._node, wire.client, effect.message)
        wire.to_client(effect.message)

    def _hang_up(self, effect: effects.Hangup) -> None:
        if effect.connection in self._node.wires:
            wire = self._node.wires[effect.connection]
            self._node.trace(f"hangs up on {wire.client.name}: {effect.reason}")
            wire.hang_up()

    def _send_peer(self, effect: effects.SendPeer) -> None:
        world, kind = self._node.world, type(effect.message).__name__
        data = msgspec.msgpack.encode(effect.message)
        if self._node.newer:
            data = msgspec.msgpack.encode(msgspec.msgpack.decode(data) | {"of a later build": 1})
        world.count(effect.message)
        self._node.invariants.on_message(self._node.proxy, effect.message)
        self._node.invariants.relays(self._node, effect)
        self._node.sent[kind] = lambda: self._reach(effect.proxy, data)
        world.note(f"{self._node.proxy} -> {effect.proxy} {kind}", narrate=True)
        way = world.channels.get((self._node.proxy, effect.proxy))
        if way is not None:
            way.carry(data)
            return
        faults = world.faults
        parted = world.clock.time_ms < world.parted.get((self._node.proxy, effect.proxy), 0)
        if parted or world.loses(kind) or world.chances(faults.loss):
            world.note(f"  lost {kind}", narrate=True)
            world.carries(self._node.proxy, effect.proxy, kind, None)
            return
        for _ in range(1 + world.chances(faults.double)):
            wait = world.delay() + (world.rng.randint(0, faults.slow_ms) if faults.slow_ms else 0)
            world.carries(self._node.proxy, effect.proxy, kind, wait)
            world.later(wait, lambda: self._reach(effect.proxy, data))

    def _reach(self, proxy: ProxyId, data: bytes) -> None:
        self._node.world.nodes[proxy].step(PeerSent(self._node.proxy, _handover.decode(data)))

    def _attest(self, effect: effects.Attest) -> None:
        """Have the facts written to the journal; what they say is looked at now."""
        world = self._node.world
        for fact in effect.facts:
            world.facts.append(fact)
            self._node.invariants.attests(self._node.proxy, fact)
            if fact.kind in NARRATED_FACTS:
                world.note(line_of(fact), narrate=True, by=self._node.proxy)
        self._step_journal(Put(effect))

    def _step_journal(self, input: Put | Written | Failed | Deadline) -> None:
        """Step the journal's queue, perform what comes out, and set its timer."""
        journal, now = self._journal, self._node.world.clock.time_ms
        for effect in journal.step(input, now):
            match effect:
                case Write(facts=facts):
                    self._write(facts)
                case Answer(written=written):
                    for attest in written:
                        self._node.answer(0, attest.on_done, None)
                case _:
                    assert_never(effect)
        due = journal.next_deadline()
        if due not in (NEVER, self._journal_due):
            self._journal_due = due
            self._node.schedule(max(0, due - now), lambda: self._journal_is_due(due))

    def _journal_is_due(self, due: int) -> None:
        if self._journal_due == due:
            self._journal_due = NEVER
            if self._journal.next_deadline() <= self._node.world.clock.time_ms:
                self._step_journal(Deadline())

    def _write(self, facts: Sequence[Fact]) -> None:
        """Facts reach the journal later, and are lost with the process; a write that fails may be done."""
        world, engine = self._node.world, self._node.engine

        def act() -> None:
            failed = bool(facts) and world.chances(world.faults.writes)
            if self._node.engine is not engine:
                return
            if not failed or world.chances(0.5):
                world.journal.extend(facts)
            self._node.schedule(0, lambda: self._step_journal(Failed() if failed else Written()))

        world.later(world.delay() + self._node.journal_ms, act)

    def _ask_registry(
        self, effect: effects.CreateRow | effects.ClaimRow | effects.ReadRow | effects.ForgetRows
    ) -> None:
        world, answering = self._node.world, f"answer {self._node.proxy}"
        if isinstance(effect, effects.ClaimRow | effects.CreateRow):
            self._node.invariants.ownership(self._node, effect)
        writes = not isinstance(effect, effects.ReadRow)
        stalled = max(0, world.stalled.get(self._node.proxy, 0) - world.clock.time_ms) if writes else 0
        engine = self._node.engine

        def act() -> None:
            lost = world.chances(world.faults.answers)
            lost = (writes and world.loses(answering)) or lost
            answer: object = None
            away = world.clock.time_ms < self._node.deaf_until or not world.registry_answers()
            # Its watch has broken; until it has all rows again nothing is claimed, as in federation/etcd/registry.py.
            away = away or (writes and self._node.loaded != world.registry.restored)
            if away or (lost and world.chances(0.5)):
                lost = True
            else:
                answer = self._act(effect)
                world.registry_changed()
            if lost:
                self._node.trace("has no answer from the registry")
                answer = RegistryUnavailable("no answer")
            if self._node.engine is engine:
                self._node.answer(world.delay(), effect.on_done, answer)

        world.later(world.delay() + stalled, act)

    def _act(self, effect: effects.CreateRow | effects.ClaimRow | effects.ReadRow | effects.ForgetRows) -> object:
        registry = self._node.world.registry
        if isinstance(effect, effects.ForgetRows):
            registry.forget(effect.rows)
            self._node.trace(f"removes the row of {', '.join(sorted(effect.rows))}")
            return None
        if isinstance(effect, effects.ReadRow):
            return registry.owner(effect.session)
        new = effect.ownership if isinstance(effect, effects.CreateRow) else effect.new
        answer = registry.claim(effect.session, getattr(effect, "expected", None), new)
        word = ("deletes" if new.deleted else "takes") if answer.won else "does not get"
        self._node.trace(f"{word} {effect.session} at epoch {new.epoch}")
        return answer

    def log_folded(self, position: int) -> None:
        """Note that the log is folded below the offset `position`; append what there is room for now."""
        self._step_admission(LogFolded(position, FOLDING_S))

    def _append(self, effect: effects.Append) -> None:
        self._step_admission(AppendRequested(effect))

    def _step_admission(self, input: AdmissionInput) -> None:
        """Step the admission of appends, and perform what comes out, as node/shell/node.py does."""
        for effect in self._admission.step(input, self._node.world.clock.time_ms):
            self._perform_admission(effect)

    def _perform_admission(self, effect: AdmissionEffect) -> None:
        match effect:
            case EstimateCosts(is_first=True):
                self._estimate(effect)
            case EstimateCosts():
                self._node.schedule(0, partial(self._estimate, effect))
            case AppendPart():
                self._append_part(effect)
            case AppendCompleted(append=append, answer=answer):
                self._node.step(EffectCompleted(append.on_done, answer))
            case _:
                assert_never(effect)

    def _estimate(self, effect: EstimateCosts) -> None:
        self._step_admission(Estimated(effect.number, [self._node.matching_ns] * len(effect.bodies)))

    def _append_part(self, part: AppendPart) -> None:
        """Appends of one proxy stay in order; after an error nobody knows whether it was done."""
        world, now = self._node.world, self._node.world.clock.time_ms
        if self._node.is_log_replaced:
            self._part_appended(1, part, LogReplaced("the log is not what was read of it"))
            return
        if self._node.guarded_log.has_to_wait:
            self._node.guarded_log.add_waiting(lambda: self._append_part(part))
            return
        self._appends_until = max(self._appends_until, now + world.delay() + self._node.append_ms)
        failed = world.chances(world.faults.writes)
        done = not failed or world.chances(0.5)
        engine, interruptions = self._node.engine, world.logs[self._node.site].interruptions

        def replaced(why: str, end: int | None = None) -> LogReplaced:
            # Answered first: what is not known is published again.
            world.later(1, lambda: self._node.restart_on_new_log(why, end) if self._node.engine is engine else None)
            return LogReplaced(why)

        def act() -> None:
            read_below = self._node.read_below if self._node.engine is engine else 0
            answer: Any = None
            if interruptions != world.logs[self._node.site].interruptions:
                answer = LogUnavailable("the connection broke off")
            elif done:
                answer = world.appended(self._node.site, list(part.records))
                if answer and answer[0] < read_below:
                    answer = replaced("the log appends where it was read already", answer[0])
                elif answer and self._node.engine is engine and not failed:
                    self._node.advance_seen(answer[-1] + 1)
            if failed and not isinstance(answer, LogReplaced):
                answer = LogUnavailable("no answer")
            if self._node.engine is engine:
                self._part_appended(world.delay(), part, answer)

        world.later(self._appends_until - now, act)

    def _part_appended(self, wait_ms: int, part: AppendPart, answer: object) -> None:
        self._node.schedule(wait_ms, lambda: self._step_admission(PartAppended(part.number, answer)))

    def _use_store(self, effect: effects.Save | effects.LoadEntries | effects.FindOutdated) -> None:
        saving = isinstance(effect, effects.Save)
        if isinstance(effect, effects.Save):
            self._node.invariants.saves(self._node, effect)
        full = saving and (self._node.full or self._node.world.chances(self._node.world.faults.writes))
        unreadable = not saving and self._node.unreadable > 0
        self._node.unreadable -= unreadable
        why = "the disk is full" if full else "the disk cannot be read"

        def act(engine: Engine) -> None:
            if full or unreadable:
                self._node.world.note(f"{self._node.proxy}: {why}", by=self._node.proxy)
                effect.on_done(StoreFailed(why))
                return
            try:
                effect.on_done(self._stored(effect))
            except StoreDamaged as error:
                self._node.trace(f"begins anew: {error}")
                effect.on_done(error)
                self._node.world.later(1, partial(self._begin_without_disk, engine))

        slow = self._node.world.delay(SLOW_DISK_MS) if self._node.world.clock.time_ms < self._node.slow_until else 0
        self._node.afterwards(self._node.world.delay() + slow, act)

    def _stored(self, effect: effects.Save | effects.LoadEntries | effects.FindOutdated) -> Any:
        """Raises StoreDamaged."""
        if isinstance(effect, effects.Save):
            self._node.store.apply(effect.batch)
            return None
        if isinstance(effect, effects.FindOutdated):
            return self._node.store.outdated(effect.session, effect.windows, effect.limit)
        return self._node.store.entries(effect.session, effect.after, effect.limit, effect.passing)

    def _begin_without_disk(self, engine: Engine) -> None:
        """The store is damaged: the node ends, and begins with an empty one, as node/service.py does."""
        if self._node.engine is engine:
            self._node.crash(disk_lost=True)
            self._node.start()

    def _put_checkpoint(self, effect: effects.PutCheckpoint) -> None:
        engine, world = self._node.engine, self._node.world
        error: WaypostError | None = None
        if world.loses(f"put {self._node.proxy}") or world.chances(world.faults.writes):
            error = LogUnavailable("no answer")

        def act() -> None:
            answer = error
            if answer is None:
                try:
                    self._node.invariants.restores.recorded(effect.checkpoint, world.changelogs[self._node.site])
                    world.changelogs[self._node.site].put(effect.checkpoint)
                except CheckpointOutdated as outdated:
                    answer = outdated
            if self._node.engine is engine:
                self._node.answer(world.delay(), effect.on_done, answer)

        world.later(world.delay(), act)

    def _note_checkpoints(self, effect: effects.NoteCheckpoints) -> None:
        def act(engine: Engine) -> None:
            world = self._node.world
            if world.registry_answers() and world.clock.time_ms >= self._node.deaf_until:
                world.registry.note_checkpoints(effect.ranks)
                effect.on_done(None)
            else:
                effect.on_done(RegistryUnavailable("no answer"))

        self._node.afterwards(NOTE_MS, act)

    def _put_site(self, effect: effects.PutSite) -> None:
        """Write it, or not, with the process that writes it."""

        def act(engine: Engine) -> None:
            self._node.world.changelogs[self._node.site].put_site(effect.snapshot)
            effect.on_done(None)

        self._node.afterwards(PUT_SITE_MS, act)

    def _forget_checkpoints(self, effect: effects.ForgetCheckpoints) -> None:
        """Remove them, or not, with the process that does it."""

        def act(engine: Engine) -> None:
            self._node.world.changelogs[self._node.site].forget(effect.deleted)
            self._node.trace(f"removes the checkpoints of {', '.join(sorted(effect.deleted))}")
            effect.on_done(None)

        self._node.afterwards(PUT_SITE_MS, act)

    def _fetch_history(self, effect: effects.FetchHistory) -> None:
        world = self._node.world
        world.catch_ups += 1

        def act(engine: Engine) -> None:
            there = [node for node in world.live_nodes(effect.site) if node.version == self._node.version]
            serving = engine if effect.site == self._node.site else there[0].engine if there else None
            answer: Any = Unreachable(f"no proxy of site {effect.site} answers")
            if serving is not None:
                with suppress(Unreachable):
                    answer = history(world, serving.state, effect)
            self._node.answer(world.delay(), effect.on_done, answer)

        self._node.afterwards(world.delay(), act)

    def _find_checkpoint(self, effect: effects.FindCheckpoint) -> None:
        world = self._node.world

        def act(engine: Engine) -> None:
            noted = world.registry.noted.get(effect.session)
            others = [] if effect.own_site else sorted({*engine.env.cluster.changelogs.values()} - {self._node.site})
            read = [site for site in others if not world.chances(world.faults.answers)]
            changelogs = [world.changelogs[site] for site in (self._node.site, *read)]
            checkpoints = tuple(found for changelog in changelogs for found in changelog.latest(effect.session))
            complete = len(read) == len(others)
            self._node.answer(
                world.delay(), effect.on_done, effects.FoundCheckpoint(checkpoints, complete, noted=noted)
            )

        self._node.afterwards(world.delay(), act)

    def _find_log_end(self, effect: effects.FindLogEnd) -> None:
        failed = self._node.world.chances(self._node.world.faults.writes)

        def act(engine: Engine) -> None:
            is_away = self._node.world.clock.time_ms < self._node.world.logs[self._node.site].away_until
            answer = LogUnavailable("no answer") if failed or is_away else len(self._node.world.logs[self._node.site])
            self._node.answer(self._node.world.delay(), effect.on_done, answer)

        self._node.afterwards(self._node.world.delay(), act)

    def _check_password(self, effect: effects.Verify | effects.Hash) -> None:
        """Plain comparison, and a salt that is a number, in place of a hash."""

        def act(engine: Engine) -> None:
            if isinstance(effect, effects.Verify):
                effect.on_done(effect.hash.partition("/")[2] == effect.password)
            else:
                effect.on_done([f"{self._node.world.salt()}/{password}" for password in effect.passwords])

        self._node.afterwards(self._node.world.delay(HASH_MS), act)

    _performers: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        effects.Send: _send,
        effects.Hangup: _hang_up,
        effects.SendPeer: _send_peer,
        effects.Attest: _attest,
        effects.CreateRow: _ask_registry,
        effects.ClaimRow: _ask_registry,
        effects.ReadRow: _ask_registry,
        effects.ForgetRows: _ask_registry,
        effects.Append: _append,
        effects.Save: _use_store,
        effects.LoadEntries: _use_store,
        effects.FindOutdated: _use_store,
        effects.PutCheckpoint: _put_checkpoint,
        effects.PutSite: _put_site,
        effects.NoteCheckpoints: _note_checkpoints,
        effects.ForgetCheckpoints: _forget_checkpoints,
        effects.FindCheckpoint: _find_checkpoint,
        effects.FetchHistory: _fetch_history,
        effects.FindLogEnd: _find_log_end,
        effects.Verify: _check_password,
        effects.Hash: _check_password,
    }
    """The performer of each effect, by its class."""
