"""Bugs in the dispatching tree: which links it has, when a log enters it, and what follows for coverage and filters."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from federation.links import forwarding_filter, tree_keeper
from federation.links.forwarding_filter import ForwardingFilter
from federation.links.link_lease import LinkLease
from federation.links.link_receiver import LinkReceiver
from federation.links.tree_keeper import TreeKeeper
from federation.site.acceptance import Acceptance
from federation.site.events import Event
from federation.site.state import SiteState
from node.machines.forgotten_site import OwnershipStability
from tests.chaos.simulator.mutation import Mutant, replaced
from waypost.clock import NEVER
from waypost.errors import WaypostError
from waypost.identity import Edge, Origin, SiteId
from waypost.records import TreeEntered

_enter, _enter_tree = SiteState._tree_entered, Acceptance.enter_tree
_look = OwnershipStability.look
_pause, _resigned = TreeKeeper._pause_ms, LinkReceiver._resigned


def _look_at_leases_alone(self: OwnershipStability, owners: Any, live: Any, now_ms: int) -> bool:
    _look(self, owners, live, now_ms)
    return not self.unserved


def _uncover_nothing(self: SiteState, origins: Collection[Origin]) -> list[Event]:
    return []


def _keep_filters(self: SiteState, offset: int, record: TreeEntered) -> list[Event]:
    before = dict(self.neighbour_filters)
    events = _enter(self, offset, record)
    self.neighbour_filters = before | self.neighbour_filters
    return events


def _forget_who_left(self: SiteState, offset: int, record: TreeEntered) -> list[Event]:
    events = _enter(self, offset, record)
    self.left_at.clear()
    return events


def _forget_what_moved(self: SiteState, offset: int, record: TreeEntered) -> list[Event]:
    events = _enter(self, offset, record)
    self.moved_at.clear()
    return events


def _first_link_for_ever(self: Acceptance, offset: int, record: TreeEntered) -> list[Origin] | None:
    before = dict(self.upstream)
    moved = _enter_tree(self, offset, record)
    self.upstream = before
    return None if moved is None else []


def _never_given_up(self: TreeKeeper, failed: Collection[Edge], since_ms: int) -> int:
    return NEVER if failed else _pause(self, failed, since_ms)


def _resigned_for_sure(self: LinkReceiver, term: int, error: WaypostError | None, now_ms: int) -> None:
    _resigned(self, term, None, now_ms)


def _all_links(present: Collection[Edge], up: Collection[Edge], leaves: Collection[SiteId]) -> tuple[Edge, ...]:
    return tuple(sorted(up))


@contextmanager
def _not_after_a_repair() -> Iterator[None]:
    with mock.patch.object(TreeKeeper, "folded", lambda self, now_ms: None):
        yield


MUTANTS: list[Mutant] = [
    Mutant(
        "takes a tree of the same epoch for its own",
        "a registry that has gone back, and was given another tree of the epoch that the log is in, is not corrected",
        replaced(TreeKeeper, "_has_gone_back", property(lambda self: self.row.epoch < self._state.tree.epoch)),
        ("STUCK",),
        kept=("99340819",),
    ),
    Mutant(
        "forgets a site at once",
        "a site is forgotten before the new owners of its sessions have written a checkpoint",
        replaced(OwnershipStability, "look", _look_at_leases_alone),
        ("LOST",),
        kept=("mutant-98744659",),
    ),
    Mutant(
        "forwards what nobody asked for",
        "a link forwards all notifications, whatever the neighbour wants",
        replaced(ForwardingFilter, "_wanted", lambda self, body: True),
        ("FLOOD",),
        seeds=(23,),
    ),
    Mutant(
        "keeps what was covered where the link changes",
        "an origin that arrives over another link than before counts as covered without a break",
        replaced(SiteState, "_uncover", _uncover_nothing),
        ("LOST",),
        seeds=(20364, 20467, 20666),
        rule=9,
    ),
    Mutant(
        "keeps the filters of a site that has left the tree",
        "a request is in force as long as the site that made it is down",
        replaced(SiteState, "_tree_entered", _keep_filters),
        ("ASKS", "QUENCH"),
        seeds=(47, 76, 89),
    ),
    Mutant(
        "does not tell a site that its filters were removed meanwhile",
        "a neighbour that comes back to the tree counts on what was not forwarded to it",
        replaced(SiteState, "_tree_entered", _forget_who_left),
        ("LOST",),
        kept=("251_without_the_tree",),
        rule=9,
    ),
    Mutant(
        "does not tell neighbours what arrives over another link",
        "a site behind one that was caught in the change counts as covered",
        replaced(SiteState, "_tree_entered", _forget_what_moved),
        ("LOST",),
        kept=("leaf_behind_a_moved_origin",),
        rule=9,
    ),
    Mutant(
        "takes an origin from the link that brought it first, in any tree",
        "an origin whose link has failed never comes again",
        replaced(Acceptance, "enter_tree", _first_link_for_ever),
        ("STUCK", "LOST", "FAULT"),
        seeds=(11, 41, 45),
    ),
    Mutant(
        "gives up no link",
        "a dead site or link is not routed around",
        replaced(TreeKeeper, "_pause_ms", _never_given_up),
        ("STUCK",),
        seeds=(11, 41, 45),
    ),
    Mutant(
        "leads a link without a lease of it",
        "a link that is cut counts as up",
        replaced(LinkLease, "is_held", lambda self, now_ms: True),
        ("STUCK",),
        seeds=(41,),
    ),
    Mutant(
        "resigns once, whatever the registry answers",
        "the registry names a leader that cannot reach the neighbour",
        replaced(LinkReceiver, "_resigned", _resigned_for_sure),
        ("STUCK",),
        seeds=(76,),
    ),
    Mutant(
        "does not resign again at a registry that was put back",
        "the registry names a leader that had resigned",
        replaced(LinkReceiver, "registry_reloaded", lambda self, now_ms: None),
        ("STUCK",),
        kept=("714000145",),
    ),
    Mutant(
        "leads on although a registry that was put back names nobody",
        "a link that is up counts as failed for ever",
        replaced(LinkReceiver, "registry_changed", lambda self, leaders, now_ms: None),
        ("STUCK", "LOST", "ASKS"),
        kept=("98005348",),
    ),
    Mutant(
        "forwards over all links",
        "requests support each other around a circle, and never end",
        replaced(tree_keeper, "choose_edges", _all_links),
        ("ASKS", "QUENCH", "STUCK"),
        seeds=(47, 61, 82),
    ),
    Mutant(
        "does not name the tree again after a repair",
        "a site whose log was repaired forwards to nobody",
        _not_after_a_repair,
        ("STUCK",),
        kept=("mutant-no-tree-after-a-repair",),
    ),
    Mutant(
        "drops what has passed sixteen sites",
        "a notification does not reach sites that are far away in the tree",
        replaced(forwarding_filter, "MAX_SITES_PASSED", 16),
        ("LOST",),
        scenarios=("a_line_of_twenty_sites",),
    ),
]
