"""What holds for every expression and every notification.

The reference evaluator here is dumber than the code and shares nothing with it but the tree: it carries each
number with the name of its type, wraps through ctypes, and builds truth out of minimum and maximum (false 0,
bottom 1/2, true 1), which is how Lukasiewicz wrote it.
"""

from __future__ import annotations

import ctypes
import json
import re
import unicodedata
from collections.abc import Mapping
from fractions import Fraction

from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.helpers.expressions import notifications, tests
from waypost.notification import Int64, Notification, Value
from waypost.subscription import SubscriptionError, parse
from waypost.subscription.batch import evaluate_line
from waypost.subscription.canonical import write
from waypost.subscription.constant_folding import fold
from waypost.subscription.evaluate import compile_test
from waypost.subscription.parser import read
from waypost.subscription.tree import Binary, Call, Compare, Literal, Logic, Name, Node, Not, Unary

# ---------------------------------------------------------------- the reference evaluator

Tagged = tuple[str, object]
HALF = Fraction(1, 2)
ORDER = ["int32", "int64", "real64"]


def tagged(value: object) -> Tagged | None:
    for kind, name in (
        (Int64, "int64"),
        (int, "int32"),
        (float, "real64"),
        (str, "string"),
        (bytes, "opaque"),
    ):
        if isinstance(value, kind):
            return name, value
    return None


def wrapped(kind: str, number: int) -> Tagged:
    cell = ctypes.c_int32(number) if kind == "int32" else ctypes.c_int64(number)
    return kind, cell.value


def ref_value(node: Node, attributes: Mapping[str, Value]) -> Tagged | None:
    if isinstance(node, Literal):
        return tagged(node.value)
    if isinstance(node, Name):
        return tagged(attributes[node.name]) if node.name in attributes else None
    if isinstance(node, Unary):
        return ref_unary(node.operator, ref_value(node.operand, attributes))
    if isinstance(node, Binary):
        return ref_binary(node.operator, ref_value(node.left, attributes), ref_value(node.right, attributes))
    assert isinstance(node, Call)
    argument = ref_value(node.arguments[0], attributes)
    if argument is None:
        return None
    value = argument[1]
    if node.function == "size":
        if isinstance(value, str):
            return "int32", len(value.encode())
        return ("int32", len(value)) if isinstance(value, bytes) else None
    if not isinstance(value, str):
        return None
    if node.function == "fold-case":
        return "string", value.casefold()
    compatible = node.function == "decompose-compat"
    return "string", unicodedata.normalize("NFKD" if compatible else "NFD", value)


def ref_unary(operator: str, operand: Tagged | None) -> Tagged | None:
    if operand is None or operand[0] not in ORDER:
        return None
    if operator == "-":
        # 0 - x would lose the sign of a real zero.
        return ref_binary("*", operand, ("int32", -1))
    if operator == "+":
        return operand
    return ref_binary("-", ref_binary("*", operand, ("int32", -1)), ("int32", 1)) if operand[0] != "real64" else None


def ref_binary(operator: str, left: Tagged | None, right: Tagged | None) -> Tagged | None:
    if left is None or right is None or left[0] not in ORDER or right[0] not in ORDER:
        return None
    kind = max(left[0], right[0], key=ORDER.index)
    if kind == "real64":
        return ref_real(operator, float(left[1]), float(right[1]))  # type: ignore[arg-type]
    return ref_integer(operator, left[0], kind, int(left[1]), int(right[1]))  # type: ignore[call-overload]


def ref_real(operator: str, x: float, y: float) -> Tagged | None:
    if operator == "/":
        if y == 0.0:
            sign = "-" if (str(x)[0] == "-") != (str(y)[0] == "-") else ""
            return "real64", float("nan") if x == 0.0 or x != x else float(sign + "inf")
        return "real64", x / y
    return ("real64", {"+": x + y, "-": x - y, "*": x * y}[operator]) if operator in "+-*" else None


def ref_integer(operator: str, left_kind: str, kind: str, x: int, y: int) -> Tagged | None:
    width = 32 if kind == "int32" else 64
    if operator == ">>>":
        kind, width = left_kind, 32 if left_kind == "int32" else 64
        return wrapped(kind, int(bin((x + 2**width) % 2**width), 2) // 2 ** (y % width))
    if operator in "/%":
        if y == 0:
            return None
        quotient = int(Fraction(x, y))
        return wrapped(kind, quotient if operator == "/" else x - quotient * y)
    if operator == "<<":
        return wrapped(kind, x * 2 ** (y % width))
    if operator == ">>":
        return wrapped(kind, (x - x % 2 ** (y % width)) // 2 ** (y % width))
    return wrapped(kind, {"+": x + y, "-": x - y, "*": x * y, "|": x | y, "^": x ^ y, "&": x & y}[operator])


def ref_compare(operator: str, left: Tagged | None, right: Tagged | None) -> Fraction:
    if left is None or right is None:
        return HALF
    if left[0] in ORDER and right[0] in ORDER:
        x, y = left[1], right[1]
        if "real64" in (left[0], right[0]):
            x, y = float(x), float(y)  # type: ignore[arg-type]
    elif left[0] == right[0] == "string" and operator in ("==", "!="):
        x, y = left[1], right[1]
    else:
        return HALF
    less, equal, more = x < y, x == y, x > y  # type: ignore[operator]
    holds = {
        "==": equal, "!=": not equal, "<": less, ">": more, "<=": less or equal, ">=": more or equal,
    }  # fmt: skip
    return Fraction(bool(holds[operator]))


def ref_test(node: Node, attributes: Mapping[str, Value]) -> Fraction:
    if isinstance(node, Not):
        return 1 - ref_test(node.operand, attributes)
    if isinstance(node, Logic):
        legs = [ref_test(leg, attributes) for leg in node.legs]
        if node.operator == "^^":
            return HALF if HALF in legs else sum(legs, Fraction(0)) % 2
        return min(legs) if node.operator == "&&" else max(legs)
    if isinstance(node, Compare):
        left, right = ref_value(node.left, attributes), ref_value(node.right, attributes)
        return ref_compare(node.operator, left, right)
    assert isinstance(node, Call)
    return ref_call(node, attributes)


def ref_call(node: Call, attributes: Mapping[str, Value]) -> Fraction:
    first = ref_value(node.arguments[0], attributes)
    if first is None and node.function != "equals":
        return HALF
    if node.function == "equals":
        return max(ref_compare("==", first, ref_value(argument, attributes)) for argument in node.arguments[1:])
    assert first is not None
    kind, value = first
    if node.function == "require":
        return Fraction(1)
    if node.function == "nan":
        return Fraction(str(value) == "nan") if kind == "real64" else HALF
    if node.function in ("int32", "int64", "real64", "string", "opaque"):
        return Fraction(kind == node.function)
    if not isinstance(value, str):
        return HALF
    texts = [str(text.value) for text in node.arguments[1:] if isinstance(text, Literal)]
    return Fraction(any(ref_string_test(node.function, value, text) for text in texts))


def ref_string_test(function: str, value: str, text: str) -> bool:
    if function == "begins-with":
        return value[: len(text)] == text
    if function == "ends-with":
        return value[len(value) - len(text) :] == text if len(text) <= len(value) else False
    if function == "contains":
        return value.find(text) >= 0
    if function == "regex":
        # Python's own `$` also matches before a newline at the end.
        return re.search(text.replace("$", r"\Z"), value, re.DOTALL) is not None
    return ref_wildcard(text, value)


def ref_wildcard(pattern: str, value: str) -> bool:
    """Only `*`, `?` and plain characters, by trying everything."""
    if not pattern:
        return not value
    if pattern[0] == "*":
        return ref_wildcard(pattern[1:], value) or (
            value != "" and value[0] != "\n" and ref_wildcard(pattern, value[1:])
        )
    if not value or (value[0] == "\n" if pattern[0] == "?" else value[0] != pattern[0]):
        return False
    return ref_wildcard(pattern[1:], value[1:])


TRUTHS = {Fraction(0): False, HALF: None, Fraction(1): True}

# ---------------------------------------------------------------- the laws


@given(tests, notifications)
def test_the_closure_agrees_with_the_reference(tree: Node, attributes: dict[str, Value]) -> None:
    assert compile_test(tree)(attributes) is TRUTHS[ref_test(tree, attributes)]


@given(tests, notifications)
def test_folding_changes_no_answer(tree: Node, attributes: dict[str, Value]) -> None:
    folded = fold(tree)
    before = compile_test(tree)(attributes)
    assert (folded if isinstance(folded, bool) else compile_test(folded)(attributes)) is before


@given(tests)
def test_folding_a_folded_expression_changes_nothing(tree: Node) -> None:
    folded = fold(tree)
    assume(not isinstance(folded, bool))
    assert not isinstance(folded, bool)
    assert fold(folded) == folded


@given(tests)
def test_the_text_of_a_folded_tree_reads_back_as_the_tree(tree: Node) -> None:
    folded = fold(tree)
    assume(not isinstance(folded, bool))
    assert not isinstance(folded, bool)
    assert read(write(folded)) == folded


@given(tests)
def test_the_text_of_any_tree_reads_back_as_the_tree(tree: Node) -> None:
    assert read(write(tree)) == tree


@given(tests, notifications)
def test_an_expression_is_its_canonical_text(tree: Node, attributes: dict[str, Value]) -> None:
    try:
        expression = parse(write(tree))
    except SubscriptionError:
        assume(False)
    again = parse(expression.canonical)
    assert again.tree == expression.tree
    assert again.canonical == expression.canonical
    assert again == expression and hash(again) == hash(expression)
    assert again.matches(attributes) is expression.matches(Notification(attributes))


@given(tests, tests)
def test_two_trees_have_one_text_only_if_they_are_equal(first: Node, second: Node) -> None:
    assert (write(first) == write(second)) == (first == second)


pieces = st.sampled_from(
    [
        "a",
        "b",
        "a==1",
        "==",
        "!=",
        "<",
        "<=",
        "&&",
        "||",
        "^^",
        "!",
        "-",
        "+",
        "~",
        "*",
        "/",
        "%",
        "|",
        "&",
        "^",
        "<<",
        ">>>",
        "(",
        ")",
        ",",
        "1",
        "0x1",
        "08",
        "1.5",
        "1.",
        "2147483648",
        "9L",
        '"x"',
        "'y'",
        "'",
        '"',
        "\\",
        "[",
        "=",
        "require",
        "begins-with",
        "regex",
        "wildcard",
        "size",
        "fold-case",
        "equals",
        "exists",
        "\n",
        "\x00",
        "\ud800",
        "\xe9",
        "\xb2",
        "\xa7",
    ]
)
scraps = st.text() | st.lists(pieces, max_size=12).map(" ".join) | st.lists(pieces, max_size=12).map("".join)


@given(scraps)
@example("\\")
@example("a == 1 \\")
@example("-")
@example("\u0130")
def test_any_text_is_parsed_or_refused_with_a_place_in_it(text: str) -> None:
    try:
        parse(text)
    except SubscriptionError as error:
        assert 0 <= error.offset <= len(text)
        assert "\n" not in error.message
        error.message.encode()


@given(tests, st.data())
def test_an_expression_with_a_scratch_is_parsed_or_refused(tree: Node, data: st.DataObject) -> None:
    text = write(tree)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 3)))
    scratched = text[:start] + data.draw(st.just("") | pieces) + text[end:]
    try:
        parse(scratched)
    except SubscriptionError as error:
        assert 0 <= error.offset <= len(scratched)


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_pattern_compiles_or_is_refused(pattern: str, text: str) -> None:
    quoted = json.dumps(pattern, ensure_ascii=False).replace("\\n", "\n")
    for function in ("regex", "wildcard"):
        try:
            expression = parse(f"{function}(a, {quoted})")
        except SubscriptionError as error:
            assert error.code in ("INVALID_REGEXP", "REGEXP_TOO_COMPLEX", "INVALID_TOKEN")
        else:
            assert expression.matches({"a": text}) in (True, False)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)


@given(st.text() | json_values.map(json.dumps) | st.builds(
    lambda expr, notification: json.dumps({"expr": expr, "notification": notification}),
    st.sampled_from(["a == 1", "a==1", "require(a)"]) | json_values,
    json_values | st.dictionaries(st.just("a"), st.dictionaries(
        st.sampled_from(["int32", "int64", "real64", "string", "opaque"]), json_values, max_size=2)),
))  # fmt: skip
def test_any_line_is_answered(line: str) -> None:
    answer = evaluate_line(line)
    assert answer["result"] in ("true", "false", "bottom", "error")
    assert set(answer) in ({"result"}, {"result", "code", "offset", "message"})
    json.dumps(answer)
