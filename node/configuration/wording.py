"""What is wrong with a value, in our words: of settings, and of what is posted to the pages over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_KINDS = {
    "bool_parsing": "neither true nor false",
    "bool_type": "neither true nor false",
    "dict_type": "no object",
    "float_parsing": "no number",
    "float_type": "no number",
    "int_from_float": "no whole number",
    "int_parsing": "no whole number",
    "int_type": "no whole number",
    "list_type": "no list",
    "model_type": "no object",
    "string_type": "no text: put it in quotes",
}
"""What a value of the wrong type is, by pydantic's kind of error."""


def wording(error: ErrorDetails) -> str:
    """Return what is wrong with a value, in one line for people, with the values that are allowed.

    Args:
        error: pydantic's, an element of `ValidationError.errors()`.
    """
    value, bounds = error["input"], error.get("ctx", {})
    match error["type"]:
        case kind if kind in _KINDS:
            return f"{value!r} is {_KINDS[kind]}"
        case "missing":
            return "it is missing"
        case "extra_forbidden":
            return "there is no such field"
        case "greater_than_equal":
            return f"{value} is too small: say {bounds['ge']} or more"
        case "less_than_equal":
            return f"{value} is too large: say {bounds['le']} or less"
        case "string_too_short":
            return "it is empty: say a name"
        case "string_too_long":
            return f"it is too long: at most {bounds['max_length']} characters, please"
        case "string_pattern_mismatch":
            return f"{value!r} is no such name: letters, digits, '.', '_' and '-' may be in it"
        case _:
            return error["msg"].removeprefix("Value error, ")
