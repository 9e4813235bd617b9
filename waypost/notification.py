"""The value that travels: a map from attribute name to a typed value.

The five types are Elvin's (client protocol draft 4.0, section 5.3.1). Python's own types stand for four of
them; a 64-bit integer is an :class:`Int64`, because promotion and wrapping in the subscription language
depend on the declared width and not on the size of the number.

========  ==================  =====================================
type      in Python           on the wire (MessagePack)
========  ==================  =====================================
int32     ``int``             integer
int64     ``Int64``           extension 1, eight bytes, big endian
real64    ``float``           float 64
string    ``str``             string
opaque    ``bytes``           binary
========  ==================  =====================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from waypost.arguments import instance, shown
from waypost.errors import BadNotification
from waypost.limits import ATTRIBUTE_NS, BYTES_A_NS, MAX_ATTRIBUTES, MAX_NAME_BYTES, MAX_NOTIFICATION_BYTES

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_INT64_EXTENSION = 1


class Int64(int):
    """An integer declared to be 64 bits wide. Equal to the plain number of the same value."""

    __slots__ = ()


Value = int | Int64 | float | str | bytes


def type_name(value: Value) -> str:
    """Return Elvin's name of the value's type: int32, int64, real64, string or opaque."""
    if isinstance(value, Int64):
        return "int64"
    return _TYPE_NAMES[type(value)]


_TYPE_NAMES: dict[type, str] = {int: "int32", float: "real64", str: "string", bytes: "opaque"}


def _encode_extension(value: object) -> msgspec.msgpack.Ext:
    if isinstance(value, Int64):
        return msgspec.msgpack.Ext(_INT64_EXTENSION, int(value).to_bytes(8, "big", signed=True))
    raise TypeError(f"{type(value).__name__} is no attribute type")


def _decode_extension(code: int, data: memoryview) -> Int64:
    if code != _INT64_EXTENSION or len(data) != 8:
        raise ValueError(f"extension {code} is not known")
    return Int64(int.from_bytes(data, "big", signed=True))


_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_extension)
_decoder = msgspec.msgpack.Decoder(dict[str, Any], ext_hook=_decode_extension)


class Notification(Mapping[str, Value]):
    """An immutable notification. Equal to any mapping with the same attributes.

    Plain integers too wide for an int32 become an :class:`Int64`.

    Args:
        attributes: by name: int, :class:`Int64`, float, str or bytes.

    Raises:
        BadNotification: an attribute's name, type or range, or the whole size, is not allowed.
    """

    __slots__ = ("_attributes", "_body")

    def __init__(self, attributes: Mapping[str, Value]) -> None:
        if not isinstance(attributes, Mapping):
            raise BadNotification(
                f"{shown(attributes)} is of type {type(attributes).__name__}; write a dict of attributes, such as "
                "{'dep_delay': 45}",
                field="notification",
            )
        checked = {name: _checked(name, value) for name, value in attributes.items()}
        self._attributes: Mapping[str, Value] | None = MappingProxyType(checked)
        self._body = _encode(checked)
        check_size(self._body, len(checked))

    @classmethod
    def from_body(cls, body: bytes) -> Notification:
        """Wrap an encoded notification without a check; it is decoded, and checked, when its attributes are first used.

        Raises:
            BadArgument: `body` is no bytes.
        """
        if type(body) is not bytes:
            body = bytes(instance(body, "body", bytes, "the bytes of a notification's body"))
        notification = cls.__new__(cls)
        notification._body = body
        notification._attributes = None
        return notification

    @property
    def body(self) -> bytes:
        """The encoded notification, in MessagePack."""
        return self._body

    @property
    def attributes(self) -> Mapping[str, Value]:
        """The attributes by name, decoded at the first use. Raises BadNotification: the body is not valid."""
        if self._attributes is None:
            self._attributes = MappingProxyType(decode_body(self._body))
        return self._attributes

    def __getitem__(self, name: str) -> Value:
        return self.attributes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.attributes)

    def __len__(self) -> int:
        return len(self.attributes)

    def __hash__(self) -> int:
        return hash(self._body)

    def __repr__(self) -> str:
        return f"Notification({dict(self.attributes)!r})"


def decode_body(body: bytes) -> dict[str, Value]:
    """Return the attributes of a notification's body, decoded and checked one by one. Their number and the size are not
    checked (:func:`check_size`).

    Raises:
        BadNotification: the body is no map of names to the five types.
    """
    try:
        raw = _decoder.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError, ValueError, RecursionError) as error:
        raise BadNotification(f"the body is no MessagePack map of attributes: {error}") from None
    for name, value in raw.items():
        kind = type(value)
        if len(name) <= MAX_NAME_BYTES // 4 and (
            (kind is str and "\0" not in value) or kind is float or (kind is int and INT32_MIN <= value <= INT32_MAX)
        ):
            continue
        raw[name] = _checked(name, value)
    return raw


def attribute_count(body: bytes) -> int:
    """Return the number of attributes that a body states, without decoding it; never more than fit in it."""
    head = body[:1]
    if b"\x80" <= head <= b"\x8f":
        stated = head[0] & 0x0F
    elif head in (b"\xde", b"\xdf"):
        stated = int.from_bytes(body[1 : 3 if head == b"\xde" else 5], "big")
    else:
        return 0
    return min(stated, len(body) // 2)


def decoding_cost_ns(body: bytes) -> int:
    """Estimate how long it takes to decode a body, in nanoseconds."""
    return attribute_count(body) * ATTRIBUTE_NS + len(body) // BYTES_A_NS


def read_body(body: bytes) -> Mapping[str, Value]:
    """Return the attributes of a body out of a log; an undecodable one has none, so it matches nothing."""
    try:
        return decode_body(body)
    except BadNotification:
        return {}


def check_size(body: bytes, attributes: int) -> None:
    """Raise BadNotification if a notification is past the limit on bytes or on the number of attributes.

    Args:
        body: the encoded notification.
        attributes: their number.
    """
    if len(body) > MAX_NOTIFICATION_BYTES:
        raise BadNotification(f"{len(body)} bytes exceed the limit of {MAX_NOTIFICATION_BYTES}")
    if attributes > MAX_ATTRIBUTES:
        raise BadNotification(f"{attributes} attributes exceed the limit of {MAX_ATTRIBUTES}")


def _encode(attributes: Mapping[str, Value]) -> bytes:
    try:
        return _encoder.encode(attributes)
    except (UnicodeEncodeError, OverflowError) as error:
        raise BadNotification("a name or a text has half of a surrogate pair; write Unicode") from error


def _checked(name: object, value: object) -> Value:
    if not isinstance(name, str):
        raise BadNotification(f"attribute name {shown(name)} is of type {type(name).__name__}; write a string")
    if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        raise BadNotification(f"a name of over {MAX_NAME_BYTES} bytes: {name[:40]!r}...", field=name[:40])
    if isinstance(value, bool) or not isinstance(value, int | float | str | bytes):
        raise BadNotification(
            f"{type(value).__name__} is none of int32, int64, real64, string, opaque; write an int, a float, a str or "
            "bytes",
            field=name[:40],
        )
    if isinstance(value, int):
        return _checked_integer(name, value)
    if isinstance(value, str) and "\0" in value:
        raise BadNotification("a string holds no NUL", field=name[:40])
    return value if type(value) in _TYPE_NAMES else _plain(value)


def _plain(value: float | str | bytes) -> Value:
    """Return the same value as one of Python's own types: others are no attribute types on the wire."""
    if isinstance(value, str):
        return "".join(value)
    return bytes(value) if isinstance(value, bytes) else float(value)


def _checked_integer(name: str, value: int) -> int:
    if not INT64_MIN <= value <= INT64_MAX:
        raise BadNotification(f"{shown(value)} does not fit an int64", field=name[:40])
    if isinstance(value, Int64):
        return value
    return int(value) if INT32_MIN <= value <= INT32_MAX else Int64(value)
