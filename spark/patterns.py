r"""Patterns of the subscription language for Java's regular expressions, which Spark runs.

The language takes RE2's dialect, where `.` matches a newline too. Java's differs in small ways: `$` also
matches before a last newline, `.` knows five line ends, `\s` has a vertical tab, `\b` goes by Unicode, `&&`
and `[` mean something inside a set. So nothing is passed through: each piece is parsed as RE2 parses it, and
written in a form that is unambiguous in Java. Captures, laziness and the flag U do not change whether a
pattern is found, and are dropped.

Known to differ: `\C` is refused; tables of Unicode have Java's version, also for case under `(?i)`.
Source: RE2's syntax page, https://github.com/google/re2/wiki/Syntax.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

_ANY = r"[\x{0}-\x{10FFFF}]"
_NO_NEWLINE = r"[^\x{A}]"
_WORD = "0-9A-Za-z_"
_BOUNDARY = rf"(?:(?<=[{_WORD}])(?![{_WORD}])|(?<![{_WORD}])(?=[{_WORD}]))"
_NO_BOUNDARY = rf"(?:(?<=[{_WORD}])(?=[{_WORD}])|(?<![{_WORD}])(?![{_WORD}]))"

_ASSERTIONS = {"A": r"\A", "z": r"\z", "b": _BOUNDARY, "B": _NO_BOUNDARY}
_CLASSES = {"d": "0-9", "w": _WORD, "s": r"\x{9}\x{A}\x{C}\x{D}\x{20}"}
_CONTROLS = {"a": 7, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x{0}-\x{7F}",
    "blank": r"\x{9}\x{20}",
    "cntrl": r"\x{0}-\x{1F}\x{7F}",
    "digit": "0-9",
    "graph": r"\x{21}-\x{7E}",
    "lower": "a-z",
    "print": r"\x{20}-\x{7E}",
    "punct": r"\x{21}-\x{2F}\x{3A}-\x{40}\x{5B}-\x{60}\x{7B}-\x{7E}",
    "space": r"\x{9}-\x{D}\x{20}",
    "upper": "A-Z",
    "word": _WORD,
    "xdigit": "0-9A-Fa-f",
}

_GROUP = re.compile(r"\(\?(?:P?<\w+>|(?P<flags>[imsU]*(?:-[imsU]*)?)(?P<end>[:)]))")
_REPEAT = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})\??")
_HEXADECIMAL = re.compile(r"x(?:\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{2}))")
_OCTAL = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}")
_PROPERTY = re.compile(r"([pP])(?:\{(\^?)(\w+)\}|(\w))")
_POSIX_NAME = re.compile(r"\[:(\^?)(\w+):\]")


class Untranslatable(Exception):
    """A pattern has no form for Java's engine."""


def from_regex(pattern: str) -> str:
    """Return Java's form of a valid pattern of RE2, to be searched for in a text. Raises Untranslatable."""
    return _Reader(pattern).translated()


def from_wildcard(pattern: str) -> str:
    """Return Java's form of a valid wildcard pattern. A search for it in a text finds the text as a whole or nothing;
    `*` and `?` match no newline.
    """
    pieces, offset = [], 0
    while offset < len(pattern):
        piece, offset = _wildcard_piece(pattern, offset)
        pieces.append(piece)
    return rf"\A(?:{''.join(pieces)})\z"


# ---------------------------------------------------------------- regular expressions


@dataclass(frozen=True, slots=True)
class _Flags:
    dot_matches_newline: bool = True
    many_lines: bool = False


class _Reader:
    """Reads one pattern from left to right; flags last until their group ends."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.offset = 0
        self.flags = _Flags()
        self.outer: list[_Flags] = []

    def translated(self) -> str:
        pieces = []
        while self.offset < len(self.pattern):
            pieces.append(self._piece())
        return "".join(pieces)

    def _take(self, found: re.Match[str]) -> re.Match[str]:
        self.offset = found.end()
        return found

    def _piece(self) -> str:
        if found := _REPEAT.match(self.pattern, self.offset):
            return self._take(found)[0]
        character = self.pattern[self.offset]
        match character:
            case "(":
                return self._group()
            case "\\":
                return self._escape()
            case "[":
                return self._set()
            case _:
                pass
        self.offset += 1
        return self._single(character)

    def _single(self, character: str) -> str:
        match character:
            case ")":
                self.flags = self.outer.pop()
                return ")"
            case "|":
                return "|"
            case ".":
                return _ANY if self.flags.dot_matches_newline else _NO_NEWLINE
            case "^":
                return r"(?:\A|(?<=\x{A}))" if self.flags.many_lines else r"\A"
            case "$":
                return r"(?:\z|(?=\x{A}))" if self.flags.many_lines else r"\z"
            case _:
                pass
        return _quoted(ord(character))

    def _group(self) -> str:
        found = _GROUP.match(self.pattern, self.offset)
        if found is None:
            self.offset += 1
            self.outer.append(self.flags)
            return "(?:"
        self._take(found)
        if found["end"] != ")":
            self.outer.append(self.flags)
        return self._with_flags(found["flags"] or "", found["end"] or ":")

    def _with_flags(self, letters: str, end: str) -> str:
        on, _, off = letters.partition("-")
        for letter, name in (("s", "dot_matches_newline"), ("m", "many_lines")):
            if letter in on + off:
                self.flags = replace(self.flags, **{name: letter in on})
        case = "iu" if "i" in on else "-iu" if "i" in off else ""
        return f"(?{case}{end}" if case or end == ":" else "(?:)"

    def _escape(self) -> str:
        letter = self.pattern[self.offset + 1]
        if letter == "Q":
            return self._quotation()
        if letter in _ASSERTIONS:
            self.offset += 2
            return _ASSERTIONS[letter]
        return f"[{self._escaped_member()[0]}]"

    def _quotation(self) -> str:
        text, _, _ = self.pattern[self.offset + 2 :].partition(r"\E")
        self.offset += len(text) + 4
        return "".join(_quoted(ord(character)) for character in text)

    # ---- sets

    def _set(self) -> str:
        """Write a set as a union of simple ones; a negated one as "not one of these, but anything"."""
        self.offset += 1
        negated = self.pattern.startswith("^", self.offset)
        self.offset += negated
        members = [self._member()]
        while self.pattern[self.offset] != "]":
            members.append(self._member())
        self.offset += 1
        inside = "".join(members)
        return f"(?:(?![{inside}]){_ANY})" if negated else f"[{inside}]"

    def _member(self) -> str:
        if found := _POSIX_NAME.match(self.pattern, self.offset):
            self._take(found)
            return _union(_POSIX[found[2]], bool(found[1]))
        first, point = self._character()
        follows = self.pattern[self.offset : self.offset + 2]
        if point is None or follows[:1] != "-" or follows[1:] == "]":
            return first
        self.offset += 1
        return f"{first}-{self._character()[0]}"

    def _character(self) -> tuple[str, int | None]:
        """Return what stands here in a set, and its code point if it is one character."""
        if self.pattern[self.offset] == "\\":
            return self._escaped_member()
        point = ord(self.pattern[self.offset])
        self.offset += 1
        return _quoted(point), point

    def _escaped_member(self) -> tuple[str, int | None]:
        start = self.offset + 1
        letter = self.pattern[start]
        if letter.lower() in _CLASSES:
            self.offset += 2
            return _union(_CLASSES[letter.lower()], letter.isupper()), None
        if found := _PROPERTY.match(self.pattern, start):
            self._take(found)
            return _property(found[3] or found[4], negated=(found[1] == "P") != bool(found[2])), None
        point = self._code_point(start, letter)
        return _quoted(point), point

    def _code_point(self, start: int, letter: str) -> int:
        if found := _HEXADECIMAL.match(self.pattern, start):
            self._take(found)
            return int(found[1] or found[2], 16)
        if found := _OCTAL.match(self.pattern, start):
            return int(self._take(found)[0], 8)
        self.offset += 2
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter.isascii() and letter.isalnum():
            raise Untranslatable(f"\\{letter} has no like in Java")
        return ord(letter)


def _quoted(point: int) -> str:
    character = chr(point)
    return character if character.isascii() and character.isalnum() else rf"\x{{{point:X}}}"


def _union(members: str, negated: bool) -> str:
    return f"[^{members}]" if negated else members


def _property(name: str, negated: bool) -> str:
    if name == "Any":
        return "[^" + _ANY[1:] if negated else _ANY
    java = name if len(name) <= 2 else f"Is{name}"
    return rf"\{'P' if negated else 'p'}{{{java}}}"


# ---------------------------------------------------------------- wildcards


def _wildcard_piece(pattern: str, offset: int) -> tuple[str, int]:
    match pattern[offset]:
        case "*":
            return f"{_NO_NEWLINE}*", offset + 1
        case "?":
            return _NO_NEWLINE, offset + 1
        case "[":
            return _wildcard_set(pattern, offset + 1)
        case _:
            pass
    point, offset = _wildcard_character(pattern, offset)
    return _quoted(point), offset


def _wildcard_character(pattern: str, offset: int) -> tuple[int, int]:
    """Read a character; a backslash quotes the next one, and is itself at the end."""
    if pattern[offset] == "\\" and offset + 1 < len(pattern):
        return ord(pattern[offset + 1]), offset + 2
    return ord(pattern[offset]), offset + 1


def _wildcard_set(pattern: str, offset: int) -> tuple[str, int]:
    negation = "^" if pattern.startswith("^", offset) else ""
    offset += len(negation)
    members = []
    while pattern[offset] != "]":
        first, offset = _wildcard_character(pattern, offset)
        member = _quoted(first)
        if pattern[offset] == "-" and pattern[offset + 1] != "]":
            last, offset = _wildcard_character(pattern, offset + 1)
            member = f"{member}-{_quoted(last)}"
        members.append(member)
    return f"[{negation}{''.join(members)}]", offset + 1
