"""Draws schedules from seeds: one seed is one schedule, here and everywhere."""

from __future__ import annotations

import random
from dataclasses import replace

from chaos.simulator.actions import KEEP, POLICIES
from chaos.simulator.clients import LONG_SIP_MS, SIP_MS
from chaos.simulator.schedule import Schedule, Step
from chaos.simulator.world import Faults
from waypost.queue import DISCARDS, Order, Queue

LENGTHS = (6, 36)
"""How many steps a script has. With half as many the planted bugs take more processor time to come to light."""
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


def draw(seed: int) -> Schedule:
    """Return the schedule of a seed."""
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
    _change_access(seed, script)
    _do_more(seed, script)
    keyed = _change_keys(seed, script)
    window, receivers = chance.choice([1, 3, 4000]), chance.choice([1, 1, 2])
    policy = chance.choice([KEEP, KEEP, *POLICIES])
    small = chance.choice([False, True])
    chance = random.Random(f"reliability {seed}")
    first, second = chance.random() < 0.2, chance.random() < 0.2
    queue = Queue(chance.randint(1, 4), discard=chance.choice(DISCARDS)) if chance.random() < 0.15 else None
    order: Order = "priority" if random.Random(f"order {seed}").random() < 0.25 else "any"
    sip_ms = SIP_MS if random.Random(f"sips {seed}").random() < 0.25 else 0
    return Schedule(
        seed=seed,
        sites=sites,
        faults=faults,
        window=window,
        receivers=receivers,
        small=small,
        policy=policy,
        keyed=keyed,
        best_effort=(first, second),
        queue=queue,
        order=order,
        sip_ms=LONG_SIP_MS if order == "priority" else sip_ms,
        script=script,
    )


def with_retention(run: Schedule) -> Schedule:
    """Return the same run, in which logs forget their beginning."""
    chance = random.Random(f"retention {run.seed}")
    script = [step for step in run.script if step[1] != "slow the journal"]
    for _ in range(chance.randint(1, 4)):
        step = (chance.randint(0, 100), "forget the beginning", chance.getrandbits(16))
        script.insert(chance.randint(0, len(script)), step)
    return replace(run, script=script)


def with_lost_ends(run: Schedule) -> Schedule:
    """Return the same run, in which logs lose their end."""
    chance = random.Random(f"lost ends {run.seed}")
    script = list(run.script)
    for _ in range(chance.randint(1, 4)):
        step = (chance.randint(0, 400), "lose the end of a log", chance.getrandbits(16))
        script.insert(chance.randint(0, len(script)), step)
    return replace(run, script=script)


def _change_access(seed: int, script: list[Step]) -> None:
    """In every fourth run, say now and then who may do what. By chances of its own: the others stay as they are."""
    chance = random.Random(f"access {seed}")
    if chance.random() < 0.25:
        for _ in range(chance.randint(1, 8)):
            step = (chance.randint(0, 100), "change the access", chance.getrandbits(16))
            script.insert(chance.randint(0, len(script)), step)


def _change_keys(seed: int, script: list[Step]) -> bool:
    """In every fourth run, publish with keys, and let subscriptions go by others now and then."""
    chance = random.Random(f"keys {seed}")
    if chance.random() >= 0.25:
        return False
    for _ in range(chance.randint(1, 8)):
        step = (chance.randint(0, 100), "change the keys", chance.getrandbits(16))
        script.insert(chance.randint(0, len(script)), step)
    return True


def _do_more(seed: int, script: list[Step]) -> None:
    """In every third run, do what no run did at first. By chances of its own too."""
    chance = random.Random(f"more {seed}")
    if chance.random() < 0.33:
        favourites = chance.sample(NEWER, k=chance.randint(1, len(NEWER)))
        for _ in range(chance.randint(2, 10)):
            step = (chance.randint(0, 200), chance.choice(favourites), chance.getrandbits(16))
            script.insert(chance.randint(0, len(script)), step)
