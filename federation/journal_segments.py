"""A journal in parts: when the next one begins, and the fact at its beginning. Pure.

A journal grows for as long as its proxy lives. So it is in parts, and an operator may remove the oldest. That must be
told from a hole: the facts of a writer are numbered from 1 on, and each part begins with a fact that has the number of
the part, and the highest number of each writer in the parts before. A journal whose first part is the third has lost
its beginning, on purpose; one that has the first and the third has a hole.

Nothing is removed here. In the embedded form a part is a file; in Kafka, where retention is the topic's own setting, it
is the facts between two of these.
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
    """The bounds of a part in bytes and in seconds, at which the next one begins; None: no bound."""

    segment_bytes: int | None = None
    age_s: float | None = None

    @classmethod
    def parse(cls, text: str) -> Rotation:
        """Return the rotation that a text states: a size (`256MiB`; KiB, MiB, GiB), an age (`12h`; s, h, d), or `off`.

        Raises:
            ValueError: the text has none of these forms, or states less than 1MiB or 60s.
        """
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
        """Whether a journal with this rotation is in parts: it has a bound."""
        return self.segment_bytes is not None or self.age_s is not None


class JournalSegments:
    """The parts of one journal: the number of the one being written, and the facts of those before.

    Args:
        journal: its name; in the embedded form that of its file, in Kafka that of the process that writes.
        rotation: when a part ends.
    """

    def __init__(self, journal: str, rotation: Rotation) -> None:
        self.writer = f"journal/{journal}"
        self.rotation = rotation
        self.number = 0
        """The number of the part being written; 0: none was begun."""
        self._size = 0
        self._began_s = 0.0
        self._unwritten: Fact | None = None
        self._upto: OrderedDict[str, int] = OrderedDict()
        self._names_bytes = 0

    def begin_if_due(self, more: int, at_ms: int, now_s: float) -> Fact | None:
        """Begin the next part if one is due, by the rotation; return the fact to be written before those of the next
        write; None: no part begins, and none is unwritten.

        Call it once before each write; then :meth:`wrote` for that write, and :meth:`failed` if the fact may not have
        been written. Nothing is written here. One write at a time: of two that fail together only the last one's fact
        would be written again.

        The fact states the highest number of each writer in the parts before. Where the names of writers take more than
        JOURNAL_NAMES_BYTES bytes together, those that wrote longest ago are left out. A part without bytes is not
        followed by another one.

        Args:
            more: the number of bytes of the next write, without that fact.
            at_ms: Unix time, for the fact.
            now_s: of the caller's clock, for the age of the part.
        """
        fact, self._unwritten = self._unwritten, None
        if fact is not None or not self._is_due(more, now_s):
            return fact
        before = dict(self._upto) | ({self.writer: self.number} if self.number else {})
        self.number += 1
        self._size, self._began_s = 0, now_s
        return Fact(writer=self.writer, number=self.number, at_ms=at_ms, kind=FactKind.ROTATED, frontier=before)

    def failed(self, beginning: Fact | None) -> None:
        """Record that the write of this fact failed, or may have: :meth:`begin_if_due` returns it the next time, too.

        Args:
            beginning: what :meth:`begin_if_due` returned for that write; None: it began no part, and what an
                earlier call recorded stays.
        """
        self._unwritten = beginning or self._unwritten

    def _is_due(self, more: int, now_s: float) -> bool:
        if not self.rotation.is_on:
            return False
        if self.number == 0:
            return True
        size, age = self.rotation.segment_bytes, self.rotation.age_s
        too_large = size is not None and self._size + more > size
        return self._size > 0 and (too_large or (age is not None and now_s - self._began_s >= age))

    def wrote(self, facts: Iterable[Fact], size: int) -> None:
        """Record that these facts were written to the present part, and that it grew by `size` bytes; facts of a number
        that was recorded already only add their bytes.

        Args:
            facts: of any writers, or none; the journal's own need not be among them.
            size: the bytes that the part grows by. Those of the fact that begins a part may be counted too, in this
                call or in another one.
        """
        self._size += size
        for fact in facts:
            self._note(fact.writer, fact.number)

    def found(self, number: int, facts: Iterable[Fact], now_s: float) -> None:
        """Take over the last part that an earlier process has written: its number, and the facts in it. Call it before
        the first :meth:`begin_if_due`.

        Args:
            number: of that part; if that is not known, of the last finished part: the facts state a higher one
                themselves.
            facts: all facts of the part, in order.
            now_s: of the caller's clock, from which the age of the part is counted, because the true one is unknown.
        """
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
    """Return the name, without suffix, of the file of a finished part of a journal.

    Args:
        stem: the name, without suffix, of the file of the part being written.
        number: of the finished part.
    """
    return f"{stem}.{number:06}"


def segment_number(stem: str, name: str) -> int | None:
    """Return the number of the finished part whose file has this name; None: no finished part of this journal has it.

    Args:
        stem: the name, without suffix, of the file of the part being written.
        name: the name of a file, without suffix.
    """
    found = re.fullmatch(re.escape(stem) + r"\.(\d{6,})", name)
    return int(found[1]) if found else None
