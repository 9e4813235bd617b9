"""Results of benchmarks: rows of repeated values, printed as median and spread, with the machine."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement.

    Args:
        name: what was measured.
        unit: of the values.
        values: one for each repeat.
        goal: what it should be, in words for the reader.
        note: how it was measured, in words for the reader.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    goal: str = ""
    note: str = ""

    @property
    def median(self) -> float:
        """The median of the repeats."""
        return statistics.median(self.values)

    @property
    def spread(self) -> str:
        """The lowest and the highest repeat, in words."""
        return f"{_number(min(self.values))} .. {_number(max(self.values))}"


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value at a share of the sorted values, its position rounded down: one of the values, not between them.

    Args:
        values: at least one, in any order.
        share: from 0 to 1; 0: the lowest value, 1: the highest one.
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def show(rows: Sequence[Row]) -> str:
    """Return the rows as a plain table."""
    cells = [("what", "median", "spread", "n", "unit", "goal", "note")]
    cells += [
        (row.name, _number(row.median), row.spread, str(len(row.values)), row.unit, row.goal, row.note) for row in rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)


def machine() -> str:
    """Return one line about the machine on which this was measured."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = names[0].partition(":")[2].strip() if names else platform.machine()
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} x {model}, Python {platform.python_version()}, load {load:.1f} at the end"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
