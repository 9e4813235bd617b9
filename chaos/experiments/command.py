"""`waypost experiment`: what a federation would be at sizes that nobody has at hand."""

from __future__ import annotations

import gc
import json
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from chaos.experiments.hierarchy import Hierarchy, Measured

experiment = typer.Typer(no_args_is_help=True)


@experiment.callback()
def _commands() -> None:
    """Play a federation of a size that nobody has at hand."""


@experiment.command("hierarchy")
def hierarchy(
    sites: Annotated[int, typer.Option("--sites", min=2, help="Sites in all.")] = 1_000,
    below: Annotated[int, typer.Option("--below", min=1, help="Sites right below each one.")] = 10,
    sessions: Annotated[int, typer.Option("--sessions", min=1, help="Sessions of all sites together.")] = 1_000_000,
    topics: Annotated[int, typer.Option("--topics", min=20, help="Topics that expressions are about.")] = 1_000,
    skew: Annotated[float, typer.Option("--skew", min=0.0, help="The exponent of Zipf's law.")] = 1.0,
    changes: Annotated[int, typer.Option("--changes", min=1, help="Sessions that then want something else.")] = 1_000,
    seed: Annotated[int, typer.Option("--seed", help="Of all that is drawn.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Measure the filters of a hierarchy of sites.

    Once with what a filter covers left out, once with every one requested.

    Example: waypost experiment hierarchy --sites 100 --sessions 100000
    """
    from chaos.experiments.hierarchy import Hierarchy, nothing_covers

    size = Hierarchy(sites=sites, below=below, sessions=sessions, topics=topics, skew=skew, seed=seed)
    found = {
        "covering": _measured(size, changes, nullcontext()),
        "every one requested": _measured(size, changes, nothing_covers()),
    }
    if as_json:
        print(json.dumps({"hierarchy": asdict(size), **{name: asdict(each) for name, each in found.items()}}))
    else:
        _show(found)


def _measured(size: Hierarchy, changes: int, switch: AbstractContextManager[object]) -> Measured:
    from chaos.experiments.hierarchy import measure

    # A look for garbage among the objects of a thousand sites takes seconds, and finds none.
    gc.disable()
    try:
        with switch:
            return measure(size, changes, lambda line: print(line, file=sys.stderr, flush=True))
    finally:
        gc.enable()


def _show(found: dict[str, Measured]) -> None:
    from chaos.experiments.hierarchy import quantiles

    rows: list[tuple[str, list[str]]] = [
        ("distinct expressions", [f"{each.expressions:,}" for each in found.values()]),
        ("filters needed of neighbours, all sites", [f"{each.needed:,}" for each in found.values()]),
        ("filters installed, all sites", [f"{sum(each.installed):,}" for each in found.values()]),
        (
            "the same at a site, median / largest",
            ["{:,} / {:,}".format(*quantiles(each.installed)) for each in found.values()],
        ),
        ("announcements, all links", [f"{each.announcements:,}" for each in found.values()]),
        (
            "pairs with an origin, median / largest",
            ["{:,} / {:,}".format(*quantiles(each.pairs)) for each in found.values()],
        ),
        ("requests until all are in force", [f"{each.requests:,}" for each in found.values()]),
        ("MB of these", [f"{each.request_bytes / 1e6:,.1f}" for each in found.values()]),
        (
            "requests for a change of interest",
            [f"{each.change_requests / each.changes:,.2f}" for each in found.values()],
        ),
        ("bytes of these", [f"{each.change_bytes / each.changes:,.0f}" for each in found.values()]),
        ("hops until a change is in force, at most", [f"{each.rounds:,}" for each in found.values()]),
    ]
    print(f"{'':42}" + "".join(f"{name:>22}" for name in found))
    for name, cells in rows:
        print(f"{name:42}" + "".join(f"{cell:>22}" for cell in cells))


@experiment.command("mobility")
def mobility(
    nodes: Annotated[int, typer.Option("--nodes", min=2, help="Nodes in the square.")] = 200,
    side: Annotated[float, typer.Option("--side", min=1, help="Side of the square, in metres.")] = 2_000,
    reach: Annotated[float, typer.Option("--range", min=1, help="Range of the radio, in metres.")] = 250,
    speed: Annotated[float, typer.Option("--speed", min=0, help="Speed of a node, in metres a second.")] = 2,
    seconds: Annotated[int, typer.Option("--seconds", min=1, help="Time for which nodes move and publish.")] = 20,
    publish_every: Annotated[
        int, typer.Option("--publish-every", min=1, help="Milliseconds between two notifications.")
    ] = 500,
    subscribers: Annotated[int, typer.Option("--subscribers", min=1, help="Nodes with a subscriber.")] = 20,
    failures: Annotated[
        float, typer.Option("--failures", min=0, help="How often a link in range fails, on average, in a minute.")
    ] = 0,
    over: Annotated[
        str | None, typer.Option("--over", help="What to vary, as speed=2,5,10 or nodes=100,200 or failures=0,1,5.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of all that is drawn.")] = 1,
    folder: Annotated[Path | None, typer.Option("--out", help="Folder for a table (CSV) and plots (SVG).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Measure what is delivered among mobile dispatchers. Compares the dispatching tree alone with catch-up.

    Example: waypost experiment mobility --nodes 50 --side 1000 --over speed=2,10 --out mobility
    """
    from chaos.experiments.mobility import Mobility
    from chaos.experiments.mobility_report import report, varied

    mobility = Mobility(
        nodes=nodes,
        side_m=side,
        range_m=reach,
        speed_mps=speed,
        duration_s=seconds,
        publish_every_ms=publish_every,
        subscribers=subscribers,
        failures_a_minute=failures,
        seed=seed,
    )
    report(varied(mobility, over), folder, as_json=as_json)
