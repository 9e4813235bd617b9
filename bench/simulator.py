"""Simulated schedules a second on one core. Goal: 100."""

from __future__ import annotations

from bench.measurement import Row
from chaos.simulator.runs.batch import play

REPEATS = 3
SEEDS = 300


def run() -> list[Row]:
    """Play SEEDS schedules, REPEATS times; return the row of schedules a second of processor time."""
    summaries = [play(range(SEEDS * repeat, SEEDS * (repeat + 1))) for repeat in range(REPEATS)]
    rates = tuple(result.schedules / result.cpu_s for result in summaries)
    return [Row("simulated schedules", "a second and core", rates, ">= 100")]
