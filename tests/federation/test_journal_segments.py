"""When the next part of a journal begins, and what is said then of the parts before it."""

from __future__ import annotations

import pytest

from federation.journal_segments import JournalSegments, Rotation
from waypost.facts import Fact, FactKind, encode_fact
from waypost.limits import JOURNAL_NAMES_BYTES, JOURNAL_SEGMENT

SMALL = Rotation(segment_bytes=100)


def fact(writer: str, number: int) -> Fact:
    return Fact(writer=writer, number=number, at_ms=0, kind=FactKind.OPENED)


@pytest.mark.parametrize(
    ("text", "rotation"),
    [
        ("off", Rotation()),
        ("256MiB", Rotation(segment_bytes=256 << 20)),
        ("2GiB", Rotation(segment_bytes=2 << 30)),
        ("12h", Rotation(age_s=43_200)),
        ("7d", Rotation(age_s=604_800)),
    ],
)
def test_a_rotation_is_a_size_an_age_or_off(text: str, rotation: Rotation) -> None:
    assert Rotation.parse(text) == rotation
    assert Rotation.parse(JOURNAL_SEGMENT).is_on


@pytest.mark.parametrize("text", ["", "on", "0", "256", "256MB", "-1d", "1KiB", "59s", "1.5GiB", " 1d"])
def test_text_that_is_no_rotation_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"neither off, nor a size|at least"):
        Rotation.parse(text)


def test_without_a_rotation_no_part_ever_begins() -> None:
    parts = JournalSegments("a", Rotation())
    for number in range(1, 100):
        assert parts.begin_if_due(1 << 30, 0, number * 1e9) is None
        parts.wrote([fact("w", number)], 1 << 30)


def test_fact_larger_than_a_segment_is_a_segment_of_its_own() -> None:
    parts = JournalSegments("a", SMALL)
    for number in range(1, 4):
        begin = parts.begin_if_due(1_000, 0, 0)
        assert begin is not None and begin.number == number
        parts.wrote([fact("w", number)], 1_000)


def test_segment_start_has_the_last_number_of_each_writer_and_of_the_segments() -> None:
    parts = JournalSegments("a", SMALL)
    first = parts.begin_if_due(60, 7, 0)
    assert first is not None and (first.writer, first.number, first.at_ms, first.frontier) == ("journal/a", 1, 7, {})
    # A relayed fact may come late, behind one of a higher number.
    parts.wrote([fact("w", 1), fact("r", 5), fact("r", 4)], 60)
    second = parts.begin_if_due(60, 8, 0)
    assert second is not None and second.frontier == {"w": 1, "r": 5, "journal/a": 1}


def test_failed_segment_start_is_repeated_with_the_next_write() -> None:
    parts = JournalSegments("a", SMALL)
    first = parts.begin_if_due(60, 0, 0)
    parts.failed(first)
    assert parts.begin_if_due(60, 99, 0) == first
    parts.wrote([fact("w", 1)], 60)
    assert parts.begin_if_due(10, 0, 0) is None


def test_very_many_writers_make_no_fact_that_is_too_large() -> None:
    parts = JournalSegments("a", SMALL)
    parts.begin_if_due(1, 0, 0)
    name = "\x01" * 200
    for number in range(5_000):
        parts.wrote([fact(f"receiver/{number}/{name}", 1), fact("proxy", number + 1)], 100)
    begin = parts.begin_if_due(100, 0, 0)
    assert begin is not None and begin.frontier["proxy"] == 5_000
    assert sum(map(len, begin.frontier)) <= JOURNAL_NAMES_BYTES + len(parts.writer)
    assert len(encode_fact(begin)) < 1024 * 1024
