"""Necessary conditions of an expression, read off its tree: each notification that matches it meets them.

An expression is split into *parts*, one of which is true if it is; a part into *legs*, all of which are true if it is.
For each leg this module finds *keys*: at least one of them is hit by every notification that makes the leg true.

The logic has three values (docs/subscription-language.md, Truth), so a negation is no complement: `!x` is true where
x is false, never where it is bottom. Therefore every reading here is of a test *and of the truth it is to have*. What
makes a test true or false at all is that its attributes are there: the weakest key is presence, and only what can come
out without any one attribute, such as a constant, has no keys.

NaN is false in every comparison but `!=`. So the negation of `a < 5` is `a >= 5`, or NaN: a bound can say that too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from waypost.notification import Value
from waypost.subscription.tree import Call, Compare, Literal, Logic, Name, Node, Not, walk

EXACT_IN_A_DOUBLE = 2**53
"""Integers smaller than this compare with any number as doubles, rounded or not, as they do in the language."""
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


class Text(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The condition that an attribute is a certain string.

    Args:
        name: of the attribute.
        value: the whole string.
    """

    name: str
    value: str


class Within(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The condition that the attribute is a number in [`low`, `high`], or NaN if `or_nan`; a bound may be infinite."""

    name: str
    low: float
    high: float
    or_nan: bool = False

    @property
    def is_point(self) -> bool:
        """Whether the condition is one number that only integers of that value are equal to, and no NaN."""
        return self.low == self.high and abs(self.low) < EXACT_IN_A_DOUBLE and not self.or_nan

    @property
    def is_range(self) -> bool:
        """Whether the condition has two bounds, whose distance is finite, and is not one number (:attr:`is_point`)."""
        return math.isfinite(self.high - self.low) and not self.is_point


class Prefix(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The condition that an attribute is a string with a certain beginning.

    Args:
        name: of the attribute.
        text: the beginning.
    """

    name: str
    text: str


class Present(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The condition that an attribute is present, with any value.

    Args:
        name: of the attribute.
    """

    name: str


Key = Text | Within | Prefix | Present
Keys = tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """The keys of a test and a truth; `exact`: the test has that truth exactly if one of the keys is hit.

    None: no keys are known. An empty tuple: the test never has that truth.
    """

    keys: Keys | None
    exact: bool = False

    @property
    def only(self) -> Key | None:
        """The key that is equivalent to the test; None: there are several, or none, or the keys are not exact."""
        return self.keys[0] if self.exact and self.keys and len(self.keys) == 1 else None


@dataclass(frozen=True, slots=True)
class Leg:
    """One of the tests that must all be true in an alternative of a tree.

    Args:
        test: the test, as a part of the tree.
        reading: the keys of the test; every notification for which it is true hits one of them.
    """

    test: Node
    reading: Reading


def parts(tree: Node) -> list[list[Leg]]:
    """Return the alternatives of a tree, each as its legs: tests that must all be true. The tree is true if all legs of
    one alternative are. An empty list: the tree is never true.
    """
    reader = _Reader()
    split = (reader.legs(node, truth) for node, truth in _flat(tree, True, any_of=True))
    return [legs for legs in split if all(leg.reading.keys != () for leg in legs)]


def read(node: Node, truth: bool) -> Reading:
    """Return the index keys of a test: every notification for which the test has this truth hits one of them.

    Args:
        node: the test.
        truth: True: the keys of the test being true; False: of the test being false. Bottom (an attribute is absent) is
            neither.

    Returns:
        `keys` is None where no keys are known, and empty if the test never has that truth; `exact`: whether a
            notification that hits one of them has it.
    """
    return _Reader()._of(node, truth)


def _flat(node: Node, truth: bool, *, any_of: bool) -> Iterator[tuple[Node, bool]]:
    """Yield the tests and truths of which one (`any_of`) or all must hold for `node` to have the truth."""
    match node:
        case Not(operand=operand):
            yield from _flat(operand, not truth, any_of=any_of)
        case Logic(operator=operator, legs=legs) if operator == ("||" if truth is any_of else "&&"):
            for leg in legs:
                yield from _flat(leg, truth, any_of=any_of)
        case Call(function="equals", arguments=(first, *others)) if truth is any_of:
            for other in others:
                yield Compare("==", first, other), truth
        case _:
            yield node, truth


class _Reader:
    """A reader of one tree. It reads each test once for each truth: nested `^^` would take exponential time
    otherwise.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, bool], Reading] = {}

    def legs(self, node: Node, truth: bool) -> list[Leg]:
        """Return the legs that must hold together for the node to have this truth; the bounds of one attribute are
        one leg.
        """
        bounds: dict[str, tuple[Within, list[Node]]] = {}
        legs: list[Leg] = []
        for test, wanted in _flat(node, truth, any_of=False):
            condition = test if wanted else Not(test)
            reading = self._of(test, wanted)
            key = reading.only
            if isinstance(key, Within):
                before, tests = bounds.get(key.name, (key, []))
                bounds[key.name] = _both(before, key), [*tests, condition]
            else:
                legs.append(Leg(condition, reading))
        return [_bounded(key, tests) for key, tests in bounds.values()] + legs

    def _read(self, node: Node, truth: bool) -> Reading:
        key = id(node), truth
        if key not in self._known:
            legs = self.legs(node, truth)
            readings = [leg.reading for leg in legs]
            self._known[key] = readings[0] if len(readings) == 1 else _cheapest(readings)
        return self._known[key]

    def _of(self, node: Node, truth: bool) -> Reading:
        match node:
            case Logic(operator="^^", legs=legs):
                # Bottom if any leg is, so each of them must come out, one way or the other.
                return _cheapest([_either([self._read(leg, True), self._read(leg, False)]) for leg in legs])
            case Logic(legs=legs):
                return _either([self._read(leg, truth) for leg in legs])
            case Compare():
                return _of_comparison(node, truth)
            case Call(function="equals", arguments=(first, *others)):
                return _either([_of_comparison(Compare("==", first, other), truth) for other in others])
            case Call(function="begins-with", arguments=(Name(name=name), *beginnings)) if truth:
                return _of_beginnings(name, beginnings)
            case Call(function="require", arguments=(Name(name=name),)):
                return Reading((Present(name),) if truth else (), exact=True)
            case _:
                pass
        return _presence(node)


def _both(left: Within, right: Within) -> Within:
    low, high = max(left.low, right.low), min(left.high, right.high)
    return Within(left.name, low, high, left.or_nan and right.or_nan)


def _bounded(key: Within, tests: list[Node]) -> Leg:
    test = tests[0] if len(tests) == 1 else Logic("&&", tuple(tests))
    if key.low <= key.high:
        return Leg(test, Reading((key,), exact=True))
    return Leg(test, Reading((Present(key.name),)) if key.or_nan else Reading(()))


def _either(readings: Iterable[Reading]) -> Reading:
    found: dict[Key, None] = {}
    exact = True
    for reading in readings:
        if reading.keys is None:
            return Reading(None)
        found.update(dict.fromkeys(reading.keys))
        exact = exact and reading.exact
    return Reading(tuple(found), exact)


def _cheapest(choices: Iterable[Reading]) -> Reading:
    known = [reading.keys for reading in choices if reading.keys is not None]
    return Reading(min(known, key=lambda keys: (weakest(keys), len(keys))) if known else None)


def weakest(keys: Keys) -> int:
    """Return the rank of the least selective key: 0 equality, 1 prefix, 2 range, 3 one bound, 4 presence. 0 also
    without a key.
    """
    return max(map(_weakness, keys), default=0)


def _weakness(key: Key) -> int:
    match key:
        case Text():
            return 0
        case Prefix():
            return 1
        case Within():
            return 0 if key.is_point else 2 if key.is_range else 3
        case _:
            pass
    return 4


def _of_comparison(node: Compare, truth: bool) -> Reading:
    name, operator, value = node.left, node.operator, node.right
    if isinstance(name, Literal):
        name, operator, value = value, _MIRRORED[operator], name
    if isinstance(name, Name) and isinstance(value, Literal):
        key = _of_value(name.name, operator if truth else _OPPOSITE[operator], value.value, or_nan=not truth)
        if key is not None:
            return Reading((key,), exact=True)
    return _presence(node)


def _of_value(name: str, operator: str, value: Value, *, or_nan: bool) -> Key | None:
    if isinstance(value, str):
        return Text(name, value) if operator == "==" else None
    if not isinstance(value, int | float) or (isinstance(value, int) and abs(value) >= EXACT_IN_A_DOUBLE):
        return None
    number = float(value)
    match operator:
        case "==":
            # Also for `!(a != 5)`, which is false for NaN.
            return Within(name, number, number)
        case "<":
            return Within(name, -math.inf, math.nextafter(number, -math.inf), or_nan)
        case "<=":
            return Within(name, -math.inf, number, or_nan)
        case ">":
            return Within(name, math.nextafter(number, math.inf), math.inf, or_nan)
        case ">=":
            return Within(name, number, math.inf, or_nan)
        case _:
            pass
    return None


def _of_beginnings(name: str, beginnings: Iterable[Node]) -> Reading:
    texts = [node.value for node in beginnings if isinstance(node, Literal) and isinstance(node.value, str)]
    if "" in texts:
        return Reading((Present(name),))
    return Reading(tuple(dict.fromkeys(Prefix(name, text) for text in texts)), exact=True)


def _presence(node: Node) -> Reading:
    """Every value and predicate but `equals` and logic is bottom if one of its attributes is absent."""
    for below, _ in walk(node):
        if isinstance(below, Name):
            return Reading((Present(below.name),))
    return Reading(None)
