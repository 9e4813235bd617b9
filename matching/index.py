"""An index of expressions, each with an item: it finds those that match a notification without evaluating all.

Every alternative of an expression is a *row*: it is indexed by the keys of one of its legs, the most selective one, so
that every notification that makes it true hits one of them (`matching.needs`). The rows that a notification hits are
candidates. A few are tested one by one, by the same closures that evaluate a whole expression; many have their bounds
compared at once (`matching.columns`), and only the rest of their legs is tested then. A row without keys is always a
candidate; :attr:`Index.unindexed` counts these.

With few expressions there is nothing to gain, and each is evaluated.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Generic, TypeVar

from matching.columns import WIDTH, Columns, Condition, Weights
from matching.needs import Keys, Leg, Text, Within, parts, weakest
from matching.postings import Attribute, Posting, is_sharp
from waypost.errors import Internal
from waypost.notification import Notification, Value
from waypost.subscription import Expression, Logic
from waypost.subscription.evaluate import Test, compile_test

FEW = 6
"""Up to this number of expressions each is evaluated."""
MANY = 16
"""From this number of candidates on their bounds are compared at once."""

T = TypeVar("T")
Known = dict[Test, bool | None]
"""The results of tests for one notification."""


class _Entry(Generic[T]):
    """An expression and its item. One notification may hit it more than once if it is indexed in several places."""

    __slots__ = ("item", "matches", "rows", "several")

    def __init__(self, item: T, matches: Callable[[Mapping[str, Value]], bool | None]) -> None:
        self.item = item
        self.matches = matches
        self.rows: list[int] = []
        self.several = False


@dataclass(frozen=True, slots=True)
class _Row(Generic[T]):
    """One alternative. `test` decides what its keys leave open, `rest` what keys and columns do; None: nothing is
    open.
    """

    entry: _Entry[T]
    keys: Keys | None
    conditions: Sequence[Condition]
    test: Test | None
    rest: Test | None


class Index(Generic[T]):
    """A set of expressions, each with an item; :meth:`match` returns the items of those that are true.

    Args:
        few: up to this number of expressions each is evaluated.
        many: from this number of candidates on their bounds are compared at once.
    """

    def __init__(self, few: int = FEW, many: int = MANY) -> None:
        self._few = few
        self._many = many
        self._entries: dict[Expression, _Entry[T]] = {}
        self._attributes: dict[str, Attribute] = {}
        self._rows: list[_Row[T] | None] = []
        self._tests: list[Test | None] = []
        self._items: list[T | None] = []
        """The tests and items of the rows, side by side: large indices are bound by memory accesses."""
        self._free: list[int] = []
        self._unindexed: Posting = array("q")
        self._columns = Columns()
        self._repeating = 0
        """The number of entries that are indexed in several places."""
        self._weights = Weights()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, expression: Expression) -> T | None:
        """Return the item of this expression; None: it is not in the index."""
        entry = self._entries.get(expression)
        return entry.item if entry else None

    @property
    def unindexed(self) -> int:
        """The number of alternatives that are candidates for every notification."""
        return len(self._unindexed)

    # ------------------------------------------------------------ changing

    def add(self, expression: Expression, item: T) -> None:
        """Add an expression with its item. Raises Internal: the expression is in the index already."""
        if expression in self._entries:
            raise Internal(f"{expression.canonical!r} is in the index already")
        entry = self._entries[expression] = _Entry(item, expression.matches)
        rows = [self._row(entry, legs) for legs in parts(expression.tree)]
        entry.several = sum(1 if row.keys is None else len(row.keys) for row in rows) > 1
        self._repeating += entry.several
        entry.rows += [self._put(row) for row in rows]

    def remove(self, expression: Expression) -> None:
        """Remove an expression. Raises KeyError: it is not in the index."""
        entry = self._entries.pop(expression)
        self._repeating -= entry.several
        self._weights.set(entry.rows, 0.0, 0.0)
        for number in entry.rows:
            self._drop(number)

    def weigh(self, expression: Expression, test_ns: float, item_ns: float) -> None:
        """Set the costs of an expression for :meth:`foreseen_ns` and :meth:`max_ns`; an expression without costs adds
        nothing there.

        Args:
            expression: one of the index.
            test_ns: to evaluate all its alternatives, in nanoseconds.
            item_ns: to process its item once if it is true, in nanoseconds.

        Raises:
            KeyError: the expression is not in the index.
        """
        self._weights.set(self._entries[expression].rows, test_ns, item_ns)

    def max_ns(self, times: float = 1.0) -> float:
        """Return the sum of the costs of all expressions, in nanoseconds: the estimate of :meth:`foreseen_ns` for a
        notification that hits every alternative once.

        :meth:`foreseen_ns` is never higher.

        Args:
            times: the factor of the costs of processing items.
        """
        return self._weights.max(times)

    def _row(self, entry: _Entry[T], legs: Sequence[Leg]) -> _Row[T]:
        access = self._cheapest(legs)
        keys = access.reading.keys if access else None
        answered = access is not None and access.reading.exact and all(map(is_sharp, keys or ()))
        left = [leg for leg in legs if not (answered and leg is access)]
        # A range has candidates that are only near it, so its bounds are compared first.
        bounded = [leg for leg in sorted(left, key=lambda leg: leg is not access) if _condition(leg)][:WIDTH]
        conditions = [condition for leg in bounded if (condition := _condition(leg))]
        rest = [leg for leg in left if leg not in bounded]
        return _Row(entry, keys, conditions, _test_of(left), _test_of(rest))

    def _put(self, row: _Row[T]) -> int:
        number = self._free.pop() if self._free else len(self._rows)
        if number == len(self._rows):
            self._rows.append(None)
            self._tests.append(None)
            self._items.append(None)
        self._rows[number], self._tests[number], self._items[number] = row, row.test, row.entry.item
        self._columns.put(number, row.conditions, marked=row.rest is not None or row.entry.several)
        for key in row.keys or ():
            self._attributes.setdefault(key.name, Attribute()).put(key, number)
        if row.keys is None:
            insort(self._unindexed, number)
        return number

    def _drop(self, number: int) -> None:
        row = self._rows[number]
        assert row is not None
        self._rows[number] = self._tests[number] = self._items[number] = None
        self._free.append(number)
        self._columns.drop(number, row.conditions)
        for key in row.keys or ():
            attribute = self._attributes[key.name]
            attribute.drop(key, number)
            if not attribute:
                del self._attributes[key.name]
        if row.keys is None:
            del self._unindexed[bisect_left(self._unindexed, number)]

    def _cheapest(self, legs: Sequence[Leg]) -> Leg | None:
        """Return the most selective leg, to index the row by: of the strongest kind of keys, and of those the
        rarest.
        """
        known = [(weakest(keys), self._size(keys), leg) for leg in legs if (keys := leg.reading.keys) is not None]
        return min(known, key=itemgetter(0, 1))[2] if known else None

    def _size(self, keys: Keys) -> float:
        known = self._attributes
        return sum(known[key.name].size(key) for key in keys if key.name in known)

    # ------------------------------------------------------------ matching

    def foreseen_ns(self, attributes: Mapping[str, Value], factor: float = 1.0) -> float:
        """Estimate the costs of :meth:`match` and of processing its items, in nanoseconds, without evaluating the
        candidates. Only expressions with costs (:meth:`weigh`) count.

        With few expressions, of which each is evaluated, it is :meth:`max_ns`, whatever the attributes are.

        Args:
            attributes: of the notification.
            factor: by which the costs of processing items are multiplied; it is larger for a large notification.
        """
        if len(self._entries) <= self._few:
            return self.max_ns(factor)
        return self._weights.of(self._found(attributes), factor, repeating=self._repeating > 0)

    def evaluate(self, attributes: Mapping[str, Value], known: Known) -> Iterator[None]:
        """Evaluate the candidates of :meth:`match`, one at each step, so that the caller can do other work in between.

        An expression that is added meanwhile is evaluated by :meth:`match`.

        Args:
            attributes: of the notification.
            known: results by test, empty at first; filled here, and to be given to :meth:`match` for the same
                attributes.
        """
        if len(self._entries) <= self._few:
            tests: list[Test | None] = [entry.matches for entry in self._entries.values()]
        else:
            tests = [self._tests[number] for posting in self._found(attributes) for number in posting]
        for test in tests:
            if test is not None and test not in known:
                known[test] = test(attributes)
                yield

    def match(self, attributes: Mapping[str, Value], known: Known | None = None) -> list[T]:
        """Return the items whose expressions are true, each once, in an order that is arbitrary but deterministic.

        Args:
            attributes: of the notification, or the notification itself.
            known: results of :meth:`evaluate` for this notification; None: there are none.
        """
        if known is not None:
            return self._match_known(attributes, known)
        if len(self._entries) <= self._few:
            return [entry.item for entry in self._entries.values() if entry.matches(attributes)]
        if type(attributes) is Notification:
            attributes = attributes.attributes
        found = self._found(attributes)
        if not found:
            return []
        if sum(map(len, found)) < self._many:
            return self._one_by_one(found, attributes)
        return self._at_once(found, attributes)

    def _match_known(self, attributes: Mapping[str, Value], known: Known) -> list[T]:
        def holds(test: Test) -> bool | None:
            return known[test] if test in known else test(attributes)

        if len(self._entries) <= self._few:
            return [entry.item for entry in self._entries.values() if holds(entry.matches)]
        hits = [
            number
            for posting in self._found(attributes)
            for number in posting
            if (test := self._tests[number]) is None or holds(test)
        ]
        return self._once(hits) if self._repeating else self._items_of(hits)

    def _items_of(self, hits: Sequence[int]) -> list[T]:
        return [self._items[number] for number in hits]  # type: ignore[misc]

    def _found(self, attributes: Mapping[str, Value]) -> list[Posting]:
        found: list[Posting] = [self._unindexed] if self._unindexed else []
        known = self._attributes
        for name, value in attributes.items():
            attribute = known.get(name)
            if attribute is not None:
                posting = attribute.equal.get(value)
                if posting is not None:
                    found.append(posting)
                if attribute.more:
                    attribute.collect(value, found)
        return found

    def _one_by_one(self, found: Sequence[Posting], attributes: Mapping[str, Value]) -> list[T]:
        tests, hits = self._tests, []
        for posting in found:
            for number in posting:
                test = tests[number]
                if test is None or test(attributes):
                    hits.append(number)
        if self._repeating and len(hits) > 1:
            return self._once(hits)
        return self._items_of(hits)

    def _at_once(self, found: Sequence[Posting], attributes: Mapping[str, Value]) -> list[T]:
        passing = self._columns.passing(found, attributes)
        if passing is None:
            return self._one_by_one(found, attributes)
        items, rows, hits = self._items, self._rows, []
        certain, marked = passing
        for number in marked:
            rest = rows[number].rest  # type: ignore[union-attr]
            if rest is None or rest(attributes):
                hits.append(number)
        answered: list[T] = [items[number] for number in certain]  # type: ignore[misc]
        return answered + self._once(hits) if hits else answered

    def _once(self, hits: Sequence[int]) -> list[T]:
        rows = self._rows
        entries = dict.fromkeys(rows[number].entry for number in hits)  # type: ignore[union-attr]
        return [entry.item for entry in entries]


def _condition(leg: Leg) -> Condition | None:
    key = leg.reading.only
    return key if isinstance(key, Text | Within) else None


def _test_of(legs: Sequence[Leg]) -> Test | None:
    if not legs:
        return None
    tests = tuple(leg.test for leg in legs)
    return compile_test(tests[0] if len(tests) == 1 else Logic("&&", tests))
