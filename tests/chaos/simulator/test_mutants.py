"""The simulator catches what it is there to catch: every mutant, and every rule that is switched off."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from node.machines import journal_queue, lifecycle
from node.machines.lifecycle import LifecycleState
from node.machines.runtime import STREAM_TABLE
from tests.chaos.simulator.mutants import MASKED, MUTANTS, table
from tests.chaos.simulator.mutation import Mutant, kinds, play, play_kept, play_scenario
from waypost.table_machine import Table

MADE_SO = {15}
"""Rules that cannot be switched off: a checkpoint has no place for ids."""
Row = tuple[Any, type[Any]]
AT_ONCE = (LifecycleState.LEARNING, lifecycle.Leave)
"""A row that no run needs: a registry of the simulator that answers tells its secret at once."""
ROWS = [
    (table, row) for table in (lifecycle.TABLE, STREAM_TABLE, journal_queue.TABLE) for row in table if row != AT_ONCE
]
LIFE = (
    "ends_in_good_order",
    "ends_before_it_has_begun",
    "ends_in_a_handover",
    "ends_without_its_parts",
    "told_to_end_while_the_log_is_compared",
)
"""Scenarios of processes that begin and end."""


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


@pytest.mark.parametrize(("table", "row"), ROWS, ids=[f"{state.name} {input.__name__}" for _, (state, input) in ROWS])
def test_a_row_that_is_taken_out_of_a_table_of_a_process_fails_a_run(table: Table, row: Row) -> None:
    """Where a process stops by it, or only takes the time that it has for what does not answer."""
    runs = [partial(play_scenario, name) for name in LIFE] + [partial(play, seed) for seed in range(500)]
    with mock.patch.dict(table, {each: target for each, target in table.items() if each != row}, clear=True):
        assert any(run() for run in runs)


def test_every_rule_is_switched_off_by_a_mutant_unless_something_else_stands_before_it() -> None:
    caught = {mutant.rule for mutant in MUTANTS.values() if mutant.rule}
    masked = {mutant.rule for mutant in MASKED.values() if mutant.rule} - caught
    assert masked == {10, 16}
    assert caught | masked | MADE_SO == set(range(1, 31))


def test_page_of_the_rules_has_the_current_table_of_mutants() -> None:
    """Else: `python -m tests.chaos.simulator.mutants --table`."""
    assert table() in (Path(__file__).parents[3] / "docs/handover-rules.md").read_text()
