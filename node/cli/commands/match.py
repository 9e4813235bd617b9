"""`waypost match`: evaluate a subscription by hand, or many from a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from node.cli.commands.input import notification_from_text, parsed
from waypost.errors import NotFound
from waypost.subscription.batch import evaluate_line


def match_one(expression: str, notification: str, *, as_json: bool) -> None:
    """Print the value of an expression for a notification, a JSON object: true, false or bottom.

    Raises:
        SubscriptionError: the expression is not valid; without `as_json` its hint marks the offset.
        BadNotification, BadMessage: `notification` is not the JSON text of one.
    """
    result = _word(parsed(expression, as_json=as_json).matches(notification_from_text(notification)))
    print(json.dumps({"v": 1, "result": result}) if as_json else result)


def _word(result: bool | None) -> str:
    return "bottom" if result is None else str(result).lower()


def match_batch(source: str) -> None:
    """Evaluate each line of a file, {"expr": ..., "notification": ...}, and print one JSON line for it: what
    :func:`waypost.subscription.batch.evaluate_line` returns.

    Args:
        source: the path of the file; "-": stdin.

    Raises:
        NotFound: the file cannot be read.
    """
    for line in sys.stdin.buffer if source == "-" else _lines_of(source):
        print(json.dumps(evaluate_line(line)), flush=False)
    sys.stdout.flush()


def _lines_of(source: str) -> Iterator[bytes]:
    """Yield the lines of a file. Only errors of reading are caught here, none of printing."""
    try:
        with Path(source).open("rb") as lines:
            yield from lines
    except OSError as error:
        raise NotFound(f"{source}: {error.strerror}", field="batch") from None
