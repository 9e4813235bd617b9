"""Matching in batch: each line of JSON has an expression and a notification, and gets whether they match.

`waypost match --batch` evaluates each line that it reads. A line always gets an answer, and
one that can be compared: "true", "false", "bottom", or an error with code, offset and message. No line can
stop the batch.

In the notification a value is typed, ``{"int64": 1}``, or plain: an integer is then int32 or int64 by its
size, a number with a point or an exponent real64, a string string. An opaque is written in hexadecimal. JSON
has no NaN and no infinities, so a real64 may be one of the strings "nan", "inf" and "-inf".
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from waypost.errors import BadMessage, BadNotification, WaypostError
from waypost.notification import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, Int64, Notification, Value, type_name
from waypost.subscription.errors import SubscriptionError, quoted
from waypost.subscription.expression import parse

_ANSWERS = {True: "true", False: "false", None: "bottom"}
_DECIMAL = re.compile(r"-?[0-9]{1,20}")
_MOST_DIGITS = 1000
"""Digits of an integer in JSON. A real64 may be written as an integer too, and has at most 309."""
_SPECIAL_REALS = ("nan", "inf", "-inf")


def evaluate_line(line: str | bytes) -> dict[str, Any]:
    """Evaluate one line, ``{"expr": "...", "notification": {...}}``. Never raises.

    Args:
        line: JSON text; bytes are UTF-8.

    Returns:
        ``{"result": "true" | "false" | "bottom"}``, or ``{"result": "error", "code", "offset", "message"}``, where the
            offset is None unless the expression is at fault.
    """
    try:
        expression, notification = _asked(line)
        return {"result": _ANSWERS[parse(expression).matches(notification_from_json(notification))]}
    except SubscriptionError as error:
        return _error(error.code, error.offset, error.message)
    except WaypostError as error:
        return _error(error.code, None, f"{error.field}: {error.message}" if error.field else error.message)


def _error(code: str, offset: int | None, message: str) -> dict[str, Any]:
    return {"result": "error", "code": code, "offset": offset, "message": message}


def _asked(line: str | bytes) -> tuple[str, object]:
    try:
        question = read_json(line if isinstance(line, str) else line.decode())
    except UnicodeDecodeError as error:
        raise BadMessage(f"the line is no UTF-8, at byte {error.start + 1}") from None
    except NotJson as error:
        raise BadMessage(f"the line is {error}") from None
    if not isinstance(question, dict):
        raise BadMessage('the line is no object; write {"expr": "...", "notification": {...}}')
    if not isinstance(question.get("expr"), str):
        raise BadMessage("a string is needed here", field="expr")
    if "notification" not in question:
        raise BadMessage("an object is needed here", field="notification")
    return question["expr"], question["notification"]


class NotJson(ValueError):
    """A text is no JSON; the message says why, beginning "no JSON: "."""


def read_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        NotJson: it is no JSON.
        BadMessage: an integer has more than 1,000 characters, a sign included, or a real is beyond real64; or an object
            has one name twice, or it is nested too deeply. Whether a type holds an integer is not checked here.
    """
    try:
        return json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_int=_read_integer,
            parse_float=_read_real,
            object_pairs_hook=_read_object,
        )
    except json.JSONDecodeError as error:
        raise NotJson(f"no JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise BadMessage("the brackets of this JSON are nested too deeply") from None


def _read_integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise BadMessage(f"an integer of {len(digits.lstrip('-'))} digits fits no type; int64 has at most 19")
    return int(digits)


def _read_real(digits: str) -> float:
    real = float(digits)
    if math.isinf(real):
        raise BadMessage(f'{quoted(digits)} is too large for a real64; infinity is {{"real64": "inf"}}')
    return real


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise BadMessage("given twice; an object has one value of a name", field=twice)
    return read


def _refuse_constant(name: str) -> NoReturn:
    raise NotJson(f'no JSON: {name} is none of its values; write {{"real64": "nan"}}, "inf" or "-inf"')


def notification_from_json(attributes: object) -> Notification:
    """Return the notification of a JSON object that was read (:func:`read_json`).

    Args:
        attributes: values by name, typed, as ``{"int64": 1}`` or ``{"opaque": "00ff"}``, or plain: an integer is then
            int32 or int64 by its size. A real64 may be one of the strings "nan", "inf" and "-inf" where it is typed.

    Raises:
        BadNotification: it is no object, or a value has no Elvin type, or a limit is passed; `field` names the
            attribute.
    """
    if not isinstance(attributes, dict):
        raise BadNotification("a notification is an object of names and values", field="notification")
    return Notification({name: _value(name, value) for name, value in attributes.items()})


def notification_as_json(notification: Mapping[str, Value]) -> dict[str, dict[str, Any]]:
    """Return the attributes with typed values, as :func:`notification_from_json` reads them."""
    return {name: _typed_json(value) for name, value in notification.items()}


def _typed_json(value: Value) -> dict[str, Any]:
    kind = type_name(value)
    if isinstance(value, bytes):
        return {kind: value.hex()}
    if isinstance(value, float) and not math.isfinite(value):
        return {kind: str(value)}
    return {kind: str(int(value)) if isinstance(value, Int64) else value}


def _value(name: str, value: object) -> Value:
    if isinstance(value, dict):
        return _typed(name, value)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise BadNotification(f"{_json_type(value)} is no attribute type", field=name)
    return _int32_or_int64(name, value) if isinstance(value, int) else value


def _typed(name: str, value: dict[str, object]) -> Value:
    if len(value) != 1:
        raise BadNotification('a typed value has one key, such as {"int32": 1}', field=name)
    ((kind, content),) = value.items()
    if kind not in _READERS:
        raise BadNotification(f"{kind!r} is none of {', '.join(_READERS)}", field=name)
    return _READERS[kind](name, content)


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    return {bool: "a boolean", list: "an array", dict: "an object", str: "a string"}.get(type(value), "a number")


def _refuse(name: str, kind: str, value: object, wanted: str) -> NoReturn:
    raise BadNotification(f"{_json_type(value)} is no {kind}; write {wanted}", field=name)


def _integer(name: str, kind: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse(name, kind, value, "an integer")
    if not low <= value <= high:
        raise BadNotification(f"the integer does not fit an {kind}", field=name)
    return value


def _int32_or_int64(name: str, value: int) -> int:
    checked = _integer(name, "int64", value, INT64_MIN, INT64_MAX)
    return checked if INT32_MIN <= checked <= INT32_MAX else Int64(checked)


def _int32(name: str, value: object) -> Value:
    return _integer(name, "int32", value, INT32_MIN, INT32_MAX)


def _int64(name: str, value: object) -> Value:
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        value = int(value)
    return Int64(_integer(name, "int64", value, INT64_MIN, INT64_MAX))


def _real64(name: str, value: object) -> Value:
    if isinstance(value, str) and value in _SPECIAL_REALS:
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(name, "real64", value, 'a number, "nan", "inf" or "-inf"')
    try:
        return float(value)
    except OverflowError:
        raise BadNotification("the integer does not fit a real64", field=name) from None


def _string(name: str, value: object) -> Value:
    if not isinstance(value, str):
        _refuse(name, "string", value, "a string")
    return value


def _opaque(name: str, value: object) -> Value:
    if not isinstance(value, str):
        _refuse(name, "opaque", value, "its octets in hexadecimal")
    try:
        return bytes.fromhex(value)
    except ValueError:
        raise BadNotification("no hexadecimal; write two digits an octet", field=name) from None


_READERS: dict[str, Callable[[str, object], Value]] = {
    "int32": _int32,
    "int64": _int64,
    "real64": _real64,
    "string": _string,
    "opaque": _opaque,
}
