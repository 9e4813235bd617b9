"""The simulator catches what it is there to catch: every mutant, and every rule that is switched off."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.chaos.simulator.mutants import MASKED, MUTANTS, table
from tests.chaos.simulator.mutation import Mutant, kinds, play, play_kept, play_scenario

MADE_SO = {15}
"""Rules that cannot be switched off: a checkpoint has no place for ids."""


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=list(MUTANTS))
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    """By one at least of the schedules and scenarios that are named for it; and that one is clean without it.

    A seed is another run after most changes of the engine: then one is looked for.
    """
    named = [partial(play, seed) for seed in mutant.seeds]
    named += [partial(play_scenario, scenario) for scenario in mutant.scenarios]
    named += [partial(play_kept, name) for name in mutant.kept]
    for run in [*named, *(partial(play, seed) for seed in range(5_000))]:
        with mutant.switch():
            wrong = run()
        if kinds(wrong) & set(mutant.kinds):
            assert run() == []
            return
    pytest.fail(f"{mutant.name}: none of {[run.args for run in named]} is {mutant.kinds}", pytrace=False)


def test_every_rule_is_switched_off_by_a_mutant_unless_something_else_stands_before_it() -> None:
    caught = {mutant.rule for mutant in MUTANTS.values() if mutant.rule}
    masked = {mutant.rule for mutant in MASKED.values() if mutant.rule} - caught
    assert masked == {10, 16}
    assert caught | masked | MADE_SO == set(range(1, 31))


def test_page_of_the_rules_has_the_current_table_of_mutants() -> None:
    """Else: `python -m tests.chaos.simulator.mutants --table`."""
    assert table() in (Path(__file__).parents[3] / "docs/handover-rules.md").read_text()
