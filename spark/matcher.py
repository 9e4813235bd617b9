"""Every distinct expression over every notification, by access predicates: what an expression must have to be true.

Of most expressions an attribute must be there, often with one value. Expressions are filed under that; a notification
asks by each of its attributes, and only what it finds there is evaluated (:mod:`spark.evaluation`).

The idea is that of Fabret and others, Filtering algorithms and implementation for very fast publish/subscribe systems,
2001. The service has it too (matching/), in another form; the two share nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from spark.evaluation import UNUSABLE, Attributes, Test, compiled
from waypost.notification import Value
from waypost.subscription.parser import read
from waypost.subscription.tree import Call, Compare, Literal, Logic, Name, Node, Not, names


class Key(NamedTuple):
    """An attribute, with one value, or with any (None). Numbers are reals here: equal ones are equal then, too."""

    name: str
    value: str | float | None = None


Keys = frozenset[Key]
_TRUE, _EITHER = frozenset({True}), frozenset({True, False})


class Matcher:
    """All expressions of a run, numbered in the order in which they were given.

    One is made anew from its texts in each process of Spark, once.

    Args:
        texts: the expressions, as they are written.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = tuple(texts)
        self._tests: dict[int, Test] = {}
        self._by_key: dict[Key, list[int]] = defaultdict(list)
        self._always: list[int] = []
        for number, text in enumerate(self.texts):
            try:
                tree = read(text)
                self._tests[number] = compiled(tree)
            except UNUSABLE:
                continue
            self._file(number, needed(tree))

    def _file(self, number: int, keys: Keys | None) -> None:
        if keys is None:
            self._always.append(number)
        else:
            for key in keys:
                self._by_key[key].append(number)

    def __reduce__(self) -> tuple[object, tuple[tuple[str, ...]]]:
        return matcher, (self.texts,)

    def is_usable(self, number: int) -> bool:
        """Return whether the expression of this number can be evaluated."""
        return number in self._tests

    def matching(self, attributes: Attributes) -> list[int]:
        """Return which expressions are true of these attributes: their indices in `texts`, ascending. An expression
        that cannot be evaluated is never among them.
        """
        candidates = set(self._always)
        filed = self._by_key
        for name, value in attributes.items():
            for key in (Key(name), Key(name, _comparable(value))):
                if key in filed:
                    candidates.update(filed[key])
        tests = self._tests
        return sorted(number for number in candidates if tests[number](attributes))


@lru_cache(maxsize=2)
def matcher(texts: tuple[str, ...]) -> Matcher:
    """Return the matcher of these expressions, one for each process."""
    return Matcher(texts)


def _comparable(value: Value) -> str | float | None:
    """Return the value by which those are filed that are equal to it; None: nothing is equal to it."""
    if isinstance(value, str):
        return value
    return None if isinstance(value, bytes) else float(value)


def needed(tree: Node) -> Keys | None:
    """Return keys of which a notification has at least one if the expression is true of it; None: nothing is known.

    Args:
        tree: the expression, a test.
    """
    return _needed(tree, _TRUE)


def _needed(node: Node, outcomes: frozenset[bool]) -> Keys | None:
    """Return keys of which a notification has one if the test comes out as one of `outcomes`."""
    match node:
        case Not(operand=inner):
            return _needed(inner, frozenset(not outcome for outcome in outcomes))
        case Logic(operator="^^", legs=legs):
            return _fewest(_needed(leg, _EITHER) for leg in legs)
        case Logic(operator=sign, legs=legs):
            # "And" is true, and "or" false, by all its legs together; else one leg is enough.
            by_all = outcomes == {sign == "&&"}
            each = [_needed(leg, outcomes) for leg in legs]
            return _fewest(each) if by_all else _any_of(each)
        case Compare(operator="==", left=Name(name=name), right=Literal(value=value)) if outcomes == _TRUE:
            return frozenset({Key(name, _comparable(value))})
        case Compare(operator="==", left=Literal(value=value), right=Name(name=name)) if outcomes == _TRUE:
            return frozenset({Key(name, _comparable(value))})
        case Call(function="equals", arguments=(first, *others)):
            equal = [_needed(Compare("==", first, other), outcomes) for other in others]
            return _any_of(equal)
        case Compare() | Call():
            # A test is bottom if any attribute in it is absent.
            present = names(node)
            return frozenset({Key(min(present))}) if present else None
        case _:
            return None


def _any_of(each: Sequence[Keys | None]) -> Keys | None:
    keys: set[Key] = set()
    for found in each:
        if found is None:
            return None
        keys |= found
    return frozenset(keys)


def _fewest(each: Iterable[Keys | None]) -> Keys | None:
    """Return the keys that let the fewest notifications through: values before attributes, then the fewest."""
    known = [keys for keys in each if keys is not None]
    return min(known, key=lambda keys: (any(key.value is None for key in keys), len(keys)), default=None)
