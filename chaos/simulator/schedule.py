"""A schedule: everything that decides a run of a world, as plain data. It is played, shrunk, written down and read.

A script is a list of (time to the next step in milliseconds, action, number). The number picks what the action is done
to, so that a script with steps left out still means the same as far as it can. Schedules are drawn from seeds in
chaos/simulator/generator.py; one that is kept in a file does not depend on how that is done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from chaos.simulator.actions import ACTIONS, EXPRESSIONS, publish
from chaos.simulator.phases import meetings
from chaos.simulator.recorder import STEPS
from chaos.simulator.secrets import ANNOUNCED_SECRETS, OPEN
from chaos.simulator.verdict import heal
from chaos.simulator.world import Faults, World
from waypost.messages import Credential
from waypost.queue import Order, Queue
from waypost.reliability import BEST_EFFORT_EVENTS

Step = tuple[int, str, int]
KEPT = Path(__file__).parents[1] / "schedules"
"""Files of schedules that once went wrong."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Schedule:
    """The shape of a world, its faults, its clients, and the script.

    Args:
        seed: decides delays, losses and whatever else happens by chance while it is played.
        sites: the proxies of each site.
        window: how many notifications a receiver lets be under way.
        receivers: how many receivers the session has, 1 or 2.
        small: bounds of copies and of memory are so small that they come to bear.
        policy: for how many seconds, and how much of it, the first subscription stores; None: without an end.
        keyed: some is published with keys.
        best_effort: of each receiver, whether its events are of best effort.
        queue: the bounds of what the session stores.
        order: in which order the first receiver is given what waits.
        sip_ms: for how long the first receiver takes one notification; 0: all that there is.
    """

    seed: int
    sites: dict[str, list[str]]
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
    script: list[Step]

    @property
    def features(self) -> frozenset[str]:
        """What it has beside faults, by name."""
        return frozenset(name for name, has in FEATURES.items() if has(self))

    def world(self, *, recorded: bool = False) -> World:
        """Return the world at its beginning; `recorded`: what happens in it is taken down."""
        return World(self.sites, self.seed, small=self.small, recorded=recorded)

    def play(self, script: list[Step] | None = None, world: World | None = None) -> tuple[World, list[str]]:
        """Return the world at its end, and what is wrong with it; it is played in this one, if there is one."""
        world = world or self.world()
        world.run(300)
        world.registry_copy = world.registry.copy()
        levels = [BEST_EFFORT_EVENTS if each else None for each in self.best_effort]
        client = world.client("c", "s", "a1", self.window, reliability=levels[0], queue=self.queue, order=self.order)
        if self.receivers > 1:
            last, eve = list(world.nodes)[-1], Credential("eve")
            world.client("d", "s", last, self.window, credential=eve, reliability=levels[1])
        for name in world.nodes:
            world.client(f"p-{name}", None, name)
        if self.keyed:
            for name in world.nodes:
                world.clients[f"p-{name}"].machine.quench(["n"], [], insecure=True)
        client.poll_interval_ms = self.poll_interval_ms
        client.subscribe("x0", EXPRESSIONS[0], *self.policy)
        world.run(300)
        world.faults = self.faults
        number, features = 0, self.features
        for wait, name, pick in self.script if script is None else script:
            world.run(wait)
            if name == "publish":
                number += 1
            world.note(f"--- {name} {pick}", by=STEPS)
            world.met.update(meetings(world, features, name))
            if name == "publish":
                publish(world, pick, number, ANNOUNCED_SECRETS[number % len(ANNOUNCED_SECRETS)] if self.keyed else OPEN)
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
    "small window": lambda run: run.window < 10,
    "two sites": lambda run: len(run.sites) > 1,
}
"""What a schedule may have, by name."""


def violations_of(run: Schedule) -> list[str]:
    """Play it; return what is wrong. A fault of the engine itself is wrong too."""
    try:
        return run.play()[1]
    except Exception as fault:
        return [f"FAULT {type(fault).__name__}: {fault}"]


def shrink(run: Schedule, kind: str) -> Schedule:
    """Leave out steps, and what else makes a run rich, as long as something of the same kind is wrong (as LOST)."""
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
    {"window": 4000},
)
"""What may be left out of a run beside its faults and its steps."""


def _simpler(run: Schedule, other: Schedule, kind: str) -> Schedule:
    """Return the simpler one, if that still goes wrong."""
    return other if other != run and _violates(other, kind) else run


def _violates(run: Schedule, kind: str) -> bool:
    return any(each.startswith(kind) for each in violations_of(run))


def _shrink_script(run: Schedule, kind: str) -> Schedule:
    size = len(run.script) // 2
    while size:
        place = 0
        while place < len(run.script):
            shorter = replace(run, script=run.script[:place] + run.script[place + size :])
            if _violates(shorter, kind):
                run = shorter
            else:
                place += size
        size //= 2
    return run


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that once went wrong, in a file of :data:`KEPT`.

    Args:
        cause: what the fault was, in words.
        kinds: with which words it was reported, such as LOST.
        seeds: other seeds of chance with which the same script went wrong then, for the kind and not the accident.
        schedule: what was played, shrunk.
    """

    cause: str
    kinds: list[str]
    seeds: list[int]
    schedule: Schedule

    def write(self, path: Path) -> None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")

    @classmethod
    def read(cls, path: Path) -> Kept:
        """Raises msgspec.ValidationError: the file is none of these."""
        return msgspec.json.decode(path.read_bytes(), type=cls)
