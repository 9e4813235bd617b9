"""A library that gives by priority or deadline, and the place that a proxy keeps for it, beside a list.

Whatever is published, sent, given and said, in whatever order, over reconnects, moves and the death of the library:
what is given is the first of what is there, nothing is passed over, nothing comes again that the proxy was told of.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from proxy.session import receivers
from proxy.session.receivers import Receiver, check_overtaking
from proxy.session.role import Role
from proxy.session.session import Session
from proxy.session.stored_notification import StoredNotification
from waypost.checksum import checksum
from waypost.client.delivery_state import DeliveryState, ReceiverState
from waypost.frames import decode_proxy_message, encode_message
from waypost.identity import Coordinate, Epoch, Incarnation, Origin, ProxyId, ReceiverId, SessionId, SubscriptionId
from waypost.messages import Acknowledge, Attach, Deliver
from waypost.notification import Notification
from waypost.queue import rank
from waypost.records import Published

ORIGINS = (Origin("A/0"), Origin("B/0"))
X = SubscriptionId("x")
WINDOW = 6


class GivenByOrder(RuleBasedStateMachine):
    order: Any = "priority"

    def __init__(self) -> None:
        super().__init__()
        self.ends = dict.fromkeys(ORIGINS, -1)
        self.ranks: dict[Coordinate, tuple[int, int]] = {}
        """Of all that was published, by its rank and when it came."""
        self.acknowledged: set[Coordinate] = set()
        """What the proxy was told that the application has."""
        self.had: set[Coordinate] = set()
        """What the application of this life of the library has."""
        self.ever_had: set[Coordinate] = set()
        """The same, of all its lives."""
        self.in_hand: list[Coordinate] = []
        self.session = Session(SessionId("s"), Epoch(1), Role.SERVING)
        self.receiver = self.session.join(ReceiverId("r"))
        self.receiving = DeliveryState(ReceiverState(), self.order)
        self.waiting: set[Coordinate] = set()
        """What is in the library, and was not given."""
        self.attach()

    def attach(self) -> None:
        self.receiving.reset()
        state = self.receiving.state
        message = Attach(
            session="s",
            receiver="r",
            incarnation="i",
            frontier=dict(state.frontier),
            window=WINDOW,
            order=self.order,
            selective=state.selective.rows(),
        )
        self.receiver.connect(1, message, message.frontier, message.selective)
        self.acknowledged |= self.had
        self.waiting.clear()

    def acknowledge(self, acknowledgements: list[Acknowledge]) -> None:
        for acknowledge in acknowledgements:
            check_overtaking(self.receiver.selective, acknowledge.selective)
            self.receiver.acknowledge(acknowledge.through)
            self.receiver.raise_selectively(acknowledge.selective)
            self.session.raise_frontier(self.receiver, acknowledge.frontier)

    # ------------------------------------------------------------ what happens

    @rule(origin=st.sampled_from(ORIGINS), urgency=st.integers(0, 3))
    def publish(self, origin: Origin, urgency: int) -> None:
        offset = self.ends[origin] = self.ends[origin] + 1
        attributes = {"Priority": urgency, "StopTime": 9 - urgency}
        body = Notification(attributes).body
        record = Published(
            producer=origin, incarnation=Incarnation("i"), sequence=offset, at_ms=0, body=body, check=checksum(body)
        )
        self.session.accept(StoredNotification.of(origin, offset, record), (X,))
        self.ranks[Coordinate(origin, offset)] = (rank(self.order, attributes, 0), len(self.ranks))

    @rule()
    def send(self) -> None:
        while self.receiver.window.sent < self.session.entries.last_number and (room := self.receiver.room()) > 0:
            entries = self.session.entries.after(self.receiver.window.sent, room)
            assert entries is not None
            delivery = self.session.next_delivery(self.receiver, entries)
            if delivery is not None:
                self.receive(decode_proxy_message(encode_message(delivery)))

    def receive(self, delivery: Any) -> None:
        assert isinstance(delivery, Deliver)
        came = {Coordinate(delivery.origin, delivery.offset) for delivery in delivery.entries}
        assert not came & self.acknowledged, "it is sent what it had told us to have"
        self.waiting |= came - self.had - {*self.in_hand}
        if self.receiving.deliver(delivery, ProxyId("a")):
            self.acknowledge(self.receiving.acknowledge())

    @rule(most=st.integers(1, 3))
    def give(self, most: int) -> None:
        self.take_over()
        for _ in range(most):
            expected = min(self.waiting, key=lambda each: self.ranks[each], default=None)
            given = [Coordinate(entry.origin, entry.offset) for entry, *_ in self.receiving.next_items(1)]
            assert given == ([] if expected is None else [expected])
            self.in_hand += given
            self.waiting.difference_update(given)

    @rule()
    def take_over(self) -> None:
        """The application says that it has what it was given, and no more than that is acknowledged."""
        self.had.update(self.in_hand)
        self.ever_had.update(self.in_hand)
        self.in_hand.clear()
        self.acknowledge(self.receiving.acknowledge())

    @rule()
    def flush_acks(self) -> None:
        """The library says all that the application has."""
        self.take_over()
        self.acknowledge(self.receiving.partial_acks())
        self.acknowledged |= self.had

    @precondition(lambda self: self.in_hand)
    @rule()
    def nack(self) -> None:
        self.waiting.update(self.in_hand)
        self.in_hand.clear()
        self.receiving.nack()

    @rule()
    def reconnect(self) -> None:
        self.receiver.disconnect()
        self.attach()

    @rule()
    def move(self) -> None:
        """To another proxy, or to what a changelog has of it."""
        self.receiver = Receiver.of(self.receiver.id, self.receiver.row())
        self.session.receivers[self.receiver.id] = self.receiver
        self.attach()

    @rule()
    def die(self) -> None:
        """Another life of the library knows nothing; what nobody was told of comes again."""
        self.receiver.disconnect()
        self.receiving, self.had = DeliveryState(ReceiverState(), self.order), set()
        self.in_hand.clear()
        self.attach()

    # ------------------------------------------------------------ what holds

    @invariant()
    def the_frontier_passes_over_nothing(self) -> None:
        for coordinate in self.ranks:
            for frontier in (self.receiver.frontier, self.receiving.state.frontier):
                assert coordinate.offset > frontier.get(coordinate.origin, -1) or coordinate in self.ever_had

    @invariant()
    def what_is_overtaken_is_bounded(self) -> None:
        assert len(self.receiver.selective) <= 3 * WINDOW

    def teardown(self) -> None:
        """Everybody comes to an end: all is given."""
        for _ in range(len(self.ranks) + 1):
            self.send()
            self.give(3)
        self.flush_acks()
        assert self.ever_had == {*self.ranks}
        assert self.session.entries.count == 0
        assert not self.receiver.selective


class GivenByDeadline(GivenByOrder):
    order = "deadline"


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receivers, "MAX_OUT_OF_ORDER", WINDOW)


TestGivenByPriority = GivenByOrder.TestCase
TestGivenByDeadline = GivenByDeadline.TestCase
TestGivenByPriority.settings = TestGivenByDeadline.settings = settings(
    max_examples=500, stateful_step_count=40, deadline=None
)
