"""What an application asks for when it attaches is looked at before anybody is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import waypost
from waypost.errors import Refused
from waypost.queue import Queue
from waypost.reliability import Reliability


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("queue", 3),
        ("queue", {"max_count": 3}),
        ("reliability", "best-effort"),
        ("reliability", ("best-effort", "persistent")),
    ],
)
def test_invalid_attach_argument_is_refused_at_once(field: str, wrong: Any) -> None:
    with pytest.raises(Refused) as refused:
        waypost.attach("s", **{field: wrong})
    assert refused.value.field is None or refused.value.field.startswith(field)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Queue(0),
        lambda: Queue(-1),
        lambda: Queue(2**70),
        lambda: Queue("3"),  # type: ignore[arg-type]
        lambda: Queue(3.5),  # type: ignore[arg-type]
        lambda: Queue(3, None, "foo"),  # type: ignore[arg-type]
        lambda: Queue(deadlines="yes"),  # type: ignore[arg-type]
        lambda: Reliability("foo", "persistent"),  # type: ignore[arg-type]
        lambda: Reliability(1, 2),  # type: ignore[arg-type]
    ],
)
def test_invalid_queue_or_reliability_is_refused_when_it_is_made(make: Callable[[], object]) -> None:
    with pytest.raises(Refused):
        make()


@pytest.mark.parametrize("sessions", ["abc", [], ["a", "a"]])
def test_sessions_that_are_joined_are_a_list_of_each_once(sessions: Any) -> None:
    with pytest.raises(Refused) as refused:
        waypost.join(sessions)
    assert refused.value.field == "sessions"
