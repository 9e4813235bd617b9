"""What an expression says of a notification."""

from __future__ import annotations

import enum
import math
from threading import Thread

import pytest

from waypost.notification import Int64, Notification, Value
from waypost.subscription import SubscriptionError, parse
from waypost.subscription.patterns import globber, searcher

FLIGHT: dict[str, Value] = {
    "origin": "JFK",
    "dest": "zürich",
    "delay": 45,
    "small": 5,
    "seven": 7,
    "minus": -7,
    "zero": 0,
    "max": 2**31 - 1,
    "min": -(2**31),
    "wide": Int64(5_000_000_000),
    "odd": Int64(2**53 + 1),
    "wmax": Int64(2**63 - 1),
    "wone": Int64(1),
    "real": 1.5,
    "double": 2.0**53,
    "nought": 0.0,
    "negzero": -0.0,
    "nan": math.nan,
    "inf": math.inf,
    "raw": b"\x00\x01\x02",
    "empty": "",
    "lines": "one\ntwo",
    "begins-with": "x",
}

TRUE = [
    'origin == "JFK"',
    'origin != "LGA"',
    '"JFK" == origin',
    "origin == origin",
    "delay > 30",
    "30 < delay",
    "delay >= 45",
    "delay <= 45",
    "delay == 45L",
    "delay == 45.0",
    "wide > delay",
    "wide > 1.5",
    "real < delay",
    "max + 1 == min",
    "max + 1L == 2147483648L",
    "min / -1 == min",
    "-min == min",
    "wmax + 1 < 0",
    "minus / 2 == -3",
    "minus % 2 == -1",
    "seven / 2 == 3",
    "seven / 2.0 == 3.5",
    "small << 31 == min",
    "small << 33 == 10",
    "wone << 33 == 8589934592L",
    "minus >>> 28 == 15",
    "minus >> 1 == -4",
    "minus >> 33 == -4",
    "minus >>> 60 == 15",
    "wmax >>> 126 == 1L",
    "wmax >> 126 == 1L",
    "~small == -6",
    "small & 4 == 4",
    "small | 2 == 7",
    "small ^ 1 == 4",
    "negzero == 0.0",
    "nan != nan",
    "! nan == nan",
    "! nan < 1.0",
    "real / nought == inf",
    "real / negzero < 0.0",
    "! (nought / nought == 0.0)",
    # 2**53 + 1 is rounded when it is promoted to a real64.
    "odd == 9007199254740992.0",
    "double == 9007199254740993L",
    "double == odd",
    "9007199254740992.0 == odd",
    "odd != 9007199254740992L",
    "require(raw)",
    "int32(delay)",
    "int64(wide)",
    "real64(real)",
    "string(origin)",
    "opaque(raw)",
    "! int32(wide)",
    "! string(delay)",
    "nan(nan)",
    "! nan(real)",
    'begins-with(origin, "J")',
    'begins-with(origin, "X", "JF")',
    'begins-with(origin, "")',
    'ends-with(origin, "K")',
    'contains(origin, "F")',
    'contains(origin, "X", "F")',
    'contains(empty, "")',
    'wildcard(origin, "J*")',
    'wildcard(origin, "J?K", "x")',
    'wildcard(origin, "[A-J]*[^a-z]")',
    'wildcard(lines, "one[^x]two")',
    'regex(origin, "F")',
    'regex(origin, "^J", "nothing")',
    'regex(lines, "one.two")',
    'regex(lines, "^one.two$")',
    'regex(dest, "^z.rich$")',
    'wildcard(dest, "z?rich")',
    'equals(origin, "LGA", "JFK")',
    'equals(origin, 1, "JFK")',
    "equals(delay, wide, 40 + 5)",
    "equals(delay + 1, 46)",
    "size(origin) == 3",
    "size(dest) == 7",
    "size(raw) == 3",
    'fold-case(origin) == "jfk"',
    'begins-with(fold-case(origin), "jf")',
    'regex(decompose(dest), "u\u0308")',
    'fold-case(decompose(dest)) == decompose("zürich")',
    "begins-with == 'x'",
    "require(absent) || delay > 1",
    "delay > 1 ^^ delay > 100",
    "delay > 1 ^^ delay > 2 ^^ delay > 3",
]
FALSE = [
    'origin == "LGA"',
    "delay < 30",
    "45 < delay",
    "45 > delay",
    "46 <= delay",
    "44 >= delay",
    "nan == nan",
    "nan < nan",
    "nan >= 1.0",
    "int32(wide)",
    "nan(inf)",
    'begins-with(origin, "K")',
    'wildcard(origin, "J")',
    'wildcard(lines, "one*two")',
    'wildcard(lines, "one?two")',
    'wildcard(origin, "j*")',
    'regex(lines, "^two")',
    'equals(origin, "LGA", "EWR")',
    "require(absent) && delay < 1",
    "delay > 1 ^^ delay > 2",
]
BOTTOM = [
    "absent == 1",
    "absent != 1",
    "! absent == 1",
    "require(absent)",
    "! require(absent)",
    "int32(absent)",
    "origin == 1",
    "origin != 1",
    'delay == "JFK"',
    "origin < 5",
    "origin < dest",
    "origin + 1 == 2",
    "-origin == 1",
    "+origin == 1",
    "~real == 1",
    "real % 2 == 1",
    "real << 1 == 1",
    "delay / zero == 1",
    "delay % zero == 1",
    "wide / zero == 1",
    "delay == 1 / 0",
    "raw == raw",
    "raw != raw",
    'raw == "x"',
    "raw < 1",
    "nan(delay)",
    "nan(absent)",
    "size(delay) == 4",
    'begins-with(delay, "4")',
    'contains(raw, "")',
    'regex(absent, "x")',
    'wildcard(raw, "*")',
    "fold-case(delay) == origin",
    'equals(origin, 1, "LGA")',
    "require(absent) && delay > 1",
    "require(absent) || delay < 1",
    "delay > 1 ^^ require(absent)",
    "delay > 1 && 1 / 0 == 1",
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [(text, True) for text in TRUE] + [(text, False) for text in FALSE] + [(text, None) for text in BOTTOM],
)
def test_an_expression_is_true_false_or_bottom_of_a_flight(text: str, expected: bool | None) -> None:
    assert parse(text).matches(FLIGHT) is expected
    assert parse(text).matches(Notification(FLIGHT)) is expected


T, F, B = "t == 1", "t == 2", "absent == 1"


@pytest.mark.parametrize(
    ("operator", "table"),
    [
        ("&&", {T + T: True, T + F: False, F + F: False, T + B: None, F + B: False, B + B: None}),
        ("||", {T + T: True, T + F: True, F + F: False, T + B: True, F + B: None, B + B: None}),
        ("^^", {T + T: False, T + F: True, F + F: False, T + B: None, F + B: None, B + B: None}),
    ],
)
def test_logic_is_that_of_lukasiewicz(operator: str, table: dict[str, bool | None]) -> None:
    for left in (T, F, B):
        for right in (T, F, B):
            expected = table.get(left + right, table.get(right + left))
            assert parse(f"{left} {operator} {right}").matches({"t": 1}) is expected
            three = parse(f"{left} {operator} {right} {operator} {right}")
            again = parse(f"({left} {operator} {right}) {operator} (! ! {right})")
            assert three.matches({"t": 1}) is again.matches({"t": 1})


class _Colour(str, enum.Enum):  # noqa: UP042  # a StrEnum would be too well behaved
    RED = "red"


class _Real(float):
    pass


class _Number(enum.IntEnum):
    ONE = 1


def test_subclasses_of_the_types_count_as_what_they_are_on_the_wire() -> None:
    attributes: dict[str, Value] = {"c": _Colour.RED, "r": _Real(1.5), "n": _Number.ONE, "w": 2**40}
    assert parse("c == 'red' && begins-with(c, 'r') && string(c)").matches(attributes) is True
    assert parse("r == 1.5 && real64(r) && r + 1 == 2.5").matches(attributes) is True
    assert parse("n == 1 && int32(n) && n << 31 < 0").matches(attributes) is True
    assert parse("w == 1099511627776L && int64(w)").matches(attributes) is True


@pytest.mark.parametrize("alien", [None, True, [], {}, object(), 10**400, -(10**400), 2**63])
@pytest.mark.parametrize(
    "text",
    ["a + 1.5 == 2.0", "a * a == 4", "size(a) == 1", "int32(a)", "nan(a)", "regex(a, 'x')", "a << 1 == 2"],
)
def test_attribute_of_a_foreign_type_evaluates_to_bottom(text: str, alien: object) -> None:
    assert parse(text).matches({"a": alien}) is None  # type: ignore[dict-item]


@pytest.mark.parametrize("text", ["a == '\u00e9'", "regex(a, '.')", "wildcard(a, '*')", "size(a) > 1"])
def test_a_lone_surrogate_does_not_raise(text: str) -> None:
    assert parse(text).matches({"a": "\ud800"}) in (True, False)


def test_a_notification_not_yet_decoded_matches_too() -> None:
    body = Notification(FLIGHT).body
    assert parse('origin == "JFK" && wide > delay').matches(Notification.from_body(body)) is True


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("", "", "x"),
        ("*", "anything", "two\nlines"),
        ("**", "", "\n"),
        ("a*b*c", "a--b--c", "a--b"),
        (r"\*", "*", "x"),
        (r"\?", "?", "x"),
        ("\\[a", "[a", "a"),
        ("a\\", "a\\", "a"),
        ("[abc]", "b", "d"),
        ("[^abc]", "d", "b"),
        ("[a-c]x", "bx", "dx"),
        ("[-a]", "-", "b"),
        ("[a-]", "-", "b"),
        (r"[\]]", "]", "\\"),
        ("[*?]", "*", "x"),
        ("a.b", "a.b", "axb"),
        ("(a|b)+$", "(a|b)+$", "a"),
        ("?", "日", "日本"),
        ("[à-é]", "ç", "c"),
    ],
)
def test_a_wildcard_matches_the_whole_string(pattern: str, matching: str, other: str) -> None:
    matches = globber([pattern])
    assert matches(matching)
    assert not matches(other)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("", "", None),
        ("b", "abc", "ac"),
        ("^b", "bc", "abc"),
        ("b$", "ab", "ab\n"),
        ("a.c", "a\nc", "ac"),
        ("(?m)^b", "a\nb", "ab"),
        ("(?i)é", "É", "e"),
        (r"\d{3}", "a123", "a12"),
        ("[[:alpha:]]+1", "ab1", "1"),
        (r"^\pL+$", "日本", "1"),
        ("a|b", "b", "c"),
    ],
)
def test_a_regular_expression_is_searched_for(pattern: str, matching: str, other: str | None) -> None:
    found = searcher([pattern])
    assert found(matching)
    assert other is None or not found(other)


def test_a_pattern_made_to_backtrack_takes_linear_time() -> None:
    expression = parse("regex(a, '^(a+)+$') || wildcard(a, '*a*a*a*a*a*a*a*a*a*a*b')")
    assert expression.matches({"a": "a" * 100_000 + "!"}) is False


def test_a_pattern_whose_automaton_outgrows_its_memory_still_answers_rightly() -> None:
    expression = parse("regex(a, '[ab]*a[ab]{14}c')")
    text = "".join("ab"[(number * number // 7) % 2] for number in range(20_000))
    assert expression.matches({"a": text}) is False
    assert expression.matches({"a": text + "a" + "b" * 14 + "c"}) is True


def test_the_patterns_of_an_expression_are_bounded_together() -> None:
    patterns = [f"'.{{1000}}{number}'" for number in range(1000)]
    with pytest.raises(SubscriptionError) as caught:
        parse(f"regex(a, {', '.join(patterns)})")
    assert caught.value.code == "REGEXP_TOO_COMPLEX"
    assert "together" in caught.value.message


def test_threads_may_share_an_expression() -> None:
    expression = parse("regex(a, 'x.*y') && b > 1")
    answers: list[bool | None] = []
    threads = [
        Thread(target=lambda: answers.extend(expression.matches({"a": "xzy", "b": 2}) for _ in range(500)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True] * 2000
