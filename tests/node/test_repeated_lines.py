"""Lines of libraries that come again and again."""

from __future__ import annotations

import logging

from node.health.repeated_lines import EVERY_S, REMEMBERED, RepeatedLines


def line(text: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("uvicorn.error", logging.WARNING, "", 0, text, arguments, None)


def test_one_text_is_written_once_in_a_while_with_the_number_left_out() -> None:
    now_s = [0.0]
    lines = RepeatedLines(lambda: now_s[0])
    assert [lines.filter(line("Invalid %s", "request")) for _ in range(5)] == [True, False, False, False, False]
    assert lines.filter(line("another"))
    now_s[0] = EVERY_S
    again = line("Invalid %s", "request")
    assert lines.filter(again)
    assert again.getMessage() == "Invalid request (4 more of them since the last line)"
    now_s[0] = 3 * EVERY_S
    alone = line("Invalid %s", "request")
    assert lines.filter(alone) and alone.getMessage() == "Invalid request"


def test_texts_that_a_client_chooses_do_not_fill_the_memory() -> None:
    lines = RepeatedLines(lambda: 0.0)
    assert all(lines.filter(line(f"text {number}")) for number in range(3 * REMEMBERED))
    assert len(lines._since) <= REMEMBERED
