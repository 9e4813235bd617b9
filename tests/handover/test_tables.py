"""Both tables, cell by cell: what is listed can be taken, what is not changes nothing."""

from __future__ import annotations

from enum import Enum

import pytest

from tests.handover.sides import SIDES, Side
from waypost.errors import UnexpectedInput
from waypost.table_machine import render

LISTED = [(side, *pair) for side in SIDES for pair in side.pairs if pair in side.table]
UNLISTED = [(side, *pair) for side in SIDES for pair in side.pairs if pair not in side.table]


def named(each: object) -> str:
    if isinstance(each, Side | Enum):
        return each.name
    return getattr(each, "__name__", str(each))


@pytest.mark.parametrize("side", SIDES, ids=named)
def test_every_row_is_of_a_state_and_an_input_that_there_are(side: Side) -> None:
    assert set(side.table) <= set(side.pairs)
    assert {state for state, _ in side.table} == {state for state in side.states if state.name != "ENDED"}


@pytest.mark.parametrize(("side", "state", "kind"), LISTED, ids=named)
def test_every_row_can_be_taken(side: Side, state: Enum, kind: type) -> None:
    machine = side.make(state)
    effects, after = side.table[state, kind]
    assert [type(effect) for effect in machine.step(side.inputs[kind], 0)] == list(effects)
    assert machine.state is after


@pytest.mark.parametrize(("side", "state", "kind"), UNLISTED, ids=named)
def test_an_input_without_a_row_is_refused_and_changes_nothing(side: Side, state: Enum, kind: type) -> None:
    machine = side.make(state)
    before = dict(vars(machine))
    with pytest.raises(UnexpectedInput, match=f"in state {state.name} has no row for {kind.__name__}"):
        machine.step(side.inputs[kind], 0)
    assert vars(machine) == before


@pytest.mark.parametrize("side", SIDES, ids=named)
def test_the_table_is_shown_row_by_row(side: Side) -> None:
    head, _, *rows = render(side.table).splitlines()
    assert head == "| state | input | effects, in order | next state |"
    assert [row.split(" | ")[:2] for row in rows] == [[f"| {state.name}", kind.__name__] for state, kind in side.table]
