"""All planted bugs, and the hunt for schedules that catch them.

``python -m tests.chaos.simulator.plants --hunt NAME --seeds 0..500``, and ``--table`` for docs/handover-rules.md.
"""

from __future__ import annotations

import argparse
import gc

from tests.chaos.simulator import (
    planted_access,
    planted_bounds,
    planted_coverage,
    planted_damage,
    planted_handovers,
    planted_keys,
    planted_log_epochs,
    planted_newest,
    planted_reliability,
)
from tests.chaos.simulator.planting import Plant, kinds, play

_MODULES = (
    planted_handovers,
    planted_coverage,
    planted_bounds,
    planted_access,
    planted_newest,
    planted_keys,
    planted_reliability,
    planted_log_epochs,
    planted_damage,
)
PLANTS = {plant.name: plant for module in _MODULES for plant in module.PLANTS}
MASKED = {
    plant.name: plant
    for module in (planted_coverage, planted_reliability, planted_log_epochs)
    for plant in module.MASKED
}
"""What nothing catches, because something else stands before it; to be hunted again when that goes."""


def hunt(plant: Plant, seeds: range, most: int) -> list[int]:
    """Print the first seeds that catch the plant, and how; return them."""
    found: list[int] = []
    gc.disable()
    with plant.switch():
        for seed in seeds:
            wrong = play(seed)
            if wrong:
                print(f"{plant.name}: {seed} {' '.join(sorted(kinds(wrong)))}: {wrong[0][:150]}", flush=True)
                found.append(seed)
            if len(found) == most:
                break
    gc.enable()
    return found


def table() -> str:
    """Return all plants as Markdown, those that switch off a rule first."""
    lines = ["| rule | planted | caught by | as |", "|---|---|---|---|"]
    for plant in sorted((PLANTS | MASKED).values(), key=lambda each: each.rule or 99):
        runs = [f"seed {', '.join(map(str, plant.seeds))}"] if plant.seeds else []
        runs += [f"`{story}`" for story in plant.stories]
        runs += [f"`{name}.json`" for name in plant.kept]
        caught = "; ".join(runs) or f"nothing, as long as there are {plant.masked_by}"
        lines.append(f"| {plant.rule or ''} | {plant.what} | {caught} | {', '.join(plant.kinds)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hunt", action="append", choices=[*PLANTS, *MASKED], help="a plant's name; all of them")
    parser.add_argument("--seeds", default="0..500", metavar="A..B")
    parser.add_argument("--most", type=int, default=4, help="so many seeds are enough")
    parser.add_argument("--table", action="store_true", help="print what is planted, as Markdown")
    given = parser.parse_args()
    if given.table:
        print(table())
        return
    first, _, last = given.seeds.partition("..")
    for name in given.hunt or PLANTS:
        found = hunt((PLANTS | MASKED)[name], range(int(first), int(last)), given.most)
        print(f"{name}: {found or 'not caught'}", flush=True)


if __name__ == "__main__":
    main()
