"""What is said to be covered is covered: the evaluator is the oracle. And what covers is found among many."""

from __future__ import annotations

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from matching.covering import CoveringIndex, covers, covers_by_outline, outline
from tests.helpers.expressions import leaves, notifications
from tests.properties.test_index_laws import often_nan, readable, usual
from waypost.notification import Value
from waypost.subscription import Compare, Expression, Literal, Logic, Name, Node, Not, parse
from waypost.subscription.tree import join

large = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@st.composite
def reworked(draw: st.DrawFn, node: Node) -> Node:
    """Return a node that is much like another one: weaker, stronger, said otherwise, or neither."""
    match node:
        case Logic(operator=operator, legs=legs):
            kept = [draw(reworked(leg)) for leg in legs if draw(st.integers(0, 3))]
            kept = draw(st.permutations(kept)) if kept else [draw(reworked(legs[0]))]
            return join(draw(st.sampled_from([operator, operator, "||"])), kept) if len(kept) > 1 else kept[0]
        case Not(operand=operand):
            return Not(draw(reworked(operand)))
        case Compare(operator=operator, left=left, right=right):
            near: list[Node] = [
                node,
                Compare(_MIRRORED[operator], right, left),
                Not(Compare(_OPPOSITE[operator], left, right)),
                Compare(draw(st.sampled_from(["<=", ">=", "!="])), left, right),
            ]
            return draw(st.sampled_from(near) | st.builds(lambda leaf: join("||", [node, leaf]), leaves))
        case _:
            return node


pairs = (usual | leaves).flatmap(lambda node: st.tuples(reworked(node), st.just(node)))
events = st.lists(often_nan | notifications, min_size=1, max_size=4)


@large
@given(pairs, events)
@example((Not(Compare("==", Name("a"), Literal(1))), Compare("!=", Name("a"), Literal(1))), [{"a": "x"}])
def test_no_notification_refutes_what_is_said_to_be_covered(
    pair: tuple[Node, Node], events: list[dict[str, Value]]
) -> None:
    covering, covered = readable(pair[0]), readable(pair[1])
    if covering is None or covered is None:
        return
    by_outline = covers_by_outline(outline(covering), outline(covered))
    if not covers(covering.tree, covered.tree) and not by_outline:
        return
    for attributes in events:
        if covered.matches(attributes):
            assert covering.matches(attributes), (covering.canonical, covered.canonical, attributes)


@given(usual | leaves)
def test_an_expression_covers_itself_and_its_conjunctions_and_is_covered_by_its_disjunctions(node: Node) -> None:
    other = Compare("==", Name("other"), Literal("x"))
    assert covers(node, node)
    assert covers(node, join("&&", [node, other]))
    assert covers(join("||", [other, node]), node)


texts = st.sampled_from("xy").flatmap(lambda first: st.text("ab", max_size=2).map(lambda rest: first + rest))
plain = st.one_of(
    st.builds("{0} {1} {2}".format, st.sampled_from("ab"), st.sampled_from(["==", "<", ">="]), st.integers(0, 5)),
    st.builds('c == "{0}"'.format, texts),
    st.builds('begins-with(c, "{0}")'.format, texts),
    st.just("require(c)"),
)
conjunctions = st.lists(plain, min_size=1, max_size=3).map(" && ".join)
plain_expressions = (
    st.lists(conjunctions, min_size=1, max_size=2)
    .map(" || ".join)
    .map(parse)
    .filter(lambda expression: expression.matches(outline(expression).sample))
)


@large
@given(st.lists(plain_expressions, min_size=2, max_size=8, unique=True))
def test_the_index_finds_every_pair_of_which_one_covers_the_other(expressions: list[Expression]) -> None:
    index, outlines = CoveringIndex(), {each.canonical: outline(each) for each in expressions}
    for text, of in outlines.items():
        index.add(text, of)
    for wide in expressions:
        for narrow in expressions:
            if covers(wide.tree, narrow.tree):
                assert wide.canonical in index.may_cover(outlines[narrow.canonical])
                assert narrow.canonical in index.may_be_covered(outlines[wide.canonical])
    for text, of in outlines.items():
        index.remove(text, of)
    assert (len(index), index._keys, index._samples) == (0, {}, {})
