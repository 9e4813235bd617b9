"""The operators on values, as plain functions that never raise.

None is bottom, and an operand of bottom gives bottom. The result has the wider type of the operands, real64
before int64 before int32; `>>>` alone keeps the type of its left operand, at whose width it works. Integers
wrap at their width, division truncates towards zero, the remainder has the sign of the dividend, integer
division by zero is bottom. Reals follow IEEE 754, which Python's own division does not
(docs/subscription-language.md, Values).

`type(x) is ...` is meant: the operands are exact, see :func:`exact`, and this is the inner loop of matching.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from waypost.notification import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, Int64, Value

Operation = Callable[[Any, Any], Value | None]
Relation = Callable[[Any, Any], bool | None]

_INTEGERS = frozenset({int, Int64})
_NUMBERS = frozenset({int, Int64, float})


def exact(value: object) -> Value | None:
    """Return a value as one of the five exact types, or None for anything else.

    Notifications built in the same process may hold subclasses (a numpy float, an enumeration) or integers
    too wide for their type; here they become what they would be had they travelled.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return _exact_integer(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    return bytes(value) if isinstance(value, bytes) else None


def _exact_integer(value: int) -> int | None:
    if not INT64_MIN <= value <= INT64_MAX:
        return None
    if isinstance(value, Int64) or not INT32_MIN <= value <= INT32_MAX:
        return Int64(value)
    return int(value)


def wrap32(number: int) -> int:
    """Return the number wrapped to 32 bits with a sign: modulo 2**32, from -2**31 to 2**31 - 1."""
    return ((number + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000


def wrap64(number: int) -> Int64:
    """Return the number wrapped to 64 bits with a sign: modulo 2**64, from -2**63 to 2**63 - 1."""
    return Int64(((number + 0x8000_0000_0000_0000) & 0xFFFF_FFFF_FFFF_FFFF) - 0x8000_0000_0000_0000)


# ---------------------------------------------------------------- arithmetic and bits


def _operation(on_integers: Callable[[int, int], int], on_reals: Callable[[float, float], float]) -> Operation:
    def apply(x: Any, y: Any) -> Value | None:
        kind_x, kind_y = type(x), type(y)
        if kind_x is int and kind_y is int:
            return wrap32(on_integers(x, y))
        if kind_x in _INTEGERS and kind_y in _INTEGERS:
            return wrap64(on_integers(x, y))
        if kind_x in _NUMBERS and kind_y in _NUMBERS:
            return on_reals(float(x), float(y))
        return None

    return apply


def _on_integers(compute: Callable[[int, int, int], int | None]) -> Operation:
    """Make an operation of integers alone; `compute` is also told the width of the result, 32 or 64."""

    def apply(x: Any, y: Any) -> Value | None:
        kind_x, kind_y = type(x), type(y)
        if kind_x not in _INTEGERS or kind_y not in _INTEGERS:
            return None
        narrow = kind_x is int and kind_y is int
        result = compute(x, y, 32 if narrow else 64)
        if result is None:
            return None
        return wrap32(result) if narrow else wrap64(result)

    return apply


def _quotient(x: int, y: int, _width: int = 0) -> int | None:
    if y == 0:
        return None
    return abs(x) // abs(y) if (x < 0) == (y < 0) else -(abs(x) // abs(y))


def _remainder(x: int, y: int, _width: int) -> int | None:
    if y == 0:
        return None
    return abs(x) % abs(y) if x >= 0 else -(abs(x) % abs(y))


def _real_quotient(x: float, y: float) -> float:
    if y != 0.0:
        return x / y
    if x == 0.0 or x != x:
        return math.nan
    return math.inf * math.copysign(1.0, x) * math.copysign(1.0, y)


_divide_integers = _on_integers(_quotient)


def _divide(x: Any, y: Any) -> Value | None:
    kind_x, kind_y = type(x), type(y)
    if (kind_x is float and kind_y in _NUMBERS) or (kind_y is float and kind_x in _NUMBERS):
        return _real_quotient(float(x), float(y))
    return _divide_integers(x, y)


def _shift_right_unsigned(x: Any, y: Any) -> Value | None:
    kind = type(x)
    if kind not in _INTEGERS or type(y) not in _INTEGERS:
        return None
    if kind is int:
        return wrap32((x & 0xFFFF_FFFF) >> (y % 32))
    return wrap64((x & 0xFFFF_FFFF_FFFF_FFFF) >> (y % 64))


BINARY: dict[str, Operation] = {
    "+": _operation(operator.add, operator.add),
    "-": _operation(operator.sub, operator.sub),
    "*": _operation(operator.mul, operator.mul),
    "/": _divide,
    "%": _on_integers(_remainder),
    "|": _on_integers(lambda x, y, width: x | y),
    "^": _on_integers(lambda x, y, width: x ^ y),
    "&": _on_integers(lambda x, y, width: x & y),
    "<<": _on_integers(lambda x, y, width: x << (y % width)),
    ">>": _on_integers(lambda x, y, width: x >> (y % width)),
    ">>>": _shift_right_unsigned,
}


def _negative(x: Any) -> Value | None:
    kind = type(x)
    if kind is int:
        return wrap32(-x)
    if kind is Int64:
        return wrap64(-x)
    return -float(x) if kind is float else None


def _positive(x: Any) -> Value | None:
    return x if type(x) in _NUMBERS else None


def _inverted(x: Any) -> Value | None:
    kind = type(x)
    if kind is int:
        return wrap32(~x)
    return Int64(~x) if kind is Int64 else None


UNARY: dict[str, Callable[[Any], Value | None]] = {"-": _negative, "+": _positive, "~": _inverted}


# ---------------------------------------------------------------- comparison


def _relation(compare: Callable[[Any, Any], bool], on_strings: bool) -> Relation:
    def relate(x: Any, y: Any) -> bool | None:
        kind_x, kind_y = type(x), type(y)
        if kind_x in _NUMBERS and kind_y in _NUMBERS:
            # Python compares an integer with a real exactly; here the integer is promoted first.
            if kind_x is not kind_y and (kind_x is float or kind_y is float):
                return compare(float(x), float(y))
            return compare(x, y)
        if on_strings and kind_x is str and kind_y is str:
            return compare(x, y)
        return None

    return relate


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
RELATIONS: dict[str, Relation] = {
    symbol: _relation(holds, on_strings=symbol in ("==", "!=")) for symbol, holds in COMPARISONS.items()
}
