"""From text to tree: syntax only.

The LALR parser of lark, fed by our own lexer, builds the tree while it reduces; neither has a stack of calls
that grows with the expression. Later passes check types, arguments and constants.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from lark import Lark, Token, UnexpectedToken
from lark.lexer import Lexer

from waypost.limits import MAX_EXPRESSION_BYTES, MAX_EXPRESSION_DEPTH
from waypost.subscription.errors import SubscriptionError, quoted
from waypost.subscription.hints import glued, word_for_operator
from waypost.subscription.lexis import Lexeme, lex, name_of, number_of, string_of, too_deep
from waypost.subscription.tree import (
    Binary,
    Call,
    Compare,
    Literal,
    Logic,
    Name,
    Node,
    Not,
    Unary,
    join,
    walk,
)


def read(text: str) -> Node:
    """Return the tree of an expression as it is written, neither checked nor folded.

    Raises:
        SubscriptionError: PARSE_ERROR, INVALID_TOKEN, UNTERM_STRING, OVERFLOW or NESTING_TOO_DEEP.
    """
    refuse_too_long(text, text)
    try:
        tree = cast(Node, _parser.parse(text))
    except UnexpectedToken as error:
        raise _unexpected(text, error) from None
    refuse_too_deep(tree)
    return tree


def refuse_too_long(written: str, text: str) -> None:
    """Refuse an expression that is past MAX_EXPRESSION_BYTES.

    Args:
        written: a form of `text`, whose length counts.
        text: the source, for the error.

    Raises:
        SubscriptionError: PARSE_ERROR, or NESTING_TOO_DEEP if that holds too.
    """
    data = written.encode("utf-8", "surrogatepass")
    if len(data) <= MAX_EXPRESSION_BYTES:
        return
    _refuse_nesting(text[:MAX_EXPRESSION_BYTES])
    offset = min(len(data[:MAX_EXPRESSION_BYTES].decode("utf-8", "ignore")), len(text))
    form = "" if written is text else " in its canonical form"
    message = f"{len(data)} bytes{form} exceed the limit of {MAX_EXPRESSION_BYTES}; split the expression up"
    raise SubscriptionError("PARSE_ERROR", offset, message, quoted(text[offset:]))


def _refuse_nesting(beginning: str) -> None:
    """Raise NESTING_TOO_DEEP if the text is nested too deeply: a shorter one would not be accepted either."""
    try:
        for _ in lex(beginning):
            pass
    except SubscriptionError as error:
        if error.code == "NESTING_TOO_DEEP":
            raise


def refuse_too_deep(tree: Node) -> None:
    """Raise SubscriptionError, NESTING_TOO_DEEP, for a tree past MAX_EXPRESSION_DEPTH: later passes recurse."""
    for node, depth in walk(tree):
        if depth > MAX_EXPRESSION_DEPTH:
            raise too_deep(node.offset, "")


class _Builder:
    """The parser's callbacks at each reduction, by the names in the grammar."""

    def name(self, children: list[Token]) -> Node:
        return Name(name_of(children[0]), _offset(children[0]))

    def number(self, children: list[Token]) -> Node:
        offset = _offset(children[0])
        return Literal(number_of(children[0], offset), offset)

    def string(self, children: list[Token]) -> Node:
        return Literal(string_of(children[0]), _offset(children[0]))

    def call(self, children: list[Any]) -> Node:
        return Call(name_of(children[0]), tuple(children[1:]), _offset(children[0]))

    def unary(self, children: list[Any]) -> Node:
        return Unary(str(children[0]), children[1], _offset(children[0]))

    def negate(self, children: list[Any]) -> Node:
        return Not(children[1], _offset(children[0]))

    def binary(self, children: list[Any]) -> Node:
        left, operator, right = children
        return Binary(str(operator), left, right, left.offset)

    def compare(self, children: list[Any]) -> Node:
        left, operator, right = children
        return Compare(str(operator), left, right, left.offset)

    def disjunction(self, legs: list[Node]) -> Logic:
        return join("||", legs, legs[0].offset)

    def parity(self, legs: list[Node]) -> Logic:
        return join("^^", legs, legs[0].offset)

    def conjunction(self, legs: list[Node]) -> Logic:
        return join("&&", legs, legs[0].offset)


def _offset(token: Token) -> int:
    return token.start_pos or 0


class _Lexer(Lexer):
    """An adapter of the lexer of :mod:`waypost.subscription.lexis` to the interface of lark."""

    def __init__(self, _configuration: object) -> None:
        pass

    def lex(self, text: str) -> Iterator[Token]:  # type: ignore[override]  # lark's older, simpler interface
        for lexeme in lex(text):
            yield Token(lexeme.kind, lexeme.text, lexeme.offset)


_parser = Lark.open("grammar.lark", rel_to=__file__, parser="lalr", lexer=_Lexer, transformer=cast(Any, _Builder()))


# ---------------------------------------------------------------- messages for an unexpected token


def _unexpected(text: str, error: UnexpectedToken) -> SubscriptionError:
    found = error.token
    at_end = found.type == "$END"
    offset = len(text) if at_end else _offset(found)
    before = _last_before(text, offset)
    if before is not None and before.kind == "NAME" and not at_end:
        message = glued(before.text, str(found)) or word_for_operator(before.text)
        if message is not None:
            return SubscriptionError("PARSE_ERROR", before.offset, message, quoted(before.text))
    message = _advice(found, error.expected, before)
    return SubscriptionError("PARSE_ERROR", offset, message, "" if at_end else quoted(found))


def _last_before(text: str, offset: int) -> Lexeme | None:
    last = None
    for lexeme in lex(text):
        if lexeme.offset >= offset:
            break
        last = lexeme
    return last


def _advice(found: Token, expected: set[str], before: Lexeme | None) -> str:
    if before is None and found.type == "$END":
        return "the expression is empty; write a test such as require(name)"
    wants_operand = "NAME" in expected
    if not wants_operand:
        special = _advice_behind_an_operand(found, expected)
        if special is not None:
            return special
    wanted = "a name, a literal or a bracket" if wants_operand else "an operator or the end"
    position = "at the end" if found.type == "$END" else f"before {quoted(found)}"
    return f"{wanted} is missing {position}"


def _advice_behind_an_operand(found: Token, expected: set[str]) -> str | None:
    if found.type == "RELATION":
        return "comparisons do not chain; join two of them with &&"
    if found.type == "_RPAR":
        return "this bracket closes none that was opened"
    if found.type == "$END":
        return "a bracket is not closed; write ) here" if "_RPAR" in expected else None
    if found.type == "NOT":
        return "! stands before what it negates, in front of a whole comparison"
    return word_for_operator(str(found)) if found.type == "NAME" else None
