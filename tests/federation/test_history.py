"""Serving catch-up from the origin's own log: what is in an answer, and how far it speaks."""

from __future__ import annotations

import pytest

from federation.messages import CatchUp, CaughtUp
from federation.site.history import HistoryAnswer
from federation.site.state import SiteState
from waypost.errors import Unreachable
from waypost.identity import Incarnation, Origin, SiteId
from waypost.notification import Notification
from waypost.records import LogBegun, Progress, Published, Record

A = SiteId("A")
OWN = Origin("A/0")


def published(number: int) -> Published:
    return Published(
        producer="p", incarnation=Incarnation("i"), sequence=number, at_ms=0, body=Notification({"n": number}).body
    )


def answer(
    log: dict[int, Record],
    after: int,
    upto: int,
    *,
    most: int = 100,
    most_bytes: int = 10_000,
    state: SiteState | None = None,
) -> CaughtUp:
    """Answer from a log that gives two records at a time and has forgotten what is not there at its beginning."""
    wanted = CatchUp(1, OWN, after, upto, ("n > 0",))
    answering = HistoryAnswer(state or read_state(log), wanted, max_records=most, max_bytes=most_bytes)
    while (offset := answering.wanted_from) is not None:
        if log and offset < min(log):
            answering.truncated(min(log))
        else:
            answering.add([item for item in sorted(log.items()) if item[0] >= offset][:2])
    if answering.mark is not None and answering.mark < min(log):
        answering.removed(min(log))
    elif answering.mark is not None:
        answering.compare([item for item in log.items() if item[0] == answering.mark])
    return answering.answer()


def read_state(log: dict[int, Record]) -> SiteState:
    state = SiteState(A)
    for offset, record in log.items():
        state.fold(offset, record)
        state.acceptance.read(offset, record)
    return state


def log(*numbers: int) -> dict[int, Record]:
    return dict(enumerate(published(number) for number in numbers))


def offsets(answer: CaughtUp) -> list[int]:
    return [record.offset for record in answer.records]


def test_history_answer_has_the_matching_records_between_two_offsets() -> None:
    found = answer(log(1, 2, -3, 4, 5, 6), 0, 4)
    assert (offsets(found), found.through, found.first_kept) == ([1, 3, 4], 4, 0)
    first = found.records[0]
    assert (first.origin, first.path, first.sequence) == (OWN, (A,), 2)


def test_history_answer_skips_records_that_are_no_notifications_of_the_site() -> None:
    found = answer({**log(1, 2), 2: Progress(SiteId("B"), 1, Origin("B/0"), 7)}, -1, 2)
    assert (offsets(found), found.through) == ([0, 1], 2)


def test_a_full_answer_says_how_far_it_came() -> None:
    assert answer(log(1, 2, 3, 4), -1, 3, most=3).through == 2
    assert offsets(answer(log(1, 2, 3, 4), -1, 3, most_bytes=1)) == [0]


def test_answer_over_a_long_range_with_few_matches_is_given_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("federation.site.history.CATCH_UP_RECORDS", 4)
    records = log(*[-1] * 9, 5)
    first = answer(records, -1, 9)
    assert (offsets(first), first.through) == ([], 3)
    second = answer(records, first.through, 9)
    third = answer(records, second.through, 9)
    assert (offsets(third), third.through) == ([9], 9)


def test_an_answer_of_a_log_that_ends_before_speaks_up_to_there() -> None:
    assert answer(log(1, 2, 3), -1, 9).through == 2


def test_history_answer_covers_a_hole_at_the_end_of_its_range() -> None:
    found = answer({0: published(1), 5: published(5)}, -1, 3)
    assert (offsets(found), found.through) == ([0], 3)


def test_history_answer_names_the_first_offset_that_the_log_has_kept() -> None:
    found = answer({4: published(4), 5: published(5)}, 0, 5)
    assert (offsets(found), found.through, found.first_kept) == ([4, 5], 5, 4)
    assert answer({4: published(4)}, 0, 2).through == 2


def test_a_log_that_is_another_one_than_was_read_answers_nothing() -> None:
    """It lost its end and grew again: at these offsets it has what nobody has read there."""
    read, again = log(1, 2, 3, 4, 5), log(1, 20, 30, 40, 50, 60)
    other: list[dict[int, Record]] = [again, log(1, 2, 3), {6: published(7)}]
    state = read_state(read)
    assert offsets(answer(read, 2, 4, state=state)) == [3, 4]
    for there in other:
        with pytest.raises(Unreachable):
            answer(there, 2, 4, state=state)


def test_history_answer_ends_at_the_position_that_the_site_state_has_read() -> None:
    """It may be of a log epoch that begins where the question does not reach."""
    there, begun = log(1, 2, 3), LogBegun(federation="f", identity="i", log_epoch=2, ended={OWN: (2, 2)})
    state = read_state(there)
    grown: dict[int, Record] = {**there, 3: begun, 4: published(5), 5: published(6)}
    with pytest.raises(Unreachable, match="read up to 2 only"):
        answer(grown, 3, 5, state=state)
    found = answer(grown, 0, 5, state=state)
    assert (offsets(found), found.through) == ([1, 2], 2)


def test_history_answer_is_empty_when_every_record_read_was_removed() -> None:
    state = read_state(log(1, 2, 3))
    found = answer({3: published(4)}, -1, 2, state=state)
    assert (offsets(found), found.through, found.first_kept) == ([], 2, 3)
    with pytest.raises(Unreachable, match="begins at 4"):
        answer({4: published(5)}, -1, 2, state=state)


def test_only_our_own_origin_is_served() -> None:
    with pytest.raises(Unreachable):
        HistoryAnswer(SiteState(A), CatchUp(1, Origin("B/0"), 0, 1, ()))
