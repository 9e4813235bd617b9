"""What is a name, a number, a string; what binds tighter than what; and how a mistake is answered."""

from __future__ import annotations

import pickle

import pytest

from waypost.notification import Int64, Value
from waypost.subscription import Expression, Literal, Logic, Name, Not, SubscriptionError, parse
from waypost.subscription.parser import read
from waypost.subscription.tree import Binary, Compare, Node


def refusal(text: str) -> SubscriptionError:
    with pytest.raises(SubscriptionError) as caught:
        parse(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("require(a)", "a"),
        ("require(_)", "_"),
        ("require(a+b)", "a+b"),
        ("require(a==1)", "a==1"),
        ("require(begins-with)", "begins-with"),
        ("require(a.b/c:d@e#f$g%h)", "a.b/c:d@e#f$g%h"),
        (r"require(a\ b)", "a b"),
        (r"require(a\(b\))", "a(b)"),
        (r"require(\5)", "5"),
        (r"require(\+)", "+"),
        (r"require(\\)", "\\"),
        (r"require(\a)", "a"),
        ("require(\\\n)", "\n"),
        ("require(zürich)", "zürich"),
        ("require(été)", "été"),
        ("require(日本)", "日本"),
        ("require(цена٣)", "цена٣"),
        ("require(a\u00a7)", "a\u00a7"),
    ],
)
def test_a_name_runs_as_far_as_it_can(text: str, name: str) -> None:
    assert parse(text).names == {name}


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("0", 0),
        ("10", 10),
        ("010", 8),
        ("0x1F", 31),
        ("0X1f", 31),
        ("10L", Int64(10)),
        ("10l", Int64(10)),
        ("0xFFl", Int64(255)),
        ("010L", Int64(8)),
        ("-5", -5),
        ("- 5", -5),
        ("-\n5", -5),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
        ("9223372036854775807L", Int64(2**63 - 1)),
        ("-9223372036854775808L", Int64(-(2**63))),
        ("1.5", 1.5),
        ("1.5e3", 1500.0),
        ("1.5E+3", 1500.0),
        ("1.5e-3", 0.0015),
        ("00.50", 0.5),
        ("-0.0", -0.0),
        ("'a'", "a"),
        ('"a"', "a"),
        (r"'a\n'", "an"),
        (r"'it\'s'", "it's"),
        ("""'"'""", '"'),
        (r"'\\'", "\\"),
        ("'a\nb'", "a\nb"),
        ("''", ""),
    ],
)
def test_a_literal_has_the_value_and_type_that_it_is_written_with(literal: str, value: Value) -> None:
    assert read(literal) == Literal(value)


def test_literals_of_different_types_are_different_literals() -> None:
    assert len({Literal(1), Literal(Int64(1)), Literal(1.0), Literal("1"), Literal(0.0), Literal(-0.0)}) == 6
    assert Literal(1) != Literal(Int64(1))
    assert Literal(0.0) != Literal(-0.0)
    assert Literal(1) != 1


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a == 1 || b == 2 && c == 3", "a == 1 || (b == 2 && c == 3)"),
        ("a == 1 || b == 2 ^^ c == 3", "a == 1 || (b == 2 ^^ c == 3)"),
        ("a == 1 ^^ b == 2 && c == 3", "a == 1 ^^ (b == 2 && c == 3)"),
        ("! a == 1", "!(a == 1)"),
        ("! a == 1 && b == 2", "(!(a == 1)) && b == 2"),
        ("! ! a == 1", "!(!(a == 1))"),
        ("!!a == 1", "! ! a == 1"),
        ("a + 1 < b + 2", "(a + 1) < (b + 2)"),
        ("a - b + c == 1", "(a - b) + c == 1"),
        ("a * b / c == 1", "(a * b) / c == 1"),
        ("a + b * c == 1", "a + (b * c) == 1"),
        ("a * b | c == 1", "a * (b | c) == 1"),
        ("a | b ^ c == 1", "a | (b ^ c) == 1"),
        ("a ^ b & c == 1", "a ^ (b & c) == 1"),
        ("a & b << c == 1", "a & (b << c) == 1"),
        ("a << b >> c >>> d == 1", "((a << b) >> c) >>> d == 1"),
        ("a << -b == 1", "a << (-b) == 1"),
        ("-~+a == 1", "-(~(+a)) == 1"),
        ("a -5 == 1", "a - 5 == 1"),
        ("size(a)-5 == 1", "size(a) - 5 == 1"),
        ("size(a)>3&&require(b)", "size(a) > 3 && require(b)"),
        ("a ==1", "a == 1"),
        ("require ( a )", "require(a)"),
        ("(((a == 1)))", "a == 1"),
        ("(a == 1 && b == 2) && c == 3", "a == 1 && b == 2 && c == 3"),
        ("a == 1 && (b == 2 && c == 3)", "a == 1 && b == 2 && c == 3"),
        ("a == 1 ^^ (b == 2 ^^ c == 3)", "a == 1 ^^ b == 2 ^^ c == 3"),
        ("\ta\r\n==\n1 ", "a == 1"),
        ("a == 0x10", "a == 16"),
        ("a == 'x'", 'a == "x"'),
    ],
)
def test_equivalent_spellings_parse_to_equal_expressions(text: str, same: str) -> None:
    assert read(text) == read(same)
    assert parse(text) == parse(same)
    assert hash(parse(text)) == hash(parse(same))


@pytest.mark.parametrize(
    ("arithmetic", "value"),
    [
        ("10 - 2 + 3", 11),
        ("2 * 7 / 2", 7),
        ("1 + 1 << 2", 5),
        ("1 << 2 | 1", 5),
        ("0xFF & 0xF0", 0xF0),
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("7 % -2", 1),
        ("2147483647 + 1", -(2**31)),
        ("2147483647 + 1L", Int64(2**31)),
        ("-2147483648 / -1", -(2**31)),
        ("-(-2147483648)", -(2**31)),
        ("--1", 1),
        ("~0", -1),
        ("~0L", Int64(-1)),
        ("1 << 33", 2),
        ("1 << 31", -(2**31)),
        ("1L << 33", Int64(2**33)),
        ("1 << -1", -(2**31)),
        ("-1 >> 1", -1),
        ("-1 >>> 1", 2**31 - 1),
        ("-1L >>> 1", Int64(2**63 - 1)),
        ("-1 >>> 0L", -1),
        ("1 + 1.5", 2.5),
        ("7.0 / 2", 3.5),
        ("fold-case('STRASSE')", "strasse"),
        ("fold-case('stra\u00dfe')", "strasse"),
        ("decompose('\u00e9')", "e\u0301"),
        ("decompose-compat('\ufb01')", "fi"),
    ],
)
def test_constants_are_computed_as_the_language_computes(arithmetic: str, value: Value) -> None:
    assert parse(f"{arithmetic} == x").tree == Compare("==", Literal(value), Name("x"))


@pytest.mark.parametrize(
    ("text", "code", "offset"),
    [
        ("", "PARSE_ERROR", 0),
        (" \t", "PARSE_ERROR", 2),
        ("a ==", "PARSE_ERROR", 4),
        ("a == 1 == 2", "PARSE_ERROR", 7),
        ("a < b < c", "PARSE_ERROR", 6),
        ("a == 1 b == 2", "PARSE_ERROR", 7),
        ("(a == 1", "PARSE_ERROR", 7),
        ("a == 1)", "PARSE_ERROR", 6),
        ("&& a == 1", "PARSE_ERROR", 0),
        ("a == !b", "PARSE_ERROR", 5),
        ("a == 1 + ! b", "PARSE_ERROR", 9),
        ("equals(a,)", "PARSE_ERROR", 9),
        ("equals(,a)", "PARSE_ERROR", 7),
        ("a ! b", "PARSE_ERROR", 2),
        ("a==1", "PARSE_ERROR", 0),
        ("b == 2 && a==1", "PARSE_ERROR", 10),
        ("a== 1", "PARSE_ERROR", 0),
        ("a=1", "PARSE_ERROR", 0),
        ("a>1&&b<2", "PARSE_ERROR", 0),
        ("a == 1 and b == 2", "PARSE_ERROR", 7),
        ("not a == 1", "PARSE_ERROR", 0),
        ("a = 1", "INVALID_TOKEN", 2),
        ("a === 1", "INVALID_TOKEN", 4),
        ("a == [1]", "INVALID_TOKEN", 5),
        ("a == 08", "INVALID_TOKEN", 5),
        ("a == 0x", "INVALID_TOKEN", 5),
        ("a == 0xG", "INVALID_TOKEN", 5),
        ("a == 1.", "INVALID_TOKEN", 5),
        ("a == .5", "INVALID_TOKEN", 5),
        ("a == 1e5", "INVALID_TOKEN", 5),
        ("a == 1.5.2", "INVALID_TOKEN", 5),
        ("a == 5x", "INVALID_TOKEN", 5),
        ("a == 1LL", "INVALID_TOKEN", 5),
        ("a == \u0663", "INVALID_TOKEN", 5),
        ("\u00b2a == 1", "INVALID_TOKEN", 0),
        ("a\u2003== 1", "INVALID_TOKEN", 1),
        ("a == 1 && \\", "INVALID_TOKEN", 10),
        ("a == '\0'", "INVALID_TOKEN", 6),
        ("a == '\ud800'", "INVALID_TOKEN", 6),
        ("require(" + "n" * 1025 + ")", "INVALID_TOKEN", 8),
        ("a == 'x", "UNTERM_STRING", 5),
        ("a == \"x'", "UNTERM_STRING", 5),
        (r"a == 'x\'", "UNTERM_STRING", 5),
        ("a == 2147483648", "OVERFLOW", 5),
        ("a == -2147483649", "OVERFLOW", 5),
        ("a == -(2147483648)", "OVERFLOW", 7),
        ("a == 5 - 2147483648", "OVERFLOW", 9),
        ("a == -0x80000000", "OVERFLOW", 6),
        ("a == 0xFFFFFFFF", "OVERFLOW", 5),
        ("a == 9223372036854775808L", "OVERFLOW", 5),
        ("a == 1.0e999", "OVERFLOW", 5),
        ("a == " + "9" * 9000, "OVERFLOW", 5),
        ("exists(a)", "UNKNOWN_FUNC", 0),
        ("a == 1 && f()", "UNKNOWN_FUNC", 10),
        ("require()", "TOO_FEW_ARGS", 0),
        ("regex(a)", "TOO_FEW_ARGS", 0),
        ("equals(a)", "TOO_FEW_ARGS", 0),
        ("require(a, b)", "TOO_MANY_ARGS", 11),
        ("fold-case(a, b) == 'x'", "TOO_MANY_ARGS", 13),
        ("name", "TYPE_MISMATCH", 0),
        ("a == 1 && b", "TYPE_MISMATCH", 10),
        ("a && b", "TYPE_MISMATCH", 0),
        ("! a", "TYPE_MISMATCH", 2),
        ("5", "TYPE_MISMATCH", 0),
        ("'x'", "TYPE_MISMATCH", 0),
        ("a + 1", "TYPE_MISMATCH", 0),
        ("size(a)", "TYPE_MISMATCH", 0),
        ("(a == 1) + 2 == 3", "TYPE_MISMATCH", 1),
        ("(a == 1) == (b == 2)", "TYPE_MISMATCH", 1),
        ("-(a == 1) == 2", "TYPE_MISMATCH", 2),
        ("1 == 'a'", "TYPE_MISMATCH", 5),
        ("'a' == 1", "TYPE_MISMATCH", 7),
        ("size(a) == 'x'", "TYPE_MISMATCH", 11),
        ("fold-case(a) == 1", "TYPE_MISMATCH", 16),
        ("1 < 'x'", "TYPE_MISMATCH", 4),
        ("size(a) < fold-case(b)", "TYPE_MISMATCH", 10),
        ("a + 'x' == b", "TYPE_MISMATCH", 4),
        ("a % 1.5 == b", "TYPE_MISMATCH", 4),
        ("(a + 1.5) << 1 == b", "TYPE_MISMATCH", 1),
        ("~1.5 == a", "TYPE_MISMATCH", 1),
        ("require('a')", "TYPE_MISMATCH", 8),
        ("size('abc') == a", "TYPE_MISMATCH", 5),
        ("begins-with('a', 'b')", "TYPE_MISMATCH", 12),
        ("begins-with(a, b)", "TYPE_MISMATCH", 15),
        ("begins-with(a, 1)", "TYPE_MISMATCH", 15),
        ("fold-case(1) == a", "TYPE_MISMATCH", 10),
        ("fold-case(size(a)) == b", "TYPE_MISMATCH", 10),
        ("equals(a, b == 1)", "TYPE_MISMATCH", 10),
        ("equals(a, require(b))", "TYPE_MISMATCH", 10),
        ("regex(a, '(')", "INVALID_REGEXP", 9),
        ("regex(a, 'x', '[')", "INVALID_REGEXP", 14),
        (r"regex(a, '(x)\\1')", "INVALID_REGEXP", 9),
        ("regex(a, '(?=x)')", "INVALID_REGEXP", 9),
        ("regex(a, 'x{2,1}')", "INVALID_REGEXP", 9),
        ("wildcard(a, '[b-a]')", "INVALID_REGEXP", 12),
        ("wildcard(a, '[a')", "INVALID_REGEXP", 12),
        ("wildcard(a, '[]')", "INVALID_REGEXP", 12),
        ("regex(a, 'x{5000}')", "REGEXP_TOO_COMPLEX", 9),
        (r"regex(a, '\\pL{1000}')", "REGEXP_TOO_COMPLEX", 9),
        ("regex(a, '" + "x" * 1025 + "')", "REGEXP_TOO_COMPLEX", 9),
        ("wildcard(a, '" + "x" * 1025 + "')", "REGEXP_TOO_COMPLEX", 12),
        ("1 == 1", "EXP_IS_TRIVIAL", 0),
        ("a == 1 && 1 == 2", "EXP_IS_TRIVIAL", 0),
        ("a == 1 || 1 == 1", "EXP_IS_TRIVIAL", 0),
        ("1 / 0 == 1", "EXP_IS_TRIVIAL", 0),
        ("1 == 1 ^^ 2 == 2", "EXP_IS_TRIVIAL", 0),
        ("! 1 == 1", "EXP_IS_TRIVIAL", 0),
        ("equals(1, 'a')", "EXP_IS_TRIVIAL", 0),
        ("begins-with(fold-case('A'), 'a')", "EXP_IS_TRIVIAL", 0),
        ("(" * 101 + "a == 1" + ")" * 101, "NESTING_TOO_DEEP", 100),
        ("(" * 100_000, "NESTING_TOO_DEEP", 100),
        ("!" * 101 + "a == 1", "NESTING_TOO_DEEP", 100),
        ("a == " + "-" * 101 + "b", "NESTING_TOO_DEEP", 104),
        ("a == " + "1 + " * 200 + "b", "NESTING_TOO_DEEP", 5),
        ("fold-case(" * 5000, "NESTING_TOO_DEEP", 1009),
        ("a == 1 " + " " * 20_000, "PARSE_ERROR", 16 * 1024),
    ],
)
def test_a_mistake_is_answered_with_its_code_and_place(text: str, code: str, offset: int) -> None:
    error = refusal(text)
    assert (error.code, error.offset) == (code, offset)
    assert error.definite
    assert error.message and "\n" not in error.message
    assert len(error.message) < 400
    assert str(error) == f"{code} at {offset}: {error.message}"


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("a==1", "a==1 is one name, because an operator needs a blank after a name; write a == 1"),
        ("a== 1", "a== is one name, because an operator needs a blank after a name; write a == 1"),
        ("a=1", "a=1 is one name, because an operator needs a blank after a name; write a == 1"),
        ("a+ 1 == 2", "a+ is one name, because an operator needs a blank after a name; write a + 1"),
        ("x-y>1&&b<2", "write x-y > 1 && b < 2"),
        ("a==size(b)", "write a == size ("),
        ("a = 1", "equality is written =="),
        ("a == 1 or b == 2", "write ||"),
        ("not a == 1", "write !"),
        ("a == 1 == 2", "comparisons do not chain"),
        ("exists(a)", "did you mean require?"),
        ("begin-with(a, 'x')", "did you mean begins-with?"),
        ("a == 2147483648", "write an int64 with an L"),
        ("a == 1 " + " " * 20_000, "exceed the limit of 16384"),
        ("name", "write require(name)"),
        ("(a == 1", "a bracket is not closed"),
    ],
)
def test_a_refusal_says_how_to_write_it(text: str, advice: str) -> None:
    assert advice in refusal(text).message


def test_numbers_of_the_codes_are_those_of_the_protocol() -> None:
    assert refusal("a == ").number == 2101
    assert refusal("(" * 101).number == 2112


def test_the_token_of_a_refusal_is_the_text_at_fault() -> None:
    assert refusal("a == 08").token == "08"
    assert refusal("a==1").token == "a==1"
    assert refusal("a == ").token == ""


def test_a_refusal_survives_pickling() -> None:
    error = refusal("a==1")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.token) == (str(error), error.token)


def test_a_hundred_brackets_are_not_too_deep() -> None:
    assert parse("(" * 100 + "a == 1" + ")" * 100) == parse("a == 1")


def test_a_thousand_alternatives_are_wide_and_not_deep() -> None:
    expression = parse(" || ".join(f"a == {number}" for number in range(1000)))
    assert isinstance(expression.tree, Logic)
    assert len(expression.tree.legs) == 1000
    assert expression.matches({"a": 999}) is True


def test_an_expression_whose_canonical_text_is_too_long_is_refused() -> None:
    # It could not be parsed at another site.
    error = refusal("||".join(["size(a)==1"] * 1300))
    assert error.code == "PARSE_ERROR"
    assert "canonical" in error.message


def test_the_grammar_leaves_types_to_the_checks() -> None:
    assert read("(a == 1) + 2") == Binary("+", Compare("==", Name("a"), Literal(1)), Literal(2))


def test_trees_that_differ_only_in_offsets_are_equal() -> None:
    assert Name("a", 0) == Name("a", 7)
    assert hash(Name("a", 0)) == hash(Name("a", 7))
    assert Literal(1, 0) == Literal(1, 7)


def test_nodes_know_where_they_begin() -> None:
    tree = read("  (a + 1) < b")
    assert isinstance(tree, Compare)
    assert (tree.offset, tree.left.offset, tree.right.offset) == (3, 3, 12)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("a  ==  1", "a == 1"),
        ("a == 'x'", 'a == "x"'),
        ("""a == 'say "x"'""", r'a == "say \"x\""'),
        ("a == 1.5e22", "a == 1.5e+22"),
        ("a == 10000000000000000000000.0", "a == 1.0e+22"),
        ("a == 10l", "a == 10L"),
        ("! (a == 1)", "!a == 1"),
        ("! (a == 1 && b == 2)", "!(a == 1 && b == 2)"),
        ("a - (b - c) == 1", "a - (b - c) == 1"),
        ("(a - b) - c == 1", "a - b - c == 1"),
        ("-(a + b) == 1", "-(a + b) == 1"),
        (r"\5\ x == 1", r"\5\ x == 1"),
        ("a == 1 && 1 == 1", "a == 1"),
        ("a == 1 || 1 == 2", "a == 1"),
        ("a == 1 ^^ 1 == 1", "!a == 1"),
        ("a == 1 ^^ 1 == 2", "a == 1"),
        ("a == 1 && 1 / 0 == 1", "a == 1 && 1 / 0 == 1"),
        ("a == 1.0 / 0.0", "a == 1.0 / 0.0"),
        ("(a == 1 && b == 1 || 1 == 2) && c == 1", "a == 1 && b == 1 && c == 1"),
    ],
)
def test_the_canonical_text_is_folded_and_sparing_with_brackets(text: str, canonical: str) -> None:
    assert parse(text).canonical == canonical
    assert parse(canonical).tree == parse(text).tree


def test_an_expression_names_the_attributes_it_refers_to() -> None:
    assert parse("a == b || begins-with(fold-case(c), 'x') && size(d) > 1").names == {"a", "b", "c", "d"}
    assert parse("a == 1 || b == 1 && 1 == 2").names == {"a"}


def test_an_expression_survives_pickling() -> None:
    expression = parse("a == 1 && b < 2.5")
    again = pickle.loads(pickle.dumps(expression))
    assert isinstance(again, Expression)
    assert again == expression
    assert again.matches({"a": 1, "b": 2.0}) is True


def test_an_expression_is_no_text() -> None:
    assert parse("a == 1") != "a == 1"


def test_an_expression_parsed_twice_is_parsed_once() -> None:
    assert parse("cached == 1") is parse("cached == 1")


def test_negation_of_a_negation_is_kept() -> None:
    inner: Node = Compare("==", Name("a"), Literal(1))
    assert parse("! ! a == 1").tree == Not(Not(inner))


def test_a_sum_of_many_terms_is_accepted_when_it_is_grouped_and_the_refusal_says_so() -> None:
    def grouped(terms: list[str]) -> str:
        half = len(terms) // 2
        return f"({grouped(terms[:half])} + {grouped(terms[half:])})" if half else terms[0]

    with pytest.raises(SubscriptionError, match=r"NESTING_TOO_DEEP.*group a long chain by brackets"):
        parse("i == " + " + ".join(["z"] * 150))
    assert parse("i == " + grouped(["z"] * 900)).matches({"i": 900, "z": 1})
