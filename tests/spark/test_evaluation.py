"""The audit's evaluation agrees with the service's, of which it shares not one line; its index finds what all find."""

from __future__ import annotations

import math
import pickle
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import pytest

from spark import evaluation
from spark.matcher import Matcher
from waypost.notification import Int64, Notification, Value, decode_body
from waypost.subscription import Expression, SubscriptionError, parse
from waypost.subscription.parser import read

NAMES = ("a", "b", "c", "d", "e")
INTEGERS = (0, 1, -1, 2, 3, 5, 7, -7, 31, 32, 33, 64, 255, 2**31 - 1, -(2**31))
WIDE = (0, 1, -1, 3, -3, 63, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63))
REALS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.5, 1e308, -1e308, 5e-324, 9007199254740992.0, 2147483647.0)
ODD_REALS = (*REALS, math.nan, math.inf, -math.inf)
TEXTS = (
    "", "a", "ab", "abc", "ABC", "Straße", "STRASSE", "é", "e\u0301", "ﬁx", "a\nb", "a\n", "a\rb", "x y", "x\vy",
    "a.b", "a*b", "日本", "😀", "\u212a", "k", "a]b", "[a]", "a-b", "\\", "42", "a\u2028b", "İ",
)  # fmt: skip
PARTS = ("", "a", "b", "ab", "é", "ß", "😀", "\n", "A", "K")
WILDCARDS = (
    "*",
    "?",
    "a*",
    "*b",
    "a?b",
    "[ab]*",
    "[^a]*",
    "[^a]",
    "a\\*b",
    "[a-c]?*",
    "*\\",
    "[\\]a]*",
    "[a-]*",
    "?*?",
    "*\u2028*",
)
PATTERNS = (
    "a", "^a", "b$", "^a$", "a.b", "(?-s)a.b", "(?m)^b$", "(?m)a$", "[ab]+$", "[^a]", r"\d+", r"\D", r"\w\s\w",
    r"\W", r"\s", r"\S", r"\bb", r"\Bb", "(?i)abc", "(?i:A)b", "(?i)k", "(a|b)c", "(?P<n>a)(b)?", "a{2}", "a{1,2}b",
    "a{0,}", "a{", "a{,2}", "a*?b", "(?U)a+", "x[[:space:]]y", "[[:^alpha:]]", r"[\d\s]", r"[\D]", r"[^\D]", r"\pL",
    r"\p{Lu}", r"\PL", r"[\p{Greek}\d]", r"\p{^L}", r"\x41", r"\x{1F600}", r"\Qa.b\E", r"\Qa*", r"\Aa\z", "[]a]",
    "[a&&b]", "[[a]", r"[\]\-]", "[a-]", r"\.", r"\103", "", "|a", "(?s).", r"\n", "^*b", "(?m)^", "日", "[日-本]",
    "(?i)[^K]", "(?i)É", r"\p{Any}", r"^\P{Any}", "(?:a(?i)B|C)", "[a-c-e]", "[-a]",
)  # fmt: skip


def literal_of(value: Value) -> str:
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, float):
        return repr(value) if "." in repr(value) else repr(value).replace("e", ".0e")
    return f"{value:d}L" if isinstance(value, Int64) else str(value)


class Writer:
    """Writes random expressions and notifications."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, *choices: Callable[[], str]) -> str:
        return self.random.choice(choices)()

    def name(self) -> str:
        return self.random.choice(NAMES)

    def test(self, depth: int) -> str:
        if depth <= 0:
            return self.pick(self.comparison, self.comparison, self.equality, self.on_name, self.on_string, self.equals)
        return self.pick(lambda: self.test(0), lambda: f"! ({self.test(depth - 1)})", lambda: self.logic(depth))

    def logic(self, depth: int) -> str:
        operator = self.random.choice(("&&", "||", "^^"))
        return f" {operator} ".join(f"({self.test(depth - 1)})" for _ in range(self.random.randint(2, 3)))

    def comparison(self) -> str:
        operator = self.random.choice(("==", "!=", "<", "<=", ">", ">="))
        return f"({self.number(self.random.randint(0, 3))}) {operator} ({self.number(self.random.randint(0, 2))})"

    def equality(self) -> str:
        left = self.pick(self.name, self.text_function)
        return f"{left} {self.random.choice(('==', '!='))} {self.pick(self.name, self.text)}"

    def on_name(self) -> str:
        function = self.random.choice(("require", "int32", "int64", "real64", "string", "opaque", "nan"))
        return f"{function}({self.name()})"

    def on_string(self) -> str:
        function, choices = self.random.choice(
            [
                ("begins-with", PARTS),
                ("ends-with", PARTS),
                ("contains", PARTS),
                ("wildcard", WILDCARDS),
                ("regex", PATTERNS),
            ]
        )
        parts = [literal_of(self.random.choice(choices)) for _ in range(self.random.randint(1, 2))]
        return f"{function}({self.pick(self.name, self.text_function)}, {', '.join(parts)})"

    def equals(self) -> str:
        others = [
            self.pick(self.name, self.text, self.constant, lambda: self.number(1))
            for _ in range(self.random.randint(1, 4))
        ]
        return f"equals({self.name()}, {', '.join(others)})"

    def text(self) -> str:
        return literal_of(self.random.choice(TEXTS))

    def text_function(self) -> str:
        function = self.random.choice(("fold-case", "decompose", "decompose-compat"))
        return f"{function}({self.pick(self.name, self.name, self.text_function)})"

    def constant(self) -> str:
        kind = self.random.choice((INTEGERS, WIDE, REALS))
        value = self.random.choice(kind)
        return literal_of(Int64(value) if kind is WIDE else value)

    def number(self, depth: int) -> str:
        if depth <= 0:
            return self.pick(self.name, self.name, self.constant, lambda: f"size({self.name()})")
        if self.random.random() < 0.2:
            return f"{self.random.choice(('- ', '+ ', '~ '))}({self.number(depth - 1)})"
        operator = self.random.choice(("+", "-", "*", "/", "/", "%", "|", "^", "&", "<<", ">>", ">>>"))
        return f"({self.number(depth - 1)}) {operator} ({self.number(depth - 1)})"

    def value(self) -> Value:
        match self.random.randrange(5):
            case 0:
                return self.random.choice(INTEGERS)
            case 1:
                return Int64(self.random.choice(WIDE))
            case 2:
                return self.random.choice(ODD_REALS)
            case 3:
                return self.random.choice(TEXTS)
        return self.random.choice((b"", b"\x00\xff", b"abc"))

    def attributes(self) -> dict[str, Value]:
        return {name: self.value() for name in NAMES if self.random.random() < 0.85}

    def expressions(self, count: int) -> list[Expression]:
        found: list[Expression] = []
        while len(found) < count:
            try:
                found.append(parse(self.test(self.random.randint(0, 3))))
            except SubscriptionError:
                continue  # a type that can never suit, or a constant
        return found


def disagreements(expressions: list[Expression], notifications: Sequence[Mapping[str, Value]]) -> list[str]:
    """Evaluate every expression over every notification by both, and say where they differ."""
    tests = [evaluation.compiled(read(expression.text)) for expression in expressions]
    # As a proxy and the audit see them: through a body.
    bodies = [decode_body(Notification(attributes).body) for attributes in notifications]
    answers, found = set(), []
    for attributes in bodies:
        for expression, test in zip(expressions, tests, strict=True):
            answer, other = test(attributes), expression.matches(attributes)
            answers.add(answer)
            if answer is not other:
                found.append(f"{expression.text!r} of {attributes!r}: {answer}, not {other}")
    # Where every answer is the same, agreement says little.
    assert {True, False} <= answers
    return found


@pytest.mark.parametrize("seed", range(20))
def test_random_expressions_come_out_as_the_evaluator_says(seed: int) -> None:
    writer = Writer(seed)
    assert disagreements(writer.expressions(70), [writer.attributes() for _ in range(80)]) == []


def test_every_pattern_finds_what_it_finds_in_a_proxy() -> None:
    sources = [f"regex(a, {literal_of(pattern)})" for pattern in PATTERNS]
    sources += [f"wildcard(a, {literal_of(pattern)})" for pattern in WILDCARDS]
    assert disagreements([parse(source) for source in sources], [{"a": text} for text in TEXTS]) == []


def test_random_wildcards_match_what_they_match_in_a_proxy() -> None:
    drawn = random.Random(1)

    def text(letters: str, longest: int) -> str:
        return "".join(drawn.choice(letters) for _ in range(drawn.randint(0, longest)))

    texts: list[dict[str, Value]] = [{"a": text("ab-]\n\\", 8)} for _ in range(200)]
    expressions: list[Expression] = []
    while len(expressions) < 300:
        with suppress(SubscriptionError):
            expressions.append(parse(f"wildcard(a, {literal_of(text('ab**??[[]]^-', 9) + text('ab*', 2))})"))
    assert disagreements(expressions, texts) == []


def test_every_operator_agrees_on_every_pair_of_odd_numbers() -> None:
    operators = ("+", "-", "*", "/", "%", "|", "^", "&", "<<", ">>", ">>>")
    # Reals are taken apart by comparing with themselves, and by the sign of what they divide.
    sources = [f"(a {o} b) == c" for o in operators] + ["1.0 / (a / b) == c", "- a == c", "~ a == c"]
    sources += [f"a {o} b" for o in ("==", "!=", "<", "<=", ">", ">=")]
    values: list[Value] = [*INTEGERS[:8], *INTEGERS[-2:], *(Int64(wide) for wide in WIDE), *ODD_REALS]
    pairs = [(x, y) for x in values for y in values]
    notifications: list[dict[str, Value]] = [
        {"a": x, "b": y, "c": z} for (x, y), z in zip(pairs, results(pairs), strict=True)
    ]
    assert disagreements([parse(source) for source in sources], notifications) == []


def results(pairs: list[tuple[Value, Value]]) -> list[Value]:
    """A third value for each pair, so that an equality is often true: by turns a sum, a quotient and a product."""
    from waypost.subscription.arithmetic import BINARY

    turns = ("+", "/", "*", "-", "%", ">>>", "<<", "^")
    found = (BINARY[turns[n % len(turns)]](x, y) for n, (x, y) in enumerate(pairs))
    return [0 if value is None else value for value in found]


def test_deep_and_wide_expressions_agree() -> None:
    deep = parse("a" + " + (a * (1 - a" * 20 + "))" * 20 + " > 3")
    wide = parse(" || ".join(f"a == {n}" for n in range(150)))
    assert disagreements([deep, wide], [{"a": n} for n in range(-3, 3)] + [{}]) == []


# ---------------------------------------------------------------- the index

HAND_WRITTEN = (
    "a == 1 && b == 'x'", "a == 1 || b > 2", "a == 1 || b == 2 || c == 3", "!(a == 1)", "!(a == 1 && b == 2)",
    "!(a == 1 || b == 2)", "a == 1 ^^ b == 2", "!(a == 1 ^^ b == 2)", "!!(a == 1)", "equals(a, 1, 2L, 'x', b)",
    "!equals(a, 1, 2L, 'x')", "1 == a", "a == 9007199254740993L", "a == 0.0", "a == b", "require(a) && b == 'ab'",
    "equals(a, 'ab', 'abc') || !(b == 1 && (c == 2 || !(d == 3)))", "a + 1 == 2",
    "size(a) == 2 && fold-case(b) == 'ab'",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(10))
def test_index_finds_what_a_test_of_every_expression_finds(seed: int) -> None:
    writer = Writer(1000 + seed)
    expressions = [*(expression.text for expression in writer.expressions(200)), *HAND_WRITTEN]
    tests = [evaluation.compiled(read(text)) for text in expressions]
    matcher = Matcher(expressions)
    notifications = [writer.attributes() for _ in range(100)] + [{}]
    found = [matcher.matching(attributes) for attributes in notifications]
    assert found == [[n for n, test in enumerate(tests) if test(each)] for each in notifications]
    assert any(found)


def test_only_expressions_that_could_be_true_are_evaluated() -> None:
    matcher = Matcher([f"topic == 't{n}' && size > {n}" for n in range(1_000)])
    asked: list[int] = []

    def recorded(number: int, test: evaluation.Test) -> evaluation.Test:
        def ask(attributes: evaluation.Attributes) -> bool | None:
            asked.append(number)
            return test(attributes)

        return ask

    matcher._tests = {number: recorded(number, test) for number, test in matcher._tests.items()}
    assert matcher.matching({"topic": "t7", "size": 8, "other": 1}) == [7]
    assert asked == [7]


def test_what_cannot_be_evaluated_is_said_and_matches_nothing() -> None:
    matcher = Matcher(["a ==", "a == 1", "regex(a, '(')"])
    assert [matcher.is_usable(number) for number in range(3)] == [False, True, False]
    assert matcher.matching({"a": 1}) == [1]


def test_matcher_arrives_in_another_process_once() -> None:
    sent = pickle.dumps(Matcher(["a == 1"]))
    assert pickle.loads(sent) is pickle.loads(sent)
    assert pickle.loads(sent).matching({"a": 1}) == [0]
