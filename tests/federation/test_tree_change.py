"""A site's log enters another dispatching tree: which filters stay, which origins are covered anew, who is told."""

from __future__ import annotations

from federation.links.forwarding_filter import ForwardingFilter, Position
from federation.site.acceptance import Acceptance
from federation.site.events import Event, Interrupted, WantsChanged
from federation.site.state import SiteState
from waypost.identity import Incarnation, Origin, ProxyId, SessionId, SiteId
from waypost.records import (
    Effective,
    FiltersRequested,
    Forwarded,
    InterestRegistered,
    Progress,
    Record,
    Repaired,
    Severed,
    TreeEntered,
)

A, B, C, D = (SiteId(name) for name in "ABCD")
AB, AC, BC, CD = (A, B), (A, C), (B, C), (C, D)
FROM_A, FROM_C, FROM_D = Origin("A/0"), Origin("C/0"), Origin("D/0")
X = "n > 0"


class Log:
    """The log of B, and its fold."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.state = SiteState(B)

    def take(self, *records: Record) -> list[Event]:
        events = []
        for record in records:
            events += self.state.fold(len(self.records), record)
            self.records.append(record)
        return events

    def opened_by(self, neighbour: SiteId, far: dict[Origin, int]) -> list[Record]:
        """Return what is said first to a neighbour that opens the link with this frontier."""
        sender = ForwardingFilter(self.state, neighbour, 1, far, Position(0, Acceptance(B)))
        return [*sender.hello()]


def registered() -> InterestRegistered:
    return InterestRegistered(ProxyId("b1"), Incarnation("1"), SessionId("s"), (X,))


def effective(link: SiteId, origin: Origin, installation: int, above: int = -1) -> Effective:
    return Effective(link=link, link_epoch=1, expression=X, installation=installation, origin=origin, above=above)


def forwarded(link: SiteId, origin: Origin, offset: int) -> Forwarded:
    return Forwarded(
        link=link,
        link_epoch=1,
        origin=origin,
        offset=offset,
        path=(link,),
        producer="p",
        incarnation=Incarnation("1"),
        sequence=offset,
        at_ms=0,
        body=b"\x80",
    )


def covered() -> Log:
    """B in the tree A - B - C - D, with X covered of all of them."""
    log = Log()
    log.take(TreeEntered(1, (AB, BC, CD)), registered())
    for link, origin in ((A, FROM_A), (C, FROM_C), (C, FROM_D)):
        log.take(effective(link, origin, log.state.requested(link)[X]))
    return log


def test_site_wants_of_all_neighbours_in_the_tree_and_of_no_other_site() -> None:
    log = Log()
    log.take(registered())
    assert log.state.requests == {}
    events = log.take(TreeEntered(1, (AB, BC)))
    assert {event.neighbour for event in events if isinstance(event, WantsChanged)} == {A, C}
    log.take(TreeEntered(2, (BC, CD)))
    assert log.state.requests.keys() == {C}


def test_origin_that_arrives_over_another_link_is_covered_anew_and_others_are_not() -> None:
    log = covered()
    events = log.take(TreeEntered(2, (AB, AC, CD)))
    assert {event.origin for event in events if isinstance(event, Interrupted)} == {FROM_C, FROM_D}
    assert log.state.covered_above(FROM_A, [X]) == -1
    assert log.state.covered_above(FROM_C, [X]) is None


def test_records_of_a_link_that_does_not_lead_to_the_origin_change_nothing() -> None:
    log = covered()
    log.take(forwarded(C, FROM_D, 5))
    log.take(TreeEntered(2, (AB, AC, CD)))
    log.take(forwarded(C, FROM_D, 7), Progress(C, 1, FROM_D, 9))
    assert log.state.frontier[FROM_D] == 5
    log.take(forwarded(A, FROM_D, 7))
    assert log.state.frontier[FROM_D] == 7


def test_tree_of_an_earlier_or_the_same_epoch_changes_nothing() -> None:
    log = covered()
    assert log.take(TreeEntered(1, (AC,)), TreeEntered(0, ())) == []
    assert log.state.neighbours == (A, C)


def test_filters_of_a_site_end_with_its_place_in_the_tree() -> None:
    log = covered()
    log.take(FiltersRequested(C, 1, 1, {"m > 0": 3}, tree_epoch=1))
    assert "m > 0" in log.state.requested(A)
    log.take(TreeEntered(2, (AB, AC, CD)))
    assert "m > 0" not in log.state.requested(A) and C not in log.state.neighbour_filters
    # One that was under way since then means nothing: neither of a site that left, nor one made in another tree.
    log.take(FiltersRequested(C, 1, 2, {"m > 0": 3}, tree_epoch=2), FiltersRequested(A, 1, 1, {X: 3}, tree_epoch=1))
    assert not log.state.neighbour_filters


def test_neighbour_is_told_of_the_origins_that_arrive_over_another_link_until_it_knows() -> None:
    log = covered()
    log.take(FiltersRequested(A, 1, 1, {X: 3}, tree_epoch=1), TreeEntered(2, (AB, BC, CD)))
    assert log.opened_by(A, {}) == log.opened_by(A, {log.state.origin: 0})
    log.take(TreeEntered(3, (AB, AC, CD)))
    changed = len(log.records) - 1
    severed = [record for record in log.opened_by(A, {log.state.origin: changed - 1}) if isinstance(record, Severed)]
    assert [sorted(record.origins) for record in severed] == [[FROM_C, FROM_D]]
    assert not any(isinstance(record, Severed) for record in log.opened_by(A, {log.state.origin: changed}))


def test_site_that_was_out_of_the_tree_is_told_that_all_may_be_missing() -> None:
    log = covered()
    log.take(FiltersRequested(A, 1, 1, {X: 3}, tree_epoch=1), TreeEntered(2, (BC,)), TreeEntered(3, (AB, BC)))
    severed = [record for record in log.opened_by(A, {log.state.origin: 0}) if isinstance(record, Severed)]
    assert [record.origins for record in severed] == [()]


def test_severance_of_some_origins_leaves_the_others_of_the_link_covered() -> None:
    log = covered()
    log.take(Severed(C, 1, (C,), (FROM_D,)))
    assert log.state.covered_above(FROM_C, [X]) == -1
    assert log.state.covered_above(FROM_D, [X]) is None


def test_repair_of_the_log_ends_the_tree_until_it_is_named_again() -> None:
    log = covered()
    log.take(Repaired(0))
    assert not log.state.neighbours and log.state.tree.epoch < 0
    log.take(TreeEntered(1, (AB, BC, CD)))
    assert log.state.neighbours == (A, C)


def test_snapshot_has_the_tree_and_what_changed_with_it() -> None:
    log = covered()
    log.take(FiltersRequested(A, 1, 1, {X: 3}, tree_epoch=1), TreeEntered(2, (BC, CD)))
    copy = log.state.copy()
    assert (copy.tree, copy.neighbours, copy.left_at) == (log.state.tree, (C,), log.state.left_at)
    assert copy.requested(B) == log.state.requested(B) and copy.moved_at == log.state.moved_at
