"""Frames of the client protocol: encoding and decoding of messages, and the errors of malformed ones."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, TypeVar, get_args

import msgspec

from waypost.errors import BadMessage, LimitExceeded
from waypost.limits import COORDINATES_FRAME_BYTES, MAX_FRAME_BYTES
from waypost.messages import Acknowledge, Attach, ClientMessage, Detach, ProxyMessage

_T = TypeVar("_T")

_encoder = msgspec.msgpack.Encoder()
_from_client: msgspec.msgpack.Decoder[ClientMessage] = msgspec.msgpack.Decoder(ClientMessage)
_from_proxy: msgspec.msgpack.Decoder[ProxyMessage] = msgspec.msgpack.Decoder(ProxyMessage)

_NAMES_COORDINATES = {kind.__struct_config__.tag for kind in (Attach, Detach, Acknowledge)}
_ARRAY_16 = 0xDC
"""The first byte of an array of more than 15 items in MessagePack; a shorter one has a head of one byte."""


def encode_message(message: msgspec.Struct | msgspec.Raw) -> bytes:
    """Return the frame of a message; a Raw is an encoded one already."""
    return _encoder.encode(message)


def decode_client_message(frame: bytes | str) -> ClientMessage:
    """Decode a frame of a client.

    Raises:
        BadMessage: the frame is no known message, or a field is missing or wrong; the error names the field.
        LimitExceeded: the frame is larger than a message of its kind may be.
    """
    if len(frame) > COORDINATES_FRAME_BYTES and (tag := _tag(frame)) in _NAMES_COORDINATES:
        raise LimitExceeded(
            f"{tag}: a frame of {len(frame)} bytes; the limit is {COORDINATES_FRAME_BYTES}", field="frame"
        )
    return decode_frame(_from_client, frame)


def _tag(frame: bytes | str) -> str:
    """Return the name of the message without decoding it; empty: it is none."""
    if isinstance(frame, str) or len(frame) < 4:
        return ""
    begin = 3 if frame[0] == _ARRAY_16 else 1
    length = frame[begin] & 0x1F
    return frame[begin + 1 : begin + 1 + length].decode(errors="replace")


def check_client_message(message: msgspec.Struct) -> None:
    """Check that a proxy would accept the form of a client's message: it is encoded and decoded as there; nothing is
    sent.

    Raises:
        BadMessage: no proxy would accept the message; the error names the field.
        LimitExceeded: its frame is larger than a message of its kind may be.
    """
    try:
        frame = encode_message(message)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadMessage(f"it cannot be said: {error}") from None
    decode_client_message(frame)


def decode_proxy_message(frame: bytes | str) -> ProxyMessage:
    """Decode a frame of a proxy.

    Raises:
        BadMessage: the frame is no known message, or a field is missing or wrong; the error names the field.
        LimitExceeded: the frame is larger than MAX_FRAME_BYTES.
    """
    return decode_frame(_from_proxy, frame)


def decode_frame(decoder: msgspec.msgpack.Decoder[_T], frame: bytes | str) -> _T:
    """Decode one frame.

    Args:
        decoder: of the union of messages that may come.
        frame: as it was received; a text frame is refused.

    Raises:
        BadMessage: the frame is no known message, or a field is missing or wrong; the error names the field.
        LimitExceeded: the frame is larger than MAX_FRAME_BYTES.
    """
    if isinstance(frame, str):
        raise BadMessage("a text frame; messages are MessagePack in binary frames")
    if len(frame) > MAX_FRAME_BYTES:
        raise LimitExceeded(f"a frame of {len(frame)} bytes; the limit is {MAX_FRAME_BYTES}", field="frame")
    try:
        return decoder.decode(frame)
    except msgspec.ValidationError as error:
        # The quoted text may have several lines; an error is one.
        reason, _, path = " ".join(str(error).split()).partition(" - at `")
        raise BadMessage(reason, field=_named(path.rstrip("`"), frame, decoder)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadMessage(f"the frame is no MessagePack: {error}") from None
    except RecursionError:
        raise BadMessage("the frame is nested too deeply") from None


def _named(path: str, frame: bytes, decoder: msgspec.msgpack.Decoder[Any]) -> str | None:
    """Return the path of a field by its name: messages are arrays on the wire, and the codec's path is ``$[2]``."""
    index = re.match(r"\$\[(\d+)\]", path)
    if index is None:
        return path or None
    with suppress(msgspec.DecodeError, UnicodeDecodeError, TypeError, IndexError, RecursionError):
        tag = msgspec.msgpack.decode(frame)[0]
        kinds = {kind.__struct_config__.tag: kind for kind in get_args(decoder.type)}
        fields: tuple[str, ...] = kinds[tag].__struct_fields__ if tag in kinds else ()
        number = int(index[1]) - 1
        if 0 <= number < len(fields):
            return fields[number] + path[index.end() :]
    return path
