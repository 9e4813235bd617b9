"""A seeded random run of a world: what happens, in which order, how often; and a way to make a failing run short.

A run is a seed and a script, a list of (time to the next one, action, number). The number picks what the action is
done to, so that a script with steps left out still means the same as far as it can.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from chaos.simulator.clients import LONG_SIP_MS, SIP_MS, Client
from chaos.simulator.node import Node
from chaos.simulator.secrets import OPEN, SAID, Said
from chaos.simulator.verdict import heal
from chaos.simulator.world import Faults, World
from handover.messages import Give
from waypost.access import EVERYTHING, READ
from waypost.identity import SessionId
from waypost.messages import Credential, Granted
from waypost.queue import DISCARDS, Order, Queue
from waypost.reliability import BEST_EFFORT_EVENTS

Step = tuple[int, str, int]
LENGTHS = (6, 36)
"""How many steps a script has. With half as many the planted bugs take more processor time to come to light."""
EXPRESSIONS = ("n > 0", "n % 2 == 0", "n % 3 == 0")
KEEP = (None, None)
POLICIES = ((1, None), (None, 2), (2, 1), (None, 5))
WEIGHTS = {
    "publish": 10,
    "move": 4,
    "move the other": 3,
    "give": 1,
    "subscribe": 2,
    "subscribe for a while": 1,
    "unsubscribe": 1,
    "delete": 1,
    "leave": 1,
    "pause": 1,
    "crash": 1,
    "crash and lose the disk": 1,
    "go deaf": 1,
    "stall": 1,
    "slow the disk": 1,
    "slow the log": 1,
    "fill the disk": 1,
    "part two proxies": 1,
    "lose the quorum": 1,
    "compact the registry": 1,
    "cut a link": 1,
    "lose a link": 1,
}
NEWER = (
    "fail to read",
    "slow the journal",
    "step a clock",
    "change a policy",
    "use a name again",
    "leave for good",
)


@dataclass(slots=True)
class Schedule:
    """What a seed says: the shape of the world, its faults, and the script."""

    seed: int
    sites: dict[str, list[str]]
    faults: Faults
    window: int
    receivers: int
    small: bool
    """Bounds of copies and of memory are so small that they come to bear."""
    policy: tuple[int | None, int | None]
    """For how many seconds, and how much of it, the first subscription stores; None: without an end."""
    script: list[Step]
    keyed: bool
    """Some is published with keys."""

    @classmethod
    def of(cls, seed: int) -> Schedule:
        chance = random.Random(f"run {seed}")
        sites = chance.choice([{"A": ["a1", "a2"]}, {"A": ["a1"], "B": ["b1"]}, {"A": ["a1", "a2"], "B": ["b1"]}])
        faults = Faults(
            loss=chance.choice([0, 0, 0.1, 0.3]),
            double=chance.choice([0, 0, 0.2]),
            slow_ms=chance.choice([0, 0, 100, 800]),
            answers=chance.choice([0, 0, 0.1]),
            writes=chance.choice([0, 0, 0, 0.05]),
        )
        # Every run has its own favourites: what is rare together with everything is common together with little.
        actions = [name for name in WEIGHTS if name in ("publish", "move") or chance.random() < 0.5]
        weights = [WEIGHTS[name] for name in actions]
        gaps = chance.choice([30, 150, 500])
        script = [
            (chance.randint(0, gaps), name, chance.getrandbits(16))
            for name in chance.choices(actions, weights, k=chance.randint(*LENGTHS))
        ]
        cls._change_access(seed, script)
        cls._do_more(seed, script)
        keyed = cls._change_keys(seed, script)
        window, receivers = chance.choice([1, 3, 4000]), chance.choice([1, 1, 2])
        policy = chance.choice([KEEP, KEEP, *POLICIES])
        small = chance.choice([False, True])
        return cls(seed, sites, faults, window, receivers, small, policy, script, keyed)

    @staticmethod
    def _change_access(seed: int, script: list[Step]) -> None:
        """In every fourth run, say now and then who may do what. By chances of its own: the others stay as they are."""
        chance = random.Random(f"access {seed}")
        if chance.random() < 0.25:
            for _ in range(chance.randint(1, 8)):
                step = (chance.randint(0, 100), "change the access", chance.getrandbits(16))
                script.insert(chance.randint(0, len(script)), step)

    @staticmethod
    def _change_keys(seed: int, script: list[Step]) -> bool:
        """In every fourth run, publish with keys, and let subscriptions go by others now and then."""
        chance = random.Random(f"keys {seed}")
        if chance.random() >= 0.25:
            return False
        for _ in range(chance.randint(1, 8)):
            step = (chance.randint(0, 100), "change the keys", chance.getrandbits(16))
            script.insert(chance.randint(0, len(script)), step)
        return True

    @staticmethod
    def _do_more(seed: int, script: list[Step]) -> None:
        """In every third run, do what no run did at first. By chances of its own too."""
        chance = random.Random(f"more {seed}")
        if chance.random() < 0.33:
            favourites = chance.sample(NEWER, k=chance.randint(1, len(NEWER)))
            for _ in range(chance.randint(2, 10)):
                step = (chance.randint(0, 200), chance.choice(favourites), chance.getrandbits(16))
                script.insert(chance.randint(0, len(script)), step)

    def with_retention(self) -> Schedule:
        """The same run, in which logs forget their beginning."""
        chance = random.Random(f"retention {self.seed}")
        script = [step for step in self.script if step[1] != "slow the journal"]
        for _ in range(chance.randint(1, 4)):
            step = (chance.randint(0, 100), "forget the beginning", chance.getrandbits(16))
            script.insert(chance.randint(0, len(script)), step)
        return replace(self, script=script)

    def play(self, script: list[Step] | None = None) -> tuple[World, list[str]]:
        """Return the world at its end, and what is wrong with it."""
        world = World(self.sites, self.seed, small=self.small)
        world.run(300)
        chance = random.Random(f"reliability {self.seed}")
        levels = [BEST_EFFORT_EVENTS if chance.random() < 0.2 else None for _ in range(2)]
        queue = Queue(chance.randint(1, 4), discard=chance.choice(DISCARDS)) if chance.random() < 0.15 else None
        chance = random.Random(f"order {self.seed}")
        order: Order = "priority" if chance.random() < 0.25 else "any"
        client = world.client("c", "s", "a1", self.window, reliability=levels[0], queue=queue, order=order)
        if self.receivers > 1:
            last, eve = list(world.nodes)[-1], Credential("eve")
            world.client("d", "s", last, self.window, credential=eve, reliability=levels[1])
        for name in world.nodes:
            world.client(f"p-{name}", None, name)
        if self.keyed:
            for name in world.nodes:
                world.clients[f"p-{name}"].machine.quench(["n"], [], insecure=True)
        client.sip_ms = SIP_MS if random.Random(f"sips {self.seed}").random() < 0.25 else 0
        if order == "priority":
            client.sip_ms = LONG_SIP_MS
        client.subscribe("x0", EXPRESSIONS[0], *self.policy)
        world.run(300)
        world.faults = self.faults
        number = 0
        for wait, name, pick in self.script if script is None else script:
            world.run(wait)
            if name == "publish":
                number += 1
            world.note(f"--- {name} {pick}")
            if name == "publish":
                _publish(world, pick, number, SAID[number % len(SAID)] if self.keyed else OPEN)
            else:
                _ACTIONS[name](world, client, pick, number)
        world.run(1_000)
        return world, heal(world)


def shrink(run: Schedule, kind: str) -> list[Step]:
    """Leave out steps as long as something of the same kind is wrong (a word such as LOST)."""
    script, size = run.script, len(run.script) // 2
    while size:
        place = 0
        while place < len(script):
            shorter = script[:place] + script[place + size :]
            if any(each.startswith(kind) for each in run.play(shorter)[1]):
                script = shorter
            else:
                place += size
        size //= 2
    return script


def _node(world: World, pick: int) -> Node:
    return list(world.nodes.values())[pick % len(world.nodes)]


def _publish(world: World, pick: int, number: int, said: Said) -> None:
    world.clients[f"p-{_node(world, pick).proxy}"].publish(number, said)


def _move(world: World, client: Client, pick: int, number: int) -> None:
    client.go(_node(world, pick).proxy)


def _move_other(world: World, client: Client, pick: int, number: int) -> None:
    if "d" in world.clients:
        world.clients["d"].go(_node(world, pick).proxy)


def _give(world: World, client: Client, pick: int, number: int) -> None:
    """An operator wants the session somewhere."""
    session, row = SessionId("s"), world.registry.owners.get(SessionId("s"))
    if row is not None and not row.deleted:
        give = Give(session, row.epoch, _node(world, pick).proxy)
        world.nodes[row.proxy]._in(lambda engine: engine.peer_message(row.proxy, give))


def _subscribe(world: World, client: Client, pick: int, number: int) -> None:
    client.subscribe(f"x{len(client.asked)}", EXPRESSIONS[pick % 3])


def _subscribe_for_a_while(world: World, client: Client, pick: int, number: int) -> None:
    client.subscribe(f"x{len(client.asked)}", EXPRESSIONS[pick % 3], *POLICIES[pick // 3 % len(POLICIES)])


def _unsubscribe(world: World, client: Client, pick: int, number: int) -> None:
    here = sorted(set(client.asked) - client.ended)
    if here:
        client.unsubscribe(here[pick % len(here)])


def _change_policy(world: World, client: Client, pick: int, number: int) -> None:
    here = sorted(set(client.asked) - client.ended)
    if here:
        name = here[pick % len(here)]
        client.subscribe(name, client.asked[name], *(KEEP, *POLICIES)[pick // 7 % (1 + len(POLICIES))])


def _change_keys(world: World, client: Client, pick: int, number: int) -> None:
    here = sorted(set(client.asked) - client.ended - client.open)
    if here:
        name = here[pick % len(here)]
        client.subscribe(name, *client.policies[name], SAID[pick // 7 % len(SAID)])


def _name_again(world: World, client: Client, pick: int, number: int) -> None:
    """With one receiver: another one may still hear of the first when the second is there."""
    used = sorted(each for each in client.asked.keys() - client.open if "'" not in each)
    if not used or "d" in world.clients:
        return
    name = used[pick % len(used)]

    def again() -> None:
        if name in client.ended - client.open:
            client.subscribe_again(name, EXPRESSIONS[pick // 7 % 3])

    if name not in client.ended:
        client.unsubscribe(name)
    world.later(pick % 500, again)


def _leave_for_good(world: World, client: Client, pick: int, number: int) -> None:
    if "d" in world.clients:
        world.clients["d"].leave_for_good()


def _fail_to_read(world: World, client: Client, pick: int, number: int) -> None:
    """The next reads fail, everywhere: there are few."""
    for node in world.nodes.values():
        node.unreadable = 1 + pick % 4


def _slow_journal(world: World, client: Client, pick: int, number: int) -> None:
    """Two times of three it ends with the process, and with it what was on its way."""
    node = _node(world, pick)

    def end() -> None:
        node.journal_ms = 0
        if pick % 3 and node.engine is not None:
            _stop(world, node, pick, disk_lost=pick % 3 == 1)

    node.journal_ms = 500 + pick % 3_000
    world.later(pick % 5_000, end)


def _change_access(world: World, client: Client, pick: int, number: int) -> None:
    """A password for one, and another one may read, or nobody else may; or all is open."""
    owner = {"": Granted([*EVERYTHING], f"password {pick}")}
    if client.changing is None:
        client.set_access(({}, owner, owner | {"eve": Granted([READ], "")})[pick % 3])


def _delete(world: World, client: Client, pick: int, number: int) -> None:
    client.delete()


def _leave(world: World, client: Client, pick: int, number: int) -> None:
    client.leave()
    world.later(pick % 2_000, lambda: client.go(client.home))


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


def _deaf(world: World, client: Client, pick: int, number: int) -> None:
    _node(world, pick).deaf_until = world.clock.now_ms() + pick % 5_000


def _stall(world: World, client: Client, pick: int, number: int) -> None:
    _node(world, pick).stall(pick % 4_000)


def _slow(world: World, client: Client, pick: int, number: int) -> None:
    _node(world, pick).slow_until = world.clock.now_ms() + pick % 5_000


def _slow_log(world: World, client: Client, pick: int, number: int) -> None:
    node = _node(world, pick)
    node.append_ms = pick % 1_500
    world.later(pick % 5_000, lambda: setattr(node, "append_ms", 0))


def _step_clock(world: World, client: Client, pick: int, number: int) -> None:
    """Somebody sets the time that people read, by up to half a minute: the engines measure with another clock."""
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


def _cut(world: World, client: Client, pick: int, number: int) -> None:
    if world.links:
        link = world.links[pick % len(world.links)]
        link.set_cut(records=pick % 3 != 1, words=pick % 3 != 2)
        world.later(pick % 4_000, lambda: link.set_cut(records=False, words=False))


def _lose(world: World, client: Client, pick: int, number: int) -> None:
    if world.links:
        world.links[pick % len(world.links)].lose()


def _forget_the_beginning(world: World, client: Client, pick: int, number: int) -> None:
    """As much of a log as all its proxies that run have read and stored, and as its changelog has the meaning of,
    or half of that: a log keeps its records for longer than a snapshot is away, but not for one that is down."""
    site = list(world.logs)[pick % len(world.logs)]
    stored = [node.store.place for node in world.nodes.values() if node.site == site and node.engine is not None]
    known = world.changelogs[site].site
    read = min([known.position if known else 0, *(place[0] if place else 0 for place in stored)])
    world.logs[site].truncate(read // 2 if pick % 2 else read)


_ACTIONS: dict[str, Callable[[World, Client, int, int], None]] = {
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
    "go deaf": _deaf,
    "stall": _stall,
    "slow the disk": _slow,
    "slow the log": _slow_log,
    "fill the disk": _fill,
    "part two proxies": _part,
    "lose the quorum": _quorum,
    "compact the registry": lambda world, client, pick, number: world.compact(),
    "cut a link": _cut,
    "lose a link": _lose,
    "forget the beginning": _forget_the_beginning,
    "fail to read": _fail_to_read,
    "slow the journal": _slow_journal,
    "step a clock": _step_clock,
    "change a policy": _change_policy,
    "change the keys": _change_keys,
    "use a name again": _name_again,
    "leave for good": _leave_for_good,
}
