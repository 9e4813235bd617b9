"""The dispatching tree in a simulated federation: what is forwarded where, and how often."""

from __future__ import annotations

from collections import Counter

import pytest

from chaos.simulator.environment.secrets import OPEN
from chaos.simulator.verdict import heal
from chaos.simulator.world import Shape, World
from waypost.client.options import AttachOptions
from waypost.identity import Coordinate, SiteId
from waypost.records import Forwarded

MANY = 220
A, B, C, D, E = (SiteId(name) for name in "ABCDE")


def federation(shape: Shape, *sites: SiteId, seed: int | None = None) -> World:
    return World({site: [f"{site.lower()}1"] for site in sites}, seed, shape=shape, link_lease_ms=2_000)


def forwarded(world: World, site: SiteId) -> Counter[Coordinate]:
    """Return how often each notification of other sites stands in a site's log."""
    records = world.logs[site].read(0, len(world.logs[site]))
    return Counter(Coordinate(record.origin, record.offset) for _, record in records if isinstance(record, Forwarded))


def publish(world: World, numbers: range) -> None:
    for number in numbers:
        world.clients["p"].publish(number, OPEN)
        world.run(20)


@pytest.mark.parametrize("shape", ["mesh", "ring", "star"])
def test_notification_is_once_in_each_log_on_its_way_and_in_no_other(shape: Shape) -> None:
    world = federation(shape, A, B, C, D, E)
    world.run(300)
    client = world.client("c", "s", "e1", AttachOptions())
    client.subscribe("x", "n > 0")
    world.client("p", None, "c1")
    world.run(500)
    publish(world, range(1, MANY + 1))
    assert heal(world) == []
    # In the tree of each of these shapes the way from C to E leads over its first sites.
    way = {site for site in (A, B, D, E) if forwarded(world, site)}
    assert E in way and len(way) < 4
    for site in way:
        assert forwarded(world, site).total() == len(forwarded(world, site)) == MANY


@pytest.mark.parametrize("seed", range(12))
def test_repeats_in_a_log_are_those_that_were_under_way_when_the_tree_changed(seed: int) -> None:
    world = federation("ring", A, B, C, D, seed=seed)
    world.run(300)
    client = world.client("c", "s", "a1", AttachOptions())
    client.subscribe("x", "n > 0")
    world.client("p", None, "c1")
    world.run(1_000)
    publish(world, range(1, 100))
    world.end_site(B)
    publish(world, range(100, MANY + 1))
    assert heal(world) == []
    assert sorted(number for _, _, number in client.delivered) == [*range(1, MANY + 1)]
    for site in (A, D):
        found = forwarded(world, site)
        assert found.total() - len(found) <= 7, "more than the window of a link"
