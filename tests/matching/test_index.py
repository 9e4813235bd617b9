"""By which keys expressions are found, one kind after the other, and how few candidates that leaves."""

from __future__ import annotations

import math

import pytest

from matching.index import Index
from matching.needs import Key, Prefix, Present, Text, Within, parts
from waypost.errors import Internal
from waypost.notification import Int64, Notification, Value
from waypost.subscription import parse


def indexed(*texts: str, few: int = 0, many: int = 1000) -> Index[str]:
    index: Index[str] = Index(few=few, many=many)
    for text in texts:
        index.add(parse(text), text)
    return index


def keys(text: str) -> list[list[tuple[Key, ...] | None]]:
    """Return the keys of each leg of each alternative."""
    return [[leg.reading.keys for leg in legs] for legs in parts(parse(text).tree)]


def candidates(index: Index[str], attributes: dict[str, Value]) -> int:
    return sum(map(len, index._found(attributes)))


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('a == "x"', Text("a", "x")),
        ('"x" == a', Text("a", "x")),
        ('!(a != "x")', Text("a", "x")),
        ("a == 5", Within("a", 5.0, 5.0)),
        ("a >= 1 && a <= 9", Within("a", 1.0, 9.0)),
        ("9 >= a && !(a < 1)", Within("a", 1.0, 9.0)),
        ("a > 5", Within("a", math.nextafter(5.0, math.inf), math.inf)),
        ("!(a > 5)", Within("a", -math.inf, 5.0, or_nan=True)),
        ('begins-with(a, "x")', Prefix("a", "x")),
        ('begins-with(a, "")', Present("a")),
        ("require(a)", Present("a")),
        ("a != 5", Present("a")),
        ("!(a == 5)", Present("a")),
        ("a + 1 == 5", Present("a")),
        ('fold-case(a) == "x"', Present("a")),
        ('!contains(a, "x")', Present("a")),
    ],
)
def test_a_leg_says_by_which_key_it_is_found(text: str, key: Key) -> None:
    assert keys(text) == [[(key,)]]


def test_an_integer_that_a_double_rounds_is_found_by_presence_alone() -> None:
    assert keys(f"a == {2**53 - 1}L") == [[(Within("a", 2.0**53 - 1, 2.0**53 - 1),)]]
    assert keys(f"a == {2**53}L") == [[(Present("a"),)]]


def test_a_real_that_several_integers_round_to_is_equal_to_all_of_them() -> None:
    for many in (0, 1000):
        index = indexed("a == 9007199254740992.0", many=many)
        assert index.match({"a": Int64(2**53 + 1)}) == ["a == 9007199254740992.0"]


def test_keys_that_say_only_a_part_leave_the_rest_to_be_tested() -> None:
    index = indexed('(a == 1 || b == 2 && c == 3) && begins-with(d, "a long beginning, and more")')
    whole: dict[str, Value] = {"b": 2, "c": 3, "d": "a long beginning, and more!"}
    assert len(index.match(whole)) == 1
    assert index.match(whole | {"c": 4}) == []
    assert index.match(whole | {"d": "a long beginning, or less"}) == []
    lone = indexed('begins-with(d, "a long beginning, and more")')
    assert lone.match({"d": "a long beginning, or less"}) == []


def test_alternative_of_an_expression_is_a_row_of_its_own() -> None:
    assert keys('a == 1 || !(b != 2 && c != "x")') == [
        [(Within("a", 1.0, 1.0),)],
        [(Within("b", 2.0, 2.0),)],
        [(Text("c", "x"),)],
    ]


def test_an_alternative_beside_another_test_is_found_by_any_of_its_keys() -> None:
    index = indexed('(a == "x" || b == "y") && c != 3')
    assert index.match({"a": "x", "b": "y", "c": 4}) == ['(a == "x" || b == "y") && c != 3']
    assert candidates(index, {"a": "z", "b": "z", "c": 4}) == 0


def test_expression_that_is_never_true_has_no_keys_in_the_index() -> None:
    index = indexed("a > 5 && a < 3", "!require(a)", "a == 1 && a == 2")
    assert candidates(index, {"a": 4}) == 0
    assert index.match({"a": 4}) == [] and len(index) == 3


def test_an_exclusive_or_needs_each_of_its_legs_to_come_out() -> None:
    index = indexed('a == 1 ^^ b == "x"')
    assert candidates(index, {"a": 1}) == 0 or index.match({"a": 1}) == []
    assert index.match({"a": 1, "b": "y"}) == index.match({"a": 2, "b": "x"}) == ['a == 1 ^^ b == "x"']
    assert index.unindexed == 0


def test_deep_nesting_of_exclusive_ors_takes_no_exponential_time() -> None:
    text = "a == 0"
    for number in range(45):
        text = f"(({text}) && b{number} > 1) ^^ c{number} == 1"
    assert len(indexed(text)) == 1


def test_of_two_equalities_the_rarer_finds_the_row() -> None:
    index = indexed(*(f'kind == "flight" && number == {number}' for number in range(100)))
    assert candidates(index, {"kind": "flight", "number": 1000}) <= 1
    assert candidates(index, {"kind": "flight", "number": 50}) <= 2


def test_narrow_ranges_are_found_without_those_far_away() -> None:
    index = indexed(*(f"a >= {number} && a < {number + 10}" for number in range(0, 100_000, 10)))
    assert len(index.match({"a": 50_005})) == 1
    assert candidates(index, {"a": 50_005}) <= 8


def test_bounds_are_cut_where_the_value_stands() -> None:
    index = indexed(*(f"a > {number}" for number in range(100)), *(f"a < {-number}" for number in range(1, 100)))
    assert candidates(index, {"a": 3}) == len(index.match({"a": 3})) == 3
    assert candidates(index, {"a": -3}) == len(index.match({"a": -3})) == 2


@pytest.mark.parametrize("many", [0, 1000])
def test_a_negated_bound_lets_nan_in_and_a_bound_does_not(many: int) -> None:
    texts = ("a < 5", "!(a < 5)", "!(a < 5) && !(a > 3)", "!(a > 5) && b == 1")
    index = indexed(*texts, many=many)
    assert sorted(index.match({"a": math.nan, "b": 1})) == sorted(texts[1:])
    assert index.match({"a": 4}) == ["a < 5"]


@pytest.mark.parametrize("many", [0, 1000])
def test_expression_with_two_matching_alternatives_is_returned_once(many: int) -> None:
    text = 'a == 1 || b == 1 || begins-with(c, "x", "xy")'
    index = indexed(text, "a == 1", many=many)
    assert sorted(index.match({"a": 1, "b": 1, "c": "xyz"})) == ["a == 1", text]


@pytest.mark.parametrize("many", [0, 1000])
def test_numbers_of_all_types_meet(many: int) -> None:
    index = indexed("a == 1", "a == 1L && b == 2.0", many=many)
    for equal in (1, Int64(1), 1.0):
        assert len(index.match({"a": equal, "b": Int64(2)})) == 2
    assert index.match(Notification({"a": "1", "b": 2})) == []


def test_a_number_is_no_string_where_many_are_compared_at_once() -> None:
    index = indexed('a == "x" && b == "y"', many=0)
    assert index.match({"a": "x", "b": 0}) == index.match({"a": "x", "b": 1}) == []
    assert len(index.match({"a": "x", "b": "y"})) == 1


def test_a_bound_belongs_to_what_it_bounds() -> None:
    assert len(indexed("a >= 5", "a <= 5", "!(a > 5)", "a > 5", "a < 5").match({"a": 5})) == 3


def test_expression_without_an_indexable_attribute_is_evaluated_every_time() -> None:
    index = indexed("a == 1 || 1 / 0 == 1")
    assert index.unindexed == 1
    assert index.match({"a": 1}) == ["a == 1 || 1 / 0 == 1"]
    assert index.match({"b": 1}) == []


def test_an_expression_stands_there_once() -> None:
    index = indexed("a == 1")
    with pytest.raises(Internal, match="is in the index already"):
        index.add(parse("a  ==  1"), "again")
    assert index.get(parse("a == 1")) == "a == 1"
    index.remove(parse("a == 1"))
    assert index.get(parse("a == 1")) is None
    with pytest.raises(KeyError):
        index.remove(parse("a == 1"))


def test_with_few_expressions_each_is_asked_in_the_order_in_which_they_came() -> None:
    index = indexed("b > 0", "a > 0", few=2)
    assert index.match({"a": 1, "b": 1}) == ["b > 0", "a > 0"]
