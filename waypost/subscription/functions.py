"""The functions of the language, as a table.

`first` is the kind of the first argument, `rest` that of all others; a function without `rest` takes one argument. The
meaning of each: docs/subscription-language.md, Functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Argument(Enum):
    """The kinds of arguments; the value is the kind in the words of a message."""

    NAME = "the name of an attribute"
    SUBJECT = "the name of an attribute, or a string function"
    TEXT = "the name of an attribute, a string, or a string function"
    STRING = "a string literal"
    VALUE = "a name, a literal, or arithmetic"


@dataclass(frozen=True, slots=True)
class Function:
    """One function: the kinds of its arguments, and its `result`: "boolean", or the type of the value."""

    first: Argument
    rest: Argument | None
    result: str

    @property
    def fewest(self) -> int:
        """The smallest number of arguments."""
        return 1 if self.rest is None else 2

    @property
    def most(self) -> int | None:
        """The largest number of arguments; None: no bound."""
        return 1 if self.rest is None else None


_TYPE_TEST = Function(Argument.NAME, None, "boolean")
_STRING_TEST = Function(Argument.SUBJECT, Argument.STRING, "boolean")
_STRING_FUNCTION = Function(Argument.TEXT, None, "string")

FUNCTIONS: dict[str, Function] = {
    "require": _TYPE_TEST,
    "int32": _TYPE_TEST,
    "int64": _TYPE_TEST,
    "real64": _TYPE_TEST,
    "string": _TYPE_TEST,
    "opaque": _TYPE_TEST,
    "nan": _TYPE_TEST,
    "begins-with": _STRING_TEST,
    "ends-with": _STRING_TEST,
    "contains": _STRING_TEST,
    "wildcard": _STRING_TEST,
    "regex": _STRING_TEST,
    "equals": Function(Argument.VALUE, Argument.VALUE, "boolean"),
    "size": Function(Argument.NAME, None, "int32"),
    "fold-case": _STRING_FUNCTION,
    "decompose": _STRING_FUNCTION,
    "decompose-compat": _STRING_FUNCTION,
}

STRING_FUNCTIONS = frozenset(name for name, function in FUNCTIONS.items() if function.result == "string")
