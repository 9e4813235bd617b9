"""The dispatching tree: which links are in it, and over which of them each site is reached."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from federation.site.dispatching_tree import Tree, choose_edges, star
from waypost.identity import Edge, SiteId, edge

SITES = [SiteId(name) for name in "ABCDEFG"]
A, B, C, D = SITES[:4]
edges = st.lists(
    st.tuples(st.sampled_from(SITES), st.sampled_from(SITES)).filter(lambda pair: pair[0] != pair[1]), max_size=12
).map(lambda pairs: [edge(*pair) for pair in pairs])


def reached(site: SiteId, among: list[Edge]) -> set[SiteId]:
    """Return the sites that are connected with one: the plain way."""
    found = {site}
    for _ in SITES:
        found |= {other for pair in among if found.intersection(pair) for other in pair}
    return found


@given(edges, edges)
def test_tree_connects_what_links_connect_with_no_circle(present: list[Edge], up: list[Edge]) -> None:
    before = choose_edges((), present)
    chosen = choose_edges(before, up)
    assert set(chosen) <= set(up) and list(chosen) == sorted(set(chosen))
    for site in SITES:
        assert reached(site, [*chosen]) == reached(site, up)
    # As many edges as there are sites, less one for each component: so there is no circle.
    components = {frozenset(reached(site, up)) for site in SITES}
    assert len(chosen) == len(SITES) - len(components)


@given(edges, edges)
def test_edge_of_the_present_tree_that_is_up_stays(present: list[Edge], up: list[Edge]) -> None:
    before = choose_edges((), present)
    assert set(before).intersection(up) <= set(choose_edges(before, up))


@given(edges)
def test_next_hop_leads_to_each_site_that_the_tree_connects(up: list[Edge]) -> None:
    tree = Tree(1, choose_edges((), up))
    for site in SITES:
        hops = tree.next_hops(site)
        assert hops.keys() == reached(site, up) - {site}
        for to in hops:
            through, steps = site, 0
            while through != to:
                through, steps = tree.next_hops(through)[to], steps + 1
                assert steps < len(SITES)


@given(edges, edges, st.sets(st.sampled_from(SITES)))
def test_leaf_passes_nothing_on_and_the_others_are_connected_as_without_it(
    present: list[Edge], up: list[Edge], leaves: set[SiteId]
) -> None:
    tree = Tree(1, choose_edges(choose_edges((), present, leaves), up, leaves))
    without = Tree(1, choose_edges((), [one for one in up if not leaves.intersection(one)]))
    for site in SITES:
        neighbours = tree.neighbours(site)
        if site in leaves:
            assert len(neighbours) <= 1
            hosts = [other for one in up if site in one for other in one if other != site]
            # It has an edge where it may have one.
            assert neighbours or all(other in leaves and tree.neighbours(other) for other in hosts)
        else:
            assert set(without.next_hops(site)) <= set(tree.next_hops(site))
            assert not set(tree.next_hops(site)).difference(without.next_hops(site), leaves)


def test_star_of_a_configuration_knows_nothing_behind_its_neighbours() -> None:
    tree = star(B, [C, A])
    assert (tree.epoch, tree.edges) == (0, ((A, B), (B, C)))
    assert tree.next_hops(B) == {A: A, C: C}
    assert tree.neighbours(D) == ()
