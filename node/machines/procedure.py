"""How a procedure is resumed: a generator that yields questions, and is sent the answers or has errors thrown. Pure."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from waypost.errors import WaypostError

QuestionT = TypeVar("QuestionT")


def resume(procedure: Generator[QuestionT, Any, Any], answer: Any) -> QuestionT:
    """Return the next question.

    Args:
        procedure: waits for an answer, or has not begun.
        answer: to its last question, or the error with which that failed; None: it has not begun.

    Raises:
        StopIteration: it is done; its `value` is the result.
        WaypostError: as the procedure raises it.
    """
    return procedure.throw(answer) if isinstance(answer, WaypostError) else procedure.send(answer)
