"""Which of several servers is asked."""

from __future__ import annotations

from federation.endpoints import Endpoints


def test_calls_that_fail_together_pass_over_one_server() -> None:
    endpoints = Endpoints([("one", 1), ("two", 2), ("three", 3)])
    asked = endpoints.current
    for _ in range(3):
        endpoints.failed(asked)
    assert endpoints.addresses[endpoints.current] == ("two", 2)


def test_after_the_last_one_comes_the_first() -> None:
    endpoints = Endpoints([("one", 1), ("two", 2)])
    endpoints.failed(0)
    endpoints.failed(1)
    assert endpoints.current == 0
