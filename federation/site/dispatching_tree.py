"""A dispatching tree: of all links between sites, those over which filters and notifications go. Pure.

The links of a federation may form any graph. Over a circle of them a request would keep itself alive, and what is
forwarded would arrive twice. So everything goes over a tree of them, and the others stand by: they are led and kept up,
and take the place of one that has failed. Sites that no link connects have trees of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from waypost.identity import Edge, SiteId, edge


class Tree(msgspec.Struct, frozen=True):
    """The tree as one site's log has it.

    Args:
        epoch: of the registry's row. The tree of epoch 0 is that of a configuration, which names the neighbours of one
            site alone; one below that is not known.
        edges: the pairs of sites that forward to each other.
    """

    epoch: int = 0
    edges: tuple[Edge, ...] = ()

    def neighbours(self, site: SiteId) -> tuple[SiteId, ...]:
        """Return the sites that `site` forwards to in this tree, sorted by name; empty: it is in no edge."""
        return tuple(sorted(other for edge in self.edges if site in edge for other in edge if other != site))

    def next_hops(self, site: SiteId) -> Mapping[SiteId, SiteId]:
        """Return, by each other site that the tree connects with `site`, the neighbour of `site` on the way to it."""
        hops = {neighbour: neighbour for neighbour in self.neighbours(site)}
        known = {site, *hops}
        reached = list(hops)
        for through in reached:
            for other in self.neighbours(through):
                if other not in known:
                    known.add(other)
                    hops[other] = hops[through]
                    reached.append(other)
        return hops


NO_TREE = Tree()
UNKNOWN_TREE = Tree(-1)
"""The tree between the repair of a log and the record that names the tree again."""


def star(site: SiteId, neighbours: Iterable[SiteId]) -> Tree:
    """Return the tree that a configuration states: the edges of one site to its neighbours, at epoch 0."""
    return Tree(0, tuple(sorted(edge(site, other) for other in neighbours)))


def choose_edges(present: Collection[Edge], up: Collection[Edge], leaves: Collection[SiteId] = ()) -> tuple[Edge, ...]:
    """Return the edges of the next tree, in order.

    What is in the present tree and is up stays, so that nothing is caught up without need; others, in the order of
    their names, connect what is not connected. A leaf has one edge at most: to a site that is none, or, where nothing
    else connects either of them, to another leaf.

    Args:
        present: the edges of the present tree.
        up: all edges over which both sites reach each other.
        leaves: the sites that pass nothing on.
    """
    leader: dict[SiteId, SiteId] = {}
    stay = set(present)

    def root(site: SiteId) -> SiteId:
        while (above := leader.setdefault(site, site)) != site:
            site = above
        return site

    def order(candidate: Edge) -> tuple[int, bool, Edge]:
        # Leaves come behind all that connects the others.
        return len(leaf_ends(candidate)), candidate not in stay, candidate

    def leaf_ends(candidate: Edge) -> set[SiteId]:
        return {site for site in candidate if site in leaves}

    chosen: list[Edge] = []
    taken: set[SiteId] = set()
    """Leaves that have their edge."""
    for candidate in sorted(set(up), key=order):
        one, other = candidate
        if root(one) != root(other) and not taken.intersection(candidate):
            leader[root(one)] = root(other)
            chosen.append(candidate)
            taken |= leaf_ends(candidate)
    return tuple(sorted(chosen))
