"""What an application asks for when it attaches is looked at before anybody is asked."""

from __future__ import annotations

from typing import Any

import pytest

import waypost
from waypost.errors import Refused
from waypost.queue import Queue
from waypost.reliability import Reliability


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("queue", Queue(0)),
        ("queue", Queue(-1)),
        ("queue", Queue(2**70)),
        ("queue", Queue("3")),  # type: ignore[arg-type]
        ("queue", Queue(3.5)),  # type: ignore[arg-type]
        ("queue", Queue(3, None, "foo")),  # type: ignore[arg-type]
        ("queue", Queue(deadlines="yes")),  # type: ignore[arg-type]
        ("queue", 3),
        ("queue", {"max_count": 3}),
        ("reliability", "best-effort"),
        ("reliability", ("best-effort", "persistent")),
        ("reliability", Reliability("foo", "persistent")),  # type: ignore[arg-type]
        ("session_reliability", Reliability(1, 2)),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_asked_for_is_refused_at_once(field: str, wrong: Any) -> None:
    with pytest.raises(Refused) as refused:
        waypost.attach("s", **{field: wrong})
    assert refused.value.field is None or refused.value.field.startswith(field)


@pytest.mark.parametrize("sessions", ["abc", [], ["a", "a"]])
def test_sessions_that_are_joined_are_a_list_of_each_once(sessions: Any) -> None:
    with pytest.raises(Refused) as refused:
        waypost.join(sessions)
    assert refused.value.field == "sessions"
