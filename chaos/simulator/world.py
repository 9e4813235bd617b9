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
    """Probabilities from 0 to 1, and the longest extra delay of a handover message in ms."""

    loss: float = 0.0
    double: float = 0.0
    slow_ms: int = 0
    answers: float = 0.0
    """An answer of the registry gets lost; half the time the action was never done."""
    writes: float = 0.0
    """A write to a store, changelog or log fails, or its answer gets lost."""


class World:
    """Sites and their proxies: ``World({"A": ["a1", "a2"], "B": ["b1"]}, seed=7)``.

    Every site has a link to every other one; with `line`, only to the one before it and the one after it.

    Args:
        seed: of delays and all random events; None: there are none, and every delay is 1 ms.
        small: whether bounds of copies and of memory are so small that they are reached.
        recorded: whether there is a recording, for a picture.
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
        """The registry as it was last copied."""
        self.revision = 0
        """The number of events that the registry has sent to its watches."""
        self.logs = {SiteId(site): PlainLog(SiteId(site)) for site in sites}
        self.published: dict[Coordinate, Published] = {}
        """All notifications that were ever appended to a log, by their first coordinate."""
        self.lost: set[Coordinate] = set()
        """Those of `published` that were lost with the end of a log."""
        self.changelogs = {site: PlainChangelog() for site in sites}
        self.facts: list[Fact] = []
        """All facts of proxies."""
        self.journal: list[Fact] = []
        """The facts that were written: the others are under way, or were lost with a process."""
        self.trace: list[str] = []
        self.narrative: list[str] = []
        self.violations: list[str] = []
        self.void = ""
        """The reason why the promises do not hold any more; "": they do."""
        self.recording = Recording(self.conditions) if recorded else None
        self.asked: dict[str, dict[str, str]] = {}
        self.ended: dict[str, set[str]] = {}
        self.published_before: dict[tuple[str, str], PublishedBefore] = {}
        """(session, subscription) -> what was published before it was asked to end."""
        self.reused_names = ReusedNames()
        self.policies: dict[str, list[Policy]] = {}
        """Session -> all retention policies that it ever had."""
        self.queues: dict[str, Queue] = {}
        """Session -> its bounded queue, if it has one."""
        self.deletions: dict[str, dict[Origin, int]] = {}
        """Deleted session -> origin -> the offset up to which its receivers are owed nothing."""
        self.secrets: dict[tuple[str, str], History] = defaultdict(History)
        """(session, subscription) -> the secrets that it had."""
        self.keys_of: dict[int, Secrets] = {}
        """Number of a notification -> the secrets with which it was published."""
        self.rights = Rights()
        self.met: Counter[Met] = Counter()
        """Triples of feature, action and phase that have met, and how often."""
        self.published_at: dict[Coordinate, int] = {}
        self.stepped_ms = 0
        """The sum of all forward steps of clocks."""
        self.invariants = Invariants(self)
        self.restores = RegistryRestores(self)
        self.lose_next: Counter[str] = Counter()
        """Names of handover messages, or "answer" and the proxy, of which the next ones get lost."""
        self.retried_by_source: set[str] = set()
        self.retried_by_target: set[str] = set()
        """Transfers of which that side sent a message again."""
        self.catch_ups = self.relays = self.offers = 0
        self._refusals: set[tuple[str, str]] = set()
        self.parted: dict[tuple[str, str], int] = {}
        """(from, to) -> the time until which handover messages of that direction are lost."""
        self.registry_away_until = 0
        """Until then the registry has no quorum: it answers no request, and no lease ends."""
        self.channels: dict[tuple[str, str], PeerChannel] = {}
        """(from, to) -> the channel for messages of handovers, where these go over connections."""
        self.stalled: dict[str, int] = {}
        """Proxy -> the time until which its claims are under way."""
        self._times: list[int] = []
        """A heap of the times of `_actions`."""
        self._actions: dict[int, list[Callable[[], None]]] = {}
        """Time -> the actions at that time, in order."""
        self._connections = self._salts = 0
        order = list(sites)
        reach = 1 if line else len(sites)
        neighbours = {
            site: tuple(SiteId(name) for index, name in enumerate(order) if 0 < abs(index - at) <= reach)
            for at, site in enumerate(order)
        }
        self.nodes = {
            name: Node(self, ProxyId(name), SiteId(site), neighbours[site], SMALL if small else Bounds())
            for site, names in sites.items()
            for name in names
        }
        self.links = [Link(self, SiteId(sender), receiver) for sender in order for receiver in neighbours[sender]]
        self._links = {(link.near, link.far): link for link in self.links}
        self.clients: dict[str, Client] = {}
        for node in self.nodes.values():
            node.start()

    # ------------------------------------------------------------ time

    def delay(self, most_ms: int = 20) -> int:
        """Return a random delay from 1 to `most_ms` ms; 1 without a seed."""
        return 1 if self.seed is None else 1 + int(self.rng.random() * most_ms)

    def later(self, wait_ms: int, action: Callable[[], None]) -> None:
        """Schedule an action, behind those of the same time."""
        at = self.clock.time_ms + wait_ms
        if at in self._actions:
            self._actions[at].append(action)
        else:
            self._actions[at] = [action]
            heappush(self._times, at)

    def run(self, for_ms: int, until: Callable[[], bool] | None = None) -> bool:
        """Let `for_ms` pass, or less if `until` comes true before; return whether it did."""
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

    # ------------------------------------------------------------ trace, narrative and recording

    def note(self, line: str, *, narrate: bool = False, by: str | None = None) -> None:
        """Add a line to the trace, and with `narrate` to the scenario; a picture shows it in the lane `by`, if any."""
        self.trace.append(f"{self.clock.time_ms:6} {line}")
        if narrate:
            self.narrative.append(line)
        if self.recording is not None:
            self.recording.observe(self.clock.time_ms)
            if by is not None:
                self.recording.note(self.clock.time_ms, by, line)

    def conditions(self) -> Conditions:
        """Return the condition of each process that is down or stalled, and the role of each session there."""
        found = {}
        for proxy, node in self.nodes.items():
            if node.engine is None:
                found[proxy, ""] = ("down", 0)
                continue
            if node.still:
                found[proxy, ""] = ("stalled", 0)
            for session in node.engine.sessions.values():
                found[proxy, session.id] = (session.role.value, session.epoch)
        return found

    def carries(self, sender: str, to: str, kind: str, wait_ms: int | None) -> None:
        """Record a message that is under way for `wait_ms`; None: it is lost."""
        if self.recording is not None:
            self.recording.carries(self.clock.time_ms, sender, to, kind, wait_ms)

    def add_violation(self, what: str) -> None:
        """Add a violation, which begins with its kind, such as LOST."""
        self.violations.append(what)
        self.note(f"WRONG {what}", narrate=True, by=VIOLATED)

    def hash(self) -> str:
        """Return a hash of the trace: the same seed gives the same one."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    def repeat(self, kind: str) -> None:
        """Send every proxy's last handover message of this kind again."""
        for node in self.nodes.values():
            if kind in node.sent:
                self.later(1, node.sent[kind])

    # ------------------------------------------------------------ shared happenings

    def chances(self, probability: float) -> bool:
        """Return True with this probability."""
        return probability > 0 and self.rng.random() < probability

    def salt(self) -> int:
        """Return 1, 2, 3, ...: another number each time."""
        self._salts += 1
        return self._salts

    def skew(self) -> int:
        """Return the random skew of a clock in ms; 0 without a seed."""
        return 0 if self.seed is None else self.rng.randint(-SKEW_MS, SKEW_MS)

    def step_clock(self, node: Node, step_ms: int) -> None:
        """Set a node's clock forward, or back with a negative step."""
        self.note(f"the clock of {node.proxy} steps by {step_ms} ms", narrate=True, by=node.proxy)
        node.clock.skew_ms += step_ms
        self.stepped_ms += max(0, step_ms)

    def loses(self, what: str) -> bool:
        """Tell whether the next message of this name in `lose_next` is to get lost, and count it off."""
        lost = self.lose_next[what] > 0
        self.lose_next[what] -= lost
        return lost

    def appended(self, site: SiteId, records: list[Any]) -> list[int]:
        """Append records to a site's log; return their offsets."""
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
        """Present origin of each log -> the log."""
        return {log.origin: log for log in self.logs.values()}

    def lengths(self) -> dict[Origin, int]:
        """Return origin -> the offset below which all was published so far; a huge one for origins that have ended."""
        present = {origin: len(log) for origin, log in self.logs_by_origin.items()}
        ended = {at.origin: 1 << 60 for at in self.published if at.origin not in present or at in self.lost}
        return present | ended

    def last_offsets(self) -> dict[Origin, int]:
        """Return origin -> the last offset at which a notification was published so far."""
        last: dict[Origin, int] = {}
        for origin, offset in self.published:
            last[origin] = max(offset, last.get(origin, NOTHING))
        return last

    def lose_end(self, site: SiteId, count: int) -> None:
        """Remove the last `count` records of a log, as a broker that comes back without them.

        The site's proxies report what they had seen of it. Does nothing where records were seen only by processes that
        are gone: nobody could notice.
        """
        log, site_nodes = self.logs[site], [node for node in self.nodes.values() if node.site == site]
        row, seen_below = self.registry.site_logs[site], log.seen_below
        is_in_row = log_epoch_of(log.origin) == row.log_epoch
        known = max((node.seen_below for node in site_nodes if node.can_report_log_loss), default=0)
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
        for node in site_nodes:
            node.log_grew()

    def count(self, message: object) -> None:
        """Count a handover message, for the coverage of a run."""
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
        """Tell whether the registry has a quorum now."""
        return self.clock.time_ms >= self.registry_away_until

    def lose_quorum(self, for_ms: int) -> None:
        """Take the registry's quorum away for `for_ms`; after that every lease has its whole time anew, as at etcd."""
        until = self.registry_away_until = self.clock.time_ms + for_ms
        self.note("the registry has no quorum", narrate=True, by=REGISTRY)
        self.restores.disturbed("the registry loses its quorum")
        self.registry.prolong(until + LEASE_MS)

    def compact(self) -> None:
        """Compact the registry: it drops events that watches have not seen, and each is sent all rows next."""
        self.note("the registry is compacted", narrate=True, by=REGISTRY)
        for node in self.nodes.values():
            node.watch_breaks()

    def copy_registry(self) -> None:
        """Take the copy that :meth:`put_registry_back` restores."""
        self.note("the registry is copied", narrate=True, by=REGISTRY)
        self.registry_copy = self.registry.copy()

    def put_registry_back(self) -> None:
        """Restore the registry from its copy, if there is one, after AWAY_MS without a quorum; leases begin anew."""
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
        """Lose handover messages from proxy `one` to proxy `other` for `for_ms`."""
        self.note(f"{one} does not reach {other}", narrate=True, by=one)
        self.parted[one, other] = self.clock.time_ms + for_ms

    def connect_proxies(self, one: str, other: str) -> list[PeerChannel]:
        """Send messages of handovers between two proxies over connections from now on; return both channels."""
        for sender, receiver in ((one, other), (other, one)):
            if (sender, receiver) not in self.channels:
                self.channels[sender, receiver] = PeerChannel(self, self.nodes[sender], self.nodes[receiver])
        return [self.channels[one, other], self.channels[other, one]]

    def deleted(self, session: SessionId) -> None:
        """Note that a session was deleted: its receivers are owed nothing of what was published so far."""
        self.note(f"{session} is deleted", narrate=True, by=REGISTRY)
        self.deletions[session] = {origin: length - 1 for origin, length in self.lengths().items()}
        for client in self.clients.values():
            if client.session == session:
                client.reset()

    def registry_changed(self) -> None:
        """Send the registry's events to the watches of all nodes."""
        events, self.registry.events = self.registry.events, []
        for event in events:
            self.revision += 1
            if isinstance(event, OwnerChanged):
                self.invariants.row_changed(event)
            for node in self.nodes.values():
                node.receive_event(event)

    def connect(self, client: Client, name: str) -> Wire | None:
        """Return a connection of a client to the proxy of that name; None: it does not run."""
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
        """Return a new client, which connects to the proxy `at`.

        Args:
            name: of the client.
            session: to attach to; None: it is a producer.
            window: the notifications that it lets be under way.
            version: of the protocol.
            poll_interval_ms: the time that it spends on each notification; 0: it takes all at once.
        """
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
        """Return the link that a message from a proxy of site `one` to a proxy of site `other` belongs to."""
        return self._links[(one, other) if isinstance(message, LinkRecords) else (other, one)]

    def live_nodes(self, site: SiteId | None = None) -> list[Node]:
        """Return the nodes that are ready, of one site or of all."""
        return [node for node in self.nodes.values() if node.ready and site in (None, node.site)]
