"""All mutants, and the hunt for schedules that catch them.

``python -m tests.chaos.simulator.mutants --hunt NAME --seeds 0..500``; ``--draw NAME --html FILE`` draws the first run
that catches one; ``--table`` for docs/handover-rules.md.
"""

from __future__ import annotations

import argparse
import gc
from dataclasses import replace
from pathlib import Path

from chaos.simulator.runs.generator import draw
from chaos.simulator.runs.schedule import KEPT, Kept, shrink, violations_of
from chaos.simulator.trace_viewer import drawn
from tests.chaos.simulator import (
    mutants_of_access,
    mutants_of_bounds,
    mutants_of_clients,
    mutants_of_coverage,
    mutants_of_covering,
    mutants_of_damage,
    mutants_of_handovers,
    mutants_of_keys,
    mutants_of_lifecycles,
    mutants_of_log_epochs,
    mutants_of_publishing,
    mutants_of_reliability,
    mutants_of_restores,
    mutants_of_trees,
)
from tests.chaos.simulator.mutation import Mutant, kinds, play

_MODULES = (
    mutants_of_handovers,
    mutants_of_coverage,
    mutants_of_bounds,
    mutants_of_access,
    mutants_of_clients,
    mutants_of_keys,
    mutants_of_lifecycles,
    mutants_of_reliability,
    mutants_of_log_epochs,
    mutants_of_damage,
    mutants_of_restores,
    mutants_of_trees,
    mutants_of_covering,
    mutants_of_publishing,
)
MUTANTS = {mutant.name: mutant for module in _MODULES for mutant in module.MUTANTS}
MASKED = {
    mutant.name: mutant
    for module in (
        mutants_of_clients,
        mutants_of_coverage,
        mutants_of_reliability,
        mutants_of_log_epochs,
        mutants_of_lifecycles,
        mutants_of_restores,
    )
    for mutant in module.MASKED
}
"""What nothing catches, because something else stands before it; to be hunted again when that goes."""


def hunt(mutant: Mutant, seeds: range, most: int) -> list[int]:
    """Print the first seeds that catch the mutant, and how; return them."""
    found: list[int] = []
    gc.disable()
    with mutant.switch():
        for seed in seeds:
            wrong = play(seed)
            if wrong:
                print(f"{mutant.name}: {seed} {' '.join(sorted(kinds(wrong)))}: {wrong[0][:150]}", flush=True)
                found.append(seed)
            if len(found) == most:
                break
    gc.enable()
    return found


def picture(mutant: Mutant) -> str:
    """Return the page of the first seed or kept schedule that catches the mutant, shrunk, with the mutant on.

    Raises:
        LookupError: none that is named for it does.
    """
    runs = [(f"seed {seed}", draw(seed)) for seed in mutant.seeds]
    for name in mutant.kept:
        kept = Kept.read(KEPT / f"{name}.json")
        runs += [(f"{name}.json", replace(kept.schedule, seed=seed)) for seed in (kept.schedule.seed, *kept.seeds)]
    with mutant.switch():
        for name, run in runs:
            caught = [line for line in violations_of(run) if line.split()[0] in mutant.kinds]
            if caught:
                return drawn(shrink(run, caught[0].split()[0]), f"{name}: {mutant.effect}")[0]
    raise LookupError(f"no seed or kept schedule catches {mutant.name!r}")


def table() -> str:
    """Return all mutants as Markdown, those that switch off a rule first."""
    lines = ["| rule | mutant | caught by | as |", "|---|---|---|---|"]
    for mutant in sorted((MUTANTS | MASKED).values(), key=lambda each: each.rule or 99):
        runs = [f"seed {', '.join(map(str, mutant.seeds))}"] if mutant.seeds else []
        runs += [f"`{scenario}`" for scenario in mutant.scenarios]
        runs += [f"`{name}.json`" for name in mutant.kept]
        caught = "; ".join(runs) or f"nothing, as long as there are {mutant.masked_by}"
        lines.append(f"| {mutant.rule or ''} | {mutant.effect} | {caught} | {', '.join(mutant.kinds)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hunt", action="append", choices=[*MUTANTS, *MASKED], help="a mutant's name; all of them")
    parser.add_argument("--seeds", default="0..500", metavar="A..B")
    parser.add_argument("--most", type=int, default=4, help="so many seeds are enough")
    parser.add_argument("--draw", choices=MUTANTS, metavar="NAME", help="a mutant's name")
    parser.add_argument("--html", type=Path, help="the file for --draw")
    parser.add_argument("--table", action="store_true", help="print the mutants, as Markdown")
    options = parser.parse_args()
    if options.table:
        print(table())
        return
    if options.draw:
        options.html.write_text(picture(MUTANTS[options.draw]))
        return
    first, _, last = options.seeds.partition("..")
    for name in options.hunt or MUTANTS:
        found = hunt((MUTANTS | MASKED)[name], range(int(first), int(last)), options.most)
        print(f"{name}: {found or 'not caught'}", flush=True)


if __name__ == "__main__":
    main()
