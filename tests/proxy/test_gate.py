"""A gate joins an origin's live stream without a loss or a repeat."""

from __future__ import annotations

from handover.gate import Gate


def opened(gate: Gate[str]) -> list[tuple[int, str]]:
    taken: list[tuple[int, str]] = []
    gate.open(lambda offset, item: taken.append((offset, item)))
    return taken


def test_gate_yields_kept_messages_above_its_frontier_in_order() -> None:
    gate: Gate[str] = Gate(5, from_above=3)
    for offset in (4, 5, 6, 7):
        gate.keep(offset, f"n{offset}")
    assert opened(gate) == [(6, "n6"), (7, "n7")]
    assert len(gate) == 0


def test_coverage_begins_where_the_installation_does_or_where_the_gate_began_to_keep() -> None:
    gate: Gate[str] = Gate(5, from_above=10)
    assert gate.covered_from(None) is None
    assert gate.covered_from(3) == 10
    assert gate.covered_from(12) == 12


def test_gate_is_missing_the_range_between_seen_and_covered() -> None:
    gate: Gate[str] = Gate(5, from_above=0)
    assert gate.missing(9) == (5, 9)
    assert gate.missing(5) is None
    assert gate.missing(None) is None
    assert Gate[str](None, 0).missing(9) is None


def test_gate_opens_only_when_caught_up() -> None:
    gate: Gate[str] = Gate(5, from_above=0)
    assert not gate.may_open(9)
    gate.fetched(9)
    assert gate.may_open(9)
    assert not gate.may_open(None)
    assert not Gate[str](None, 0).may_open(0)


def test_fetched_never_moves_a_gate_back() -> None:
    gate: Gate[str] = Gate(5, from_above=0)
    gate.fetched(3)
    assert gate.seen == 5


def test_past_its_bound_it_forgets_and_the_catch_up_reaches_further() -> None:
    gate: Gate[str] = Gate(0, from_above=0, limit=2)
    for offset in (1, 2, 3, 4):
        gate.keep(offset, "")
    assert gate.covered_from(0) == 3
    assert opened(gate) == [(4, "")]
