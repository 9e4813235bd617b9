"""The expression tree: plain values, the same for whoever walks them.

An expression is one node. Operators and function names stand in it as they are written in the source, so
that a reader (the evaluator, the Spark compiler, an index) needs no second vocabulary. Two families of nodes
never mix:

- tests, which are true, false or bottom: `Compare`, `Not`, `Logic`, and a `Call` of a predicate;
- values: `Name`, `Literal`, `Unary`, `Binary`, and a `Call` of `size` or of a string function.

`offset` is where the node begins in the source, in characters, its brackets left out. It serves messages
only: trees that differ in nothing else are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from waypost.notification import Value, type_name


@dataclass(frozen=True, slots=True)
class Name:
    """The value of an attribute.

    Args:
        name: the attribute's own name, its escapes undone.
        offset: where it begins in the expression, in characters from 0.
    """

    name: str
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A constant: ``int`` (int32), ``Int64``, ``float`` (finite) or ``str``.

    Equal to a literal of the same value and type: 1, 1L and 1.0 are three literals, and so are 0.0 and -0.0,
    because each of them makes some expression come out differently.
    """

    value: Value
    offset: int = field(default=0, compare=False)

    @property
    def type(self) -> str:
        """The Elvin name of the type: int32, int64, real64 or string."""
        return type_name(self.value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal):
            return NotImplemented
        return type(self.value) is type(other.value) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash((type(self.value), repr(self.value)))


@dataclass(frozen=True, slots=True)
class Unary:
    """Arithmetic on one operand.

    Args:
        operator: one of ``- + ~``.
        operand: a tree whose value is a number; else the whole is bottom, the third truth beside true and false.
        offset: where the operator stands in the expression, in characters from 0.
    """

    operator: str
    operand: Node
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic on two operands.

    Args:
        operator: one of ``+ - * / % | ^ & << >> >>>``.
        left: the first operand.
        right: the second operand.
        offset: where the operator stands in the expression, in characters from 0.
    """

    operator: str
    left: Node
    right: Node
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison of two values.

    Args:
        operator: one of ``== != < <= > >=``.
        left: the first value.
        right: the second value.
        offset: where the operator stands in the expression, in characters from 0.
    """

    operator: str
    left: Node
    right: Node
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    """The negation, written ``!``; of bottom it is bottom.

    Args:
        operand: what is negated.
        offset: where it stands in the expression, in characters from 0.
    """

    operand: Node
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Logic:
    """`operator` is one of ``&& || ^^``, over two legs or more.

    The three are associative also in three-valued logic, so a chain is one flat node: no leg is a `Logic` of
    the same operator. A long list of alternatives is therefore wide and not deep.
    """

    operator: str
    legs: tuple[Node, ...]
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A function applied to its arguments; :mod:`waypost.subscription.functions` lists what there is.

    Args:
        function: its name.
        arguments: one tree for each argument.
        offset: where the name stands in the expression, in characters from 0.
    """

    function: str
    arguments: tuple[Node, ...]
    offset: int = field(default=0, compare=False)


Node = Name | Literal | Unary | Binary | Compare | Not | Logic | Call


def join(operator: str, legs: Iterable[Node], offset: int = 0) -> Logic:
    """Return the flat `Logic` of these legs: a leg that is a `Logic` of the same operator is replaced by its own legs.

    Args:
        operator: one of ``&& || ^^``.
        legs: two or more, in order.
        offset: where it begins in the source, for messages.
    """
    flat: list[Node] = []
    for leg in legs:
        flat.extend(leg.legs if isinstance(leg, Logic) and leg.operator == operator else (leg,))
    return Logic(operator, tuple(flat), offset)


def children(node: Node) -> tuple[Node, ...]:
    """Return the nodes right below this one, from left to right."""
    match node:
        case Unary(operand=operand) | Not(operand=operand):
            return (operand,)
        case Binary(left=left, right=right) | Compare(left=left, right=right):
            return (left, right)
        case Logic(legs=below) | Call(arguments=below):
            return below
        case _:
            pass
    return ()


def walk(node: Node) -> Iterator[tuple[Node, int]]:
    """Yield each node with its depth, the root's being 1. Needs no stack of calls, however deep the tree."""
    waiting = [(node, 1)]
    while waiting:
        current, depth = waiting.pop()
        yield current, depth
        waiting.extend((child, depth + 1) for child in reversed(children(current)))


def names(node: Node) -> frozenset[str]:
    """Return the names of the attributes that the tree refers to."""
    return frozenset(current.name for current, _ in walk(node) if isinstance(current, Name))
