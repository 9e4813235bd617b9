"""`waypost sim`: simulated schedules, for people and for scripts."""

from __future__ import annotations

import json
import re
import sys
import time
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waypost.errors import BadArgument, NotFound

if TYPE_CHECKING:
    from chaos.simulator.runs.batch import RunSummary
    from chaos.simulator.runs.schedule import Schedule

# The simulator is imported when it is needed: `waypost --help` lists this command, and must not wait for that.

VIOLATED = 1
SHOWN = 5
NEW_SEEDS = 1_000


def sim(
    seeds: Annotated[
        str | None,
        typer.Option("--seeds", metavar="A..B", help="Seeds from A up to, not with, B; else 1,000 new ones."),
    ] = None,
    scenario: Annotated[
        str | None, typer.Option("--scenario", metavar="NAME", help="Play one scenario instead.")
    ] = None,
    kept: Annotated[
        str | None,
        typer.Option(
            "--kept", metavar="NAME", help="Play one kept schedule instead: a name in chaos/schedules, or a file."
        ),
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Print all that happened. For one seed, kept schedule, or scenario.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Draw one of them as a page: lanes, messages, roles, faults."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="So many seeds that nobody has played before.")
    ] = None,
    never: Annotated[
        bool,
        typer.Option("--never", help="List which features, actions and phases never came together in these schedules."),
    ] = False,
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Processes; as many as cores.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Simulate random schedules of faults on the real engines. Checks that nothing is lost, repeated or stuck.

    One seed is one run, here and everywhere: a failing one is shrunk, and told with the command that repeats it.

    Example: waypost sim --seeds 0..2000
    """
    if as_json and (scenario or kept or trace or html is not None):
        raise BadArgument(
            "a scenario, a kept schedule, a trace and a picture are for people; leave --json out", field="json"
        )
    if (scenario or kept) and (seeds or count):
        raise BadArgument("a scenario or a kept schedule is no seed; leave --seeds and --count out", field="seeds")
    if scenario and kept:
        raise BadArgument("one of --scenario and --kept", field="kept")
    if html is not None and trace:
        raise BadArgument("a picture has all that a trace has; leave --trace out", field="html")
    if scenario:
        raise typer.Exit(_scenario(scenario, trace=trace, html=html))
    if kept:
        raise typer.Exit(_one(_kept(kept), f"kept schedule {kept}", trace=trace, html=html))
    if seeds and count:
        raise BadArgument("seeds that are named are as many as they are; leave --count or --seeds out", field="count")
    wanted = _range(seeds) if seeds else new_seeds(count or NEW_SEEDS)
    if trace and len(wanted) != 1:
        raise BadArgument("a trace is of one seed, such as 7..8", field="seeds")
    if html is not None and len(wanted) != 1:
        raise BadArgument("a picture is of one seed, such as 7..8", field="html")
    if trace or html is not None:
        raise typer.Exit(_seed(wanted[0], trace=trace, html=html))
    raise typer.Exit(_many(wanted, workers, as_json=as_json, never=never))


def new_seeds(count: int) -> range:
    """Return `count` seeds in a row, from the present time in ms on: hardly one of them was ever played before."""
    first = time.time_ns() // 1_000_000
    return range(first, first + count)


def _range(text: str) -> range:
    found = re.fullmatch(r"(\d+)\.\.(\d+)", text)
    if found is None or int(found[1]) >= int(found[2]):
        raise BadArgument(f"{text!r} is no range of seeds; write 0..2000, or 7..8 for one", field="seeds")
    return range(int(found[1]), int(found[2]))


def _scenario(name: str, *, trace: bool, html: Path | None) -> int:
    from chaos.simulator.runs.scenario import SCENARIOS, Scenario

    path = SCENARIOS / f"{name}.txt"
    if not path.exists():
        names = sorted(file.stem for file in SCENARIOS.glob("*.txt"))
        close = get_close_matches(name, names, 3, 0.3)
        raise NotFound(
            f"there is no scenario {name}" + (f"; did you mean {' or '.join(close)}?" if close else ""),
            field="scenario",
            hint="" if close else f"there are {len(names)}, such as {', '.join(names[:SHOWN])}",
        )
    scenario = Scenario(recorded=html is not None)
    lines = scenario.run(path.read_text(encoding="utf-8"))
    if html is not None:
        from chaos.simulator.trace_viewer import page
        from chaos.simulator.verdict import verdict

        recording, violations = scenario.world.recording, verdict(scenario.world)
        assert recording is not None
        script = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
        _write(html, page(f"scenario {name}", recording, violations, script))
        print(f"picture: {html}")
        return VIOLATED if violations else 0
    print("\n".join(scenario.world.trace) if trace else lines)
    return 0 if lines == path.read_text(encoding="utf-8") and "all is well" in lines else VIOLATED


def _kept(name: str) -> Schedule:
    """Return a kept schedule, by its name or its file."""
    import msgspec

    from chaos.simulator.runs.schedule import KEPT, Kept

    path = Path(name) if name.endswith(".json") else KEPT / f"{name}.json"
    try:
        return Kept.read(path).schedule
    except OSError:
        names = sorted(file.stem for file in KEPT.glob("*.json"))
        close = get_close_matches(name, names, 3, 0.3)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are {len(names)}, such as {names[0]}"
        raise NotFound(f"there is no kept schedule {name}", field="kept", hint=hint) from None
    except msgspec.DecodeError as error:
        raise BadArgument(f"{path} is no kept schedule: {error}", field="kept") from None


def _seed(seed: int, *, trace: bool, html: Path | None) -> int:
    """Trace or draw a seed; one that goes wrong is shrunk before it is drawn."""
    from chaos.simulator.runs.generator import draw
    from chaos.simulator.runs.schedule import shrink, violations_of

    run = draw(seed)
    if html is not None and (violations := violations_of(run)):
        run = shrink(run, violations[0].split()[0])
    return _one(run, f"seed {seed}", trace=trace, html=html)


def _one(run: Schedule, title: str, *, trace: bool, html: Path | None) -> int:
    """Play one schedule: print its violations, or all that happened, or draw it."""
    from chaos.simulator.trace_viewer import drawn

    if html is not None:
        text, violations = drawn(run, title)
        _write(html, text)
        print("\n".join([*(violations or ["all is well"]), f"picture: {html}"]))
        return VIOLATED if violations else 0
    world, violations = run.play()
    lines = [*world.trace, *(violations or ["all is well"]), f"trace {world.hash()}"] if trace else violations
    print("\n".join(lines or ["all is well"]))
    return VIOLATED if violations else 0


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadArgument(f"{path} cannot be written: {error.strerror}", field="html") from None


def _many(seeds: range, workers: int | None, *, as_json: bool, never: bool) -> int:
    from chaos.simulator.checks.phases import never as never_met
    from chaos.simulator.runs.actions import AIMED
    from chaos.simulator.runs.batch import RunSummary, play_all
    from chaos.simulator.runs.coverage import KINDS
    from chaos.simulator.runs.schedule import FEATURES

    summary = RunSummary()
    for summary in play_all(seeds, workers):
        if not as_json and sys.stderr.isatty():
            print(
                f"\r{summary.schedules:,} of {len(seeds):,}, {len(summary.violations)} wrong", end="", file=sys.stderr
            )
    rate = summary.schedules / summary.cpu_s
    if as_json:
        counts = {
            "seeds": [seeds.start, seeds.stop],
            "schedules": summary.schedules,
            "per_core_s": round(rate),
            "coverage": summary.coverage,
        }
        print(json.dumps({"v": 1, **counts, "wrong": summary.violations}))
        return VIOLATED if summary.violations else 0
    if sys.stderr.isatty():
        print(file=sys.stderr)
    for seed in list(summary.violations)[:SHOWN]:
        _explain(seed, summary)
    missing = never_met(summary.met, tuple(FEATURES), tuple(sorted(AIMED)))
    print(f"seeds {seeds.start}..{seeds.stop}")
    print(f"{summary.schedules:,} schedules, {rate:.0f} a second and core: ", end="")
    print(f"{len(summary.violations)} went wrong" if summary.violations else "all is well")
    print("coverage: " + ", ".join(f"{summary.coverage[kind]:,} {kind}" for kind in KINDS))
    print(f"met: {len(summary.met):,} triples of feature, action and phase; {len(missing):,} never did")
    for feature, action, phase in missing if never else ():
        print(f"  never: {feature} / {action} / {phase}")
    return VIOLATED if summary.violations else 0


def _explain(seed: int, summary: RunSummary) -> None:
    """Print the first violation of a seed, its shrunk schedule, and the command that repeats it."""
    from chaos.simulator.runs.generator import draw
    from chaos.simulator.runs.schedule import shrink

    violations = summary.violations[seed]
    print(f"seed {seed}: {violations[0]}")
    print(f"  shrunk to {shrink(draw(seed), violations[0].split()[0])}")
    print(f"  again: waypost sim --seeds {seed}..{seed + 1} --trace")
