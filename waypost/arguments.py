"""Checks of arguments of the public API, made before anything is done: which one is wrong, why, and how to write it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from reprlib import Repr
from typing import Any, TypeVar

from waypost.errors import BadArgument
from waypost.identity import NAME_PATTERN
from waypost.limits import MAX_ID_LENGTH

T = TypeVar("T")
_repr = Repr()
_repr.maxstring = _repr.maxother = 40
_repr.maxlist = _repr.maxtuple = _repr.maxset = _repr.maxfrozenset = _repr.maxdict = 3


SECRETS = frozenset({"password", "token", "keys", "key", "raw", "producer", "consumer", "subscribing", "publishing"})
"""Arguments whose value no error shows."""


def shown(value: object) -> str:
    """Return a value as one short line for an error; it never fails, whatever the value's repr does."""
    try:
        line = " ".join(_repr.repr(value).split())
    except Exception:
        # An application's object may not even have a repr.
        line = "<"
    return f"an object of type {type(value).__name__}" if line.startswith("<") else line


def wrong_type(value: object, field: str, instead: str) -> BadArgument:
    """Return the error of an argument of the wrong type.

    Args:
        value: of the argument; not shown if `field` is one of SECRETS.
        field: its name.
        instead: an example of what to write.
    """
    subject = "" if field in SECRETS or shown(value).startswith("an object of") else f"{shown(value)} is "
    return BadArgument(f"{subject}of type {type(value).__name__}; write {instead}", field=field)


def text(value: object, field: str, least: int = 0, most: int | None = None, *, such_as: str = "a text") -> str:
    """Return the value if it is a text of a length within these bounds.

    Args:
        value: of the argument.
        field: the name of the argument, for the error.
        least: the fewest characters.
        most: the most characters; None: no bound.
        such_as: an example of what to write.

    Raises:
        BadArgument: the value is no text, is shorter or longer, or is no valid Unicode.
    """
    if not isinstance(value, str):
        raise wrong_type(value, field, such_as)
    if len(value) < least or (most is not None and len(value) > most):
        allowed = f"at least {least}" if most is None else f"{least} to {most}"
        raise BadArgument(f"{len(value)} characters; it has {allowed}", field=field)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadArgument("it has half of a surrogate pair; write Unicode", field=field) from None
    return value


def name(value: object, field: str, *, such_as: str) -> str:
    """Return the value if it is a text that names something: 1 to MAX_ID_LENGTH characters without control characters.

    Args:
        value: of the argument.
        field: the name of the argument, for the error.
        such_as: an example of what to write.

    Raises:
        BadArgument: it is no such text.
    """
    text(value, field, 1, MAX_ID_LENGTH, such_as=such_as)
    assert isinstance(value, str)
    if not re.match(NAME_PATTERN, value):
        raise BadArgument(f"{shown(value)} has a control character", field=field)
    return value


def whole(value: object, field: str, least: int, most: int) -> None:
    """Raise BadArgument, which names `field`, unless the value is a whole number from `least` to `most`, both
    inclusive; a bool is none.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(value, field, f"a whole number from {least} to {most}")
    if not least <= value <= most:
        raise BadArgument(f"{shown(value)}; it is a whole number from {least} to {most}", field=field)


def whole_or_none(value: object, field: str, least: int, most: int) -> None:
    """Raise BadArgument, which names `field`, unless the value is None or a whole number from `least` to `most`, both
    included.
    """
    if value is not None:
        whole(value, field, least, most)


def seconds(value: object, field: str = "timeout_s") -> None:
    """Raise BadArgument, which names `field`, unless the value is a number of seconds, 0 or more, or infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(value, field, "a number of seconds, such as 30 or 0.5")
    if (isinstance(value, float) and math.isnan(value)) or value < 0:
        raise BadArgument(f"{shown(value)} is no time to wait; write a number of seconds, 0 or more", field=field)


def flag(value: object, field: str) -> None:
    """Raise BadArgument, which names the argument `field`, unless the value is True or False."""
    if not isinstance(value, bool):
        raise wrong_type(value, field, "True or False")


def one_of(value: object, field: str, words: Sequence[str]) -> None:
    """Raise BadArgument, which names the argument `field`, unless the value is a text and one of `words`."""
    if not isinstance(value, str) or value not in words:
        raise BadArgument(f"{shown(value)} is none of {', '.join(words)}", field=field)


def instance(value: object, field: str, kind: type[T], instead: str) -> T:
    """Return the value if it is of type `kind`.

    Args:
        value: of the argument.
        field: the name of the argument, for the error.
        kind: the type, or a union of types.
        instead: an example of what to write.

    Raises:
        BadArgument: the value is of another type.
    """
    if not isinstance(value, kind):
        raise wrong_type(value, field, instead)
    return value


def function(value: object, field: str, instead: str) -> None:
    """Raise BadArgument, which names the argument `field`, unless the value can be called; `instead` is an example of
    what to write.
    """
    if not callable(value):
        raise wrong_type(value, field, instead)


def listed(value: object, field: str, instead: str) -> list[Any]:
    """Return the items of an iterable, as a new list; `instead` is an example of what to write.

    Raises:
        BadArgument: the value is no iterable, or is a text, bytes or a mapping; the error names the argument `field`.
    """
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        raise wrong_type(value, field, instead)
    return list(value)


def mapping(value: object, field: str, instead: str) -> Mapping[Any, Any]:
    """Return the value if it is a mapping; `instead` is an example of what to write.

    Raises:
        BadArgument: the value is no mapping; the error names the argument `field`.
    """
    if not isinstance(value, Mapping):
        raise wrong_type(value, field, instead)
    return value
