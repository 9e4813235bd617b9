"""Expressions and notifications of all kinds, for property tests: the whole language, and every edge of its types."""

from __future__ import annotations

from hypothesis import strategies as st

from waypost.notification import Int64
from waypost.subscription.tree import Binary, Call, Compare, Literal, Name, Node, Not, Unary, join

EDGES = [0, 1, -1, 2, 7, 31, 32, 33, 63, 64, 2**31 - 1, -(2**31)]
WIDE_EDGES = [*EDGES, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]
int32s = st.sampled_from(EDGES) | st.integers(-(2**31), 2**31 - 1)
int64s = (st.sampled_from(WIDE_EDGES) | st.integers(-(2**63), 2**63 - 1)).map(Int64)
finite = st.sampled_from([0.0, -0.0, 1.0, -1.5, 2.0**53, 1e308, 5e-324]) | st.floats(
    allow_nan=False, allow_infinity=False
)
texts = st.text("aAbß\u00e9\n\ufb01", max_size=4)
names = st.sampled_from(["a", "b", "c", "d e", "x==1", "5", "absent"])
values = int32s | int64s | finite | st.floats() | texts | st.binary(max_size=3)
numbers = int32s | int64s | finite
# "a" is mostly a number and "b" mostly a string, or most answers would be bottom.
notifications = st.builds(
    lambda usual, any_at_all: {**usual, **any_at_all},
    st.fixed_dictionaries({"a": numbers, "b": texts, "c": numbers | texts}),
    st.dictionaries(st.sampled_from(["a", "b", "c", "d e", "x==1", "5"]), values, max_size=3),
)

name_nodes = names.map(Name)
literals = (int32s | int64s | finite | texts).map(Literal)
string_functions: st.SearchStrategy[Node] = st.deferred(
    lambda: st.builds(
        lambda function, argument: Call(function, (argument,)),
        st.sampled_from(["fold-case", "decompose", "decompose-compat"]),
        name_nodes | texts.map(Literal) | string_functions,
    )
)
sizes = name_nodes.map(lambda name: Call("size", (name,)))
operands: st.SearchStrategy[Node] = st.recursive(
    name_nodes | literals | sizes | string_functions,
    lambda inner: (
        st.builds(Unary, st.sampled_from("-+~"), inner)
        | st.builds(Binary, st.sampled_from(["+", "-", "*", "/", "%", "|", "^", "&", "<<", ">>", ">>>"]), inner, inner)
    ),
    max_leaves=6,
)
patterns = st.sampled_from(["a", "^a", "b$", "a.b", "(a|b)+", "[ab]", ""])
wildcards = st.text("ab*?\n\u00e9", max_size=4)


def string_test(function: str, arguments: st.SearchStrategy[str]) -> st.SearchStrategy[Node]:
    literals = st.lists(arguments.map(Literal), min_size=1, max_size=3)
    return st.builds(lambda e, s: Call(function, (e, *s)), name_nodes | string_functions, literals)


name_tests = st.builds(
    lambda function, name: Call(function, (name,)),
    st.sampled_from(["require", "nan", "int32", "int64", "real64", "string", "opaque"]),
    name_nodes,
)
equals = st.lists(operands, min_size=2, max_size=4).map(lambda arguments: Call("equals", tuple(arguments)))
relations = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
comparisons = (
    st.builds(Compare, relations, operands, operands)
    | st.builds(Compare, relations, name_nodes, literals)
    | st.builds(Compare, relations, literals, name_nodes)
)
leaves = (
    comparisons
    | name_tests
    | equals
    | string_test("begins-with", texts)
    | string_test("ends-with", texts)
    | string_test("contains", texts)
    | string_test("regex", patterns)
    | string_test("wildcard", wildcards)
)
tests: st.SearchStrategy[Node] = st.recursive(
    leaves,
    lambda inner: (
        inner.map(Not) | st.builds(join, st.sampled_from(["&&", "||", "^^"]), st.lists(inner, min_size=2, max_size=4))
    ),
    max_leaves=8,
)
