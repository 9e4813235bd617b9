"""From text to tokens.

A name runs as far as it can, and most operator characters may be part of it; that is why an operator needs a
blank after a name and not after anything else. A decimal number takes its unary minus with it, for otherwise
the smallest int32 could not be written. A backslash quotes the next character, in names as in strings; there
are no other escapes. Source: Elvin client protocol draft 4.0, section 6.1.4 and appendix A.

Nesting is counted here, before the parser sees a bracket, and so is bounded whatever comes after.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from waypost.limits import MAX_EXPRESSION_DEPTH, MAX_NAME_BYTES
from waypost.notification import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, Int64
from waypost.subscription.errors import SubscriptionError, quoted

_NAME_REST = r"\w!#$%&*+\-./:;<=>?@^`{|}~\x7f-\xff"
_DECIMAL = r"(?:[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|(?:0|[1-9][0-9]*)[lL]?)(?![\w.])"
_NUMBER = rf"(?:0[xX][0-9a-fA-F]+[lL]?|0[0-7]+[lL]?)(?![\w.])|{_DECIMAL}"
_TOKEN = re.compile(
    rf"""
    (?P<BLANK>[ \t\r\n]+)
  | (?P<NAME>(?:\\.|[^\W\d])(?:\\.|[{_NAME_REST}])*)
  | (?P<NUMBER>{_NUMBER})
  | (?P<STRING>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")
  | (?P<OPERATOR>\|\||\^\^|&&|==|!=|<=|>=|<<|>>>|>>|[-<>!+*/%|^&~(),])
    """,
    re.VERBOSE | re.DOTALL,
)
_NEGATIVE = re.compile(rf"-[ \t\r\n]*{_DECIMAL}")
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_PLAIN_NAME_CHARACTER = re.compile(f"[{_NAME_REST}]")
_LOOKS_LIKE_A_NUMBER = re.compile(r"[\w.]+")
_MOST_DIGITS = 30

_KINDS = {
    "||": "_OR",
    "^^": "_XOR",
    "&&": "_AND",
    "!": "NOT",
    "+": "PLUS",
    "-": "MINUS",
    "~": "TILDE",
    "|": "BAR",
    "^": "CARET",
    "&": "AMPERSAND",
    "(": "_LPAR",
    ")": "_RPAR",
    ",": "_COMMA",
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), "RELATION"),
    **dict.fromkeys(("*", "/", "%"), "TIMES"),
    **dict.fromkeys(("<<", ">>", ">>>"), "SHIFT"),
}
_ENDS_AN_OPERAND = frozenset({"NAME", "NUMBER", "STRING", "_RPAR"})


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A token of an expression.

    Args:
        kind: its kind, as the grammar calls it.
        text: as it was written.
        offset: where it begins in the expression, in characters from 0.
    """

    kind: str
    text: str
    offset: int


def lex(text: str) -> Iterator[Lexeme]:
    """Yield the tokens of an expression, in order, without blanks. Names and literals are as written (:func:`name_of`,
    :func:`string_of`, :func:`number_of`).

    Raises:
        SubscriptionError: INVALID_TOKEN, UNTERM_STRING or NESTING_TOO_DEEP; raised when the iteration comes to the
            place.
    """
    _refuse_unwritable(text)
    offset, depth, after_operand = 0, 0, False
    while offset < len(text):
        lexeme, offset = _next(text, offset, after_operand)
        if lexeme is None:
            continue
        depth += (lexeme.kind == "_LPAR") - (lexeme.kind == "_RPAR")
        if depth > MAX_EXPRESSION_DEPTH:
            raise too_deep(lexeme.offset, lexeme.text)
        after_operand = lexeme.kind in _ENDS_AN_OPERAND
        yield lexeme


def too_deep(offset: int, token: str) -> SubscriptionError:
    """Return the error that refuses an expression past MAX_EXPRESSION_DEPTH.

    Args:
        offset: where in the text it is too deep, in characters from 0.
        token: the piece of text there; "": it is not known.
    """
    message = (
        f"nested deeper than {MAX_EXPRESSION_DEPTH} levels, each operator of a chain such as a + b + c being one; "
        "group a long chain by brackets, or split the expression up"
    )
    return SubscriptionError("NESTING_TOO_DEEP", offset, message, token)


def _refuse_unwritable(text: str) -> None:
    found = _UNWRITABLE.search(text)
    if found is not None:
        message = f"U+{ord(found[0]):04X} cannot be in an expression, for no notification can hold it"
        raise SubscriptionError("INVALID_TOKEN", found.start(), message, quoted(found[0]))


def _next(text: str, offset: int, after_operand: bool) -> tuple[Lexeme | None, int]:
    """Return the token at `offset`, None for a blank, and the offset behind it."""
    if not after_operand and (negative := _NEGATIVE.match(text, offset)):
        return Lexeme("NUMBER", negative[0], offset), negative.end()
    found = _TOKEN.match(text, offset)
    if found is None:
        raise _no_token(text, offset)
    kind, token = str(found.lastgroup), found[0]
    if kind == "BLANK":
        return None, found.end()
    if kind == "NAME":
        _check_name(token, offset)
    return Lexeme(_KINDS.get(token, kind), token, offset), found.end()


def _check_name(token: str, offset: int) -> None:
    if not (token[0].isalpha() or token[0] in "_\\"):
        raise _no_token(token, offset, offset)
    if len(name_of(token).encode()) > MAX_NAME_BYTES:
        message = f"a name of over {MAX_NAME_BYTES} bytes, which no notification can hold"
        raise SubscriptionError("INVALID_TOKEN", offset, message, quoted(token))


def _no_token(text: str, offset: int, start: int = 0) -> SubscriptionError:
    at = offset - start
    character = text[at]
    if character in "'\"":
        message = f"the string is not closed; end it with {character}"
        return SubscriptionError("UNTERM_STRING", offset, message, quoted(text[at:]))
    looks = _LOOKS_LIKE_A_NUMBER.match(text, at) if character.isdigit() or character == "." else None
    token = looks[0] if looks else character
    return SubscriptionError("INVALID_TOKEN", offset, _diagnose(token), quoted(token))


def _diagnose(token: str) -> str:
    if token == "=":
        return "= is no operator; equality is written =="
    if token == "\\":
        return "a backslash quotes the next character, and there is none"
    if token[0].isdecimal() or (token[0] == "." and len(token) > 1):
        return f"{quoted(token)} is no number; write 10, 012, 0xA, 10L or 10.0, with digits around the point"
    return f"{quoted(token)!r} is no operator and begins no name; in a name, write a backslash before it"


# ---------------------------------------------------------------- what tokens mean


def name_of(token: str) -> str:
    """Return the name that a NAME token stands for, without its quoting backslashes."""
    return _ESCAPE.sub(r"\1", token)


def string_of(token: str) -> str:
    """Return the string that a STRING token stands for, without its quotes and quoting backslashes."""
    return _ESCAPE.sub(r"\1", token[1:-1])


def write_name(name: str) -> str:
    """Return the NAME token of a name, which must not be empty: the least escaped one."""
    plain = (c if _PLAIN_NAME_CHARACTER.match(c) else "\\" + c for c in name)
    token = "".join(plain)
    return token if name[0].isalpha() or name[0] == "_" or token[0] == "\\" else "\\" + token


def write_string(value: str) -> str:
    """Return the STRING token of a string."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def number_of(token: str, offset: int) -> int | Int64 | float:
    """Return the number that a NUMBER token stands for: int32 as ``int``, int64 as ``Int64``, real64 as ``float``.

    Args:
        token: its text, with the minus if it has one.
        offset: where it begins in the source, for the error.

    Raises:
        SubscriptionError: OVERFLOW, the number does not fit its type; there is no promotion of literals.
    """
    text = re.sub(r"\s", "", token)
    number = float(text) if "." in text else _integer(text)
    if number is None or (isinstance(number, float) and math.isinf(number)):
        raise SubscriptionError("OVERFLOW", offset, _overflow(text), quoted(text))
    return number


def _overflow(text: str) -> str:
    if "." in text:
        return f"{quoted(text)} does not fit a real64"
    if text[-1] in "lL":
        return f"{quoted(text)} does not fit an int64"
    return f"{quoted(text)} does not fit an int32; write an int64 with an L behind it, or a real64 with .0"


def _integer(text: str) -> int | None:
    wide = text[-1] in "lL"
    digits = text[:-1] if wide else text
    # Python refuses to convert decimals of thousands of digits, and that would be a ValueError here.
    if len(digits.lstrip("-0xX")) > _MOST_DIGITS:
        return None
    value = int(digits, _base(digits))
    if wide:
        return Int64(value) if INT64_MIN <= value <= INT64_MAX else None
    return value if INT32_MIN <= value <= INT32_MAX else None


def _base(digits: str) -> int:
    if digits[:2] in ("0x", "0X"):
        return 16
    return 8 if digits[0] == "0" else 10
