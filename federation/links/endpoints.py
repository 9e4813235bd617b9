"""One proxy's ends of its site's links, both directions, as one deterministic machine: inputs in, effects out. Pure.

No sockets, no tasks, no clock: it is a :class:`waypost.machine.Machine`. A node performs the effects on real logs and
peers (node/shell/links.py), a simulator on fakes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import partial
from typing import assert_never

from federation.links.bounds import LinkBounds
from federation.links.effects import Ended, EnteredTree, FindFirst, LinkEffect, Resign, SeenBeyond, SendNeighbour
from federation.links.filter_exchange import FilterInstaller, request_of
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
from federation.links.link_receiver import LinkReceiver, ReceiverView
from federation.links.link_sender import LinkSender, SenderView
from federation.links.neighbour_proxies import NeighbourProxies
from federation.links.output import LinkOutput, RequestAnswered, SendingEnded
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
from federation.ports import Batch, LinkChanged, Reloaded
from federation.site.acceptance import Acceptance, LogMark
from federation.site.neighbour_filters import rank_of
from federation.site.state import SiteState
from waypost.errors import BadMessage, HistoryTruncated, WaypostError
from waypost.identity import NOTHING, Origin, ProxyId, SiteId, link_name, site_of
from waypost.records import FiltersRequested, LinkLed, Repaired, RequestPart, TreeEntered
from waypost.subscription import parse


class LinkEndpoints:
    """The receiving ends of incoming links, and the sending ends of outgoing ones.

    Args:
        state: our site's state, as this proxy folds it.
        rng: for jitter and claims.
        bounds: of the queues and batches; None: those of waypost/limits.py.
    """

    def __init__(self, state: SiteState, rng: random.Random, bounds: LinkBounds | None = None) -> None:
        self._state = state
        self._bounds = bounds = bounds or LinkBounds()
        self.index = PositionIndex(bounds.position_every)
        self._output = LinkOutput()
        self._proxies = NeighbourProxies()
        self._tree_keeper = TreeKeeper(state, self._proxies, rng, self._output)
        self._has_lease, self._log_answers = False, True
        self._rng = rng
        self._receivers = {site: self._new_receiver(site) for site in state.neighbours}
        self._senders: dict[SiteId, LinkSender] = {}
        self._early: dict[SiteId, tuple[ProxyId, LinkOpen]] = {}
        """The last opening of each neighbour that cannot be served yet: it is of a later tree than our log's, or this
        process has had no lease so far.
        """
        self._has_served = False
        """Whether this process has had a lease. Before that it has not confirmed its log (handover rule 27), and must
        send nothing of it: what a neighbour has seen tells a lost end.
        """
        self._opened: dict[SiteId, tuple[int, int]] = {}
        """Epoch and serial of the last opening of each neighbour, also when its end has ended: it counts once."""
        self._late: dict[SiteId, Position] = {}
        """Positions of sending ends that can begin, and have not yet."""
        self._reported_tree = state.tree.epoch
        """The epoch of the tree that operators were told of last."""
        self._installers: dict[SiteId, FilterInstaller] = {}
        """What becomes of the requests of each neighbour."""

    def _new_receiver(self, site: SiteId) -> LinkReceiver:
        return LinkReceiver(site, self._state, self._proxies, self._rng, self._output, self._bounds)

    @property
    def neighbours(self) -> list[SiteId]:
        """The sites that this one has a link with in the registry, in the tree or standing by; removed links do not
        count.
        """
        return self._tree_keeper.neighbours

    @property
    def leading(self) -> list[SiteId]:
        """The neighbours whose links to this site this proxy leads."""
        return [neighbour for neighbour, link in self._receivers.items() if link.epoch]

    def shown(self, now_ms: int) -> tuple[list[ReceiverView], list[SenderView]]:
        """Return the states of all receiving ends, and of all sending ends, for operators.

        Args:
            now_ms: of the caller's clock.
        """
        leaders, site = self._tree_keeper.leaders, self._state.site
        pulling = [
            link.shown(now_ms)._replace(
                leader=leaders.get(link_name(neighbour, site)), puller=leaders.get(link_name(site, neighbour))
            )
            for neighbour, link in self._receivers.items()
        ]
        return pulling, [link.shown() for link in self._senders.values()]

    def queues(self) -> Iterator[tuple[str, int, int]]:
        """Yield each queue of all ends: its name, the number of records in it, and the bound of that number."""
        for sending in self._senders.values():
            yield from sending.queues()
        for pulling in self._receivers.values():
            yield from pulling.queues()

    # ------------------------------------------------------------ inputs

    def step(self, input: LinkInput, now_ms: int) -> list[LinkEffect]:
        """Take one input at `now_ms`; return the effects, to be performed in order.

        An effect with `on_done` is answered by a :class:`LinkEffectCompleted`, in any order, at any later time.

        Args:
            input: what has happened. Records are folded into the site's state before their RecordsFolded comes here.
            now_ms: of the caller's clock, which never steps back.

        Raises:
            Refused: an expression in a neighbour's message is not valid, or the message names another site than its
                sender's. Effects of this input that were emitted before come with the next call.
        """
        match input:
            case RecordsFolded(batch):
                self._folded(batch, now_ms)
            case NeighbourSent(peer, message):
                self._neighbour_sent(peer, message, now_ms)
            case LinkEffectCompleted(on_done, result):
                on_done(result, now_ms)
            case RegistryChanged(event):
                self._proxies.reported(event)
                self._tree_keeper.reported(event, now_ms)
                if isinstance(event, Reloaded | LinkChanged):
                    self._follow_links(now_ms)
                for link in self._receivers.values():
                    link.proxies_changed(now_ms)
                    link.registry_changed(self._tree_keeper.leaders, now_ms)
                    if isinstance(event, Reloaded):
                        link.registry_reloaded(now_ms)
            case LogAnswers(answers):
                self._log_answers = answers
            case LinksLeaseGranted():
                self._has_lease = self._has_served = True
                for link in self._receivers.values():
                    link.lease_granted(now_ms)
                self._tree_keeper.lease_granted(now_ms)
                self._open_early(now_ms)
            case LinksLeaseLost():
                self._has_lease = False
                for link in self._receivers.values():
                    link.lease_ended()
                self._tree_keeper.lease_ended()
            case _:
                assert_never(input)
        self._handle_events(now_ms)
        return self._output.drain_effects()

    def _handle_events(self, now_ms: int) -> None:
        """Handle what the ends have reported; this dispatch alone says which other end it concerns."""
        while (event := self._output.next_event()) is not None:
            match event:
                case SendingEnded(site, error):
                    if site in self._senders and self._senders[site].is_closed:
                        self._ended(site, error)
                case RequestAnswered(request, is_applied):
                    link = self._senders.get(request.link)
                    if link is not None and link.opening.epoch == request.link_epoch:
                        link.answer(request.serial, now_ms, is_applied=is_applied)
                case _:
                    assert_never(event)

    def _follow_links(self, now_ms: int) -> None:
        """Have a receiving end for each neighbour that the registry knows a link with, and for those of the tree."""
        neighbours = {*self._tree_keeper.neighbours, *self._state.neighbours}
        for site in sorted(neighbours.difference(self._receivers)):
            link = self._receivers[site] = self._new_receiver(site)
            if self._has_lease:
                link.lease_granted(now_ms)
        for site in sorted(self._receivers.keys() - neighbours):
            self._receivers.pop(site).lease_ended()
            self._output.emit(Resign(link_name(site, self._state.site), lambda error, now_ms: None))

    def _tree_entered(self, now_ms: int) -> None:
        """Serve openings of the tree that our log has entered, and no other ones."""
        for site, link in list(self._senders.items()):
            if link.opening.tree_epoch != self._state.tree.epoch:
                link.close()
                del self._senders[site]
                self._late.pop(site, None)
        self._installers.clear()
        tree = self._state.tree
        if tree.epoch > self._reported_tree:
            self._reported_tree = tree.epoch
            self._output.emit(EnteredTree(tree.epoch, tree.edges))
        self._follow_links(now_ms)
        self._open_early(now_ms)

    def _open_early(self, now_ms: int) -> None:
        early, self._early = self._early, {}
        for peer, message in early.values():
            if not self._is_outlived(peer, message):
                self._open(peer, message, now_ms)

    def _folded(self, batch: Batch, now_ms: int) -> None:
        if any(isinstance(record, TreeEntered | Repaired) for _, record in batch):
            self._tree_entered(now_ms)
        for site in {record.link for _, record in batch if isinstance(record, FiltersRequested)}:
            self._end_if_outlived(site)
        if self._early:
            self._open_early(now_ms)
        for installer in list(self._installers.values()):
            installer.folded()
        self._handle_events(now_ms)
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
        if (site := self._proxies.site_of(peer)) not in (None, message.site):
            raise BadMessage(f"a proxy of site {site} speaks for site {message.site}")
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
                    self._compare(message.frontier)
                    self._open(peer, message, now_ms)
            case LinkWants():
                is_of_tree = message.tree_epoch == self._state.tree.epoch
                if is_of_tree and not self._is_outlived(peer, message):
                    self._take_request(request_of(message))
            case LeaseRequest():
                if self._has_lease and self._log_answers:
                    self._output.emit(SendNeighbour(peer, LeaseGranted(self._state.site, message.number)))
            case LeaseGranted():
                if message.site in self._receivers:
                    self._receivers[message.site].granted(message, now_ms)
            case _:
                assert_never(message)

    def tick(self, now_ms: int) -> list[LinkEffect]:
        """Do what is due at `now_ms`, as :meth:`next_deadline` says; return the effects, to be performed in order."""
        for link in self._all():
            link.tick(now_ms)
        self._tree_keeper.tick(now_ms)
        self._handle_events(now_ms)
        return self._output.drain_effects()

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
        requested = self._state.filters_of(message.site)
        last = max(requested.rank, self._opened.get(message.site, (0, 0)))
        if _name(message) < last:
            epoch, serial = last
            self._output.emit(
                SendNeighbour(
                    peer, LinkRecords(site=self._state.site, epoch=epoch, opening=NO_OPENING, number=serial, records=[])
                )
            )
        return _name(message) < last

    def _end_if_outlived(self, site: SiteId) -> None:
        """End a sending end if the log has a request of a later leader: the old one opens again, and is told of it."""
        sending, requested = self._senders.get(site), self._state.filters_of(site)
        if sending is not None and sending.opening.epoch < requested.epoch:
            sending.close()
            self._ended(site, None, f"its leader of epoch {requested.epoch} has spoken since")

    def _open(self, peer: ProxyId, message: LinkOpen, now_ms: int) -> None:
        """Serve an opening in place of an earlier one, now or once that may be; a late or duplicate one is ignored."""
        site = message.site
        if self._is_early(message):
            self._early[site] = (peer, message)
            return
        is_of_tree = message.tree_epoch == self._state.tree.epoch and site in self._state.neighbours
        if not is_of_tree or _name(message) <= self._opened.get(site, (0, 0)):
            return
        self._opened[site] = _name(message)
        if site in self._senders:
            self._senders[site].close()
            self._late.pop(site, None)
        link = LinkSender(peer, message, self._state, self._output, self._bounds)
        self._senders[site] = link
        self._take_request(request_of(message))
        start = self.index.position_for(message.frontier)
        if start is not None:
            self._late[site] = start
            self._begin_if_requested(link, now_ms)
        else:
            self._output.emit(FindFirst(partial(self._begin, link)))

    def _is_early(self, message: LinkOpen) -> bool:
        """Tell whether an opening has to wait: for the tree that it is of, for our first lease, or until this process
        has folded what the neighbour has of our log already. Until then we would state again what a later record has
        ended.
        """
        is_ahead = message.frontier.get(self._state.origin, NOTHING) >= self._state.position
        return message.tree_epoch > self._state.tree.epoch or not self._has_served or is_ahead

    def _compare(self, far: Mapping[Origin, int]) -> None:
        """Report a neighbour that has seen more of our log than we have, or than is known to be lost."""
        state = self._state
        for origin, offset in far.items():
            ended = state.ended.get(origin)
            # Of an origin of ours a neighbour knows the offsets of notifications, and where it began.
            known = state.frontier[origin] if origin == state.origin else ended.seen if ended else offset
            if site_of(origin) == state.site and offset > known:
                self._output.emit(SeenBeyond(origin, offset))

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
        start, requested = self._late.get(opening.site), self._state.filters_of(opening.site)
        asked = requested.rank >= _name(opening) and requested.stated is None
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
        self._output.emit(Ended(site, str(error) if error else why))

    def _take_request(self, request: FiltersRequested) -> None:
        """Have a neighbour's request come to the log. Raises Refused: an expression in it is not valid."""
        site = request.link
        if site not in self._state.neighbours:
            return
        installer = self._installers.get(site)
        if installer is None:
            installer = self._installers[site] = FilterInstaller(site, self._state, self._output)
        known = installer.in_force
        for expression in request.installations.keys() - known.filters.keys():
            parse(expression)
        is_empty = request.part is RequestPart.CHANGE and not request.installations and not request.removed
        # Once the log has what the opening itself requests, no earlier request can come to be in force any more.
        is_probe = is_empty and rank_of(request) > self._opened.get(site, (0, 0))
        installer.take(request, is_probe=is_probe)


def _name(opening: LinkOpen | LinkWants) -> tuple[int, int]:
    return opening.epoch, opening.serial
