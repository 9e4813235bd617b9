"""The keeper of the dispatching tree: when it claims another one, and has the site's log enter it."""

from __future__ import annotations

import random
from typing import Any, TypeVar

import pytest

from federation.links import tree_keeper
from federation.links.effects import AppendRecords, ClaimTree, LinkEffect, RestoreLink
from federation.links.tree_keeper import (
    AGAIN_MS,
    FAILED_MS,
    HALF_FAILED_MS,
    JITTER_MS,
    JOIN_MS,
    LOOK_MS,
    RELOADED_MS,
    TreeKeeper,
)
from federation.ports import LeaderChanged, LinkChanged, LinkRow, ProxyDown, ProxyRow, Reloaded, TreeChosen, TreeRow
from federation.site.dispatching_tree import choose_edges
from federation.site.state import SiteState
from tests.helpers.link_parts import ProxiesOfTest, ToTest
from waypost.clock import NEVER
from waypost.errors import RegistryUnavailable
from waypost.identity import Edge, Incarnation, ProxyId, SiteId, edge, link_name
from waypost.records import Repaired, TreeEntered

A, B, C = SiteId("A"), SiteId("B"), SiteId("C")
AB, BC, AC = edge(A, B), edge(B, C), edge(A, C)
Kind = TypeVar("Kind")


class Keeping:
    """A keeper at A, the registry's word, and what the keeper wants done. Time is what a test says."""

    def __init__(self, *links: Edge, lease: bool = True) -> None:
        self.now = 1_000
        self.effects: list[LinkEffect] = []
        self.live = [A, B, C]
        self.state = SiteState(A)
        self.keeper = TreeKeeper(self.state, ProxiesOfTest(self._rows), random.Random(1), ToTest(self.effects.append))
        self.links = links
        if lease:
            self.keeper.lease_granted(self.now)
        self.reload()

    def _rows(self, site: SiteId) -> list[ProxyRow]:
        row = ProxyRow(proxy=ProxyId(f"{site}1"), incarnation=Incarnation("1"), site=site, url="")
        return [row] if site in self.live else []

    def reload(self, tree: TreeRow | None = None, led: tuple[str, ...] = ()) -> None:
        rows = {sites: LinkRow(sites=sites) for sites in self.links}
        leaders = {link: (ProxyId("x"), 1) for link in led}
        self.keeper.reported(Reloaded({}, {}, leaders, links=rows, tree=tree or TreeRow()), self.now)

    def up(self, *links: Edge) -> None:
        for one, other in links:
            for link in (f"{one}->{other}", f"{other}->{one}"):
                self.keeper.reported(LeaderChanged(link, ProxyId("x"), 1), self.now)

    def down(self, link: str) -> None:
        self.keeper.reported(LeaderChanged(link, None, 1), self.now)

    def passes(self, wait_ms: int) -> None:
        end = self.now + wait_ms
        while max(due := self.keeper.next_deadline(), self.now + 1) <= end:
            self.now = max(due, self.now + 1)
            self.keeper.tick(self.now)
        self.now = max(self.now, end)

    def wants(self, kind: type[Kind]) -> Kind:
        effect = self.effects.pop(0)
        assert isinstance(effect, kind), effect
        return effect

    def chosen(self, epoch: int, *links: Edge) -> None:
        self.keeper.reported(TreeChosen(TreeRow(epoch=epoch, links=links)), self.now)

    def entered(self, epoch: int, *links: Edge) -> None:
        """The registry has chosen this tree, and the log has entered it."""
        self.chosen(epoch, *links)
        self.state.fold(self.state.position, TreeEntered(epoch, links))
        self.keeper.folded(self.now)


def test_links_that_come_up_together_are_claimed_together() -> None:
    keeping = Keeping(AB, BC, AC)
    keeping.up(AB)
    keeping.passes(JOIN_MS // 2)
    keeping.up(BC, AC)
    keeping.passes(JOIN_MS + JITTER_MS)
    claim = keeping.wants(ClaimTree)
    assert (claim.expected, claim.new) == (TreeRow(), TreeRow(epoch=1, links=(AB, AC)))


def test_link_that_is_led_in_one_direction_is_not_taken() -> None:
    keeping = Keeping(AB)
    keeping.keeper.reported(LeaderChanged("A->B", ProxyId("x"), 1), keeping.now)
    keeping.passes(10_000)
    assert not keeping.effects


def test_proxy_without_a_lease_claims_and_appends_nothing() -> None:
    keeping = Keeping(AB, lease=False)
    keeping.up(AB)
    keeping.chosen(1, AB)
    assert keeping.keeper.next_deadline() == NEVER


def test_tree_of_the_registry_is_appended_once_and_again_if_the_log_does_not_have_it() -> None:
    keeping = Keeping(AB)
    keeping.up(AB)
    keeping.chosen(1, AB)
    keeping.passes(JITTER_MS)
    assert keeping.wants(AppendRecords).records == [TreeEntered(1, (AB,))]
    keeping.passes(AGAIN_MS - 1)
    keeping.effects.clear()
    keeping.passes(1)
    keeping.state.fold(0, TreeEntered(1, (AB,)))
    keeping.keeper.folded(keeping.now)
    keeping.effects.clear()
    keeping.passes(10_000)
    assert not keeping.effects


def test_tree_is_appended_again_after_a_repair_of_the_log() -> None:
    keeping = Keeping(AB)
    keeping.up(AB)
    keeping.entered(1, AB)
    keeping.state.fold(keeping.state.position, Repaired(0))
    keeping.keeper.folded(keeping.now)
    keeping.passes(JITTER_MS)
    assert keeping.wants(AppendRecords).records == [TreeEntered(1, (AB,))]


def test_another_link_takes_the_place_of_one_that_is_led_no_more() -> None:
    keeping = Keeping(AB, BC, AC)
    keeping.up(AB, BC, AC)
    keeping.entered(1, AB, BC)
    keeping.down("A->B")
    keeping.down("B->A")
    keeping.passes(FAILED_MS - 1)
    assert not keeping.effects
    keeping.passes(JITTER_MS + 1)
    assert keeping.wants(ClaimTree).new == TreeRow(epoch=2, links=(AC, BC))


def test_link_that_may_have_another_leader_soon_is_spared_longer() -> None:
    keeping = Keeping(AB)
    keeping.up(AB)
    keeping.entered(1, AB)
    keeping.down("A->B")
    keeping.passes(HALF_FAILED_MS - 1)
    keeping.up(AB)
    keeping.passes(10_000)
    assert not keeping.effects


@pytest.mark.parametrize("link_first", [False, True])
def test_link_to_a_site_without_proxies_has_failed_though_its_other_direction_is_led(link_first: bool) -> None:
    """The registry tells first of the one or of the other."""
    keeping = Keeping(AB)
    keeping.up(AB)
    keeping.entered(1, AB)
    if link_first:
        keeping.down("A->B")
    keeping.live.remove(B)
    keeping.keeper.reported(ProxyDown(ProxyId("B1"), Incarnation("1")), keeping.now)
    if not link_first:
        keeping.down("A->B")
    keeping.passes(FAILED_MS + JITTER_MS)
    assert keeping.wants(ClaimTree).new == TreeRow(epoch=2, links=())


def test_no_link_has_failed_for_a_while_after_a_break_of_the_watch() -> None:
    keeping = Keeping(AB)
    keeping.up(AB)
    keeping.entered(1, AB)
    keeping.reload(TreeRow(epoch=1, links=(AB,)))
    keeping.passes(RELOADED_MS - 1)
    assert not keeping.effects
    keeping.up(AB)
    keeping.passes(RELOADED_MS)
    assert not keeping.effects


def test_link_that_an_operator_removes_leaves_the_tree_at_once() -> None:
    keeping = Keeping(AB, AC)
    keeping.up(AB, AC)
    keeping.entered(1, AB, AC)
    keeping.keeper.reported(LinkChanged(LinkRow(sites=AB, removed=True)), keeping.now)
    keeping.passes(JOIN_MS + JITTER_MS)
    assert keeping.wants(ClaimTree).new == TreeRow(epoch=2, links=(AC,))
    assert keeping.keeper.neighbours == [C]


def test_claim_that_failed_is_made_again_until_the_tree_is_as_wanted() -> None:
    keeping = Keeping(AB)
    keeping.up(AB)
    keeping.passes(JOIN_MS + JITTER_MS)
    keeping.wants(ClaimTree).on_done(RegistryUnavailable("no answer"), keeping.now)
    keeping.passes(AGAIN_MS + JITTER_MS)
    keeping.wants(ClaimTree).on_done(False, keeping.now)
    keeping.chosen(1, AB)
    keeping.effects.clear()
    keeping.entered(1, AB)
    keeping.passes(10_000)
    assert not keeping.effects


def test_tree_of_a_registry_that_went_back_is_claimed_above_what_the_log_has_entered() -> None:
    keeping = Keeping(AB, AC)
    keeping.up(AB, AC)
    keeping.entered(5, AB)
    keeping.reload(TreeRow(epoch=2, links=(AB,)), ("A->B", "B->A", "A->C", "C->A"))
    keeping.passes(RELOADED_MS)
    assert keeping.wants(ClaimTree).new == TreeRow(epoch=6, links=(AB, AC))


def test_registry_that_went_back_to_a_tree_of_other_links_gets_a_later_epoch() -> None:
    """The logs have left that tree: without another epoch none of them would enter it again."""
    keeping = Keeping(AB, AC)
    keeping.up(AB, AC)
    keeping.entered(5, AB)
    keeping.reload(TreeRow(epoch=2, links=(AB, AC)), ("A->B", "B->A", "A->C", "C->A"))
    keeping.passes(RELOADED_MS)
    assert keeping.wants(ClaimTree).new == TreeRow(epoch=6, links=(AB, AC))


def test_many_events_at_once_cost_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def counted(*arguments: Any) -> tuple[Edge, ...]:
        nonlocal looks
        looks += 1
        return choose_edges(*arguments)

    monkeypatch.setattr(tree_keeper, "choose_edges", counted)
    links = [edge(SiteId(f"s{number}"), SiteId(f"s{number + 1}")) for number in range(200)]
    keeping = Keeping(*links)
    keeping.up(*links)
    keeping.passes(LOOK_MS)
    assert looks <= 2
    keeping.passes(JOIN_MS + JITTER_MS)
    assert keeping.wants(ClaimTree).new.links == tuple(sorted(links))
    assert looks <= 3


def test_what_is_claimed_is_what_is_wanted_by_the_last_event() -> None:
    keeping = Keeping(AB, BC, AC)
    keeping.up(AB)
    keeping.passes(LOOK_MS)
    due = keeping.keeper.next_deadline()
    keeping.passes(due - keeping.now - 1)
    keeping.up(BC)
    keeping.passes(JOIN_MS + JITTER_MS)
    assert keeping.wants(ClaimTree).new.links == (AB, BC)


def test_links_that_a_registry_has_lost_count_on_and_are_written_again_until_it_has_them() -> None:
    """It was put back from a copy that is older than the link: nothing else removes a row."""
    keeping = Keeping(AB, BC)
    keeping.up(AB, BC)
    keeping.effects.clear()
    keeping.links = (AB,)
    led = tuple(link_name(*ends) for ends in ((A, B), (B, A), (B, C), (C, B)))
    keeping.reload(TreeRow(epoch=1, links=(AB, BC)), led=led)
    keeping.passes(AGAIN_MS + 1)
    restored = [effect.row.sites for effect in keeping.effects if isinstance(effect, RestoreLink)]
    assert restored[:2] == [BC, BC] and set(restored) == {BC}
    assert BC in keeping.keeper._links
    keeping.effects.clear()
    keeping.keeper.reported(LinkChanged(LinkRow(sites=BC)), keeping.now)
    keeping.passes(3 * AGAIN_MS)
    assert not [effect for effect in keeping.effects if isinstance(effect, RestoreLink)]
