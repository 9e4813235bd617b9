"""The sending end of a link: what goes over in which message, where it waits, when it speaks of silence."""

from __future__ import annotations

from typing import TypeVar

import pytest

from federation.links.bounds import LinkBounds
from federation.links.effects import LinkEffect, ReadLog, SendNeighbour
from federation.links.forwarding_filter import Position
from federation.links.link_sender import BUSY_MS, HEARTBEAT_MS, QUIET_MS, UNACKNOWLEDGED_TIMEOUT_MS, LinkSender
from federation.links.output import LinkEvent, SendingEnded
from federation.messages import LinkOpen, LinkRecord, LinkRecords
from federation.ports import Batch
from federation.site.acceptance import Acceptance
from federation.site.state import SiteState
from tests.helpers.link_parts import ToTest
from waypost.errors import HistoryTruncated, LogUnavailable, WaypostError
from waypost.identity import Incarnation, Origin, ProxyId, SiteId
from waypost.notification import Notification
from waypost.records import Damaged, Effective, FiltersRequested, Forwarded, Progress, Published, Record

A, B = SiteId("A"), SiteId("B")
OWN, FROM_B = Origin("A/0"), Origin("B/0")
B1 = ProxyId("b1")
X = "n > 0"
BOUNDS = LinkBounds(batch=2, batch_bytes=10_000, window=4, window_bytes=100_000, live=6, read=4)
Kind = TypeVar("Kind")


def published(number: int, fill: int = 0) -> Published:
    return Published(
        producer="p",
        incarnation=Incarnation("i"),
        sequence=number,
        at_ms=0,
        body=Notification({"n": number, "fill": "x" * fill}).body,
    )


class SenderBench:
    """A's end of the link to B, opened when A's log had these records. Time is what a test says."""

    def __init__(self, *records: Record, bounds: LinkBounds = BOUNDS, wanted: str = X) -> None:
        self.now = 1_000
        self.effects: list[LinkEffect] = []
        self.log: list[Record] = [FiltersRequested(B, 7, 1, {wanted: 3}), *records]
        self.state = SiteState(A, (B,))
        for offset, record in enumerate(self.log):
            self.state.fold(offset, record)
        self.ends: list[WaypostError | None] = []
        opening = LinkOpen(site=B, epoch=7, frontier={}, serial=9, digest=0)
        self.link = LinkSender(B1, opening, self.state, ToTest(self.effects.append, self._reported), bounds)

    def _reported(self, event: LinkEvent) -> None:
        assert isinstance(event, SendingEnded)
        self.ends.append(event.error)

    def begin(self, start: int = 0) -> None:
        self.link.begin(Position(start, Acceptance(A)), self.now)

    def began(self) -> list[LinkRecord]:
        """Begin, and return what is said before anything new comes."""
        self.begin(len(self.log))
        return self.sent()

    def fold(self, *records: Record) -> None:
        batch = list(enumerate(records, len(self.log)))
        self.log += records
        for offset, record in batch:
            self.state.fold(offset, record)
        self.link.feed(batch, self.now)

    def read(self) -> None:
        """Answer what is read of the log."""
        (effect,) = self.effects
        self.effects.clear()
        assert isinstance(effect, ReadLog)
        batch = list(enumerate(self.log))[effect.offset : effect.offset + effect.limit]
        effect.on_done(batch, self.now)

    def messages(self) -> list[LinkRecords]:
        out = []
        for effect in self.effects:
            assert isinstance(effect, SendNeighbour), effect
            assert isinstance(effect.message, LinkRecords)
            out.append(effect.message)
        self.effects.clear()
        return out

    def sent(self) -> list[LinkRecord]:
        return [record for message in self.messages() for record in message.records]

    def passes(self, wait_ms: int) -> None:
        """Let time pass as a shell does: it ticks when a tick is due."""
        end = self.now + wait_ms
        while max(due := self.link.next_deadline(), self.now + 1) <= end and not self.ends:
            self.now = max(due, self.now + 1)
            self.link.tick(self.now)
        self.now = max(self.now, end)


def numbers(records: list[LinkRecord]) -> list[int]:
    """Return the offsets of what was forwarded, and those of progress, negative."""
    return [
        record.offset if isinstance(record, Forwarded) else -record.upto
        for record in records
        if isinstance(record, Forwarded | Progress)
    ]


def test_first_message_of_a_link_repeats_the_standing_announcements_even_if_there_are_none() -> None:
    sending = SenderBench()
    sending.begin(1)
    (first,) = sending.messages()
    assert (first.site, first.epoch, first.opening, first.number) == (A, 7, 9, 1)
    assert [record.above for record in first.records if isinstance(record, Effective)] == [-1]
    bare = SenderBench()
    bare.link.opening = LinkOpen(site=SiteId("asked for nothing"), epoch=7, frontier={}, serial=9, digest=0)
    bare.begin(1)
    assert [message.records for message in bare.messages()] == [[]]


def test_folded_records_are_sent_at_once_in_numbered_messages_without_reading_the_log() -> None:
    sending = SenderBench()
    sending.began()
    sending.fold(published(1), published(2), published(3))
    messages = sending.messages()
    assert [message.number for message in messages] == [2, 3]
    assert [numbers(message.records) for message in messages] == [[1, 2], [3]]


def test_link_that_is_behind_reads_the_log_and_continues_with_records_folded_meanwhile() -> None:
    sending = SenderBench(published(1), published(2))
    sending.begin()
    (read,) = [effect for effect in sending.effects if isinstance(effect, ReadLog)]
    sending.effects.remove(read)
    sending.sent()
    sending.fold(published(3))
    assert not sending.effects
    read.on_done(list(enumerate(sending.log))[:3], sending.now)
    assert numbers(sending.sent()) == [1, 2, 3]


@pytest.mark.parametrize("there", ["the same", "another", "none", "removed", "damaged"])
def test_link_sends_what_it_read_only_if_the_log_has_the_record_that_was_folded_last(there: str) -> None:
    """A log that lost its end has grown again, and nobody has told this process (handover rule 27)."""
    sending = SenderBench(published(1), published(2), published(3))
    sending.state.acceptance.read(3, sending.log[3])
    sending.begin()
    (read,) = [effect for effect in sending.effects if isinstance(effect, ReadLog)]
    sending.effects.remove(read)
    sending.sent()
    read.on_done(list(enumerate(sending.log))[:3], sending.now)
    (again,) = sending.effects
    assert isinstance(again, ReadLog) and (again.offset, again.limit) == (3, 1)
    sending.effects.clear()
    answers: dict[str, Batch | WaypostError] = {
        "the same": [(3, sending.log[3])],
        "another": [(3, published(9))],
        "none": [],
        "removed": HistoryTruncated("it begins at 9", first=9),
        "damaged": [(3, Damaged("a bit was turned over"))],
    }
    again.on_done(answers[there], sending.now)
    if there in ("another", "none"):
        assert [type(error) for error in sending.ends] == [LogUnavailable] and not sending.effects
    else:
        sending.effects[:] = [effect for effect in sending.effects if not isinstance(effect, ReadLog)]
        assert numbers(sending.sent()) == [1, 2] and not sending.ends


def test_a_reading_that_finds_nothing_is_not_tried_again_at_once() -> None:
    sending = SenderBench(published(1))
    sending.begin()
    (read,) = [effect for effect in sending.effects if isinstance(effect, ReadLog)]
    sending.effects.clear()
    read.on_done([], sending.now)
    assert not sending.effects
    sending.passes(HEARTBEAT_MS)
    assert any(isinstance(effect, ReadLog) for effect in sending.effects)


def test_link_with_a_full_window_waits_for_an_append_of_the_far_log() -> None:
    sending = SenderBench()
    sending.began()
    sending.link.appended(1, sending.now)
    sending.fold(*(published(number) for number in range(1, 7)))
    assert numbers(sending.sent()) == [1, 2, 3, 4]
    sending.link.appended(2, sending.now)
    assert numbers(sending.sent()) == [5, 6]


def test_link_waits_when_the_window_is_full_of_bytes() -> None:
    sending = SenderBench(bounds=LinkBounds(batch_bytes=4_000, window_bytes=10_000))
    sending.began()
    sending.fold(*(published(number, fill=3_900) for number in range(1, 7)))
    assert numbers(sending.sent()) == [1, 2, 3]
    sending.link.appended(1 + 2, sending.now)
    assert numbers(sending.sent()) == [4, 5]


def test_a_shut_window_is_silent_so_that_the_far_side_opens_again() -> None:
    sending = SenderBench()
    sending.began()
    sending.fold(*(published(number) for number in range(1, 7)))
    sending.sent()
    sending.passes(UNACKNOWLEDGED_TIMEOUT_MS - 1)
    assert not sending.messages()


def test_records_kept_while_a_link_waits_are_bounded_and_the_rest_is_read_from_the_log() -> None:
    sending = SenderBench()
    sending.began()
    sending.link.appended(1, sending.now)
    for number in range(1, 12):
        sending.fold(published(number))
    assert numbers(sending.sent()) == [1, 2, 3, 4]
    got: list[int] = []
    while len(got) < 7:
        sending.link.appended(1, sending.now)
        if any(isinstance(effect, ReadLog) for effect in sending.effects):
            sending.effects[:] = [effect for effect in sending.effects if isinstance(effect, ReadLog)]
            sending.read()
        got += numbers(sending.sent())
    assert got == [5, 6, 7, 8, 9, 10, 11]


def test_link_sends_progress_for_skipped_records_after_a_quiet_period() -> None:
    sending = SenderBench()
    sending.began()
    sending.fold(published(1))
    sending.fold(published(-1))
    assert numbers(sending.sent()) == [1]
    sending.passes(QUIET_MS)
    assert numbers(sending.sent()) == [-2]
    sending.passes(QUIET_MS)
    assert not sending.effects


def test_markers_wait_in_line_with_the_records_that_they_speak_of() -> None:
    """Before them they would say that what waits had been passed over."""
    sending = SenderBench()
    sending.began()
    sending.link.appended(1, sending.now)
    sending.fold(*(published(number) for number in (1, 2, 3, 4, 5, -1)))
    assert numbers(sending.sent()) == [1, 2, 3, 4]
    sending.passes(QUIET_MS)
    assert not sending.effects
    sending.link.appended(4, sending.now)
    assert numbers(sending.sent()) == [5, -6]


def test_while_there_is_always_something_to_read_it_speaks_of_silence_now_and_then() -> None:
    sending = SenderBench(bounds=LinkBounds())
    sending.began()
    announced = []
    for _ in range(50):
        sending.fold(published(-1))
        announced += numbers(sending.sent())
        sending.passes(QUIET_MS // 2)
    assert 50 * (QUIET_MS // 2) // BUSY_MS - 1 <= len(announced) <= 50 * (QUIET_MS // 2) // BUSY_MS + 1


def test_link_sends_heartbeats_while_its_log_is_busy_with_records_of_the_far_side() -> None:
    sending = SenderBench()
    sending.began()
    silent_ms = 0
    for upto in range(100):
        sending.fold(Progress(B, 1, FROM_B, upto))
        sending.passes(QUIET_MS + 30)
        silent_ms = 0 if sending.messages() else silent_ms + QUIET_MS + 30
        assert silent_ms <= HEARTBEAT_MS


def test_when_its_log_fails_it_ends() -> None:
    sending = SenderBench(published(1))
    sending.begin()
    read = sending.effects.pop()
    assert isinstance(read, ReadLog)
    error = LogUnavailable("no answer")
    read.on_done(error, sending.now)
    assert sending.ends == [error]


def test_a_far_leader_that_acknowledges_nothing_is_given_up() -> None:
    sending = SenderBench()
    sending.began()
    sending.passes(UNACKNOWLEDGED_TIMEOUT_MS)
    assert sending.ends == [None]
    idle = SenderBench()
    idle.began()
    idle.link.appended(1, idle.now)
    idle.passes(2 * UNACKNOWLEDGED_TIMEOUT_MS)
    assert not idle.ends


def test_closed_link_sends_no_message() -> None:
    sending = SenderBench(published(1))
    sending.begin()
    read = sending.effects.pop()
    assert isinstance(read, ReadLog)
    sending.sent()
    sending.link.close()
    read.on_done(list(enumerate(sending.log)), sending.now)
    read.on_done(LogUnavailable("no answer"), sending.now)
    assert not sending.effects and not sending.ends


def test_filters_that_take_long_are_looked_at_a_record_at_a_time_and_others_have_their_turn() -> None:
    texts = ", ".join(f'"text {number}"' for number in range(20))
    costly = f"n > 0 || contains(fill, {texts})"
    bounds = LinkBounds(batch=100, batch_bytes=10_000_000, window=100, window_bytes=10_000_000, live=100, read=100)
    records = [published(number + 1, 200_000) for number in range(6)]
    sending = SenderBench(*records[:3], bounds=bounds, wanted=costly)
    sending.begin(1)
    sending.effects[:] = [effect for effect in sending.effects if isinstance(effect, ReadLog)]
    sending.read()
    sending.fold(*records[3:])
    given = [numbers(sending.sent())]
    while len(given) < 7 and sending.link.next_deadline() <= sending.now:
        sending.link.tick(sending.now)
        given.append(numbers(sending.sent()))
    # One that is looked at first costs nothing: the filters are put together with it.
    assert [offset for each in given for offset in each] == [1, 2, 3, 4, 5, 6]
    assert max(map(len, given)) <= 2 and len(given) >= 4
