"""A small world: real engines and real client machines, joined by wires that lose, double, delay and reorder.

Everything happens at a time on one clock, in an order that the seed alone decides; :attr:`World.trace` has all of it,
:attr:`World.story` what a person would tell. Without a seed every wire takes one millisecond and nothing is lost.
What must hold is in chaos/simulator/verdict.py.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from chaos.simulator.clients import Client, Wire
from chaos.simulator.invariants import Invariants
from chaos.simulator.links import Ends, Link, history
from chaos.simulator.parts import PlainChangelog, PlainLog, PlainRegistry, PlainStore
from federation.link_ends import LinkMessage
from federation.messages import LinkRecords
from federation.ports import OwnerChanged, ProxyRow, RegistryEvent
from handover.messages import Frozen, Give, Offer, Prepare, Prepared, Ready, Stay, ToSource, ToTarget
from proxy import effects
from proxy.context import Settings
from proxy.engine import Engine
from proxy.relay import RelayMessage
from waypost.clock import ManualClock
from waypost.errors import LogUnavailable, RegistryUnavailable, StoreFailed, WaypostError
from waypost.identity import Incarnation, ProxyId, SiteId, origin_of
from waypost.messages import DeliverEncoded
from waypost.records import Fact

LEASE_MS = 2_000
SLOW_DISK_MS = 1_500
SKEW_MS = 3_600_000
"""So far the clocks of two machines may be apart, where people read them."""
_Between = ToSource | ToTarget | Offer | Give | RelayMessage
_handover: msgspec.msgpack.Decoder[_Between] = msgspec.msgpack.Decoder(_Between)
TOLD_FACTS = {"owned", "released", "handover", "effective", "unsubscribed", "gap"}


@dataclass(slots=True)
class Faults:
    """Chances from 0 to 1, and the longest delay of a handover message."""

    loss: float = 0.0
    double: float = 0.0
    slow_ms: int = 0
    answers: float = 0.0
    """An answer of the registry gets lost; half the time the action was never done."""
    writes: float = 0.0
    """A store, changelog or log does not take what it is given, or does not say so."""


class SkewedClock:
    """A machine's clock: it runs like all others, and is wrong about what time it is."""

    def __init__(self, clock: ManualClock, skew_ms: int) -> None:
        self._clock = clock
        self._skew_ms = skew_ms

    def now_ms(self) -> int:
        return self._clock.time_ms

    def unix_ms(self) -> int:
        return self._clock.time_ms + self._skew_ms


class World:
    """Sites and their proxies: ``World({"A": ["a1", "a2"], "B": ["b1"]}, seed=7)``.

    Every site has a link to every other one; with `line`, only to the one before it and the one after it.
    """

    def __init__(self, sites: dict[str, list[str]], seed: int | None = None, *, line: bool = False) -> None:
        self.clock = ManualClock(1_000)
        self.seed = seed
        self.chance = random.Random(seed)
        self.faults = Faults()
        self.registry = PlainRegistry()
        self.logs = {SiteId(site): PlainLog() for site in sites}
        self.logs_by_origin = {origin_of(site): log for site, log in self.logs.items()}
        self.changelogs = {site: PlainChangelog() for site in sites}
        self.facts: list[Fact] = []
        self.trace: list[str] = []
        self.story: list[str] = []
        self.wrongs: list[str] = []
        self.asked: dict[str, dict[str, str]] = {}
        self.ended: dict[str, set[str]] = {}
        self.invariants = Invariants(self)
        self.lose_next: Counter[str] = Counter()
        """Names of handover messages, or "answer" and the proxy, of which the next ones get lost."""
        self.retried_by_source: set[str] = set()
        self.retried_by_target: set[str] = set()
        """Transfers of which each side said something again."""
        self.catch_ups = self.relays = self.offers = 0
        self._said: set[tuple[str, str]] = set()
        self.parted: dict[tuple[str, str], int] = {}
        """(from, to) -> until when no handover message gets through that way."""
        self.registry_away_until = 0
        """Until then the registry has no quorum: it answers nobody, and no lease ends."""
        self.stalled: dict[str, int] = {}
        """Proxy -> until when its claims are under way."""
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._scheduled = 0
        self._connections = 0
        order = list(sites)
        reach = 1 if line else len(sites)
        neighbours = {
            site: tuple(SiteId(each) for other, each in enumerate(order) if 0 < abs(other - at) <= reach)
            for at, site in enumerate(order)
        }
        self.nodes = {
            name: Node(self, ProxyId(name), SiteId(site), neighbours[site])
            for site, names in sites.items()
            for name in names
        }
        self.links = [Link(self, SiteId(near), far) for near in order for far in neighbours[near]]
        self.clients: dict[str, Client] = {}
        for node in self.nodes.values():
            node.start()

    # ------------------------------------------------------------ time

    def delay(self, most_ms: int = 20) -> int:
        return 1 if self.seed is None else 1 + int(self.chance.random() * most_ms)

    def later(self, wait_ms: int, action: Callable[[], None]) -> None:
        self._scheduled += 1
        heapq.heappush(self._queue, (self.clock.now_ms() + wait_ms, self._scheduled, action))

    def run(self, for_ms: int, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass; return whether `until` came true."""
        end = self.clock.now_ms() + for_ms
        queue, clock = self._queue, self.clock
        while queue and queue[0][0] <= end:
            if queue[0][0] > clock.time_ms and until is not None and until():
                return True
            at, _, action = heapq.heappop(queue)
            clock.time_ms = max(clock.time_ms, at)
            action()
        self.clock.time_ms = end
        return until is not None and until()

    # ------------------------------------------------------------ what is told

    def note(self, line: str, *, tell: bool = False) -> None:
        self.trace.append(f"{self.clock.now_ms():6} {line}")
        if tell:
            self.story.append(line)

    def wrong(self, what: str) -> None:
        self.wrongs.append(what)
        self.note(f"WRONG {what}", tell=True)

    def hash(self) -> str:
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    def repeat(self, kind: str) -> None:
        """Let every proxy's last handover message of this kind come once more."""
        for node in self.nodes.values():
            if kind in node.sent:
                self.later(1, node.sent[kind])

    # ------------------------------------------------------------ shared happenings

    def chances(self, probability: float) -> bool:
        return probability > 0 and self.chance.random() < probability

    def skew(self) -> int:
        return 0 if self.seed is None else self.chance.randint(-SKEW_MS, SKEW_MS)

    def loses(self, what: str) -> bool:
        """Tell whether this one was to get lost."""
        lost = self.lose_next[what] > 0
        self.lose_next[what] -= lost
        return lost

    def appended(self, site: SiteId, records: list[Any]) -> list[int]:
        offsets = self.logs[site].append(records)
        for offset, record in zip(offsets, records, strict=True):
            self.note(f"log {site}@{offset} {type(record).__name__} {_brief(record)}")
        for node in self.nodes.values():
            if node.site == site:
                self.later(self.delay(), node.read)
        return offsets

    def count(self, message: object) -> None:
        """Count what a handover message says of the run."""
        match message:
            case Offer():
                self.offers += 1
            case Stay():
                self.relays += 1
            case Prepare() | Ready() | Prepared() | Frozen():
                said = (message.transfer, type(message).__name__)
                if said in self._said:
                    by_target = isinstance(message, Prepare | Ready)
                    (self.retried_by_target if by_target else self.retried_by_source).add(message.transfer)
                self._said.add(said)

    def registry_answers(self) -> bool:
        return self.clock.now_ms() >= self.registry_away_until

    def lose_quorum(self, for_ms: int) -> None:
        """A registry that finds its quorum again gives every lease its whole time anew, as etcd does."""
        until = self.registry_away_until = self.clock.now_ms() + for_ms
        self.note("the registry has no quorum", tell=True)
        self.registry.prolong(until + LEASE_MS)

    def compact(self) -> None:
        """The registry forgets what watches have not seen yet: the next thing that they are told is all there is."""
        self.note("the registry is compacted", tell=True)
        for node in self.nodes.values():
            node.behind = True

    def part(self, one: str, other: str, for_ms: int) -> None:
        self.note(f"{one} does not reach {other}", tell=True)
        self.parted[one, other] = self.clock.now_ms() + for_ms

    def registry_changed(self) -> None:
        events, self.registry.events = self.registry.events, []
        for event in events:
            if isinstance(event, OwnerChanged):
                self.invariants.row_changed(event)
            for node in self.nodes.values():
                node.hear(event)

    def connect(self, client: Client, name: str) -> Wire | None:
        node = self.nodes[name]
        if node.engine is None or not node.ready:
            return None
        self._connections += 1
        wire = Wire(self, self._connections, client, node)
        node.wires[wire.number] = wire
        node.engine.client_connected(wire.number)
        return wire

    def client(self, name: str, session: str | None, at: str, window: int = 4000) -> Client:
        client = self.clients[name] = Client(self, name, session, window)
        client.go(at)
        return client

    def link_between(self, one: SiteId, other: SiteId, message: LinkMessage) -> Link:
        """Return the link that a message from a proxy of `one` to a proxy of `other` is about."""
        ends = (one, other) if isinstance(message, LinkRecords) else (other, one)
        return next(link for link in self.links if (link.near, link.far) == ends)

    def live_nodes(self, site: SiteId | None = None) -> list[Node]:
        return [node for node in self.nodes.values() if node.ready and site in (None, node.site)]


class Node:
    """One proxy's process, its disk, and its shell: it performs the effects as node/node.py does."""

    ends: Ends
    """Of its site's links, in this process."""

    def __init__(self, world: World, proxy: ProxyId, site: SiteId, neighbours: tuple[SiteId, ...]) -> None:
        self.world = world
        self.proxy = proxy
        self.site = site
        self.settings = Settings(proxy, site, neighbours)
        self.store = PlainStore()
        self.engine: Engine | None = None
        self.wires: dict[int, Wire] = {}
        self.ready = False
        self.full = False
        """The disk takes nothing."""
        self.append_ms = 0
        """So much longer an append to the log takes."""
        self.slow_until = 0
        """Until then the disk takes its time."""
        self.stalled_until = 0
        """Until then the process does nothing; what comes meanwhile waits."""
        self._stalled: deque[Callable[[], None]] = deque()
        self._waking = False
        self.behind = False
        """The watch must begin anew."""
        self.clock = SkewedClock(world.clock, world.skew())
        self.deaf_until = 0
        """Until then nothing passes between this proxy and the registry."""
        self.sent: dict[str, Callable[[], None]] = {}
        """What was last said of every kind of handover message, to be said again."""
        self._lives = 0
        self._heard_at = 0
        self._append_at = 0
        self._tick_at = 0

    # ------------------------------------------------------------ life

    def start(self) -> None:
        world = self.world
        restored = self.store.load()
        self._lives += 1
        chance = random.Random(f"{world.seed}/{self.proxy}/{self._lives}")
        life = Incarnation(f"{self.proxy}#{self._lives}")
        self.engine = Engine(self.settings, self.clock, chance, life, restored)
        self.ends = Ends(self)
        self._heard_at = self._append_at = world.clock.now_ms()
        world.registry.expire(world.clock.now_ms())
        self._in(lambda engine: engine.registry_event(world.registry.reloaded()))
        world.registry_changed()
        self.read()
        self._live(len(world.logs[self.site]), life)
        world.note(f"{self.proxy} starts", tell=True)

    def crash(self, *, disk_lost: bool = False) -> None:
        self.engine, self.ready = None, False
        if disk_lost:
            self.store = PlainStore()
        self.world.note(f"{self.proxy} crashes{' and loses its disk' if disk_lost else ''}", tell=True)
        for wire in list(self.wires.values()):
            wire.close()

    def _in(self, action: Callable[[Engine], None]) -> None:
        """Step the engine, perform what comes out, and set the timer again."""
        engine = self.engine
        if engine is None:
            return
        if self.stalls(lambda: self._in(action) if self.engine is engine else None):
            return
        action(engine)
        while self.engine is engine and (wanted := engine.take_effects()):
            for effect in wanted:
                self._perform(effect)
        self._arm(engine)

    def stall(self, for_ms: int) -> None:
        self.world.note(f"{self.proxy} stalls for {for_ms} ms", tell=True)
        self.stalled_until = max(self.stalled_until, self.world.clock.now_ms() + for_ms)

    def stalls(self, action: Callable[[], None]) -> bool:
        """Tell whether the process does nothing now; `action` waits then, in its place."""
        wait = self.stalled_until - self.world.clock.now_ms()
        if self._waking or (wait <= 0 and not self._stalled):
            return False
        if not self._stalled:
            self.world.later(wait, self._wake)
        self._stalled.append(action)
        return True

    def _wake(self) -> None:
        wait = self.stalled_until - self.world.clock.now_ms()
        if wait > 0:
            self.world.later(wait, self._wake)
            return
        self._waking = True
        while self._stalled:
            self._stalled.popleft()()
        self._waking = False

    def _arm(self, engine: Engine) -> None:
        now = self.world.clock.now_ms()
        due = max(now + 1, engine.next_deadline())
        if now < self._tick_at <= due:
            return
        self._tick_at = due

        def tick() -> None:
            if self.engine is engine and self._tick_at == due:
                self._in(lambda engine: engine.tick())

        self.world.later(due - now, tick)

    def _afterwards(self, wait_ms: int, action: Callable[[Engine], None]) -> None:
        """Step the engine later, if it is still the same one."""
        engine = self.engine
        self.world.later(wait_ms, lambda: self._in(action) if self.engine is engine else None)

    def read(self) -> None:
        """Take the next records of the log."""
        if self.engine is None or self.stalls(self.read):
            return
        log = self.world.logs[self.site]
        start = self.engine.state.position
        batch = log.read(start, start + self.world.delay(6) + 2)
        if batch:
            self._in(lambda engine: engine.log_batch(batch))
            self.ends.folded(batch)
            self.world.later(self.world.delay(4), self.read)

    # ------------------------------------------------------------ leases

    def _live(self, end: int, life: Incarnation) -> None:
        """Announce a new life, once the log is read up to where it ended when we started."""
        engine, world = self.engine, self.world
        assert engine is not None
        if engine.state.position < end or world.clock.now_ms() < self.deaf_until:
            self._afterwards(10, lambda engine: self._live(end, life))
            return
        until = world.clock.now_ms() + LEASE_MS
        row = ProxyRow(proxy=self.proxy, incarnation=life, site=self.site, url=self.proxy, changelog=self.site)
        world.registry.announce(row, until)
        world.registry_changed()
        self.ready = True
        self._afterwards(0, lambda engine: engine.lease_granted(life, until))
        self.ends.lease_begun(life)
        self._afterwards(LEASE_MS // 3, lambda engine: self._renew(life))

    def _renew(self, life: Incarnation) -> None:
        now = self.world.clock.now_ms()
        if now >= self.deaf_until and self.world.registry_answers():
            self.world.registry.expire(now)
            held = self.world.registry.renew(self.proxy, life, now + LEASE_MS)
            self.world.registry_changed()
            if not held:
                self.ready = False
                self._in(lambda engine: engine.lease_lost())
                self.ends.lease_ended()
                self._lives += 1
                self._live(0, Incarnation(f"{self.proxy}#{self._lives}"))
                return
            self._afterwards(self.world.delay(), lambda engine: engine.lease_renewed(now + LEASE_MS))
        self._afterwards(LEASE_MS // 3, lambda engine: self._renew(life))

    def hear(self, event: RegistryEvent) -> None:
        """The watch: in order, after a while."""
        now = self.world.clock.now_ms()
        away = max(self.deaf_until, self.world.registry_away_until)
        self._heard_at = max(self._heard_at, now + self.world.delay(30), away)
        behind, self.behind = self.behind, False

        def told(engine: Engine) -> None:
            said = self.world.registry.reloaded() if behind else event
            engine.registry_event(said)
            self.ends.heard(said)

        self._afterwards(self._heard_at - now, told)

    # ------------------------------------------------------------ effects

    def _perform(self, effect: effects.Effect) -> None:
        match effect:
            case effects.Send():
                self._send(effect)
            case effects.Hangup():
                if effect.connection in self.wires:
                    self.wires[effect.connection].close()
            case effects.SendPeer():
                self._send_peer(effect)
            case effects.Attest():
                self._attest(effect)
            case effects.CreateRow() | effects.ClaimRow() | effects.ReadRow():
                self._ask_registry(effect)
            case effects.Append():
                self._append(effect)
            case effects.Save() | effects.LoadEntries():
                self._use_store(effect)
            case effects.PutCheckpoint():
                self._put(effect)
            case effects.FindCheckpoint() | effects.FetchHistory():
                self._look_up(effect)

    def _send(self, effect: effects.Send) -> None:
        wire = self.wires.get(effect.connection)
        if wire is None:
            return
        if isinstance(effect.message, DeliverEncoded):
            assert wire.client.session is not None
            self.world.invariants.delivers(self, wire.client.session, effect.message.epoch)
        wire.to_client(effect.message)

    def _send_peer(self, effect: effects.SendPeer) -> None:
        world, kind = self.world, type(effect.message).__name__
        data = msgspec.msgpack.encode(effect.message)
        world.count(effect.message)
        world.invariants.says(self.proxy, effect.message)
        self.sent[kind] = lambda: self._reach(effect.proxy, data)
        world.note(f"{self.proxy} -> {effect.proxy} {kind}", tell=True)
        faults = world.faults
        parted = world.clock.now_ms() < world.parted.get((self.proxy, effect.proxy), 0)
        if parted or world.loses(kind) or world.chances(faults.loss):
            world.note(f"  lost {kind}", tell=True)
            return
        for _ in range(1 + world.chances(faults.double)):
            wait = world.delay() + (world.chance.randint(0, faults.slow_ms) if faults.slow_ms else 0)
            world.later(wait, lambda: self._reach(effect.proxy, data))

    def _reach(self, proxy: ProxyId, data: bytes) -> None:
        self.world.nodes[proxy]._in(lambda engine: engine.peer_message(self.proxy, _handover.decode(data)))

    def _attest(self, effect: effects.Attest) -> None:
        for fact in effect.facts:
            self.world.facts.append(fact)
            self.world.invariants.attests(self.proxy, fact)
            if fact.kind in TOLD_FACTS:
                self.world.note(_told(fact), tell=True)
        self._afterwards(self.world.delay(), lambda engine: effect.then(None))

    def _ask_registry(self, effect: effects.CreateRow | effects.ClaimRow | effects.ReadRow) -> None:
        world, answering = self.world, f"answer {self.proxy}"
        if isinstance(effect, effects.ClaimRow):
            world.invariants.claims(self, effect)
        writes = not isinstance(effect, effects.ReadRow)
        stalled = max(0, world.stalled.get(self.proxy, 0) - world.clock.now_ms()) if writes else 0
        engine = self.engine

        def act() -> None:
            lost = world.chances(world.faults.answers)
            lost = (writes and world.loses(answering)) or lost
            answer: object = None
            away = world.clock.now_ms() < self.deaf_until or not world.registry_answers()
            if away or (lost and world.seed is not None and world.chances(0.5)):
                lost = True
            else:
                answer = self._act(effect)
                world.registry_changed()
            if lost:
                world.note(f"{self.proxy} has no answer from the registry", tell=True)
                answer = RegistryUnavailable("no answer")
            if self.engine is engine:
                self._afterwards(world.delay(), lambda engine: effect.then(answer))  # type: ignore[arg-type]

        world.later(world.delay() + stalled, act)

    def _act(self, effect: effects.CreateRow | effects.ClaimRow | effects.ReadRow) -> object:
        registry = self.world.registry
        if isinstance(effect, effects.ReadRow):
            return registry.owners.get(effect.session)
        new = effect.ownership if isinstance(effect, effects.CreateRow) else effect.new
        answer = registry.claim(effect.session, getattr(effect, "expected", None), new)
        word = "takes" if answer.won else "does not get"
        self.world.note(f"{new.proxy} {word} {effect.session} at epoch {new.epoch}", tell=True)
        return answer

    def _append(self, effect: effects.Append) -> None:
        """Appends of one proxy stay in order; after an error nobody knows whether it was done."""
        world, now = self.world, self.world.clock.now_ms()
        self._append_at = max(self._append_at, now + world.delay() + self.append_ms)
        failed = world.chances(world.faults.writes)
        done = not failed or world.chances(0.5)
        engine = self.engine

        def act() -> None:
            answer: Any = world.appended(self.site, list(effect.records)) if done else None
            if failed:
                answer = LogUnavailable("no answer")
            if self.engine is engine:
                self._afterwards(world.delay(), lambda engine: effect.then(answer))

        world.later(self._append_at - now, act)

    def _use_store(self, effect: effects.Save | effects.LoadEntries) -> None:
        saving = isinstance(effect, effects.Save)
        if isinstance(effect, effects.Save):
            self.world.invariants.saves(self, effect)
        failed = saving and (self.full or self.world.chances(self.world.faults.writes))

        def act(engine: Engine) -> None:
            if failed:
                effect.then(StoreFailed("the disk is full"))
            elif isinstance(effect, effects.Save):
                self.store.apply(effect.batch)
                effect.then(None)
            else:
                effect.then(self.store.entries(effect.session, effect.after, effect.limit))

        slow = self.world.delay(SLOW_DISK_MS) if self.world.clock.now_ms() < self.slow_until else 0
        self._afterwards(self.world.delay() + slow, act)

    def _put(self, effect: effects.PutCheckpoint) -> None:
        engine, world = self.engine, self.world
        error: WaypostError | None = None
        if world.loses(f"put {self.proxy}") or world.chances(world.faults.writes):
            error = LogUnavailable("no answer")

        def act() -> None:
            if error is None:
                world.changelogs[self.site].put(effect.checkpoint)
            if self.engine is engine:
                self._afterwards(world.delay(), lambda engine: effect.then(error))

        world.later(world.delay(), act)

    def _look_up(self, effect: effects.FindCheckpoint | effects.FetchHistory) -> None:
        world = self.world
        world.catch_ups += isinstance(effect, effects.FetchHistory)

        def act(engine: Engine) -> None:
            if isinstance(effect, effects.FetchHistory):
                up = effect.site == self.site or world.live_nodes(effect.site)
                answer: Any = history(world, effect) if up else RegistryUnavailable("nobody there")
                self._afterwards(world.delay(), lambda engine: effect.then(answer))
            else:
                known = sorted({self.site, *engine.context.changelogs.values()})
                found = [world.changelogs[site].latest(effect.session) for site in known]
                best = max((each for each in found if each), key=lambda each: each.rank, default=None)
                self._afterwards(world.delay(), lambda engine: effect.then(effects.FoundCheckpoint(best, True)))

        self._afterwards(world.delay(), act)


def _told(fact: Fact) -> str:
    what = {
        "owned": f"serves {fact.session} at epoch {fact.epoch} ({fact.reason})",
        "released": f"lets go of {fact.session} at epoch {fact.epoch}",
        "handover": f"is {fact.reason}",
        "effective": f"promises {fact.subscription} above {_where(fact.frontier)}",
        "unsubscribed": f"ends {fact.subscription} at {_where(fact.frontier)}",
        "gap": f"reports a gap {fact.offsets} of {fact.origin}",
    }
    return f"{fact.proxy} {what[fact.kind]}"


def _where(frontier: dict[str, int]) -> str:
    return " ".join(f"{origin}:{offset}" for origin, offset in sorted(frontier.items()))


def _brief(record: Any) -> str:
    fields = ("link", "link_epoch", "origin", "offset", "upto", "above", "proxy", "session", "producer", "sequence")
    shown = [f"{name}={getattr(record, name)}" for name in fields if hasattr(record, name)]
    for name in ("expression", "expressions", "installation", "installations"):
        if hasattr(record, name):
            shown.append(f"{name}={getattr(record, name)}")
    return " ".join(shown)
