"""Parsing of what people type or write into files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

from waypost import arguments
from waypost.errors import BadNotification, Refused
from waypost.notification import Notification
from waypost.queue import ORDERS, Order
from waypost.reliability import Reliability, reliability_of
from waypost.subscription import Expression, SubscriptionError, parse
from waypost.subscription.batch import NotJson, notification_from_json, read_json


def notification_from_text(text: str) -> Notification:
    """Return the notification of a JSON object.

    Raises:
        BadNotification: the text is no JSON object, or no notification; `field` names the attribute.
        BadMessage: it has a number that no type holds, or one name twice in an object, or is nested too deeply.
    """
    try:
        return notification_from_json(read_json(text))
    except NotJson as error:
        raise BadNotification(str(error)) from None


def parsed(expression: str, *, as_json: bool) -> Expression:
    """Return the subscription expression of a text.

    Args:
        expression: the text, in the subscription language.
        as_json: whether errors are printed as JSON; else the hint of the error marks the place in the text.

    Raises:
        SubscriptionError: the text is no subscription expression.
    """
    try:
        return parse(expression)
    except SubscriptionError as error:
        if not as_json:
            error.hint = _marked(expression, error.offset)
        raise


def _marked(expression: str, offset: int) -> str:
    """Return the line of the expression that holds the place, and a mark below it, to be printed behind "hint: "."""
    begin = expression.rfind("\n", 0, offset) + 1
    line = expression[begin:].split("\n", 1)[0]
    return f"{line}\n      {' ' * (offset - begin)}^"


def unreadable(file: Path, error: OSError | UnicodeDecodeError, option: str) -> Refused:
    """Return the error for a file, named by `option`, that cannot be read as text."""
    reason = error.strerror if isinstance(error, OSError) else "it is no text"
    return Refused(f"{file} cannot be read: {reason}", field=option)


def first_line(file: Path | None, option: str, variable: str) -> str:
    """Return the first line of a file; without a file the environment's `variable`; "": there is neither.

    Args:
        option: that names the file, for the error.

    Raises:
        Refused: the file cannot be read, or its first line is empty.
    """
    if file is None:
        return os.environ.get(variable, "")
    try:
        with file.open(encoding="utf-8") as lines:
            line = lines.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(file, error, option) from None
    if not line:
        raise Refused(f"{file} has nothing in its first line", field=option)
    return line


def order_of(text: str) -> Order:
    """Return the order of delivery of that name. Raises BadArgument: there is none; the message lists the names."""
    arguments.one_of(text, "order", ORDERS)
    return cast("Order", text)


def asked_reliability(events: str | None, connection: str | None) -> Reliability | None:
    """Return the reliability that a receiver requests; None: it names none.

    Args:
        events: persistent or best-effort; None: as `connection`.
        connection: persistent or best-effort; None: persistent.

    Raises:
        Refused: a value is neither, or persistent events go with a best-effort connection.
    """
    if events is None and connection is None:
        return None
    return reliability_of(events or connection or "", connection or "persistent")
