"""What a user of the client library can import, and see."""

from __future__ import annotations

import importlib

import waypost


def test_every_public_name_is_there_and_shown() -> None:
    assert set(waypost.__all__) <= set(dir(waypost))
    for name in waypost.__all__:
        assert getattr(waypost, name) is not None


def test_blocking_facade_is_a_module_of_that_name() -> None:
    assert importlib.import_module("waypost.blocking") is waypost.blocking
    assert callable(waypost.blocking.attach)
