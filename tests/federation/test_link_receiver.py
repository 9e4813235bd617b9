"""The receiving end of a link: when it asks to lead, when it opens, what it appends, says and acknowledges."""

from __future__ import annotations

import random
from typing import TypeVar

import msgspec
import pytest

from federation.links.bounds import LinkBounds
from federation.links.effects import AppendRecords, Elect, FindEnd, LinkEffect, Resign, SendNeighbour
from federation.links.link_receiver import (
    ELECT_MS,
    FIND_END_AGAIN_MS,
    PROBE_MS,
    RESEND_MS,
    SILENCE_MS,
    UNNAMED_MS,
    LinkReceiver,
    Phase,
)
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
from federation.site.neighbour_filters import digest_of
from federation.site.state import SiteState
from tests.helpers.link_parts import ProxiesOfTest, ToTest
from waypost.checksum import checksum
from waypost.clock import NEVER
from waypost.errors import BadMessage, LogUnavailable, RegistryUnavailable
from waypost.identity import Incarnation, Origin, ProxyId, SessionId, SiteId, edge
from waypost.keys import OPEN
from waypost.limits import LINK_LEASE_MS, LINK_LONGEST_PAUSE_MS, LINK_REQUEST_BYTES
from waypost.records import (
    Damaged,
    Forwarded,
    InterestRegistered,
    LinkLed,
    OriginEnded,
    Progress,
    Record,
    RequestPart,
    Severed,
    TreeEntered,
)

A, B, C = SiteId("A"), SiteId("B"), SiteId("C")
FROM_A = Origin("A/0")
A1, A2 = ProxyId("a1"), ProxyId("a2")
X, Y = "n > 0", "o > 1"
Kind = TypeVar("Kind")


def row(proxy: ProxyId, incarnation: str = "1") -> ProxyRow:
    return ProxyRow(proxy=proxy, incarnation=Incarnation(incarnation), site=A, url="")


def progress(upto: int, link: SiteId = A) -> Progress:
    return Progress(link, 5, FROM_A, upto)


class ReceiverBench:
    """B's end of the link from A, its log, and what it wants done. Time is what a test says."""

    def __init__(self, request_bytes: int = LINK_REQUEST_BYTES) -> None:
        self.now = 1_000
        self.rows = [row(A1), row(A2)]
        self.effects: list[LinkEffect] = []
        self.log: list[Record] = []
        self.applied_serial: int | None = None
        """The last request that the far side says is in force there; None: the opening."""
        self.refused_serial = 0
        self.state = SiteState(B, (A, C))
        self.requests: list[LeaseRequest] = []
        """Requests for leases of the link."""
        self.grants = True
        """Whether the neighbour grants them, at once."""
        bounds = LinkBounds(queue=5, request_bytes=request_bytes)
        self.link = LinkReceiver(
            A, self.state, ProxiesOfTest(lambda _: self.rows), random.Random(1), ToTest(self._emit), bounds
        )

    def _emit(self, effect: LinkEffect) -> None:
        if isinstance(effect, SendNeighbour) and isinstance(effect.message, LeaseRequest):
            self.requests.append(effect.message)
            if self.grants:
                self.link.granted(LeaseGranted(A, effect.message.number), self.now)
        else:
            self.effects.append(effect)

    def wants(self, kind: type[Kind]) -> Kind:
        """Return the next thing that is wanted, which is of this kind."""
        effect = self.effects.pop(0)
        assert isinstance(effect, kind), effect
        return effect

    def sent(self, kind: type[Kind]) -> tuple[ProxyId, Kind]:
        sent = self.wants(SendNeighbour)
        assert isinstance(sent.message, kind), sent
        return sent.proxy, sent.message

    def fold(self, *records: Record) -> None:
        for record in records:
            self.state.fold(len(self.log), record)
            self.log.append(record)
            if isinstance(record, LinkLed):
                self.link.named(record, self.now)
        self.link.folded(self.now)

    def passes(self, wait_ms: int) -> None:
        """Let time pass as a shell does: it ticks when a tick is due."""
        end = self.now + wait_ms
        while max(due := self.link.next_deadline(), self.now + 1) <= end:
            self.now = max(due, self.now + 1)
            self.link.tick(self.now)
        self.now = max(self.now, end)

    def lead(self, epoch: int = 5) -> tuple[ProxyId, LinkOpen]:
        """Begin a lease, be elected, and open."""
        self.link.lease_granted(self.now)
        self.wants(Elect).on_done(epoch, self.now)
        return self.opened()

    def opened(self) -> tuple[ProxyId, LinkOpen]:
        """Tell it where the log ends; if it then names its epoch in the log, have that come to the log."""
        self.wants(FindEnd).on_done(len(self.log), self.now)
        if isinstance(self.effects[0], AppendRecords):
            self.named()
        return self.sent(LinkOpen)

    def elected(self, end: int) -> None:
        """Begin a lease, be elected, and be told where the log ends."""
        self.link.lease_granted(self.now)
        self.wants(Elect).on_done(5, self.now)
        self.wants(FindEnd).on_done(end, self.now)

    def names(self) -> AppendRecords:
        """Begin a lease and be elected, at an empty log; return what names the epoch there."""
        self.elected(0)
        return self.wants(AppendRecords)

    def named(self) -> LinkLed:
        """Have what names its epoch come to the log."""
        naming = self.wants(AppendRecords)
        (claim,) = naming.records
        assert isinstance(claim, LinkLed)
        naming.on_done([len(self.log)], self.now)
        self.fold(claim)
        return claim

    def receive(self, opening: LinkOpen, number: int, *records: LinkRecord, epoch: int = 5, peer: ProxyId = A1) -> None:
        applied_serial = opening.serial if self.applied_serial is None else self.applied_serial
        link_records = LinkRecords(
            site=A,
            epoch=epoch,
            opening=opening.serial,
            number=number,
            records=list(records),
            applied_serial=applied_serial,
            refused_serial=self.refused_serial,
        )
        self.link.receive(peer, link_records, self.now)


def test_link_requests_election_when_a_lease_begins_and_again_while_another_proxy_leads() -> None:
    pulling = ReceiverBench()
    pulling.link.lease_granted(pulling.now)
    asked = pulling.wants(Elect)
    assert asked.link == "A->B"
    asked.on_done(None, pulling.now)
    assert pulling.link.phase is Phase.WAITING and not pulling.link.epoch
    pulling.passes(ELECT_MS - 1)
    assert not pulling.effects
    pulling.passes(1)
    pulling.wants(Elect)


def test_link_requests_election_again_when_the_registry_does_not_answer() -> None:
    pulling = ReceiverBench()
    pulling.link.lease_granted(pulling.now)
    pulling.wants(Elect).on_done(RegistryUnavailable("no answer"), pulling.now)
    pulling.passes(ELECT_MS)
    pulling.wants(Elect)


def test_link_opens_with_the_frontier_of_the_whole_log() -> None:
    pulling = ReceiverBench()
    pulling.fold(progress(3))
    pulling.elected(2)
    assert not pulling.effects
    pulling.fold(progress(8))
    pulling.named()
    peer, opening = pulling.sent(LinkOpen)
    assert (peer, opening.site, opening.frontier[FROM_A]) == (A1, B, 8)


def test_link_does_not_wait_for_an_end_that_the_log_has_lost_unread() -> None:
    """It would wait until others have appended as much, at a quiet site for ever."""
    pulling = ReceiverBench()
    pulling.fold(progress(3))
    pulling.elected(4)
    pulling.passes(FIND_END_AGAIN_MS - 1)
    assert not pulling.effects
    pulling.passes(1)
    pulling.wants(FindEnd).on_done(1, pulling.now)
    pulling.named()
    pulling.sent(LinkOpen)


def test_a_registry_that_counts_elections_anew_gives_no_epoch_of_an_earlier_leader() -> None:
    pulling = ReceiverBench()
    pulling.fold(msgspec.structs.replace(progress(8), link_epoch=100))
    _, opening = pulling.lead(epoch=3)
    assert opening.epoch == 103
    # It stays the same for as long as it leads, and another leader has a higher one.
    pulling.fold(msgspec.structs.replace(progress(9), link_epoch=103))
    pulling.link.tick(pulling.now + SILENCE_MS)
    other = ReceiverBench()
    other.fold(msgspec.structs.replace(progress(9), link_epoch=103))
    assert other.lead(epoch=4)[1].epoch == 107


def test_link_leader_logs_its_epoch_before_it_sends() -> None:
    pulling = ReceiverBench()
    naming = pulling.names()
    naming.on_done([0], pulling.now)
    assert not pulling.effects and pulling.link.phase is Phase.NAMING
    (claim,) = naming.records
    assert isinstance(claim, LinkLed) and (claim.link, claim.link_epoch) == (A, 5)
    pulling.fold(claim)
    pulling.sent(LinkOpen)


def test_of_two_that_lead_at_one_epoch_the_first_that_names_it_does_and_the_other_is_elected_anew() -> None:
    pulling = ReceiverBench()
    naming = pulling.names()
    (claim,) = naming.records
    pulling.fold(LinkLed(A, 5, "another"))
    elected = pulling.wants(Elect)
    assert not pulling.link.epoch
    # What comes late of the claim that lost counts for nothing.
    naming.on_done([1], pulling.now)
    pulling.fold(claim)
    assert not pulling.effects
    # The registry counts from where it was put back to.
    elected.on_done(5, pulling.now)
    assert pulling.opened()[1].epoch == 10


def test_a_leader_that_pulls_and_reads_anothers_claim_of_its_epoch_is_elected_anew() -> None:
    """Log and registry have both lost who led, and another has named the same epoch since."""
    pulling = ReceiverBench()
    pulling.lead(epoch=5)
    pulling.fold(LinkLed(A, 4, "an earlier one"))
    assert pulling.link.phase is Phase.PULLING
    pulling.fold(LinkLed(A, 5, "another"))
    pulling.wants(Elect).on_done(6, pulling.now)
    assert pulling.opened()[1].epoch == 6


def test_link_leader_with_an_unreadable_claim_requests_another_election() -> None:
    pulling = ReceiverBench()
    naming = pulling.names()
    pulling.fold(Damaged("a bit was turned over"))
    assert not pulling.effects
    naming.on_done([0], pulling.now)
    pulling.wants(Elect)


def test_the_epoch_of_an_earlier_leader_is_not_taken_again() -> None:
    pulling = ReceiverBench()
    pulling.fold(LinkLed(A, 5, "another"))
    assert pulling.lead(epoch=5)[1].epoch == 10


def test_link_leader_gives_up_when_the_neighbour_has_a_later_serial_of_its_epoch() -> None:
    pulling = ReceiverBench()
    _, opening = pulling.lead()
    batch = LinkRecords(site=A, epoch=5, opening=NO_OPENING, number=opening.serial, records=[])
    pulling.link.receive(A1, batch, pulling.now)
    assert pulling.link.phase is Phase.PULLING
    pulling.link.receive(A1, msgspec.structs.replace(batch, number=opening.serial + 1), pulling.now)
    assert not pulling.link.epoch
    pulling.passes(ELECT_MS)
    pulling.wants(Elect).on_done(6, pulling.now)
    assert pulling.opened()[1].epoch == 6


def test_link_leader_with_an_outdated_epoch_is_elected_again_above_the_later_one() -> None:
    pulling = ReceiverBench()
    pulling.rows = []
    pulling.link.lease_granted(pulling.now)
    pulling.wants(Elect).on_done(1, pulling.now)
    pulling.fold(msgspec.structs.replace(progress(8), link_epoch=2))
    pulling.rows = [row(A1)]
    pulling.link.proxies_changed(pulling.now)
    pulling.wants(FindEnd).on_done(len(pulling.log), pulling.now)
    pulling.wants(Elect).on_done(None, pulling.now)
    assert not pulling.effects and pulling.link.phase is Phase.WAITING
    # The registry that says the same again was lost.
    pulling.passes(ELECT_MS)
    pulling.wants(Elect).on_done(1, pulling.now)
    assert pulling.opened()[1].epoch == 3


def test_whom_the_neighbour_tells_of_a_later_leader_goes_on_above_it_if_it_is_elected_again() -> None:
    pulling = ReceiverBench()
    _, opening = pulling.lead(epoch=2)
    pulling.link.receive(A2, LinkRecords(site=A, epoch=7, opening=0, number=0, records=[]), pulling.now)
    assert pulling.link.epoch == 2
    pulling.link.receive(A1, LinkRecords(site=A, epoch=7, opening=0, number=0, records=[]), pulling.now)
    assert not pulling.link.epoch
    pulling.passes(ELECT_MS)
    pulling.wants(Elect).on_done(2, pulling.now)
    again = pulling.opened()[1]
    assert (again.epoch, again.serial) == (9, opening.serial + 1)


def test_whom_a_later_leader_has_followed_is_elected_anew() -> None:
    pulling = ReceiverBench()
    pulling.lead(epoch=5)
    pulling.fold(msgspec.structs.replace(progress(9), link_epoch=6))
    assert pulling.link.phase is Phase.WAITING and not pulling.link.epoch


def test_link_waits_for_a_proxy_of_the_neighbour() -> None:
    pulling = ReceiverBench()
    pulling.rows = []
    pulling.link.lease_granted(pulling.now)
    pulling.wants(Elect).on_done(5, pulling.now)
    assert not pulling.effects and pulling.link.phase is Phase.PAUSING
    pulling.rows = [row(A2)]
    pulling.link.proxies_changed(pulling.now)
    assert pulling.opened()[0] == A2


def test_received_records_are_appended_in_order_and_acknowledged_after_the_append() -> None:
    pulling = ReceiverBench()
    _, opening = pulling.lead()
    pulling.receive(opening, 1, progress(1), progress(2))
    append = pulling.wants(AppendRecords)
    assert append.records == [progress(1), progress(2)]
    assert not pulling.effects
    append.on_done([0, 1], pulling.now)
    assert pulling.sent(LinkAppended) == (A1, LinkAppended(B, 5, opening.serial, 2))


def test_records_received_during_an_append_go_with_the_next_append() -> None:
    pulling = ReceiverBench()
    _, opening = pulling.lead()
    for number in (1, 2, 3):
        pulling.receive(opening, number, progress(number))
    append = pulling.wants(AppendRecords)
    assert not pulling.effects
    append.on_done([0], pulling.now)
    assert pulling.sent(LinkAppended)[1].count == 1
    assert pulling.wants(AppendRecords).records == [progress(2), progress(3)]


def test_records_of_another_link_are_not_appended_and_do_not_occupy_the_window() -> None:
    pulling = ReceiverBench()
    _, opening = pulling.lead()
    other_epoch = msgspec.structs.replace(progress(1), link_epoch=6)
    pulling.receive(opening, 1, progress(1, link=C), other_epoch, progress(2))
    append = pulling.wants(AppendRecords)
    assert append.records == [progress(2)]
    append.on_done([0], pulling.now)
    assert pulling.sent(LinkAppended)[1].count == 3


def test_a_message_that_comes_twice_counts_once() -> None:
    pulling = ReceiverBench()
    _, opening = pulling.lead()
    pulling.receive(opening, 1, progress(1))
    pulling.receive(opening, 1, progress(1))
    pulling.wants(AppendRecords).on_done([0], pulling.now)
    pulling.sent(LinkAppended)
    assert not pulling.effects


def test_records_of_another_opening_epoch_or_peer_are_ignored() -> None:
    pulling = ReceiverBench()
    _, opening = pulling.lead()
    pulling.link.receive(
        A1, LinkRecords(site=A, epoch=5, opening=opening.serial + 1, number=1, records=[progress(1)]), pulling.now
    )
    pulling.receive(opening, 1, progress(1), epoch=4)
    pulling.receive(opening, 1, progress(1), peer=A2)
    assert not pulling.effects and pulling.link.phase is Phase.PULLING


@pytest.mark.parametrize(
    "record",
    [
        Progress(A, 5, FROM_A, 1 << 63),
        Progress(A, 5, FROM_A, -2),
        Progress(A, (1 << 64) - 1, FROM_A, 3),
        Progress(A, 5, Origin("A"), 3),
        Progress(A, 5, Origin("A/0.x"), 3),
        Severed(A, 5, (A,), (Origin(""),)),
        OriginEnded(link=A, link_epoch=5, origin=FROM_A, end=1, seen=2, following=Origin("A/0.q"), begins=3),
        OriginEnded(link=A, link_epoch=5, origin=FROM_A, end=1, seen=2, following=Origin("B/0.2"), begins=3),
        OriginEnded(link=A, link_epoch=5, origin=Origin("A/0.2"), end=1, seen=2, following=FROM_A, begins=3),
    ],
    ids=lambda record: str(record)[:60],
)
def test_records_that_no_log_can_have_are_refused_and_not_appended(record: LinkRecord) -> None:
    """They would stand in the log of this site, and of all behind it, for ever."""
    pulling = ReceiverBench()
    _, opening = pulling.lead()
    with pytest.raises(BadMessage, match="that no log has"):
        pulling.receive(opening, 1, progress(3), record)
    assert not pulling.effects
    pulling.receive(opening, 1, progress(3))
    assert pulling.wants(AppendRecords).records == [progress(3)]


def test_link_opens_again_at_the_next_proxy_after_a_hole_and_the_pending_append() -> None:
    pulling = ReceiverBench()
    _, opening = pulling.lead()
    pulling.receive(opening, 1, progress(1))
    append = pulling.wants(AppendRecords)
    pulling.receive(opening, 3, progress(3))
    pulling.passes(LINK_LONGEST_PAUSE_MS)
    pulling.link.tick(pulling.now)
    assert not pulling.effects
    append.on_done([0], pulling.now)
    pulling.wants(FindEnd).on_done(2, pulling.now)
    assert not pulling.effects
    pulling.fold(progress(1))
    peer, again = pulling.sent(LinkOpen)
    assert (peer, again.frontier[FROM_A]) == (A2, 1)
    assert again.serial > opening.serial


def test_altered_records_are_not_appended_and_the_link_opens_again() -> None:
    pulling = ReceiverBench()
    _, opening = pulling.lead()
    whole = Forwarded(
        link=A,
        link_epoch=5,
        origin=FROM_A,
        offset=0,
        path=(A,),
        producer="p",
        incarnation=Incarnation("i"),
        sequence=1,
        at_ms=0,
        body=b"body",
        check=checksum(b"body"),
    )
    pulling.receive(opening, 1, whole, msgspec.structs.replace(whole, offset=1, body=b"bodY"))
    assert not [effect for effect in pulling.effects if isinstance(effect, AppendRecords)]
    pulling.passes(LINK_LONGEST_PAUSE_MS)
    _, again = pulling.opened()
    pulling.receive(again, 1, whole, peer=A2)
    assert pulling.wants(AppendRecords).records == [whole]


def test_link_without_messages_opens_again_after_growing_pauses() -> None:
    pulling = ReceiverBench()
    pulling.lead()
    pauses = []
    for _ in range(30):
        pulling.passes(SILENCE_MS)
        silent_at = pulling.now
        assert pulling.link.phase is Phase.PAUSING
        pulling.effects.clear()
        while not pulling.effects:
            pulling.passes(1)
        pauses.append(pulling.now - silent_at)
        pulling.opened()
    assert pauses[0] <= 50 and max(pauses) > 400
    assert all(50 <= pause <= LINK_LONGEST_PAUSE_MS for pause in pauses)


def test_a_slow_append_is_no_silence() -> None:
    pulling = ReceiverBench()
    _, opening = pulling.lead()
    pulling.receive(opening, 1, progress(1))
    append = pulling.wants(AppendRecords)
    pulling.passes(5 * SILENCE_MS)
    append.on_done([0], pulling.now)
    pulling.sent(LinkAppended)
    pulling.passes(SILENCE_MS - 1)
    assert pulling.link.phase is Phase.PULLING


def test_link_leaves_a_peer_that_exceeds_the_window() -> None:
    pulling = ReceiverBench()
    _, opening = pulling.lead()
    pulling.receive(opening, 1, progress(1))
    pulling.receive(opening, 2, *(progress(number) for number in range(2, 8)))
    assert pulling.link.phase is Phase.PAUSING
    pulling.wants(AppendRecords)
    assert not pulling.effects


def test_when_its_proxy_goes_it_opens_at_another() -> None:
    pulling = ReceiverBench()
    pulling.lead()
    pulling.rows = [row(A1, incarnation="2"), row(A2)]
    pulling.link.proxies_changed(pulling.now)
    pulling.passes(LINK_LONGEST_PAUSE_MS)
    assert pulling.opened()[0] == A2


def test_when_the_log_fails_it_is_elected_anew() -> None:
    pulling = ReceiverBench()
    _, opening = pulling.lead()
    pulling.receive(opening, 1, progress(1))
    pulling.wants(AppendRecords).on_done(LogUnavailable("no answer"), pulling.now)
    assert not pulling.link.epoch
    pulling.passes(ELECT_MS)
    pulling.wants(Elect)


def holds(*expressions: str) -> InterestRegistered:
    return InterestRegistered(ProxyId("b1"), Incarnation("1"), SessionId("s"), expressions)


def test_link_requests_a_change_of_its_filters_once_what_it_requested_before_is_in_force() -> None:
    pulling = ReceiverBench()
    _, opening = pulling.lead()
    assert opening.digest == 0
    pulling.fold(holds(X))
    assert not pulling.effects
    pulling.receive(opening, 1)
    peer, first = pulling.sent(LinkWants)
    assert (peer, first.part, first.base, first.installations) == (A1, RequestPart.CHANGE, 0, {X: 1})
    assert first.serial > opening.serial
    pulling.fold(progress(1), holds(Y))
    assert not pulling.effects
    pulling.applied_serial = first.serial
    pulling.receive(opening, 2)
    _, second = pulling.sent(LinkWants)
    assert (second.base, second.installations, second.removed) == (digest_of(X, (1, (OPEN,))), {Y: 3}, (X,))


def test_request_is_sent_again_until_it_is_answered() -> None:
    pulling = ReceiverBench()
    pulling.fold(holds(X))
    _, opening = pulling.lead()
    pulling.receive(opening, 1)
    pulling.fold(holds())
    _, request = pulling.sent(LinkWants)
    assert (request.serial, request.removed) == (opening.serial + 1, (X,))
    pulling.receive(opening, 2)
    pulling.passes(RESEND_MS)
    assert pulling.sent(LinkWants)[1] == request
    pulling.applied_serial = request.serial
    pulling.receive(opening, 3)
    pulling.passes(2 * RESEND_MS)
    assert not pulling.effects


def test_an_opening_without_an_answer_is_followed_by_the_same_request() -> None:
    """The append of what it requests may have failed, and an opening counts once."""
    pulling = ReceiverBench()
    pulling.fold(holds(X))
    _, opening = pulling.lead()
    pulling.applied_serial = 0
    pulling.receive(opening, 1)
    pulling.passes(RESEND_MS)
    _, request = pulling.sent(LinkWants)
    assert (request.serial, request.base, request.installations) == (opening.serial, opening.digest, {})


def test_what_is_refused_is_followed_by_a_statement_of_all_in_parts() -> None:
    pulling = ReceiverBench(request_bytes=1)
    pulling.fold(holds(X, Y))
    _, opening = pulling.lead()
    pulling.applied_serial, pulling.refused_serial = 0, opening.serial
    pulling.receive(opening, 1)
    _, first = pulling.sent(LinkWants)
    assert (first.part, first.installations) == (RequestPart.FIRST, {X: 0})
    pulling.fold(holds("n > 2", Y))
    pulling.applied_serial = first.serial
    pulling.receive(opening, 2)
    # What has come to be wanted meanwhile goes before the last part, which removes what was not stated.
    _, following = pulling.sent(LinkWants)
    assert (following.part, following.installations) == (RequestPart.NEXT, {"n > 2": 2})
    pulling.applied_serial = following.serial
    pulling.receive(opening, 3)
    _, last = pulling.sent(LinkWants)
    assert (last.part, last.installations) == (RequestPart.LAST, {Y: 0})
    pulling.applied_serial = last.serial
    pulling.receive(opening, 4)
    base = digest_of(X, (0, (OPEN,))) ^ digest_of(Y, (0, (OPEN,))) ^ digest_of("n > 2", (2, (OPEN,)))
    _, change = pulling.sent(LinkWants)
    assert (change.part, change.base, change.removed, change.installations) == (RequestPart.CHANGE, base, (X,), {})


def test_what_is_in_force_is_compared_while_nothing_changes() -> None:
    pulling = ReceiverBench()
    pulling.fold(holds(X))
    _, opening = pulling.lead()
    for number in range(1, PROBE_MS // 1_000 + 1):
        pulling.receive(opening, number)
        assert not pulling.effects
        pulling.passes(1_000)
    _, probe = pulling.sent(LinkWants)
    assert (probe.base, probe.installations, probe.removed) == (opening.digest, {}, ())
    assert probe.serial > opening.serial


def test_link_that_is_not_in_the_tree_stands_by() -> None:
    """Nothing is to come over it, so nobody waits for its progress."""
    pulling = ReceiverBench()
    pulling.lead()
    assert not pulling.link.shown(pulling.now).stands_by
    pulling.fold(TreeEntered(1, (edge(B, C),)))
    shown = pulling.link.shown(pulling.now)
    assert (shown.stands_by, shown.leads, shown.phase) == (True, True, "pausing")


def test_when_the_lease_ends_it_says_and_appends_nothing_more() -> None:
    pulling = ReceiverBench()
    _, opening = pulling.lead()
    pulling.receive(opening, 1, progress(1))
    append = pulling.wants(AppendRecords)
    pulling.receive(opening, 2, progress(2))
    pulling.link.lease_ended()
    append.on_done([0], pulling.now)
    pulling.receive(opening, 3, progress(3))
    pulling.fold(InterestRegistered(ProxyId("b1"), Incarnation("1"), SessionId("s"), (X,)))
    pulling.passes(10 * SILENCE_MS)
    assert not pulling.effects and pulling.link.next_deadline() == NEVER


def test_an_election_under_an_earlier_lease_counts_for_nothing() -> None:
    pulling = ReceiverBench()
    pulling.link.lease_granted(pulling.now)
    asked = pulling.wants(Elect)
    pulling.link.lease_ended()
    asked.on_done(5, pulling.now)
    assert not pulling.link.epoch and not pulling.effects


# ---------------------------------------------------------------- the lease of the link, and the tree


def test_leader_asks_for_a_lease_several_times_in_its_time_and_leads_on_while_it_is_granted() -> None:
    pulling = ReceiverBench()
    pulling.lead()
    for _ in range(10):
        pulling.passes(LINK_LEASE_MS // 4)
        pulling.effects.clear()
    assert len(pulling.requests) >= 10 and pulling.link.epoch


def test_leader_without_a_grant_resigns_and_stands_again_when_there_is_one() -> None:
    pulling = ReceiverBench()
    pulling.lead()
    pulling.grants = False
    pulling.passes(2 * LINK_LEASE_MS)
    assert pulling.link.phase is Phase.UNREACHED and not pulling.link.epoch
    (resign,) = [effect for effect in pulling.effects if isinstance(effect, Resign)]
    assert resign.link == "A->B"
    pulling.effects.clear()
    pulling.grants = True
    pulling.passes(LINK_LEASE_MS // 4)
    # Not before the registry has answered: the resignation would end the next leadership.
    assert not pulling.effects
    resign.on_done(None, pulling.now)
    pulling.wants(Elect)


def test_resignation_that_the_registry_does_not_answer_is_repeated() -> None:
    pulling = ReceiverBench()
    pulling.lead()
    pulling.grants = False
    pulling.passes(2 * LINK_LEASE_MS)
    resign = next(effect for effect in pulling.effects if isinstance(effect, Resign))
    pulling.effects.clear()
    resign.on_done(RegistryUnavailable("no answer"), pulling.now)
    pulling.passes(ELECT_MS)
    pulling.wants(Resign)


def test_leader_without_a_grant_resigns_again_when_the_registry_may_have_gone_back() -> None:
    pulling = ReceiverBench()
    pulling.lead()
    pulling.grants = False
    pulling.passes(2 * LINK_LEASE_MS)
    next(effect for effect in pulling.effects if isinstance(effect, Resign)).on_done(None, pulling.now)
    pulling.effects.clear()
    pulling.link.registry_reloaded(pulling.now)
    pulling.passes(1)
    pulling.wants(Resign)


def test_leader_that_the_registry_does_not_name_is_elected_again_after_a_while() -> None:
    pulling = ReceiverBench()
    _, opening = pulling.lead()
    pulling.receive(opening, 1)
    pulling.link.registry_changed(set(), pulling.now)
    pulling.passes(UNNAMED_MS - 1)
    # The watch has told of the election by now.
    pulling.link.registry_changed({"A->B"}, pulling.now)
    pulling.passes(UNNAMED_MS)
    assert not pulling.effects
    pulling.link.registry_changed(set(), pulling.now)
    pulling.passes(UNNAMED_MS)
    pulling.wants(Elect)


def test_grant_of_an_old_request_does_not_prolong_the_lease() -> None:
    pulling = ReceiverBench()
    pulling.lead()
    pulling.grants = False
    pulling.passes(LINK_LEASE_MS // 2)
    first = pulling.requests[0].number
    pulling.passes(LINK_LEASE_MS * 2)
    pulling.effects.clear()
    pulling.link.granted(LeaseGranted(A, first), pulling.now)
    assert pulling.link.phase is Phase.UNREACHED


def test_link_outside_the_tree_is_led_and_not_opened_until_the_log_enters_a_tree_with_it() -> None:
    pulling = ReceiverBench()
    pulling.fold(TreeEntered(1, ((B, C),)))
    pulling.link.lease_granted(pulling.now)
    pulling.wants(Elect).on_done(5, pulling.now)
    pulling.passes(LINK_LEASE_MS)
    assert not pulling.effects and pulling.link.epoch == 5
    pulling.fold(TreeEntered(2, ((A, B),)))
    _, opening = pulling.opened()
    assert opening.tree_epoch == 2


def test_link_opens_again_in_each_tree() -> None:
    pulling = ReceiverBench()
    pulling.lead()
    pulling.fold(TreeEntered(1, ((A, B), (B, C))))
    _, opening = pulling.opened()
    assert opening.tree_epoch == 1
    pulling.fold(TreeEntered(2, ((B, C),)))
    pulling.passes(LINK_LEASE_MS // 8)
    assert not pulling.effects and pulling.link.phase is Phase.PAUSING
