"""What must hold of a world that was healed and had time: DESIGN section 3, from outside."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from proxy.session import Role
from waypost.identity import NOTHING, Coordinate, NotificationId
from waypost.limits import PUBLISH_WINDOW
from waypost.notification import Notification
from waypost.records import Published
from waypost.subscription import parse

if TYPE_CHECKING:
    from chaos.simulator.clients import Client
    from chaos.simulator.parts import PlainLog
    from chaos.simulator.world import World


def heal(world: World, for_ms: int = 15_000) -> None:
    """End every fault, bring everybody back, and let time pass."""
    world.faults = type(world.faults)()
    world.lose_next.clear()
    world.parted.clear()
    world.registry_away_until = 0
    for link in world.links:
        link.set_cut(records=False, words=False)
    for node in world.nodes.values():
        node.deaf_until = node.slow_until = node.stalled_until = 0
        node.append_ms = 0
        node.full = False
        if node.engine is None:
            node.start()
    for client in world.clients.values():
        client.paused = False
        client.take()
        client.go(client.home)
    world.run(GRACE_MS)
    world.run(for_ms, lambda: settled(world))
    world.run(GRACE_MS)
    if verdict(world):
        # Something may have begun again just now: what is wrong with it must stay wrong.
        world.run(for_ms)


def settled(world: World) -> bool:
    """Tell whether there is nothing left to do: everybody is served, and has what there is."""
    for client in world.clients.values():
        if client.machine.publish_room != PUBLISH_WINDOW:
            return False
        if client.session is None:
            continue
        silent = client.open or set(client.asked) - client.ended - set(client.promised)
        if silent or client.machine.waiting or not client.machine.attached:
            return False
    frontiers = []
    for node in world.nodes.values():
        engine = node.engine
        if engine is None or not node.ready or engine.state.position < len(world.logs[node.site]):
            return False
        if (engine.context.fence_at_ms or 0) <= world.clock.now_ms() + GRACE_MS:
            return False
        if engine.transfers.sources.running or engine.transfers.targets.running:
            return False
        for session in engine.context.sessions.values():
            behind = any(each.acknowledged < session.last_number for each in session.receivers.values())
            if session.role is not Role.SERVING or session.gates or behind:
                return False
        frontiers.append(engine.state.frontier)
    # Over every link everything has come that there is, or silence has been spoken of.
    return all(frontier == frontiers[0] for frontier in frontiers)


GRACE_MS = 400
HONEST = ("STORE_FAILED", "LOG_UNAVAILABLE")
"""A write that failed may be told as it is: the client knows that it may try again."""


def verdict(world: World) -> list[str]:
    """Return what is wrong; nothing: all is well."""
    wrong = list(dict.fromkeys(world.wrongs))
    wrong += _owned_once(world) + _level(world)
    retried = _retried(world)
    for client in world.clients.values():
        wrong += [f"PROBLEM of {client.name}: {each}" for each in client.problems if not each.startswith(HONEST)]
        if client.machine.publish_room != PUBLISH_WINDOW:
            wrong.append(f"STUCK {client.name} has publishes without an answer")
        if client.session is not None:
            wrong += _one_side(world, client) + _live(world, client) + _owed(world, client) + _given(client, retried)
    return wrong


def _owned_once(world: World) -> list[str]:
    owned = Counter((fact.session, fact.epoch) for fact in world.facts if fact.kind == "owned")
    return [f"EPOCH {epoch} of {session} was begun {n} times" for (session, epoch), n in owned.items() if n > 1]


def _level(world: World) -> list[str]:
    """Every proxy knows how far every origin has come, and no session waits for one of them still."""
    ends = {origin: _last_published(log) for origin, log in world.logs_by_origin.items()}
    wrong = []
    for node in world.nodes.values():
        if node.engine is not None:
            known = {origin: node.engine.state.frontier.get(origin, NOTHING) for origin in ends}
            if known != ends:
                wrong.append(f"STUCK {node.proxy} is at {known}, and the logs end at {ends}")
            for session in node.engine.context.sessions.values():
                if session.gates:
                    wrong.append(f"STUCK {session.id} at {node.proxy} waits for {sorted(session.gates)}")
    return wrong


def _last_published(log: PlainLog) -> int:
    for offset in reversed(range(len(log))):
        if isinstance(log.read(offset, offset + 1)[0][1], Published):
            return offset
    return NOTHING


def _one_side(world: World, client: Client) -> list[str]:
    """The session is whole at exactly one side, the one that the registry names."""
    assert client.session is not None
    row = world.registry.owners.get(client.session)
    copies = {
        node.proxy: (session.role, session.epoch)
        for node in world.nodes.values()
        if node.engine is not None
        for session in [node.engine.context.sessions.get(client.session)]
        if session is not None
    }
    if row is None or copies != {row.proxy: (Role.SERVING, row.epoch)}:
        return [f"SIDES the registry names {row}; copies of {client.session} are {copies}"]
    return []


def _live(world: World, client: Client) -> list[str]:
    wrong = []
    if not client.machine.attached:
        wrong.append(f"STUCK {client.name} is not attached")
    wrong += [f"STUCK {client.name} has no answer about {each}" for each in sorted(client.open)]
    silent = set(client.asked) - client.ended - set(client.promised)
    wrong += [f"STUCK {client.name} was promised nothing of {each}" for each in sorted(silent)]
    for each in sorted(set(client.asked) - client.ended - silent):
        missing = world.logs_by_origin.keys() - client.promised[each].keys()
        wrong += [f"STUCK {client.name} was promised nothing of {each} from {origin}" for origin in sorted(missing)]
    return wrong


def _owed(world: World, client: Client) -> list[str]:
    """Acknowledged to the producer, above the promise, not above the end: it must have been given."""
    ids = {identity for identity, _, _ in client.given}
    lost = []
    for subscription, promise in client.promised.items():
        expression = parse(client.asked[subscription])
        for producer in world.clients.values():
            for coordinate, number in producer.safe.items():
                record = dict(world.logs_by_origin[coordinate.origin].read(coordinate.offset, coordinate.offset + 1))
                published = record.get(coordinate.offset)
                if not isinstance(published, Published):
                    lost.append(f"LOST {producer.name} was told that {number} is at {coordinate}, and it is not")
                    continue
                identity = (published.producer, published.incarnation, published.sequence)
                if client.joined is None or coordinate.offset < client.joined[coordinate.origin]:
                    continue
                if coordinate.origin not in promise or coordinate.offset <= promise[coordinate.origin]:
                    continue
                if not expression.matches(Notification({"n": number})) or identity in ids:
                    continue
                if coordinate.offset <= _end(world, client, subscription, coordinate):
                    place = f"{coordinate.origin}:{coordinate.offset}"
                    lost.append(
                        f"LOST {client.name}/{subscription}: {number} at {place}, promised above "
                        f"{promise[coordinate.origin]}"
                    )
    return lost


def _end(world: World, client: Client, subscription: str, coordinate: Coordinate) -> int:
    """Up to where the promise held; of several tries to unsubscribe the lowest."""
    if subscription not in client.ended:
        return 1 << 60
    ends = [
        fact.frontier.get(coordinate.origin, NOTHING)
        for fact in world.facts
        if fact.kind == "unsubscribed" and (fact.session, fact.subscription) == (client.session, subscription)
    ]
    return min(ends, default=NOTHING)


def _retried(world: World) -> set[NotificationId]:
    """The ids that stand in the logs more than once."""
    times = Counter(
        NotificationId(record.producer, record.incarnation, record.sequence)
        for log in world.logs.values()
        for _, record in log.read(0, len(log))
        if isinstance(record, Published)
    )
    return {identity for identity, n in times.items() if n > 1}


def _given(client: Client, retried: set[NotificationId]) -> list[str]:
    """Nothing twice, nothing that was not asked for, and each producer's in its order, at one origin (P2, P3)."""
    wrong = []
    ids = Counter(identity for identity, _, _ in client.given)
    wrong += [f"TWICE {client.name} was given {identity[2]} {n} times" for identity, n in ids.items() if n > 1]
    last: dict[str, int] = {}
    sequences: dict[tuple[str, str, str], int] = {}
    for (producer, incarnation, sequence), (origin, offset), number in client.given:
        if offset <= last.get(origin, NOTHING):
            wrong.append(f"ORDER {client.name} was given {number} at {origin}:{offset} after {last[origin]}")
        last[origin] = offset
        if NotificationId(producer, incarnation, sequence) in retried:
            continue
        life = (producer, incarnation, origin)
        if sequence < sequences.get(life, -1):
            wrong.append(f"ORDER {client.name} was given {producer}'s {sequence} after its {sequences[life]}")
        sequences[life] = sequence
        if not any(parse(each).matches(Notification({"n": number})) for each in client.asked.values()):
            wrong.append(f"PHANTOM {client.name} was given {number}")
    return wrong
