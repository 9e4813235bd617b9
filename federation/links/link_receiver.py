"""The receiving end of a link: the elected leader of the site where records arrive. Pure.

It opens the link at a proxy of the neighbour with its own site's frontier, appends the records that arrive, in order,
under its epoch, and acknowledges them. It stores nothing: the next opening, or the next leader, continues at the
frontier, and the fold ignores duplicates.

==========  ==================================  ====================================================================
phase       waits for                           next phase
==========  ==================================  ====================================================================
RESTING     a lease                             ELECTING
UNREACHED   a grant of the neighbour            ELECTING
ELECTING    the registry's answer               led by another, or no answer: WAITING; elected: PAUSING
WAITING     the time to ask the registry again  ELECTING
PAUSING     the time to open, the answer of an  SYNCING
            append under way, a proxy there, the
            link's place in the tree
SYNCING     the fold of all that the log has    not named yet: NAMING, or ELECTING where another one may have been
                                                elected; a later leader: WAITING; nobody there: PAUSING; else PULLING
NAMING      the fold of what names its epoch    another had it, or it cannot be read: ELECTING; else SYNCING
PULLING     records                             a hole, silence, more than is kept, the proxy gone: PAUSING
==========  ==================================  ====================================================================

From every phase: the lease ends: RESTING. From every phase but RESTING: the lease of the link, which the neighbour
grants, ends: UNREACHED. From every phase of a term, which begins with ELECTING: the log or the registry fails, or a
later leader is known: WAITING; and while this proxy leads: another leader claims its epoch or a later one, or the
registry names no leader for a while: ELECTING. From SYNCING and PULLING: the log is repaired; from PULLING: the log
enters another tree: PAUSING. :data:`NEXT` lists the phases that may follow each, and a change to any other one is an
error.

The registry counts elections; one that is lost, or restored from an older copy, counts anew. So a leader takes an epoch
above all that its log knows, and names it in the log (`LinkLed`) before it sends anything: no two leaders ever have one
epoch, and later appends of an earlier one are ignored.

When a message is lost
----------------------
An opening, or all that follows   silence; opened again, each time after a longer pause, until a message arrives
Some records                      their message's number is missing; opened again
A request of filters              sent again until it is answered
An acknowledgement                the sender's window shrinks by it; once it is shut the sender is silent
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple, TypeVar

from federation.links.bounds import LinkBounds
from federation.links.effects import AppendRecords, Elect, FindEnd, Resign, SendNeighbour
from federation.links.filter_exchange import FilterRequester
from federation.links.link_lease import LinkLease
from federation.links.neighbour_proxies import NeighbourProxies
from federation.links.output import LinkOutput
from federation.links.record_check import check_records
from federation.messages import (
    NO_OPENING,
    LeaseGranted,
    LeaseRequest,
    LinkAppended,
    LinkOpen,
    LinkRecord,
    LinkRecords,
    LinkWants,
)
from federation.ports import ProxyRow
from federation.site.state import SiteState
from waypost.clock import NEVER, full_jitter_ms
from waypost.errors import Internal, WaypostError
from waypost.identity import ProxyId, SiteId, link_name
from waypost.limits import LINK_LONGEST_PAUSE_MS, LINK_QUEUE_BYTES
from waypost.records import LinkLed, body_size, is_altered

ELECT_MS = 500
"""The interval of elections while another proxy leads."""
FIND_END_AGAIN_MS = 5_000
"""Time after which a link that waits for the fold of its log looks again where the log ends."""
UNNAMED_MS = 1_000
"""Time for which the registry may name no leader before ours is elected again."""
SILENCE_MS = 3_000
"""The silence after which the link is opened again."""
RESEND_MS = 1_000
"""The interval at which a request of filters is sent again that has no answer."""
PROBE_MS = 30_000
"""The interval at which is compared what we want with what is in force there, while nothing changes."""

Answer = TypeVar("Answer")


class Phase(Enum):
    """The phases of a receiving end."""

    RESTING = "resting"
    """The end waits for a lease."""
    UNREACHED = "unreached"
    """The end waits for the neighbour's grant of a lease of the link."""
    ELECTING = "electing"
    """The end waits for the registry's answer: does it lead?"""
    WAITING = "waiting"
    """Another proxy leads, or none is known to; the registry is asked again later."""
    PAUSING = "pausing"
    """The end leads, and waits until it is to open the link."""
    SYNCING = "syncing"
    """The end waits for the fold of all that the log has, to open with its frontier."""
    NAMING = "naming"
    """The end waits for the fold of the record that names its epoch."""
    PULLING = "pulling"
    """The link is open: records arrive."""


_P = Phase
_WITHOUT_LEASE = frozenset({_P.RESTING, _P.UNREACHED})
"""The phases after the end of a lease."""
_WITHOUT_LEADERSHIP = frozenset({_P.ELECTING, _P.WAITING}) | _WITHOUT_LEASE
"""The phases after the end of a leadership."""

NEXT: Mapping[Phase, frozenset[Phase]] = {
    _P.RESTING: frozenset({_P.RESTING, _P.ELECTING}),
    _P.UNREACHED: frozenset({_P.RESTING, _P.ELECTING}),
    _P.ELECTING: _WITHOUT_LEASE | {_P.WAITING, _P.PAUSING},
    _P.WAITING: _WITHOUT_LEASE | {_P.ELECTING},
    _P.PAUSING: _WITHOUT_LEADERSHIP | {_P.SYNCING},
    _P.SYNCING: _WITHOUT_LEADERSHIP | {_P.NAMING, _P.PULLING, _P.PAUSING},
    _P.NAMING: _WITHOUT_LEADERSHIP | {_P.SYNCING},
    _P.PULLING: _WITHOUT_LEADERSHIP | {_P.PAUSING},
}
"""The phases that may follow each phase."""


class ReceiverView(NamedTuple):
    """The state of a receiving end, for operators.

    Args:
        neighbour: the site that sends.
        leads: whether this proxy leads the link.
        phase: the value of its :class:`Phase`.
        stands_by: whether nothing is to come over the link: it is not in the dispatching tree.
        peer: the proxy there that sends; None: it does not pull.
        silent_ms: time since the last message; None: it does not pull.
        last_received_ms: when the last message arrived, on the clock of the machine.
        requested: the serial of the last request of filters.
        is_answered: whether that has an answer.
        leader: the proxy of our site that leads it, as the registry says; None: none does.
        puller: the neighbour's proxy that leads the other direction; None: none does.
    """

    neighbour: SiteId
    leads: bool
    phase: str
    stands_by: bool
    peer: ProxyId | None
    silent_ms: int | None
    last_received_ms: int
    requested: int
    is_answered: bool
    leader: ProxyId | None = None
    puller: ProxyId | None = None


class LinkReceiver:
    """The direction from `neighbour` to this site.

    Args:
        neighbour: the site that sends.
        state: our site's state, as this proxy folds it.
        proxies: by site.
        rng: for jitter and claims.
        output: takes the effects.
        bounds: of the queues.
    """

    def __init__(
        self,
        neighbour: SiteId,
        state: SiteState,
        proxies: NeighbourProxies,
        rng: random.Random,
        output: LinkOutput,
        bounds: LinkBounds,
    ) -> None:
        self.phase = Phase.RESTING
        self.epoch = 0
        """The epoch at which this proxy leads the link; 0: it does not."""
        self._claim = LinkLed(neighbour, 0, "")
        self._claim_offset: int | None = None
        """The offset of the claim in the log; None: not known yet."""
        self._is_named = False
        """Whether the log has our epoch, by our claim."""
        self._asked_knowing = self._reported_epoch = 0
        """The value of :attr:`_known_epoch` at the last election, and the epoch that the neighbour reported."""
        self._neighbour = neighbour
        self._state = state
        self._proxies = proxies
        self._rng = rng
        self._output = output
        self._bounds = bounds
        self._lease = LinkLease(bounds.lease_ms)
        self._is_resigning = False
        self._reelection_ms = NEVER
        """The time of the next election, because the registry does not name this proxy."""
        self._resign_ms = NEVER
        """The time of the next resignation, after one that failed."""
        self._tree_epoch = 0
        """The epoch of the tree in which the link was opened last."""
        self._term = 0
        """The number of the term; an answer to a request of an earlier one is ignored."""
        self._due_ms = 0
        self._attempt = 0
        """Openings since the last message."""
        self._end: int | None = None
        self._next_index = 0
        self._serial = rng.getrandbits(32)
        """Begins at a random number: if log and registry have both lost the leader of our epoch, the neighbour tells
        two leaders apart by it.
        """
        self._peer: ProxyRow | None = None
        self._opening = 0
        self._expected = 1
        self._last_received_ms = 0
        self._queued: list[LinkRecord] = []
        self._queued_bytes = 0
        self._appending = False
        self._requester = FilterRequester(state, neighbour, bounds)
        self._requested_ms = 0
        """The time of the last request of filters."""
        self._repaired = state.repaired

    def shown(self, now_ms: int) -> ReceiverView:
        """Return the state of this end, for operators, without the leaders that the registry names."""
        is_pulling = self.phase is Phase.PULLING
        return ReceiverView(
            neighbour=self._neighbour,
            leads=self.epoch > 0,
            phase=self.phase.value,
            stands_by=self._neighbour not in self._state.neighbours,
            peer=self._peer.proxy if is_pulling and self._peer is not None else None,
            silent_ms=now_ms - self._last_received_ms if is_pulling else None,
            last_received_ms=self._last_received_ms,
            requested=self._serial,
            is_answered=self._requester.under_way is None,
        )

    def queues(self) -> list[tuple[str, int, int]]:
        """Return the queues of this end: name, the number of records in it, and the bound of that number."""
        return [("link in", len(self._queued), self._bounds.queue)]

    def _enter(self, phase: Phase) -> None:
        """Change the phase. Raises Internal: :data:`NEXT` does not list that change."""
        if phase not in NEXT[self.phase]:
            raise Internal(f"no end of a link goes from {self.phase.name} to {phase.name}")
        self.phase = phase

    # ------------------------------------------------------------ leading

    def lease_granted(self, now_ms: int) -> None:
        """Handle that this proxy has a lease in the registry: begin anew, by emitting the request of an election as the
        link's leader; :meth:`tick` keeps the lease of the link from now on.
        """
        self.lease_ended()
        self._is_resigning, self._resign_ms = False, NEVER
        self._lease.begin(now_ms)
        self._elect()

    def lease_ended(self) -> None:
        """Handle that this proxy's lease in the registry has ended, or may have: lead, send and append nothing more.

        An append under way may still reach the log, under the epoch that was led.
        """
        self._lease.end()
        self._resign(Phase.RESTING)

    @property
    def _link(self) -> str:
        return link_name(self._neighbour, self._state.site)

    # ------------------------------------------------------------ the lease of the link

    def granted(self, message: LeaseGranted, now_ms: int) -> None:
        """Handle the neighbour's grant of the lease of the link, which this end has requested by :meth:`tick`: the
        lease lasts on, and an end that had lost it stands for election again. A grant that was not requested has no
        effect.
        """
        self._lease.granted(message.number)
        self._elect_if_reached(now_ms)

    def _elect_if_reached(self, now_ms: int) -> None:
        if self.phase is Phase.UNREACHED and not self._is_resigning and self._lease.is_held(now_ms):
            self._elect()

    def _resigned(self, term: int, error: WaypostError | None, now_ms: int) -> None:
        """Stand for election again; until then a resignation that may have failed is repeated."""
        if self._term != term:
            return
        self._is_resigning = False
        self._resign_ms = now_ms + ELECT_MS if error is not None else NEVER
        self._elect_if_reached(now_ms)

    def registry_changed(self, leaders: Container[str], now_ms: int) -> None:
        """Handle an event of the registry's watch: this end is elected again, by :meth:`tick`, if it leads, and no
        leader of its link is named for UNNAMED_MS milliseconds.

        A registry that was restored from an older copy may have lost the leader.

        Args:
            leaders: the names of the links that have a leader, after the event.
            now_ms: of the caller's clock.
        """
        if not self.epoch or self._link in leaders:
            self._reelection_ms = NEVER
        elif self._reelection_ms == NEVER:
            # The watch may not have told of our election yet.
            self._reelection_ms = now_ms + UNNAMED_MS

    def registry_reloaded(self, now_ms: int) -> None:
        """Handle that the registry's watch has begun again: resign once more if the lease of the link has ended.

        A registry that was restored from an older copy may name this proxy as leader again. :meth:`tick` emits the
        resignation.
        """
        if self.phase is Phase.UNREACHED and not self._is_resigning:
            self._resign_ms = now_ms

    def _keep_lease(self, now_ms: int) -> None:
        if self.phase is Phase.RESTING:
            return
        if self.phase is not Phase.UNREACHED and not self._lease.is_held(now_ms):
            # It may have been elected without an answer.
            self._resign(Phase.UNREACHED)
            self._resign_ms = now_ms
        if self.phase is Phase.UNREACHED and now_ms >= self._resign_ms:
            self._is_resigning, self._resign_ms = True, NEVER
            self._output.emit(Resign(self._link, partial(self._resigned, self._term)))
        if self._lease.is_due(now_ms):
            number, rows = self._lease.requested(now_ms), self._proxies.of(self._neighbour)
            if rows:
                request = LeaseRequest(self._state.site, number, self._lease.lease_ms)
                self._output.emit(SendNeighbour(rows[number % len(rows)].proxy, request))

    # ------------------------------------------------------------ elections

    def _resign(self, phase: Phase) -> None:
        self._enter(phase)
        self.epoch = 0
        self._term += 1
        self._appending = False
        self._queued, self._queued_bytes = [], 0
        self._requester.close()

    def _elect(self) -> None:
        """Request another term; answers to requests of the one before are ignored."""
        self._resign(Phase.ELECTING)
        self._asked_knowing = self._known_epoch
        self._output.emit(Elect(self._link, self._answered(self._elected)))

    def _elected(self, epoch: int | None, now_ms: int) -> None:
        if epoch is None:
            self._wait(now_ms)
            return
        self.epoch, self._is_named = epoch, False
        self._reelection_ms = NEVER
        self._pause(now_ms, 0)

    def _wait(self, now_ms: int) -> None:
        self._resign(Phase.WAITING)
        self._due_ms = now_ms + ELECT_MS

    def _answered(self, apply: Callable[[Answer, int], None]) -> Callable[[Answer | WaypostError, int], None]:
        """Return the callback of an effect: an error, of log or registry, ends our term for a while."""
        term = self._term

        def on_done(answer: Answer | WaypostError, now_ms: int) -> None:
            if self._term != term:
                return
            if isinstance(answer, WaypostError):
                self._wait(now_ms)
            else:
                apply(answer, now_ms)

        return on_done

    # ------------------------------------------------------------ opening

    def _pause(self, now_ms: int, wait_ms: int) -> None:
        """Open after `wait_ms`. Records that were not appended yet are dropped: they will be sent again."""
        self._enter(Phase.PAUSING)
        self._due_ms = now_ms + wait_ms
        self._queued, self._queued_bytes = [], 0
        self._requester.close()
        self._find_log_end(now_ms)

    def _reopen(self, now_ms: int) -> None:
        self._pause(now_ms, full_jitter_ms(self._attempt, self._rng, cap_ms=LINK_LONGEST_PAUSE_MS))
        self._attempt += 1

    def _find_log_end(self, now_ms: int) -> None:
        """Find the end of the log: our frontier is complete only once the log is folded up to there."""
        if self._appending or now_ms < self._due_ms or not self._may_open:
            return
        self._enter(Phase.SYNCING)
        self._end = None
        self._ask_log_end()

    def _ask_log_end(self) -> None:
        self._due_ms = NEVER
        self._output.emit(FindEnd(self._answered(self._found_end)))

    @property
    def _may_open(self) -> bool:
        return self._neighbour in self._state.neighbours and bool(self._proxies.of(self._neighbour))

    def _found_end(self, end: int, now_ms: int) -> None:
        if self.phase is Phase.SYNCING:
            # The log may have lost that end since, unread, and would come to it again only by what others append.
            self._end = end if self._end is None else min(end, self._end)
            self._due_ms = now_ms + FIND_END_AGAIN_MS
            self._open_if_caught_up(now_ms)

    def _open_if_caught_up(self, now_ms: int) -> None:
        if self._end is None or self._state.position < self._end or self._state.is_broken:
            # With a frontier that is too high the neighbour would skip records that this site lacks.
            return
        if self._neighbour not in self._state.neighbours:
            self._pause(now_ms, 0)
        elif not self._is_named:
            self._name_epoch()
        elif self._known_epoch > self.epoch:
            self._wait(now_ms)
        elif rows := self._proxies.of(self._neighbour):
            self._open(rows[self._next_index % len(rows)], now_ms)
        else:
            self._pause(now_ms, 0)

    def _name_epoch(self) -> None:
        """Claim our epoch, or one above all that the log knows, in the log, before anything is sent (handover rule
        12).
        """
        known = self._known_epoch
        if known >= self.epoch:
            if self._asked_knowing < known:
                # Another leader may have been elected after us, and the registry knows it.
                self._elect()
                return
            # The registry that counts elections was lost, or has gone back.
            self.epoch += known
        self._enter(Phase.NAMING)
        self._claim = LinkLed(self._neighbour, self.epoch, f"{self._rng.getrandbits(64):016x}")
        self._claim_offset = None
        self._output.emit(AppendRecords([self._claim], self._answered(self._claim_appended)))

    def _claim_appended(self, offsets: list[int], now_ms: int) -> None:
        self._claim_offset = offsets[0]
        self._elect_if_claim_is_gone()

    def _elect_if_claim_is_gone(self) -> None:
        """Elect again if the log was read past our claim without it: its record may be damaged."""
        is_past = self._claim_offset is not None and self._state.position > self._claim_offset
        if self.phase is Phase.NAMING and is_past:
            self._elect()

    def named(self, record: LinkLed, now_ms: int) -> None:
        """Handle the record of a leader's epoch of this link in the log: that of this end's own claim, or another
        leader's.

        If another leader claims the same epoch or a later one, this end is elected again (handover rule 12).
        """
        is_claimed = self._is_named or self.phase is Phase.NAMING
        if not self.epoch or not is_claimed or record.link_epoch < self.epoch:
            return
        if record != self._claim:
            # Another claim of a later epoch, or of ours: log and registry have both lost the leader. Neither leads on.
            self._elect()
        elif self.phase is Phase.NAMING:
            self._enter(Phase.SYNCING)
            self._is_named = True
            self._open_if_caught_up(now_ms)

    def _open(self, peer: ProxyRow, now_ms: int) -> None:
        self._enter(Phase.PULLING)
        self._peer = peer
        self._next_index += 1
        self._serial += 1
        self._opening, self._expected = self._serial, 1
        self._last_received_ms = self._requested_ms = now_ms
        state = self._state
        self._tree_epoch = state.tree.epoch
        self._send(
            LinkOpen(
                site=state.site,
                epoch=self.epoch,
                frontier=dict(state.frontier),
                serial=self._serial,
                digest=self._requester.open(self.epoch, self._serial, self._tree_epoch),
                tree_epoch=self._tree_epoch,
            )
        )

    # ------------------------------------------------------------ pulling

    def receive(self, peer: ProxyId, message: LinkRecords, now_ms: int) -> None:
        """Handle a message of a proxy of the neighbour: emit the append of its records, whose end is acknowledged. A
        duplicate, or a message of another proxy or opening, is ignored.

        After a missing message, an altered record, or records without room, the link is opened again. A refusal for a
        later leader or serial ends the leadership, and this end is elected again later.

        Args:
            peer: the sender, whose identity was proven.
            message: records, or the refusal of an opening.
            now_ms: of the caller's clock.

        Raises:
            BadMessage: a record says what cannot be so (:func:`federation.links.record_check.check_records`); nothing
                has changed.
        """
        check_records(message.records)
        last = (message.epoch, message.number if message.opening == NO_OPENING else 0)
        if self._pulls_from(peer) and last > (self.epoch, self._serial):
            # The neighbour knows a later leader of this link, or another one of our epoch.
            self._reported_epoch = max(self._reported_epoch, message.epoch)
            self._wait(now_ms)
            return
        if not self._pulls_from(peer) or (message.epoch, message.opening) != (self.epoch, self._opening):
            return
        if message.number < self._expected:
            return
        is_missing = message.number > self._expected or any(map(is_altered, message.records))
        if is_missing or not self._has_room_for(message.records):
            self._reopen(now_ms)
            return
        self._expected += 1
        self._last_received_ms = now_ms
        self._attempt = 0
        self._requester.answered(message.applied_serial, message.refused_serial)
        self._request_filters(now_ms)
        self._queued += message.records
        self._queued_bytes += sum(map(body_size, message.records))
        self._append()

    def _has_room_for(self, records: Sequence[LinkRecord]) -> bool:
        size = self._queued_bytes + sum(map(body_size, records))
        return len(self._queued) + len(records) <= self._bounds.queue and size <= LINK_QUEUE_BYTES

    @property
    def _known_epoch(self) -> int:
        """The epoch of the last leader known by our log, or by the neighbour."""
        return max(self._state.acceptance.link_epochs.get(self._neighbour, 0), self._reported_epoch)

    def _pulls_from(self, peer: ProxyId) -> bool:
        return self.phase is Phase.PULLING and self._peer is not None and self._peer.proxy == peer

    def _append(self) -> None:
        """Append everything that has arrived at once: else the link would be as slow as the log's round trip."""
        if self._appending or not self._queued:
            return
        received = self._queued
        self._queued, self._queued_bytes = [], 0
        self._appending = True
        named = (self._neighbour, self.epoch)
        records = [record for record in received if (record.link, record.link_epoch) == named]
        self._output.emit(AppendRecords(records, self._answered(partial(self._appended, self._opening, len(received)))))

    def _appended(self, opening: int, count: int, _: list[int], now_ms: int) -> None:
        self._appending = False
        if self.phase is Phase.PULLING and self._opening == opening:
            # The sender may have been silent because it waited for this append.
            self._last_received_ms = now_ms
            self._send(LinkAppended(self._state.site, self.epoch, opening, count))
            self._append()
        elif self.phase is Phase.PAUSING:
            self._find_log_end(now_ms)

    def _request_filters(self, now_ms: int) -> None:
        """Request what is to be requested next, if nothing is under way."""
        request = self._requester.next(self._serial + 1)
        if request is not None:
            self._send_request(request, now_ms)

    def _send_request(self, request: LinkWants, now_ms: int) -> None:
        self._serial = max(self._serial, request.serial)
        self._requested_ms = now_ms
        self._send(request)

    def _send(self, message: LinkOpen | LinkWants | LinkAppended) -> None:
        assert self._peer is not None
        self._output.emit(SendNeighbour(self._peer.proxy, message))

    # ------------------------------------------------------------ changes of the state and of proxies

    def folded(self, now_ms: int) -> None:
        """Handle that the site's state was folded further: continue an opening that waits for the log, end one that the
        log has outdated, or emit the next request of filters.
        """
        renewed, self._repaired = self._state.repaired != self._repaired, self._state.repaired
        is_moved = self._state.tree.epoch != self._tree_epoch and self.phase is Phase.PULLING
        if (renewed and self.phase in (Phase.SYNCING, Phase.PULLING)) or is_moved:
            # The unreadable record may have been one that the neighbour sends at each opening.
            self._pause(now_ms, 0)
        elif self.phase is Phase.PAUSING and self._state.tree.epoch != self._tree_epoch:
            self._find_log_end(now_ms)
        elif self.phase is Phase.SYNCING:
            self._open_if_caught_up(now_ms)
        elif self.phase is Phase.NAMING:
            self._elect_if_claim_is_gone()
        elif self.phase is Phase.PULLING and self._known_epoch > self.epoch:
            # The fold would ignore what we append.
            self._wait(now_ms)
        elif self.phase is Phase.PULLING:
            self._request_filters(now_ms)

    def proxies_changed(self, now_ms: int) -> None:
        """Handle a change of the live proxies: reopen the link, if the proxy of the neighbour that sends is gone, or
        open it, if it waits for a proxy.
        """
        if self.phase is Phase.PAUSING:
            self._find_log_end(now_ms)
        elif self.phase is Phase.PULLING and self._peer not in self._proxies.of(self._neighbour):
            self._reopen(now_ms)

    # ------------------------------------------------------------ time

    def tick(self, now_ms: int) -> None:
        """Do what is due at `now_ms`, by emitting effects: elections and resignations, openings, and requests for the
        lease of the link and for filters.
        """
        self._keep_lease(now_ms)
        if (self.epoch and now_ms >= self._reelection_ms) or (self.phase is Phase.WAITING and now_ms >= self._due_ms):
            self._elect()
        elif self.phase is Phase.PAUSING:
            self._find_log_end(now_ms)
        elif self.phase is Phase.SYNCING and now_ms >= self._due_ms:
            self._ask_log_end()
        elif self.phase is Phase.PULLING and not self._appending and now_ms >= self._last_received_ms + SILENCE_MS:
            self._reopen(now_ms)
        elif self.phase is Phase.PULLING and now_ms >= self._requested_ms + self._request_interval_ms:
            again = self._requester.under_way
            self._send_request(again or self._requester.probe(self._serial + 1), now_ms)

    @property
    def _request_interval_ms(self) -> int:
        return PROBE_MS if self._requester.under_way is None else RESEND_MS

    def next_deadline(self) -> int:
        """Return when :meth:`tick` is due, in ms of the caller's clock; NEVER: it waits only for other inputs."""
        if self.phase is Phase.RESTING:
            return NEVER
        if self.phase is Phase.UNREACHED:
            return min(self._lease.next_deadline(is_lost=True), self._resign_ms)
        lease = min(self._lease.next_deadline(is_lost=False), self._reelection_ms if self.epoch else NEVER)
        if self.phase is Phase.PULLING:
            silent = NEVER if self._appending else self._last_received_ms + SILENCE_MS
            return min(lease, silent, self._requested_ms + self._request_interval_ms)
        pausing = self.phase is Phase.PAUSING and not self._appending and self._may_open
        return min(lease, self._due_ms) if pausing or self.phase in (Phase.WAITING, Phase.SYNCING) else lease
