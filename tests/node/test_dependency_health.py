"""What is missing is said once, counted once, and waited for."""

from __future__ import annotations

import random

import pytest
from structlog.testing import capture_logs

from node.health.dependency_health import STEADY_MS, DependencyHealth, dependency_of
from waypost.clock import ManualClock
from waypost.errors import BadConfiguration, LogUnavailable, RegistryUnavailable, Unreachable


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def health(clock: ManualClock) -> DependencyHealth:
    return DependencyHealth(random.Random(1), clock)


def test_a_part_that_stays_away_is_one_outage_and_its_last_words_are_shown(
    health: DependencyHealth, clock: ManualClock
) -> None:
    health.unavailable("log", Unreachable("away"))
    health.unavailable("log", Unreachable("still away"))
    assert list(health.now) == ["log"] and "still away" in health.now["log"]
    assert health.outages == {"log": 1}
    health.available("log")
    health.available("log")
    assert health.now == {}
    clock.advance(STEADY_MS)
    health.unavailable("log", TimeoutError())
    assert (health.now, health.outages) == ({"log": "no answer"}, {"log": 2})


def test_a_part_that_comes_and_goes_is_three_lines_and_one_outage_until_it_stays(
    health: DependencyHealth, clock: ManualClock
) -> None:
    with capture_logs() as lines:
        for _ in range(500):
            health.unavailable("registry", Unreachable("database or disk is full"))
            clock.advance(100)
            health.available("registry")
            clock.advance(100)
            health.tick()
    assert [line["event"] for line in lines] == [
        "dependency is not there; trying again",
        "dependency is there again",
        "dependency comes and goes; it counts as missing until it stays",
    ]
    assert list(health.now) == ["registry"] and health.outages == {"registry": 1}
    clock.advance(STEADY_MS)
    with capture_logs() as lines:
        health.tick()
        health.tick()
    assert health.now == {}
    assert [line["event"] for line in lines] == ["dependency is there again"]


def test_a_part_that_came_and_went_and_is_missing_is_not_said_to_be_there(
    health: DependencyHealth, clock: ManualClock
) -> None:
    for _ in range(2):
        health.unavailable("log", Unreachable("full"))
        health.available("log")
    health.unavailable("log", Unreachable("full"))
    clock.advance(10 * STEADY_MS)
    health.tick()
    assert list(health.now) == ["log"]


async def test_absent_dependency_is_retried_until_it_opens(health: DependencyHealth) -> None:
    tries: list[int] = []

    async def opened() -> str:
        tries.append(len(tries))
        if len(tries) < 3:
            raise RegistryUnavailable("not yet", field="etcd")
        assert list(health.now) == ["etcd"]
        return "open"

    assert await health.retry("parts", opened) == "open"
    assert (len(tries), health.now, health.outages) == (3, {}, {"etcd": 1})


async def test_bad_configuration_of_a_dependency_is_not_retried(health: DependencyHealth) -> None:
    async def opened() -> None:
        raise BadConfiguration("no such topic", field="kafka")

    with pytest.raises(BadConfiguration):
        await health.retry("parts", opened)
    assert health.now == {}


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (RegistryUnavailable("x"), "registry"),
        (LogUnavailable("x"), "log"),
        (Unreachable("x", field="store"), "store"),
        (Unreachable("x"), "another site"),
    ],
)
def test_an_error_names_the_part_that_did_not_answer(error: Unreachable, part: str) -> None:
    assert dependency_of(error) == part


def test_parts_that_are_about_to_be_closed_are_complained_of_no_more(health: DependencyHealth) -> None:
    health.close()
    with capture_logs() as lines:
        health.unavailable("log", Unreachable("closed"))
    assert (lines, health.now, health.outages) == ([], {}, {})


def test_log_line_of_a_dependency_has_its_hint(health: DependencyHealth) -> None:
    with capture_logs() as lines:
        health.unavailable("log", Unreachable("it is damaged", hint="bring back a copy of it"))
        health.unavailable("registry", TimeoutError())
    assert [line.get("hint") for line in lines] == ["bring back a copy of it", None]
