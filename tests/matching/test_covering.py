"""Which expressions cover which, one kind after the other."""

from __future__ import annotations

import pytest

from matching.covering import CoveringIndex, covers, outline
from waypost.subscription import parse


def covering(wide: str, narrow: str) -> bool:
    return covers(parse(wide).tree, parse(narrow).tree)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("a == 1", "1 == a"),
        ('a == "x"', '!(a != "x")'),
        ("equals(a, 1, 2)", "a == 2"),
        ("a == 2 || a == 1", "equals(a, 1, 2)"),
        ("a > 1", "a > 2"),
        ("a > 1", "a >= 2 && a < 9"),
        ("a >= 1 && a <= 9", "a == 5"),
        ("!(a < 1)", "a >= 1"),
        ("a > 1 || a < 0", "a > 5 || a < -5"),
        ('begins-with(a, "s")', 'begins-with(a, "south/yard/door/13/opened")'),
        ('begins-with(a, "south/yard/door/1")', 'begins-with(a, "south/yard/door/13/opened")'),
        ('begins-with(a, "x", "y")', 'a == "yes"'),
        ('begins-with(a, "x") || begins-with(a, "y")', 'begins-with(a, "ya", "xa")'),
        ("require(a)", "a == 1"),
        ("require(a)", 'contains(a, "x") && b == 2'),
        ('contains(a, "x")', 'b == 2 && contains(a, "x")'),
        ("a == 1 && b == 2", "c == 3 && b == 2 && a == 1"),
        ("a == 1 || b == 2", "b == 2"),
        ("a == 1 && b == 2 || c == 3", "a == 1 && (b == 2 || c == 3)"),
        ("a != 5", "a > 5"),
        ('a != "x"', 'begins-with(a, "y")'),
        ("!(a == 5)", "a == 6"),
        ("a == 1 || a == 2", "(a == 1 || a == 2) && b > 3"),
        ("b == 1", "a > 3 && a < 2"),
    ],
)
def test_an_expression_is_seen_to_cover_another(wide: str, narrow: str) -> None:
    assert covering(wide, narrow)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("a == 2", "a > 1"),
        ("a > 2", "a > 1"),
        ("a <= 1", "!(a > 1)"),
        ("a > 1 && b == 2", "a > 1"),
        ('begins-with(a, "xy")', 'begins-with(a, "x")'),
        ('begins-with(a, "x")', "require(a)"),
        ("a != 5", "require(a)"),
        ("a != 5", 'a == "x"'),
        ('a != "x"', "a == 5"),
        ("!(a == 1)", "b == 2"),
        ("a + 1 == 2", "a == 1"),
        ("a != 9007199254740993L", "a == 9007199254740992.0"),
    ],
)
def test_what_may_be_refuted_is_not_covered(wide: str, narrow: str) -> None:
    assert not covering(wide, narrow)


def test_an_expression_with_very_many_cases_is_split_into_few() -> None:
    many = " && ".join(f"(a{i} == 1 || b{i} == 1)" for i in range(20))
    assert covering("a3 == 1 || b3 == 1", many)
    assert covering("c == 1", f"{many} && c == 1")
    assert not covering("a3 == 1", many)


def test_few_of_many_are_looked_at() -> None:
    index = CoveringIndex()
    texts = [f'symbol == "s{i}" && price > {i}' for i in range(1000)]
    for text in texts:
        index.add(text, outline(parse(text)))
    index.add("require(symbol)", outline(parse("require(symbol)")))
    narrow = outline(parse('symbol == "s7" && price > 9 && kind == 2'))
    assert sorted(index.may_cover(narrow)) == ["require(symbol)", texts[7]]
    assert list(index.may_be_covered(outline(parse('symbol == "s7"')))) == [texts[7]]
    assert len(list(index.may_be_covered(outline(parse("price > 500"))))) == 500
    for text in texts:
        index.remove(text, outline(parse(text)))
    assert list(index.may_cover(narrow)) == ["require(symbol)"]
    assert len(index) == 1
