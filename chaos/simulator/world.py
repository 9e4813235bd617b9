"""A small world: real engines and real client machines, joined by wires that lose, double, delay and reorder.

Everything happens at a time on one clock, in an order that the seed alone decides; :attr:`World.trace` has all of it,
:attr:`World.narrative` what a person would tell. Without a seed every wire takes one millisecond and nothing is lost.
What must hold is in chaos/simulator/verdict.py.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from chaos.simulator.clients import Client, Wire
from chaos.simulator.fake_backends import PlainChangelog, PlainLog, PlainRegistry
from chaos.simulator.invariants import Invariants
from chaos.simulator.links import Link
from chaos.simulator.narration import brief
from chaos.simulator.node import LEASE_MS, Node
from chaos.simulator.peer_channels import PeerChannel
from chaos.simulator.phases import Met
from chaos.simulator.policies import Policy
from chaos.simulator.recorder import REGISTRY, VIOLATED, Conditions, Recording, log_lane
from chaos.simulator.registry_restore import RegistryRestores
from chaos.simulator.rights import Rights
from chaos.simulator.secrets import History, Secrets
from chaos.simulator.subscription_names import PublishedBefore, ReusedNames
from federation.messages import LinkMessage, LinkRecords
from federation.ports import OwnerChanged
from handover.messages import Frozen, HandoverOffer, Prepare, Prepared, Ready, TransferDeclined
from proxy.core.settings import Bounds
from waypost.clock import ManualClock
from waypost.facts import Fact
from waypost.identity import NOTHING, Coordinate, Origin, ProxyId, SessionId, SiteId, log_epoch_of
from waypost.messages import VERSION, Credential
from waypost.queue import Order, Queue
from waypost.records import Published
from waypost.reliability import Reliability

SMALL = Bounds(
    queue_in_memory=3,
    chunk_entries=2,
    chunk_window=2,
    copy_at_attach=6,
    copy_unsaved=4,
    sweep_batch=2,
    activations_at_once=1,
    site_state_ms_per_interest=700,
)
"""With these a session of ten notifications is a large one."""
AWAY_MS = 100
"""So long a registry is away at least while it is put back to a copy."""
SKEW_MS = 3_600_000
"""So far the clocks of two machines may be apart, where people read them."""


@dataclass(slots=True, frozen=True)
class Faults:
    """Chances from 0 to 1, and the longest delay of a handover message."""

    loss: float = 0.0
    double: float = 0.0
    slow_ms: int = 0
    answers: float = 0.0
    """An answer of the registry gets lost; half the time the action was never done."""
    writes: float = 0.0
    """A store, changelog or log does not take what it is given, or does not say so."""


class World:
    """Sites and their proxies: ``World({"A": ["a1", "a2"], "B": ["b1"]}, seed=7)``.

    Every site has a link to every other one; with `line`, only to the one before it and the one after it. With `small`
    bounds of copies and of memory come to bear.
    """

    def __init__(
        self,
        sites: dict[str, list[str]],
        seed: int | None = None,
        *,
        line: bool = False,
        small: bool = False,
        recorded: bool = False,
    ) -> None:
        self.clock = ManualClock(1_000)
        self.seed = seed
        self.rng = random.Random(seed)
        self.faults = Faults()
        self.registry = PlainRegistry()
        self.registry_copy: PlainRegistry | None = None
        """What the registry had when it was last copied."""
        self.revision = 0
        """How many events the registry has told its watches of."""
        self.logs = {SiteId(site): PlainLog(SiteId(site)) for site in sites}
        self.published: dict[Coordinate, Published] = {}
        """All that was ever appended to a log, where it was first appended."""
        self.lost: set[Coordinate] = set()
        """What of it went with the end of a log."""
        self.changelogs = {site: PlainChangelog() for site in sites}
        self.facts: list[Fact] = []
        """What proxies noted."""
        self.journal: list[Fact] = []
        """What of it was written: the rest is on its way, or went with a process."""
        self.trace: list[str] = []
        self.narrative: list[str] = []
        self.violations: list[str] = []
        self.void = ""
        """Why nothing is promised any more; empty: all is."""
        self.recording = Recording(self.conditions) if recorded else None
        self.asked: dict[str, dict[str, str]] = {}
        self.ended: dict[str, set[str]] = {}
        self.published_before: dict[tuple[str, str], PublishedBefore] = {}
        """(session, subscription) -> what was published before it was asked to end."""
        self.reused_names = ReusedNames()
        self.policies: dict[str, list[Policy]] = {}
        """Of every session, what was ever said of how long something is stored."""
        self.queues: dict[str, Queue] = {}
        """Of sessions that store no more than so much."""
        self.deletions: dict[str, dict[Origin, int]] = {}
        """Up to where nobody is owed anything of sessions that were deleted."""
        self.secrets: dict[tuple[str, str], History] = defaultdict(History)
        """(session, subscription) -> by which secrets it goes."""
        self.keys_of: dict[int, Secrets] = {}
        """What was said with a notification, by its number."""
        self.rights = Rights()
        self.met: Counter[Met] = Counter()
        """Which features of the schedule, actions and phases have met."""
        self.published_at: dict[Coordinate, int] = {}
        self.stepped_ms = 0
        """So far clocks were set forward, all steps together."""
        self.invariants = Invariants(self)
        self.restores = RegistryRestores(self)
        self.lose_next: Counter[str] = Counter()
        """Names of handover messages, or "answer" and the proxy, of which the next ones get lost."""
        self.retried_by_source: set[str] = set()
        self.retried_by_target: set[str] = set()
        """Transfers of which each side said something again."""
        self.catch_ups = self.relays = self.offers = 0
        self._refusals: set[tuple[str, str]] = set()
        self.parted: dict[tuple[str, str], int] = {}
        """(from, to) -> until when no handover message gets through that way."""
        self.registry_away_until = 0
        """Until then the registry has no quorum: it answers nobody, and no lease ends."""
        self.channels: dict[tuple[str, str], PeerChannel] = {}
        """(from, to) -> how proxies speak of sessions there, where it is over connections."""
        self.stalled: dict[str, int] = {}
        """Proxy -> until when its claims are under way."""
        self._times: list[int] = []
        """A heap of when something happens."""
        self._actions: dict[int, list[Callable[[], None]]] = {}
        """What happens then, in order."""
        self._connections = self._salts = 0
        order = list(sites)
        reach = 1 if line else len(sites)
        neighbours = {
            site: tuple(SiteId(each) for other, each in enumerate(order) if 0 < abs(other - at) <= reach)
            for at, site in enumerate(order)
        }
        self.nodes = {
            name: Node(self, ProxyId(name), SiteId(site), neighbours[site], SMALL if small else Bounds())
            for site, names in sites.items()
            for name in names
        }
        self.links = [Link(self, SiteId(near), far) for near in order for far in neighbours[near]]
        self._links = {(link.near, link.far): link for link in self.links}
        self.clients: dict[str, Client] = {}
        for node in self.nodes.values():
            node.start()

    # ------------------------------------------------------------ time

    def delay(self, most_ms: int = 20) -> int:
        return 1 if self.seed is None else 1 + int(self.rng.random() * most_ms)

    def later(self, wait_ms: int, action: Callable[[], None]) -> None:
        at = self.clock.time_ms + wait_ms
        if at in self._actions:
            self._actions[at].append(action)
        else:
            self._actions[at] = [action]
            heappush(self._times, at)

    def run(self, for_ms: int, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass; return whether `until` came true."""
        times, clock = self._times, self.clock
        end = clock.time_ms + for_ms
        while times and (at := times[0]) <= end:
            if until is not None and at > clock.time_ms and until():
                return True
            clock.time_ms = at
            for action in self._actions[at]:
                # May add to what happens now.
                action()
            if self.recording is not None:
                self.recording.observe(at)
            del self._actions[heappop(times)]
        clock.time_ms = end
        return until is not None and until()

    # ------------------------------------------------------------ what is told

    def note(self, line: str, *, narrate: bool = False, by: str | None = None) -> None:
        """Put a line into the trace, and into the scenario with `tell`; a picture shows it in the lane of `by`."""
        self.trace.append(f"{self.clock.time_ms:6} {line}")
        if narrate:
            self.narrative.append(line)
        if self.recording is not None:
            self.recording.observe(self.clock.time_ms)
            if by is not None:
                self.recording.note(self.clock.time_ms, by, line)

    def conditions(self) -> Conditions:
        """Return how every process is, and in which role each has which sessions."""
        found = {}
        for proxy, node in self.nodes.items():
            if node.engine is None:
                found[proxy, ""] = ("down", 0)
                continue
            if node.still:
                found[proxy, ""] = ("stalled", 0)
            for session in node.engine.context.sessions.values():
                found[proxy, session.id] = (session.role.value, session.epoch)
        return found

    def carries(self, sender: str, to: str, kind: str, wait_ms: int | None) -> None:
        """A message is on its way, for so long; None: it gets lost."""
        if self.recording is not None:
            self.recording.carries(self.clock.time_ms, sender, to, kind, wait_ms)

    def add_violation(self, what: str) -> None:
        self.violations.append(what)
        self.note(f"WRONG {what}", narrate=True, by=VIOLATED)

    def hash(self) -> str:
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    def repeat(self, kind: str) -> None:
        """Let every proxy's last handover message of this kind come once more."""
        for node in self.nodes.values():
            if kind in node.sent:
                self.later(1, node.sent[kind])

    # ------------------------------------------------------------ shared happenings

    def chances(self, probability: float) -> bool:
        return probability > 0 and self.rng.random() < probability

    def salt(self) -> int:
        self._salts += 1
        return self._salts

    def skew(self) -> int:
        return 0 if self.seed is None else self.rng.randint(-SKEW_MS, SKEW_MS)

    def step_clock(self, node: Node, step_ms: int) -> None:
        self.note(f"the clock of {node.proxy} steps by {step_ms} ms", narrate=True, by=node.proxy)
        node.clock.skew_ms += step_ms
        self.stepped_ms += max(0, step_ms)

    def loses(self, what: str) -> bool:
        """Tell whether this one was to get lost."""
        lost = self.lose_next[what] > 0
        self.lose_next[what] -= lost
        return lost

    def appended(self, site: SiteId, records: list[Any]) -> list[int]:
        offsets, origin = self.logs[site].append(records), self.logs[site].origin
        for offset, record in zip(offsets, records, strict=True):
            if isinstance(record, Published):
                # What is appended before everybody knows of a log's new epoch is answered by nobody.
                at = Coordinate(origin, offset)
                self.published.setdefault(at, record)
                self.published_at.setdefault(at, self.clock.time_ms)
            self.note(f"log {site}@{offset} {type(record).__name__} {brief(record)}", by=log_lane(site))
        for node in self.nodes.values():
            if node.site == site:
                node.log_grew()
        return offsets

    @property
    def logs_by_origin(self) -> dict[Origin, PlainLog]:
        """The logs, by where notifications are first appended in each now."""
        return {log.origin: log for log in self.logs.values()}

    def lengths(self) -> dict[Origin, int]:
        """Return below which offset each origin has all that was published so far; in one that has ended, any."""
        present = {origin: len(log) for origin, log in self.logs_by_origin.items()}
        ended = {at.origin: 1 << 60 for at in self.published if at.origin not in present or at in self.lost}
        return present | ended

    def last_offsets(self) -> dict[Origin, int]:
        """Return the last offset of each origin at which something was published so far."""
        last: dict[Origin, int] = {}
        for origin, offset in self.published:
            last[origin] = max(offset, last.get(origin, NOTHING))
        return last

    def lose_end(self, site: SiteId, count: int) -> None:
        """A broker comes back without a log's last records; all who were connected say what they had seen of it."""
        log, here = self.logs[site], [node for node in self.nodes.values() if node.site == site]
        row, seen_below = self.registry.site_logs[site], log.seen_below
        is_in_row = log_epoch_of(log.origin) == row.log_epoch
        known = max((node.seen_below for node in here if node.can_report_log_loss), default=0)
        if seen_below > max(known, row.seen + 1 if is_in_row else 0):
            # What only those had seen who died at that very time, nobody knows.
            return
        if is_in_row:
            self.registry.site_logs[site] = row.model_copy(update={"seen": max(row.seen, seen_below - 1)})
        # Who it is stands in its first record: an empty log is refused.
        count = max(0, min(count, len(log) - log.first - 1))
        # What it loses may have been appended in several log epochs.
        origins = {offset: log.origin_at(offset) for offset in range(len(log) - count, len(log))}
        for offset, record in log.lose_end(count):
            if isinstance(record, Published):
                at = Coordinate(origins[offset], offset)
                if offset < seen_below:
                    self.lost.add(at)
                else:
                    # Nobody was told of it, and another may stand there.
                    self.published.pop(at, None)
                    self.published_at.pop(at, None)
        self.note(f"the log of {site} loses its end from {len(log)} on", narrate=True, by=log_lane(site))
        for node in here:
            node.log_grew()

    def count(self, message: object) -> None:
        """Count what a handover message says of the run."""
        match message:
            case HandoverOffer():
                self.offers += 1
            case TransferDeclined():
                self.relays += 1
            case Prepare() | Ready() | Prepared() | Frozen():
                refusal = (message.transfer, type(message).__name__)
                if refusal in self._refusals:
                    by_target = isinstance(message, Prepare | Ready)
                    (self.retried_by_target if by_target else self.retried_by_source).add(message.transfer)
                self._refusals.add(refusal)
            case _:
                pass

    def registry_answers(self) -> bool:
        return self.clock.time_ms >= self.registry_away_until

    def lose_quorum(self, for_ms: int) -> None:
        """A registry that finds its quorum again gives every lease its whole time anew, as etcd does."""
        until = self.registry_away_until = self.clock.time_ms + for_ms
        self.note("the registry has no quorum", narrate=True, by=REGISTRY)
        self.restores.disturbed("the registry loses its quorum")
        self.registry.prolong(until + LEASE_MS)

    def compact(self) -> None:
        """The registry forgets what watches have not seen yet: the next thing that they are told is all there is."""
        self.note("the registry is compacted", narrate=True, by=REGISTRY)
        for node in self.nodes.values():
            node.watch_breaks()

    def copy_registry(self) -> None:
        self.note("the registry is copied", narrate=True, by=REGISTRY)
        self.registry_copy = self.registry.copy()

    def put_registry_back(self) -> None:
        """The registry is away for a moment, and then has what it had when it was copied; leases begin anew."""
        copy = self.registry_copy
        if copy is None or not self.restores.may_put_back(copy):
            return
        self.note("the registry is put back to the copy", narrate=True, by=REGISTRY)
        self.restores.put_back(copy)
        self.registry.put_back(copy)
        until = self.registry_away_until = max(self.clock.time_ms + AWAY_MS, self.registry_away_until)
        self.registry.prolong(until + LEASE_MS)
        self.invariants.registry_put_back()
        self.revision += 1
        for node in self.nodes.values():
            node.watch_breaks()

    def part(self, one: str, other: str, for_ms: int) -> None:
        self.note(f"{one} does not reach {other}", narrate=True, by=one)
        self.parted[one, other] = self.clock.time_ms + for_ms

    def connect_proxies(self, one: str, other: str) -> list[PeerChannel]:
        """Let these two speak over connections from now on; return both ways."""
        for near, far in ((one, other), (other, one)):
            if (near, far) not in self.channels:
                self.channels[near, far] = PeerChannel(self, self.nodes[near], self.nodes[far])
        return [self.channels[one, other], self.channels[other, one]]

    def deleted(self, session: SessionId) -> None:
        """The registry says that the session is no more."""
        self.note(f"{session} is deleted", narrate=True, by=REGISTRY)
        self.deletions[session] = {origin: length - 1 for origin, length in self.lengths().items()}
        for client in self.clients.values():
            if client.session == session:
                client.reset()

    def registry_changed(self) -> None:
        events, self.registry.events = self.registry.events, []
        for event in events:
            self.revision += 1
            if isinstance(event, OwnerChanged):
                self.invariants.row_changed(event)
            for node in self.nodes.values():
                node.receive_event(event)

    def connect(self, client: Client, name: str) -> Wire | None:
        node = self.nodes[name]
        if node.engine is None:
            return None
        self._connections += 1
        wire = Wire(self, self._connections, client, node)
        node.wires[wire.number] = wire
        node.engine.client_connected(wire.number)
        return wire

    def client(
        self,
        name: str,
        session: str | None,
        at: str,
        window: int = 4000,
        *,
        session_expiry_s: int | None = None,
        credential: Credential | None = None,
        receiver: str = "",
        version: int = VERSION,
        receiver_expiry_s: int | None = None,
        reliability: Reliability | None = None,
        queue: Queue | None = None,
        order: Order = "any",
        poll_interval_ms: int = 0,
    ) -> Client:
        client = Client(
            self,
            name,
            session,
            window,
            session_expiry_s,
            credential,
            receiver=receiver,
            version=version,
            receiver_expiry_s=receiver_expiry_s,
            reliability=reliability,
            queue=queue,
            order=order,
            poll_interval_ms=poll_interval_ms,
        )
        self.clients[name] = client
        client.go(at)
        return client

    def link_between(self, one: SiteId, other: SiteId, message: LinkMessage) -> Link:
        """Return the link that a message from a proxy of `one` to a proxy of `other` is about."""
        return self._links[(one, other) if isinstance(message, LinkRecords) else (other, one)]

    def live_nodes(self, site: SiteId | None = None) -> list[Node]:
        return [node for node in self.nodes.values() if node.ready and site in (None, node.site)]
