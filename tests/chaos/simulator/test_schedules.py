"""Seeded random worlds: whatever breaks, after healing nothing is lost, repeated, double-owned or stuck."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cache
from typing import get_args

import pytest

from chaos.simulator.processes.effect_runner import EffectRunner
from chaos.simulator.runs.actions import KEEP
from chaos.simulator.runs.generator import draw, with_damage, with_retention
from chaos.simulator.runs.schedule import KEPT, Kept, Schedule, shrink, violations_of
from chaos.simulator.verdict import verdict
from proxy.core import effects
from waypost.facts import GapCause
from waypost.identity import Coordinate, Incarnation, NotificationId, SessionId

SEEDS = range(400)
"""CI plays those that follow, by `make sim`."""
STEP = 20
LOOKED_AT = range(160)
"""Seeds of which other tests look at more than the verdict."""

KEPT_FILES = sorted(path.stem for path in KEPT.glob("*.json") if Kept.read(path).cause)


FAULTS = (
    "  lost Prepare",
    "crashes and loses its disk",
    "has no answer from the registry",
    "the disk cannot be read",
    "leaves for good",
)
"""What must come about, as it is told."""
Given = tuple[NotificationId, Coordinate, int]


@dataclass(frozen=True)
class Played:
    """What tests look at in the world of one seed."""

    causes: set[str]
    reused_names: bool
    lacks_facts: bool
    delivered: int
    faults: set[str]
    trace_hash: str


@cache
def played(seed: int) -> tuple[Played, list[str]]:
    """Play one seed; return what is looked at, and what went wrong."""
    world, wrong = draw(seed).play()
    narrative = "\n".join(world.trace)
    found = Played(
        causes={fact.cause for fact in world.facts if fact.kind == "owned"},
        reused_names=bool(world.reused_names),
        lacks_facts=len(world.journal) < len(world.facts),
        delivered=len(world.clients["c"].delivered),
        faults={fault for fault in FAULTS if fault in narrative},
        trace_hash=world.hash(),
    )
    return found, wrong


def check(seed: int) -> None:
    """Play one seed; fail with what went wrong, and the shrunk script that makes it so."""
    _, wrong = played(seed)
    if wrong:
        run = shrink(draw(seed), wrong[0].split()[0])
        world, wrong = run.play()
        narrative = "\n".join([*world.trace[-150:], *wrong])
        pytest.fail(f"seed {seed}, shrunk to {run}:\n{narrative}", pytrace=False)


@pytest.mark.parametrize("first", SEEDS[::STEP])
def test_a_random_schedule_breaks_no_promise(first: int) -> None:
    for seed in SEEDS[first : first + STEP]:
        check(seed)


@pytest.mark.parametrize("first", [0, 100])
def test_receivers_get_a_gap_for_records_removed_by_retention(first: int) -> None:
    gaps = 0
    for seed in range(first, first + 100):
        world, wrong = with_retention(draw(seed)).play()
        assert wrong == [], f"seed {seed} with retention"
        gaps += sum(len(client.gaps) for client in world.clients.values())
    assert gaps > 0


@pytest.mark.parametrize("first", [0, 100])
def test_damaged_records_are_not_delivered_and_receivers_get_a_gap(first: int) -> None:
    gaps = repairs = 0
    for seed in range(first, first + 100):
        world, wrong = with_damage(draw(seed)).play()
        assert wrong == [], f"seed {seed} with damage"
        gaps += sum(fact.cause == GapCause.DAMAGE for fact in world.journal)
        repairs += sum("Repaired" in line for line in world.trace)
    assert gaps > 0
    assert repairs > 0


@pytest.mark.parametrize("name", KEPT_FILES)
def test_a_schedule_that_once_went_wrong_does_so_no_more(name: str) -> None:
    kept = Kept.read(KEPT / f"{name}.json")
    runs = [kept.schedule, *(replace(kept.schedule, seed=seed) for seed in kept.seeds)]
    assert {run.seed: wrong for run in runs if (wrong := violations_of(run))} == {}, kept.cause


def test_random_schedules_have_the_faults_that_they_are_made_of() -> None:
    worlds = [played(seed)[0] for seed in LOOKED_AT]
    assert {"create", "handover", "failover", "restart"} <= set().union(*(world.causes for world in worlds))
    assert any(world.reused_names for world in worlds)
    assert any(world.lacks_facts for world in worlds)
    assert sum(world.delivered for world in worlds) > 200
    assert set(FAULTS) == set().union(*(world.faults for world in worlds))


def keeps_all(run: Schedule) -> bool:
    """Nothing is removed, deleted or refused in this run: what is missing at its end is lost."""
    excuses = {"delete", "subscribe for a while", "change the access", "unsubscribe"}
    return run.policy == KEEP and not excuses & {name for _, name, _ in run.script}


def test_verdict_finds_a_violation_planted_into_a_correct_world() -> None:
    runs = (draw(seed) for seed in range(200))
    world, wrong = next(run for run in runs if keeps_all(run) and len(run.script) > 30).play()
    client = world.clients["c"]
    given = list(client.delivered)
    assert wrong == [] and len(given) > 2

    def words(*entries: Given) -> set[str]:
        client.delivered[:] = entries
        return {violation.split()[0] for violation in verdict(world)}

    identity, (origin, _), _ = given[0]
    assert words(*given[1:]) == {"LOST"}
    assert words(*given, (identity, Coordinate(origin, 1 << 40), given[0][2])) >= {"TWICE"}
    assert words(*reversed([item for item in given if item[1].origin == origin])) >= {"ORDER"}
    stranger = NotificationId("p", Incarnation("i"), 1 << 40)
    assert words(*given, (stranger, Coordinate(origin, 1 << 40), -1)) == {"PHANTOM"}
    assert words(*given) == set()
    client.wire = None
    client.protocol.disconnected()
    assert words(*given) == {"STUCK"}
    del world.registry.owners[SessionId("s")]
    assert words(*given) == {"STUCK", "SIDES"}


def test_the_same_seed_gives_the_same_trace() -> None:
    assert draw(13).play()[0].hash() == draw(13).play()[0].hash()


def test_another_seed_gives_another_trace() -> None:
    assert draw(13).play()[0].hash() != draw(14).play()[0].hash()


def test_the_same_seed_gives_the_same_trace_in_another_process() -> None:
    """Sets of names have another order there: no decision may hang on it."""
    script = (
        "from chaos.simulator.runs.generator import draw\nprint(*[draw(seed).play()[0].hash() for seed in range(40)])"
    )
    own = os.environ.get("PYTHONHASHSEED")
    other = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": "1" if own == "5" else "5", "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.split() == [played(seed)[0].trace_hash for seed in range(40)]


def test_every_effect_of_an_engine_has_a_performer() -> None:
    assert EffectRunner._performers.keys() == {*get_args(effects.Effect)}
