"""Connections between simulated proxies: what they let through, and what they do not."""

from __future__ import annotations

import pytest

from chaos.simulator.runs.scenario import Scenario

SETUP = """sites A: a1 a2
client c s at a1
subscribe c x n > 0
run 200
leave c
publish 1 2 at a1
line a1 a2 {line}
move c a2
run 1500"""


def narrative_of(line: str) -> tuple[Scenario, list[str]]:
    scenario = Scenario()
    scenario.run(SETUP.format(line=line))
    return scenario, scenario.world.narrative


def refused(scenario: Scenario, proxy: str) -> dict[str, int]:
    engine = scenario.world.nodes[proxy].engine
    assert engine is not None
    return dict(engine.output.refused.counts)


def test_a_good_line_lets_a_handover_through_on_one_connection_each_way() -> None:
    scenario, narrative = narrative_of("5")
    assert "a2 serves s at epoch 2 (handover)" in narrative
    assert [way._introductions for way in scenario.world.channels.values()] == [1, 1]
    assert refused(scenario, "a1") == refused(scenario, "a2") == {}


@pytest.mark.parametrize("byte", range(0, 40, 3))
def test_no_changed_byte_gets_past_the_seal(byte: int) -> None:
    """Each message has another byte changed; the first of them has this number."""
    scenario = Scenario()
    script, _, move = SETUP.format(line="5 damages=1").rpartition("move")
    scenario.run(script)
    for way in scenario.world.channels.values():
        way.frames = byte
    scenario.run(f"move{move}")
    asked = sum("a2 -> a1 Prepare" in line for line in scenario.world.narrative)
    assert asked > 3
    assert refused(scenario, "a1") == {"wrong tag": asked}
    assert not any("a1 -> a2" in line for line in scenario.world.narrative)


def test_messages_in_flight_are_lost_with_their_connection() -> None:
    scenario, narrative = narrative_of("5 breaks=1")
    assert not any("a1 -> a2" in line for line in narrative)
    assert refused(scenario, "a1") == {}
    assert scenario.world.channels["a2", "a1"]._introductions == scenario.world.channels["a2", "a1"].frames > 3
