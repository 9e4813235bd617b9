"""The client's protocol: what it says, what it drops, what it says again."""

from __future__ import annotations

import zlib

import msgspec
import pytest

from waypost.checksum import checksum
from waypost.client.delivery_state import ReceiverState
from waypost.client.events import PublishFailed, Redirected, Refusal, Retry, SessionReplaced, SubscriptionResult
from waypost.client.options import AttachOptions
from waypost.client.protocol import ClientProtocol
from waypost.client.publish_buffer import Published
from waypost.errors import Altered, LogUnavailable, SessionDeleted, WaypostError
from waypost.facts import GapCause
from waypost.frontier import RecentIds
from waypost.identity import (
    GENERATION,
    Coordinate,
    Epoch,
    Incarnation,
    Origin,
    ProxyId,
    SessionId,
    SiteId,
    SubscriptionId,
)
from waypost.limits import ATTESTATIONS, MAX_PUBLISH_BATCH, PUBLISH_WINDOW
from waypost.messages import (
    AboutPublish,
    AboutSession,
    AboutSubscription,
    Acknowledge,
    Acknowledged,
    Attach,
    Attached,
    Attested,
    Delete,
    Deleted,
    Deliver,
    Delivery,
    Gap,
    Hello,
    Moved,
    Problem,
    Publish,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
    Wait,
    WaitCause,
    Welcome,
)
from waypost.notification import Notification
from waypost.queue import Queue
from waypost.reliability import BEST_EFFORT

A, B = Origin("A/0"), Origin("B/0")
SUB = SubscriptionId("s")


def entry(origin: Origin, offset: int, sequence: int | None = None, producer: str = "p") -> Delivery:
    number = offset if sequence is None else sequence
    return Delivery(
        origin=origin,
        offset=offset,
        producer=producer,
        incarnation=Incarnation("i"),
        sequence=number,
        at_ms=0,
        body=b"\x80",
        check=checksum(b"\x80"),
    )


def ranked(offset: int, priority: int) -> Delivery:
    body = Notification({"Priority": priority}).body
    return msgspec.structs.replace(entry(A, offset), body=body, check=checksum(body))


def deliver(epoch: int, through: int, *entries: Delivery) -> Deliver:
    return Deliver(
        epoch=Epoch(epoch), through=through, matches=[(SUB,)], matched=[0] * len(entries), entries=list(entries)
    )


def attached_protocol(state: ReceiverState | None = None, epoch: int = 1) -> ClientProtocol:
    protocol = ClientProtocol("c", SessionId("s"), state=state)
    connect(protocol, epoch)
    protocol.take_messages()
    protocol.take_events()
    return protocol


def connect(protocol: ClientProtocol, epoch: int = 1, proxy: str = "a") -> None:
    protocol.connected()
    protocol.message(Welcome(1, ProxyId(proxy), SiteId("A"), "f"))
    protocol.message(
        Attached(
            session=SessionId("s"),
            epoch=Epoch(epoch),
            proxy=ProxyId(proxy),
            site=SiteId("A"),
            subscriptions={},
            stored=0,
        )
    )


def given(protocol: ClientProtocol) -> list[tuple[Origin, int]]:
    taken = []
    while batch := protocol.next_items():
        taken += [(entry.origin, entry.offset) for entry, *_ in batch]
    return taken


def test_a_connection_begins_with_hello_and_the_frontier() -> None:
    state = ReceiverState(frontier={A: 7})
    protocol = ClientProtocol("c", SessionId("s"), state=state)
    protocol.connected()
    hello, attach = protocol.take_messages()
    assert isinstance(hello, Hello)
    assert isinstance(attach, Attach)
    assert attach.frontier == {A: 7}


def test_entries_at_or_below_the_frontier_are_dropped() -> None:
    protocol = attached_protocol(ReceiverState(frontier={A: 5}))
    protocol.message(deliver(1, 3, entry(A, 4), entry(A, 5), entry(A, 6)))
    assert given(protocol) == [(A, 6)]
    assert protocol.duplicates_dropped == 2


def test_a_retried_publish_with_another_coordinate_is_dropped_by_its_id() -> None:
    protocol = attached_protocol()
    protocol.message(deliver(1, 2, entry(A, 4, sequence=1), entry(B, 9, sequence=1)))
    assert given(protocol) == [(A, 4)]
    assert protocol.state.frontier == {A: 4, B: 9}


def test_the_most_important_is_given_first_and_what_it_overtook_is_not_acknowledged_with_it() -> None:
    protocol = ClientProtocol("c", SessionId("s"), options=AttachOptions(order="priority"))
    connect(protocol)
    protocol.take_messages()
    protocol.message(deliver(1, 2, ranked(1, 5), ranked(2, 7)))
    protocol.message(deliver(1, 3, ranked(3, 9)))
    assert [entry.offset for entry, *_ in [*protocol.next_items(1), *protocol.next_items(1)]] == [3, 2]
    protocol.message(deliver(1, 4, ranked(4, 6)))
    assert [entry.offset for entry, *_ in protocol.next_items(1)] == [4]
    protocol.acknowledge()
    (ack,) = [ack for ack in protocol.take_messages() if isinstance(ack, Acknowledge) and ack.selective]
    assert (ack.through, ack.frontier, ack.selective) == (0, {A: 0}, {A: [2, 3, 4]})
    assert protocol.state.frontier == {A: 0}
    assert [entry.offset for entry, *_ in protocol.next_items()] == [1]
    protocol.flush_acks()
    assert [ack.through for ack in protocol.take_messages() if isinstance(ack, Acknowledge)] == [
        2,
        3,
        4,
    ]
    assert protocol.state.frontier == {A: 4} and not protocol.state.selective


def test_skipped_entry_does_not_come_after_acknowledged_ones_of_higher_priority() -> None:
    """Policy removed 1 at one owner; the next one was raised from a checkpoint, and has not decided so yet."""
    protocol = ClientProtocol("c", SessionId("s"), options=AttachOptions(order="priority"))
    connect(protocol)
    protocol.message(deliver(1, 4, ranked(2, 5), ranked(3, 7), ranked(4, 5)))
    assert [entry.offset for entry, *_ in [*protocol.next_items(1), *protocol.next_items(1)]] == [3, 2]
    protocol.acknowledge()
    assert protocol.state.frontier == {A: 3} and not protocol.state.selective
    protocol.disconnected()
    connect(protocol, epoch=2)
    protocol.message(deliver(2, 3, ranked(1, 5), ranked(2, 5), ranked(3, 7), ranked(4, 5)))
    assert given(protocol) == [(A, 4)]


def test_the_frontier_stands_below_what_was_overtaken_and_above_what_was_passed_over() -> None:
    protocol = ClientProtocol("c", SessionId("s"), options=AttachOptions(order="priority"))
    connect(protocol)
    protocol.message(deliver(1, 4, ranked(2, 1), ranked(3, 7), ranked(4, 1)))
    assert [entry.offset for entry, *_ in protocol.next_items(1)] == [3]
    protocol.acknowledge()
    assert protocol.state.frontier == {A: 1} and protocol.state.selective.rows() == {A: [3]}
    protocol.disconnected()
    connect(protocol, epoch=2)
    protocol.message(deliver(2, 3, ranked(1, 9), ranked(2, 1), ranked(3, 7), ranked(4, 1)))
    assert given(protocol) == [(A, 2), (A, 4)]


def test_a_delivery_of_an_older_epoch_means_nothing() -> None:
    protocol = attached_protocol(epoch=3)
    protocol.message(deliver(3, 1, entry(A, 1)))
    protocol.message(deliver(2, 9, entry(A, 2)))
    assert given(protocol) == [(A, 1)]
    assert protocol.state.frontier == {A: 1}


def test_another_session_of_the_name_delivers_although_its_epochs_began_anew() -> None:
    """Its registry has lost the one before: all that it delivers would be taken for a stale owner's, for ever."""
    protocol = attached_protocol(epoch=9)
    protocol.disconnected()
    protocol.connected()
    protocol.message(Welcome(1, ProxyId("b"), SiteId("A"), "f"))
    protocol.message(
        Attached(
            session=SessionId("s"),
            epoch=Epoch(1),
            proxy=ProxyId("b"),
            site=SiteId("A"),
            subscriptions={},
            stored=0,
            joined=True,
        )
    )
    protocol.message(deliver(1, 3, entry(A, 3)))
    assert given(protocol) == [(A, 3)]


def test_a_batch_is_acknowledged_when_the_application_asks_for_the_next_one() -> None:
    protocol = attached_protocol()
    protocol.message(deliver(1, 5, entry(A, 1)))
    assert protocol.next_items()
    assert protocol.take_messages() == []
    protocol.next_items()
    (ack,) = protocol.take_messages()
    assert isinstance(ack, Acknowledge)
    assert ack.through == 5


def test_a_batch_of_repeats_only_is_acknowledged_at_once() -> None:
    protocol = attached_protocol(ReceiverState(frontier={A: 9}))
    protocol.message(deliver(1, 4, entry(A, 3)))
    (ack,) = protocol.take_messages()
    assert isinstance(ack, Acknowledge)
    assert ack.through == 4


def test_attestations_are_one_per_origin_with_digests_and_are_repeated_until_confirmed() -> None:
    protocol = attached_protocol()
    protocol.message(deliver(1, 3, entry(A, 1, 1), entry(B, 5, 2), entry(A, 2, 3)))
    given(protocol)
    (ack,) = protocol.take_messages()
    assert isinstance(ack, Acknowledge)
    attested = [(attestation.number, attestation.origin, attestation.offsets) for attestation in ack.attestations]
    assert attested == [(1, A, [1, 2]), (2, B, [5])]
    assert ack.attestations[0].digests == [zlib.crc32(b"\x80")] * 2
    protocol.message(Attested(1))
    protocol.disconnected()
    connect(protocol, epoch=2)
    again = [message for message in protocol.take_messages() if isinstance(message, Acknowledge)]
    assert [[attestation.number for attestation in message.attestations] for message in again] == [[2]]


def test_an_acknowledgement_never_goes_to_another_connection_than_its_delivery() -> None:
    protocol = attached_protocol()
    protocol.message(deliver(1, 7, entry(A, 1)))
    assert protocol.next_items()
    protocol.disconnected()
    connect(protocol, epoch=2)
    protocol.take_messages()
    protocol.next_items()
    assert not [ack for ack in protocol.take_messages() if isinstance(ack, Acknowledge) and ack.through]


def test_unsaidd_publishes_are_sent_again_in_order_on_the_next_connection() -> None:
    protocol = attached_protocol()
    for _ in range(2):
        protocol.publish(b"x")
        protocol.flush()
    first = [message for message in protocol.take_messages() if isinstance(message, Publish)]
    protocol.message(Acknowledged(0, A, [10]))
    protocol.disconnected()
    connect(protocol)
    second = [message for message in protocol.take_messages() if isinstance(message, Publish)]
    assert [publish.first for publish in first] == [0, 1]
    assert [publish.first for publish in second] == [1]
    assert second[0].secret == first[0].secret


def test_of_a_delivery_that_was_altered_on_its_way_nothing_is_given() -> None:
    protocol = attached_protocol()
    altered = msgspec.structs.replace(entry(A, 2), body=b"\x81")
    with pytest.raises(Altered, match="notification 2 of A/0"):
        protocol.message(deliver(1, 2, entry(A, 1), altered))
    assert given(protocol) == []
    protocol.disconnected()
    connect(protocol)
    protocol.message(deliver(1, 2, entry(A, 1), entry(A, 2)))
    assert given(protocol) == [(A, 1), (A, 2)]


@pytest.mark.parametrize("code", ["LOG_UNAVAILABLE", "ALTERED"])
def test_publish_carries_checksums_and_is_sent_again_after_an_alteration(code: str) -> None:
    protocol = attached_protocol()
    protocol.publish(b"x")
    protocol.publish(b"yy")
    protocol.flush()
    (sent,) = (message for message in protocol.take_messages() if isinstance(message, Publish))
    assert sent.checks == [checksum(b"x"), checksum(b"yy")]
    protocol.message(Problem(code, "again", None, AboutPublish(0)))
    protocol.publish_again()
    assert [message for message in protocol.take_messages() if isinstance(message, Publish)] == [sent]


def test_publishes_after_a_failed_one_are_sent_again_in_order() -> None:
    protocol = attached_protocol()
    for _ in range(3):
        protocol.publish(b"x")
        protocol.flush()
    protocol.take_messages()
    for first in (0, 1, 2):
        protocol.message(Problem("LOG_UNAVAILABLE", "away", None, AboutPublish(first)))
    protocol.publish(b"y")
    protocol.flush()
    assert [message for message in protocol.take_messages() if isinstance(message, Publish)] == []
    protocol.publish_again()
    assert [publish.first for publish in protocol.take_messages() if isinstance(publish, Publish)] == [0, 1, 2, 3]
    protocol.message(Acknowledged(0, A, [10]))
    protocol.message(Problem("LOG_UNAVAILABLE", "away", None, AboutPublish(1)))
    protocol.publish_again()
    assert [publish.first for publish in protocol.take_messages() if isinstance(publish, Publish)] == [1, 2, 3]
    protocol.publish_again()
    assert [message for message in protocol.take_messages() if isinstance(message, Publish)] == []


def test_the_pause_before_publishing_again_grows_as_long_as_the_log_takes_nothing() -> None:
    protocol = attached_protocol()
    protocol.publish(b"x")
    protocol.flush()
    for times in (1, 2, 3):
        protocol.message(Problem("LOG_UNAVAILABLE", "away", None, AboutPublish(0)))
        assert PublishFailed(times) in protocol.take_events()
        protocol.publish_again()
    protocol.message(Acknowledged(0, A, [10]))
    protocol.publish(b"y")
    protocol.flush()
    protocol.message(Problem("LOG_UNAVAILABLE", "away", None, AboutPublish(1)))
    assert PublishFailed(1) in protocol.take_events()


def test_entries_not_taken_before_a_reattach_come_after_it_and_none_twice() -> None:
    protocol = attached_protocol()
    protocol.message(deliver(1, 3, entry(A, 1), entry(A, 2), entry(A, 3)))
    assert [entry.offset for entry, *_ in protocol.next_items(2)] == [1, 2]
    protocol.flush_acks()
    assert protocol.state.frontier == {A: 2}
    protocol.disconnected()
    protocol.connected()
    assert [attach.frontier for attach in protocol.take_messages() if isinstance(attach, Attach)] == [{A: 2}]
    protocol.message(Welcome(1, ProxyId("a"), SiteId("A"), "f"))
    protocol.message(
        Attached(
            session=SessionId("s"), epoch=Epoch(1), proxy=ProxyId("a"), site=SiteId("A"), subscriptions={}, stored=0
        )
    )
    protocol.message(deliver(1, 3, entry(A, 2), entry(A, 3)))
    assert given(protocol) == [(A, 3)]
    acks = [message for message in protocol.take_messages() if isinstance(message, Acknowledge)]
    attested = [offset for message in acks for attestation in message.attestations for offset in attestation.offsets]
    assert sorted(set(attested)) == [1, 2, 3]


def test_entries_of_a_nack_come_again() -> None:
    protocol = attached_protocol()
    protocol.message(deliver(1, 3, entry(A, 1), entry(A, 2)))
    protocol.next_items(1)
    protocol.next_items(1)
    protocol.nack()
    protocol.flush_acks()
    assert protocol.state.frontier == {A: 1}
    assert [entry.offset for entry, *_ in protocol.next_items()] == [2]


def test_half_a_delivery_is_not_acknowledged_and_what_was_given_of_it_is_attested() -> None:
    protocol = attached_protocol()
    protocol.message(deliver(1, 9, entry(A, 1), entry(A, 2)))
    protocol.next_items(1)
    protocol.flush_acks()
    assert protocol.take_messages() == []
    assert [attestation.offsets for attestation in protocol.state.unconfirmed] == [[1]]


def test_a_problem_that_names_nothing_of_ours_ends_nothing() -> None:
    protocol = attached_protocol()
    stray = Problem("BAD_MESSAGE", "no", None, None)
    protocol.message(stray)
    protocol.message(Problem("NOT_FOUND", "no", None, AboutSession("other")))
    assert [type(event) for event in protocol.take_events()] == [Problem, Problem]


def test_a_problem_before_the_proxy_let_us_in_is_a_refusal() -> None:
    protocol = ClientProtocol("c", SessionId("s"))
    protocol.connected()
    protocol.message(Problem("BAD_MESSAGE", "version", "version", None))
    assert [type(event) for event in protocol.take_events()] == [Refusal]


def test_publish_reports_its_coordinate() -> None:
    protocol = attached_protocol()
    protocol.publish(b"x")
    protocol.publish(b"y")
    protocol.flush()
    protocol.message(Acknowledged(0, A, [10, 11]))
    answers = [event for event in protocol.take_events() if isinstance(event, Published)]
    assert [(published.sequence, published.coordinate) for published in answers] == [
        (0, Coordinate(A, 10)),
        (1, Coordinate(A, 11)),
    ]


def test_a_publish_that_the_log_may_have_is_sent_again_and_a_refused_one_is_not() -> None:
    protocol = attached_protocol()
    protocol.publish(b"x")
    protocol.flush()
    protocol.take_messages()
    protocol.message(Problem("LOG_UNAVAILABLE", "away", None, AboutPublish(0)))
    protocol.publish_again()
    assert [publish.first for publish in protocol.take_messages() if isinstance(publish, Publish)] == [0]
    protocol.take_events()
    protocol.message(Problem("BAD_NOTIFICATION", "no", "bodies[0]", AboutPublish(0)))
    (answer,) = [event for event in protocol.take_events() if isinstance(event, Published)]
    assert answer.error is not None
    assert answer.error.code == "BAD_NOTIFICATION"


def test_frames_of_publishes_are_bounded() -> None:
    protocol = attached_protocol()
    for _ in range(MAX_PUBLISH_BATCH + 1):
        protocol.publish(b"x")
    protocol.flush()
    sizes = [len(publish.bodies) for publish in protocol.take_messages() if isinstance(publish, Publish)]
    assert sizes == [MAX_PUBLISH_BATCH, 1]


def test_a_subscription_without_an_answer_is_asked_again_after_every_attach() -> None:
    protocol = attached_protocol()
    protocol.subscribe(SUB, "a == 1")
    assert [type(message) for message in protocol.take_messages()] == [Subscribe]
    protocol.message(Problem("NOT_SERVED", "moving", None, AboutSubscription(SUB)))
    protocol.disconnected()
    connect(protocol, epoch=2)
    assert Subscribe in [type(message) for message in protocol.take_messages()]
    protocol.message(Subscribed(SUB, 1))
    assert SubscriptionResult(SUB, None) in protocol.take_events()
    protocol.disconnected()
    connect(protocol, epoch=3)
    assert Subscribe not in [type(message) for message in protocol.take_messages()]


def test_moved_and_wait_become_events_and_end_the_attachment() -> None:
    protocol = attached_protocol()
    protocol.message(Moved(SessionId("s"), ProxyId("b"), "ws://b"))
    protocol.message(deliver(1, 1, entry(A, 1)))
    assert protocol.take_events() == [Redirected(ProxyId("b"), "ws://b")]
    assert given(protocol) == []
    protocol.message(Wait(WaitCause.MOVED, "later", 250))
    assert protocol.take_events() == [Retry("later", 250, WaitCause.MOVED)]


def test_a_session_that_came_to_the_proxy_where_it_was_relayed_is_attached_on_the_same_connection() -> None:
    protocol = attached_protocol()
    protocol.message(Moved(SessionId("s"), protocol.proxy, "ws://elsewhere"))
    assert protocol.take_events() == []
    assert [type(message) for message in protocol.take_messages()] == [Attach]


def test_a_repeat_is_known_by_its_place_however_many_ids_were_forgotten_since() -> None:
    protocol = attached_protocol(ReceiverState(recent=RecentIds(2)))
    protocol.message(deliver(1, 9, *(entry(A, offset) for offset in range(9))))
    assert len(given(protocol)) == 9
    protocol.message(deliver(1, 10, entry(A, 0), entry(A, 8), entry(A, 9)))
    assert given(protocol) == [(A, 9)]


def test_a_publish_that_was_retried_elsewhere_is_known_as_long_as_its_id_is_kept() -> None:
    protocol = attached_protocol(ReceiverState(recent=RecentIds(2)))
    protocol.message(deliver(1, 3, *(entry(A, offset) for offset in range(3))))
    assert len(given(protocol)) == 3
    protocol.message(deliver(1, 4, entry(B, 0, sequence=2), entry(B, 1, sequence=0)))
    assert given(protocol) == [(B, 1)]


def test_a_session_that_is_not_there_when_we_come_back_was_deleted_and_is_not_made_anew() -> None:
    protocol = attached_protocol()
    protocol.disconnected()
    protocol.take_messages()
    protocol.connected()
    (attach,) = [message for message in protocol.take_messages() if isinstance(message, Attach)]
    assert not attach.create
    protocol.message(Welcome(1, ProxyId("b"), SiteId("B"), "f"))
    protocol.message(Problem("NOT_FOUND", "there is no session s", "session", AboutSession("s")))
    (answer,) = [event for event in protocol.take_events() if isinstance(event, Refusal)]
    assert isinstance(answer.error, SessionDeleted)
    protocol.attach()
    (attach,) = [message for message in protocol.take_messages() if isinstance(message, Attach)]
    assert attach.create


def test_detach_in_the_middle_of_a_delivery_attests_the_part_that_was_taken() -> None:
    protocol = attached_protocol()
    protocol.message(deliver(1, 3, *(entry(A, offset) for offset in range(3))))
    assert len(protocol.next_items(2)) == 2
    protocol.flush_acks()
    detach = protocol.detach()
    (ack,) = [message for message in protocol.take_messages() if isinstance(message, Acknowledge)]
    assert (ack.through, [attestation.offsets for attestation in ack.attestations]) == (0, [[0, 1]])
    assert detach.frontier == {A: 1}


def test_attestations_that_no_journal_has_are_said_again_in_frames_of_bounded_size() -> None:
    protocol = attached_protocol()
    for number in range(1, ATTESTATIONS + 3):
        protocol.message(deliver(1, number, entry(A, number)))
        given(protocol)
    protocol.flush_acks()
    protocol.disconnected()
    connect(protocol, epoch=2)
    sizes = [len(ack.attestations) for ack in protocol.take_messages() if isinstance(ack, Acknowledge)]
    assert sizes == [ATTESTATIONS, 2]


def test_reconnect_neither_acknowledges_nor_repeats_entries_in_the_hands_of_the_application() -> None:
    protocol = attached_protocol()
    protocol.message(deliver(1, 3, entry(A, 1), entry(A, 2), entry(A, 3)))
    assert [entry[0].offset for entry in protocol.next_items(2)] == [1, 2]
    protocol.disconnected()
    connect(protocol, epoch=2, proxy="b")
    _, attach, *rest = protocol.take_messages()
    assert isinstance(attach, Attach) and attach.frontier == {}
    assert not any(isinstance(each, Acknowledge) for each in rest)
    assert not protocol.state.unconfirmed
    protocol.message(deliver(2, 4, entry(A, 1), entry(A, 2), entry(A, 3), entry(A, 4)))
    assert protocol.take_messages() == []
    assert given(protocol) == [(A, 3), (A, 4)]
    (ack,) = protocol.take_messages()
    assert isinstance(ack, Acknowledge) and ack.through == 4
    attested = [(attestation.epoch, attestation.proxy, attestation.offsets) for attestation in ack.attestations]
    assert attested == [(1, "a", [1, 2]), (2, "b", [3, 4])]
    assert protocol.state.frontier == {A: 4}


def test_a_batch_has_what_several_deliveries_brought_up_to_its_bound() -> None:
    """A receiver that is slow takes all that waits in one go, however many deliveries brought it."""
    protocol = attached_protocol()
    for offset in range(1, 6):
        protocol.message(deliver(1, offset, entry(A, offset)))
    assert [entry.offset for entry, *_ in protocol.next_items(3)] == [1, 2, 3]
    assert [entry.offset for entry, *_ in protocol.next_items()] == [4, 5]
    assert protocol.next_items() == []
    assert protocol.state.frontier == {A: 5}


def test_manual_entries_kept_over_a_reconnect_can_still_be_returned_by_nack() -> None:
    protocol = attached_protocol()
    protocol.message(deliver(1, 2, entry(A, 1), entry(A, 2)))
    protocol.message(deliver(1, 4, entry(A, 3), entry(A, 4)))
    taken = [entry[0].offset for _ in range(2) for entry in protocol.next_items(manual_ack=True)]
    assert taken == [1, 2, 3, 4]
    protocol.disconnected()
    connect(protocol, epoch=2)
    protocol.message(deliver(2, 4, entry(A, 1), entry(A, 2), entry(A, 3), entry(A, 4)))
    protocol.take_messages()
    assert protocol.next_items(manual_ack=True) == []
    protocol.nack()
    protocol.flush_acks()
    assert protocol.take_messages() == [] and protocol.state.frontier == {}
    assert [entry[0].offset for _ in range(2) for entry in protocol.next_items(manual_ack=True)] == [1, 2, 3, 4]
    protocol.acknowledge()
    assert protocol.state.frontier == {A: 4}
    assert [ack.through for ack in protocol.take_messages() if isinstance(ack, Acknowledge)] == [4]


def test_all_that_was_in_hand_and_comes_again_after_it_was_had_is_acknowledged_at_once() -> None:
    protocol = attached_protocol()
    protocol.message(deliver(1, 1, entry(A, 1)))
    assert protocol.next_items()
    protocol.disconnected()
    connect(protocol, epoch=2)
    protocol.next_items()
    protocol.take_messages()
    protocol.message(deliver(2, 1, entry(A, 1)))
    (ack,) = protocol.take_messages()
    assert isinstance(ack, Acknowledge) and ack.through == 1
    assert [attestation.offsets for attestation in protocol.state.unconfirmed] == [[1]]


def test_settings_of_the_session_are_said_by_the_first_attach_of_a_life() -> None:
    protocol = ClientProtocol(
        "c",
        SessionId("s"),
        options=AttachOptions(
            session_expiry_s=60,
            receiver_expiry_s=5,
            reliability=BEST_EFFORT,
            session_reliability=BEST_EFFORT,
            queue=Queue(3),
        ),
    )
    connect(protocol)
    _, first, *_ = protocol.take_messages()
    assert isinstance(first, Attach)
    assert (first.session_expiry_s, first.session_reliability, first.queue) == (60, BEST_EFFORT, Queue(3))
    protocol.disconnected()
    connect(protocol, epoch=2)
    _, again, *_ = protocol.take_messages()
    assert isinstance(again, Attach)
    assert (again.session_expiry_s, again.session_reliability, again.queue) == (None, None, None)
    assert (again.receiver_expiry_s, again.reliability) == (5, BEST_EFFORT)


def test_acknowledgement_has_the_number_of_received_gaps() -> None:
    protocol = attached_protocol()
    protocol.message(Gap(A, 1, 3, GapCause.RETENTION))
    assert protocol.take_messages() == [Acknowledge(0, gaps=1)]
    protocol.message(deliver(1, 4, entry(A, 4)))
    protocol.next_items()
    protocol.next_items()
    assert [ack.gaps for ack in protocol.take_messages() if isinstance(ack, Acknowledge)] == [1]


def test_gaps_are_counted_anew_where_two_attaches_of_one_connection_are_answered() -> None:
    """A proxy that had to turn a client away twice answers twice; it counts from the last one."""
    protocol = attached_protocol()
    protocol.message(Gap(A, 1, 3, GapCause.RETENTION))
    protocol.message(
        Attached(
            session=SessionId("s"), epoch=Epoch(1), proxy=ProxyId("a"), site=SiteId("A"), subscriptions={}, stored=0
        )
    )
    protocol.take_messages()
    protocol.message(Gap(A, 1, 3, GapCause.RETENTION))
    assert protocol.take_messages() == [Acknowledge(0, gaps=1)]


MADE_ANEW = Problem("NOT_FOUND", "the session s that it was in was deleted", "session", AboutSession("s"))


def test_recreated_session_is_not_taken_for_the_deleted_one() -> None:
    protocol = attached_protocol(epoch=3)
    protocol.delete()
    protocol.disconnected()
    protocol.connected()
    protocol.take_messages()
    protocol.message(MADE_ANEW)
    assert not any(isinstance(message, Delete) for message in protocol.take_messages())
    answer = protocol.take_events()[-1]
    assert isinstance(answer, Deleted)
    assert not protocol.attached
    protocol.attach()
    assert [attach.epoch for attach in protocol.take_messages() if isinstance(attach, Attach)] == [0]


def test_pending_request_to_a_recreated_session_fails_with_session_deleted() -> None:
    protocol = attached_protocol(epoch=3)
    protocol.disconnected()
    protocol.subscribe(SUB, "n > 0")
    protocol.connected()
    protocol.message(MADE_ANEW)
    outcome, refusal = protocol.take_events()[-2:]
    assert isinstance(outcome, SubscriptionResult)
    assert isinstance(outcome.error, SessionDeleted)
    assert isinstance(refusal, Refusal)
    assert isinstance(refusal.error, SessionDeleted)


def test_answer_to_an_earlier_request_does_not_complete_the_current_one() -> None:
    protocol = attached_protocol()
    protocol.subscribe(SUB, "n > 0")
    protocol.unsubscribe(SUB)
    protocol.subscribe(SUB, "n > 1")
    for answer in (Subscribed(SUB, 1), Unsubscribed(SUB, 2), Problem("REFUSED", "", None, AboutSubscription(SUB, 1))):
        protocol.message(answer)
        assert protocol.take_events() == []
    protocol.disconnected()
    connect(protocol)
    asked = [message for message in protocol.take_messages() if isinstance(message, Subscribe | Unsubscribe)]
    assert asked == [Subscribe(subscription=SUB, expression="n > 1", number=3)]
    protocol.take_events()
    protocol.message(Subscribed(SUB, 3))
    assert protocol.take_events() == [SubscriptionResult(SUB, None)]


def test_that_the_session_of_a_kept_state_was_deleted_is_said_once() -> None:
    """Whoever asks again means the next one of that name."""
    protocol = ClientProtocol(
        "c", SessionId("s"), state=ReceiverState(epoch=Epoch(3)), options=AttachOptions(create=False)
    )
    protocol.connected()
    assert [attach.epoch for attach in protocol.take_messages() if isinstance(attach, Attach)] == [3]
    protocol.message(MADE_ANEW)
    assert [type(event) for event in protocol.take_events()] == [Refusal]
    protocol.attach()
    assert [attach.epoch for attach in protocol.take_messages() if isinstance(attach, Attach)] == [0]


def test_that_somebody_else_has_ended_a_subscription_meanwhile_is_an_answer_too() -> None:
    protocol = attached_protocol()
    protocol.subscribe(SUB, "n > 0")
    protocol.message(Unsubscribed(SUB, 1))
    assert protocol.take_events() == [SubscriptionResult(SUB, None)]


@pytest.mark.parametrize(("epoch", "is_told"), [(3, False), (GENERATION + 1, True)])
def test_receiver_state_of_a_deleted_session_yields_session_replaced(epoch: int, is_told: bool) -> None:
    state = ReceiverState()
    state.epoch = Epoch(2)
    protocol = ClientProtocol("c", SessionId("s"), state=state)
    connect(protocol, epoch)
    assert [type(event) for event in protocol.take_events()].count(SessionReplaced) == is_told


def test_frame_that_was_rejected_while_earlier_ones_were_under_way_is_sent_again_after_them() -> None:
    """A frame was altered on its way: its answer comes before those of the frames that went before it."""
    protocol = ClientProtocol("p", None)
    protocol.connected()
    protocol.message(Welcome(1, ProxyId("a"), SiteId("A"), "f"))
    for n in range(3):
        protocol.publish(b"%d" % n)
        protocol.flush()
    protocol.take_messages()
    protocol.message(problem_of(Altered("altered"), 1))
    protocol.message(problem_of(LogUnavailable("send again from there"), 2))
    assert [event for event in protocol.take_events() if isinstance(event, PublishFailed)] == []
    protocol.message(Acknowledged(0, A, [7]))
    assert [event for event in protocol.take_events() if isinstance(event, PublishFailed)] == [PublishFailed(1)]
    protocol.publish_again()
    assert [frame.first for frame in protocol.take_messages() if isinstance(frame, Publish)] == [1, 2]
    for first in (1, 2):
        protocol.message(Acknowledged(first, A, [7 + first]))
    assert [event for event in protocol.take_events() if isinstance(event, PublishFailed)] == []
    assert protocol.publish_room == PUBLISH_WINDOW


def problem_of(error: WaypostError, first: int) -> Problem:
    return Problem(error.code, error.message, about=AboutPublish(first))
