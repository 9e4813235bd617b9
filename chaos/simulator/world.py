"""A small world: real engines and real client machines, joined by wires that lose, double, delay and reorder.

Everything happens at a time on one clock, in an order that the seed alone decides; :attr:`World.trace` has all of it,
:attr:`World.narrative` what a person would tell. Without a seed every wire takes one millisecond and nothing is lost.
What must hold is in chaos/simulator/verdict.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from typing import Literal, assert_never

from chaos.simulator.checks.invariants import Invariants
from chaos.simulator.checks.phases import Met
from chaos.simulator.environment.environment import SMALL_LINK_BOUNDS, Environment
from chaos.simulator.kernel.recorder import REGISTRY, Conditions, Recording, log_lane
from chaos.simulator.processes.clients import Client
from chaos.simulator.processes.links import Link
from chaos.simulator.processes.node import LEASE_MS, Node
from chaos.simulator.processes.peer_channels import PeerChannel
from federation.links.bounds import LinkBounds
from federation.ports import DrainRow, LinkRow, TreeRow
from federation.site.dispatching_tree import Tree, choose_edges
from node.machines.forgotten_site import LOOK_MS, OwnershipStability
from proxy.core.settings import EngineBounds
from waypost.client.options import AttachOptions
from waypost.identity import NOTHING, Coordinate, Edge, ProxyId, SiteId, edge, log_epoch_of
from waypost.limits import ADMITTED_S, LINK_LEASE_MS
from waypost.messages import VERSION, Credential
from waypost.records import Published

Shape = Literal["mesh", "line", "star", "ring"]
SMALL = EngineBounds(
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
MATCHING_NS = int(0.6 * ADMITTED_S * 1e9)
"""The estimate of the time that a notification takes, in ns, where bounds are small: two are admitted, others wait."""
LOG_AWAY_MS = 400
"""Time for which a log is away before it comes back without its end, in ms."""
BY_DEFAULT = AttachOptions(window=4_000)
"""The options of a client that says nothing else."""
AWAY_MS = 100
"""Least time for which a registry is away while it is put back to a copy, in ms."""


def edges_of(sites: Sequence[SiteId], shape: Shape) -> list[Edge]:
    """Return the pairs of sites that have links, in a graph of this shape; in a star the first site is the centre."""
    pairs: Iterable[tuple[SiteId, SiteId]]
    match shape:
        case "mesh":
            pairs = combinations(sites, 2)
        case "line":
            pairs = pairwise(sites)
        case "star":
            pairs = ((sites[0], other) for other in sites[1:])
        case "ring":
            pairs = [*pairwise(sites), *([(sites[-1], sites[0])] if len(sites) > 2 else [])]
        case _:
            assert_never(shape)
    return [edge(*pair) for pair in pairs]


class World(Environment):
    """Sites and their proxies: ``World({"A": ["a1", "a2"], "B": ["b1"]}, seed=7)``.

    Args:
        shape: the links between the sites: of all pairs, or fewer.
        edges: these links, in place of a shape; None: those of the shape.
        link_lease_ms: the time after which a link that has failed is given up.
        link_bounds: of the ends of links.
        seed: of delays and all random events; None: there are none, and every delay is 1 ms.
        small: whether bounds of copies and of memory are so small that they are reached.
        recorded: whether there is a recording, for a picture.
    """

    nodes: dict[str, Node]
    clients: dict[str, Client]
    channels: dict[tuple[str, str], PeerChannel]

    def __init__(
        self,
        sites: dict[str, list[str]],
        seed: int | None = None,
        *,
        shape: Shape = "mesh",
        edges: Sequence[Edge] | None = None,
        link_lease_ms: int = LINK_LEASE_MS,
        link_bounds: LinkBounds = SMALL_LINK_BOUNDS,
        small: bool = False,
        recorded: bool = False,
    ) -> None:
        super().__init__([SiteId(site) for site in sites], seed)
        self.recording = Recording(self.conditions) if recorded else None
        self.invariants = Invariants(self)
        self.row_watches.append(self.invariants.row_changed)
        self.channels = {}
        self.met: Counter[Met] = Counter()
        """Triples of feature, action and phase that have met, and how often."""
        order = [SiteId(site) for site in sites]
        self.link_lease_ms, self.link_bounds = link_lease_ms, link_bounds
        edges = edges_of(order, shape) if edges is None else edges
        self.cut_edges: set[Edge] = set()
        self.dead_sites = set()
        self.links = [
            Link(self, sender, other) for sender in order for other in order if {sender, other} in map(set, edges)
        ]
        links = self._links = {(link.near, link.far): link for link in self.links}
        # The federation has run for a while: every log has entered the first tree, which is the one of epoch 0.
        tree = TreeRow(links=choose_edges((), edges))
        self.registry.links = {edge: LinkRow(sites=edge) for edge in edges}
        self.registry.tree = tree
        neighbours = {site: Tree(0, tree.links).neighbours(site) for site in order}
        bounds = SMALL if small else EngineBounds()
        self.nodes = {
            name: Node(
                self,
                self.invariants,
                links,
                proxy=ProxyId(name),
                site=SiteId(site),
                neighbours=neighbours[SiteId(site)],
                bounds=bounds,
            )
            for site, names in sites.items()
            for name in names
        }
        self.clients = {}
        for node in self.nodes.values():
            node.matching_ns = MATCHING_NS if small else 0
            node.start()

    # ------------------------------------------------------------ trace, narrative and recording

    def conditions(self) -> Conditions:
        """Return the present faults of processes, logs, links and the registry, and the sessions of each proxy.

        Returns:
            (lane, what is at fault) -> the fault and 0, and (proxy, session) -> the session's role there and its epoch.
        """
        found = self._faulty()
        for proxy, node in self.nodes.items():
            for session in node.engine.sessions.values() if node.engine is not None else ():
                found[proxy, session.id] = (session.role.value, session.epoch)
        return found

    def _faulty(self) -> dict[tuple[str, str], tuple[str, int]]:
        now = self.clock.time_ms
        faults = {(REGISTRY, "", "away"): now < self.registry_away_until}
        faults |= {(log_lane(site), "", "away"): now < log.away_until for site, log in self.logs.items()}
        faults |= {(one, f"to {other}", "cut"): now < until for (one, other), until in self.parted.items()}
        for link in self.links:
            faults[log_lane(link.near), f"records to {link.far}", "cut"] = link.cut_records
            faults[log_lane(link.far), f"answers to {link.near}", "cut"] = link.cut_answers
        for proxy, node in self.nodes.items():
            is_up = node.engine is not None
            faults |= {
                (proxy, "", "down"): not is_up,
                (proxy, "", "stalled"): is_up and node.still,
                (proxy, "registry", "cut"): is_up and now < node.deaf_until,
                (proxy, "disk", "full"): is_up and node.full,
                (proxy, "writes", "slow"): is_up and now < node.slow_until,
                (proxy, "appends", "slow"): is_up and node.append_ms > 0,
                (proxy, "journal", "slow"): is_up and node.journal_ms > 0,
            }
        return {(lane, what): (condition, 0) for (lane, what, condition), is_so in faults.items() if is_so}

    # ------------------------------------------------------------ what never comes back

    def cut_for_good(self, one: SiteId, other: SiteId) -> None:
        """Cut the link between two sites, in both directions, until :meth:`restore`; :meth:`mend` does not end this
        cut.

        Raises:
            KeyError: the sites have no link.
        """
        self.note(f"the link between {one} and {other} is cut for good", narrate=True, by=REGISTRY)
        self.cut_edges.add(edge(one, other))
        for ends in ((one, other), (other, one)):
            self._links[ends].set_cut(records=True, words=True)

    def restore(self, one: SiteId, other: SiteId) -> None:
        """End every cut of the link between two sites, in both directions, also one that was for good.

        Raises:
            KeyError: the sites have no link.
        """
        self.cut_edges.discard(edge(one, other))
        for ends in ((one, other), (other, one)):
            self.mend(self._links[ends])

    def mend(self, link: Link) -> None:
        """Let a link, which is one direction between two sites, pass everything again, unless it is cut for good."""
        is_cut = edge(link.near, link.far) in self.cut_edges
        link.set_cut(records=is_cut, words=is_cut)

    def set_link(self, one: SiteId, other: SiteId, *, removed: bool = False, leaves: tuple[SiteId, ...] = ()) -> None:
        """Have an operator add the link between two sites, remove it, or set which of them pass nothing on.

        Args:
            one: a site.
            other: another site.
            removed: whether the link is removed; else it is there from now on.
            leaves: those of the two sites that pass nothing on: each becomes a leaf of every dispatching tree. Empty:
                both pass everything on, whatever was set before.
        """
        what = "removed" if removed else f"one over which {', '.join(leaves)} passes nothing on" if leaves else "added"
        self.note(f"the link between {one} and {other} is {what}", narrate=True, by=REGISTRY)
        for near, far in ((one, other), (other, one)):
            if (near, far) not in self._links:
                self._links[near, far] = Link(self, near, far)
                self.links.append(self._links[near, far])
        self.registry.set_link(LinkRow(sites=edge(one, other), removed=removed, leaves=leaves), seed=False)
        self.registry_changed()

    def end_site(self, site: SiteId) -> None:
        """Crash all proxies of a site, of which none starts again in this run; its log and its changelog stay."""
        self.dead_sites.add(site)
        for node in self.nodes.values():
            if node.site == site and node.engine is not None:
                node.crash()

    def forget_site(self, site: SiteId) -> None:
        """Have an operator forget a site: its changelog's address and its links are removed from the registry.

        The command's rule holds (`waypost sites forget`): nothing is done while one of its proxies has a lease, or a
        session's owner has none, nor before each session has had one owner for a while.
        """
        self._forget_site(site, OwnershipStability(self.registry.owners, self.clock.time_ms))

    def _forget_site(self, site: SiteId, owners: OwnershipStability) -> None:
        live = {proxy for proxy, _ in self.registry.incarnations}
        may_forget = owners.look(self.registry.owners, live, self.clock.time_ms)
        if owners.unserved:
            return
        if not may_forget:
            self.later(LOOK_MS, lambda: self._forget_site(site, owners))
            return
        if not self.registry.forget_site(site):
            return
        self.note(f"site {site} is forgotten", narrate=True, by=REGISTRY)
        for sites in [sites for sites, row in self.registry.links.items() if site in sites and not row.removed]:
            self.registry.set_link(LinkRow(sites=sites, removed=True), seed=False)
        self.registry_changed()

    def connected(self, site: SiteId) -> set[SiteId]:
        """Return a site and all live sites that it reaches by a dispatching tree of the links that work.

        A link works if it was not removed and is not cut for good; other faults of links do not count.
        """
        rows = [row for row in self.registry.links.values() if not row.removed]
        works = {
            row.sites for row in rows if row.sites not in self.cut_edges and not self.dead_sites.intersection(row.sites)
        }
        leaves = {leaf for row in rows for leaf in row.leaves}
        tree = Tree(0, choose_edges(self.registry.tree.links, works, leaves))
        return {site, *tree.next_hops(site)}

    def repeat(self, kind: str) -> None:
        """Send again, in 1 ms, the last handover message of this kind of every proxy that has sent one.

        Args:
            kind: the name of the message's class, such as Prepare.
        """
        for node in self.nodes.values():
            if kind in node.sent:
                self.later(1, node.sent[kind])

    # ------------------------------------------------------------ shared happenings

    def step_clock(self, node: Node, step_ms: int) -> None:
        """Set a node's time of day forward, or back with a negative step; the engine's timers go by another clock."""
        self.note(f"the clock of {node.proxy} steps by {step_ms} ms", narrate=True, by=node.proxy)
        node.clock.skew_ms += step_ms
        self.stepped_ms += max(0, step_ms)

    def lose_end(self, site: SiteId, count: int) -> None:
        """Take a log away for LOG_AWAY_MS, as a broker that dies; then bring it back without its last `count` records.

        At least one record stays. The log comes back whole if processes had seen records that would be lost, and the
        registry was not told so meanwhile: nobody could notice the loss. So it does if it was taken away again.
        """
        self.note(f"the log of {site} is away", narrate=True, by=log_lane(site))
        self.logs[site].away_until = self.clock.time_ms + LOG_AWAY_MS
        self._interrupt(site)
        self.later(LOG_AWAY_MS, lambda: self._end_is_lost(site, count))

    def cut_power(self, site: SiteId, count: int, *, disks_lost: bool = False, writes_lost: int = 0) -> None:
        """Kill all processes of a site together with its log, as a failure of the site's power; LOG_AWAY_MS later the
        log comes back without its last `count` records, and the processes start again, with their disks or without.

        Of each disk that is kept the last `writes_lost` writes are lost.

        The log comes back whole where nobody is left who could notice the loss: neither the registry nor a process of
        another site knows what would be lost.
        """
        self.note(f"the power of {site} fails", narrate=True, by=log_lane(site))
        nodes = [node for node in self.nodes.values() if node.site == site]
        for node in nodes:
            if node.engine is not None:
                node.crash(disk_lost=disks_lost)
                node.store = node.store.before(writes_lost)
        self.logs[site].away_until = self.clock.time_ms + LOG_AWAY_MS
        self.logs[site].interruptions += 1

        def back() -> None:
            log = self.logs[site]
            witnesses = [node for node in self.nodes.values() if node.is_announced and not node.still]
            self._end_is_lost(site, count, 1 + max((node.seen(log.origin) for node in witnesses), default=NOTHING))
            for node in nodes:
                if node.engine is None:
                    node.start()

        self.later(LOG_AWAY_MS, back)

    def _interrupt(self, site: SiteId) -> None:
        self.logs[site].interruptions += 1
        for node in self.nodes.values():
            if node.site == site:
                node.log_interrupted()

    def _end_is_lost(self, site: SiteId, count: int, witnessed_below: int = 0) -> None:
        log, row = self.logs[site], self.registry.site_logs[site]
        reported_below = row.seen + 1 if log_epoch_of(log.origin) == row.log_epoch else 0
        # The identity of a log stands in its first record: an empty log is refused.
        count = max(0, min(count, len(log) - log.first - 1))
        if (
            log.seen_below > max(reported_below, witnessed_below, len(log) - count)
            or log.away_until > self.clock.time_ms
        ):
            self.note(f"the log of {site} is back", narrate=True, by=log_lane(site))
            return
        # The lost records may have been appended in several log epochs.
        origins = {offset: log.origin_at(offset) for offset in range(len(log) - count, len(log))}
        seen_below = log.seen_below
        for offset, record in log.lose_end(count):
            if isinstance(record, Published):
                at = Coordinate(origins[offset], offset)
                if offset < seen_below:
                    self.lost.add(at)
                else:
                    # Nobody was told of it, and another may stand there.
                    self.published.pop(at, None)
                    self.published_at.pop(at, None)
        self.published_before = {
            name: before.without(origins.values(), max(seen_below, len(log)))
            for name, before in self.published_before.items()
        }
        self.note(f"the log of {site} loses its end from {len(log)} on", narrate=True, by=log_lane(site))
        self._interrupt(site)

    def lose_quorum(self, for_ms: int) -> None:
        """Take the registry's quorum away until `for_ms` ms from now, also if it was to be away for longer; after that
        every lease has its whole time anew, as at etcd.
        """
        until = self.registry_away_until = self.clock.time_ms + for_ms
        self.note("the registry has no quorum", narrate=True, by=REGISTRY)
        self.invariants.restores.disturbed("the registry loses its quorum")
        self.registry.prolong(until + LEASE_MS)

    def drain(self, proxy: ProxyId, row: DrainRow | None) -> None:
        """Have an operator drain a proxy, at the rate of `row`, or end that (None); the registry has to answer."""
        self.note(f"{proxy} is drained {'no more' if row is None else f'at {row.rate:g} a second'}", narrate=True)
        self.registry.drain(proxy, row)
        self.registry_changed()

    def compact(self) -> None:
        """Compact the registry: events that watches have not seen are dropped, and each watch is sent all rows next."""
        self.note("the registry is compacted", narrate=True, by=REGISTRY)
        for node in self.nodes.values():
            node.watch_breaks()

    def copy_registry(self) -> None:
        """Copy the registry for :meth:`put_registry_back`, in place of any earlier copy."""
        self.note("the registry is copied", narrate=True, by=REGISTRY)
        self.registry_copy = self.registry.copy()

    def put_registry_back(self) -> None:
        """Restore the registry from its copy, and take its quorum away for AWAY_MS; then leases have their whole time
        anew.

        Nothing happens if there is no copy, or if the promises would not hold after that.
        """
        copy = self.registry_copy
        if copy is None or not self.invariants.restores.may_put_back(copy):
            return
        self.note("the registry is put back to the copy", narrate=True, by=REGISTRY)
        self.invariants.restores.put_back(copy)
        self.registry.put_back(copy)
        until = self.registry_away_until = max(self.clock.time_ms + AWAY_MS, self.registry_away_until)
        self.registry.prolong(until + LEASE_MS)
        self.invariants.registry_put_back()
        self.revision += 1
        for node in self.nodes.values():
            node.watch_breaks()

    def part(self, one: str, other: str, for_ms: int) -> None:
        """Lose all handover messages from proxy `one` to proxy `other`, in this direction alone, for `for_ms` ms.

        Messages over a connection are not lost by this (:meth:`connect_proxies`).
        """
        self.note(f"{one} does not reach {other}", narrate=True, by=one)
        self.parted[one, other] = self.clock.time_ms + for_ms

    def connect_proxies(self, one: str, other: str) -> list[PeerChannel]:
        """Send handover messages between two proxies over connections from now on: only the faults of a channel concern
        these, and no longer those of the world, :meth:`part` or `lose_next`.

        Returns:
            The channel from `one` to `other`, and the one back; both are those that exist already, if they do.
        """
        for sender, receiver in ((one, other), (other, one)):
            if (sender, receiver) not in self.channels:
                self.channels[sender, receiver] = PeerChannel(self, self.nodes[sender], self.nodes[receiver])
        return [self.channels[one, other], self.channels[other, one]]

    def come_near(self, client: str, proxy: str) -> None:
        """Let this proxy be the nearest one to a client from now on."""
        self.note(f"{client} comes near {proxy}", narrate=True, by=client)
        self.nearest[client] = proxy

    def client(
        self,
        name: str,
        session: str | None,
        at: str,
        options: AttachOptions = BY_DEFAULT,
        *,
        credential: Credential | None = None,
        receiver: str = "",
        version: int = VERSION,
        poll_interval_ms: int = 0,
        ahead: bool = False,
    ) -> Client:
        """Add a client, which connects to the proxy `at` now, and return it.

        Args:
            name: of the client; unused so far.
            session: to attach to; None: the client is a producer.
            at: the name of the proxy.
            options: with which it attaches.
            credential: with which it attaches; None: one without name and password.
            receiver: the name of the receiver, of which the client is one incarnation; empty: `name`.
            version: of the client protocol, which its library speaks.
            poll_interval_ms: the time that the client spends on each notification; 0: it takes all at once.
            ahead: whether it has a state beyond the ends of all logs, as one of another federation.

        Raises:
            KeyError: there is no such proxy.
        """
        client = Client(
            self,
            name,
            session,
            options,
            credential,
            receiver=receiver,
            version=version,
            poll_interval_ms=poll_interval_ms,
            ahead=ahead,
        )
        self.clients[name] = client
        client.go(at)
        return client
