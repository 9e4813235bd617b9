"""What does not decode is named as people name it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis.strategies import binary, dictionaries, integers, text

from waypost.errors import BadMessage, LimitExceeded
from waypost.frames import decode_client_message, encode_message
from waypost.identity import Epoch, Origin, ProxyId, new_incarnation
from waypost.limits import COORDINATES_FRAME_BYTES, MAX_ATTRIBUTES, MAX_FRAME_BYTES, MAX_ID_LENGTH
from waypost.messages import Acknowledge, Attach, Attestation, Detach, Publish, Subscribe
from waypost.notification import Notification, attribute_count, decode_body, decoding_cost_ns


def frame(*values: object) -> bytes:
    return msgspec.msgpack.encode(values)


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (encode_message(Subscribe(subscription="x" * (MAX_ID_LENGTH + 1), expression="a == 1")), "subscription"),
        (encode_message(Attach(session="s", receiver="r", incarnation="i", frontier={}, window=0)), "window"),
        (frame("publish", "p", "i", 0, [b"x", 7]), "bodies[1]"),
        (frame("publish", "p", "i", -1, [b"x"]), "first"),
        (frame("nobody-knows"), "$[0]"),
        (frame("several\nlines"), "$[0]"),
    ],
)
def test_the_field_that_is_wrong_is_named(data: bytes, field: str) -> None:
    with pytest.raises(BadMessage) as refusal:
        decode_client_message(data)
    assert refusal.value.field == field
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("wrong", [{"origin": Origin("x")}, {"offsets": [-1]}, {"offsets": []}, {"number": 0}])
def test_attestation_of_what_can_be_no_delivery_is_refused(wrong: dict[str, object]) -> None:
    """The journal would have it, and the audit would not understand it."""
    right = Attestation(
        number=1, epoch=Epoch(1), proxy=ProxyId("p"), origin=Origin("A/0.2"), offsets=[7, 9], digests=[0, 1]
    )
    acknowledge = decode_client_message(encode_message(Acknowledge(0, [right])))
    assert acknowledge == Acknowledge(0, [right])
    with pytest.raises(BadMessage) as refusal:
        decode_client_message(encode_message(Acknowledge(0, [right, msgspec.structs.replace(right, **wrong)])))
    assert str(refusal.value.field).startswith("attestations[1]")


def test_a_frame_past_the_limit_is_refused_with_the_limit() -> None:
    with pytest.raises(LimitExceeded, match=str(MAX_FRAME_BYTES)):
        decode_client_message(b"x" * (MAX_FRAME_BYTES + 1))


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (
            Attach(
                session="s",
                receiver="r",
                incarnation=new_incarnation(),
                frontier={},
                selective={Origin("A/0"): [1 << 40] * 2_400},
            ),
            "attach",
        ),
        (Detach(selective={Origin("A/0"): [1 << 40] * 2_400}), "detach"),
        (Acknowledge(1, selective={Origin("A/0"): [1 << 40] * 2_400}), "acknowledge"),
    ],
)
def test_a_frame_that_names_more_coordinates_than_may_be_is_refused_before_it_is_decoded(
    message: Attach | Detach | Acknowledge, kind: str
) -> None:
    assert decode_client_message(encode_message(message)) == message
    with pytest.raises(LimitExceeded, match=f"{kind}: a frame of .* the limit is {COORDINATES_FRAME_BYTES}"):
        decode_client_message(encode_message(message) + bytes(COORDINATES_FRAME_BYTES))
    # Not what is larger by right.
    body = bytes(COORDINATES_FRAME_BYTES)
    assert decode_client_message(encode_message(Publish(producer="p", secret="s" * 32, first=1, bodies=[body])))


attributes = dictionaries(text(max_size=5).filter(lambda name: "\0" not in name), integers(-5, 5), max_size=40)


@given(attributes)
def test_attributes_are_counted_as_they_are_decoded(of: dict[str, int]) -> None:
    body = Notification(of).body
    assert attribute_count(body) == len(decode_body(body)) == len(of)


@given(binary(max_size=40))
def test_attribute_count_of_garbage_is_bounded_by_its_size(garbage: bytes) -> None:
    assert 0 <= attribute_count(garbage) <= len(garbage) // 2
    assert attribute_count(b"\xdf\xff\xff\xff\xff" + garbage) <= (len(garbage) + 5) // 2


def test_a_large_body_or_one_of_many_attributes_takes_longer_to_decode() -> None:
    few, many = Notification({"a": 1}), Notification({f"a{number}": number for number in range(MAX_ATTRIBUTES)})
    large = Notification({"a": "x" * 200_000})
    assert decoding_cost_ns(few.body) * 10 < decoding_cost_ns(large.body) < decoding_cost_ns(many.body)
