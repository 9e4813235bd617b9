"""Patterns: regular expressions and wildcards, both run by RE2, in time linear in the text.

The dialect of `regex` is RE2's. A pattern is searched for, not matched whole; `.` matches a newline too; `^`
and `$` mean the whole string's ends, unless the pattern itself says ``(?m)``. A wildcard matches the whole
string; its `*` and `?` do not match a newline, a set does what it says (docs/subscription-language.md, Functions).

Both are bounded: a pattern by its length, its compiled form by its memory, and all those of an expression
together by about the same, for otherwise a text of 16 KB could hold on to 60 MB. Past the memory RE2 refuses
to compile; at run time it falls back from the automaton to a slower one, never to a wrong answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import re2

from waypost.limits import MAX_REGEX_BYTES, MAX_REGEX_MEMORY_BYTES

MAX_INSTRUCTIONS = MAX_REGEX_MEMORY_BYTES // 32
"""Instructions of all patterns of an expression together; a little more than RE2 was seen to let a single one have."""

_BAD_REPETITION = re.compile(r"invalid repetition size: \{(\d+)(?:,(\d*))?\}")


class BadPattern(Exception):
    """A pattern cannot be compiled. `code` is INVALID_REGEXP or REGEXP_TOO_COMPLEX."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def searcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Return a test of a string: whether one of these regular expressions of RE2 is found anywhere in it.

    Raises:
        BadPattern: one of them is no regular expression, or is too large.
    """
    return _any_of([_compiled(pattern).search for pattern in patterns])


def globber(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Return a test of a string: whether one of these wildcard patterns matches the whole of it.

    Raises:
        BadPattern: one of them is too large, or has a set that is empty, not closed or the wrong way round.
    """
    return _any_of([_compiled(_translated(pattern)).fullmatch for pattern in patterns])


def instructions(function: str, pattern: str) -> int:
    """Return the size of a compiled pattern, in instructions of RE2.

    Args:
        function: ``regex``, or else ``wildcard``: what the pattern is of.
        pattern: its text.

    Raises:
        BadPattern: the pattern is not valid, or is too large.
    """
    compiled = _compiled(pattern if function == "regex" else _translated(pattern))
    return int(compiled.programsize)


def _any_of(attempts: list[Callable[[bytes], Any]]) -> Callable[[str], bool]:
    # RE2 wants UTF-8, and its wrapper is twice as fast on bytes. A lone surrogate must not raise here.
    if len(attempts) == 1:
        attempt = attempts[0]
        return lambda text: attempt(text.encode("utf-8", "surrogatepass")) is not None

    def test(text: str) -> bool:
        data = text.encode("utf-8", "surrogatepass")
        return any(attempt(data) is not None for attempt in attempts)

    return test


def _compiled(pattern: str) -> Any:
    size = len(pattern.encode())
    if size > MAX_REGEX_BYTES:
        raise BadPattern("REGEXP_TOO_COMPLEX", f"a pattern of {size} bytes exceeds the limit of {MAX_REGEX_BYTES}")
    try:
        return re2.compile(pattern, _options())
    except re2.error as error:
        raise _bad_pattern(error) from None


def _options() -> Any:
    options = re2.Options()
    options.max_mem = MAX_REGEX_MEMORY_BYTES
    options.dot_nl = True
    options.never_capture = True
    options.log_errors = False
    return options


def _bad_pattern(error: Exception) -> BadPattern:
    detail = error.args[0] if error.args else b""
    reason = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
    if "pattern too large" in reason or _is_over_a_bound(reason):
        return BadPattern("REGEXP_TOO_COMPLEX", f"the pattern is too large when compiled: {reason}")
    return BadPattern("INVALID_REGEXP", f"no regular expression of RE2: {reason}")


def _is_over_a_bound(reason: str) -> bool:
    """Tell a repetition that is too large, such as a{5000}, from one without sense, such as a{2,1}."""
    found = _BAD_REPETITION.search(reason)
    return found is not None and (not found[2] or int(found[1]) <= int(found[2]))


# ---------------------------------------------------------------- wildcards


def _translated(pattern: str) -> str:
    r"""Translate a wildcard into a regular expression; `\` quotes, a lone one at the end is itself."""
    pieces: list[str] = []
    offset = 0
    while offset < len(pattern):
        piece, offset = _piece(pattern, offset)
        # Stars in a row match what one star matches, at less cost.
        if piece != "[^\\n]*" or not pieces or pieces[-1] != piece:
            pieces.append(piece)
    return "".join(pieces)


def _piece(pattern: str, offset: int) -> tuple[str, int]:
    match pattern[offset]:
        case "*":
            return "[^\\n]*", offset + 1
        case "?":
            return "[^\\n]", offset + 1
        case "[":
            return _set(pattern, offset + 1)
        case _:
            pass
    character, offset = _character(pattern, offset)
    return _quoted(character), offset


def _character(pattern: str, offset: int) -> tuple[str, int]:
    if pattern[offset] == "\\" and offset + 1 < len(pattern):
        return pattern[offset + 1], offset + 2
    return pattern[offset], offset + 1


def _quoted(character: str) -> str:
    return character if character.isalnum() or ord(character) > 127 else f"\\x{{{ord(character):x}}}"


def _set(pattern: str, offset: int) -> tuple[str, int]:
    """Translate a set, from behind its opening bracket to behind its closing one."""
    negated = pattern.startswith("^", offset)
    offset += negated
    members: list[str] = []
    while offset < len(pattern) and pattern[offset] != "]":
        member, offset = _member(pattern, offset)
        members.append(member)
    if offset >= len(pattern) or not members:
        raise BadPattern("INVALID_REGEXP", "a set of the wildcard is empty or not closed; write [abc], or \\\\[")
    return f"[{'^' if negated else ''}{''.join(members)}]", offset + 1


def _member(pattern: str, offset: int) -> tuple[str, int]:
    """Translate a character or a range; a hyphen at either end of the set is itself."""
    first, offset = _character(pattern, offset)
    if not pattern.startswith("-", offset) or pattern[offset + 1 : offset + 2] in ("", "]"):
        return _quoted(first), offset
    last, offset = _character(pattern, offset + 1)
    if last < first:
        raise BadPattern("INVALID_REGEXP", f"the range {first}-{last} of the wildcard is the wrong way round")
    return f"{_quoted(first)}-{_quoted(last)}", offset
