"""Which expression covers which: the covering one is true of each notification that the covered one is true of.

:func:`covers` is sound, not complete: where it says yes, no notification refutes it. It finds equality, ranges,
prefixes, presence, and what follows from these in conjunctions and disjunctions. It splits the covered expression into
cases, each of which is a conjunction of *facts*, and shows the covering one from the facts of each: a test that is
itself a fact, or one within whose keys those of a fact lie (:mod:`matching.needs`). The logic has three values: a fact
is a test that is true, or one that is false, never one that is merely not true.

:class:`CoveringIndex` finds, for an expression, the few of many that it may cover or be covered by.

Source: covering of filters, G. Mühl, L. Fiege and P. Pietzuch, *Distributed Event-Based Systems*, 2006, chapter 4.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from itertools import product
from operator import itemgetter
from typing import TypeVar

import msgspec
from sortedcontainers import SortedDict

from matching.needs import (
    EXACT_IN_A_DOUBLE,
    Key,
    Keys,
    Leg,
    Prefix,
    Present,
    Reading,
    Text,
    Within,
    parts,
    read,
    weakest,
)
from matching.postings import Attribute
from waypost.subscription import Expression
from waypost.subscription.tree import Call, Compare, Literal, Logic, Name, Node, Not

MAX_CASES = 8
"""Cases into which an expression is split; a disjunction that would make more of them remains one fact."""
SIMPLE_NODES = 40
"""Nodes of an expression that :func:`covers` takes less than a millisecond for."""
Sample = str | float
S = TypeVar("S", str, float)


def covers(covering: Node, covered: Node) -> bool:
    """Tell whether it is certain that `covering` is true of every notification of which `covered` is true. False: it is
    not certain, but may be so all the same.

    Args:
        covering: the tree of an expression.
        covered: the tree of another expression.
    """
    return all(facts.entail(covering, True) for case in _cases(covered, True) for facts in _facts_of(case))


def _cases(node: Node, truth: bool) -> list[list[Node]]:
    """Return conjunctions of tests, one of which is true whenever the node has the truth."""
    match node:
        case Not(operand=operand):
            return _cases(operand, not truth)
        case Logic(operator="&&" | "||" as operator, legs=legs):
            options = [_cases(leg, truth) for leg in legs]
            if (operator == "||") is truth:
                found = [case for option in options for case in option]
                return found if len(found) <= MAX_CASES else [[_test(node, truth)]]
            if math.prod(map(len, options)) > MAX_CASES:
                options = [
                    option if len(option) == 1 else [[_test(leg, truth)]]
                    for leg, option in zip(legs, options, strict=True)
                ]
            return [[test for case in chosen for test in case] for chosen in product(*options)]
        case Call(function="equals", arguments=(first, *others)):
            equal = [_test(Compare("==", first, other), truth) for other in others]
            return [[test] for test in equal] if truth else [equal]
        case Call(function="begins-with", arguments=(first, *others)) if truth and len(others) > 1:
            return [[Call("begins-with", (first, other))] for other in others]
        case _:
            return [[_test(node, truth)]]


def _facts_of(case: list[Node]) -> Iterator[_Facts]:
    """Yield the facts of a case; none if it never comes about."""
    for legs in parts(case[0] if len(case) == 1 else Logic("&&", tuple(case))):
        yield _Facts(case, legs)


def _test(node: Node, truth: bool) -> Node:
    return node if truth else Not(node)


class _Facts:
    """What is known of a notification: tests that are true of it, and keys of which it hits one each."""

    __slots__ = ("_keys", "_tests")

    def __init__(self, case: list[Node], legs: list[Leg]) -> None:
        self._tests = {*case, *(leg.test for leg in legs)}
        self._keys = [leg.reading.keys for leg in legs if leg.reading.keys is not None]

    def entail(self, node: Node, truth: bool) -> bool:
        """Tell whether the node certainly has the truth."""
        if _test(node, truth) in self._tests:
            return True
        match node:
            case Not(operand=operand):
                return self.entail(operand, not truth)
            case Logic(operator="&&" | "||" as operator, legs=legs):
                results = (self.entail(leg, truth) for leg in legs)
                return all(results) if (operator == "&&") is truth else any(results)
            case Call(function="equals", arguments=(first, *others)):
                results = (self.entail(Compare("==", first, other), truth) for other in others)
                return any(results) if truth else all(results)
            case Call(function="begins-with", arguments=(first, *others)) if truth and len(others) > 1:
                return any(self.entail(Call("begins-with", (first, other)), True) for other in others)
            case _:
                return self._meet(read(node, truth)) or self._exclude(node, truth)

    def _meet(self, reading: Reading) -> bool:
        if not reading.exact or reading.keys is None:
            return False
        return any(_all_within(keys, reading.keys) for keys in self._keys)

    def _exclude(self, node: Node, truth: bool) -> bool:
        """Tell whether the node says that an attribute is not of some value, and it is not."""
        match node:
            case Compare(operator="==" | "!=" as operator, left=Name(name=name), right=Literal(value=value)):
                pass
            case Compare(operator="==" | "!=" as operator, left=Literal(value=value), right=Name(name=name)):
                pass
            case _:
                return False
        if (operator == "!=") is not truth or not isinstance(value, str | int | float):
            return False
        if isinstance(value, int) and abs(value) >= EXACT_IN_A_DOUBLE:
            return False
        return any(all(_excludes(key, name, value) for key in keys) for keys in self._keys if keys)


def _lies_within(key: Key, wide: Key) -> bool:
    """Tell whether each value that hits one key hits the other."""
    # Not by patterns: an index asks this some thousand times for one expression.
    if key.name != wide.name:
        return False
    if isinstance(wide, Present):
        return True
    if isinstance(wide, Within):
        return isinstance(key, Within) and (
            wide.low <= key.low and key.high <= wide.high and (wide.or_nan or not key.or_nan)
        )
    if isinstance(wide, Text):
        return isinstance(key, Text) and key.value == wide.value
    text = key.value if isinstance(key, Text) else key.text if isinstance(key, Prefix) else None
    return text is not None and text.startswith(wide.text)


def _excludes(key: Key, name: str, value: str | float) -> bool:
    """Tell whether each value that hits the key can be compared with `value`, and is another one."""
    if key.name != name:
        return False
    match key:
        case Text(value=text):
            return isinstance(value, str) and text != value
        case Prefix(text=prefix):
            return isinstance(value, str) and not value.startswith(prefix)
        case Within(low=low, high=high):
            return not isinstance(value, str) and not low <= value <= high
        case _:
            return False


class Outline(msgspec.Struct, frozen=True, array_like=True):
    """What of an expression an index needs, so that it need not be parsed again.

    Args:
        alternatives: of each, the keys of its legs, as far as they are known.
        sample: attributes of a notification that the first alternative may be true of.
        is_exact: whether the keys say all: an alternative is true of what hits a key of each of its legs.
        is_simple: whether :func:`covers` takes little time for it.
    """

    alternatives: tuple[tuple[Keys, ...], ...]
    sample: dict[str, Sample]
    is_exact: bool = False
    is_simple: bool = False

    @property
    def keys(self) -> Keys | None:
        """The most selective keys of each alternative: what the expression is true of hits one. None: not known."""
        found: dict[Key, None] = {}
        for legs in self.alternatives:
            if not legs:
                return None
            ranked = [(weakest(keys), len(keys), keys) for keys in legs]
            found.update(dict.fromkeys(min(ranked, key=itemgetter(0, 1))[2]))
        return tuple(found)


def outline(expression: Expression) -> Outline:
    """Return the outline of an expression: its keys, and a sample of what it matches. :func:`covers_by_outline` and
    :class:`CoveringIndex` compare expressions by it.
    """
    alternatives = parts(expression.tree)
    readings = [leg.reading for legs in alternatives for leg in legs]
    first = [key for leg in (alternatives[0] if alternatives else ()) for key in (leg.reading.keys or ())[:1]]
    return Outline(
        tuple(tuple(leg.reading.keys for leg in legs if leg.reading.keys is not None) for legs in alternatives),
        {key.name: _sample_of(key) for key in sorted(first, key=_strength)},
        all(reading.exact for reading in readings),
        expression.cost.nodes <= SIMPLE_NODES,
    )


def covers_by_outline(covering: Outline, covered: Outline) -> bool | None:
    """Tell by two outlines, in microseconds, whether an expression covers another one.

    Args:
        covering: the outline of an expression.
        covered: the outline of another expression.

    Returns:
        True: it certainly does. False: the outlines do not show it; treat it as not covering. None: it may cover;
        :func:`covers` tells by the trees.
    """
    for legs in covered.alternatives:
        if not any(_are_met(needed, legs) for needed in covering.alternatives):
            return False
    return True if covering.is_exact else None


def _are_met(needed: tuple[Keys, ...], legs: tuple[Keys, ...]) -> bool:
    """Tell whether whatever hits a key of each of some legs does so of all that are needed."""
    for wide in needed:
        for keys in legs:
            if _all_within(keys, wide):
                break
        else:
            return False
    return True


def _all_within(keys: Keys, wide: Keys) -> bool:
    for key in keys:
        for other in wide:
            if _lies_within(key, other):
                break
        else:
            return False
    return True


def _strength(key: Key) -> tuple[int, int]:
    return -weakest((key,)), len(key.text) if isinstance(key, Prefix) else 0


def _sample_of(key: Key) -> Sample:
    match key:
        case Text(value=text) | Prefix(text=text):
            return text
        case Within(low=low, high=high):
            return low if math.isfinite(low) else high if math.isfinite(high) else 0.0
        case _:
            return ""


class CoveringIndex:
    """Expressions by their outlines: those that may cover another one, or be covered by it, without looking at all.

    An expression that covers another one is hit by the sample of that one. The sample may be a wrong one where a
    condition has no key: then nothing is found, and what is found is to be tested by :func:`covers`.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._texts: list[str] = []
        self._free: list[int] = []
        self._keys: dict[str, Attribute] = {}
        self._samples: dict[str, _Samples] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, text: str, of: Outline) -> None:
        """Add an expression by its text, which must not be in the index.

        Args:
            text: its canonical text.
            of: its outline.
        """
        number = self._free.pop() if self._free else len(self._texts)
        if number == len(self._texts):
            self._texts.append(text)
        self._texts[number] = text
        self._numbers[text] = number
        for key in of.keys or ():
            self._keys.setdefault(key.name, Attribute()).put(key, number)
        for name, value in of.sample.items():
            self._samples.setdefault(name, _Samples()).add(value, text)

    def remove(self, text: str, of: Outline) -> None:
        """Remove an expression that was added with this outline. Raises KeyError: it is not in the index."""
        number = self._numbers.pop(text)
        self._free.append(number)
        for key in of.keys or ():
            attribute = self._keys[key.name]
            attribute.drop(key, number)
            if not attribute:
                del self._keys[key.name]
        for name, value in of.sample.items():
            samples = self._samples[name]
            samples.remove(value, text)
            if not samples:
                del self._samples[name]

    def may_cover(self, of: Outline) -> Iterator[str]:
        """Yield the texts of expressions in the index that may cover another expression, some more than once;
        :func:`covers` tells whether they do. Not every one that covers it need be found. Do not change the index
        meanwhile.

        Args:
            of: the outline of the other expression; if that is in the index, it may be found, too.
        """
        found: list[array[int]] = []
        for name, value in of.sample.items():
            attribute = self._keys.get(name)
            if attribute is not None:
                equal = attribute.equal.get(value)
                if equal is not None:
                    found.append(equal)
                attribute.collect(value, found)
        return (self._texts[number] for posting in found for number in posting)

    def may_be_covered(self, of: Outline) -> Iterator[str]:
        """Yield the texts of expressions in the index that another expression may cover, some more than once;
        :func:`covers` tells whether it does. Not every covered one need be found. Do not change the index meanwhile.

        Args:
            of: the outline of the other expression; if that is in the index, it may be found, too.
        """
        return (text for key in of.keys or () for text in self._sampled(key))

    def _sampled(self, key: Key) -> Iterator[str]:
        samples = self._samples.get(key.name)
        return samples.hits(key) if samples is not None else iter(())


class _Samples:
    """The samples of one attribute, in their order, with the expressions whose they are."""

    __slots__ = ("_numbers", "_texts")

    def __init__(self) -> None:
        self._numbers: SortedDict[float, dict[str, None]] = SortedDict()
        self._texts: SortedDict[str, dict[str, None]] = SortedDict()

    def __bool__(self) -> bool:
        return bool(self._numbers or self._texts)

    def add(self, value: Sample, text: str) -> None:
        if isinstance(value, str):
            self._texts.setdefault(value, {})[text] = None
        else:
            self._numbers.setdefault(value, {})[text] = None

    def remove(self, value: Sample, text: str) -> None:
        if isinstance(value, str):
            _remove(self._texts, value, text)
        else:
            _remove(self._numbers, value, text)

    def hits(self, key: Key) -> Iterator[str]:
        match key:
            case Text(value=value):
                yield from self._texts.get(value, ())
            case Prefix(text=prefix):
                for text in self._texts.irange(prefix):
                    if not text.startswith(prefix):
                        break
                    yield from self._texts[text]
            case Within(low=low, high=high):
                for number in self._numbers.irange(low, high):
                    yield from self._numbers[number]
            case _:
                for texts in (*self._texts.values(), *self._numbers.values()):
                    yield from texts


def _remove(table: SortedDict[S, dict[str, None]], value: S, text: str) -> None:
    del table[value][text]
    if not table[value]:
        del table[value]
