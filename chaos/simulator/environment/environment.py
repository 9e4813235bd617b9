"""What all processes and clients of a run share: the parts behind the ports, and what is known of the run.

A :class:`Process` is one proxy as the others, the links and the invariants see it. Its shell stands in
chaos/simulator/processes/node.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from chaos.simulator.environment.fake_backends import PlainChangelog, PlainLog, PlainRegistry, PlainStore
from chaos.simulator.environment.rights import Rights
from chaos.simulator.environment.secrets import History, Secrets
from chaos.simulator.environment.subscription_names import PublishedBefore, ReusedNames
from chaos.simulator.kernel.kernel import Kernel
from chaos.simulator.kernel.narration import brief
from chaos.simulator.kernel.recorder import REGISTRY, log_lane
from federation.links.bounds import LinkBounds
from federation.links.endpoints import LinkEndpoints
from federation.links.inputs import LinkInput
from federation.messages import LinkMessage, SeenRequest, SeenResponse
from federation.ports import OwnerChanged, RegistryEvent, TreeChosen
from handover.messages import Frozen, HandoverOffer, Prepare, Prepared, Ready, TransferDeclined
from proxy.core import effects
from proxy.core.inputs import EngineInput
from proxy.core.settings import Settings
from proxy.engine import Engine
from waypost.client.roaming import Roaming
from waypost.clock import ManualClock
from waypost.errors import LogUnavailable, Refused
from waypost.facts import Fact
from waypost.identity import NOTHING, Coordinate, Origin, ProxyId, SessionId, SiteId
from waypost.messages import VERSION, Credential
from waypost.queue import Queue
from waypost.records import Published

NEAR_MS, FAR_MS = 2, 60
"""Round trips to the nearest proxy of a client, and to all others, in milliseconds."""
ROAMING = Roaming(every_s=0.4, confirmations=2, hold_s=1)
"""The policy of receivers that roam."""


SMALL_LINK_BOUNDS = LinkBounds(batch=3, window=7, live=5, read=4, position_every=5, request_bytes=80)
"""Bounds so small that a run comes to every one of them."""


def url_of(proxy: str) -> str:
    """Return the address of a proxy for clients."""
    return f"ws://{proxy}:7301"


def proxy_at(url: str) -> str:
    """Return the name of the proxy at an address, as :func:`url_of` makes them."""
    return urlsplit(url).hostname or ""


class LinkTraffic:
    """The messages that were sent over all links, by kind, and their bytes."""

    def __init__(self) -> None:
        self.messages: Counter[str] = Counter()
        self.message_bytes = 0

    def count(self, message: LinkMessage, size: int) -> None:
        """Add a message to the counters: one of its kind, and its `size` in bytes."""
        self.messages[type(message).__name__] += 1
        self.message_bytes += size


class SkewedClock:
    """A machine's clock: it runs like all others, and is wrong about what time it is."""

    def __init__(self, clock: ManualClock, skew_ms: int) -> None:
        self._clock = clock
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        """Return the time of the world, in ms."""
        return self._clock.time_ms

    def unix_ms(self) -> int:
        """Return the time of day as this machine has it, in ms."""
        return self._clock.time_ms + self.skew_ms


class Policy(NamedTuple):
    """The retention of notifications that match an expression: seconds, or a number of them; None: no bound."""

    expression: str
    ttl_s: int | None
    max_count: int | None


class LinkRunner(Protocol):
    """The ends of links in one process, until it is gone."""

    @property
    def machine(self) -> LinkEndpoints:
        """The state machine of the process's ends of links."""

    def step(self, input: LinkInput) -> None:
        """Step the process's machines with an input of its ends of links, and perform the effects, if it runs; later
        if it is stalled.
        """


class Process(ABC):
    """One proxy's process and its disk, as far as others see them.

    Args:
        settings: of the proxy; they name it and its site.
    """

    link_shell: LinkRunner
    """The shell of the ends of its site's links, in this process."""

    def __init__(self, world: Environment, settings: Settings) -> None:
        self.world = world
        self.proxy = settings.proxy
        self.site = settings.site
        self.settings = settings
        self.store = PlainStore()
        self.engine: Engine | None = None
        self.wires: dict[int, Any] = {}
        """Number -> the connection of a client."""
        self.ready = False
        self.full = False
        """The disk takes nothing."""
        self.stalled_until = 0
        """The time until which the process does nothing; what comes meanwhile waits."""
        self.still = False
        """Perhaps it is stalled: :meth:`stalls` knows."""
        self._stalled: deque[Callable[[], None]] = deque()
        self._replays_stalled = False
        self.clock = SkewedClock(world.clock, world.skew())
        self.deaf_until = 0
        """The time until which nothing passes between this proxy and the registry."""
        self.read_below = 0
        """Below this offset every record of the log was read in this process, or its append was answered."""
        self.version = VERSION
        """In which it speaks to other proxies."""

    # ------------------------------------------------------------ steps

    @abstractmethod
    def step(self, input: EngineInput | LinkInput) -> None:
        """Step engine and links, perform what comes out, and set the timers; do nothing if the process is down.

        A process that is stalled does so when the stall is over.
        """

    @abstractmethod
    def append(self, effect: effects.Append) -> None:
        """Append the effect's records to the site's log, behind all earlier appends of this process.

        `effect.on_done` is called later with the offsets, or with a WaypostError: after LogUnavailable the records may
        or may not be in the log. It is never called if the process has ended by then.
        """

    @abstractmethod
    def receive_event(self, event: RegistryEvent) -> None:
        """Have the registry's watch bring the process an event that concerns no link: later, behind all earlier ones.

        A process does not get it if it has ended or is ending by then, if its watch is broken then, or if the watch has
        reported all rows since.
        """

    @abstractmethod
    def receive_tree_event(self, event: RegistryEvent) -> None:
        """Have the registry's watch bring the process an event of links or their tree: later, behind all earlier ones.

        A process does not get it if it has ended or is ending by then, if its watch is broken then, or if the watch has
        reported all rows since.
        """

    @abstractmethod
    def watch_breaks(self) -> None:
        """Break the registry's watch, which has dropped events; all rows come next. Ignored if the process is down."""

    @abstractmethod
    def log_grew(self) -> None:
        """Schedule a read of the site's log, which has new records; a process that is down ignores it."""

    @abstractmethod
    def restart_on_new_log(self, why: str, end: int | None = None) -> None:
        """Have the process end and begin anew, since its site's log is not what was read of it (handover rule 27).

        A process that is down, or ends for this reason already, ignores it.

        Args:
            why: the reason, in words, for the trace.
            end: the offset from which on the log was another one when that was noticed; None: where the log ends now.
        """

    @abstractmethod
    def schedule(self, wait_ms: int, action: Callable[[], None]) -> None:
        """Call `action` in `wait_ms` ms, outside the engine, unless the process has ended by then.

        If the process is stalled then, `action` is called when the stall is over.
        """

    @abstractmethod
    def advance_seen(self, below: int) -> None:
        """Note that the process has read its site's log, or has an answer to an append, up to below this offset.

        A lower offset than an earlier one changes nothing.
        """

    @abstractmethod
    def log_interrupted(self) -> None:
        """Have the process compare its site's log, which was out of reach, with what was seen of it, a moment later.

        A process that is down ignores it.
        """

    @abstractmethod
    def seen_beyond(self, origin: Origin, offset: int) -> None:
        """Note that a neighbour has seen an origin of this site up to `offset`, further than this process.

        The next check of the log finds whether the log has lost its end (handover rule 27).
        """

    @property
    @abstractmethod
    def is_announced(self) -> bool:
        """Whether the process can be asked by others: the registry has its row, and it was not stopped since."""

    @abstractmethod
    def seen(self, origin: Origin) -> int:
        """Return the highest offset of an origin that this process has seen; -1: none."""

    @abstractmethod
    def answer_seen(self, request: SeenRequest) -> SeenResponse | None:
        """Return what this process, which runs, has seen of the origin that another one asks for; None: it does not
        know yet.
        """

    @abstractmethod
    def refuse(self, peer: ProxyId, error: Refused, what: str) -> None:
        """Count and trace the refusal of a message of another proxy; do nothing if the process is down.

        Args:
            peer: the proxy that sent the message.
            error: why it is refused.
            what: the message, in words: ``what a1 says``.
        """

    # ------------------------------------------------------------ condition

    @property
    @abstractmethod
    def leaving(self) -> bool:
        """Whether the process is ending in good order, as after SIGTERM."""

    @property
    @abstractmethod
    def appends_wait(self) -> bool:
        """Whether the log was out of reach, and nothing is appended until it was compared with what was read of it."""

    @property
    @abstractmethod
    def is_watch_current(self) -> bool:
        """Whether the registry's watch has told the process of all that happened; True also if the process is down."""

    @abstractmethod
    def could_act_for(self, for_ms: int) -> bool:
        """Tell whether the process has a lease, is not ending, and was up, not stalled, and in touch with the registry
        for the last `for_ms` ms; 0: whether this is so now.
        """

    def stalls(self, action: Callable[[], None]) -> bool:
        """Keep `action` until the stall is over, if the process is stalled now, or kept actions are still waiting;
        return whether it was kept.

        If it was, the caller returns without doing anything. Kept actions are called in their order, at the end of the
        stall, also if the process has ended meanwhile. If it was not kept, `action` is not called by this. While kept
        actions are performed, nothing is kept, even if one of them stalls the process again.
        """
        wait = self.stalled_until - self.world.clock.time_ms
        self.still = wait > 0 or bool(self._stalled)
        if self._replays_stalled or not self.still:
            return False
        if not self._stalled:
            self.world.later(wait, self._replay_stalled)
        self._stalled.append(action)
        return True

    def _replay_stalled(self) -> None:
        wait = self.stalled_until - self.world.clock.time_ms
        if wait > 0:
            self.world.later(wait, self._replay_stalled)
            return
        self._replays_stalled = True
        while self._stalled:
            self._stalled.popleft()()
        self._replays_stalled = False


class Carrier(Protocol):
    """A connection from one proxy to another."""

    def carry(self, data: bytes) -> None:
        """Send an encoded handover message to the other proxy: it arrives later, or never if the connection fails."""


class Listener(Protocol):
    """A client, as other clients, the checks and the deletion of its session see it.

    Args:
        name: of the client, which no other client of the run has.
    """

    name: str

    @property
    def credential(self) -> Credential:
        """The credential with which the client attaches."""

    @property
    def session(self) -> SessionId | None:
        """The session that the client attaches to; None: it publishes only."""

    @property
    def identity(self) -> tuple[str, str]:
        """Session and receiver of the client, by which subscriptions are named; the name for both without a session."""

    @property
    def joined(self) -> dict[Origin, int] | None:
        """Origin -> the offset from which on the client is owed notifications; None: it was never let in."""

    def reset(self) -> None:
        """Forget all requests of the client, of which nothing is owed any more: its session was deleted.

        It counts as never let in, and as one that has not been told of the deletion. What was noted of the access to
        the session is forgotten too.
        """


class Environment(Kernel):
    """The parts behind the ports of all processes, and what is known of the run.

    Args:
        sites: their names.
        seed: see :class:`Kernel`.
    """

    dead_sites: set[SiteId]
    """Sites that have ended for good."""
    link_lease_ms: int
    """The time after which a link that has failed is given up."""
    nodes: Mapping[str, Process]
    """Name of a proxy -> its process."""
    clients: Mapping[str, Listener]
    channels: Mapping[tuple[str, str], Carrier]
    """(from, to) -> the channel for messages of handovers, where these go over connections."""

    def __init__(self, sites: list[SiteId], seed: int | None) -> None:
        super().__init__(seed)
        self.registry = PlainRegistry()
        self.registry_copy: PlainRegistry | None = None
        """The registry as it was last copied."""
        self.roaming: Roaming | None = None
        """The policy of receivers that come from now on."""
        self.link_traffic = LinkTraffic()
        self.link_bounds = SMALL_LINK_BOUNDS
        """The bounds of the ends of links of processes that start from now on."""
        self.nearest: dict[str, str] = {}
        """Client -> the proxy that is nearest to the client; all others are as far away as each other."""
        self.expressions: tuple[str, ...] = ()
        """Expressions of which a schedule's steps subscribe to one each."""
        self.revision = self.tree_revision = 0
        """The number of events that the registry has sent to its watches; and of those of links and the tree."""
        self.logs = {site: PlainLog(site) for site in sites}
        self.published: dict[Coordinate, Published] = {}
        """All notifications that were ever appended to a log, by their first coordinate."""
        self.lost: set[Coordinate] = set()
        """Those of `published` that were lost with the end of a log."""
        self.changelogs = {str(site): PlainChangelog() for site in sites}
        self.facts: list[Fact] = []
        """All facts of proxies."""
        self.journal: list[Fact] = []
        """The facts that were written: the others are under way, or were lost with a process."""
        self.void = ""
        """The reason why the promises do not hold any more; "": they do."""
        self.asked: dict[str, dict[str, str]] = {}
        self.ended: dict[str, set[str]] = {}
        self.published_before: dict[tuple[str, str], PublishedBefore] = {}
        """(session, subscription) -> what was published before it was asked to end."""
        self.reused_names = ReusedNames()
        self.policies: dict[str, list[tuple[str, Policy]]] = {}
        """Session -> the retention policies that its subscriptions ever had, each with the id of the subscription."""
        self.queues: dict[str, Queue] = {}
        """Session -> its bounded queue, if it has one."""
        self.deletions: dict[str, dict[Origin, int]] = {}
        """Deleted session -> origin -> the offset up to which its receivers are owed nothing."""
        self.secrets: dict[tuple[str, str], History] = defaultdict(History)
        """(session, subscription) -> the secrets that it had."""
        self.keys_of: dict[int, Secrets] = {}
        """Number of a notification -> the secrets with which it was published."""
        self.rights = Rights()
        self.published_at: dict[Coordinate, int] = {}
        self.stepped_ms = 0
        """The sum of all forward steps of clocks."""
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
        """The time until which the registry has no quorum: it answers no request, and no lease ends."""
        self.stalled: dict[str, int] = {}
        """Proxy -> the time until which its claims are under way."""
        self._connections = 0
        self.row_watches: list[Callable[[OwnerChanged], None]] = []
        """Those that hear of a session's row before any process does."""

    # ------------------------------------------------------------ what happens in it

    def loses(self, what: str) -> bool:
        """Tell whether a message is to get lost by :attr:`lose_next`, and if so take one off the count of its name.

        Args:
            what: the name of a message between proxies, such as Prepare, or "answer" or "put", a blank and a proxy.
        """
        lost = self.lose_next[what] > 0
        self.lose_next[what] -= lost
        return lost

    def next_connection(self) -> int:
        """Return a number for another connection of a client: 1, 2, 3, ..."""
        self._connections += 1
        return self._connections

    def appended(self, site: SiteId, records: list[Any]) -> list[int]:
        """Append records to a site's log, note its notifications as published, and have the site's proxies read on.

        Returns:
            The offsets of the records, ascending.
        """
        offsets, origin = self.logs[site].append(records), self.logs[site].origin
        for offset, record in zip(offsets, records, strict=True):
            if isinstance(record, Published):
                # An append before all know of a log's new epoch is answered by nobody.
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
        """Return origin -> the offset below which all was published so far; a huge one, 1 << 60, for origins that have
        ended or have lost notifications with the end of their log.
        """
        present = {origin: len(log) for origin, log in self.logs_by_origin.items()}
        ended = {at.origin: 1 << 60 for at in self.published if at.origin not in present or at in self.lost}
        return present | ended

    def last_offsets(self) -> dict[Origin, int]:
        """Return origin -> the last offset at which a notification was published; origins without any are left out."""
        last: dict[Origin, int] = {}
        for origin, offset in self.published:
            last[origin] = max(offset, last.get(origin, NOTHING))
        return last

    def count(self, message: object) -> None:
        """Count a message between proxies for the coverage of a run; one that is not of a handover changes nothing."""
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

    def check_log(self, site: SiteId) -> None:
        """Raise LogUnavailable if the log of a site is away now; do nothing otherwise."""
        if self.clock.time_ms < self.logs[site].away_until:
            raise LogUnavailable("no answer")

    def registry_answers(self) -> bool:
        """Tell whether the registry has a quorum now."""
        return self.clock.time_ms >= self.registry_away_until

    def registry_changed(self) -> None:
        """Send the registry's pending events to the watches of all processes.

        To be called after each change of its rows.
        """
        events, self.registry.events = self.registry.events, []
        for event in events:
            self.revision += 1
            if isinstance(event, OwnerChanged):
                for watch in self.row_watches:
                    watch(event)
            for node in self.nodes.values():
                node.receive_event(event)
        self.tree_changed()

    def tree_changed(self) -> None:
        """Send the registry's pending events of links and the dispatching tree to the watches of all processes.

        To be called after each change of links, leaders or the tree; :meth:`registry_changed` calls it too.
        """
        events, self.registry.tree_events = self.registry.tree_events, []
        for event in events:
            self.tree_revision += 1
            if isinstance(event, TreeChosen):
                edges = ", ".join("-".join(edge) for edge in event.row.links)
                self.note(f"the dispatching tree of epoch {event.row.epoch} is {edges or 'empty'}", by=REGISTRY)
            for node in self.nodes.values():
                node.receive_tree_event(event)

    def round_trip_ms(self, client: str, proxy: str) -> int:
        """Return the round trip from a client to a proxy, in ms."""
        return NEAR_MS if self.nearest.get(client, proxy) == proxy else FAR_MS

    def live_nodes(self, site: SiteId | None = None) -> list[Process]:
        """Return the processes that have a lease, of one site; None: of all sites."""
        return [node for node in self.nodes.values() if node.ready and site in (None, node.site)]
