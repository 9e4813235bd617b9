"""How well the estimates of what an expression costs fit: no kind of expression may take much longer than its estimate.

A client pays by the estimate (:mod:`waypost.subscription.cost`), so one kind that takes longer would be a way to cost
others their time. Goal: at most twice as long as a long search does for its own.
"""

from __future__ import annotations

import time
from functools import partial

from bench.measurement import Row
from waypost.limits import MAX_NOTIFICATION_BYTES
from waypost.subscription import Expression, parse

REPEATS = 5
LEAST_OF = 3
LONG_SEARCH = ('contains(text, "' + "a" * 100 + "b" + "a" * 100 + '")', "a" * 250_000)
"""An expression and a text that take as long as was estimated, on the machine on which that was measured."""
COSTLY = {
    "50 searches": (f"contains(text, {', '.join(f'{chr(34)}0-{each}{chr(34)}' for each in range(50))})", "x" * 250_000),
    "decompose one long cluster": ('begins-with(decompose(text), "a")', "a" + "\u0301\u0323" * 62_500),
    "decompose many clusters": ('begins-with(decompose(text), "a")', ("a" + "\u0301\u0323" * 20) * 3_000),
    "fold case": ('contains(fold-case(text), "qq")', "ß" * 125_000),
    "regex with many ways": ('regex(text, "a[ab]{12}[cz]")', "abbaabab" * 31_250),
    "arithmetic": (" || ".join(f"n + {number} == 5 || n * {number} > 7" for number in range(400)), "x"),
}


def run() -> list[Row]:
    """Return one row for each kind: how many times as long as a long search it takes for what was estimated."""
    return [
        Row(f"evaluation beside its estimate: {name}", "times a long search's", _ratios(*case), "<= 2")
        for name, case in COSTLY.items()
    ]


def _ratios(expression: str, text: str) -> tuple[float, ...]:
    if len(text.encode()) > MAX_NOTIFICATION_BYTES:
        raise ValueError("no proxy takes a text of this length")
    measured = partial(_taken_for_estimated, expression, text)
    return tuple(measured() / _taken_for_estimated(*LONG_SEARCH) for _ in range(REPEATS))


def _taken_for_estimated(expression: str, text: str) -> float:
    """Return the time that an evaluation takes, divided by its estimate: the least of a few."""
    parsed = parse(expression)
    parsed.matches({"text": "é", "n": 1})
    return min(_once(parsed, text) for _ in range(LEAST_OF)) / parsed.cost.work_ns


def _once(parsed: Expression, text: str) -> float:
    began = time.thread_time_ns()
    parsed.matches({"text": text, "n": 1})
    return time.thread_time_ns() - began
