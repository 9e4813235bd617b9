"""The small model is explored to its end; and every rule that is taken out of it is missed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from functools import cache
from typing import cast

import pytest

from chaos.model.configurations import (
    ACQUISITIONS,
    CONFIGURATIONS,
    DEFAULT,
    LOGS,
    OWNERS,
    PARTITIONS,
    QUICK,
    REGISTRIES,
    RULES,
    model,
)
from chaos.model.explore import Explorer, Model, Result, explore
from chaos.model.handover import Handover
from chaos.model.state import Setup
from chaos.model.tables import SOURCE, TARGET
from chaos.model.transfers import SOURCE_EFFECTS, TARGET_EFFECTS
from handover.acquisition import AcquisitionState

PASSED = {
    AcquisitionState.WANTED,
    AcquisitionState.QUEUED,
    AcquisitionState.STORING,
    AcquisitionState.ENDED,
}
"""States that the model passes within one step."""


@cache
def explored(name: str) -> tuple[Result, set[AcquisitionState]]:
    """Explore a world of acquisitions; return what was found, and the states in which an acquisition waits."""
    explorer = Explorer(ACQUISITIONS[name])
    result = explorer.run()
    proxies = (proxy for state in explorer.states for proxy in state.proxies)
    return result, {proxy.running.state for proxy in proxies if proxy.running is not None}


COVERED = (
    "registry: takes the claim (handover) of b",
    "registry: takes the claim (thaw) of a",
    "registry: takes the claim (restart) of a",
    "registry: takes the claim (failover) of b",
    "a: tries again as the source",
    "b: tries again as the target",
    "b: times out",
    "Frozen 1 is lost",
    "b: takes Frozen 1, which will come again",
    "b: catches up",
)


def test_everything_holds_in_every_state_of_two_small_worlds() -> None:
    seen, states = Counter[str](), 0
    for world in (QUICK, OWNERS):
        result = explore(Handover(Setup(world)))
        assert not result.violation, "\n".join([result.violation, *result.trace])
        seen += result.seen
        states += result.states
    assert states > 40_000
    assert [label for label in COVERED if not seen[label]] == []


@pytest.mark.parametrize("name", ["log", "log-crash"])
def test_nothing_is_lost_where_a_log_loses_its_end(name: str) -> None:
    result = explore(LOGS[name])
    assert not result.violation, "\n".join([result.violation, *result.trace])
    assert result.states > 9_000 and result.ends


@pytest.mark.parametrize("name", ACQUISITIONS)
def test_session_that_is_acquired_has_one_owner(name: str) -> None:
    result, _ = explored(name)
    assert not result.violation, "\n".join([result.violation, *result.trace])
    assert result.states > 10_000


def test_nothing_is_lost_where_a_session_moves_between_partitions_that_are_read_apart() -> None:
    result = explore(PARTITIONS["partitions"])
    assert not result.violation, "\n".join([result.violation, *result.trace])
    assert result.states > 90_000 and result.ends


def test_a_session_between_two_registries_has_one_owner_whatever_is_cut() -> None:
    result = explore(REGISTRIES["registries"])
    assert not result.violation, "\n".join([result.violation, *result.trace])
    assert result.states > 500 and result.ends


def test_every_state_of_an_acquisition_is_met_in_the_model_but_those_of_transfers() -> None:
    met = set().union(*(explored(name)[1] for name in ACQUISITIONS))
    assert set(AcquisitionState) - met == {AcquisitionState.ASKING, AcquisitionState.FETCHING, *PASSED}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_that_is_not_kept_is_missed(name: str) -> None:
    rule = RULES[name]
    result = explore(cast(Model[Hashable], model(rule.world, frozenset((name,)))))
    assert result.violation == rule.breaks
    assert result.trace


def test_a_trace_is_a_shortest_one() -> None:
    result = explore(Handover(Setup(CONFIGURATIONS[DEFAULT], frozenset(("FENCE",)))))
    assert len(result.trace) == 4


def test_every_effect_of_the_tables_has_its_part_in_the_model() -> None:
    assert {effect for effects, _ in SOURCE.values() for effect in effects} == SOURCE_EFFECTS.keys()
    assert {effect for effects, _ in TARGET.values() for effect in effects} == TARGET_EFFECTS.keys()
