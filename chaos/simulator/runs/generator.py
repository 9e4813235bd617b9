"""Draws schedules from seeds: one seed is one schedule, here and everywhere.

A schedule is a member of a swarm (Groce et al., "Swarm Testing", 2012): it draws first which features and which kinds
of faults it has at all, and then how often. What is rare together with everything is common together with little, so
rare pairs meet. Every third one waits for a phase of a handover, or of a recovery, and acts just then.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from chaos.simulator.checks.phases import PHASES
from chaos.simulator.kernel.kernel import Faults
from chaos.simulator.processes.clients import LONG_POLL_MS, POLL_MS
from chaos.simulator.runs.actions import AIMED, COVERING, KEEP, POLICIES, WAIT
from chaos.simulator.runs.schedule import Schedule, Step
from chaos.simulator.world import Shape
from waypost.limits import LINK_LEASE_MS
from waypost.queue import DISCARDS, Order, Queue

LENGTHS = (6, 36)
"""How many steps a script has. With half as many the mutants take more processor time to come to light."""
ALWAYS = {"publish": 10, "move": 4}
WEIGHTS = {
    "move the other": 3,
    "give": 1,
    "subscribe": 2,
    "subscribe for a while": 1,
    "unsubscribe": 1,
    "use a name again": 1,
    "change a policy": 1,
    "delete": 1,
    "leave": 1,
    "leave for good": 1,
    "pause": 1,
    "crash": 1,
    "crash and lose the disk": 1,
    "go deaf": 1,
    "stall": 1,
    "step a clock": 1,
    "slow the disk": 1,
    "slow the log": 1,
    "slow the journal": 1,
    "fail to read": 1,
    "fill the disk": 1,
    "part two proxies": 1,
    "lose the quorum": 1,
    "compact the registry": 1,
    "cut a link": 1,
    "lose a link": 1,
    "lose the end of a log": 1,
    "change the access": 2,
    "change the keys": 2,
}
"""How often an action comes, where a schedule has it."""
HAS_ACTION = 0.35
"""With this chance a schedule has an action at all; so it has about ten of them."""
HAS_FEATURE = 0.25
HAS_DAMAGE = HAS_ENDS = HAS_RESTORES = HAS_RETENTION = 0.1
HAS_GRAPH = 0.3
"""With this chance a schedule has three to five sites."""
HAS_COVERING = 0.4
"""With this chance the expressions of a schedule with more than one site cover each other."""
HAS_OPERATORS = 0.3
"""With this chance operators change the links of such a schedule."""
HAS_LEAVES = 0.15
"""With this chance operators say of sites of such a schedule that they pass nothing on."""
HAS_ROAMING = 0.2
"""With this chance receivers of a schedule go to the nearest proxy, and come nearer to others."""
HAS_AHEAD = 0.1
"""With this chance receivers with a state beyond the ends of all logs attach to sessions of a schedule."""
HAS_BURSTS = 0.3
"""With this chance producers of a schedule publish several notifications in one frame."""
HAS_LOST_STATES = 0.15
"""With this chance receivers of a schedule lose their delivery state."""
HAS_DRAINS = 0.15
"""With this chance operators drain proxies in a schedule."""
HAS_POWER_CUTS = 0.1
"""With this chance the power of a site fails in a schedule with more than one."""
HAS_FORGOTTEN_SITES = 0.3
"""With this chance operators forget sites, in a schedule whose sites may end for good."""
SHAPES: tuple[Shape, ...] = ("line", "star", "ring", "mesh")
LEASES_MS = (1_500, 3_000, LINK_LEASE_MS)
"""Times after which a link that has failed is given up: some are shorter than many faults."""
MANIFOLD = (1, 1, 4)
"""By how much an action is more frequent than by its weight."""


def draw(seed: int) -> Schedule:
    """Return the schedule of a seed: always the same one, as long as this module is not changed."""

    def perhaps(run: Schedule, what: str, probability: float, change: Callable[[Schedule], Schedule]) -> Schedule:
        return change(run) if random.Random(f"{what} of {seed}").random() < probability else run

    run = perhaps(_draw(seed), "graph", HAS_GRAPH, with_graph)
    if len(run.sites) > 2:
        run = perhaps(run, "operators", HAS_OPERATORS, with_operators)
        run = perhaps(run, "leaves", HAS_LEAVES, with_leaves)
        run = perhaps(run, "forgotten sites", HAS_FORGOTTEN_SITES, with_forgotten_sites)
    if len(run.sites) > 1:
        run = perhaps(run, "covering", HAS_COVERING, with_covering)
        run = perhaps(run, "power cuts", HAS_POWER_CUTS, with_power_cuts)
    run = perhaps(run, "roaming", HAS_ROAMING, with_roaming)
    run = perhaps(run, "ahead", HAS_AHEAD, with_receivers_ahead)
    run = perhaps(run, "drains", HAS_DRAINS, with_drains)
    run = perhaps(run, "lost states", HAS_LOST_STATES, with_lost_states)
    run = perhaps(run, "bursts", HAS_BURSTS, with_bursts)
    run = perhaps(run, "end", HAS_ENDS, with_orderly_ends)
    run = perhaps(run, "restore", HAS_RESTORES, with_restored_registry)
    run = perhaps(run, "retention", HAS_RETENTION, with_retention)
    return perhaps(run, "damage", HAS_DAMAGE, with_damage)


def _draw(seed: int) -> Schedule:
    rng = random.Random(f"schedule {seed}")
    sites = rng.choice([{"A": ["a1", "a2"]}, {"A": ["a1"], "B": ["b1"]}, {"A": ["a1", "a2"], "B": ["b1"]}])
    weights = ALWAYS | {
        name: weight * rng.choice(MANIFOLD) for name, weight in WEIGHTS.items() if rng.random() < HAS_ACTION
    }
    gap_ms = rng.choice([30, 150, 500])
    script: list[Step] = [
        (rng.randint(0, gap_ms), name, rng.getrandbits(16))
        for name in rng.choices([*weights], [*weights.values()], k=rng.randint(*LENGTHS))
    ]
    if rng.random() < 1 / 3:
        _aim(rng, script, [name for name in weights if name in AIMED])
    order: Order = "priority" if _has(rng) else "any"
    poll_interval_ms = POLL_MS if _has(rng) else 0
    return Schedule(
        seed=seed,
        sites=sites,
        faults=_draw_faults(rng),
        window=rng.choice([1, 3, 4000]),
        receivers=2 if rng.random() < 1 / 3 else 1,
        small=rng.random() < 0.5,
        policy=rng.choice(POLICIES) if rng.random() < 0.5 else KEEP,
        keyed=_has(rng) or "change the keys" in weights,
        best_effort=(_has(rng), _has(rng)),
        queue=Queue(rng.randint(1, 4), discard=rng.choice(DISCARDS)) if _has(rng) else None,
        order=order,
        poll_interval_ms=LONG_POLL_MS if order == "priority" else poll_interval_ms,
        script=script,
    )


def _has(rng: random.Random) -> bool:
    return rng.random() < HAS_FEATURE


def _draw_faults(rng: random.Random) -> Faults:
    """Draw what happens by chance all the time."""
    return Faults(
        loss=rng.choice([0, 0, 0.1, 0.3]),
        double=rng.choice([0, 0, 0.2]),
        slow_ms=rng.choice([0, 0, 100, 800]),
        answers=rng.choice([0, 0, 0.1]),
        writes=rng.choice([0, 0, 0, 0.05]),
    )


def _aim(rng: random.Random, script: list[Step], actions: list[str]) -> None:
    """Let some actions come just when a proxy is in a certain phase."""
    for _ in range(rng.randint(1, 4)):
        name = rng.choice(actions or ["crash"])
        place = rng.randint(len(script) // 3, len(script))
        waiting: Step = (0, WAIT, rng.randrange(len(PHASES)))
        script[place:place] = [waiting, (rng.randint(0, 20), name, rng.getrandbits(16))]


def with_graph(run: Schedule) -> Schedule:
    """Return a copy of a schedule on three to five sites, with up to two new steps: a link is cut for good, or a site
    ends for good.

    Sites, links and the new steps are drawn by the schedule's seed.
    """
    rng = random.Random(f"sites {run.seed}")
    names = "ABCDE"[: rng.choice((3, 3, 4, 5))]
    sites = {site: [f"{site.lower()}{n}" for n in range(1, 3 if rng.random() < 0.3 else 2)] for site in names}
    script = list(run.script)
    for _ in range(rng.choice((0, 1, 1, 2))):
        name = rng.choice(("cut a link for good", "cut a link for good", "end a site"))
        script.insert(rng.randint(0, len(script)), (rng.randint(0, 1_500), name, rng.getrandbits(16)))
    shape, lease_ms = rng.choice(SHAPES), rng.choice(LEASES_MS)
    return replace(run, sites=sites, shape=shape, link_lease_ms=lease_ms, script=script)


def _with_steps(
    run: Schedule, rng: random.Random, most: int, name: Callable[[], str], *, longest_ms: int = 1_500
) -> Schedule:
    """Return the same run with one to `most` steps more, anywhere, each after a wait of up to `longest_ms`."""
    script = list(run.script)
    for _ in range(rng.randint(1, most)):
        step = (rng.randint(0, longest_ms), name(), rng.getrandbits(16))
        script.insert(rng.randint(0, len(script)), step)
    return replace(run, script=script)


def _with_aimed_steps(run: Schedule, rng: random.Random, most: int, step: Callable[[], Step]) -> Schedule:
    """Return the same run with one to `most` steps more, anywhere; a third of them wait until a proxy is in a certain
    phase.
    """
    script = list(run.script)
    for _ in range(rng.randint(1, most)):
        place = rng.randint(0, len(script))
        waiting: list[Step] = [(0, WAIT, rng.randrange(len(PHASES)))] if rng.random() < 1 / 3 else []
        script[place:place] = [*waiting, step()]
    return replace(run, script=script)


def with_operators(run: Schedule) -> Schedule:
    """Return a copy of a schedule with new steps, drawn by its seed: operators remove links and add others."""
    rng = random.Random(f"operators {run.seed}")
    return _with_steps(run, rng, 4, lambda: rng.choice(("remove a link", "add a link")))


def with_leaves(run: Schedule) -> Schedule:
    """Return a copy of a schedule with new steps, drawn by its seed: operators say which sites pass nothing on."""
    rng = random.Random(f"leaves {run.seed}")
    return _with_steps(run, rng, 3, lambda: "make a site a leaf")


def with_roaming(run: Schedule) -> Schedule:
    """Return a copy of a schedule whose receivers roam: they go to the nearest proxy.

    New steps, drawn by the schedule's seed, bring receivers nearer to other proxies.
    """
    rng = random.Random(f"roaming {run.seed}")
    return replace(_with_steps(run, rng, 5, lambda: "come nearer"), roams=True)


def with_receivers_ahead(run: Schedule) -> Schedule:
    """Return a copy of a schedule with new steps, drawn by its seed: receivers attach with a state beyond all logs."""
    rng = random.Random(f"ahead {run.seed}")
    return _with_steps(run, rng, 2, lambda: "come with a state beyond the logs")


def with_drains(run: Schedule) -> Schedule:
    """Return a copy of a schedule with new steps, drawn by its seed: operators drain proxies, and end drains.

    Some of them do so just when a proxy is in a certain phase.
    """
    rng = random.Random(f"drains {run.seed}")

    def step() -> Step:
        name = "drain a proxy" if rng.random() < 2 / 3 else "end a drain"
        return rng.randint(0, 1_500), name, rng.getrandbits(16)

    return _with_aimed_steps(run, rng, 4, step)


def with_power_cuts(run: Schedule) -> Schedule:
    """Return a copy of a schedule with new steps, drawn by its seed: something is published at a site, whose power
    fails soon after that, and again once it is back.
    """
    rng = random.Random(f"power cuts {run.seed}")
    script, proxies = list(run.script), [proxy for names in run.sites.values() for proxy in names]

    def pick(index: int, count: int) -> int:
        return index + count * rng.randrange(2**16 // count)

    def publish(site: str) -> list[Step]:
        indexes = [index for index, proxy in enumerate(proxies) if proxy in run.sites[site]]
        return [
            (rng.randint(0, 60), "publish a burst", pick(rng.choice(indexes), len(proxies)))
            for _ in range(rng.randint(1, 3))
        ]

    for _ in range(rng.randint(1, 2)):
        place, index = rng.randint(0, len(script)), rng.randrange(len(run.sites))
        site = list(run.sites)[index]
        cut = (rng.randint(10, 200), "cut the power of a site", pick(index, len(run.sites)))
        script[place:place] = [*publish(site), cut, *publish(site)]
    return replace(run, script=script)


def with_lost_states(run: Schedule) -> Schedule:
    """Return a copy of a schedule with new steps, drawn by its seed: receivers lose their delivery state."""
    rng = random.Random(f"lost states {run.seed}")
    return _with_steps(run, rng, 3, lambda: "lose the state of a client")


def with_bursts(run: Schedule) -> Schedule:
    """Return a copy of a schedule with new steps, drawn by its seed: producers publish bursts."""
    rng = random.Random(f"bursts {run.seed}")
    return _with_steps(run, rng, 5, lambda: "publish a burst", longest_ms=100)


def with_forgotten_sites(run: Schedule) -> Schedule:
    """Return a copy of a schedule with new steps, drawn by its seed: a site ends for good, and operators forget it.

    Often a disk is lost soon after that: what it had must be elsewhere by then.
    """
    rng = random.Random(f"forgotten sites {run.seed}")
    script = list(run.script)
    place = rng.randint(0, len(script))
    script.insert(place, (rng.randint(0, 500), "end a site", rng.getrandbits(16)))
    for _ in range(rng.randint(1, 3)):
        step = (rng.randint(0, 3_000), "forget a site", rng.getrandbits(16))
        script.insert(rng.randint(place + 1, len(script)), step)
    if rng.random() < 0.5:
        script += [(rng.randint(0, 7_000), "crash and lose the disk", rng.getrandbits(16)) for _ in range(2)]
    return replace(run, script=script)


def with_covering(run: Schedule) -> Schedule:
    """Return a copy of a schedule whose expressions cover each other, in an order drawn by its seed."""
    return replace(run, expressions=tuple(random.Random(f"expressions {run.seed}").sample(COVERING, len(COVERING))))


def with_retention(run: Schedule) -> Schedule:
    """Return a copy of a schedule with new steps, drawn by its seed: logs lose their beginning to retention.

    The steps that slow a journal down are left out.
    """
    rng = random.Random(f"retention {run.seed}")
    script = [step for step in run.script if step[1] != "slow the journal"]
    return _with_steps(replace(run, script=script), rng, 4, lambda: "forget the beginning", longest_ms=100)


def with_orderly_ends(run: Schedule) -> Schedule:
    """Return a copy of a schedule with new steps, drawn by its seed: processes are told to end.

    Some of them are told just when a proxy is in a certain phase.
    """
    rng = random.Random(f"orderly ends {run.seed}")
    return _with_aimed_steps(run, rng, 3, lambda: (rng.randint(0, 300), "shut down", rng.getrandbits(16)))


def with_restored_registry(run: Schedule) -> Schedule:
    """Return a copy of a schedule with new steps, drawn by its seed: the registry is put back to an earlier copy."""
    rng = random.Random(f"restored registry {run.seed}")
    script = list(run.script)
    for _ in range(rng.randint(1, 2)):
        first, last = sorted(rng.randint(0, len(script)) for _ in range(2))
        script.insert(last, (rng.randint(0, 400), "put the registry back", 0))
        if not _has(rng):
            # Else to an earlier one, or to how it was before there was a session.
            script.insert(first, (rng.randint(0, 100), "copy the registry", 0))
    return replace(run, script=script)


def with_damage(run: Schedule) -> Schedule:
    """Return a copy of a schedule with new steps, drawn by its seed: logs and stores are damaged.

    After most of these steps a proxy crashes, so that it reads its log again from an earlier place.
    """
    rng = random.Random(f"damage {run.seed}")
    script = list(run.script)
    for _ in range(rng.randint(1, 3)):
        place, name = rng.randint(0, len(script)), "damage a store" if rng.random() < 0.2 else "damage a log"
        script[place:place] = [(rng.randint(0, 400), name, rng.getrandbits(16)) for _ in range(rng.randint(1, 2))]
        if rng.random() < 0.8:
            again = rng.choice(["crash and lose the disk", "crash"])
            script.insert(rng.randint(place, len(script)), (rng.randint(0, 400), again, rng.getrandbits(16)))
    return replace(run, script=script)
