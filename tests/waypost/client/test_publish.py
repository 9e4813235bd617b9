"""What a producer has in flight, and the keys that go with it, in their order on every connection."""

from __future__ import annotations

from waypost.client.publish_buffer import PublishBuffer, framed
from waypost.identity import Origin
from waypost.keys import Key, Keys
from waypost.limits import FRAME_ATTRIBUTES
from waypost.messages import Acknowledged, Publish, PublishWith
from waypost.notification import Notification, attribute_count

K, L = Keys.producer(b"k").listed(), Keys.producer(b"l").listed()
A = Origin("A/0")


def shape(frames: list[Publish | PublishWith]) -> list[tuple[int, list[Key]] | list[Key]]:
    """Return (first, keys) of a frame, and the keys alone of a change of them."""
    return [(frame.first, frame.keys) if isinstance(frame, Publish) else frame.keys for frame in frames]


def test_notifications_with_different_keys_go_in_different_frames() -> None:
    producing = PublishBuffer("p")
    producing.publish(b"1")
    producing.publish(b"2")
    producing.publish(b"3", K)
    producing.publish(b"4", K, insecure=False)
    producing.publish(b"5")
    frames = producing.flush()
    assert shape(frames) == [(0, []), (2, K), (3, K), (4, [])]
    assert [publish.insecure for publish in frames if isinstance(publish, Publish)] == [True, True, False, True]


def test_a_change_of_keys_stays_between_the_notifications_that_it_was_said_between() -> None:
    producing = PublishBuffer("p")
    producing.publish(b"1")
    producing.publish_with(K)
    producing.publish(b"2")
    assert shape(producing.flush()) == [(0, []), K, (1, [])]
    # Another connection: what was before the first in flight, then all in order.
    assert shape(producing.in_flight()) == [[], (0, []), K, (1, [])]


def test_a_connection_begins_with_the_keys_of_the_first_frame_in_flight() -> None:
    producing = PublishBuffer("p")
    producing.publish_with(K)
    producing.publish(b"1")
    producing.publish_with(L)
    producing.publish(b"2")
    producing.flush()
    producing.acknowledged(Acknowledged(0, A, [0]))
    assert shape(producing.in_flight()) == [L, (1, [])]
    producing.acknowledged(Acknowledged(1, A, [1]))
    assert shape(producing.in_flight()) == [L]


def test_a_later_frame_that_lands_first_leaves_the_keys_of_the_one_before_it() -> None:
    producing = PublishBuffer("p")
    producing.publish(b"1")
    producing.publish_with(K)
    producing.publish(b"2")
    producing.flush()
    producing.acknowledged(Acknowledged(1, A, [5]))
    assert shape(producing.in_flight()) == [[], (0, []), K]
    assert producing.oldest == 0


def test_without_keys_nothing_is_said_of_them() -> None:
    producing = PublishBuffer("p")
    assert producing.in_flight() == []
    producing.publish(b"1")
    producing.flush()
    assert shape(producing.in_flight()) == [(0, [])]


def test_a_frame_has_no_more_attributes_than_a_proxy_takes_and_each_body_is_in_one() -> None:
    wide = [Notification({f"a{name}": number for name in range(700)}).body for number in range(200)]
    narrow = [Notification({"n": number}).body for number in range(1_500)]
    cut = list(framed([*wide, *narrow]))
    assert [body for bodies in cut for body in bodies] == [*wide, *narrow]
    assert all(sum(map(attribute_count, bodies)) <= FRAME_ATTRIBUTES for bodies in cut)
    assert len(cut) <= 200 * 700 // FRAME_ATTRIBUTES + 4
