"""What is under way to a receiver is bounded in bytes too: a backlog of large notifications hangs up on nobody."""

from __future__ import annotations

from tests.helpers.engine_harness import EngineHarness
from tests.proxy.test_dispatcher import delivered
from waypost.limits import CONNECTION_QUEUE_BYTES, DELIVERY_BATCH_BYTES, RECEIVER_WINDOW_BYTES
from waypost.messages import Acknowledge, DeliverEncoded, Publish, Subscribe
from waypost.notification import Notification

LARGE = 250_000


def test_no_more_bytes_are_under_way_than_a_connection_takes() -> None:
    harness = EngineHarness()
    harness.serve()
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    harness.complete_writes()
    harness.received(1)
    many = 2 * CONNECTION_QUEUE_BYTES // LARGE
    for number in range(1, many + 1):
        body = Notification({"n": number, "filling": b"x" * LARGE}).body
        harness.send(9, Publish(producer="p", secret="life", first=number, bodies=[body]))
        harness.read_log()
    came = harness.received(1)
    assert RECEIVER_WINDOW_BYTES - 2 * DELIVERY_BATCH_BYTES < sent(came) <= RECEIVER_WINDOW_BYTES
    found = delivered(came)
    while came:
        harness.send(1, Acknowledge(came[-1].through))
        came = [message for message in harness.received(1) if isinstance(message, DeliverEncoded)]
        assert sent(came) <= RECEIVER_WINDOW_BYTES
        found += delivered(came)
    assert found == list(range(1, many + 1))


def sent(messages: list[object]) -> int:
    return sum(
        len(entry)
        for deliver_encoded in messages
        if isinstance(deliver_encoded, DeliverEncoded)
        for entry in deliver_encoded.entries
    )
