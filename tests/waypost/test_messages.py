"""What does not decode is named as people name it."""

from __future__ import annotations

import msgspec
import pytest

from waypost.errors import BadMessage, LimitExceeded
from waypost.frames import decode_client_message, encode_message
from waypost.limits import MAX_FRAME_BYTES, MAX_ID_LENGTH
from waypost.messages import Attach, Subscribe


def frame(*values: object) -> bytes:
    return msgspec.msgpack.encode(values)


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (encode_message(Subscribe("x" * (MAX_ID_LENGTH + 1), "a == 1")), "subscription"),
        (encode_message(Attach("s", "r", "i", {}, 0)), "window"),
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


def test_a_frame_past_the_limit_is_refused_with_the_limit() -> None:
    with pytest.raises(LimitExceeded, match=str(MAX_FRAME_BYTES)):
        decode_client_message(b"x" * (MAX_FRAME_BYTES + 1))
