"""What waits for several answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Error = TypeVar("Error")


def after_all(count: int, on_done: Callable[[Error | None], None]) -> Callable[[Error | None], None]:
    """Return a function to be called with each of several answers; the last call calls `on_done`, with the first error
    among them, or None.

    Args:
        count: of the answers, at least 1.
    """
    waits = count
    failure: Error | None = None

    def answered(error: Error | None = None) -> None:
        nonlocal waits, failure
        waits -= 1
        failure = failure if failure is not None else error
        if not waits:
            on_done(failure)

    return answered
