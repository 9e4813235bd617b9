"""The results of mobility experiments: a table, a file of CSV, plots over what was varied."""

from __future__ import annotations

import csv
import gc
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from chaos.experiments.mobility import Mobility, Outcome, measure
from chaos.experiments.plots import write_lines
from waypost.errors import BadArgument

VARIED = {"speed": "speed_mps", "nodes": "nodes", "range": "range_m", "failures": "failures_a_minute"}
"""What may be varied -> the parameter."""
LEAST = {"speed": 0, "nodes": 2, "range": 1, "failures": 0}
"""The least value of each."""
UNITS = {
    "speed": "speed of nodes, m/s",
    "nodes": "nodes in the square",
    "range": "range of the radio, m",
    "failures": "failures of a link a minute",
    "": "run",
}


@dataclass(frozen=True, slots=True)
class Variation:
    """Runs that differ in one parameter, or one run.

    Args:
        name: of the parameter, one of VARIED; "": there is one run.
        at: its values, ascending.
        runs: one for each of them.
    """

    name: str
    at: Sequence[float]
    runs: Sequence[Mobility]


def varied(mobility: Mobility, over: str | None) -> Variation:
    """Return the runs that are asked for, by ascending values; equal values give one run.

    Args:
        mobility: the parameters that all have.
        over: ``NAME=VALUE,VALUE,...``, with a NAME of VARIED; None: there is one run. A number of nodes is cut to a
            whole one.

    Raises:
        BadArgument: `over` is not written so, there is no such parameter, a value is negative, or there are more
            subscribers than nodes.
        ValueError: a number of nodes is ``nan``.
        OverflowError: a number of nodes is ``inf``.
    """
    name, at, runs = "", [0.0], [mobility]
    if over is not None:
        name, _, values = over.partition("=")
        try:
            at = sorted({float(value) for value in values.split(",")})
        except ValueError:
            at = []
        hint = "write, for example, speed=2,5,10"
        if name not in VARIED or not at:
            raise BadArgument(f"{over!r} names nothing that can be varied", field="over", hint=hint)
        if not all(math.isfinite(value) and value >= LEAST[name] for value in at):
            raise BadArgument(f"{over!r}: a value of {name} is {LEAST[name]} or more", field="over", hint=hint)
        if name == "nodes" and not all(value.is_integer() for value in at):
            raise BadArgument(f"{over!r}: nodes are counted", field="over", hint=hint)
        runs = [
            replace(mobility, nodes=int(value)) if name == "nodes" else replace(mobility, **{VARIED[name]: value})  # type: ignore[arg-type]
            for value in at
        ]
    fewest = min(run.nodes for run in runs)
    if fewest < mobility.subscribers:
        raise BadArgument(f"{mobility.subscribers} subscribers at {fewest} nodes; say fewer", field="subscribers")
    return Variation(name, at, runs)


def report(variation: Variation, folder: Path | None, *, as_json: bool) -> None:
    """Play the runs, one after the other, and print what came of them; progress goes to stderr.

    Args:
        variation: the runs.
        folder: for mobility.csv and, of more than one run, the plots (SVG), in place of earlier ones; made if it is not
            there; None: none are written.
        as_json: print one JSON document in place of the table.

    Raises:
        OSError: a file cannot be written; nothing is printed on stdout then.
    """
    outcomes = []
    for run in variation.runs:
        print(f"{run.nodes} nodes, {run.speed_mps:g} m/s, {run.failures_a_minute:g} failures a minute", file=sys.stderr)
        outcomes.append(_measured(run))
    rows = [_row(run, outcome) for run, outcome in zip(variation.runs, outcomes, strict=True)]
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        _write_table(folder / "mobility.csv", rows)
        if len(rows) > 1:
            _write_plots(folder, variation, rows)
    if as_json:
        print(json.dumps({"runs": rows}))
    else:
        _print(rows)


def _measured(run: Mobility) -> Outcome:
    # A look for garbage among the objects of hundreds of sites takes seconds, and finds none.
    gc.disable()
    try:
        return measure(run)
    finally:
        gc.enable()
        gc.collect()


def _row(run: Mobility, outcome: Outcome) -> dict[str, float]:
    delivered = max(1, len(outcome.latencies_ms))
    return {
        **{name: value for name, value in asdict(run).items() if name != "seed"},
        "seed": run.seed,
        "published": outcome.published,
        "owed": outcome.owed,
        "plain_ratio": round(outcome.plain / max(1, outcome.owed), 4),
        "ratio_while_moving": round(outcome.moving / max(1, outcome.owed), 4),
        "ratio_once_connected": round(outcome.delivered / max(1, outcome.connected), 4),
        "connected_share": round(outcome.connected / max(1, outcome.owed), 4),
        "repeated": outcome.repeated,
        "violations": len(outcome.violations),
        "latency_p50_ms": outcome.latency_ms(0.5),
        "latency_p90_ms": outcome.latency_ms(0.9),
        "latency_max_ms": outcome.latency_ms(1),
        "links_broken": outcome.breaks,
        "trees": outcome.trees,
        "plain_hops_per_delivery": round(outcome.plain_hops / max(1, outcome.plain), 2),
        "messages_per_delivery": round(sum(outcome.messages.values()) / delivered, 2),
        "bytes_per_delivery": round(outcome.message_bytes / delivered),
    }


def _write_table(path: Path, rows: Sequence[dict[str, float]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _write_plots(folder: Path, variation: Variation, rows: Sequence[dict[str, float]]) -> None:
    parameter = UNITS[variation.name]
    for name, title, unit, lines in (
        (
            "delivery",
            "Notifications delivered",
            "share of those owed",
            {
                "the dispatching tree alone": "plain_ratio",
                "with catch-up, while nodes move": "ratio_while_moving",
                "with catch-up, once connected": "ratio_once_connected",
            },
        ),
        (
            "overhead",
            "Messages for a delivered notification",
            "messages of links",
            {"the dispatching tree alone": "plain_hops_per_delivery", "with catch-up": "messages_per_delivery"},
        ),
        ("latency", "Time to delivery", "ms", {"median": "latency_p50_ms", "90 of 100": "latency_p90_ms"}),
    ):
        series = {label: [row[column] for row in rows] for label, column in lines.items()}
        write_lines(folder / f"{name}.svg", title, parameter, variation.at, series, unit=unit)


def _print(rows: Sequence[dict[str, float]]) -> None:
    for column in rows[0]:
        cells = [f"{row[column]:,}" for row in rows]
        print(f"{column.replace('_', ' '):26}" + "".join(f"{cell:>12}" for cell in cells))
