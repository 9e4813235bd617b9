"""The sending side of a link: what goes over it, in which order, and what is said of what does not."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from federation.links.forwarding_filter import ForwardingFilter, Position, PositionIndex
from federation.messages import LinkRecord
from federation.site.acceptance import Acceptance
from federation.site.state import SiteState
from waypost.identity import Incarnation, Origin, ProxyId, SessionId, SiteId
from waypost.limits import MAX_SITES_PASSED
from waypost.notification import Notification
from waypost.records import (
    Damaged,
    Effective,
    FiltersRequested,
    Forwarded,
    InterestRegistered,
    LinkLed,
    OriginEnded,
    Progress,
    Published,
    Record,
    RequestPart,
    Severed,
    TreeEntered,
)

A, B, C = SiteId("A"), SiteId("B"), SiteId("C")
D, E, FROM_E = SiteId("D"), SiteId("E"), Origin("E/0")
OWN, FROM_B, FROM_C = Origin("A/0"), Origin("B/0"), Origin("C/0")
X = "n > 0"


def published(number: int) -> Published:
    return Published(
        producer="p", incarnation=Incarnation("i"), sequence=number, at_ms=0, body=Notification({"n": number}).body
    )


def forwarded(offset: int, path: tuple[SiteId, ...] = (C,), origin: Origin = FROM_C, link: SiteId = C) -> Forwarded:
    return Forwarded(
        link=link,
        link_epoch=1,
        origin=origin,
        offset=offset,
        path=path,
        producer="p",
        incarnation=Incarnation("i"),
        sequence=0,
        at_ms=0,
        body=Notification({"n": 1}).body,
    )


class Link:
    """A's log, and its link to B."""

    def __init__(self, *records: Record) -> None:
        self.records: list[Record] = []
        self.state = SiteState(A, (B, C))
        self.append(*records)

    def append(self, *records: Record) -> None:
        for record in records:
            self.state.fold(len(self.records), record)
            self.records.append(record)

    def open(self, far: Mapping[Origin, int], *, at: int | None = None) -> ForwardingFilter:
        """Open the link as of position `at`, from the beginning of the log."""
        state = SiteState(A, (B, C))
        for offset, record in enumerate(self.records[:at]):
            state.fold(offset, record)
        return ForwardingFilter(state, B, 7, far, Position(0, Acceptance(A)))

    def send(self, sender: ForwardingFilter) -> list[LinkRecord]:
        out: list[LinkRecord] = []
        for offset, record in enumerate(self.records):
            out += sender.step(offset, record)
        return out


def sent_from(first: int, sender: ForwardingFilter, log: list[Record]) -> list[LinkRecord]:
    """Return what a sender sends for a log from this offset on, with the progress markers of the pause behind it."""
    out: list[LinkRecord] = []
    for offset in range(first, len(log)):
        out += sender.step(offset, log[offset])
    return out + sender.progress_markers()


def brief(records: list[LinkRecord]) -> list[tuple[str, str, int]]:
    """Return kind, origin and number of each."""
    out = []
    for record in records:
        match record:
            case Forwarded():
                out.append(("forwarded", record.origin, record.offset))
            case Progress():
                out.append(("progress", record.origin, record.upto))
            case Effective():
                out.append(("effective", record.origin, record.above))
    return [(kind, str(origin), number) for kind, origin, number in out]


def test_matching_record_is_forwarded_with_the_leaders_epoch_and_the_own_site_on_its_path() -> None:
    link = Link(FiltersRequested(B, 7, 1, {X: 3}), published(5))
    (sent,) = [record for record in link.send(link.open({}, at=1)) if isinstance(record, Forwarded)]
    assert (sent.link, sent.link_epoch, sent.origin, sent.offset, sent.path) == (A, 7, OWN, 1, (A,))


def test_filter_of_a_later_language_may_want_everything() -> None:
    link = Link(FiltersRequested(B, 7, 1, {"n ~~> 7": 3}), published(5))
    assert brief(link.send(link.open({}, at=1))) == [("forwarded", "A/0", 1)]


def test_records_that_do_not_match_are_covered_by_progress_in_a_pause() -> None:
    link = Link(FiltersRequested(B, 7, 1, {X: 3}), published(5), published(-1), published(-2))
    sender = link.open({}, at=1)
    assert brief(link.send(sender)) == [("forwarded", "A/0", 1)]
    assert brief(sender.progress_markers()) == [("progress", "A/0", 3)]
    assert sender.progress_markers() == []


def test_progress_is_spoken_only_where_it_says_more_than_the_last_record() -> None:
    link = Link(FiltersRequested(B, 7, 1, {X: 3}), published(-1), published(5))
    sender = link.open({}, at=1)
    link.send(sender)
    assert sender.progress_markers() == []


def test_markers_alone_are_no_progress() -> None:
    link = Link(FiltersRequested(B, 7, 1, {X: 3}), published(5))
    sender = link.open({}, at=1)
    link.send(sender)
    sender.progress_markers()
    assert sender.step(2, InterestRegistered(ProxyId("a1"), Incarnation("1"), SessionId("s"), (X,))) == []
    assert sender.progress_markers() == []


def test_a_link_resumes_from_the_far_frontier() -> None:
    link = Link(FiltersRequested(B, 7, 1, {X: 3}), *(published(n) for n in (1, 2, -3, 4)))
    sender = link.open({OWN: 2})
    assert brief(link.send(sender)) == [("forwarded", "A/0", 4)]
    assert sender.progress_markers() == []


def test_records_removed_from_the_log_are_announced_as_not_covered_and_then_skipped() -> None:
    link = Link(
        FiltersRequested(B, 7, 1, {X: 3}), published(1), published(2), published(3), published(4), published(-5)
    )

    def records_of(far: int, first: int) -> list[LinkRecord]:
        sender = ForwardingFilter(link.state, B, 7, {OWN: far}, Position(first, Acceptance(A), gone=True))
        return sender.hello() + sent_from(first, sender, link.records)

    kept = [("forwarded", "A/0", 4), ("progress", "A/0", 5)]
    assert brief(records_of(1, 4)) == [("effective", "A/0", 5), *kept]
    assert brief(records_of(3, 4)) == [("effective", "A/0", -1), *kept], "it has all that was removed"
    assert brief(records_of(1, 6)) == [("effective", "A/0", 5), ("progress", "A/0", 5)], "nothing is left"


def test_records_of_another_origin_removed_from_the_log_are_told_although_the_own_ones_are_all_there() -> None:
    """A link had broken off after the marker of this log, and before that of the other origin."""
    link = Link(FiltersRequested(B, 7, 1, {X: 3}), forwarded(4), forwarded(6), published(3), forwarded(9), published(4))

    def records_of(far: int, first: int) -> list[LinkRecord]:
        sender = ForwardingFilter(
            link.state, B, 7, {OWN: first - 1, FROM_C: far}, Position(first, Acceptance(A), gone=True)
        )
        return sent_from(first, sender, link.records)

    def severed(records: list[LinkRecord]) -> list[tuple[Origin, ...]]:
        return [record.origins for record in records if isinstance(record, Severed)]

    lacking, whole, none_left = records_of(4, 3), records_of(6, 2), records_of(4, 5)
    assert severed(lacking) == [(FROM_C,)]
    assert brief(lacking) == [
        ("forwarded", "A/0", 3),
        ("forwarded", "C/0", 9),
        ("forwarded", "A/0", 5),
    ]
    assert severed(whole) == [], "the log's first record of it is there already"
    assert severed(none_left) == [(FROM_C,)]
    assert brief(none_left) == [("forwarded", "A/0", 5), ("progress", "C/0", 9)]
    assert severed(records_of(9, 5)) == [], "it has all"


def resumed(state: SiteState, log: list[Record], far: Mapping[Origin, int], first: int) -> list[LinkRecord]:
    """Return what goes to B from a log that begins at `first` by now."""
    sender = ForwardingFilter(state, B, 7, far, Position(first, Acceptance(A), gone=True))
    return sent_from(first, sender, log)


def test_nothing_is_announced_above_the_own_frontier_where_the_logs_beginning_is_gone() -> None:
    """The far site would take it for an offset that this log had, and has lost: a log epoch would end for nothing."""
    ended = OriginEnded(link=C, link_epoch=1, origin=FROM_C, end=3, seen=4, following=Origin("C/0.2"), begins=6)
    link = Link(FiltersRequested(B, 7, 1, {X: 3}), ended, published(1), published(2), ended, Progress(C, 1, FROM_C, 2))
    assert link.state.frontier[OWN] == 3
    records = resumed(link.state, link.records, {OWN: 3, FROM_C: 4, Origin("C/0.2"): 6}, first=2)
    assert not [each for each in records if isinstance(each, Progress) and each.origin == OWN]


def test_origin_that_came_over_another_link_is_told_as_severed_where_the_logs_beginning_is_gone() -> None:
    """Whether the last records of the earlier link still counted stood in what retention has removed."""
    state, log = SiteState(A, (B, C, D)), list[Record]()
    for record in (
        TreeEntered(4, ((A, B), (A, D), (D, E))),
        LinkLed(D, 3, "d"),
        LinkLed(C, 4, "c"),
        TreeEntered(5, ((A, B), (A, C), (C, E))),
        FiltersRequested(B, 7, 1, {X: 3}, part=RequestPart.ALL, tree_epoch=5),
        replace(forwarded(51, (E, D), FROM_E, D), link_epoch=3),
        replace(Progress(D, 3, FROM_E, 60)),
        replace(forwarded(52, (E, C), FROM_E, C), link_epoch=4),
        replace(forwarded(55, (E, C), FROM_E, C), link_epoch=4),
    ):
        state.fold(len(log), record)
        log.append(record)
    assert state.frontier[FROM_E] == 55
    records = resumed(state, log, {OWN: state.frontier[OWN], FROM_E: 50}, first=5)
    assert [each.origins for each in records if isinstance(each, Severed)] == [(FROM_E,)]
    assert max(each.upto for each in records if isinstance(each, Progress) and each.origin == FROM_E) <= 55


def test_a_link_that_resumes_where_nothing_is_missing_says_nothing() -> None:
    link = Link(FiltersRequested(B, 7, 1, {X: 3}), published(1), published(-1))
    sender = link.open({OWN: 2})
    assert link.send(sender) == sender.progress_markers() == []


def test_nothing_goes_back_where_it_came_from() -> None:
    link = Link(FiltersRequested(B, 7, 1, {X: 3}), forwarded(4, (B,), FROM_B, B), Progress(B, 1, FROM_B, 9))
    sender = link.open({}, at=1)
    assert link.send(sender) == sender.progress_markers() == []


def test_record_that_passed_the_far_site_is_only_covered_by_progress() -> None:
    link = Link(FiltersRequested(B, 7, 1, {X: 3}), forwarded(4, (C, B)))
    sender = link.open({}, at=1)
    assert link.send(sender) == []
    assert brief(sender.progress_markers()) == [("progress", "C/0", 4)]


def test_record_without_hops_left_is_only_covered_by_progress() -> None:
    link = Link(
        FiltersRequested(B, 7, 1, {X: 3}), forwarded(4, tuple(SiteId(f"s{n}") for n in range(MAX_SITES_PASSED)))
    )
    sender = link.open({}, at=1)
    assert link.send(sender) == []
    assert brief(sender.progress_markers()) == [("progress", "C/0", 4)]


def test_the_progress_of_a_third_site_is_passed_on() -> None:
    link = Link(FiltersRequested(B, 7, 1, {X: 3}), Progress(C, 1, FROM_C, 9))
    sender = link.open({}, at=1)
    link.send(sender)
    assert brief(sender.progress_markers()) == [("progress", "C/0", 9)]


def test_a_repeat_in_our_log_goes_over_once() -> None:
    link = Link(FiltersRequested(B, 7, 1, {X: 3}), forwarded(4), forwarded(4))
    assert brief(link.send(link.open({}, at=1))) == [("forwarded", "C/0", 4)]


def test_the_filter_in_force_is_that_of_the_records_own_place() -> None:
    """And the announcement stands between the very records that it speaks of."""
    link = Link(
        published(1), FiltersRequested(B, 7, 1, {X: 3}), published(2), FiltersRequested(B, 7, 2, {}), published(3)
    )
    sender = link.open({}, at=0)
    # What was passed over goes first: an announcement above the far site's frontier would speak of a hole.
    assert brief(link.send(sender)) == [("progress", "A/0", 0), ("effective", "A/0", 0), ("forwarded", "A/0", 2)]
    assert brief(sender.progress_markers()) == [("progress", "A/0", 4)]


def test_announcements_in_force_are_said_again_on_every_opening() -> None:
    link = Link(published(1), FiltersRequested(B, 7, 1, {X: 3}))
    sender = link.open({OWN: 0})
    (hello,) = sender.hello()
    assert isinstance(hello, Effective)
    assert (hello.link_epoch, hello.installation, hello.origin, hello.above) == (7, 3, OWN, 0)


def test_filters_requested_between_the_opening_and_the_first_record_are_announced() -> None:
    link = Link(published(1), FiltersRequested(B, 7, 1, {}), FiltersRequested(B, 7, 2, {X: 3}))
    assert [
        effective.installation for effective in link.open({OWN: 0}).hello() if isinstance(effective, Effective)
    ] == [3]


def test_a_sender_folds_its_own_copy() -> None:
    link = Link(FiltersRequested(B, 7, 1, {X: 3}))
    sender = ForwardingFilter(link.state, B, 7, {}, Position(0, Acceptance(A)))
    before = link.state.snapshot()
    assert brief(sender.step(1, published(1))) == [("forwarded", "A/0", 1)]
    assert link.state.snapshot() == before


def test_an_index_knows_where_to_begin_to_read_beyond_a_frontier() -> None:
    index, acceptance = PositionIndex(every=2), Acceptance(A)
    for offset in range(10):
        acceptance.advance(offset, published(1))
        index.note(offset + 1, acceptance)
    found = index.position_for({OWN: 6})
    assert found is not None and found.offset == 7
    assert found.acceptance.frontier == {OWN: 6}
    assert index.position_for({}) is None


def test_the_filters_of_a_record_are_those_in_force_at_its_position_however_many() -> None:
    many = {f"n == {number}": number for number in range(50)}
    # Two texts of one expression, of which one goes.
    later = {"n == 5": 5, "n  ==  7": 60, "n == 60": 61}
    link = Link(FiltersRequested(B, 7, 1, many | {"n  ==  7": 60}), published(7), published(60), published(49))
    link.append(FiltersRequested(B, 7, 2, later), published(7), published(60), published(49), published(5))
    sender = link.open({}, at=0)
    assert [offset for kind, _, offset in brief(link.send(sender)) if kind == "forwarded"] == [1, 3, 5, 6, 8]


def test_what_was_whole_when_it_was_folded_and_is_damaged_when_it_is_read_again_is_passed_over() -> None:
    """The far site is told that something may be missing, and then how far each origin has come all the same."""
    link = Link(published(1), FiltersRequested(B, 7, 1, {X: 3}), forwarded(5), published(2))
    sender = link.open({})
    link.records[2] = Damaged("its checksum is wrong")
    chunk = [*link.send(sender), *sender.progress_markers()]
    kinds = [type(record) for record in chunk]
    assert Severed in kinds and kinds.index(Severed) < kinds.index(Progress)
    assert ("progress", "C/0", 5) in brief(chunk)
