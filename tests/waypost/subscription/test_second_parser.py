"""The parser of the service agrees with a second one that shares nothing with it, on trees and on what is none."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.waypost.subscription.second_parser import LEVELS, NotParsed, SecondParser
from waypost.subscription.errors import SubscriptionError
from waypost.subscription.parser import read
from waypost.subscription.tree import Node

OPERANDS = (
    *("a", "b.c", "flight-number", "été", "x=y", r"two\ words", r"\5", "_", "a٣"),
    *("0", "7", "2147483647", "2147483648L", "0x1F", "0xfL", "017", "1.5", "2.0e3", "0.5E-2", "9L"),
    *("'text'", '"it\'s"', r"'a\'b'", "''", r'"\\"'),
    *("size(a)", "require(a)", "equals(a, 1, 'x')", "begins-with(a, 'p')", "f()", "fold-case(decompose(a))"),
)
BINARY = [symbol for level in LEVELS for symbol in level if symbol != "!"]


def second(text: str) -> Node | None:
    try:
        return SecondParser(text).parsed()
    except NotParsed:
        return None


def first(text: str) -> Node | None:
    try:
        return read(text)
    except SubscriptionError:
        return None


class Writer:
    """Writes expressions with few brackets, so that precedence decides."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def expression(self, depth: int) -> str:
        parts = [self.operand(depth)]
        for _ in range(self.random.randrange(5)):
            parts += [self.random.choice(BINARY), self.operand(depth)]
        return " ".join(parts)

    def operand(self, depth: int) -> str:
        if depth and self.random.random() < 0.3:
            text = f"({self.expression(depth - 1)})"
        else:
            text = self.random.choice(OPERANDS)
        signs = self.random.choices(("- ", "-", "+ ", "~", "! "), k=self.random.choice((0, 0, 0, 1, 2)))
        return "".join(signs) + text


@pytest.mark.parametrize("seed", range(20))
def test_both_parsers_read_the_same_tree(seed: int) -> None:
    writer, trees = Writer(seed), 0
    for _ in range(200):
        text = writer.expression(2)
        tree = first(text)
        assert tree == second(text), text
        trees += tree is not None
    # Where both refuse all, agreement says little.
    assert trees > 20


TOKENS = st.sampled_from(
    (*OPERANDS, *BINARY, "!", "~", "(", ")", ",", " ", "\t", "\n", "'", '"', "\\", "1.", ".5", "08", "é")
)


@settings(max_examples=400)
@given(st.lists(TOKENS, max_size=9).map("".join))
def test_both_parsers_refuse_the_same_texts(text: str) -> None:
    assert first(text) == second(text)
