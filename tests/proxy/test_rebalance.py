"""A plan levels the load of every site with as few moves as can be."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from federation.ports import ProxyRow
from proxy.ownership.rebalance import plan
from waypost.identity import Epoch, Incarnation, Ownership, ProxyId, SessionId, SiteId

SITES = {"a1": "A", "a2": "A", "a3": "A", "b1": "B"}
NAMES = st.sampled_from([*SITES, "dead"])


def rows(*names: str) -> list[ProxyRow]:
    return [
        ProxyRow(proxy=ProxyId(name), incarnation=Incarnation("i"), site=SiteId(SITES[name]), url=name)
        for name in names or SITES
    ]


def owned(names: list[str]) -> dict[SessionId, Ownership]:
    return {SessionId(f"s{n}"): Ownership(ProxyId(name), Epoch(n + 1)) for n, name in enumerate(names)}


@given(st.lists(NAMES, max_size=40), st.sets(st.sampled_from(list(SITES))))
def test_afterwards_the_proxies_of_a_site_differ_by_one_at_most(names: list[str], drained: set[str]) -> None:
    owners = owned(names)
    moves = plan(owners, rows(), [ProxyId(each) for each in drained])
    after = owners | {move.session: Ownership(move.target, Epoch(99)) for move in moves}
    loads = Counter(owner.proxy for owner in after.values())
    for site in set(SITES.values()):
        levelled = [loads[ProxyId(name)] for name in SITES if SITES[name] == site and name not in drained]
        assert max(levelled, default=0) - min(levelled, default=0) <= 1


@given(st.lists(NAMES, max_size=40))
def test_nothing_moves_without_need_nor_to_another_site(names: list[str]) -> None:
    owners = owned(names)
    moves = plan(owners, rows(), [])
    assert len({move.session for move in moves}) == len(moves)
    for move in moves:
        assert SITES[owners[move.session].proxy] == SITES[move.target]
        assert move.owner == owners[move.session]
    before, gave = Counter(names), Counter(move.owner.proxy for move in moves)
    for site in ("A", "B"):
        here = [name for name in SITES if SITES[name] == site]
        fair = sum(before[name] for name in here) / len(here)
        needed = sum(max(0.0, before[name] - fair) for name in here)
        assert sum(gave[ProxyId(name)] for name in here) < needed + len(here)


def test_plan_for_a_balanced_site_has_no_moves() -> None:
    assert plan(owned(["a1", "a2", "a1", "a2", "a3"]), rows(), []) == []
