"""What each record of a site log means, rule by rule."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest

from federation.site.events import (
    Advanced,
    Announced,
    Covered,
    EndedAnnounced,
    Event,
    InterestChanged,
    InterestWithdrawn,
    Interrupted,
    NotificationArrived,
    OriginClosed,
    RegistrationsExpired,
    SeveranceAnnounced,
    WantsChanged,
)
from federation.site.state import SiteState, read_snapshot
from waypost.identity import NOTHING, Incarnation, Origin, ProxyId, SessionId, SiteId, origin_of
from waypost.keys import OPEN, SIDES, Key, Protection
from waypost.limits import LINK_KEYS
from waypost.records import (
    Closed,
    Effective,
    FiltersRequested,
    Forwarded,
    InterestRegistered,
    InterestsExpired,
    LogBegun,
    OriginEnded,
    Progress,
    Published,
    Record,
)

A, B, C, D = SiteId("A"), SiteId("B"), SiteId("C"), SiteId("D")
OWN, FROM_B, FROM_C = Origin("A/0"), Origin("B/0"), Origin("C/0")
X, Y = "n > 0", "m > 1"
NARROW, OTHER = "n == 3", "n == 5"
"""Two that X covers."""


def published() -> Published:
    return Published(producer="p", incarnation=Incarnation("i"), sequence=0, at_ms=0, body=b"\x80")


def forwarded(offset: int, epoch: int = 1, origin: Origin = FROM_B, link: SiteId = B) -> Forwarded:
    return Forwarded(
        link=link,
        link_epoch=epoch,
        origin=origin,
        offset=offset,
        path=(B,),
        producer="p",
        incarnation=Incarnation("i"),
        sequence=0,
        at_ms=0,
        body=b"\x80",
    )


def registered(*expressions: str, proxy: str = "a1", incarnation: str = "1") -> InterestRegistered:
    return InterestRegistered(ProxyId(proxy), Incarnation(incarnation), SessionId("s"), expressions)


def ended_from_b(seen: int) -> OriginEnded:
    return OriginEnded(
        link=B, link_epoch=1, origin=FROM_B, end=4, seen=seen, following=origin_of(B, log_epoch=2), begins=5
    )


class Log:
    """A fold, and the offset that comes next."""

    def __init__(self, *neighbours: SiteId) -> None:
        self.state = SiteState(A, neighbours or (B,))

    def take(self, *records: Record) -> list[Event]:
        """Fold these; return what the last one brought."""
        events: list[Event] = []
        for record in records:
            events = self.state.fold(self.state.position, record)
        return events


def test_published_notification_moves_the_own_frontier_to_its_offset() -> None:
    log = Log()
    (arrived,) = log.take(Closed("w", 0, {}), published())
    assert isinstance(arrived, NotificationArrived) and (arrived.origin, arrived.offset) == (OWN, 1)
    assert log.state.frontier == {OWN: 1}


def test_markers_move_no_own_frontier() -> None:
    log = Log()
    log.take(published(), registered(X), Closed("w", 0, {}), FiltersRequested(B, 1, 0, {}))
    assert log.state.frontier == {OWN: 0}


def test_a_repeat_is_passed_over() -> None:
    log = Log()
    assert len(log.take(forwarded(5))) == 1
    assert log.take(forwarded(5)) == log.take(forwarded(4)) == log.take(Progress(B, 1, FROM_B, 5)) == []
    assert log.state.frontier[FROM_B] == 5


def test_progress_is_silence_spoken() -> None:
    log = Log()
    assert log.take(Progress(B, 1, FROM_B, 7)) == [Advanced(FROM_B, 7)]
    assert log.take(forwarded(7)) == []


def test_after_a_newer_leaders_record_an_older_one_means_nothing() -> None:
    log = Log()
    log.take(forwarded(1, epoch=2))
    assert log.take(forwarded(2, epoch=1)) == log.take(Progress(B, 1, FROM_B, 9)) == []
    assert len(log.take(forwarded(2, epoch=2))) == 1


def test_a_repeat_of_a_newer_leader_ends_the_older_one_too() -> None:
    log = Log()
    log.take(forwarded(5, epoch=1), forwarded(5, epoch=2))
    assert log.take(forwarded(6, epoch=1)) == []


def test_an_origin_is_taken_from_the_link_over_which_it_first_came() -> None:
    log = Log(B, C)
    log.take(forwarded(1, origin=FROM_C, link=C))
    assert log.take(forwarded(2, origin=FROM_C, link=B)) == []
    assert len(log.take(forwarded(2, origin=FROM_C, link=C))) == 1


def test_our_own_notifications_that_come_back_are_passed_over() -> None:
    log = Log()
    log.take(published())
    assert log.take(forwarded(9, origin=OWN)) == []
    assert log.state.frontier[OWN] == 0


def test_a_first_need_turns_an_ask_on_and_the_last_one_off() -> None:
    log = Log()
    assert log.take(registered(X)) == [InterestChanged(X), WantsChanged(B)]
    assert log.take(registered(X, proxy="a2")) == [InterestChanged(X)]
    assert WantsChanged(B) not in log.take(registered())
    assert WantsChanged(B) in log.take(registered(proxy="a2"))
    assert log.state.requested(B) == {}


def test_withdrawn_expressions_of_a_proxy_are_named_in_an_event() -> None:
    log = Log()
    log.take(registered(X, Y))
    assert log.take(registered(Y))[0] == InterestWithdrawn(ProxyId("a1"), SessionId("s"), frozenset([X]))
    assert log.take(registered(Y)) == []
    assert log.take(registered())[0] == InterestWithdrawn(ProxyId("a1"), SessionId("s"), frozenset([Y]))


def test_an_off_and_on_is_another_installation() -> None:
    log = Log()
    log.take(registered(X))
    first = log.state.requested(B)[X]
    log.take(registered(), registered(X))
    assert log.state.requested(B)[X] != first
    assert log.take(Effective(link=B, link_epoch=1, expression=X, installation=first, origin=FROM_B, above=3)) == []
    assert log.state.covered_above(FROM_B, [X]) is None


def test_an_off_forgets_from_where_on_it_was_effective() -> None:
    log = Log()
    log.take(registered(X), Effective(link=B, link_epoch=1, expression=X, installation=0, origin=FROM_B, above=3))
    assert log.state.covered_above(FROM_B, [X]) == 3
    log.take(registered(), registered(X))
    assert log.state.covered_above(FROM_B, [X]) is None


def test_holds_end_with_the_lease_of_that_very_life() -> None:
    log = Log()
    log.take(registered(X, incarnation="2"))
    assert log.take(InterestsExpired(ProxyId("a1"), Incarnation("1"))) == [
        RegistrationsExpired(ProxyId("a1"), Incarnation("1"))
    ]
    assert log.state.interest_counts == {X: 1}
    assert WantsChanged(B) in log.take(InterestsExpired(ProxyId("a1"), Incarnation("2")))
    assert not log.state.interest_counts and not log.state.registered


def test_coverage_is_never_below_the_frontier_at_its_announcement() -> None:
    """Rule 10: a stale leader may have pushed the frontier past what only the new filter lets through."""
    log = Log()
    log.take(registered(X), Progress(B, 1, FROM_B, 9))
    assert log.take(Effective(link=B, link_epoch=2, expression=X, installation=0, origin=FROM_B, above=4)) == [
        Covered(X, FROM_B, 9)
    ]


def test_repeated_effective_record_does_not_move_the_coverage() -> None:
    log = Log()
    log.take(
        registered(X),
        Effective(link=B, link_epoch=1, expression=X, installation=0, origin=FROM_B, above=4),
        forwarded(9),
    )
    assert log.take(Effective(link=B, link_epoch=1, expression=X, installation=0, origin=FROM_B, above=4)) == []
    assert log.state.covered_above(FROM_B, [X]) == 4


def test_an_announcement_alone_makes_an_origin_known() -> None:
    log = Log()
    log.take(registered(X), Effective(link=B, link_epoch=1, expression=X, installation=0, origin=FROM_B, above=NOTHING))
    assert log.state.frontier == {OWN: NOTHING, FROM_B: NOTHING}


def test_all_expressions_must_be_covered() -> None:
    log = Log()
    log.take(registered(X, Y), Effective(link=B, link_epoch=1, expression=X, installation=0, origin=FROM_B, above=4))
    assert log.state.covered_above(FROM_B, [X]) == 4
    assert log.state.covered_above(FROM_B, [X, Y]) is None
    assert log.state.covered_above(FROM_B, []) == NOTHING
    assert log.state.covered_above(OWN, [X, Y]) == NOTHING


def test_filter_of_a_neighbour_is_announced_from_the_current_frontier_on() -> None:
    log = Log()
    log.take(published())
    announced, interest = log.take(FiltersRequested(B, 1, 1, {X: 8}))
    assert interest == InterestChanged(X)
    assert announced == Announced(B, Effective(link=A, link_epoch=0, expression=X, installation=8, origin=OWN, above=0))


def test_an_older_ask_of_a_neighbour_changes_nothing() -> None:
    log = Log()
    log.take(FiltersRequested(B, 2, 1, {X: 8}))
    assert log.take(FiltersRequested(B, 1, 9, {})) == log.take(FiltersRequested(B, 2, 1, {})) == []
    assert set(log.state.neighbour_filters[B].filters) == {X}


def test_filter_of_a_neighbour_is_requested_of_the_other_neighbours_only() -> None:
    log = Log(B, C)
    events = log.take(FiltersRequested(C, 1, 1, {X: 8}))
    assert WantsChanged(B) in events and WantsChanged(C) not in events
    assert (set(log.state.requested(B)), set(log.state.requested(C))) == ({X}, set())


def test_announced_coverage_starts_no_earlier_than_the_own() -> None:
    """Rule 11, at once: we have it from B already when C asks."""
    log = Log(B, C)
    log.take(
        registered(X),
        Effective(link=B, link_epoch=1, expression=X, installation=0, origin=FROM_B, above=4),
        forwarded(6),
    )
    assert Announced(
        C, Effective(link=A, link_epoch=0, expression=X, installation=8, origin=FROM_B, above=6)
    ) in log.take(FiltersRequested(C, 1, 1, {X: 8}))


def test_coverage_learnt_later_is_announced_from_the_frontier_of_the_neighbours_filter_on() -> None:
    """Rule 11, later: C asked first, B answers afterwards."""
    log = Log(B, C)
    log.take(Progress(B, 1, FROM_B, 6), FiltersRequested(C, 1, 1, {X: 8}))
    installation = log.state.requested(B)[X]
    events = log.take(Effective(link=B, link_epoch=1, expression=X, installation=installation, origin=FROM_B, above=3))
    assert Announced(C, Effective(link=A, link_epoch=0, expression=X, installation=8, origin=FROM_B, above=6)) in events


def test_nothing_is_announced_back_to_where_it_comes_from() -> None:
    log = Log(B, C)
    log.take(registered(X), Effective(link=B, link_epoch=1, expression=X, installation=0, origin=FROM_B, above=4))
    origins = [
        announced.effective.origin
        for announced in log.take(FiltersRequested(B, 1, 1, {X: 8}))
        if isinstance(announced, Announced)
    ]
    assert origins == [OWN]


def test_standing_announcements_name_the_last_installation_of_the_neighbour() -> None:
    log = Log()
    log.take(FiltersRequested(B, 1, 1, {X: 8, Y: 9}), FiltersRequested(B, 1, 2, {X: 8, Y: 10}))
    assert [(effective.expression, effective.installation) for effective in log.state.announcements_in_force(B)] == [
        (X, 8),
        (Y, 10),
    ]
    assert log.state.announcements_in_force(C) == []


def some_records(rng: random.Random) -> list[Record]:
    """Many records of every kind; offsets and epochs mostly plausible."""
    sets: list[tuple[str, ...]] = [(), (X,), (Y,), (X, Y), (X, NARROW), (NARROW, OTHER), (OTHER,)]
    makers: list[Callable[[], Record]] = [
        published,
        lambda: forwarded(rng.randint(0, 60), rng.randint(1, 3)),
        lambda: forwarded(rng.randint(0, 60), 1, FROM_C, rng.choice([B, C])),
        lambda: Progress(B, rng.randint(1, 3), FROM_B, rng.randint(0, 60)),
        lambda: registered(*rng.choice(sets), proxy=rng.choice(["a1", "a2"]), incarnation=rng.choice("12")),
        lambda: InterestsExpired(ProxyId(rng.choice(["a1", "a2"])), Incarnation(rng.choice("12"))),
        lambda: FiltersRequested(C, 1, rng.randint(0, 60), dict.fromkeys(rng.choice(sets), rng.randint(0, 3))),
        lambda: Effective(
            link=B,
            link_epoch=3,
            expression=rng.choice([X, Y, NARROW, OTHER]),
            installation=rng.randint(0, 60),
            origin=FROM_B,
            above=rng.randint(0, 60),
        ),
        lambda: Closed("w", 0, {}),
    ]
    return [rng.choice(makers)() for _ in range(60)]


def test_a_snapshot_taken_anywhere_and_folded_on_is_the_same_as_folding_through() -> None:
    for seed in range(60):
        records = some_records(random.Random(seed))
        through = SiteState(A, (B, C))
        expected = [through.fold(offset, record) for offset, record in enumerate(records)]
        assert any(expected), f"seed {seed} brings nothing about"
        for cut in range(0, len(records), 7):
            first = SiteState(A, (B, C))
            events = [first.fold(offset, record) for offset, record in enumerate(records[:cut])]
            second = SiteState.restore(A, (B, C), first.snapshot())
            events += [second.fold(offset, record) for offset, record in enumerate(records[cut:], cut)]
            assert events == expected, f"seed {seed}, cut at {cut}"
            assert second.snapshot() == through.snapshot(), f"seed {seed}, cut at {cut}"


def test_a_copy_goes_its_own_way() -> None:
    log = Log()
    log.take(registered(X), FiltersRequested(B, 1, 1, {X: 8}))
    before = log.state.snapshot()
    copy = log.state.copy()
    for offset, record in enumerate(some_records(random.Random(1)), 2):
        copy.fold(offset, record)
    assert copy.snapshot() != before
    assert log.state.snapshot() == before


def test_repeated_announcement_with_a_higher_start_interrupts_the_coverage() -> None:
    log = Log(B, C)
    log.take(
        registered(X),
        FiltersRequested(C, 1, 1, {X: 7}),
        Effective(link=B, link_epoch=1, expression=X, installation=0, origin=FROM_B, above=NOTHING),
        forwarded(3),
    )
    assert log.take(Effective(link=B, link_epoch=1, expression=X, installation=0, origin=FROM_B, above=3)) == [], (
        "all of that came"
    )
    covered, interrupted, passed_on = log.take(
        Effective(link=B, link_epoch=1, expression=X, installation=0, origin=FROM_B, above=9)
    )
    assert covered == Covered(X, FROM_B, 9)
    assert interrupted == Interrupted(X, FROM_B)
    assert isinstance(passed_on, Announced) and (passed_on.neighbour, passed_on.effective.above) == (C, 9)
    assert log.state.covered_above(FROM_B, (X,)) == 9
    assert log.state.frontier[FROM_B] == 3, "what comes next may lie below: it is not dropped"
    assert log.take(Effective(link=B, link_epoch=1, expression=X, installation=0, origin=FROM_B, above=9)) == []


def test_site_state_from_a_snapshot_and_later_records_equals_the_complete_one() -> None:
    for seed in range(40):
        records = some_records(random.Random(seed))
        through, beginner = SiteState(A, (B, C)), SiteState(A, (B, C))
        for offset, record in enumerate(records):
            if offset == 30:
                beginner.begin(first=20, known=read_snapshot(through.snapshot()))
            if offset >= 30:
                beginner.fold(offset, record)
            through.fold(offset, record)
        assert beginner.snapshot() == through.snapshot(), f"seed {seed}"
        assert beginner.interest_counts == through.interest_counts


def test_site_state_begins_at_the_first_kept_offset_of_a_truncated_log() -> None:
    log = Log(B, C)
    log.take(registered(X), published())
    beginner, stranger = SiteState(A, (B, C)), SiteState(A, (B, C))
    beginner.begin(first=50, known=read_snapshot(log.state.snapshot()))
    stranger.begin(first=50, known=None)
    assert beginner.position == stranger.position == 50
    assert beginner.frontier[beginner.origin] == stranger.frontier[stranger.origin] == 49
    assert beginner.interest_counts == {X: 1} and not stranger.interest_counts


def test_with_a_new_log_epoch_everything_is_requested_anew() -> None:
    """What was requested, or taken back, may have stood in the lost end, and the neighbour knows it (rule 27)."""
    log = Log(B)
    log.take(registered(X))
    first = log.state.requested(B)[X]
    log.take(Effective(link=B, link_epoch=1, expression=X, installation=first, origin=FROM_B, above=3))
    begun = LogBegun(federation="f", identity="log", log_epoch=2, ended={origin_of(A): (5, 9)})
    events = log.take(begun)
    assert WantsChanged(B) in events and Interrupted(X, FROM_B) in events
    second = log.state.requested(B)[X]
    assert second != first
    late = Effective(link=B, link_epoch=1, expression=X, installation=first, origin=FROM_B, above=4)
    assert log.take(late) == []


# ------------------------------------------------------------ covering


def effective(expression: str, installation: int, above: int, link: SiteId = B, origin: Origin = FROM_B) -> Effective:
    return Effective(
        link=link, link_epoch=1, expression=expression, installation=installation, origin=origin, above=above
    )


def test_an_expression_that_a_requested_one_covers_is_not_requested() -> None:
    log = Log()
    log.take(registered(X))
    log.take(registered(X, NARROW))
    assert log.state.requested(B) == {X: 0}
    assert log.state.wanted(B, NARROW) is None


def test_an_announcement_counts_for_all_that_the_expression_covers() -> None:
    log = Log()
    log.take(registered(X, NARROW))
    assert log.take(effective(X, 0, 4)) == [Covered(X, FROM_B, 4), Covered(NARROW, FROM_B, 4)]
    assert log.state.covered_above(FROM_B, [NARROW]) == 4


def test_an_expression_that_comes_to_be_covered_has_all_matches_that_the_covering_one_has() -> None:
    log = Log()
    log.take(registered(X), effective(X, 0, 4), forwarded(9))
    assert Covered(NARROW, FROM_B, 4) in log.take(registered(X, NARROW))


def test_the_end_of_a_covering_expression_is_no_hole() -> None:
    log = Log()
    log.take(registered(X, NARROW, OTHER), effective(X, 0, 4))
    events = log.take(registered(NARROW, OTHER))
    assert not [event for event in events if isinstance(event, Covered | Interrupted)]
    assert log.state.requested(B) == {NARROW: 2, OTHER: 2}
    assert log.state.covered_above(FROM_B, [NARROW, OTHER]) == 4
    # Its own filter is effective only from here on, but what came before came by the other one.
    assert log.take(Progress(B, 1, FROM_B, 7), effective(NARROW, 2, 7)) == []
    assert log.state.covered_above(FROM_B, [NARROW]) == 4


def test_a_wider_expression_is_no_hole_for_what_it_covers() -> None:
    log = Log()
    log.take(registered(NARROW), effective(NARROW, 0, 4))
    log.take(registered(NARROW, X))
    assert log.state.requested(B) == {X: 2}
    assert log.state.covered_above(FROM_B, [NARROW]) == 4
    assert log.state.covered_above(FROM_B, [X]) is None
    log.take(Progress(B, 1, FROM_B, 8))
    assert log.take(effective(X, 2, 8)) == [Covered(X, FROM_B, 8)]


def test_a_hole_of_a_covering_expression_is_one_of_what_it_covers() -> None:
    log = Log()
    log.take(registered(X, NARROW), effective(X, 0, 4))
    events = log.take(effective(X, 0, 20))
    assert [event for event in events if isinstance(event, Interrupted)] == [
        Interrupted(X, FROM_B),
        Interrupted(NARROW, FROM_B),
    ]


def test_what_is_covered_is_announced_to_the_neighbour_that_requested_it() -> None:
    log = Log(B, C)
    log.take(registered(X), effective(X, 0, 4))
    events = log.take(FiltersRequested(C, 1, 1, {NARROW: 5}))
    announced = {event.effective.origin: event.effective.above for event in events if isinstance(event, Announced)}
    assert announced == {OWN: NOTHING, FROM_B: 4}
    assert log.state.requested(B) == {X: 0} and log.state.requested(C) == {X: 0}


def test_what_is_wanted_by_keys_is_requested_as_it_is() -> None:
    """A request states its keys: those of all that it covers could be more than a record has room for."""
    log = Log()
    key = Protection.of([Key(next(iter(SIDES)), "producer", bytes(20))])
    log.take(registered(X, NARROW), effective(X, 0, 4))
    followed = log.state.follow_wants(B)
    record = InterestRegistered(ProxyId("a2"), Incarnation("1"), SessionId("t"), (NARROW,), {NARROW: (key,)})
    log.take(record)
    assert NARROW in followed
    assert log.state.wanted(B, X) == (0, (OPEN,))
    assert log.state.wanted(B, NARROW) == (2, tuple(sorted({OPEN, key})))
    assert log.state.covered_above(FROM_B, [NARROW]) == 4
    followed.clear()
    log.take(InterestRegistered(ProxyId("a2"), Incarnation("1"), SessionId("t"), (NARROW,)))
    assert NARROW in followed
    assert log.state.requested(B) == {X: 0}
    assert log.state.covered_above(FROM_B, [NARROW]) == 4


def test_a_snapshot_has_what_covers_what() -> None:
    log = Log()
    log.take(registered(X, NARROW, OTHER), effective(X, 0, 4))
    copy = log.state.copy()
    assert copy.requested(B) == {X: 0}
    assert copy.fold(2, registered(NARROW, OTHER)) == log.take(registered(NARROW, OTHER))
    assert copy.snapshot() == log.state.snapshot()


def test_a_hole_of_a_neighbours_loss_is_told_to_those_behind_it_before_what_passes_over_it() -> None:
    """B lost the end of its log, and with it our request: what C publishes may have passed it by (rule 27)."""
    log = Log(B, D)
    log.take(registered(X), FiltersRequested(D, 1, 1, {X: 7}), effective(X, 0, 3, B, FROM_C))
    ended = ended_from_b(6)
    events = log.take(ended)
    offset = log.state.position - 1
    assert Interrupted(X, FROM_C) in events
    assert SeveranceAnnounced(D, (), (FROM_C,)) in events
    assert events[-1] == Advanced(OWN, offset)
    assert log.state.moved_at == {FROM_C: offset}
    assert log.state.covered_above(FROM_C, [X]) is None
    assert not [each for each in log.state.announcements_in_force(D) if each.origin == FROM_C]
    # Said again, it is no news.
    assert log.take(ended) == []
    assert not [
        event for event in log.take(published(), effective(X, 4, 9, B, FROM_C)) if isinstance(event, Interrupted)
    ]


def test_what_a_site_has_seen_of_an_ended_origin_was_seen_whatever_the_origins_own_site_knows() -> None:
    """B's log lost its end, and nobody there had read so far; we had: those behind us hear of all that is lost."""
    log = Log(B, D)
    log.take(registered(X), effective(X, 0, 3), forwarded(7))
    assert EndedAnnounced(D, log_of_d(7)) in log.take(ended_from_b(6))
    assert log.take(ended_from_b(6)) == log.take(ended_from_b(7)) == []
    assert log.state.ended[FROM_B].seen == 7


@pytest.mark.parametrize(
    ("later", "event"),
    [
        (Progress(B, 1, FROM_B, 9), Advanced(FROM_B, 9)),
        (forwarded(9), NotificationArrived(FROM_B, 9, forwarded(9))),
    ],
)
def test_what_arrives_of_an_ended_origin_beyond_what_was_seen_shows_that_more_is_lost(
    later: Progress | Forwarded, event: Advanced | NotificationArrived
) -> None:
    """Sessions have no gate of it any more: taken for silence, 7 and 8 would be lost, and nobody told."""
    log = Log(B, D)
    log.take(registered(X), ended_from_b(6))
    assert log.take(later) == [OriginClosed(FROM_B, 6, is_first=False), EndedAnnounced(D, log_of_d(9)), event]
    assert log.state.ended[FROM_B].seen == 9


def log_of_d(seen: int) -> OriginEnded:
    """Return what D hears of the end of B's origin from us."""
    return msgspec.structs.replace(ended_from_b(seen), link=A, link_epoch=0)


def test_a_reader_that_begins_in_a_log_epoch_has_seen_what_neighbours_count_of_it() -> None:
    """The log has lost its beginning too: nothing else of this origin is there that a reader could see."""
    state, following = SiteState(A), origin_of(A, log_epoch=2)
    state.begin(13, None, log_epoch=2)
    state.fold(13, LogBegun(federation="f", identity="log", log_epoch=2, ended={OWN: (12, 15)}))
    assert (state.ended[OWN].begins, state.frontier[following]) == (13, 13)


def test_a_reader_that_begins_within_a_log_epoch_does_not_count_what_stands_before_it_as_another_ones() -> None:
    """The epoch is named again and again in its log; the record that began it was cut."""
    state, following = SiteState(A), origin_of(A, log_epoch=2)
    state.begin(200, None, log_epoch=2)
    state.fold(203, published())
    state.fold(210, LogBegun(federation="f", identity="log", log_epoch=2, ended={OWN: (99, 120)}, again=True))
    assert (state.ended[OWN].begins, state.frontier[following]) == (99, 203)


def test_a_neighbour_that_knows_less_of_where_an_origin_has_begun_moves_nothing() -> None:
    log, following = Log(), origin_of(B, log_epoch=2)
    log.take(ended_from_b(6), Progress(B, 1, following, 205))
    log.take(msgspec.structs.replace(ended_from_b(6), end=-1, begins=210))
    assert (log.state.ended[FROM_B].begins, log.state.frontier[following]) == (5, 205)


def test_an_expression_that_is_wanted_by_very_many_keys_is_requested_for_everybody() -> None:
    """Each session is within its bounds, and all together would fill more than a log takes in one record."""
    log, scheme = Log(), next(iter(SIDES))
    keys = [Key(scheme, "producer", number.to_bytes(20)) for number in range(LINK_KEYS + 1)]
    for number, start in enumerate(range(0, len(keys), 64)):
        protection = Protection.of(keys[start : start + 64])
        log.take(InterestRegistered(ProxyId("a1"), Incarnation("1"), SessionId(f"s{number}"), (X,), {X: (protection,)}))
    wanted = log.state.wanted(B, X)
    assert wanted is not None and wanted[1] == (OPEN,)
    log.take(InterestRegistered(ProxyId("a1"), Incarnation("1"), SessionId("s0"), ()))
    fewer = log.state.wanted(B, X)
    assert fewer is not None and sum(len(protection.keys) for protection in fewer[1]) == len(keys) - 64
