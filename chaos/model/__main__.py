"""`python -m chaos.model [--config NAME] [--off RULE]`: explore a world; status 1 if an invariant does not hold."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Hashable
from typing import cast

from chaos.model.configurations import (
    ACQUISITIONS,
    CONFIGURATIONS,
    DEFAULT,
    LOGS,
    PARTITIONS,
    REGISTRIES,
    RULES,
    World,
    model,
)
from chaos.model.explore import Model, Result, explore

WORLDS: dict[str, World] = {**CONFIGURATIONS, **LOGS, **ACQUISITIONS, **PARTITIONS, **REGISTRIES}


def main() -> int:
    """Explore the world that the command line names, and print what was found.

    Returns:
        The exit status: 1 if an invariant does not hold, else 0.

    Raises:
        SystemExit: the command line is wrong, or asks for help.
        RuntimeError: the world has too many states.
    """
    parser = _parser()
    given = parser.parse_args()
    rule = RULES.get(given.off)
    name = given.config or DEFAULT
    world = WORLDS[name] if given.config or rule is None else rule.world
    if rule is not None and type(world) is not type(rule.world):
        parser.error(f"argument --off: {given.off} is no rule of {name}; leave out --config, or name another one")
    print(f"{world}\nwithout: {rule.statement if rule else 'nothing'}")
    without = frozenset((given.off,)) if rule else frozenset[str]()
    result = explore(cast(Model[Hashable], model(world, without)))
    _show(result)
    return 1 if result.violation else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m chaos.model", description=__doc__)
    parser.add_argument("--config", choices=WORLDS, help=f"default: {DEFAULT}, or the rule's own")
    parser.add_argument("--off", choices=RULES, help="a rule that is not kept")
    return parser


def _show(result: Result) -> None:
    for number, label in enumerate(result.trace, 1):
        print(f"{number:4}  {label}")
    print(
        f"{result.states:,} states, {result.steps:,} steps, depth {result.depth}, {result.ends} ends,"
        f" {result.seconds:.1f} s: {'NOT ' + result.violation if result.violation else 'everything held'}"
    )


if __name__ == "__main__":
    sys.exit(main())
