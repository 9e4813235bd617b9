"""The actions of a schedule's steps: one function each, by name in :data:`ACTIONS`.

Each is called with the world, its first receiver, the step's number, which picks the target, and the number of
notifications published so far.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

from chaos.simulator.checks.phases import PHASES, phases
from chaos.simulator.environment.secrets import ANNOUNCED_SECRETS, Secrets
from chaos.simulator.kernel.recorder import log_lane
from chaos.simulator.processes.clients import Client
from chaos.simulator.processes.node import Node
from chaos.simulator.world import World
from federation.ports import DrainRow
from federation.site.acceptance import Acceptance
from handover.messages import MoveRequest
from proxy.core.inputs import PeerSent
from waypost.access import EVERYTHING, READ
from waypost.identity import SessionId, edge, log_epoch_of
from waypost.messages import Granted

EXPRESSIONS = ("n > 0", "n % 2 == 0", "n % 3 == 0")
COVERING = ("n > 0", "n > 0 && n % 2 == 0", "n > 0 && n % 2 == 0 && n % 3 == 0")
"""Each covers those behind it."""
KEEP = (None, None)
POLICIES = ((1, None), (None, 2), (2, 1), (None, 5))


def _node(world: World, pick: int) -> Node:
    return list(world.nodes.values())[pick % len(world.nodes)]


PUBLISHES = {"publish": 1, "publish a burst": 6}
"""Actions that publish, and how many notifications each publishes, in one frame."""


def publish(world: World, pick: int, number: int, keys: Secrets, count: int) -> None:
    """Have the producer at one proxy publish notifications.

    Args:
        world: with a client ``p-PROXY`` for each proxy.
        pick: any number from 0, which picks the proxy.
        number: the attribute `n` of the first one; unused so far, as those behind it.
        keys: the secrets by which they reach subscriptions.
        count: of the notifications.
    """
    world.clients[f"p-{_node(world, pick).proxy}"].publish(number, keys, count=count)


def _move(world: World, client: Client, pick: int, number: int) -> None:
    client.go(_node(world, pick).proxy)


def _move_other(world: World, client: Client, pick: int, number: int) -> None:
    if "d" in world.clients:
        world.clients["d"].go(_node(world, pick).proxy)


def _give(world: World, client: Client, pick: int, number: int) -> None:
    """Have an operator move the session to a proxy."""
    session, row = SessionId("s"), world.registry.owners.get(SessionId("s"))
    if row is not None and not row.deleted:
        give = MoveRequest(session, row.epoch, _node(world, pick).proxy)
        world.nodes[row.proxy].step(PeerSent(row.proxy, give))


def _subscribe(world: World, client: Client, pick: int, number: int) -> None:
    client.subscribe(f"x{len(client.requests)}", world.expressions[pick % 3])


def _subscribe_for_a_while(world: World, client: Client, pick: int, number: int) -> None:
    client.subscribe(f"x{len(client.requests)}", world.expressions[pick % 3], *POLICIES[pick // 3 % len(POLICIES)])


def _unsubscribe(world: World, client: Client, pick: int, number: int) -> None:
    active = sorted(set(client.requests) - client.ended)
    if active:
        client.unsubscribe(active[pick % len(active)])


def _change_policy(world: World, client: Client, pick: int, number: int) -> None:
    active = sorted(set(client.requests) - client.ended)
    if active:
        name = active[pick % len(active)]
        client.subscribe(name, client.requests[name], *(KEEP, *POLICIES)[pick // 7 % (1 + len(POLICIES))])


def _change_keys(world: World, client: Client, pick: int, number: int) -> None:
    active = sorted(set(client.requests) - client.ended - client.open)
    if active:
        name = active[pick % len(active)]
        client.subscribe(name, *client.policies[name], ANNOUNCED_SECRETS[pick // 7 % len(ANNOUNCED_SECRETS)])


def _name_again(world: World, client: Client, pick: int, number: int) -> None:
    """Use the name of a subscription again, with one receiver only: another one may still learn of the first use."""
    used = sorted(name for name in client.requests.keys() - client.open if "'" not in name)
    if not used or "d" in world.clients:
        return
    name = used[pick % len(used)]

    def again() -> None:
        # A client that does not know of the session's deletion takes the name for one in use.
        if name in client.ended - client.open and not client.unaware:
            client.subscribe_again(name, world.expressions[pick // 7 % 3])

    if name not in client.ended:
        client.unsubscribe(name)
    world.later(pick % 500, again)


def _leave_for_good(world: World, client: Client, pick: int, number: int) -> None:
    if "d" in world.clients:
        world.clients["d"].leave_for_good()


def _fail_to_read(world: World, client: Client, pick: int, number: int) -> None:
    """Let the next reads of every store fail: there are few."""
    for node in world.nodes.values():
        node.unreadable = 1 + pick % 4


def _slow_journal(world: World, client: Client, pick: int, number: int) -> None:
    """Slow a journal down. Two times of three the process ends in the end, and with it the facts under way."""
    node = _node(world, pick)

    def end() -> None:
        node.journal_ms = 0
        if pick % 3 and node.engine is not None:
            _stop(world, node, pick, disk_lost=pick % 3 == 1)

    node.journal_ms = 500 + pick % 3_000
    world.later(pick % 5_000, end)


def _change_access(world: World, client: Client, pick: int, number: int) -> None:
    """Set a password for the owner, alone or with a reader; or open the session to everybody."""
    owner = {"": Granted([*EVERYTHING], f"password {pick}")}
    if client.changing is None:
        client.set_access(({}, owner, owner | {"eve": Granted([READ], "")})[pick % 3])


def _delete(world: World, client: Client, pick: int, number: int) -> None:
    client.delete()


def _leave(world: World, client: Client, pick: int, number: int) -> None:
    client.leave()
    world.later(pick % 2_000, lambda: client.go(client.proxy))


def _pause(world: World, client: Client, pick: int, number: int) -> None:
    def go_on() -> None:
        client.paused = False
        client.take()

    client.paused = True
    world.later(pick % 2_000, go_on)


def _crash(world: World, pick: int, *, disk_lost: bool) -> None:
    node = _node(world, pick)
    if node.engine is not None:
        _stop(world, node, pick, disk_lost=disk_lost)


def _stop(world: World, node: Node, pick: int, *, disk_lost: bool) -> None:
    node.crash(disk_lost=disk_lost)
    world.later(pick % 4_000, lambda: node.start() if node.engine is None else None)


def _shut_down(world: World, client: Client, pick: int, number: int) -> None:
    """End a process in good order, and start it again when it has ended, or kill it in between."""
    node = _node(world, pick)
    if node.engine is None:
        return
    node.shut_down()
    world.later(pick % 9_000, lambda: _begin_again(node))


def _begin_again(node: Node) -> None:
    if node.engine is not None and node.leaving:
        node.crash()
    if node.engine is None:
        node.start()


def _deaf(world: World, client: Client, pick: int, number: int) -> None:
    node = _node(world, pick)
    node.deaf_until = world.clock.now_ms() + pick % 5_000
    world.invariants.restores.disturbed(f"{node.proxy} goes deaf")


def _stall(world: World, client: Client, pick: int, number: int) -> None:
    _node(world, pick).stall(pick % 4_000)


def _slow(world: World, client: Client, pick: int, number: int) -> None:
    _node(world, pick).slow_until = world.clock.now_ms() + pick % 5_000


def _slow_log(world: World, client: Client, pick: int, number: int) -> None:
    node = _node(world, pick)
    node.append_ms = pick % 1_500
    world.later(pick % 5_000, lambda: setattr(node, "append_ms", 0))


def _step_clock(world: World, client: Client, pick: int, number: int) -> None:
    """Set the Unix time of a machine by up to half a minute; the engines measure with another clock."""
    world.step_clock(_node(world, pick), pick // 7 % 60_000 - 30_000)


def _fill(world: World, client: Client, pick: int, number: int) -> None:
    node = _node(world, pick)
    node.full = True
    world.later(pick % 3_000, lambda: setattr(node, "full", False))


def _part(world: World, client: Client, pick: int, number: int) -> None:
    names = list(world.nodes)
    world.part(names[pick % len(names)], names[(pick // 7) % len(names)], pick % 6_000)


def _quorum(world: World, client: Client, pick: int, number: int) -> None:
    world.lose_quorum(pick % 4_000)


def _drain(world: World, client: Client, pick: int, number: int) -> None:
    """Have an operator drain a proxy, quickly or slowly, or pause that; a registry that is away does not take it."""
    if world.registry_answers():
        rate = (2.0, 20.0, 1_000.0)[pick // 16 % 3]
        world.drain(_node(world, pick).proxy, DrainRow(rate=rate, paused=pick // 64 % 8 == 0))


def _end_drain(world: World, client: Client, pick: int, number: int) -> None:
    """Have an operator end a drain."""
    drained = sorted(world.registry.drains)
    if drained and world.registry_answers():
        world.drain(drained[pick % len(drained)], None)


def _cut_for_good(world: World, client: Client, pick: int, number: int) -> None:
    if world.links:
        link = world.links[pick % len(world.links)]
        world.cut_for_good(link.near, link.far)


def _set_link(world: World, pick: int, *, removed: bool) -> None:
    """Remove a link that there is, or add one that there is not; a registry that is away takes neither."""
    there = {sites for sites, row in world.registry.links.items() if not row.removed}
    pairs = sorted(there if removed else {edge(*pair) for pair in combinations(world.logs, 2)} - there)
    if pairs and world.registry_answers():
        one, other = pairs[pick % len(pairs)]
        world.set_link(one, other, removed=removed)


def _make_leaf(world: World, pick: int) -> None:
    """Have one end of a link pass nothing on, or neither; a registry that is away does not take it."""
    there = sorted(sites for sites, row in world.registry.links.items() if not row.removed)
    if there and world.registry_answers():
        sites = there[pick % len(there)]
        ends = (sites[:1], sites[1:], ())
        world.set_link(*sites, leaves=ends[pick // len(there) % 3])


def _come_nearer(world: World, client: Client, pick: int, number: int) -> None:
    """Be near another proxy from now on, one client of a session."""
    receivers = [name for name, known in world.clients.items() if known.session is not None]
    names = list(world.nodes)
    world.come_near(receivers[pick % len(receivers)], names[pick // len(receivers) % len(names)])


def _come_ahead(world: World, client: Client, pick: int, number: int) -> None:
    """Attach one more receiver to a session, with a state beyond the ends of all logs."""
    sessions = sorted({known.session for known in world.clients.values() if known.session is not None})
    name, at = f"ahead{len(world.clients)}", list(world.nodes)[pick % len(world.nodes)]
    if sessions:
        world.client(name, sessions[pick // 8 % len(sessions)], at, ahead=True)


def _lose_state(world: World, client: Client, pick: int, number: int) -> None:
    """End a receiver's program with its delivery state, and run it again at some proxy."""
    receivers = [known for known in world.clients.values() if known.session is not None]
    lost, at = receivers[pick % len(receivers)], list(world.nodes)[pick // len(receivers) % len(world.nodes)]
    lost.lose_state()
    world.later(pick // 64 % 1_000 * 4, lambda: lost.go(at) if lost.away else None)


def _forget_site(world: World, client: Client, pick: int, number: int) -> None:
    """Have an operator forget a site that has ended for good, unless a session's last checkpoint may be there alone."""
    ended = sorted(world.dead_sites)
    if ended and world.registry_answers():
        world.forget_site(ended[pick % len(ended)])


def _end_site(world: World, client: Client, pick: int, number: int) -> None:
    """End a site for good, as long as another one is there."""
    alive = [site for site in world.logs if site not in world.dead_sites]
    if len(alive) > 1:
        world.end_site(alive[pick % len(alive)])


def _cut(world: World, client: Client, pick: int, number: int) -> None:
    if world.links:
        link = world.links[pick % len(world.links)]
        link.set_cut(records=pick % 3 != 1, words=pick % 3 != 2)
        world.later(pick % 4_000, lambda: world.mend(link))


def _lose(world: World, client: Client, pick: int, number: int) -> None:
    if world.links:
        world.links[pick % len(world.links)].lose()


def _forget_the_beginning(world: World, client: Client, pick: int, number: int) -> None:
    """Remove the part of a log that all its running proxies and its changelog have stored, or half of that.

    A log keeps its records for longer than a snapshot is away, but not for a proxy that is down.
    """
    site = list(world.logs)[pick % len(world.logs)]
    stored = [
        node.store.site_checkpoint for node in world.nodes.values() if node.site == site and node.engine is not None
    ]
    known = world.changelogs[site].site
    present = log_epoch_of(world.logs[site].origin)
    epochs = [known.log_epoch if known else 1]
    epochs += [Acceptance.restore(site, checkpoint[1]).mark.log_epoch for checkpoint in stored if checkpoint]
    if any(epoch != present for epoch in epochs):
        # Their positions are of an earlier log epoch: they have not read what would go.
        return
    read = min([known.position if known else 0, *(checkpoint[0] if checkpoint else 0 for checkpoint in stored)])
    world.logs[site].truncate(read // 2 if pick % 2 else read)


def _lose_end(world: World, client: Client, pick: int, number: int) -> None:
    world.lose_end(list(world.logs)[pick % len(world.logs)], 1 + pick // 7 % 12)


def _cut_power(world: World, client: Client, pick: int, number: int) -> None:
    """Have the power of a site fail, and let time pass until its processes serve again, START_MS at most: nobody else
    dies meanwhile, who may be the only one to know what the log has lost.
    """
    site = list(world.logs)[pick % len(world.logs)]
    if site in world.dead_sites or world.logs[site].away_until > world.clock.time_ms:
        return
    world.cut_power(site, 1 + pick // 7 % 6, disks_lost=pick // 42 % 4 == 0, writes_lost=pick // 168 % 4)
    world.run(START_MS, lambda: all(node.ready for node in world.nodes.values() if node.site == site))


def _damage(world: World, client: Client, pick: int, number: int) -> None:
    """Damage a record of a log; a proxy that has not read it yet, or begins anew before it, reads the damage."""
    site = list(world.logs)[pick % len(world.logs)]
    log = world.logs[site]
    if len(log) and log.damage(pick // 7 % len(log)):
        world.note(f"record {pick // 7 % len(log)} of the log of {site} is damaged", narrate=True, by=log_lane(site))


def _damage_store(world: World, client: Client, pick: int, number: int) -> None:
    """Damage an entry in a proxy's store; the proxy finds it when it is to deliver it."""
    node = _node(world, pick)
    if node.store.damage(pick // 7):
        world.note(f"an entry in the store of {node.proxy} is damaged", narrate=True, by=node.proxy)


START_MS = 8_000
WAIT = "wait for a phase"
WAIT_MS = 1_500


def _wait_for_phase(world: World, client: Client, pick: int, number: int) -> None:
    """Let time pass until a proxy is in a phase, but WAIT_MS at most."""
    phase = PHASES[pick % len(PHASES)]
    world.run(WAIT_MS, lambda: phase in phases(world))


ACTIONS: dict[str, Callable[[World, Client, int, int], None]] = {
    "move": _move,
    "move the other": _move_other,
    "give": _give,
    "subscribe": _subscribe,
    "subscribe for a while": _subscribe_for_a_while,
    "unsubscribe": _unsubscribe,
    "change the access": _change_access,
    "delete": _delete,
    "leave": _leave,
    "pause": _pause,
    "crash": lambda world, client, pick, number: _crash(world, pick, disk_lost=False),
    "crash and lose the disk": lambda world, client, pick, number: _crash(world, pick, disk_lost=True),
    "shut down": _shut_down,
    "go deaf": _deaf,
    "stall": _stall,
    "slow the disk": _slow,
    "slow the log": _slow_log,
    "fill the disk": _fill,
    "part two proxies": _part,
    "lose the quorum": _quorum,
    "drain a proxy": _drain,
    "end a drain": _end_drain,
    "compact the registry": lambda world, client, pick, number: world.compact(),
    "copy the registry": lambda world, client, pick, number: world.copy_registry(),
    "put the registry back": lambda world, client, pick, number: world.put_registry_back(),
    "cut a link": _cut,
    "cut a link for good": _cut_for_good,
    "remove a link": lambda world, client, pick, number: _set_link(world, pick, removed=True),
    "make a site a leaf": lambda world, client, pick, number: _make_leaf(world, pick),
    "come nearer": _come_nearer,
    "come with a state beyond the logs": _come_ahead,
    "add a link": lambda world, client, pick, number: _set_link(world, pick, removed=False),
    "end a site": _end_site,
    "forget a site": _forget_site,
    "lose the state of a client": _lose_state,
    "lose a link": _lose,
    "forget the beginning": _forget_the_beginning,
    "fail to read": _fail_to_read,
    "slow the journal": _slow_journal,
    "step a clock": _step_clock,
    "change a policy": _change_policy,
    "change the keys": _change_keys,
    "use a name again": _name_again,
    "leave for good": _leave_for_good,
    "lose the end of a log": _lose_end,
    "cut the power of a site": _cut_power,
    "damage a log": _damage,
    "damage a store": _damage_store,
    WAIT: _wait_for_phase,
}
AIMED = frozenset(ACTIONS) - {
    WAIT,
    "step a clock",
    "compact the registry",
    "copy the registry",
    "forget the beginning",
    "come with a state beyond the logs",
    "drain a proxy",
    "end a drain",
    "cut the power of a site",
}
"""Actions that are worth doing just when a proxy is in a certain phase."""
