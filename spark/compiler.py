"""The audit's own compilation of the subscription language to Spark columns.

It starts from the tree of an expression as it is written, neither checked nor folded; past that it shares no line with
what evaluates expressions in the service, so that the audit does not repeat its mistakes.

Tests become boolean columns, where null is bottom: Spark's AND, OR and NOT are three-valued in just the way the
language's are, and `^^` is inequality, which is null if a side is. Values become operands (:mod:`spark.values`).
The columns of an operand are each used several times, so arithmetic written as one column would double at
every level; instead each node of it is a column of its own, in stages, each stage a projection over the one
before. Equal nodes of all expressions share their columns.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark import values
from spark.patterns import Untranslatable, from_regex, from_wildcard
from spark.schemas import INT32, INT64, OPAQUE, REAL64, STRING
from spark.values import Operand
from waypost.subscription.errors import SubscriptionError
from waypost.subscription.tree import Binary, Call, Compare, Literal, Logic, Name, Node, Not, Unary, names

UNUSABLE = (SubscriptionError, Untranslatable)
"""The errors of :meth:`Compiler.test` and of the parser for an expression that the audit cannot evaluate."""


def names_of(trees: Iterable[Node]) -> tuple[str, ...]:
    """Return the attributes that any of the trees names, sorted: the order of the arrays of values."""
    return tuple(sorted(frozenset[str]().union(*map(names, trees))))


@dataclass
class Compiler:
    """Compiles any number of expressions over notifications.

    Args:
        names: the attributes in the arrays of the notifications (:data:`spark.schemas.ATTRIBUTES`), in this order.
        stages: the columns of each stage, which :meth:`test` adds.
    """

    names: Sequence[str]
    stages: list[list[Column]] = field(default_factory=list)
    _staged: dict[Node, tuple[int, Operand]] = field(default_factory=dict)
    _attributes: dict[str, Operand] = field(init=False)

    def __post_init__(self) -> None:
        self._attributes = {name: values.attribute(index) for index, name in enumerate(self.names)}

    def with_stages(self, notifications: DataFrame) -> DataFrame:
        """Return the notifications with the columns to which the tests compiled so far refer; call it after the last
        :meth:`test`.

        Args:
            notifications: with the columns :data:`spark.schemas.ATTRIBUTES`.
        """
        for stage in self.stages:
            notifications = notifications.select("*", *stage)
        return notifications

    def test(self, node: Node) -> Column:
        """Compile a test, and return it as a boolean column, null for bottom, over the frame that :meth:`with_stages`
        returns later. The columns that it needs are added to `stages`.

        Args:
            node: the tree of an expression, whose attributes are all in `names`.

        Raises:
            Untranslatable: it is none that a proxy accepts, or a pattern in it has no form for Java.
        """
        match node:
            case Compare(operator=operator, left=left, right=right):
                return values.compare(operator, self._operand(left), self._operand(right))
            case Logic(operator=operator, legs=legs):
                return _balanced(_LOGIC[operator], [self.test(term) for term in legs])
            case Not(operand=operand):
                return ~self.test(operand)
            case Call(function="equals", arguments=(first, *others)):
                comparisons = [Compare("==", first, argument) for argument in others]
                return _balanced(_LOGIC["||"], [self.test(comparison) for comparison in comparisons])
            case Call(function=function, arguments=(first,)) if function in _ON_ATTRIBUTES:
                return _ON_ATTRIBUTES[function](self._operand(first))
            case Call(function=function, arguments=(first, *others)) if function in _ON_STRINGS and others:
                text, holds = self._operand(first).text, _ON_STRINGS[function]
                return _balanced(_LOGIC["||"], [holds(text, _string(argument)) for argument in others])
            case _:
                pass
        raise Untranslatable(f"{type(node).__name__} is no test")

    # ---- values

    def _operand(self, node: Node) -> Operand:
        match node:
            case Name(name=name):
                return self._attributes[name]
            case Literal(value=value):
                return values.literal(value)
            case Call(function="size", arguments=(argument,)):
                return values.size(self._operand(argument))
            case _:
                pass
        return self._in_stages(node)[1]

    def _in_stages(self, node: Node) -> tuple[int, Operand]:
        """Return the operand of a node that has columns of its own, and the stage that they are in, from 1."""
        if node not in self._staged:
            stage = 1 + max((self._stage_of(child) for child in _operands(node)), default=0)
            self._staged[node] = (stage, self._kept(stage, self._computed(node)))
        return self._staged[node]

    def _stage_of(self, node: Node) -> int:
        if isinstance(node, Unary | Binary) or (isinstance(node, Call) and node.function in _STRING_FUNCTIONS):
            return self._in_stages(node)[0]
        return 0

    def _computed(self, node: Node) -> Operand:
        match node:
            case Unary(operator=operator, operand=operand):
                return values.unary(operator, self._operand(operand))
            case Binary(operator=operator, left=left, right=right):
                return values.binary(operator, self._operand(left), self._operand(right))
            case Call(function=function, arguments=(argument,)) if function in _STRING_FUNCTIONS:
                return values.string(_STRING_FUNCTIONS[function](self._operand(argument).text))
        raise Untranslatable(f"{type(node).__name__} is no value")

    def _kept(self, stage: int, operand: Operand) -> Operand:
        """Add the operand's columns to this stage, and return an operand that refers to them."""
        prefix = f"value_{len(self._staged)}_"
        while len(self.stages) < stage:
            self.stages.append([])
        if operand.kinds == {STRING}:
            self.stages[stage - 1].append(operand.text.alias(f"{prefix}text"))
            return values.string(F.col(f"{prefix}text"))
        numbers = {"kind": operand.kind, "integer": operand.integer, "real": operand.real}
        self.stages[stage - 1] += [column.alias(prefix + name) for name, column in numbers.items()]
        kind, integer, real = (F.col(prefix + name) for name in numbers)
        return Operand(kinds=operand.kinds, kind=kind, integer=integer, real=real, text=values.null("string"))


def _operands(node: Node) -> tuple[Node, ...]:
    match node:
        case Unary(operand=operand):
            return (operand,)
        case Binary(left=left, right=right):
            return (left, right)
        case Call(arguments=arguments):
            return arguments
        case _:
            pass
    return ()


def _balanced(join: Callable[[Column, Column], Column], terms: list[Column]) -> Column:
    """Join the terms as a balanced tree: Spark recurses over trees, and a list may have a thousand terms."""
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=False)
        terms = [join(left, right) for left, right in pairs] + (terms[-1:] if len(terms) % 2 else [])
    return terms[0]


_LOGIC: dict[str, Callable[[Column, Column], Column]] = {
    "&&": lambda left, right: left & right,
    "||": lambda left, right: left | right,
    "^^": lambda left, right: left != right,
}


def _is(kind: int) -> Callable[[Operand], Column]:
    return lambda operand: operand.kind == kind


_ON_ATTRIBUTES: dict[str, Callable[[Operand], Column]] = {
    "require": lambda operand: F.when(operand.kind.isNotNull(), F.lit(True)),
    "int32": _is(INT32),
    "int64": _is(INT64),
    "real64": _is(REAL64),
    "string": _is(STRING),
    "opaque": _is(OPAQUE),
    "nan": lambda operand: F.when(operand.kind == REAL64, F.isnan(operand.real)),
}

_ON_STRINGS: dict[str, Callable[[Column, str], Column]] = {
    "begins-with": lambda text, part: text.startswith(part),
    "ends-with": lambda text, part: text.endswith(part),
    "contains": lambda text, part: text.contains(part),
    "wildcard": lambda text, pattern: text.rlike(from_wildcard(pattern)),
    "regex": lambda text, pattern: text.rlike(from_regex(pattern)),
}


def _string(node: Node) -> str:
    if not isinstance(node, Literal) or not isinstance(node.value, str):
        raise Untranslatable(f"{type(node).__name__} where a string is needed")
    return node.value


# ---------------------------------------------------------------- functions that need Unicode's tables in full


def _folded(text: str | None) -> str | None:
    return None if text is None else text.casefold()


def _decomposed(text: str | None) -> str | None:
    return None if text is None else unicodedata.normalize("NFD", text)


def _decomposed_for_compatibility(text: str | None) -> str | None:
    return None if text is None else unicodedata.normalize("NFKD", text)


_STRING_FUNCTIONS: dict[str, Callable[[Column], Column]] = {
    "fold-case": lambda text: F.udf(_folded, "string")(text),
    "decompose": lambda text: F.udf(_decomposed, "string")(text),
    "decompose-compat": lambda text: F.udf(_decomposed_for_compatibility, "string")(text),
}
