"""What the index finds is what asking every expression finds; the evaluator is the oracle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from matching.columns import Columns
from matching.index import Index
from matching.needs import parts
from tests.helpers.expressions import (
    finite,
    int32s,
    int64s,
    leaves,
    literals,
    name_nodes,
    notifications,
    relations,
    tests,
)
from waypost.notification import Int64, Value
from waypost.subscription import Compare, Expression, Literal, Name, Node, Not, SubscriptionError, parse
from waypost.subscription.canonical import write
from waypost.subscription.evaluate import compile_test
from waypost.subscription.tree import join


def readable(tree: Node) -> Expression | None:
    try:
        return parse(write(tree))
    except SubscriptionError:
        return None


# Mostly what subscriptions are made of: conjunctions and alternatives of comparisons with literals, some negated.
simple = st.builds(Compare, relations, name_nodes, literals)
usual = st.recursive(
    simple | simple | leaves,
    lambda inner: (
        inner.map(Not) | st.builds(join, st.sampled_from(["&&", "&&", "||"]), st.lists(inner, min_size=2, max_size=4))
    ),
    max_leaves=5,
)
expressions = (usual | tests).map(readable).filter(lambda expression: expression is not None)
sets = st.lists(expressions, min_size=1, max_size=5, unique=True)
often_nan = st.builds(
    lambda attributes, which: attributes | which, notifications, st.sampled_from([{}, {"a": math.nan}])
)
events = st.lists(often_nan, min_size=1, max_size=3)


# Several expressions of the whole language are much to make up, and take their time.
large = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def asked_one_by_one(expressions: Sequence[Expression], attributes: Mapping[str, Value]) -> list[str]:
    return sorted(expression.canonical for expression in expressions if expression.matches(attributes))


@large
@given(sets, events, st.sampled_from([0, 1000]))
def test_index_matches_like_the_evaluation_of_every_expression(
    expressions: list[Expression], events: list[dict[str, Value]], many: int
) -> None:
    index: Index[str] = Index(few=0, many=many)
    for expression in expressions:
        index.add(expression, expression.canonical)
    for attributes in events:
        assert sorted(index.match(attributes)) == asked_one_by_one(expressions, attributes)


@large
@given(sets, events, st.data(), st.sampled_from([0, 1000]))
def test_index_matches_like_the_evaluator_after_any_additions_and_removals(
    expressions: list[Expression], events: list[dict[str, Value]], data: st.DataObject, many: int
) -> None:
    index: Index[str] = Index(few=2, many=many)
    inside: dict[Expression, None] = {}
    for expression in data.draw(st.lists(st.sampled_from(expressions), max_size=12)):
        if expression in inside:
            index.remove(expression)
            del inside[expression]
        else:
            index.add(expression, expression.canonical)
            inside[expression] = None
        assert len(index) == len(inside)
        for attributes in events:
            assert sorted(index.match(attributes)) == asked_one_by_one(list(inside), attributes)
    for each in inside:
        index.remove(each)
    assert left_in(index) == left_in(Index())


def left_in(index: Index[str]) -> object:
    """Return what an index holds on to."""
    columns: Columns = index._columns
    rows = [row for row in index._rows if row]
    return rows, index._attributes, list(index._unindexed), columns._names.numbers, columns._texts.numbers


@given(usual | tests, often_nan)
def test_the_parts_of_a_tree_are_true_where_it_is(tree: Node, attributes: dict[str, Value]) -> None:
    expression = readable(tree)
    assume(expression is not None)
    assert expression is not None
    alternatives = [[compile_test(leg.test)(attributes) for leg in legs] for legs in parts(expression.tree)]
    assert any(all(alternative) for alternative in alternatives) == (expression.matches(attributes) is True)


edges = [0.0, -0.0, 5e-324, -5e-324, 1e308, -1e308, 1.7976931348623157e308, math.inf, -math.inf, math.nan, 2.0**53]


@given(
    st.lists(st.tuples(relations, finite | int32s | int64s), min_size=1, max_size=3),
    st.sampled_from(edges) | st.floats() | int32s | int64s,
)
@example([(">=", -1024.0), ("<=", -5e-324)], -5e-324)
@example([(">", 1.7976931348623157e308)], 0.0)
@example([("<", -1.7976931348623157e308)], 0.0)
@example([("==", Int64(2**53 + 1))], 2.0**53)
@example([("==", 2.0**53)], Int64(2**53 + 1))
def test_bounds_hold_at_every_edge(bounds: list[tuple[str, float]], value: float) -> None:
    expression = readable(join("&&", [Compare(each, name, literal) for each, name, literal in _legs(bounds)]))
    assume(expression is not None)
    assert expression is not None
    for many in (0, 1000):
        index: Index[str] = Index(few=0, many=many)
        index.add(expression, "it")
        assert bool(index.match({"a": value})) == (expression.matches({"a": value}) is True)


def _legs(bounds: list[tuple[str, float]]) -> list[tuple[str, Node, Node]]:
    return [(relation, Name("a"), Literal(value)) for relation, value in bounds]
