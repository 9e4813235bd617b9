"""What must move and does not is seen after its bound; what has nothing to do stands still as it should."""

from __future__ import annotations

from node.health.watchdog import Progress, Watchdog


def log(position: int, end: int) -> Progress:
    return Progress("log", position, position < end, 1_000)


def link(position: object) -> Progress:
    return Progress("link from B", position, True, 1_000, vital=False)


def names(found: list[Progress]) -> list[str]:
    return [progress.name for progress in found]


def test_a_position_that_stands_still_below_the_end_is_stalled_after_its_bound() -> None:
    watchdog = Watchdog()
    assert watchdog.check([log(5, 9)], 0) == []
    assert watchdog.check([log(5, 9)], 999) == []
    assert names(watchdog.check([log(5, 9)], 1_000)) == ["log"]
    assert watchdog.why_not_ready == "no progress of log"
    assert watchdog.standing_ms("log", 1_500) == 1_500
    assert watchdog.check([log(6, 9)], 1_600) == []
    assert watchdog.why_not_ready == ""


def test_a_position_at_the_end_may_stand_still_for_ever() -> None:
    watchdog = Watchdog()
    assert watchdog.check([log(9, 9)], 0) == []
    assert watchdog.check([log(9, 9)], 60_000) == []
    # Its time begins with the last look at which there was nothing more, not when it came there.
    assert watchdog.check([log(9, 10)], 60_500) == []
    assert names(watchdog.check([log(9, 10)], 61_000)) == ["log"]


def test_a_link_that_stands_still_costs_no_readiness() -> None:
    watchdog = Watchdog()
    watchdog.check([link(1)], 0)
    assert names(watchdog.check([link(1)], 1_000)) == ["link from B"]
    assert watchdog.why_not_ready == ""


def test_watchdog_forgets_an_absent_link() -> None:
    watchdog = Watchdog()
    watchdog.check([link(1)], 0)
    assert watchdog.check([], 2_000) == []
    assert watchdog.check([link(1)], 3_000) == []
