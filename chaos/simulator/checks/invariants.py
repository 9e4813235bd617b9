"""What must hold at every step of a run, and not only once it has been healed: each is looked at where it can break."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from chaos.simulator.checks import bounds, durability
from chaos.simulator.checks.policies import removed
from chaos.simulator.checks.registry_restore import RegistryRestores
from chaos.simulator.environment.environment import Environment, Listener, Process
from chaos.simulator.kernel.recorder import REGISTRY
from federation.ports import OwnerChanged
from handover.messages import Chunk, Frozen, Prepared, RelayDown
from proxy.core.effects import ClaimRow, CreateRow, Save, SendPeer
from proxy.queue_lengths import Waiting, of_windows
from waypost.facts import Fact, FactKind, OwnedCause
from waypost.frames import decode_proxy_message
from waypost.identity import Coordinate, Epoch, Ownership, ProxyId, SessionId
from waypost.messages import Acknowledged

if TYPE_CHECKING:
    from federation.links.endpoints import LinkEndpoints
    from proxy.engine import Engine
    from waypost.checkpoint import SubscriptionRow


VAIN_TICKS = 30
"""Ticks a ms apart that do nothing, one behind the other, for which a process counts as one that spins."""


class Invariants:
    """Looks at what proxies do, and tells the world what must never be."""

    def __init__(self, world: Environment) -> None:
        self._world = world
        self.restores = RegistryRestores(world)
        self._deliverers: dict[tuple[SessionId, int], Engine] = {}
        self._epochs: dict[SessionId, Epoch] = {}
        self._cuts: dict[str, object] = {}
        self._copies: dict[str, str] = {}
        """Transfer -> the name of what it copies."""
        self._numbered: dict[tuple[SessionId, str, int], Coordinate] = {}
        """What a number means in a copy."""
        self._decided: dict[tuple[str, int], dict[str, int]] = {}
        """(session, epoch) -> how far policy had come at its last cut, by the generation of each subscription."""
        self._owned: Counter[tuple[str, int]] = Counter()
        """(session, epoch) -> how often it was begun."""
        self._generations: dict[SessionId, int] = {}
        """The latest generation in which each session was served."""
        self._vain_ticks: dict[ProxyId, tuple[int, int]] = {}
        """Proxy -> the time of its last tick, and how many in a row did nothing, each a ms after the one before."""

    def registry_put_back(self) -> None:
        """Let epochs ascend anew from the registry's present rows; call this once it was put back to a copy."""
        self._epochs = {session: row.epoch for session, row in self._world.registry.owners.items()}

    def row_changed(self, event: OwnerChanged) -> None:
        """Check that the epoch of a session's row only ascends; a breach becomes a violation of the world.

        If the session was deleted, nothing of what was published so far is owed to its receivers any more.
        """
        self.restores.row_changed(event)
        if event.ownership is None:
            # The registry's floor is no less.
            return
        epoch = event.ownership.epoch
        if epoch <= self._epochs.get(event.session, Epoch(0)):
            self._world.add_violation(f"EPOCH the row of {event.session} falls to {event.ownership}")
        self._epochs[event.session] = epoch
        if event.ownership.deleted:
            self._deleted(event.session)

    def _deleted(self, session: SessionId) -> None:
        """The receivers of a session that was deleted are owed nothing of what was published so far."""
        world = self._world
        world.note(f"{session} is deleted", narrate=True, by=REGISTRY)
        self._generations.pop(session, None)
        world.deletions[session] = {origin: length - 1 for origin, length in world.lengths().items()}
        for client in world.clients.values():
            if client.session == session:
                client.reset()

    def delivers(self, node: Process, client: Listener, epoch: int) -> None:
        """Check a delivery when it is sent; a breach becomes a violation of the world.

        One incarnation of one proxy delivers a session at an epoch, under a lease, to a client that may read it, and
        within the window of each receiver.

        Args:
            node: the process that delivers; it is up.
            client: the receiver; it has a session.
            epoch: of the session, as the delivery states it.
        """
        engine, world = node.engine, self._world
        session = client.session
        assert engine is not None and session is not None
        if not world.rights.may_read(session, client.credential):
            world.add_violation(f"RIGHTS {node.proxy} delivers {session} to {client.name}, who may not have it")
        incarnation = engine.env.lease.incarnation
        if self._deliverers.setdefault((session, epoch), engine) is not engine:
            world.add_violation(f"DELIVERERS two incarnations deliver {session} at epoch {epoch}, now {incarnation}")
        if world.registry.lease_until(node.proxy, incarnation) <= world.clock.time_ms:
            world.add_violation(f"LEASE {incarnation} delivers {session} without a lease")
        held = engine.sessions.get(session)
        if held is not None:
            self._within(node.proxy, of_windows(held))

    def tells(self, node: Process, client: Listener, message: object) -> None:
        """Check, when a message is sent to a client, that what it tells is durable (`proxy/core/durability_law.py`). A
        breach becomes a violation of the world.

        Args:
            node: the process of the proxy that sends it.
            client: to which it goes.
            message: of the protocol, decoded.
        """
        if isinstance(message, Acknowledged) and not durability.is_logged(node, message):
            self._world.add_violation(f"BEFORE {node.proxy} acknowledges to {client.name} what its log does not have")
        if client.session and not isinstance(message, Acknowledged):
            self._holds_law(node, client.session, client.identity[1], message)

    def relays(self, node: Process, effect: SendPeer) -> None:
        """Check, when a proxy sends a message for a relayed receiver, that what it tells the receiver is durable.

        A breach becomes a violation of the world. A message to another proxy that is no such one is not checked.
        """
        match effect.message:
            case RelayDown(relay=relay, frame=frame) if frame and node.engine is not None:
                dispatcher = node.engine.dispatcher
                number = dispatcher.relays.far.connection_of(effect.proxy, relay)
                connection = dispatcher.connections.get(number) if number is not None else None
                if connection is not None and connection.session and connection.receiver:
                    message = decode_proxy_message(frame)
                    self._holds_law(node, connection.session, connection.receiver, message)
            case _:
                pass

    def _holds_law(self, node: Process, name: SessionId, receiver: str, message: object) -> None:
        engine = node.engine
        session = engine.sessions.serving(name) if engine is not None else None
        if session is None:
            # It only passes on what the owner tells.
            return
        missing = durability.Statement(node, session, receiver, message).missing()
        if missing:
            what = f"{type(message).__name__} to {name}/{receiver}"
            self._world.add_violation(f"BEFORE {node.proxy} tells {what}, and it is not in {'; '.join(missing)}")

    def sends(self, proxy: ProxyId, endpoints: LinkEndpoints) -> None:
        """Check, when a proxy sends over a link, that all queues of its `endpoints` of links are within their bounds.

        A breach becomes a violation of the world.
        """
        self._within(proxy, endpoints.queues())

    def rests(self, node: Process) -> None:
        """Check, when a process waits, that all queues of it and of its ends of links are within their bounds.

        A process that is down is not checked. A breach becomes a violation of the world.
        """
        if node.engine is not None:
            self._within(node.proxy, bounds.of_proxy(node.engine))
            self._within(node.proxy, node.link_shell.machine.queues())

    def gives_back(self, node: Process) -> None:
        """Check, when a process that ends is about to give its lease back, that it leads no link any more. A breach
        becomes a violation of the world.
        """
        led = node.link_shell.machine.leading
        if led:
            self._world.add_violation(f"LEADS {node.proxy} gives its lease back, and leads links from {', '.join(led)}")

    def ticked(self, proxy: ProxyId, has_effects: bool) -> None:
        """Check, when time has stepped a proxy's engine, that its deadlines are not of something that never comes: many
        ticks right behind each other that do nothing are a process that spins. A breach becomes a violation of the
        world, once for each proxy.

        Args:
            has_effects: whether the engine had something to do at this tick.
        """
        now_ms = self._world.clock.time_ms
        last_ms, count = self._vain_ticks.get(proxy, (now_ms, 0))
        count = 0 if has_effects or now_ms > last_ms + 1 else count + 1
        self._vain_ticks[proxy] = now_ms, count
        if count == VAIN_TICKS:
            self._world.add_violation(f"SPIN {proxy} has a deadline every ms, and does nothing at it")

    def _within(self, proxy: ProxyId, queues: Iterable[Waiting]) -> None:
        for what, waiting, bound in queues:
            if waiting > bound:
                self._world.add_violation(f"BOUND {proxy} has {waiting} of {bound} {what}")

    def attests(self, proxy: ProxyId, fact: Fact) -> None:
        """Check a fact when a proxy makes it; a breach becomes a violation of the world.

        A proxy that releases a session is not its owner at that very epoch, by the registry; policy removes only what
        it may; an epoch of a session begins once; an owner that did not make the session serves it in no later
        generation than before, unless it was deleted; and what policy has decided at a handover's cut holds at the next
        owner. A session that is made anew after the registry lost its row counts as deleted: its clients are owed
        nothing of what was published so far.

        Raises:
            KeyError: the fact removes a notification that was never published.
        """
        if fact.kind == FactKind.REMOVED:
            for each in removed(self._world, fact):
                self._world.add_violation(each)
        if fact.kind == FactKind.OWNED:
            self._begins(proxy, fact)
        if fact.kind != FactKind.RELEASED:
            return
        session, row = SessionId(fact.session), self._world.registry.owner(SessionId(fact.session))
        unknown = row is None and not self.restores.has_lost(session)
        if unknown or self.restores.names(session, Ownership(proxy, Epoch(fact.epoch))):
            self._world.add_violation(f"RELEASE {proxy} lets go of {fact.session}, and the registry names {row}")

    def saves(self, node: Process, save: Save) -> None:
        """Check, before a write to the store, that it deletes no session whose copy is named by the registry.

        A breach becomes a violation of the world.
        """
        for session in save.batch.deleted:
            kept, row = node.store.sessions.get(session), self._world.registry.owners.get(session)
            if kept is not None and self.restores.names(session, Ownership(node.proxy, kept.epoch)):
                self._world.add_violation(f"DROP {node.proxy} deletes {session}, and the registry names {row}")

    def ownership(self, node: Process, claim: CreateRow | ClaimRow) -> None:
        """Check a claim of a session's row when a process makes it; a breach becomes a violation of the world.

        A proxy that commits a handover has the session on its disk; a proxy that makes a session, a first checkpoint.
        """
        if not durability.claim_is_durable(node, claim):
            self._world.add_violation(
                f"BEFORE {node.proxy} makes {claim.session}, and no changelog has a checkpoint of it"
            )
        if isinstance(claim, ClaimRow) and not durability.commit_is_stored(node, claim):
            self._world.add_violation(f"STAGE {node.proxy} claims {claim.session}, and its disk does not have it")

    def _begins(self, proxy: ProxyId, fact: Fact) -> None:
        """A proxy serves a session from now on: at an epoch that was never begun."""
        session = SessionId(fact.session)
        if self.restores.began(proxy, session, is_made=fact.cause == OwnedCause.CREATE):
            # It is another one of that name.
            self._deliverers = {each: engine for each, engine in self._deliverers.items() if each[0] != session}
            self._owned = Counter({each: times for each, times in self._owned.items() if each[0] != session})
            self._deleted(session)
        self._owned[session, fact.epoch] += 1
        if self._owned[session, fact.epoch] > 1:
            self._world.add_violation(f"EPOCH {fact.epoch} of {session} is begun again, by {proxy}")
        generation = Ownership(proxy, Epoch(fact.epoch)).generation
        if fact.cause != OwnedCause.CREATE and generation > self._generations.get(session, generation):
            self._world.add_violation(
                f"GENERATION {session} goes on at {fact.epoch}, by {proxy}, and nobody deleted it"
            )
        self._generations[session] = max(generation, self._generations.get(session, 0))
        if fact.cause == OwnedCause.HANDOVER:
            self._inherits(proxy, fact)

    def _inherits(self, proxy: ProxyId, fact: Fact) -> None:
        """What policy has decided at one owner is decided at the next one (handover rule 20)."""
        engine = self._world.nodes[proxy].engine
        session = engine.sessions.get(SessionId(fact.session)) if engine is not None else None
        before = self._decided.get((fact.session, fact.epoch - 1), {})
        for row in session.descriptor().subscriptions if session is not None else ():
            if _dropped_below(row) < before.get(row.generation, 0):
                self._world.add_violation(f"POLICY {proxy} holds of {row.id} in {fact.session} what had gone by policy")

    def on_message(self, proxy: ProxyId, message: object) -> None:
        """Check a message of a handover when `proxy` sends it; a breach becomes a violation of the world.

        In one transfer the cut is always the same, and in one copy a number means one entry for ever (handover rule
        23). Any other message changes nothing.

        Raises:
            KeyError: the message is a chunk of a transfer of which no Prepared was sent.
        """
        match message:
            case Prepared():
                self._copies[message.transfer] = message.copy
            case Chunk():
                self._numbers(proxy, message)
            case Frozen():
                cut = (message.cut, message.oldest, message.next_number, message.descriptor.subscriptions)
                if self._cuts.setdefault(message.transfer, cut) != cut:
                    self._world.add_violation(f"CUT {proxy} says another cut of {message.session} in one transfer")
                rows = message.descriptor.subscriptions
                self._decided[message.session, message.epoch] = {row.generation: _dropped_below(row) for row in rows}
            case _:
                pass

    def _numbers(self, proxy: ProxyId, chunk: Chunk) -> None:
        """In one copy a number means one entry for ever (handover rule 23)."""
        copy = self._copies[chunk.transfer]
        for entry in chunk.entries:
            coordinate = Coordinate(entry.origin, entry.offset)
            meant = self._numbered.setdefault((chunk.session, copy, entry.number), coordinate)
            if meant != coordinate:
                what = f"{entry.number} of copy {copy} of {chunk.session}"
                self._world.add_violation(f"COPY {proxy} says that {what} is {coordinate}, and it was {meant}")


def _dropped_below(row: SubscriptionRow) -> int:
    return max(row.expired_below, row.displaced_below)
