"""What the experiments measure is there: every filter that is needed, and no other."""

from __future__ import annotations

import json

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


def test_the_command_prints_both_for_people_and_for_programs() -> None:
    options = ("--sites", "5", "--sessions", "50", "--topics", "20", "--changes", "5")
    finished = run("experiment", "hierarchy", *options)
    assert finished.returncode == 0 and "filters installed, all sites" in finished.stdout
    found = json.loads(run("experiment", "hierarchy", *options, "--json").stdout)
    assert found["covering"]["changes"] == 5 and "every one requested" in found
