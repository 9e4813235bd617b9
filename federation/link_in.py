"""The pulling end of a link: what the elected leader of the site where records arrive does. Pure.

It opens the link at a proxy of the neighbour with its own site's frontier, appends what comes, in order, under its
epoch, and acknowledges what it appended. Nothing of it is kept: the frontier says where the next opening, or the
next leader, goes on, and what comes twice is passed over by the fold.

==========  ==================================  ====================================================================
phase       what is waited for                  what may come next
==========  ==================================  ====================================================================
RESTING     a lease                             ELECTING
ELECTING    the registry's answer               led by another, or no answer: WAITING; elected: PAUSING
WAITING     the time to ask the registry again  ELECTING
PAUSING     the time to open, the answer of an  LEVELLING
            append under way, a proxy there
LEVELLING   the fold of all that the log has    not named yet: NAMING; a later leader: WAITING; else PULLING
NAMING      the fold of what names its epoch    another had it, or it cannot be read: ELECTING; else LEVELLING
PULLING     records                             a hole, silence, more than is kept, the proxy gone: PAUSING
==========  ==================================  ====================================================================

From everywhere: the lease ends: RESTING; the log or the registry fails, or a later leader is heard of: WAITING; once
our epoch is claimed, another's claim of it or a later one: ELECTING.

The registry counts elections; one that is lost, or restored from an older copy, counts anew. So a leader takes an epoch
above all that its log knows, and names it in the log (`LinkLed`) before it says anything: no two leaders ever have one
epoch, and what an earlier one appends later means nothing.

What is lost
------------
An opening, or all that follows   silence; opened again, each time after a longer pause, until something is heard
Some records                      their message's number is missing; opened again
What we want                      said again as long as something wanted has no answer
An acknowledgement                the sender's window shrinks by it; once it is shut the sender is silent
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple, TypeVar

from federation.link_bounds import Bounds
from federation.link_effects import Append, Elect, Emit, FindEnd, SendPeer
from federation.messages import NO_OPENING, LinkAppended, LinkOpen, LinkRecord, LinkRecords, LinkWants
from federation.ports import ProxyRow
from federation.site_state import SiteState
from waypost.clock import NEVER, full_jitter_ms
from waypost.errors import WaypostError
from waypost.identity import ProxyId, SiteId
from waypost.keys import Protection
from waypost.limits import LINK_LONGEST_PAUSE_MS, LINK_QUEUE_BYTES
from waypost.records import LinkLed, body_size, is_altered

ELECT_MS = 500
"""How often one who does not lead asks to."""
SILENCE_MS = 3_000
"""So long nothing was heard: the link is opened again."""
RESEND_MS = 1_000
"""How often what we want is said again while it has no answer."""

Answer = TypeVar("Answer")
Rows = Callable[[SiteId], list[ProxyRow]]
"""The live proxies of a site, in a fixed order."""


class Phase(Enum):
    RESTING = "resting"
    ELECTING = "electing"
    WAITING = "waiting"
    PAUSING = "pausing"
    LEVELLING = "levelling"
    NAMING = "naming"
    PULLING = "pulling"


class Pulling(NamedTuple):
    """A pulling end, as operators see it. `silent_ms`: since it heard anything; None: it does not pull.

    `last_received_ms`: when it heard something last, on the clock of the machine.
    """

    neighbour: SiteId
    leads: bool
    phase: str
    silent_ms: int | None
    last_received_ms: int


class LinkIn:
    """The direction from `neighbour` to us.

    Args:
        state: our site's state, as this proxy folds it.
        rows: what the registry's watch said last.
        emit: takes the effects, in order.
    """

    def __init__(
        self,
        neighbour: SiteId,
        state: SiteState,
        rows: Rows,
        rng: random.Random,
        emit: Emit,
        bounds: Bounds,
    ) -> None:
        self.phase = Phase.RESTING
        self.epoch = 0
        """Of the leader that we are; 0: not leading."""
        self._claim = LinkLed(neighbour, 0, "")
        self._claim_offset: int | None = None
        """Where it stands in the log; None: it is not known yet."""
        self._is_named = False
        """The log has our epoch, by our claim."""
        self._asked_knowing = self._reported_epoch = 0
        """What we knew of :attr:`_known_epoch` when we asked to be elected, and what the neighbour told us of it."""
        self._neighbour = neighbour
        self._state = state
        self._rows = rows
        self._rng = rng
        self._emit = emit
        self._bounds = bounds
        self._term = 0
        """What was asked in an earlier one is answered to nobody."""
        self._due = 0
        self._attempt = 0
        """Openings since something was heard."""
        self._end: int | None = None
        self._next_index = 0
        self._serial = rng.getrandbits(32)
        """Begins anywhere: where log and registry have both lost who led at our epoch, the neighbour tells us apart."""
        self._peer: ProxyRow | None = None
        self._opening = 0
        self._expected = 1
        self._last_received_ms = 0
        self._queued: list[LinkRecord] = []
        self._queued_bytes = 0
        self._appending = False
        self._version = 0
        """Of the state when we last looked at what it wants."""
        self._announced_filters: dict[str, int] = {}
        self._announced_protections: dict[str, tuple[Protection, ...]] = {}
        """What we last said that we want, and by which keys."""
        self._announced_ms = 0
        self._unanswered = False
        self._repaired = state.repaired
        self._applied_serial: int | None = None
        """The serial of the last of our words that is in force there; None: of this opening nothing was heard yet."""

    def shown(self, now_ms: int) -> Pulling:
        silent_ms = now_ms - self._last_received_ms if self.phase is Phase.PULLING else None
        return Pulling(self._neighbour, self.epoch > 0, self.phase.value, silent_ms, self._last_received_ms)

    def queues(self) -> list[tuple[str, int, int]]:
        """Return what waits here: its name, how many records, and how many may."""
        return [("link in", len(self._queued), self._bounds.queue)]

    # ------------------------------------------------------------ leading

    def lease_granted(self, now_ms: int) -> None:
        """Take part in elections from now on."""
        self.lease_ended()
        self._elect()

    def lease_ended(self) -> None:
        """Say and append nothing more. What is under way may still come to the log, under our epoch."""
        self._resign(Phase.RESTING)

    def _resign(self, phase: Phase) -> None:
        self.phase, self.epoch = phase, 0
        self._term += 1
        self._appending = False
        self._queued, self._queued_bytes = [], 0

    def _elect(self) -> None:
        """Ask for another term: what was asked in the one before is answered to nobody."""
        self._resign(Phase.ELECTING)
        self._asked_knowing = self._known_epoch
        link = f"{self._neighbour}->{self._state.site}"
        self._emit(Elect(link, self._answered(self._elected)))

    def _elected(self, epoch: int | None, now_ms: int) -> None:
        if epoch is None:
            self._wait(now_ms)
            return
        self.epoch, self._is_named = epoch, False
        self._pause(now_ms, 0)

    def _wait(self, now_ms: int) -> None:
        self._resign(Phase.WAITING)
        self._due = now_ms + ELECT_MS

    def _answered(self, apply: Callable[[Answer, int], None]) -> Callable[[Answer | WaypostError, int], None]:
        """Return what an effect is answered to: an error, of log or registry, ends our leading for a while."""
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
        """Open after so long. What came and was not asked to be appended is dropped: it will come again."""
        self.phase = Phase.PAUSING
        self._due = now_ms + wait_ms
        self._queued, self._queued_bytes = [], 0
        self._find_log_end(now_ms)

    def _reopen(self, now_ms: int) -> None:
        self._pause(now_ms, full_jitter_ms(self._attempt, self._rng, cap_ms=LINK_LONGEST_PAUSE_MS))
        self._attempt += 1

    def _find_log_end(self, now_ms: int) -> None:
        """Find out how far the log goes: only what is folded up to there is all that we have."""
        if self._appending or now_ms < self._due or not self._rows(self._neighbour):
            return
        self.phase, self._end = Phase.LEVELLING, None
        self._emit(FindEnd(self._answered(self._found_end)))

    def _found_end(self, end: int, now_ms: int) -> None:
        if self.phase is Phase.LEVELLING:
            self._end = end
            self._open_if_caught_up(now_ms)

    def _open_if_caught_up(self, now_ms: int) -> None:
        if self._end is None or self._state.position < self._end or self._state.is_broken:
            # What we know too little or too much of, the neighbour would pass over, and others here lack.
            return
        if not self._is_named:
            self._name_epoch()
        elif self._known_epoch > self.epoch:
            self._wait(now_ms)
        elif rows := self._rows(self._neighbour):
            self._open(rows[self._next_index % len(rows)], now_ms)
        else:
            self._pause(now_ms, 0)

    def _name_epoch(self) -> None:
        """Claim our epoch in the log, or one above all that it knows, before anything is said (handover rule 12)."""
        known = self._known_epoch
        if known >= self.epoch:
            if self._asked_knowing < known:
                # Perhaps another was elected after us, and the registry knows.
                self._elect()
                return
            # The registry that counts elections was lost, or has gone back.
            self.epoch += known
        self.phase = Phase.NAMING
        self._claim = LinkLed(self._neighbour, self.epoch, f"{self._rng.getrandbits(64):016x}")
        self._claim_offset = None
        self._emit(Append([self._claim], self._answered(self._claim_appended)))

    def _claim_appended(self, offsets: list[int], now_ms: int) -> None:
        self._claim_offset = offsets[0]
        self._elect_if_claim_is_gone()

    def _elect_if_claim_is_gone(self) -> None:
        """Where the log was read past our claim, and did not have it: what stands there may be damaged."""
        is_past = self._claim_offset is not None and self._state.position > self._claim_offset
        if self.phase is Phase.NAMING and is_past:
            self._elect()

    def named(self, record: LinkLed, now_ms: int) -> None:
        """The log has the epoch of a leader of this link: ours, or another's."""
        is_claimed = self._is_named or self.phase is Phase.NAMING
        if not self.epoch or not is_claimed or record.link_epoch < self.epoch:
            return
        if record != self._claim:
            # One of a later epoch, or of ours: log and registry have both lost who led. Neither leads on.
            self._elect()
        elif self.phase is Phase.NAMING:
            self.phase, self._is_named = Phase.LEVELLING, True
            self._open_if_caught_up(now_ms)

    def _open(self, peer: ProxyRow, now_ms: int) -> None:
        self.phase = Phase.PULLING
        self._peer = peer
        self._next_index += 1
        self._serial += 1
        self._opening, self._expected, self._applied_serial = self._serial, 1, None
        self._last_received_ms = self._announced_ms = now_ms
        self._filters_changed()
        state = self._state
        self._send(
            LinkOpen(
                site=state.site,
                epoch=self.epoch,
                frontier=dict(state.frontier),
                serial=self._serial,
                installations=self._announced_filters,
                protections=self._announced_protections,
            )
        )

    # ------------------------------------------------------------ pulling

    def receive(self, peer: ProxyId, message: LinkRecords, now_ms: int) -> None:
        """Take the next message of this opening; what comes twice, or belongs to another opening, is passed over."""
        last = (message.epoch, message.number if message.opening == NO_OPENING else 0)
        if self._pulls_from(peer) and last > (self.epoch, self._serial):
            # The neighbour knows a later leader of this link than we are, or another one of our epoch.
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
        self._applied_serial = message.applied_serial
        self._queued += message.records
        self._queued_bytes += sum(map(body_size, message.records))
        self._append()

    def _has_room_for(self, records: Sequence[LinkRecord]) -> bool:
        size = self._queued_bytes + sum(map(body_size, records))
        return len(self._queued) + len(records) <= self._bounds.queue and size <= LINK_QUEUE_BYTES

    @property
    def _known_epoch(self) -> int:
        """Of the last leader of whom our log, or the neighbour, has something."""
        return max(self._state.acceptance.link_epochs.get(self._neighbour, 0), self._reported_epoch)

    def _pulls_from(self, peer: ProxyId) -> bool:
        return self.phase is Phase.PULLING and self._peer is not None and self._peer.proxy == peer

    def _append(self) -> None:
        """Append all that came meanwhile at once, or the link is as slow as the log's round trip."""
        if self._appending or not self._queued:
            return
        came = self._queued
        self._queued, self._queued_bytes = [], 0
        self._appending = True
        records = [record for record in came if record.link == self._neighbour]
        self._emit(Append(records, self._answered(partial(self._appended, self._opening, len(came)))))

    def _appended(self, opening: int, count: int, _: list[int], now_ms: int) -> None:
        self._appending = False
        if self.phase is Phase.PULLING and self._opening == opening:
            # While the log took its time the sender may have waited for us.
            self._last_received_ms = now_ms
            self._send(LinkAppended(self._state.site, self.epoch, opening, count))
            self._append()
        elif self.phase is Phase.PAUSING:
            self._find_log_end(now_ms)

    def _filters_changed(self) -> bool:
        """Look at what our site wants of the neighbour; return whether it is something else than we last said."""
        state = self._state
        wants = state.wants[self._neighbour]
        self._version = state.version
        self._unanswered = any(not self._has_answer(expression) for expression in wants)
        protections = state.protections_for(self._neighbour)
        if (wants, protections) == (self._announced_filters, self._announced_protections):
            return False
        self._announced_filters, self._announced_protections = dict(wants), protections
        return True

    @property
    def _unheard(self) -> bool:
        """Tell whether what we said last may not have come: it is said again."""
        return self._unanswered or (self._applied_serial is not None and self._applied_serial < self._serial)

    def _has_answer(self, expression: str) -> bool:
        upstream = self._state.upstream
        return any(upstream.get(each) == self._neighbour for each in self._state.effective.get(expression, ()))

    def _send_filters(self, now_ms: int) -> None:
        self._announced_ms = now_ms
        self._send(
            LinkWants(self._state.site, self.epoch, self._serial, self._announced_filters, self._announced_protections)
        )

    def _send(self, message: LinkOpen | LinkWants | LinkAppended) -> None:
        assert self._peer is not None
        self._emit(SendPeer(self._peer.proxy, message))

    # ------------------------------------------------------------ what changes around us

    def folded(self, now_ms: int) -> None:
        """The state was folded further."""
        renewed, self._repaired = self._state.repaired != self._repaired, self._state.repaired
        if renewed and self.phase in (Phase.LEVELLING, Phase.PULLING):
            # What the neighbour says of itself at an opening may be what could not be read.
            self._pause(now_ms, 0)
        elif self.phase is Phase.LEVELLING:
            self._open_if_caught_up(now_ms)
        elif self.phase is Phase.NAMING:
            self._elect_if_claim_is_gone()
        elif self.phase is Phase.PULLING and self._known_epoch > self.epoch:
            # Nothing that we append counts.
            self._wait(now_ms)
        elif self.phase is Phase.PULLING and self._state.version != self._version and self._filters_changed():
            self._serial += 1
            self._send_filters(now_ms)

    def proxies_changed(self, now_ms: int) -> None:
        """The neighbour has other proxies now."""
        if self.phase is Phase.PAUSING:
            self._find_log_end(now_ms)
        elif self.phase is Phase.PULLING and self._peer not in self._rows(self._neighbour):
            self._reopen(now_ms)

    # ------------------------------------------------------------ time

    def tick(self, now_ms: int) -> None:
        if self.phase is Phase.WAITING and now_ms >= self._due:
            self._elect()
        elif self.phase is Phase.PAUSING:
            self._find_log_end(now_ms)
        elif self.phase is Phase.PULLING and not self._appending and now_ms >= self._last_received_ms + SILENCE_MS:
            self._reopen(now_ms)
        elif self.phase is Phase.PULLING and self._unheard and now_ms >= self._announced_ms + RESEND_MS:
            self._send_filters(now_ms)

    def next_deadline(self) -> int:
        """Return when :meth:`tick` is due; NEVER: only something else can bring us further."""
        if self.phase is Phase.PULLING:
            silent = NEVER if self._appending else self._last_received_ms + SILENCE_MS
            return min(silent, self._announced_ms + RESEND_MS) if self._unheard else silent
        pausing = self.phase is Phase.PAUSING and not self._appending and self._rows(self._neighbour)
        return self._due if pausing or self.phase is Phase.WAITING else NEVER
