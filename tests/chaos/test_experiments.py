"""What the experiments measure is there: every filter that is needed, and no other."""

from __future__ import annotations

import json

import pytest

from chaos.experiments.hierarchy import Federation, Hierarchy, Interests, measure
from matching.covering import covers
from tests.node.test_command_line import run
from waypost.subscription import parse

SMALL = Hierarchy(sites=13, below=3, sessions=260, topics=40)


def test_each_site_has_filters_for_all_that_is_wanted_elsewhere() -> None:
    interests, federation = Interests(SMALL), Federation(SMALL)
    for site, counts in enumerate(interests.of_site):
        for expression in counts:
            federation.register(site, expression, is_wanted=True)
    federation.exchange(range(SMALL.sites))
    wanted = {expression for counts in interests.of_site for expression in counts}
    for site, state in enumerate(federation.states):
        known = state.all_interests()
        for expression in wanted:
            assert any(covers(parse(wide).tree, parse(expression).tree) for wide in known)
        for neighbour, filters in state.neighbour_filters.items():
            far = next(other for other in federation.states if other.site == neighbour)
            assert filters.filters.keys() == far.requested(state.site).keys(), site


def test_what_a_filter_covers_is_left_out() -> None:
    measured = measure(SMALL, 20, lambda line: None)
    assert sum(measured.installed) < measured.needed
    assert (len(measured.installed), len(measured.pairs)) == (13, 13)
    assert measured.changes == 20 and measured.rounds <= 6


@pytest.mark.parametrize("below", [1, 2, 3, 12])
def test_sites_behind_a_link_are_those_of_its_side(below: int) -> None:
    federation = Federation(Hierarchy(sites=13, below=below, sessions=26, topics=4))
    near = {state.site: set(state.neighbours) for state in federation.states}
    for (site, neighbour), count in federation.behind().items():
        side, added = {site}, {site}
        while added:
            added = {other for known in added for other in near[known]} - side - {neighbour}
            side |= added
        assert count == len(side)
    assert federation.behind().keys() == {(site, other) for site, others in near.items() for other in others}


def test_the_command_prints_both_for_people_and_for_programs() -> None:
    options = ("--sites", "5", "--sessions", "50", "--topics", "20", "--changes", "5")
    finished = run("experiment", "hierarchy", *options)
    assert finished.returncode == 0 and "filters installed, all sites" in finished.stdout
    found = json.loads(run("experiment", "hierarchy", *options, "--json").stdout)
    assert found["covering"]["changes"] == 5 and "every one requested" in found
