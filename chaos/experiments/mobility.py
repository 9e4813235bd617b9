"""Mobile dispatchers: nodes that move over a plain, reach each other by radio, and dispatch over a tree of those links.

The setting is that of the experiments on dispatching trees that mend themselves in mobile networks, with their
parameters (docs/mobility.md): nodes in a square, random waypoints, links between those in range. Each node is a site
with one proxy, run by the simulator: the machines are the real ones. What is added here is the radio: who is in range,
and the agent on each node that adds and removes links in the registry as its beacons hear others.

Two protocols are compared on the same run:

plain           what the dispatching tree alone delivers: a notification gets to the subscribers that working links of
                the present tree connect with its publisher at that moment. It has the benefit of the doubt: links that
                are only just being opened count as working.
with catch-up   what Waypost delivers: sessions, the frontier, and catch-up after each change of the tree.
"""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from chaos.simulator.environment.environment import LinkTraffic
from chaos.simulator.processes.clients import Client
from chaos.simulator.world import World
from federation.links.bounds import LinkBounds
from waypost.identity import Edge, SiteId, edge, site_of

BEACON_MS = 1_000
"""Time between two beacons, in ms: after so long a node knows who has come into range, and who has left."""
SETTLE_MS = 5_000
"""Time before nodes begin to move, in ms: subscriptions are in force by then."""
STILL_MS = 120_000
"""Time at most, in ms, after nodes have come to a halt, until all is delivered that is owed."""
ACKNOWLEDGED_MS = 2_000
"""Time in which each publish is acknowledged, in ms: the site's log is at hand."""
LOOK_MS = 50
"""Time between two looks at what was delivered, in ms; latencies are as exact."""
FAILURE_MS = 10_000
"""Time for which a link that fails does not work, in ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mobility:
    """The parameters of a run.

    Args:
        nodes: in the square.
        side_m: of the square, in metres.
        range_m: of the radio, in metres.
        speed_mps: of each node, in metres a second.
        duration_s: time for which nodes move and publish, in seconds.
        publish_every_ms: time between two notifications, each published at a node that is drawn.
        subscribers: nodes with a subscriber, which wants all notifications.
        failures_a_minute: how often a link in range fails, on average.
        seed: of all that is drawn.
    """

    nodes: int = 200
    side_m: float = 2_000
    range_m: float = 250
    speed_mps: float = 2
    duration_s: int = 60
    publish_every_ms: int = 500
    subscribers: int = 20
    failures_a_minute: float = 0
    seed: int = 1


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The results of a run.

    Args:
        published: notifications.
        owed: pairs of a notification and a subscriber, whether connected or not.
        plain: of these, pairs that the plain protocol delivers.
        moving: pairs that were delivered when the nodes came to a halt.
        delivered: of the connected pairs, those that were delivered in the end.
        connected: pairs of these that are promised, and that working links connect once the nodes stand still.
        repeated: pairs that were delivered more than once.
        latencies_ms: of each delivery, in ms.
        plain_hops: links that the plain protocol's notifications have passed.
        messages: of links, by kind.
        message_bytes: of all of them.
        trees: dispatching trees after the first.
        breaks: of links: out of range, or failed.
        violations: of the promises, as the simulator's checks report them.
    """

    published: int = 0
    owed: int = 0
    plain: int = 0
    moving: int = 0
    delivered: int = 0
    connected: int = 0
    repeated: int = 0
    latencies_ms: list[int] = field(default_factory=list)
    plain_hops: int = 0
    messages: Counter[str] = field(default_factory=Counter)
    message_bytes: int = 0
    trees: int = 0
    breaks: int = 0
    violations: list[str] = field(default_factory=list)

    def latency_ms(self, share: float) -> int:
        """Return the latency that this share of the deliveries, from 0 to 1, did not exceed; 0: there was none."""
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0


class Plain:
    """The nodes on the plain: where they are, and who is in range of whom. Random waypoints, without a pause.

    Args:
        mobility: the parameters.
        rng: the source of places and of failures.
    """

    def __init__(self, mobility: Mobility, rng: random.Random) -> None:
        self._mobility = mobility
        self._rng = rng
        self.names = [SiteId(f"n{number:03d}") for number in range(mobility.nodes)]
        self._at = {name: self._place() for name in self.names}
        self._to = {name: self._place() for name in self.names}
        self._failed_until: dict[Edge, float] = {}
        self._now_s = 0.0

    def _place(self) -> tuple[float, float]:
        side = self._mobility.side_m
        return self._rng.uniform(0, side), self._rng.uniform(0, side)

    def advance(self, for_s: float) -> None:
        """Move every node, and let links fail, for so many seconds."""
        self._now_s += for_s
        for name in self.names:
            self._at[name] = self._moved(name, self._mobility.speed_mps * for_s)
        probability = self._mobility.failures_a_minute / 60 * for_s
        if probability:
            for link in sorted(self._in_range()):
                if self._rng.random() < probability:
                    self._failed_until[link] = self._now_s + FAILURE_MS / 1000

    def _moved(self, name: SiteId, way_m: float) -> tuple[float, float]:
        (x, y), (to_x, to_y) = self._at[name], self._to[name]
        left_m = math.hypot(to_x - x, to_y - y)
        if left_m <= way_m:
            self._to[name] = self._place()
            return to_x, to_y
        return x + (to_x - x) * way_m / left_m, y + (to_y - y) * way_m / left_m

    def halt(self) -> None:
        """End all failures of links at once. Nodes stand still, and no link fails again, as long as :meth:`advance` is
        not called after that.
        """
        self._failed_until.clear()

    def links(self) -> set[Edge]:
        """Return the links that work: of nodes in range of each other, and not failed."""
        return {link for link in self._in_range() if self._failed_until.get(link, 0) <= self._now_s}

    def _in_range(self) -> set[Edge]:
        cells: dict[tuple[int, int], list[SiteId]] = {}
        range_m = self._mobility.range_m
        for name, (x, y) in self._at.items():
            cells.setdefault((int(x // range_m), int(y // range_m)), []).append(name)
        found = set()
        for (column, row), here in cells.items():
            near = [
                name
                for across in (-1, 0, 1)
                for down in (-1, 0, 1)
                for name in cells.get((column + across, row + down), [])
            ]
            found |= {edge(one, other) for one in here for other in near if one < other and self._reach(one, other)}
        return found

    def _reach(self, one: SiteId, other: SiteId) -> bool:
        (x, y), (other_x, other_y) = self._at[one], self._at[other]
        return math.hypot(x - other_x, y - other_y) <= self._mobility.range_m


def connected(start: SiteId, links: Iterable[Edge]) -> set[SiteId]:
    """Return the nodes that links connect with one of them, itself too."""
    return {node for node, _ in _spread(start, links)}


def links_to(start: SiteId, wanted: Iterable[SiteId], tree: Iterable[Edge]) -> int:
    """Return the number of links of a tree that a notification passes on its ways from a node to others.

    A link on several ways counts once; a node that the tree does not reach adds none.

    Args:
        start: the node where it is published.
        wanted: the nodes that it goes to.
        tree: its links.
    """
    parents = {start: start}
    for node, near in _spread(start, tree):
        parents |= dict.fromkeys(near, node)
    passed: set[SiteId] = set()
    for node in wanted:
        way = node
        while way in parents and way != start and way not in passed:
            passed.add(way)
            way = parents[way]
    return len(passed)


def _spread(start: SiteId, links: Iterable[Edge]) -> Iterator[tuple[SiteId, list[SiteId]]]:
    """Yield nodes, the nearest first, and to each those that are reached from there first."""
    near: dict[SiteId, list[SiteId]] = {}
    for one, other in links:
        near.setdefault(one, []).append(other)
        near.setdefault(other, []).append(one)
    found, following = {start}, deque([start])
    while following:
        node = following.popleft()
        new = [other for other in near.get(node, ()) if other not in found]
        found.update(new)
        following.extend(new)
        yield node, new


class _Run:
    """One run: the plain, the world of the simulator, and what is counted."""

    def __init__(self, mobility: Mobility) -> None:
        self._mobility = mobility
        self._rng = random.Random(f"mobility {mobility.seed}")
        self._plain = Plain(mobility, self._rng)
        self._links = self._plain.links()
        sites: dict[str, list[str]] = {name: [_proxy(name)] for name in self._plain.names}
        self.world = World(sites, mobility.seed, edges=sorted(self._links), link_bounds=LinkBounds())
        self.outcome = Outcome()
        self._subscribers: dict[SiteId, Client] = {}
        self._published: list[tuple[SiteId, int]] = []
        """The publisher of each notification, by number from 1, and when it was published, in ms."""
        self._seen: dict[SiteId, int] = {}
        """How many deliveries of each subscriber were looked at."""
        self._moves_until_ms = 0

    def subscribe(self) -> None:
        """Attach the subscribers, and wait until their subscriptions are in force where links lead."""
        for name in sorted(self._rng.sample(self._plain.names, self._mobility.subscribers)):
            client = self.world.client(f"c-{name}", f"s-{name}", _proxy(name))
            self.world.run(20)
            client.subscribe("all", "n > 0")
            self._subscribers[name] = client
            self._seen[name] = 0
        self.world.run(SETTLE_MS)
        self.world.link_traffic = LinkTraffic()

    def move(self) -> None:
        """Move the nodes, and publish."""
        self._moves_until_ms = self.world.clock.time_ms + self._mobility.duration_s * 1_000
        for every_ms, action in (
            (BEACON_MS, self._beacon),
            (self._mobility.publish_every_ms, self._publish),
            (LOOK_MS, self._look),
        ):
            self._repeat(every_ms, action)
        self.world.run(self._mobility.duration_s * 1_000)
        self.outcome.moving = sum(self._seen.values())
        self.outcome.trees = self.world.registry.tree.epoch

    def stand_still(self) -> None:
        """Let the nodes stand still until all is delivered that is owed."""
        self._plain.halt()
        self._reach()
        # The last publish is acknowledged by then.
        for _ in range(ACKNOWLEDGED_MS // LOOK_MS):
            self.world.run(LOOK_MS)
            self._look()
        owed = {name: self._owed(name, connected(name, self._links)) for name in self._subscribers}
        self.outcome.connected = sum(map(len, owed.values()))
        for _ in range(STILL_MS // LOOK_MS):
            if all(numbers <= self._received(name) for name, numbers in owed.items()):
                break
            self.world.run(LOOK_MS)
            self._look()
        self.outcome.delivered = sum(len(numbers & self._received(name)) for name, numbers in owed.items())
        self.outcome.repeated = sum(len(self._subscribers[name].delivered) - len(self._received(name)) for name in owed)
        self.outcome.messages = self.world.link_traffic.messages
        self.outcome.message_bytes = self.world.link_traffic.message_bytes
        self.outcome.violations = list(self.world.violations)

    def _owed(self, name: SiteId, reached: set[SiteId]) -> set[int]:
        """Return the numbers of the notifications that are owed to a subscriber and were published at these nodes.

        Owed is what is behind the offset from which the subscription is effective in the origin.
        """
        promised = self._subscribers[name].promised.get("all", {})
        return {
            number
            for client in self.world.clients.values()
            for at, number in client.safe.items()
            if site_of(at.origin) in reached and at.offset > promised.get(at.origin, at.offset)
        }

    def _received(self, name: SiteId) -> set[int]:
        """Return the numbers of the notifications that a subscriber has."""
        return {number for _, _, number in self._subscribers[name].delivered}

    # ------------------------------------------------------------ what happens again and again

    def _repeat(self, every_ms: int, action: Callable[[], None]) -> None:
        def act() -> None:
            if self.world.clock.time_ms <= self._moves_until_ms:
                action()
                self.world.later(every_ms, act)

        self.world.later(every_ms, act)

    def _beacon(self) -> None:
        self._plain.advance(BEACON_MS / 1_000)
        self._reach()

    def _reach(self) -> None:
        """Have the links of the world work that work on the plain; the registry learns of it by the nodes' agents."""
        now = self._plain.links()
        for one, other in sorted(self._links - now):
            self.outcome.breaks += 1
            self.world.cut_for_good(one, other)
            self.world.set_link(one, other, removed=True)
        for one, other in sorted(now - self._links):
            self.world.set_link(one, other)
            self.world.restore(one, other)
        self._links = now

    def _publish(self) -> None:
        node = self._rng.choice(self._plain.names)
        producer = self.world.clients.get(f"p-{node}") or self.world.client(f"p-{node}", None, _proxy(node))
        self._published.append((node, self.world.clock.time_ms))
        producer.publish(len(self._published))
        working = self._links.intersection(self.world.registry.tree.links)
        reached = connected(node, working)
        wanted = [name for name in self._subscribers if name in reached]
        self.outcome.published += 1
        self.outcome.owed += len(self._subscribers)
        self.outcome.plain += len(wanted)
        self.outcome.plain_hops += links_to(node, wanted, working)

    def _look(self) -> None:
        """Note what was delivered since the last look."""
        for name, client in self._subscribers.items():
            for _, _, number in client.delivered[self._seen[name] :]:
                self.outcome.latencies_ms.append(self.world.clock.time_ms - self._published[number - 1][1])
            self._seen[name] = len(client.delivered)


def _proxy(site: SiteId) -> str:
    return f"{site}p"


def measure(mobility: Mobility) -> Outcome:
    """Play a run, and return its results.

    Raises:
        ValueError: there are more subscribers than nodes.
    """
    run = _Run(mobility)
    run.subscribe()
    run.move()
    run.stand_still()
    return run.outcome
