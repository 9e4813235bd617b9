"""Keeps the dispatching tree: has the registry name one of links that are up, and has the site's log enter it. Pure.

Every proxy with a lease does so. Of those that claim another tree the registry's compare-and-set lets one win; of those
that append the record of one tree the first counts. A link is up if both its directions are led, for whoever leads one
holds a lease of the neighbour (federation/links/link_lease.py).

A link that connects what is not connected is taken at once. One that has failed is given up a moment later: another
proxy of the site may be about to lead it.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from functools import partial

from federation.links.effects import AppendRecords, ClaimTree, RestoreLink
from federation.links.neighbour_proxies import NeighbourProxies
from federation.links.output import LinkOutput
from federation.ports import (
    LeaderChanged,
    LinkChanged,
    LinkRow,
    ProxyDown,
    RegistryEvent,
    Reloaded,
    TreeChosen,
    TreeRow,
)
from federation.site.dispatching_tree import choose_edges
from federation.site.state import SiteState
from waypost.clock import NEVER
from waypost.errors import WaypostError
from waypost.identity import Edge, ProxyId, SiteId, link_name
from waypost.records import TreeEntered

JOIN_MS = 200
"""Time for which other links may come up before a tree with more of them is claimed."""
FAILED_MS = 500
"""Time after which a link that is led in no direction counts as failed."""
HALF_FAILED_MS = 3_000
"""Time after which one that is led in one direction, between sites that live, counts as failed: the other direction may
be about to have a leader.
"""
RELOADED_MS = 10_000
"""Time for which no link counts as failed after a break of the registry's watch."""
LOOK_MS = 20
"""Least time between two looks for a better tree: each takes all links into account, and events come in bursts."""
JITTER_MS = 100
AGAIN_MS = 1_000
"""Pause before what failed is tried again."""


class TreeKeeper:
    """The tree as this proxy knows it from the registry.

    Args:
        state: our site's state, as this proxy folds it.
        proxies: by site.
        rng: for jitter.
        output: takes the effects.
    """

    def __init__(self, state: SiteState, proxies: NeighbourProxies, rng: random.Random, output: LinkOutput) -> None:
        self._state = state
        self._proxies = proxies
        self._rng = rng
        self._output = output
        self.row = TreeRow()
        self._links: dict[Edge, LinkRow] = {}
        self.leaders: dict[str, ProxyId] = {}
        """The leader of each link that has one."""
        self._was_loaded = self._has_lease = False
        self._spared_until_ms = 0
        self._wanted: tuple[Edge, ...] | None = None
        """The edges that the tree is to have; None: it has them."""
        self._since_ms = self._jitter_ms = 0
        """The time since which the tree is to be another one, and this proxy's own delay of its claim."""
        self._is_claiming = False
        self._lost: dict[Edge, LinkRow] = {}
        """Links that the registry has no row of any more: it was put back from an older copy. Nothing else removes one;
        they count as before.
        """
        self._restore_ms = NEVER
        self._claim_ms = self._enter_ms = self._look_ms = NEVER
        self._looked_ms = -LOOK_MS
        """The time of its last look."""

    @property
    def neighbours(self) -> list[SiteId]:
        """The sites that this one has a link with in the registry, in the tree or standing by; removed links do not
        count.
        """
        own = self._state.site
        return [other for link in self._links.values() if not link.removed for other in _far_ends(link, own)]

    def lease_granted(self, now_ms: int) -> None:
        """Handle that this proxy has a lease: claim trees in the registry, and append them to the log, from now on."""
        self._has_lease = True
        self._look_soon(now_ms)

    def lease_ended(self) -> None:
        """Handle that this proxy's lease has ended, or may have: claim nothing, and append nothing, until
        :meth:`lease_granted`.
        """
        self._has_lease = False
        self._claim_ms = self._enter_ms = self._look_ms = NEVER
        self._wanted, self._is_claiming = None, False

    def reported(self, event: RegistryEvent, now_ms: int) -> None:
        """Take the next event of the registry's watch; an event that concerns neither links, leaders, tree nor the end
        of a proxy changes nothing. Whether another tree is better is looked at in a later :meth:`tick`.

        Args:
            now_ms: by the caller's clock, which never steps back.
        """
        match event:
            case Reloaded(links=links, leaders=leaders, tree=tree):
                self._lost = {edge: row for edge, row in self._links.items() if edge not in links}
                self._restore_ms = now_ms if self._lost else NEVER
                self._links, self.row = {**links, **self._lost}, tree
                self.leaders = {link: proxy for link, (proxy, _) in leaders.items()}
                if self._was_loaded:
                    self._spared_until_ms = now_ms + RELOADED_MS
                self._was_loaded = True
            case LinkChanged(row):
                self._links[row.sites] = row
                self._lost.pop(row.sites, None)
            case LeaderChanged(link, None, _):
                self.leaders.pop(link, None)
            case LeaderChanged(link, str() as proxy, _):
                self.leaders[link] = ProxyId(proxy)
            case TreeChosen(row):
                self.row = row
            case ProxyDown():
                # It may have been the last one of its site, which then leads no other direction.
                pass
            case _:
                return
        self._look_soon(now_ms)

    def folded(self, now_ms: int) -> None:
        """Handle that the site's state was folded further: the log may have entered the tree of the registry."""
        if self._state.tree.epoch >= self.row.epoch:
            self._enter_ms = NEVER
        elif self._enter_ms == NEVER:
            # A repair of the log has removed it.
            self._look_soon(now_ms)

    def _look_soon(self, now_ms: int) -> None:
        if self._has_lease and self._was_loaded:
            self._look_ms = min(self._look_ms, max(now_ms, self._looked_ms + LOOK_MS))

    def _look(self, now_ms: int) -> None:
        """Set when to claim which tree, and when to enter that of the registry."""
        self._look_ms, self._looked_ms = NEVER, now_ms
        if self.row.epoch > self._state.tree.epoch and self._enter_ms == NEVER:
            self._enter_ms = now_ms + self._rng.randrange(JITTER_MS)
        present = self.row.links
        up = [
            link.sites for link in self._links.values() if not link.removed and len(self._directions(link.sites)) == 2
        ]
        leaves = {site for link in self._links.values() if not link.removed for site in link.leaves}
        wanted = choose_edges(present, up, leaves)
        if wanted == present and not self._has_gone_back:
            self._wanted, self._claim_ms = None, NEVER
            return
        if wanted != self._wanted:
            self._wanted, self._is_claiming = wanted, False
            self._since_ms, self._jitter_ms = now_ms, self._rng.randrange(JITTER_MS)
        if not self._is_claiming:
            pause_ms = self._pause_ms(set(present).difference(wanted), self._since_ms)
            self._claim_ms = self._since_ms + pause_ms + self._jitter_ms

    @property
    def _has_gone_back(self) -> bool:
        """Whether the registry's row is neither that of the tree that the log has entered nor a later one: the registry
        was restored from an older copy, and a site whose log had lost its end may have claimed the same epoch anew.
        """
        tree, row = self._state.tree, self.row
        return row.epoch < tree.epoch or (row.epoch == tree.epoch > 0 and row.links != tree.edges)

    def _pause_ms(self, failed: Collection[Edge], since_ms: int) -> int:
        if not failed:
            return JOIN_MS
        # An operator's change is followed at once: a link was removed, or would pass something on at a leaf.
        is_changed = [
            len(self._directions(edge)) == 2 or (edge in self._links and self._links[edge].removed) for edge in failed
        ]
        if all(is_changed):
            return JOIN_MS
        may_return = [edge for edge in failed if self._directions(edge) and all(map(self._proxies.of, edge))]
        pause_ms = HALF_FAILED_MS if may_return else FAILED_MS
        return max(pause_ms, self._spared_until_ms - since_ms)

    def _directions(self, edge: Edge) -> list[str]:
        one, other = edge
        return [link for link in (link_name(one, other), link_name(other, one)) if link in self.leaders]

    # ------------------------------------------------------------ time

    def tick(self, now_ms: int) -> None:
        """Look for a better tree, emit its claim in the registry, emit the append of the registry's tree to the log,
        and have rows of links restored that the registry has lost, each if due at `now_ms`.
        """
        if now_ms >= self._restore_ms:
            self._restore_ms = now_ms + AGAIN_MS if self._lost else NEVER
            if self._has_lease:
                for row in self._lost.values():
                    self._output.emit(RestoreLink(row, _ignore))
        # The claimed tree is the one that follows from all that was reported.
        if self._look_ms != NEVER and now_ms >= min(self._look_ms, self._claim_ms):
            self._look(now_ms)
        if now_ms >= self._claim_ms and self._wanted is not None:
            self._is_claiming, self._claim_ms = True, NEVER
            new = TreeRow(epoch=max(self.row.epoch, self._state.tree.epoch) + 1, links=self._wanted)
            self._output.emit(ClaimTree(self.row, new, partial(self._claimed, new)))
        if now_ms >= self._enter_ms:
            self._enter_ms = now_ms + AGAIN_MS
            if self.row.epoch > self._state.tree.epoch:
                self._output.emit(AppendRecords([TreeEntered(self.row.epoch, self.row.links)], _ignore))

    def _claimed(self, new: TreeRow, answer: bool | WaypostError, now_ms: int) -> None:
        """Take the outcome of a claim: the watch reports who won. A failed claim is made again."""
        self._is_claiming = False
        if answer is True and new.epoch > self.row.epoch:
            self.row = new
        self._since_ms = max(self._since_ms, now_ms + AGAIN_MS - JOIN_MS)
        self._look_soon(now_ms)

    def next_deadline(self) -> int:
        """Return when :meth:`tick` has something to do, in ms of the caller's clock; NEVER: nothing."""
        return min(self._claim_ms, self._enter_ms, self._look_ms, self._restore_ms)


def _far_ends(link: LinkRow, own: SiteId) -> list[SiteId]:
    return [other for other in link.sites if other != own] if own in link.sites else []


def _ignore(answer: list[int] | WaypostError | None, now_ms: int) -> None:
    """What comes of it is read in the log, or reported by the watch."""
