"""A schedule: everything that decides a run of a world, as plain data. It is played, shrunk, written down and read.

A script is a list of (wait before the step in milliseconds, action, number). The number picks the target of the action,
so that a script with steps left out still means the same as far as it can. Schedules are drawn from seeds in
chaos/simulator/runs/generator.py; one that is kept in a file does not depend on how that is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from chaos.simulator.checks.phases import meetings
from chaos.simulator.environment.environment import ROAMING
from chaos.simulator.environment.secrets import ANNOUNCED_SECRETS, OPEN
from chaos.simulator.kernel.kernel import Faults
from chaos.simulator.kernel.recorder import STEPS
from chaos.simulator.runs.actions import ACTIONS, EXPRESSIONS, PUBLISHES, publish
from chaos.simulator.verdict import heal
from chaos.simulator.world import Shape, World
from waypost.client.options import AttachOptions
from waypost.limits import LINK_LEASE_MS
from waypost.messages import Credential
from waypost.queue import Order, Queue
from waypost.reliability import BEST_EFFORT_EVENTS

Step = tuple[int, str, int]
KEPT = Path(__file__).parents[2] / "schedules"
"""The folder of schedules that once went wrong."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Schedule:
    """The shape of a world, its faults, its clients, and the script.

    Args:
        seed: of delays, losses and all other random events while it is played.
        sites: site -> its proxies.
        shape: the links between them.
        link_lease_ms: the time after which a link that has failed is given up.
        faults: their probabilities while the script is played.
        window: the notifications that a receiver lets be under way.
        receivers: of the session, 1 or 2.
        small: whether bounds of copies and of memory are so small that they are reached.
        policy: retention of the first subscription: `ttl_s` and `max_count`; None: no bound.
        keyed: whether some notifications are published with keys.
        best_effort: of each receiver, whether it asks for best effort for its events.
        queue: the bounds of the session's queue; None: there are none.
        order: the order in which the first receiver gets waiting notifications.
        poll_interval_ms: the time that the first receiver spends on each notification; 0: it takes all at once.
        expressions: that subscriptions have; the first one is that of the first subscription.
        roams: whether receivers go to the nearest proxy, and on to a nearer one.
        script: the steps.
    """

    seed: int
    sites: dict[str, list[str]]
    shape: Shape = "mesh"
    link_lease_ms: int = LINK_LEASE_MS
    faults: Faults = Faults()  # noqa: RUF009 - replaced as a whole, never changed
    window: int = 4000
    receivers: int = 1
    small: bool = False
    policy: tuple[int | None, int | None] = (None, None)
    keyed: bool = False
    best_effort: tuple[bool, bool] = (False, False)
    queue: Queue | None = None
    order: Order = "any"
    poll_interval_ms: int = 0
    expressions: tuple[str, ...] = EXPRESSIONS
    roams: bool = False
    script: list[Step]

    @property
    def features(self) -> frozenset[str]:
        """The names of the features, of FEATURES, that this schedule has; empty: it is plain."""
        return frozenset(name for name, has in FEATURES.items() if has(self))

    def world(self, *, recorded: bool = False) -> World:
        """Return a new world with this schedule's sites, in which nothing was played yet.

        Args:
            recorded: whether the world has a recording, for a picture.
        """
        world = World(
            self.sites,
            self.seed,
            shape=self.shape,
            link_lease_ms=self.link_lease_ms,
            small=self.small,
            recorded=recorded,
        )
        world.expressions = self.expressions
        world.roaming = ROAMING if self.roams else None
        return world

    def play(self, script: list[Step] | None = None, world: World | None = None) -> tuple[World, list[str]]:
        """Play the schedule, end all faults, and return the world at its end, and the violations of the verdict.

        The first receiver attaches at a proxy named a1, which the schedule must have.

        Args:
            script: steps to play in place of its own; None: its own.
            world: at its beginning, as :meth:`world` returns it; None: a new one.

        Raises:
            KeyError: a step's action is in neither ACTIONS nor PUBLISHES, or there is no proxy a1.
            Exception: a fault of the engine.
        """
        world = world or self.world()
        world.run(300)
        world.registry_copy = world.registry.copy()
        levels = [BEST_EFFORT_EVENTS if is_best_effort else None for is_best_effort in self.best_effort]
        options = AttachOptions(window=self.window, reliability=levels[0], queue=self.queue, order=self.order)
        client = world.client("c", "s", "a1", options)
        if self.receivers > 1:
            last, eve = list(world.nodes)[-1], Credential("eve")
            world.client("d", "s", last, AttachOptions(window=self.window, reliability=levels[1]), credential=eve)
        for name in world.nodes:
            world.client(f"p-{name}", None, name)
        if self.keyed:
            for name in world.nodes:
                world.clients[f"p-{name}"].protocol.quench(["n"], [], insecure=True)
        client.poll_interval_ms = self.poll_interval_ms
        client.subscribe("x0", self.expressions[0], *self.policy)
        world.run(300)
        world.faults = self.faults
        number, features = 0, self.features
        for wait, name, pick in self.script if script is None else script:
            world.run(wait)
            count = PUBLISHES.get(name, 0)
            first, number = number + 1, number + count
            world.note(f"--- {name} {pick}", by=STEPS)
            world.met.update(meetings(world, features, name))
            if count:
                secrets = ANNOUNCED_SECRETS[number % len(ANNOUNCED_SECRETS)] if self.keyed else OPEN
                publish(world, pick, first, secrets, count)
            else:
                ACTIONS[name](world, client, pick, number)
        world.run(1_000)
        return world, heal(world)


FEATURES: dict[str, Callable[[Schedule], bool]] = {
    "two receivers": lambda run: run.receivers > 1,
    "small bounds": lambda run: run.small,
    "policy": lambda run: run.policy != (None, None),
    "keys": lambda run: run.keyed,
    "best effort": lambda run: any(run.best_effort),
    "queue": lambda run: run.queue is not None,
    "priority": lambda run: run.order != "any",
    "one at a time": lambda run: run.poll_interval_ms > 0,
    "covering expressions": lambda run: run.expressions != EXPRESSIONS,
    "roaming": lambda run: run.roams,
    "small window": lambda run: run.window < 10,
    "two sites": lambda run: len(run.sites) == 2,
    "three or more sites": lambda run: len(run.sites) > 2,
    "a circle of links": lambda run: len(run.sites) > 2 and run.shape in ("ring", "mesh"),
}
"""Name of a feature -> whether a schedule has it."""


def violations_of(run: Schedule) -> list[str]:
    """Play a schedule; return its violations, the kind of each as its first word. A fault of the engine is a FAULT."""
    try:
        return run.play()[1]
    except Exception as fault:
        return [f"FAULT {type(fault).__name__}: {fault}"]


def shrink(run: Schedule, kind: str) -> Schedule:
    """Return a smaller schedule, of fewer steps, faults and features, that has a violation of the same kind too.

    The result is `run` itself if nothing can be left out. Many schedules are played for it.

    Args:
        run: has a violation of this kind.
        kind: the first word of the violation, such as LOST.
    """
    run = _shrink_script(run, kind)
    for name in Faults.__dataclass_fields__:
        run = _simpler(run, replace(run, faults=replace(run.faults, **{name: 0})), kind)
    for change in _SIMPLER:
        run = _simpler(run, replace(run, **change), kind)
    return _shrink_script(run, kind)


_SIMPLER: tuple[dict[str, Any], ...] = (
    {"receivers": 1},
    {"small": False},
    {"policy": (None, None)},
    {"keyed": False},
    {"best_effort": (False, False)},
    {"queue": None},
    {"order": "any"},
    {"poll_interval_ms": 0},
    {"expressions": EXPRESSIONS},
    {"window": 4000},
)
"""Values of a plain schedule, beside its faults and its steps."""


def _simpler(run: Schedule, simpler: Schedule, kind: str) -> Schedule:
    """Return the simpler schedule, if that still has a violation of this kind."""
    return simpler if simpler != run and _violates(simpler, kind) else run


def _violates(run: Schedule, kind: str) -> bool:
    return any(violation.startswith(kind) for violation in violations_of(run))


def _shrink_script(run: Schedule, kind: str) -> Schedule:
    size = len(run.script) // 2
    while size:
        begin = 0
        while begin < len(run.script):
            shorter = replace(run, script=run.script[:begin] + run.script[begin + size :])
            if _violates(shorter, kind):
                run = shorter
            else:
                begin += size
        size //= 2
    return run


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that once went wrong, in a file of :data:`KEPT`.

    Args:
        cause: the fault, in words.
        kinds: the kinds of its violations, such as LOST.
        seeds: other seeds with which the same script went wrong then.
        schedule: shrunk.
    """

    cause: str
    kinds: list[str]
    seeds: list[int]
    schedule: Schedule

    def write(self, path: Path) -> None:
        """Write this kept schedule to a file, as indented JSON, in place of what is there. Raises OSError."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")

    @classmethod
    def read(cls, path: Path) -> Kept:
        """Return the kept schedule of a file.

        Raises:
            OSError: the file cannot be read.
            msgspec.DecodeError: the file is no JSON; its subclass msgspec.ValidationError: it is no kept schedule.
        """
        return msgspec.json.decode(path.read_bytes(), type=cls)
