"""The audit's own evaluation of the subscription language.

It starts from the tree of an expression as it is written, neither checked nor folded; past that it shares no line with
what evaluates expressions in the service, so that the audit does not repeat its mistakes. Each node becomes a function
of the attributes of a notification; None is bottom. The meaning of each operator: docs/subscription-language.md.

RE2 is the exception: the language says "RE2's dialect", so RE2 itself says what a pattern finds. It takes time linear
in the text, whatever a client wrote.
"""

from __future__ import annotations

import math
import operator
import unicodedata
from collections.abc import Callable, Mapping, Sequence

import re2

from waypost.notification import Int64, Value
from waypost.subscription.errors import SubscriptionError
from waypost.subscription.tree import Binary, Call, Compare, Literal, Logic, Name, Node, Not, Unary

Attributes = Mapping[str, Value]
Test = Callable[[Attributes], bool | None]
Operand = Callable[[Attributes], Value | None]


class Unusable(Exception):
    """An expression cannot be evaluated: it is none that a proxy accepts."""


UNUSABLE = (SubscriptionError, Unusable)
"""The errors of :func:`compiled` and of the parser for an expression that the audit cannot evaluate."""


def compiled(node: Node) -> Test:
    """Return the test of a notification's attributes that a tree stands for: True, False, or None for bottom.

    Raises:
        Unusable: the tree is no test, or a part of it is not what its place needs: no value, no string, a pattern that
            RE2 does not take, or a wildcard with a set that does not end.
    """
    match node:
        case Compare(operator=sign, left=left, right=right):
            return _comparison(sign, _operand(left), _operand(right))
        case Logic(operator=sign, legs=legs):
            return _LOGIC[sign]([compiled(leg) for leg in legs])
        case Not(operand=inner):
            return _negation(compiled(inner))
        case Call(function="equals", arguments=(first, *others)) if others:
            return _disjunction([_comparison("==", _operand(first), _operand(other)) for other in others])
        case Call(function=function, arguments=(first,)) if function in _ON_VALUES:
            return _on_value(_operand(first), _ON_VALUES[function])
        case Call(function=function, arguments=(first, *others)) if function in _ON_STRINGS and others:
            return _on_string(_operand(first), [_ON_STRINGS[function](_string(other)) for other in others])
        case _:
            raise Unusable(f"{node.name if isinstance(node, Name) else type(node).__name__} is no test")


# ---------------------------------------------------------------- three-valued logic


def _decided_by(decisive: bool) -> Callable[[Sequence[Test]], Test]:
    """Make "and", which one False decides, or "or", which one True does; else one bottom makes it bottom."""

    def connected(legs: Sequence[Test]) -> Test:
        def test(attributes: Attributes) -> bool | None:
            result: bool | None = not decisive
            for leg in legs:
                found = leg(attributes)
                if found is decisive:
                    return decisive
                if found is None:
                    result = None
            return result

        return test

    return connected


_conjunction, _disjunction = _decided_by(False), _decided_by(True)


def _difference(legs: Sequence[Test]) -> Test:
    def test(attributes: Attributes) -> bool | None:
        found = [leg(attributes) for leg in legs]
        return None if None in found else found.count(True) % 2 == 1

    return test


_LOGIC: dict[str, Callable[[Sequence[Test]], Test]] = {"&&": _conjunction, "||": _disjunction, "^^": _difference}


def _negation(inner: Test) -> Test:
    def test(attributes: Attributes) -> bool | None:
        found = inner(attributes)
        return None if found is None else not found

    return test


# ---------------------------------------------------------------- comparisons

_COMPARISONS: dict[str, Callable[[Value, Value], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _comparison(sign: str, left: Operand, right: Operand) -> Test:
    """Compare two numbers, as reals if one is a real, or the equality of two strings; all else is bottom."""
    holds, is_of_strings = _COMPARISONS[sign], sign in ("==", "!=")

    def test(attributes: Attributes) -> bool | None:
        one, other = left(attributes), right(attributes)
        if isinstance(one, str) and isinstance(other, str):
            return holds(one, other) if is_of_strings else None
        if not isinstance(one, int | float) or not isinstance(other, int | float):
            return None
        if isinstance(one, float) or isinstance(other, float):
            return holds(float(one), float(other))
        return holds(one, other)

    return test


# ---------------------------------------------------------------- functions that are tests


def _on_value(operand: Operand, holds: Callable[[Value], bool | None]) -> Test:
    def test(attributes: Attributes) -> bool | None:
        value = operand(attributes)
        return None if value is None else holds(value)

    return test


_ON_VALUES: dict[str, Callable[[Value], bool | None]] = {
    "require": lambda _: True,
    "int32": lambda value: isinstance(value, int) and not isinstance(value, Int64),
    "int64": lambda value: isinstance(value, Int64),
    "real64": lambda value: isinstance(value, float),
    "string": lambda value: isinstance(value, str),
    "opaque": lambda value: isinstance(value, bytes),
    "nan": lambda value: math.isnan(value) if isinstance(value, float) else None,
}


def _on_string(operand: Operand, attempts: Sequence[Callable[[str], bool]]) -> Test:
    def test(attributes: Attributes) -> bool | None:
        text = operand(attributes)
        return any(attempt(text) for attempt in attempts) if isinstance(text, str) else None

    return test


def _regex(pattern: str) -> Callable[[str], bool]:
    options = re2.Options()
    options.dot_nl, options.log_errors, options.never_capture = True, False, True
    try:
        search = re2.compile(_utf8(pattern), options).search
    except re2.error as error:
        raise Unusable(f"RE2 does not take the pattern {pattern!r}: {error}") from None
    return lambda text: search(_utf8(text)) is not None


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


Piece = Callable[[str], bool]
"""Whether one character suits a piece of a wildcard."""


def _wildcard(pattern: str) -> Callable[[str], bool]:
    """Return a test of whether a wildcard matches all of a text. It follows all places of the pattern that a beginning
    of the text may have come to, as bits of one number: so its time does not depend on what the text is.
    """
    pieces = _pieces(pattern)
    stars = sum(1 << place for place, piece in enumerate(pieces) if piece is None)

    def closed(places: int) -> int:
        # A `*` may take nothing.
        while more := ((places & stars) << 1) & ~places:
            places |= more
        return places

    def suiting(character: str) -> int:
        return sum(1 << place for place, piece in enumerate(pieces) if piece is not None and piece(character))

    def test(text: str) -> bool:
        known: dict[str, int] = {}
        places = closed(1)
        for character in text:
            if character not in known:
                known[character] = suiting(character)
            # A `*` takes any character but the end of a line.
            stay = 0 if character == "\n" else places & stars
            places = closed(((places & known[character]) << 1) | stay)
            if not places:
                return False
        return bool(places >> len(pieces) & 1)

    return test


def _pieces(pattern: str) -> list[Piece | None]:
    """Return what a wildcard wants, character by character; None stands for `*`."""
    pieces: list[Piece | None] = []
    offset = 0
    while offset < len(pattern):
        match pattern[offset]:
            case "*":
                pieces.append(None)
                offset += 1
            case "?":
                pieces.append(lambda character: character != "\n")
                offset += 1
            case "[":
                piece, offset = _set(pattern, offset + 1)
                pieces.append(piece)
            case _:
                wanted, offset = _quoted(pattern, offset)
                pieces.append(wanted.__eq__)
    return pieces


def _quoted(pattern: str, offset: int) -> tuple[str, int]:
    """Return a character of a wildcard and the offset behind it. A backslash quotes the next one; the last one does not
    quote.
    """
    if pattern[offset] == "\\" and offset + 1 < len(pattern):
        return pattern[offset + 1], offset + 2
    return pattern[offset], offset + 1


def _set(pattern: str, offset: int) -> tuple[Piece, int]:
    """Return the piece for a set that begins at the offset, and the offset behind its closing bracket."""
    is_negated = pattern.startswith("^", offset)
    offset += is_negated
    ranges = []
    try:
        while pattern[offset] != "]":
            first, offset = _quoted(pattern, offset)
            last = first
            if pattern[offset] == "-" and pattern[offset + 1] != "]":
                last, offset = _quoted(pattern, offset + 1)
            ranges.append((first, last))
    except IndexError:
        raise Unusable(f"the wildcard {pattern!r} has a set that does not end") from None
    return lambda character: any(first <= character <= last for first, last in ranges) != is_negated, offset + 1


_ON_STRINGS: dict[str, Callable[[str], Callable[[str], bool]]] = {
    "begins-with": lambda part: lambda text: text.startswith(part),
    "ends-with": lambda part: lambda text: text.endswith(part),
    "contains": lambda part: lambda text: part in text,
    "wildcard": _wildcard,
    "regex": _regex,
}


def _string(node: Node) -> str:
    if not isinstance(node, Literal) or not isinstance(node.value, str):
        raise Unusable(f"{type(node).__name__} where a string is needed")
    return node.value


# ---------------------------------------------------------------- values


def _operand(node: Node) -> Operand:
    match node:
        case Name(name=name):
            return lambda attributes: attributes.get(name)
        case Literal(value=value):
            return lambda _: value
        case Unary(operator=sign, operand=inner):
            return _on_one(_UNARY[sign], _operand(inner))
        case Binary(operator=sign, left=left, right=right):
            return _on_two(sign, _operand(left), _operand(right))
        case Call(function=function, arguments=(argument,)) if function in _FUNCTIONS:
            return _on_one(_FUNCTIONS[function], _operand(argument))
        case _:
            raise Unusable(f"{type(node).__name__} is no value")


def _on_one(function: Callable[[Value], Value | None], operand: Operand) -> Operand:
    def value(attributes: Attributes) -> Value | None:
        found = operand(attributes)
        return None if found is None else function(found)

    return value


def _on_two(sign: str, left: Operand, right: Operand) -> Operand:
    def value(attributes: Attributes) -> Value | None:
        one, other = left(attributes), right(attributes)
        if not isinstance(one, int | float) or not isinstance(other, int | float):
            return None
        if isinstance(one, int) and isinstance(other, int):
            return _of_integers(sign, one, other)
        return _ON_REALS[sign](float(one), float(other)) if sign in _ON_REALS else None

    return value


def _width(value: int) -> int:
    return 64 if isinstance(value, Int64) else 32


def _cut(value: int, width: int) -> int:
    """Return the integer of this width, in bits, that has the last bits of a value."""
    half = 1 << (width - 1)
    wrapped = (value + half) % (2 * half) - half
    return Int64(wrapped) if width == 64 else wrapped


def _of_integers(sign: str, left: int, right: int) -> int | None:
    if sign in ("/", "%") and right == 0:
        return None
    width = _width(left) if sign == ">>>" else max(_width(left), _width(right))
    if sign in _SHIFTS:
        return _cut(_SHIFTS[sign](int(left), right % width, width), width)
    return _cut(_ON_INTEGERS[sign](int(left), int(right)), width)


def _quotient(left: int, right: int) -> int:
    size = abs(left) // abs(right)
    return size if (left < 0) == (right < 0) else -size


_ON_INTEGERS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
    "%": lambda left, right: left - right * _quotient(left, right),
    "|": operator.or_,
    "^": operator.xor,
    "&": operator.and_,
}

_SHIFTS: dict[str, Callable[[int, int, int], int]] = {
    "<<": lambda value, count, width: value << count,
    ">>": lambda value, count, width: value >> count,
    ">>>": lambda value, count, width: (value % (1 << width)) >> count,
}


def _real_quotient(left: float, right: float) -> float:
    if right != 0.0:
        return left / right
    # IEEE 754, where Python raises: a number over a zero is the infinity of their signs, zero over zero no number.
    return left * math.copysign(math.inf, right)


_ON_REALS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _real_quotient,
}


def _negative(value: Value) -> Value | None:
    if isinstance(value, int):
        return _cut(-int(value), _width(value))
    return -value if isinstance(value, float) else None


def _complement(value: Value) -> Value | None:
    return _cut(~int(value), _width(value)) if isinstance(value, int) else None


_UNARY: dict[str, Callable[[Value], Value | None]] = {
    "-": _negative,
    "+": lambda value: value if isinstance(value, int | float) else None,
    "~": _complement,
}


def _size(value: Value) -> Value | None:
    if isinstance(value, str):
        return len(_utf8(value))
    return len(value) if isinstance(value, bytes) else None


def _of_text(function: Callable[[str], str]) -> Callable[[Value], Value | None]:
    return lambda value: function(value) if isinstance(value, str) else None


_FUNCTIONS: dict[str, Callable[[Value], Value | None]] = {
    "size": _size,
    "fold-case": _of_text(str.casefold),
    "decompose": _of_text(lambda text: unicodedata.normalize("NFD", text)),
    "decompose-compat": _of_text(lambda text: unicodedata.normalize("NFKD", text)),
}
