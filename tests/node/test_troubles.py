"""What is missing is said once, counted once, and waited for."""

from __future__ import annotations

import random

import pytest

from node.troubles import Troubles, part_of
from waypost.errors import BadConfiguration, LogUnavailable, RegistryUnavailable, Unreachable


@pytest.fixture
def troubles() -> Troubles:
    return Troubles(random.Random(1))


def test_a_part_that_stays_away_is_one_outage_and_its_last_words_are_shown(troubles: Troubles) -> None:
    troubles.missing("log", Unreachable("away"))
    troubles.missing("log", Unreachable("still away"))
    assert list(troubles.now) == ["log"] and "still away" in troubles.now["log"]
    assert troubles.outages == {"log": 1}
    troubles.there("log")
    troubles.there("log")
    assert troubles.now == {}
    troubles.missing("log", TimeoutError())
    assert (troubles.now, troubles.outages) == ({"log": "no answer"}, {"log": 2})


async def test_what_is_not_there_yet_is_tried_again_until_it_is(troubles: Troubles) -> None:
    tries: list[int] = []

    async def opened() -> str:
        tries.append(len(tries))
        if len(tries) < 3:
            raise RegistryUnavailable("not yet", field="etcd")
        assert list(troubles.now) == ["etcd"]
        return "open"

    assert await troubles.patiently("parts", opened) == "open"
    assert (len(tries), troubles.now, troubles.outages) == (3, {}, {"etcd": 1})


async def test_what_is_configured_wrong_is_not_tried_again(troubles: Troubles) -> None:
    async def opened() -> None:
        raise BadConfiguration("no such topic", field="kafka")

    with pytest.raises(BadConfiguration):
        await troubles.patiently("parts", opened)
    assert troubles.now == {}


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
    assert part_of(error) == part
