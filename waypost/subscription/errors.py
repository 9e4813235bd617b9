"""The error of a refused expression.

The codes and their numbers are those of the Elvin client protocol (draft 4.0, Nack codes 2101 to 2112).
A refusal is definite: nothing was registered. Offsets count characters of the expression's text from 0; the
offset of an error at the end is the length of the text.
"""

from __future__ import annotations

from waypost.errors import Refused

NUMBERS = {
    "PARSE_ERROR": 2101,
    "INVALID_TOKEN": 2102,
    "UNTERM_STRING": 2103,
    "UNKNOWN_FUNC": 2104,
    "OVERFLOW": 2105,
    "TYPE_MISMATCH": 2106,
    "TOO_FEW_ARGS": 2107,
    "TOO_MANY_ARGS": 2108,
    "INVALID_REGEXP": 2109,
    "EXP_IS_TRIVIAL": 2110,
    "REGEXP_TOO_COMPLEX": 2111,
    "NESTING_TOO_DEEP": 2112,
}

_LONGEST_QUOTE = 60


class SubscriptionError(Refused):
    """An expression cannot be registered.

    Attributes:
        code: the name of the code, such as "PARSE_ERROR".
        number: the number of the code, such as 2101.
        offset: where in the text, in characters from 0.
        token: the piece of text at fault; empty at the end of the text.
        message: one line: what is wrong, and how to write it.
    """

    def __init__(self, code: str, offset: int, message: str, token: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.number = NUMBERS[code]
        self.offset = offset
        self.token = token

    def __str__(self) -> str:
        return f"{self.code} at {self.offset}: {self.message}"

    def __reduce__(self) -> tuple[type[SubscriptionError], tuple[str, int, str, str]]:
        return SubscriptionError, (self.code, self.offset, self.message, self.token)


def quoted(text: str) -> str:
    """Return `text` for a message: on one line, and shortened."""
    line = "".join(character if character.isprintable() else "?" for character in text)
    return line if len(line) <= _LONGEST_QUOTE else line[: _LONGEST_QUOTE - 3] + "..."
