"""A journal in parts: when the next one begins, and what stands at its beginning. Pure.

A journal grows for as long as its proxy lives. So it goes on in parts, and whoever keeps them may put away the oldest.
That must not look like a hole, nor a hole like that: facts of a writer are numbered from 1 on, and each part begins
with a fact that says which part it is, and up to which number of each writer there were facts in the parts before. A
journal whose first part is the third has lost its beginning, as somebody meant; one that has the first and the third
has a hole.

Nothing is removed here. In the embedded form a part is a file; in Kafka, where retention is the topic's own setting, it
is what stands between two of these facts.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from waypost.facts import Fact, FactKind
from waypost.limits import JOURNAL_NAMES_BYTES

_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "s": 1, "h": 3_600, "d": 86_400}
_SMALLEST = {"bytes": 1 << 20, "age": 60}
OFF = "off"


@dataclass(frozen=True, slots=True)
class Rotation:
    """The next part begins when this one has so many bytes, or is so old; None: not for that."""

    segment_bytes: int | None = None
    age_s: float | None = None

    @classmethod
    def parse(cls, text: str) -> Rotation:
        """Return what `256MiB`, `12h` or `off` says. Raises ValueError."""
        if text == OFF:
            return cls()
        found = re.fullmatch(r"(\d{1,12})(KiB|MiB|GiB|s|h|d)", text)
        if found is None:
            raise ValueError(f"{text!r} is neither {OFF}, nor a size like 256MiB, nor an age like 12h or 7d")
        amount = int(found[1]) * _UNITS[found[2]]
        is_size = found[2].endswith("B")
        least = _SMALLEST["bytes" if is_size else "age"]
        if amount < least:
            raise ValueError(f"a part has at least {'1MiB' if is_size else '60s'}")
        return cls(segment_bytes=amount) if is_size else cls(age_s=amount)

    @property
    def is_on(self) -> bool:
        return self.segment_bytes is not None or self.age_s is not None


class JournalSegments:
    """The parts of one journal: which one is being written, and what the ones before it had.

    Args:
        journal: its name; of the embedded form that of its file, of Kafka's that of the process that writes.
    """

    def __init__(self, journal: str, rotation: Rotation) -> None:
        self.writer = f"journal/{journal}"
        self.rotation = rotation
        self.number = 0
        """Of the part that is being written; 0: none was begun."""
        self._size = 0
        self._began_s = 0.0
        self._unwritten: Fact | None = None
        self._upto: OrderedDict[str, int] = OrderedDict()
        self._names_bytes = 0

    def beginning(self, more: int, at_ms: int, now_s: float) -> Fact | None:
        """Return what is to be written before so many bytes more, where a part begins with them; None: none does."""
        fact, self._unwritten = self._unwritten, None
        if fact is not None or not self._is_due(more, now_s):
            return fact
        before = dict(self._upto) | ({self.writer: self.number} if self.number else {})
        self.number += 1
        self._size, self._began_s = 0, now_s
        return Fact(writer=self.writer, number=self.number, at_ms=at_ms, kind=FactKind.ROTATED, frontier=before)

    def failed(self, beginning: Fact | None) -> None:
        """That was perhaps not written: it is what is to be written first the next time, too."""
        self._unwritten = beginning

    def _is_due(self, more: int, now_s: float) -> bool:
        if not self.rotation.is_on:
            return False
        if self.number == 0:
            return True
        size, age = self.rotation.segment_bytes, self.rotation.age_s
        too_large = size is not None and self._size + more > size
        return self._size > 0 and (too_large or (age is not None and now_s - self._began_s >= age))

    def wrote(self, facts: Iterable[Fact], size: int) -> None:
        """So much was written to the present part."""
        self._size += size
        for fact in facts:
            self._note(fact.writer, fact.number)

    def found(self, number: int, facts: Iterable[Fact], now_s: float) -> None:
        """An earlier life has written these, in order, in its last part; nobody knows how old it is."""
        self.number, self._began_s = max(number, self.number), now_s
        for fact in facts:
            if fact.kind == FactKind.ROTATED:
                self.number = max(self.number, fact.number)
                for writer, upto in fact.frontier.items():
                    self._note(writer, upto)
            else:
                self._note(fact.writer, fact.number)

    def _note(self, writer: str, number: int) -> None:
        if writer == self.writer:
            return
        if writer not in self._upto:
            self._names_bytes += len(writer.encode())
        self._upto[writer] = max(number, self._upto.get(writer, 0))
        self._upto.move_to_end(writer)
        while self._names_bytes > JOURNAL_NAMES_BYTES:
            forgotten, _ = self._upto.popitem(last=False)
            self._names_bytes -= len(forgotten.encode())


def segment_name(stem: str, number: int) -> str:
    """Return the name of a part that is no longer written, beside the one that is."""
    return f"{stem}.{number:06}"


def segment_number(stem: str, name: str) -> int | None:
    """Return the number of the part of that name; None: it is none of this journal's."""
    found = re.fullmatch(re.escape(stem) + r"\.(\d{6,})", name)
    return int(found[1]) if found else None
