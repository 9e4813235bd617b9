"""How a procedure is resumed: a generator that yields questions, and is sent the answers or has errors thrown. Pure."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from waypost.errors import WaypostError

QuestionT = TypeVar("QuestionT")


def resume(procedure: Generator[QuestionT, Any, Any], answer: Any) -> QuestionT:
    """Give a procedure the answer to its last question; return its next question.

    Args:
        procedure: waits for an answer, or has not begun.
        answer: to the procedure's last question; None where it has not begun. A WaypostError is raised in the
            procedure: with it that question failed.

    Raises:
        StopIteration: the procedure is done; `value` of the exception is its result.
        WaypostError: as the procedure raises it.
    """
    return procedure.throw(answer) if isinstance(answer, WaypostError) else procedure.send(answer)
