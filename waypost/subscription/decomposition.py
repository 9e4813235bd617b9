"""Unicode's decompositions, in time that grows with the text and no faster.

The standard library puts combining marks in order by inserting them one by one: a run of n marks takes n * n steps, and
250 KB of them 14 seconds. A long run is sorted here instead, with the same outcome: the canonical ordering of Unicode
(chapter 3.11, D109) is a stable sort by combining class between characters of class 0.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any, Literal

import re2

Form = Literal["NFD", "NFKD"]
MARKS_WITHIN = range(0x300, 0x20000)
"""All characters that are marks, or whose decomposition begins with one, are among these."""
SHORT_RUN = 32
"""Number of marks that the standard library may order by itself."""


def decomposer(form: Form) -> Callable[[str], str]:
    """Return the function that decomposes a text, as `unicodedata.normalize` of this form does."""
    return partial(_decomposed, form)


def _decomposed(form: Form, text: str) -> str:
    if text.isascii():
        return text
    if _has_long_run().search(text.encode("utf-8", "surrogatepass")) is None:
        return unicodedata.normalize(form, text)
    pieces: list[str] = []
    done = 0
    for run in _long_runs().finditer(text):
        # With the character before it, whose own decomposition may end in marks: those are sorted with the others.
        begin = max(done, run.start() - 1)
        pieces += (unicodedata.normalize(form, text[done:begin]), _sorted(form, text[begin : run.end()]))
        done = run.end()
    pieces.append(unicodedata.normalize(form, text[done:]))
    return "".join(pieces)


def _sorted(form: Form, text: str) -> str:
    """Decompose a character and the run of marks behind it."""
    decompositions = {ord(character): unicodedata.normalize(form, character) for character in set(text)}
    return _runs().sub(_in_order, text.translate(decompositions))


def _in_order(run: re.Match[str]) -> str:
    marks = run[0]
    class_of = {mark: unicodedata.combining(mark) for mark in set(marks)}
    return "".join(sorted(marks, key=class_of.__getitem__))


@cache
def _runs() -> re.Pattern[str]:
    """Find runs of marks of a decomposed text."""
    return re.compile(f"[{_ranges(filter(unicodedata.combining, _characters()))}]{{2,}}")


@cache
def _long_runs() -> re.Pattern[str]:
    return re.compile(f"[{_marks()}]{{{SHORT_RUN},}}")


@cache
def _has_long_run() -> Any:
    """Tell whether there is one. RE2 is a hundred times faster at it, but cannot say at which character it is."""
    return re2.compile(f"[{_marks()}]{{{SHORT_RUN}}}")


@cache
def _marks() -> str:
    """Return all characters whose decomposition begins with a mark, as they stand in a set."""
    return _ranges(
        _character
        for _character in _characters()
        if unicodedata.combining(unicodedata.normalize("NFKD", _character)[0])
    )


def _characters() -> Iterable[str]:
    return (chr(point) for point in MARKS_WITHIN if not 0xD800 <= point < 0xE000)


def _ranges(characters: Iterable[str]) -> str:
    """Return what stands in a set for these characters, which ascend."""
    ranges: list[list[str]] = []
    for character in characters:
        if ranges and ord(character) == ord(ranges[-1][1]) + 1:
            ranges[-1][1] = character
        else:
            ranges.append([character, character])
    return "".join(f"{first}-{last}" for first, last in ranges)
