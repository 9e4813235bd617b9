"""Links in the world: the machines that a node runs (federation/links/endpoints.py), over its wires, logs and leases.

What one proxy says to another comes in order as long as their connection lasts; another connection may overtake it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, assert_never

import msgspec

from chaos.simulator.checks.invariants import Invariants
from chaos.simulator.environment.environment import Environment, Process
from federation.links import effects as link_effects
from federation.links.effects import LinkEffect
from federation.links.endpoints import LinkEndpoints
from federation.links.inputs import LinkEffectCompleted, LinkInput, NeighbourSent
from federation.messages import LeaseGranted, LeaseRequest, LinkMessage, LinkRecords
from federation.site.history import HistoryAnswer
from federation.site.state import SiteState
from proxy.core import effects
from waypost.errors import HistoryTruncated, LogUnavailable, RegistryUnavailable
from waypost.identity import ProxyId, SiteId
from waypost.limits import LOG_BATCH

SECRET = b"federation"
"""The registry's."""
_decoder: msgspec.msgpack.Decoder[LinkMessage] = msgspec.msgpack.Decoder(LinkMessage)


class LinkShell:
    """The shell of the link ends of one process: it performs their effects, as node/shell/links.py does in a node. One
    is made for each start of the process.

    Args:
        node: the process; its engine has been made.
        invariants: looks at each message that is sent to a neighbour.
        links: the wires between sites.
    """

    def __init__(self, node: Process, invariants: Invariants, links: Links) -> None:
        assert node.engine is not None
        self._invariants = invariants
        self._links = links
        self._node = node
        self._world = node.world
        self._engine = node.engine
        self.incarnation = node.engine.env.lease.incarnation
        """Under which this proxy takes part in elections."""
        rng = random.Random(f"links of {self.incarnation} in {node.world.seed}")
        bounds = replace(node.world.link_bounds, lease_ms=node.world.link_lease_ms)
        self.machine = LinkEndpoints(node.engine.state, rng, bounds)

    def step(self, input: LinkInput) -> None:
        """Step the process's machines with an input of its ends of links, and perform what comes out; do nothing if the
        process has ended.

        A process that is stalled does so when the stall is over.
        """
        if self._node.engine is self._engine:
            self._node.step(input)

    # ------------------------------------------------------------ effects

    def perform(self, effect: LinkEffect) -> None:
        """Perform one effect of the machine, which is stepped with the answer later, if there is one."""
        world, log = self._world, self._world.logs[self._node.site]
        match effect:
            case link_effects.SendNeighbour():
                self._invariants.sends(self._node.proxy, self.machine)
                _link_of(self._node.site, world.nodes[effect.proxy].site, effect.message, self._links).carry(
                    self._node.proxy, effect.proxy, effect.message
                )
            case link_effects.AppendRecords():
                self._append(effect)
            case link_effects.ReadLog():
                self._answer(effect.on_done, lambda: log.read(effect.offset, effect.offset + effect.limit))
            case link_effects.FindFirst():
                self._answer(effect.on_done, lambda: log.first)
            case link_effects.FindEnd():
                self._answer(effect.on_done, lambda: len(log))
            case link_effects.Elect():
                self._elect(effect)
            case link_effects.Resign(link, on_done):
                holder = (self._node.proxy, self.incarnation)
                self._change_registry(lambda: world.registry.resign(link, holder), on_done)
            case link_effects.ClaimTree(expected, new, on_done):
                self._change_registry(lambda: world.registry.claim_tree(expected, new), on_done)
            case link_effects.RestoreLink(row, on_done):
                self._change_registry(lambda: world.registry.set_link(row, seed=True), on_done)
            case link_effects.SeenBeyond():
                self._node.seen_beyond(effect.origin, effect.offset)
            case link_effects.Ended():
                world.note(f"{self._node.proxy} sends to {effect.site} no more: {effect.reason}", by=self._node.proxy)
            case link_effects.EnteredTree():
                pass
            case _:
                assert_never(effect)

    def _completion(self, wait_ms: int, on_done: Callable[[Any, int], None], answer: Any) -> None:
        self._world.later(wait_ms, lambda: self.step(LinkEffectCompleted(on_done, answer)))

    def _answer(self, on_done: Callable[[Any, int], None], ask: Callable[[], Any]) -> None:
        """Look into the log after a while; now and then it does not answer."""
        world = self._world

        def act() -> None:
            failed = world.chances(world.faults.writes)
            try:
                world.check_log(self._node.site)
                answer = LogUnavailable("no answer") if failed else ask()
            except (HistoryTruncated, LogUnavailable) as error:
                answer = error
            self._completion(world.delay(), on_done, answer)

        world.later(world.delay(), act)

    def _append(self, effect: link_effects.AppendRecords) -> None:
        """Append in its turn; after an error nobody knows whether it was done, or is done a while later."""
        world = self._world
        if effect.records and not self._node.appends_wait and world.chances(world.faults.writes):
            if world.chances(0.5):
                interruptions = world.logs[self._node.site].interruptions
                world.later(world.delay(1_500), lambda: self._land(effect, interruptions))
            self._completion(world.delay(), effect.on_done, LogUnavailable("no answer"))
            return
        self._node.append(
            effects.Append(
                effect.records,
                lambda answer: self.step(LinkEffectCompleted(effect.on_done, answer)),
            )
        )

    def _land(self, effect: link_effects.AppendRecords, interruptions: int) -> None:
        # Where the log was away since, the connection had broken, and nothing that was on it is sent again.
        if self._world.logs[self._node.site].interruptions == interruptions:
            self._world.appended(self._node.site, list(effect.records))

    def _change_registry(self, change: Callable[[], Any], on_done: Callable[[Any, int], None]) -> None:
        world = self._world

        def act() -> None:
            answer: Any = RegistryUnavailable("no answer")
            if world.clock.now_ms() >= self._node.deaf_until and world.registry_answers():
                answer = change()
                world.tree_changed()
            world.later(world.tree_delay(), lambda: self.step(LinkEffectCompleted(on_done, answer)))

        world.later(world.tree_delay(), act)

    def _elect(self, effect: link_effects.Elect) -> None:
        world, incarnation = self._world, self.incarnation

        def on_done(answer: Any, now: int) -> None:
            led = self.machine.leading
            effect.on_done(answer, now)
            for site in self.machine.leading:
                if site not in led:
                    world.note(f"link {site}->{self._node.site} led by {self._node.proxy}", by=self._node.proxy)

        def act() -> None:
            answer: Any = RegistryUnavailable("no answer")
            now = world.clock.now_ms()
            if now >= self._node.deaf_until and world.registry_answers():
                world.registry.expire(now)
                answer = world.registry.elect(effect.link, (self._node.proxy, incarnation))
                world.registry_changed()
                if world.chances(world.faults.answers):
                    answer = RegistryUnavailable("no answer")
            self._completion(world.delay(), on_done, answer)

        world.later(world.delay(), act)


class Link:
    """What goes from site `near` to site `far`, and the words of the far leader that come back for it."""

    def __init__(self, world: Environment, near: SiteId, far: SiteId) -> None:
        self._world = world
        self.near = near
        self.far = far
        self.cut_records = False
        self.cut_answers = False
        self._connections: dict[tuple[ProxyId, ProxyId], Connection] = {}

    def set_cut(self, *, records: bool, words: bool) -> None:
        """Cut the link in the directions that are True, and mend it in the others.

        What is on its way is lost if its direction is cut when it would arrive.

        Args:
            records: from site `near` to site `far`: records, and what is granted to the far leader.
            words: from site `far` to site `near`: requests and acknowledgements of the far leader.
        """
        self.cut_records, self.cut_answers = records, words

    def cuts(self, message: LinkMessage) -> bool:
        """Tell whether the link is cut in the direction in which this message goes."""
        return self.cut_records if isinstance(message, LinkRecords | LeaseGranted) else self.cut_answers

    def lose(self) -> None:
        """Break every connection of the link: of what is on its way, about half still arrives; in a world without a
        seed all of it.

        Later messages go over new connections, and may overtake that.
        """
        for connection in self._connections.values():
            connection.broken = True
        self._connections = {}

    def carry(self, sender: ProxyId, to: ProxyId, message: LinkMessage) -> None:
        """Send a message over the link: by the world's faults it arrives late, twice or never.

        Messages from one proxy to another arrive in order as long as their connection lasts, but for those about
        leases. Between proxies of two versions all are lost.

        Args:
            sender: the proxy that sends the message.
            to: the proxy at the other end of the link.
            message: of the sender's end.
        """
        world, kind = self._world, type(message).__name__
        faults = world.faults
        mixed = world.nodes[sender].version != world.nodes[to].version
        if isinstance(message, LeaseRequest | LeaseGranted):
            if not mixed and not self.cuts(message):
                self._carry_apart(sender, to, message)
            return
        lost = mixed or self.cuts(message) or world.loses(kind) or world.chances(faults.loss)
        world.note(f"{sender} -> {to} {kind}{' lost' if lost else ''}")
        if lost:
            world.carries(sender, to, kind, None)
            return
        connection = self._connections.setdefault((sender, to), Connection(self, world, sender, to))
        for _ in range(1 + world.chances(faults.double)):
            connection.carry(message)

    def _carry_apart(self, sender: ProxyId, to: ProxyId, message: LinkMessage) -> None:
        """Take a message of a lease to the other end, in no order with others."""
        ends = self._world.nodes[to].link_shell
        self._world.link_traffic.count(message, len(msgspec.msgpack.encode(message)))

        def arrive() -> None:
            if not self.cuts(message):
                ends.step(NeighbourSent(sender, message))

        self._world.later(self._world.tree_delay(), arrive)


Links = dict[tuple[SiteId, SiteId], Link]
"""(near, far) -> the link."""


def _link_of(one: SiteId, other: SiteId, message: LinkMessage, links: Links) -> Link:
    """Return the link that a message from a proxy of site `one` to a proxy of site `other` belongs to."""
    return links[(one, other) if isinstance(message, LinkRecords | LeaseGranted) else (other, one)]


class Connection:
    """An ordered channel for link messages from one process to another; messages in flight may be lost when it breaks.

    Args:
        link: that the messages belong to; while it is cut, nothing arrives.
        world: has the clock and the faults.
        sender: the proxy at this end.
        to: the proxy at the other end.
    """

    def __init__(self, link: Link, world: Environment, sender: ProxyId, to: ProxyId) -> None:
        self.broken = False
        self._link = link
        self._world = world
        self._sender = sender
        self._to = world.nodes[to]
        self._due = 0

    def carry(self, message: LinkMessage) -> None:
        """Send a message, which arrives later, behind all earlier ones of this connection.

        The message may be lost if the connection breaks before, and is lost if the link is cut then.
        """
        world, ends = self._world, self._to.link_shell
        now, slow_ms = world.clock.now_ms(), world.faults.slow_ms
        wait = world.delay() + (world.rng.randint(0, slow_ms) if slow_ms else 0)
        self._due = max(self._due, now + wait)
        world.carries(self._sender, self._to.proxy, type(message).__name__, self._due - now)
        data = msgspec.msgpack.encode(message)
        world.link_traffic.count(message, len(data))

        def arrive() -> None:
            if self.broken and world.chances(0.5):
                return
            if not self._link.cuts(message):
                ends.step(NeighbourSent(self._sender, _decoder.decode(data)))

        world.later(self._due - now, arrive)


def history(world: Environment, state: SiteState, effect: effects.FetchHistory) -> effects.History:
    """Return the answer to a catch-up, read a few records at a time from the log of its site.

    Args:
        world: whose logs are read.
        state: the site's state at the proxy that answers.
        effect: the request; its `on_done` is not called.

    Raises:
        Unreachable: the log is away, is not the one that `state` was read from, or was not read far enough yet.
    """
    world.check_log(effect.site)
    answering = HistoryAnswer(state, effect.wanted, max_records=3)
    while (offset := answering.wanted_from) is not None:
        try:
            answering.add(world.logs[effect.site].read(offset, offset + LOG_BATCH))
        except HistoryTruncated as error:
            answering.truncated(error.first)
    if answering.mark is not None:
        try:
            answering.compare(world.logs[effect.site].read(answering.mark, answering.mark + 1))
        except HistoryTruncated as error:
            answering.removed(error.first)
    answer = answering.answer()
    return effects.History(answer.records, answer.through, answer.first_kept, answer.lost_above, answer.damaged)
