"""Mutants: each breaks the real code in one place, for as long as its context lasts. The product has no switches.

A simulator that finds nothing proves nothing as long as nobody knows what it would find.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from chaos.simulator.runs.generator import draw
from chaos.simulator.runs.scenario import SCENARIOS, Scenario
from chaos.simulator.runs.schedule import KEPT, Kept, violations_of
from chaos.simulator.verdict import verdict

Switch = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug that can be put in on purpose.

    Args:
        kinds: the words with which what is wrong begins: the verdict's; FAULT, the engine itself objects; NEVER, a
            scenario does not come to what it waits for.
        seeds: ordinary schedules that catch it. Several, because what a seed means shifts with the world.
        kept: schedules of chaos/schedules that catch it, with one of the seeds named there: they went wrong by it once.
        scenarios: scenarios that catch it, aimed at what is rare in schedules.
        rule: the handover rule that it switches off.
        masked_by: what keeps it from costing anything; nothing catches it as long as that stands.
    """

    name: str
    effect: str
    switch: Switch
    kinds: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    scenarios: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    rule: int | None = None
    masked_by: str = ""


def replaced(owner: Any, name: str, value: object) -> Switch:
    """Return a switch that puts `value` in the place of a function."""
    return lambda: mock.patch.object(owner, name, value)


def rows(table: Mapping[Any, Any], other: Mapping[Any, Any]) -> Switch:
    """Return a switch that puts other rows into a machine's table."""
    return lambda: mock.patch.dict(table, other)


def play(seed: int) -> list[str]:
    """Play one ordinary schedule; return what was wrong."""
    return _played(lambda: draw(seed).play()[1])


def play_kept(name: str) -> list[str]:
    """Play a kept schedule, with all its seeds; return what was wrong."""
    kept = Kept.read(KEPT / f"{name}.json")
    runs = [kept.schedule, *(replace(kept.schedule, seed=seed) for seed in kept.seeds)]
    return [line for run in runs for line in violations_of(run)]


def play_scenario(name: str) -> list[str]:
    """Play one scenario; return what was wrong, and what it did not come to."""

    def narrative() -> list[str]:
        scenario = Scenario()
        lines = scenario.run((SCENARIOS / f"{name}.txt").read_text()).splitlines()
        never = [f"NEVER {line}" for line in lines if line.startswith("it did not come to this")]
        return never + verdict(scenario.world)

    return _played(narrative)


def _played(run: Callable[[], list[str]]) -> list[str]:
    try:
        return run()
    except Exception as fault:
        return [f"FAULT {type(fault).__name__}: {fault}"]


def kinds(violations: list[str]) -> set[str]:
    return {violation.split()[0] for violation in violations}
