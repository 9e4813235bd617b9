"""Many schedules, on all cores: their violations, and what they covered."""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from chaos.simulator.checks.phases import Met
from chaos.simulator.runs.coverage import coverage
from chaos.simulator.runs.generator import draw

CHUNK = 25


@dataclass(slots=True)
class RunSummary:
    """The results of a range of seeds. `violations`: seed -> its violations; seeds without any are not in it."""

    schedules: int = 0
    violations: dict[int, list[str]] = field(default_factory=dict)
    coverage: Counter[str] = field(default_factory=Counter)
    met: Counter[Met] = field(default_factory=Counter)
    """Triples of feature, action and phase that met, and how often."""
    cpu_s: float = 0.0
    """Processor time of all schedules together."""

    def add(self, other: RunSummary) -> None:
        """Add the results of other seeds to these; `other` is not changed."""
        self.schedules += other.schedules
        self.violations |= other.violations
        self.coverage.update(other.coverage)
        self.met.update(other.met)
        self.cpu_s += other.cpu_s


def play(seeds: range) -> RunSummary:
    """Play the schedules of these seeds, one after the other, and return their summary.

    An error that a schedule raises becomes its violation, of the kind FAULT.
    """
    summary, began = RunSummary(), time.process_time()
    # A world is some thousand objects that live as long as it does: to look for garbage meanwhile finds nothing.
    gc.disable()
    for seed in seeds:
        summary.schedules += 1
        try:
            world, violations = draw(seed).play()
        except Exception as fault:
            summary.violations[seed] = [f"FAULT {type(fault).__name__}: {fault}"]
            continue
        summary.coverage.update(coverage(world))
        summary.met.update(world.met)
        if violations:
            summary.violations[seed] = violations
    gc.enable()
    summary.cpu_s = time.process_time() - began
    return summary


def play_all(seeds: range, workers: int | None = None) -> Iterator[RunSummary]:
    """Play the schedules of these seeds in several processes; yield the summary so far after each part of CHUNK seeds.

    The summary is the same object each time. No seeds: nothing is yielded.

    Args:
        seeds: the seeds to play.
        workers: processes; None: as many as cores.
    """
    parts = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    total = RunSummary()
    with ProcessPoolExecutor(min(workers or os.cpu_count() or 1, max(1, len(parts)))) as pool:
        for summary in pool.map(play, parts):
            total.add(summary)
            yield total
