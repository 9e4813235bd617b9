"""Mobile dispatchers: who is in range, what the dispatching tree alone delivers, and what catch-up adds."""

from __future__ import annotations

import csv
import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.experiments.mobility import Mobility, Plain, connected, links_to, measure
from chaos.experiments.mobility_report import report, varied
from waypost.errors import BadArgument
from waypost.identity import Edge, SiteId

SMALL = Mobility(nodes=12, side_m=500, duration_s=5, publish_every_ms=250, subscribers=3, speed_mps=20)
NODES = [SiteId(f"n{number}") for number in range(8)]
LINKS = st.sets(st.tuples(st.sampled_from(NODES), st.sampled_from(NODES)).filter(lambda pair: pair[0] < pair[1]))


@given(st.integers(2, 40), st.floats(50, 2_000), st.integers(0, 100))
def test_links_are_those_of_all_pairs_in_range(nodes: int, side_m: float, seed: int) -> None:
    mobility = Mobility(nodes=nodes, side_m=side_m)
    plain = Plain(mobility, random.Random(seed))
    for _ in range(3):
        at = plain._at
        pairs = {(one, other) for one in at for other in at if one < other and math.dist(at[one], at[other]) <= 250}
        assert plain.links() == pairs
        plain.advance(10)
        assert all(0 <= position <= side_m for x_and_y in plain._at.values() for position in x_and_y)


@given(LINKS)
def test_connected_nodes_are_those_that_any_chain_of_links_reaches(links: set[Edge]) -> None:
    reached = {NODES[0]}
    for _ in NODES:
        reached |= {node for link in links if reached.intersection(link) for node in link}
    assert connected(NODES[0], links) == reached


def test_a_notification_passes_each_link_of_its_ways_once() -> None:
    tree = [(NODES[0], NODES[1]), (NODES[1], NODES[2]), (NODES[1], NODES[3]), (NODES[3], NODES[4])]
    assert links_to(NODES[0], [NODES[2], NODES[3]], tree) == 3
    assert links_to(NODES[0], [NODES[0]], tree) == 0
    assert links_to(NODES[4], NODES[:4], tree) == 4


def test_a_link_that_fails_works_again() -> None:
    plain = Plain(Mobility(nodes=20, side_m=100, speed_mps=0, failures_a_minute=6), random.Random(1))
    counts = []
    for _ in range(60):
        plain.advance(1)
        counts.append(len(plain.links()))
    assert min(counts) < 190
    plain.halt()
    assert len(plain.links()) == 190


def test_with_catch_up_all_is_delivered_once_where_the_tree_alone_loses() -> None:
    outcome = measure(replace(SMALL, nodes=20, side_m=640, duration_s=10, speed_mps=40))
    assert outcome.trees > 1 and outcome.plain < outcome.owed
    assert outcome.connected > outcome.plain
    assert (outcome.delivered, outcome.repeated, outcome.violations) == (outcome.connected, 0, [])
    assert 0 < outcome.latency_ms(0.5) <= outcome.latency_ms(1)


def test_where_no_node_moves_the_tree_alone_delivers_all() -> None:
    outcome = measure(replace(SMALL, speed_mps=0, side_m=200))
    assert outcome.plain == outcome.owed == outcome.delivered == 20 * 3
    assert (outcome.trees, outcome.breaks) == (0, 0)


def test_one_seed_gives_one_outcome() -> None:
    assert measure(replace(SMALL, duration_s=2)) == measure(replace(SMALL, duration_s=2))


@pytest.mark.parametrize("over", ["speed", "speed=", "speed=x", "colour=1", "=1", "speed=-1", "nodes=2"])
def test_what_cannot_be_varied_is_refused_by_name(over: str) -> None:
    with pytest.raises(BadArgument):
        varied(SMALL, over)


def test_a_sweep_is_written_as_a_table_and_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(varied(replace(SMALL, duration_s=2), "speed=20,5"), tmp_path / "out", as_json=True)
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [run["speed_mps"] for run in runs] == [5, 20]
    with (tmp_path / "out" / "mobility.csv").open() as file:
        assert [row["speed_mps"] for row in csv.DictReader(file)] == ["5.0", "20.0"]
    plots = {path.name: path.read_text() for path in (tmp_path / "out").glob("*.svg")}
    assert plots.keys() == {"delivery.svg", "overhead.svg", "latency.svg"}
    assert all("<svg" in text and "<script" not in text for text in plots.values())
