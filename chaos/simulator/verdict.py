"""The verdict on a world that was healed and had time: the promises of docs/promises.md, checked from
outside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import permutations
from typing import TYPE_CHECKING

from chaos.simulator.checks.forwarding import check_forwarding
from chaos.simulator.checks.owners import check_owners
from chaos.simulator.checks.policies import excused
from chaos.simulator.environment.environment import url_of
from chaos.simulator.owed import highest_ends, least_ends
from chaos.simulator.processes.clients import BEYOND_LOGS, HONEST, PRIORITIES
from matching.covering import covers
from proxy.session.role import Role
from waypost.facts import FactKind
from waypost.identity import (
    NOTHING,
    Coordinate,
    NotificationId,
    Origin,
    ReceiverId,
    SessionId,
    SiteId,
    follows,
    log_epoch_of,
    site_of,
)
from waypost.keys import OPEN
from waypost.limits import PUBLISH_WINDOW
from waypost.records import OriginEnded, Severed, TreeEntered
from waypost.subscription import parse

if TYPE_CHECKING:
    from chaos.simulator.processes.clients import Client
    from chaos.simulator.world import World
    from proxy.session.session import Session


def heal(world: World, for_ms: int = 15_000) -> list[str]:
    """End every fault that can be ended, start the proxies and clients that may come back, let time pass, and return
    the verdict.

    Sites that have ended for good stay away, and so do clients whose library has stopped or that have left for good; a
    client of such a site goes to another proxy. Claims that are kept under way, and logs that are away, come back by
    themselves at their time. A verdict with violations is not the last: after more time another one is made, for what
    is wrong must stay wrong.

    Args:
        world: at the end of a run.
        for_ms: about how long to wait until everything is idle, each time that clients were started; more if the
            registry was put back to a copy.

    Returns:
        The violations, in words; empty: all is well, or nothing is promised, for the reason in :attr:`World.void`.

    Raises:
        Exception: a fault of the engine.
    """
    world.faults = type(world.faults)()
    world.lose_next.clear()
    world.parted.clear()
    for channel in world.channels.values():
        channel.heal()
    world.registry_away_until = 0
    for proxy in sorted(world.registry.drains):
        world.drain(proxy, None)
    for link in world.links:
        world.mend(link)
    for node in world.nodes.values():
        node.deaf_until = node.slow_until = node.stalled_until = 0
        node.append_ms = node.journal_ms = 0
        node.full = False
        node.unreadable = 0
        if node.engine is None and node.site not in world.dead_sites:
            node.start()
    for client in world.clients.values():
        client.paused = False
        client.take()
        if not client.stopped:
            client.go(_live_proxy(world, client.proxy))
    world.run(GRACE_MS)
    if world.registry.restored:
        for_ms = max(for_ms, CORRECTED_MS)
    _run_until_idle(world, for_ms)
    _return_the_refused(world, for_ms)
    violations = verdict(world)
    if violations:
        # Something may have begun again just now: what is wrong with it must stay wrong.
        world.run(for_ms)
        _run_until_idle(world, for_ms)
        _return_the_refused(world, for_ms)
        violations = verdict(world)
    return violations


def _run_until_idle(world: World, for_ms: int) -> None:
    """Let time pass until everything is idle and is so again after a grace; about `for_ms` ms at most."""
    end = world.clock.time_ms + for_ms
    while world.clock.time_ms < end:
        world.run(end - world.clock.time_ms, lambda: is_idle(world))
        world.run(GRACE_MS)
        if is_idle(world):
            return


def _return_the_refused(world: World, for_ms: int) -> None:
    """Let clients that were refused, and may have the session by now, come again."""
    if any(client.refused for client in world.clients.values()):
        # A session that was deleted may be served on, by an owner that has not looked for its row since.
        world.run(LOOKED_FOR_MS)
    for client in world.clients.values():
        if client.refused and world.rights.may_read(client.session or "", client.protocol.credential):
            # It was given the right since then, or the session is another one.
            client.go(_live_proxy(world, client.proxy))
            _run_until_idle(world, for_ms)


def _live_proxy(world: World, proxy: str) -> str:
    """Return the proxy, or where its site has ended for good, one that is there."""
    if world.nodes[proxy].site not in world.dead_sites:
        return proxy
    return next(name for name, node in world.nodes.items() if node.site not in world.dead_sites)


def is_idle(world: World) -> bool:
    """Tell whether nothing is left to do: every client is served, and has all that it is owed, and every proxy runs,
    under a lease, with the same frontier.

    Always False where a site has ended for good; False, too, as long as two proxies know different ends of the origins,
    as where links do not connect all sites.
    """
    for client in world.clients.values():
        if client.protocol.publish_room != PUBLISH_WINDOW:
            return False
        if not _is_served(client):
            continue
        if client.forgotten:
            return False
        if client.changing is not None:
            return False
        if client.open or client.protocol.waiting or not client.protocol.attached:
            return False
        if client.requests.keys() - client.ended - client.promised.keys():
            return False
    frontiers = []
    for node in world.nodes.values():
        engine = node.engine
        if engine is None or not node.ready or engine.state.position < len(world.logs[node.site]):
            return False
        # Over every link everything has come that there is, or silence has been spoken of.
        frontiers.append(engine.state.frontier)
        if frontiers[-1] != frontiers[0]:
            return False
        if (engine.env.lease.fence_at_ms or 0) <= world.clock.now_ms() + GRACE_MS:
            return False
        if engine.transfers.sources.running or engine.transfers.targets.running:
            return False
        for session in engine.sessions.values():
            behind = any(receiver.acknowledged < session.entries.last_number for receiver in session.receivers.values())
            if session.role is not Role.SERVING or behind or _closed_gates(world, engine.state.site, session):
                return False
    return not any(_lacks_promises(world, client) for client in world.clients.values())


def _is_served(client: Client) -> bool:
    """Tell whether a client is to be attached to a session in the end."""
    return not (client.session is None or client.refused or client.gone or client.stopped)


def _lacks_promises(world: World, client: Client) -> bool:
    """Tell whether a client that is served waits for promises of origins that links connect with its session."""
    if not _is_served(client):
        return False
    origins = _connected_origins(world, client)
    return any(origins - client.promised[name].keys() for name in client.requests.keys() - client.ended)


def _closed_gates(world: World, site: SiteId, session: Session) -> list[Origin]:
    """Return the origins that a session at this site waits for, and that links connect with it."""
    connected = world.connected(site)
    return sorted(origin for origin in session.gates if site_of(origin) in connected)


GRACE_MS = 400
FOLLOWED_MS = 1_500
"""A roaming client that was let in less than so long ago has not had the time to go to a nearer proxy."""
CORRECTED_MS = 60_000
"""Within this whoever knows of a later row than a registry that was put back has corrected it, or counts as gone."""
LOOKED_FOR_MS = 5_000
"""Within this a proxy has looked for the rows of all its sessions."""


def verdict(world: World) -> list[str]:
    """Return the violations of the promises P1 to P3 and of the checks during the run; the first word is the kind.

    To be called when everything is idle (:func:`heal`): what is still under way counts as lost or stuck.

    Returns:
        Empty: all is well, or nothing is promised, for the reason in :attr:`World.void`.
    """
    if world.void:
        return []
    violations = list(dict.fromkeys(world.violations))
    published = _published(world)
    violations += (
        _check_caught_up(world, list(published))
        + _check_interests(world)
        + check_forwarding(world)
        + _check_log_epochs(world)
    )
    violations += check_owners(world.journal)
    times = Counter(published.values())
    retried = {identity for identity, n in times.items() if n > 1}
    for client in world.clients.values():
        violations += [
            f"PROBLEM of {client.name}: {problem}" for problem in client.problems if not problem.startswith(HONEST)
        ]
        if client.protocol.publish_room != PUBLISH_WINDOW:
            violations.append(f"STUCK {client.name} has publishes without an answer")
        if client.protocol.quench_view.caught_up:
            violations += _quenched(world, client)
        if client.session is not None:
            violations += _one_side(world, client) + _check_delivered(world, client, retried)
            if client.forgotten:
                violations += _forgotten(world, client)
                continue
            if client.stopped:
                continue
            if not client.refused:
                violations += _live(world, client) + _far(world, client) + _owed(world, client, published)
            elif world.rights.surely_reads(client.session, client.protocol.credential):
                violations.append(f"RIGHTS {client.name} is refused, and may have {client.session}")
    return violations


def _far(world: World, client: Client) -> list[str]:
    """Check that a roaming client is at the nearest proxy, unless that did not let it in lately, or the client has
    followed its session just now.

    Nothing is checked where not all sites are connected.
    """
    chooser, nearest = client.connector.chooser, world.nearest.get(client.name)
    if chooser is None or nearest is None or client.proxy == nearest:
        return []
    now = world.clock.now_ms()
    if chooser.avoids(url_of(nearest), now) or world.clock.time_ms < client.attached_ms + FOLLOWED_MS:
        return []
    if world.dead_sites or any(len(world.connected(site)) < len(world.logs) for site in world.logs):
        return []
    return [f"FAR {client.name} is at {client.proxy}, and has been near {nearest}"]


def _published(world: World) -> dict[Coordinate, NotificationId]:
    """Return all published notifications by their first coordinates, in order."""
    return {
        at: NotificationId(record.producer, record.incarnation, record.sequence)
        for at, record in world.published.items()
    }


def _check_caught_up(world: World, published: list[Coordinate]) -> list[str]:
    """Check that every proxy knows how far every origin has come, and that no gate is closed."""
    ends = dict.fromkeys(world.logs_by_origin, NOTHING) | dict(at for at in published if at not in world.lost)
    violations = []
    for node in world.nodes.values():
        if node.engine is not None:
            connected = world.connected(node.site)
            known = {
                origin: node.engine.state.frontier.get(origin, NOTHING)
                for origin in ends
                if site_of(origin) in connected
            }
            if any(not _has_come(world, origin, upto, ends[origin]) for origin, upto in known.items()):
                violations.append(f"STUCK {node.proxy} is at {known}, and the logs end at {ends}")
            for session in node.engine.sessions.values():
                if gates := _closed_gates(world, node.site, session):
                    violations.append(f"STUCK {session.id} at {node.proxy} waits for {gates}")
    return violations


def _check_interests(world: World) -> list[str]:
    """Check that every site knows what is wanted where links lead, and nothing that nobody wants any more.

    A neighbour requests what covers the rest, and nothing else.
    """
    violations = []
    for node in world.nodes.values():
        if node.engine is None:
            continue
        connected = world.connected(node.site)
        sessions = [
            session
            for other in world.nodes.values()
            if other.engine is not None and other.site in connected
            for session in other.engine.sessions.values()
        ]
        known = node.engine.state.all_interests()
        wanted = {
            subscription.expression.canonical for session in sessions for subscription in session.subscriptions.active()
        }
        held = {text for session in sessions for text in session.subscriptions.interest_expressions()}
        if missing := {text for text in wanted if not any(_covers(wide, text) for wide in known)}:
            violations.append(f"ASKS {node.proxy} does not know that {sorted(missing)} is wanted")
        for neighbour, requested in node.engine.state.neighbour_filters.items():
            by_no_keys = [text for text, found in requested.filters.items() if found.protections == (OPEN,)]
            violations += [
                f"ASKS {neighbour} requests {narrow} of {node.proxy} beside {wide}"
                for wide, narrow in permutations(by_no_keys, 2)
                if neighbour in connected and _covers(wide, narrow)
            ]
        if len(connected) == len(world.logs) and (kept := known - held - wanted):
            violations.append(f"ASKS {node.proxy} knows of {sorted(kept)}, which nobody wants")
    return violations


def _check_log_epochs(world: World) -> list[str]:
    """A log begins another log epoch only after it has lost something."""
    violations = []
    for site, row in world.registry.site_logs.items():
        log = world.logs[site]
        if row.log_epoch > 1 + log.losses and not log.was_damaged:
            violations.append(
                f"NOLOSS {site} is in log epoch {row.log_epoch}, and its log lost its end {log.losses} times"
            )
    return violations


def _has_come(world: World, origin: Origin, upto: int, end: int) -> bool:
    """Tell whether a frontier is at the end; or it began where the log does, behind all that is gone.

    An origin that has ended is complete up to what anybody had seen of it: what was appended to it later, before all
    knew, was answered by nobody.
    """
    log = world.logs_by_origin.get(origin)
    if log is None:
        return True
    if upto > end and any(plain_log.was_damaged for plain_log in world.logs.values()):
        # Past what could not be read, and what is said again for it, an origin moves without a notification.
        return True
    reached = log.read(upto, upto + 1) if upto > end and upto >= log.first else []
    if any(isinstance(record, Severed | TreeEntered | OriginEnded) for _, record in reached):
        # So it does where another origin begins to arrive over another link.
        return True
    return upto == end or end < upto < log.first or (log_epoch_of(origin) > 1 and end == NOTHING)


def _one_side(world: World, client: Client) -> list[str]:
    """Check that exactly one proxy has the session, and that the registry names it."""
    assert client.session is not None
    row = world.registry.owners.get(client.session)
    copies = {
        node.proxy: (session.role, session.epoch)
        for node in world.nodes.values()
        if node.engine is not None
        for session in [node.engine.sessions.get(client.session)]
        if session is not None
    }
    if row is None or copies != {row.proxy: (Role.SERVING, row.epoch)}:
        return [f"SIDES the registry names {row}; copies of {client.session} are {copies}"]
    return []


def _forgotten(world: World, client: Client) -> list[str]:
    """Check that a receiver that has left for good was told so, and is registered nowhere."""
    if not client.gone and not client.refused:
        return [f"STUCK {client.name} has no answer about leaving for good"]
    held = [
        node.proxy
        for node in world.nodes.values()
        if node.engine is not None
        for session in [node.engine.sessions.get(client.session)]  # type: ignore[arg-type]
        if session is not None and ReceiverId(client.identity[1]) in session.receivers
    ]
    return [f"STUCK {client.name} has left for good, and has a place at {proxy}" for proxy in held if client.gone]


def _live(world: World, client: Client) -> list[str]:
    violations = []
    if not client.protocol.attached:
        violations.append(f"STUCK {client.name} is not attached")
    if client.changing is not None:
        violations.append(f"STUCK {client.name} has no answer about who may do what")
    violations += [f"STUCK {client.name} has no answer about {name}" for name in sorted(client.open)]
    silent = set(client.requests) - client.ended - set(client.promised)
    violations += [f"STUCK {client.name} was promised nothing of {name}" for name in sorted(silent)]
    for name in sorted(set(client.requests) - client.ended - silent):
        missing = _connected_origins(world, client) - client.promised[name].keys()
        violations += [
            f"STUCK {client.name} was promised nothing of {name} from {origin}" for origin in sorted(missing)
        ]
    return violations


def _owed(world: World, client: Client, published: Mapping[Coordinate, NotificationId]) -> list[str]:
    """Check the deliveries: a notification acknowledged to its producer, above the promise and not above the end."""
    lost: list[str] = []
    safe: dict[Coordinate, int] = {}
    for producer in world.clients.values():
        acknowledged = {_located(producer, at, published): number for at, number in producer.safe.items()}
        safe |= acknowledged
        for coordinate in acknowledged.keys() - published.keys():
            number = acknowledged[coordinate]
            lost.append(f"LOST {producer.name} was told that {number} is at {coordinate}, and it is not")
    same_receiver = [candidate for candidate in world.clients.values() if candidate.identity == client.identity]
    delivered = {identity for candidate in same_receiver for identity, _, _ in candidate.delivered}
    gone = excused(world, client.session or "") | _announced_gaps(world, client)
    missing = [at for at in safe if at in published and published[at] not in delivered and at not in gone]
    connected = {site_of(origin) for origin in _connected_origins(world, client)}
    missing = [at for at in missing if site_of(at.origin) in connected]
    if client.is_ahead:
        return lost
    for subscription, promise in client.promised.items():
        lost += [
            f"LOST {client.name} is promised {subscription} above {above} of {origin}, which no log has"
            for origin, above in promise.items()
            if above >= BEYOND_LOGS
        ]
        expression = parse(client.requests[subscription])
        ends = least_ends(client, subscription)
        for origin, offset in missing:
            number = safe[Coordinate(origin, offset)]
            if client.joined is None or offset < client.joined.get(origin, 0) or not expression.matches({"n": number}):
                continue
            if not all(_lets(world, client, subscription, Coordinate(origin, offset), number)):
                continue
            if origin not in promise or not promise[origin] < offset <= ends.get(origin, NOTHING):
                continue
            coordinate_text = f"{origin}:{offset}, promised above {promise[origin]}"
            lost.append(f"LOST {client.name}/{subscription}: {number} at {coordinate_text}")
    return lost


def _connected_origins(world: World, client: Client) -> set[Origin]:
    """Return the present origins that links connect with the site where the client's session is served."""
    row = world.registry.owners.get(client.session or SessionId(""))
    if row is None or row.proxy not in world.nodes:
        return set(world.logs_by_origin)
    connected = world.connected(world.nodes[row.proxy].site)
    return {origin for origin in world.logs_by_origin if site_of(origin) in connected}


def _located(producer: Client, at: Coordinate, published: Mapping[Coordinate, NotificationId]) -> Coordinate:
    """Return the coordinate in the log of an acknowledged one: its proxy may have learned late of a log epoch."""
    if at in published:
        return at
    later = [
        candidate
        for candidate, identity in published.items()
        if candidate.offset == at.offset and follows(candidate.origin, at.origin) and identity.producer == producer.name
    ]
    return min(later, key=lambda candidate: log_epoch_of(candidate.origin), default=at)


def _announced_gaps(world: World, client: Client) -> set[Coordinate]:
    """Return the coordinates in gaps that the journal has and the client was told of."""
    gaps = {
        (fact.origin, fact.offsets[0], fact.offsets[1])
        for fact in world.journal
        if fact.kind == FactKind.GAP and fact.session == client.session and fact.receiver in ("", client.identity[1])
    }
    return {
        Coordinate(Origin(origin), offset)
        for origin, first, last in gaps & client.gaps
        for offset in range(first, last + 1)
    }


def _quenched(world: World, producer: Client) -> list[str]:
    """Check what a producer without keys knows: all expressions that need none, or some that cover them."""
    connected = world.connected(world.nodes[producer.proxy].site)
    held = {
        (subscription.expression.canonical, subscription.insecure)
        for node in world.nodes.values()
        if node.engine is not None and node.site in connected
        for session in node.engine.sessions.values()
        for subscription in session.subscriptions.active()
    }
    wanted = {text for text, needs_no_key in held if needs_no_key}
    announced = set(producer.protocol.quench_view.terms)
    covered = {text for text in wanted if any(_covers(wide, text) for wide in announced)}
    needed = {text for text, _ in held if any(_covers(text, narrow) for narrow in wanted)}
    # A subscription has not ended as long as a site may still owe something of it.
    is_whole = len(connected) == len(world.logs)
    if covered == wanted and (announced <= needed or not is_whole):
        return []
    return [f"QUENCH {producer.name} was told of {sorted(announced)}, wanted is {sorted(wanted)}"]


def _covers(wide: str, narrow: str) -> bool:
    return covers(parse(wide).tree, parse(narrow).tree)


def _lets(world: World, client: Client, subscription: str, at: Coordinate, number: int) -> list[bool]:
    """Tell whether the subscription may have a notification, for each of the secrets that may hold there."""
    history = world.secrets[client.identity[0], subscription]
    return [secrets.allows(world.keys_of[number]) for secrets in history.candidates(*at)]


def _check_delivered(world: World, client: Client, retried: Collection[NotificationId]) -> list[str]:
    """Check that nothing came twice or unasked, and that each producer's order holds at one origin (P2, P3)."""
    return _repeated(world, client) + _disordered(client, retried) + _unasked(world, client, retried)


def _repeated(world: World, client: Client) -> list[str]:
    """Check that no run of a client was given a notification twice, or one that an earlier run had acknowledged.

    A run that has no state of earlier ones may be given again what the service did not know to be acknowledged. Nothing
    is known of that where the registry was put back to a copy, or once the session was deleted.
    """
    violations = []
    starts = [run.first for run in client.runs]
    for run, end in zip(client.runs, [*starts[1:], len(client.delivered)], strict=True):
        given = client.delivered[run.first : end]
        ids = Counter(identity for identity, _, _ in given)
        violations += [f"TWICE {client.name} was given {identity[2]} {n} times" for identity, n in ids.items() if n > 1]
        before = {at for _, at, _ in client.delivered[: run.first]}
        violations += [
            f"TWICE {client.name} was given {number} at {at.origin}:{at.offset}, which it had acknowledged"
            for index, (_, at, number) in enumerate(given, run.first)
            if at in before and run.must_not_have(index, at) and not world.registry.restored
        ]
    return violations


def _disordered(client: Client, retried: Collection[NotificationId]) -> list[str]:
    """Check the order in which each run of a client was given notifications.

    A receiver in order of priority has that order among notifications of one priority.
    """
    violations = []
    last: dict[tuple[str, int], int] = {}
    sequences: dict[tuple[str, str, str, int], int] = {}
    starts = {run.first for run in client.runs}
    for index, (identity, (origin, offset), number) in enumerate(client.delivered):
        if index in starts:
            last.clear()
            sequences.clear()
        rank = number % PRIORITIES if client.by_priority else 0
        if offset <= last.get((origin, rank), NOTHING):
            violations.append(f"ORDER {client.name} was given {number} at {origin}:{offset} after {last[origin, rank]}")
        last[origin, rank] = offset
        if identity in retried:
            continue
        producer, incarnation, sequence = identity
        stream = (producer, incarnation, origin, rank)
        if sequence < sequences.get(stream, -1):
            violations.append(f"ORDER {client.name} was given {producer}'s {sequence} after its {sequences[stream]}")
        sequences[stream] = sequence
    return violations


def _unasked(world: World, client: Client, retried: Collection[NotificationId]) -> list[str]:
    """Check that a client was given what its subscriptions match, by keys that met, and nothing beyond their ends."""
    violations = []
    asked = {name: parse(text) for name, text in client.requests.items()}
    latest = {name: highest_ends(client, name) for name in asked}
    for identity, (origin, offset), number in client.delivered:
        if identity in retried:
            continue
        matching = [name for name, expression in asked.items() if expression.matches({"n": number})]
        may = [any(_lets(world, client, name, Coordinate(origin, offset), number)) for name in matching]
        if not any(may):
            violations.append(f"PHANTOM {client.name} was given {number}" + (", by no key that met" if may else ""))
        elif Coordinate(origin, offset) in world.lost:
            # A subscription ends where the origin does, which has lost what was given before.
            continue
        elif all(offset > latest[name].get(origin, offset) for name in matching):
            violations.append(
                f"BEYOND {client.name} was given {number} at {origin}:{offset}, where {matching} had ended"
            )
    return violations
