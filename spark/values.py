"""Values of the subscription language as Spark columns.

A value's type is known only when a notification is seen, so a value is four columns: its kind, and its content for
each kind. Bottom is a null kind. Integers of both widths are 64-bit integers here, and are cut to their width after
each operation; that is exact, as no operation on two 32-bit integers leaves 64 bits.

Spark differs from the language in these, which are guarded against here: NaN equals itself and is the largest; division
by zero is null, also of reals; `greatest` passes over nulls. The meaning of each operator:
docs/subscription-language.md, Values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark.schemas import ATTRIBUTES, INT32, INT64, OPAQUE, REAL64, STRING
from waypost.notification import Value, type_name

Kinds = frozenset[int]

INTEGERS: Kinds = frozenset({INT32, INT64})
NUMBERS: Kinds = INTEGERS | {REAL64}
ANY: Kinds = NUMBERS | {STRING, OPAQUE}

_KIND_OF = {"int32": INT32, "int64": INT64, "real64": REAL64, "string": STRING, "opaque": OPAQUE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A value of the language.

    Args:
        kinds: the kinds that it may have, codes of :mod:`spark.schemas`.
        kind: its kind; null: bottom.
        integer: an int32 or int64, or the length of an opaque; else null.
        real: a real64; else null.
        text: a string; else null.
        constant: its value, if it is a literal; that saves columns which could never count.
    """

    kinds: Kinds
    kind: Column
    integer: Column
    real: Column
    text: Column
    constant: Value | None = None


def null(kind: str) -> Column:
    """Return a null column of a type of Spark SQL, such as "bigint"."""
    return F.lit(None).cast(kind)


def literal(value: Value) -> Operand:
    """Return the operand of a literal of an expression."""
    kind = _KIND_OF[type_name(value)]
    integer = F.lit(int(value)).cast("bigint") if isinstance(value, int) else null("bigint")
    real = F.lit(value) if isinstance(value, float) else null("double")
    text = F.lit(value) if isinstance(value, str) else null("string")
    return Operand(kinds=frozenset({kind}), kind=F.lit(kind), integer=integer, real=real, text=text, constant=value)


def attribute(place: int) -> Operand:
    """Return the operand of the attribute at this index of the arrays of :data:`spark.schemas.ATTRIBUTES`; bottom where
    a notification lacks it.
    """
    kind, integer, real, text = (F.col(name).getItem(place) for name in ATTRIBUTES)
    return Operand(kinds=ANY, kind=kind, integer=integer, real=real, text=text)


def string(text: Column) -> Operand:
    """Return a string operand with the value of a column of strings; bottom where that is null."""
    kind = F.when(text.isNotNull(), F.lit(STRING))
    return Operand(kinds=frozenset({STRING}), kind=kind, integer=null("bigint"), real=null("double"), text=text)


def size(operand: Operand) -> Operand:
    """Return the length in bytes of a string in UTF-8, or of an opaque, as an int32; bottom for any other kind."""
    length = F.when(operand.kind == STRING, F.octet_length(operand.text).cast("bigint"))
    length = length.when(operand.kind == OPAQUE, operand.integer)
    kind = F.when(length.isNotNull(), F.lit(INT32))
    return Operand(kinds=frozenset({INT32}), kind=kind, integer=length, real=null("double"), text=null("string"))


# ---------------------------------------------------------------- arithmetic and bits


def unary(operator: str, operand: Operand) -> Operand:
    """Apply one of ``+ - ~``; bottom where the operand's kind does not suit."""
    suitable = INTEGERS if operator == "~" else NUMBERS
    kinds, kind = _suited(operand, suitable)
    integer, real = operand.integer, operand.real
    if operator == "-":
        integer, real = _cut(-integer, kinds, kind), -real
    elif operator == "~":
        integer = F.bitwise_not(integer)
    return Operand(kinds=kinds, kind=kind, integer=integer, real=real, text=null("string"))


def binary(operator: str, left: Operand, right: Operand) -> Operand:
    """Apply one of ``+ - * / % | ^ & << >> >>>``; bottom where a kind does not suit, or at a division by zero."""
    suitable = NUMBERS if operator in _ON_REALS else INTEGERS
    kinds_left, kind_left = _suited(left, suitable)
    kinds_right, kind_right = _suited(right, suitable)
    both = kind_left.isNotNull() & kind_right.isNotNull()
    if operator == ">>>":
        kinds, kind = kinds_left, F.when(both, kind_left)
    else:
        kinds = frozenset(max(pair) for pair in product(kinds_left, kinds_right))
        kind = F.when(both, F.greatest(kind_left, kind_right))
    if operator in "/%":
        kind = F.when((kind == REAL64) | (right.integer != 0), kind)
    integer = _on_integers(operator, kinds, kind, left.integer, right.integer)
    real = _ON_REALS[operator](_real(left), _real(right)) if REAL64 in kinds else null("double")
    return Operand(kinds=kinds, kind=kind, integer=integer, real=real, text=null("string"))


def _suited(operand: Operand, suitable: Kinds) -> tuple[Kinds, Column]:
    """Return the kinds that the operator can use, and the operand's kind where it is one of them."""
    if operand.kinds <= suitable:
        return operand.kinds, operand.kind
    return operand.kinds & suitable, F.when(operand.kind <= max(suitable), operand.kind)


def _cut(integer: Column, kinds: Kinds, kind: Column) -> Column:
    """Cut an integer to 32 bits if that is its width; casts wrap outside of ANSI mode."""
    if INT32 not in kinds:
        return integer
    return F.when(kind == INT32, integer.cast("int").cast("bigint")).otherwise(integer)


def _on_integers(operator: str, kinds: Kinds, kind: Column, left: Column, right: Column) -> Column:
    if operator in _SHIFTS:
        return _shifted(_SHIFTS[operator], kinds, kind, left, right)
    return _cut(_ON_INTEGERS[operator](left, right), kinds, kind)


def _shifted(function: str, kinds: Kinds, kind: Column, left: Column, right: Column) -> Column:
    """Shift at the width of the result. Java takes the count modulo the width, also where it is negative."""
    count = right.cast("int")
    wide = F.call_function(function, left, count)
    if INT32 not in kinds:
        return wide
    narrow = F.call_function(function, left.cast("int"), count).cast("bigint")
    return F.when(kind == INT32, narrow).otherwise(wide)


_SHIFTS = {"<<": "shiftleft", ">>": "shiftright", ">>>": "shiftrightunsigned"}

_ON_INTEGERS: dict[str, Callable[[Column, Column], Column]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: F.call_function("div", x, y),
    "%": lambda x, y: x % y,
    "|": lambda x, y: x.bitwiseOR(y),
    "^": lambda x, y: x.bitwiseXOR(y),
    "&": lambda x, y: x.bitwiseAND(y),
}


def _real_quotient(x: Column, y: Column) -> Column:
    # Spark's division by zero is null. The power -1 of a zero is the infinity of its sign, as in IEEE 754.
    return F.when(y == 0.0, x * F.pow(y, F.lit(-1.0))).otherwise(x / y)


_ON_REALS: dict[str, Callable[[Column, Column], Column]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": _real_quotient,
}


def _real(operand: Operand) -> Column:
    """Return a number promoted to a real, which may round a 64-bit integer."""
    if operand.kinds & NUMBERS == {REAL64}:
        return operand.real
    if isinstance(operand.constant, int):
        return F.lit(float(operand.constant))
    promoted = operand.integer.cast("double")
    if REAL64 not in operand.kinds:
        return promoted
    return F.when(operand.kind == REAL64, operand.real).otherwise(promoted)


# ---------------------------------------------------------------- comparison

_COMPARISONS: dict[str, Callable[[Column, Column], Column]] = {
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
}


def compare(operator: str, left: Operand, right: Operand) -> Column:
    """Apply one of ``== != < <= > >=``; return a boolean column, null for bottom.

    Values that cannot be compared give bottom: those of two kinds that are not both numbers, strings by order, opaques.
    """
    holds = _COMPARISONS[operator]
    cases = []
    numbers_left, numbers_right = left.kinds & NUMBERS, right.kinds & NUMBERS
    if numbers_left and numbers_right and REAL64 in numbers_left | numbers_right:
        cases.append((_is_real(left, right), _compare_reals(operator, left, right)))
    if numbers_left & INTEGERS and numbers_right & INTEGERS:
        cases.append((_are(left, right, INTEGERS), holds(left.integer, right.integer)))
    # A text is null unless its operand is a string, and so is a comparison with it.
    has_strings = STRING in left.kinds & right.kinds and operator in ("==", "!=")
    return _first_of(cases, holds(left.text, right.text) if has_strings else None)


def _first_of(cases: list[tuple[Column, Column]], otherwise: Column | None) -> Column:
    if not cases:
        return null("boolean") if otherwise is None else otherwise
    result = F.when(*cases[0])
    for condition, value in cases[1:]:
        result = result.when(condition, value)
    return result if otherwise is None else result.otherwise(otherwise)


def _are(left: Operand, right: Operand, kinds: Kinds) -> Column:
    """Tell whether those of the two that are no literals have these kinds; null where one is bottom."""
    varying = [side.kind <= max(kinds) for side in (left, right) if side.constant is None]
    return varying[0] & varying[1] if len(varying) == 2 else varying[0] if varying else F.lit(True)


def _is_real(left: Operand, right: Operand) -> Column:
    """Tell whether both are numbers and one is a real."""
    for operand, opposite in ((left, right), (right, left)):
        if isinstance(operand.constant, float):
            return _are(operand, opposite, NUMBERS)
        if operand.constant is not None:
            return opposite.kind == REAL64
    return _are(left, right, NUMBERS) & ((left.kind == REAL64) | (right.kind == REAL64))


def _compare_reals(operator: str, left: Operand, right: Operand) -> Column:
    """Compare as IEEE 754 does: a NaN is unequal to every real, and not ordered."""
    unordered = [F.isnan(_real(side)) for side in (left, right) if side.constant is None]
    result = _COMPARISONS[operator](_real(left), _real(right))
    for is_nan in unordered:
        result = F.when(is_nan, F.lit(operator == "!=")).otherwise(result)
    return result
