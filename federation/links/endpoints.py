"""One proxy's ends of its site's links, both directions, as one deterministic machine: inputs in, effects out. Pure.

No sockets, no tasks, no clock: it is a :class:`waypost.machine.Machine`. A node performs the effects on real logs and
peers (node/shell/links.py), a simulator on fakes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import partial
from typing import assert_never

from federation.links.bounds import Bounds
from federation.links.effects import Append, Ended, FindFirst, LinkEffect, Resign, SeenBeyond, SendPeer
from federation.links.forwarding_filter import Position, PositionIndex
from federation.links.inputs import (
    LinkEffectCompleted,
    LinkInput,
    LinksLeaseGranted,
    LinksLeaseLost,
    LogAnswers,
    NeighbourSent,
    RecordsFolded,
    RegistryChanged,
)
from federation.links.link_receiver import LinkReceiver, Pulling, Rows
from federation.links.link_sender import LinkSender, Sending
from federation.links.tree_keeper import TreeKeeper
from federation.messages import (
    NO_OPENING,
    LeaseGranted,
    LeaseRequest,
    LinkAppended,
    LinkMessage,
    LinkOpen,
    LinkRecords,
    LinkWants,
)
from federation.ports import Batch, Reloaded
from federation.site.acceptance import Acceptance, LogMark
from federation.site.state import NeighbourFilters, SiteState
from waypost.errors import HistoryTruncated, WaypostError
from waypost.identity import NOTHING, Origin, ProxyId, SiteId, link_name, site_of
from waypost.keys import OPEN, Protection
from waypost.records import FiltersRequested, LinkLed, Repaired, TreeEntered
from waypost.subscription import parse


class LinkEndpoints:
    """The pulling ends of incoming links, and the sending ends of outgoing ones.

    Args:
        state: our site's state, as this proxy folds it.
        rows: returns the live proxies of a site, by the registry's watch.
        rng: for jitter and claims.
        bounds: of the queues and batches; None: those of waypost/limits.py.
    """

    def __init__(self, state: SiteState, rows: Rows, rng: random.Random, bounds: Bounds | None = None) -> None:
        self._state = state
        self._bounds = bounds = bounds or Bounds()
        self.index = PositionIndex(bounds.position_every)
        self._effects: list[LinkEffect] = []
        self._tree_keeper = TreeKeeper(state, rows, rng, self._emit)
        self._has_lease, self._log_answers = False, True
        self._rows, self._rng = rows, rng
        self._receivers = {site: self._new_receiver(site) for site in state.neighbours}
        self._senders: dict[SiteId, LinkSender] = {}
        self._early: dict[SiteId, tuple[ProxyId, LinkOpen]] = {}
        """The last opening of each neighbour in a later tree than our log's."""
        self._opened: dict[SiteId, tuple[int, int]] = {}
        """Epoch and serial of the last opening of each neighbour, also when its end has ended: it counts once."""
        self._late: dict[SiteId, Position] = {}
        """Positions of sending ends that can begin, and have not yet."""
        self._pending_filters: dict[SiteId, FiltersRequested] = {}
        """The last request of each neighbour that is, or will be, under way to the log."""
        self._latest_requests: dict[SiteId, FiltersRequested] = {}
        """The last request that each neighbour sent."""
        self._written: dict[SiteId, FiltersRequested] = {}
        """The last request of each neighbour that was appended, or is under way; the state may not have it yet."""

    def _new_receiver(self, site: SiteId) -> LinkReceiver:
        return LinkReceiver(site, self._state, self._rows, self._rng, self._emit, self._bounds)

    def _emit(self, effect: LinkEffect) -> None:
        self._effects.append(effect)

    def _drain(self) -> list[LinkEffect]:
        effects, self._effects = self._effects, []
        return effects

    @property
    def neighbours(self) -> list[SiteId]:
        """The sites that the registry knows links with, in the tree or standing by."""
        return self._tree_keeper.neighbours

    @property
    def leading(self) -> list[SiteId]:
        """The neighbours whose links to this site this proxy leads."""
        return [neighbour for neighbour, link in self._receivers.items() if link.epoch]

    def shown(self, now_ms: int) -> tuple[list[Pulling], list[Sending]]:
        """Return the states of all ends, for operators."""
        return [link.shown(now_ms) for link in self._receivers.values()], [
            link.shown() for link in self._senders.values()
        ]

    def queues(self) -> Iterator[tuple[str, int, int]]:
        """Yield the queues of all ends: name, records, and the bound of records."""
        for sending in self._senders.values():
            yield from sending.queues()
        for pulling in self._receivers.values():
            yield from pulling.queues()

    # ------------------------------------------------------------ inputs

    def step(self, input: LinkInput, now_ms: int) -> list[LinkEffect]:
        """Take one input at `now_ms`; return the effects, to be performed in order.

        Raises:
            Refused: an expression in a neighbour's message is not valid.
        """
        match input:
            case RecordsFolded(batch):
                self._folded(batch, now_ms)
            case NeighbourSent(peer, message):
                self._neighbour_sent(peer, message, now_ms)
            case LinkEffectCompleted(on_done, result):
                on_done(result, now_ms)
            case RegistryChanged(event):
                self._tree_keeper.reported(event, now_ms)
                self._follow_links(now_ms)
                for link in self._receivers.values():
                    link.proxies_changed(now_ms)
                    link.registry_changed(self._tree_keeper.led, now_ms)
                    if isinstance(event, Reloaded):
                        link.registry_reloaded(now_ms)
            case LogAnswers(answers):
                self._log_answers = answers
            case LinksLeaseGranted():
                self._has_lease = True
                for link in self._receivers.values():
                    link.lease_granted(now_ms)
                self._tree_keeper.lease_granted(now_ms)
            case LinksLeaseLost():
                self._has_lease = False
                for link in self._receivers.values():
                    link.lease_ended()
                self._tree_keeper.lease_ended()
            case _:
                assert_never(input)
        return self._drain()

    def _follow_links(self, now_ms: int) -> None:
        """Have a pulling end for each neighbour that the registry knows a link with, and for those of the tree."""
        neighbours = {*self._tree_keeper.neighbours, *self._state.neighbours}
        for site in sorted(neighbours.difference(self._receivers)):
            link = self._receivers[site] = self._new_receiver(site)
            if self._has_lease:
                link.lease_granted(now_ms)
        for site in sorted(self._receivers.keys() - neighbours):
            self._receivers.pop(site).lease_ended()
            self._emit(Resign(link_name(site, self._state.site), lambda error, now_ms: None))

    def _tree_entered(self, now_ms: int) -> None:
        """Serve openings of the tree that our log has entered, and no other ones."""
        for site, link in list(self._senders.items()):
            if link.opening.tree_epoch != self._state.tree.epoch:
                link.close()
                del self._senders[site]
                self._late.pop(site, None)
        for known in (self._latest_requests, self._written):
            known.clear()
        self._follow_links(now_ms)
        early, self._early = self._early, {}
        for peer, message in early.values():
            if not self._is_outlived(peer, message):
                self._open(peer, message, now_ms)

    def _folded(self, batch: Batch, now_ms: int) -> None:
        for _, record in batch:
            if isinstance(record, Repaired):
                # Requests are removed; neighbours send them again, and they are written again.
                self._written.clear()
        if any(isinstance(record, TreeEntered | Repaired) for _, record in batch):
            self._tree_entered(now_ms)
        for site in {record.link for _, record in batch if isinstance(record, FiltersRequested)}:
            self._append_filters_again(site)
            self._end_if_outlived(site)
        for sending in list(self._senders.values()):
            self._begin_if_requested(sending, now_ms)
            sending.feed(batch, now_ms)
        self.index.note(self._state.position, self._state.acceptance)
        for _, record in batch:
            if isinstance(record, LinkLed) and record.link in self._receivers:
                self._receivers[record.link].named(record, now_ms)
        for pulling in self._receivers.values():
            pulling.folded(now_ms)
        self._tree_keeper.folded(now_ms)

    def _neighbour_sent(self, peer: ProxyId, message: LinkMessage, now_ms: int) -> None:
        match message:
            case LinkRecords():
                if message.site in self._receivers:
                    self._receivers[message.site].receive(peer, message, now_ms)
            case LinkAppended():
                link = self._senders.get(message.site)
                if link and (link.peer, _name(link.opening)) == (peer, (message.epoch, message.opening)):
                    link.appended(message.count, now_ms)
            case LinkOpen():
                if not self._is_outlived(peer, message):
                    self._open(peer, message, now_ms)
            case LinkWants():
                is_of_tree = message.tree_epoch == self._state.tree.epoch
                if is_of_tree and not self._is_outlived(peer, message):
                    self._append_filters(_asked(message))
            case LeaseRequest():
                if self._has_lease and self._log_answers:
                    self._emit(SendPeer(peer, LeaseGranted(self._state.site, message.number)))
            case LeaseGranted():
                if message.site in self._receivers:
                    self._receivers[message.site].granted(message, now_ms)
            case _:
                assert_never(message)

    def tick(self, now_ms: int) -> list[LinkEffect]:
        """Do what is due at `now_ms`; return the effects, in order."""
        for link in self._all():
            link.tick(now_ms)
        self._tree_keeper.tick(now_ms)
        return self._drain()

    def next_deadline(self) -> int:
        """Return when :meth:`tick` is due, in ms of the caller's clock; NEVER: nothing but other inputs is waited
        for.
        """
        return min([self._tree_keeper.next_deadline(), *(link.next_deadline() for link in self._all())])

    def _all(self) -> list[LinkReceiver | LinkSender]:
        return [*self._receivers.values(), *self._senders.values()]

    # ------------------------------------------------------------ requests of neighbours

    def _is_outlived(self, peer: ProxyId, message: LinkOpen | LinkWants) -> bool:
        """Tell whether a later request for that link is known; if so, send its epoch and serial to the peer.

        The peer may be elected by the registry all the same, if the registry was lost meanwhile.
        """
        requested = self._state.neighbour_filters.get(message.site, NeighbourFilters())
        last = max((requested.epoch, requested.serial), self._opened.get(message.site, (0, 0)))
        if _name(message) < last:
            epoch, serial = last
            self._emit(
                SendPeer(
                    peer, LinkRecords(site=self._state.site, epoch=epoch, opening=NO_OPENING, number=serial, records=[])
                )
            )
        return _name(message) < last

    def _end_if_outlived(self, site: SiteId) -> None:
        """End a sending end if the log has a request of a later leader: the old one opens again, and is told of it."""
        sending, requested = self._senders.get(site), self._state.neighbour_filters.get(site, NeighbourFilters())
        if sending is not None and sending.opening.epoch < requested.epoch:
            sending.close()
            self._ended(site, None, f"its leader of epoch {requested.epoch} has spoken since")

    def _open(self, peer: ProxyId, message: LinkOpen, now_ms: int) -> None:
        """Serve an opening in place of an earlier one; a late or duplicate one is ignored."""
        site = message.site
        if message.tree_epoch > self._state.tree.epoch:
            self._early[site] = (peer, message)
            return
        is_of_tree = message.tree_epoch == self._state.tree.epoch and site in self._state.neighbours
        if not is_of_tree or _name(message) <= self._opened.get(site, (0, 0)):
            return
        self._check(site, message.installations)
        self._opened[site] = _name(message)
        self._compare(message.frontier)
        if site in self._senders:
            self._senders[site].close()
            self._late.pop(site, None)
        link = LinkSender(peer, message, self._state, self._emit, partial(self._ended, site), self._bounds)
        self._senders[site] = link
        self._append_filters(_asked(message))
        start = self.index.position_for(message.frontier)
        if start is not None:
            self._late[site] = start
            self._begin_if_requested(link, now_ms)
        else:
            self._emit(FindFirst(partial(self._begin, link)))

    def _compare(self, far: Mapping[Origin, int]) -> None:
        """Report a neighbour that has seen more of our log than we have, or than is known to be lost."""
        state = self._state
        for origin, offset in far.items():
            ended = state.ended.get(origin)
            # Of an origin of ours a neighbour knows the offsets of notifications, and where it began.
            known = state.frontier[origin] if origin == state.origin else ended.seen if ended else offset
            if site_of(origin) == state.site and offset > known:
                self._emit(SeenBeyond(origin, offset))

    def _begin(self, link: LinkSender, first: int | WaypostError, now_ms: int) -> None:
        if self._senders.get(link.opening.site) is not link:
            return
        if isinstance(first, WaypostError):
            self._ended(link.opening.site, first)
        else:
            mark = LogMark(log_epoch=self._state.log_epoch_at(first))
            acceptance = Acceptance(self._state.site, mark=mark)
            self._late[link.opening.site] = Position(first, acceptance, gone=first > 0)
            self._begin_if_requested(link, now_ms)

    def _begin_if_requested(self, link: LinkSender, now_ms: int) -> None:
        """Begin sending once our state has the neighbour's filters: those that were lost with the log's beginning,
        or could not be read, may be missing from it, and their matches would not be sent.
        """
        opening = link.opening
        start, requested = (
            self._late.get(opening.site),
            self._state.neighbour_filters.get(opening.site, NeighbourFilters()),
        )
        asked = (requested.epoch, requested.serial) >= _name(opening) or self._installed(
            opening.site
        ) == opening.installations
        # Nothing has removed filters: neither retention, nor a repair, nor a tree without the neighbour.
        sure = start is not None and not start.gone and self._state.repaired == NOTHING
        sure = sure and opening.site not in self._state.left_at
        if start is not None and not self._state.is_broken and (asked or sure):
            del self._late[opening.site]
            link.begin(start, now_ms)

    def _ended(self, site: SiteId, error: WaypostError | None, why: str = "nothing is acknowledged") -> None:
        del self._senders[site]
        self._late.pop(site, None)
        if isinstance(error, HistoryTruncated):
            self.index.forget(error.first)
        self._emit(Ended(site, str(error) if error else why))

    def _append_filters(self, request: FiltersRequested) -> None:
        """Install a neighbour's filters by an append to the log; one of each neighbour is under way at a time."""
        if request.link not in self._state.neighbours:
            return
        self._check(request.link, request.installations)
        if _rank(request) >= _rank(self._latest_requests.get(request.link, request)):
            self._latest_requests[request.link] = request
        last = self._pending_filters.get(request.link)
        if last is not None:
            if _rank(request) > _rank(last):
                self._pending_filters[request.link] = request
        elif self._standing(request.link) != (request.installations, request.protections):
            before = self._written.get(request.link)
            self._pending_filters[request.link] = self._written[request.link] = request
            self._emit(Append([request], partial(self._on_filters_appended, request, before)))
        else:
            self._applied_serial(request)

    def _append_filters_again(self, site: SiteId) -> None:
        """Append the last request of a neighbour again if the log has an older one since: that may have been long
        under way, through another proxy, so that the last one did not seem to need an append.
        """
        latest, requested = self._latest_requests.get(site), self._state.neighbour_filters.get(site, NeighbourFilters())
        if latest is not None and _rank(latest) > (requested.epoch, requested.serial):
            self._append_filters(latest)

    def _on_filters_appended(
        self, request: FiltersRequested, before: FiltersRequested | None, answer: list[int] | WaypostError, now_ms: int
    ) -> None:
        """Record the answer of the log. After a failure the neighbour sends its request again."""
        if not isinstance(answer, WaypostError):
            self._applied_serial(request)
        else:
            self._not_applied(request)
            if before is None:
                self._written.pop(request.link, None)
            else:
                self._written[request.link] = before
        last = self._pending_filters.pop(request.link)
        if last is not request:
            self._append_filters(last)

    def _applied_serial(self, request: FiltersRequested) -> None:
        """Record that the neighbour's last request is in force: it need not be sent again."""
        if (link := self._link_of(request)) is not None:
            link.applied_serial = max(link.applied_serial, request.serial)

    def _not_applied(self, request: FiltersRequested) -> None:
        """Record that the neighbour's request is not known to be in force, though that may have been said of it: an
        earlier one has come to the log since, and this one was to correct that.
        """
        if (link := self._link_of(request)) is not None:
            link.applied_serial = min(link.applied_serial, request.serial - 1)

    def _link_of(self, request: FiltersRequested) -> LinkSender | None:
        """Return the sending end to the leader that has sent the request; None: it has none, or another one leads."""
        link = self._senders.get(request.link)
        return link if link is not None and link.opening.epoch == request.link_epoch else None

    def _check(self, site: SiteId, installations: Mapping[str, int]) -> None:
        """Raise Refused if an expression is not valid. Those in force were checked before: there may be many."""
        known, _ = self._standing(site)
        for expression in installations.keys() - known.keys():
            parse(expression)

    def _standing(self, site: SiteId) -> tuple[Mapping[str, int], Mapping[str, tuple[Protection, ...]]]:
        """Return a neighbour's filters and their keys as the log has them, folded or not."""
        requested, written = self._state.neighbour_filters.get(site, NeighbourFilters()), self._written.get(site)
        if written is not None and _rank(written) > (requested.epoch, requested.serial):
            return written.installations, written.protections
        by = {text: found.protections for text, found in requested.filters.items() if found.protections != (OPEN,)}
        return self._installed(site), by

    def _installed(self, site: SiteId) -> Mapping[str, int]:
        requested = self._state.neighbour_filters.get(site)
        return {text: found.installation for text, found in requested.filters.items()} if requested else {}


def _name(opening: LinkOpen | LinkWants) -> tuple[int, int]:
    return opening.epoch, opening.serial


def _asked(message: LinkOpen | LinkWants) -> FiltersRequested:
    filters, protections = message.installations, message.protections
    return FiltersRequested(
        message.site, message.epoch, message.serial, filters, protections, tree_epoch=message.tree_epoch
    )


def _rank(request: FiltersRequested) -> tuple[int, int]:
    return request.link_epoch, request.serial
