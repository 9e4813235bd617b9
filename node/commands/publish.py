"""`waypost pub`: publish notifications, and say when they are safe."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from itertools import chain, islice

import waypost
from node.commands.reading import notification_from_text
from waypost.errors import BadNotification, Unreachable
from waypost.identity import new_incarnation
from waypost.notification import Int64, Notification, Value

SAFE_S = 30.0
"""How long to wait until a notification is safe."""


def notifications_of(attributes: list[str], *, lines: bool) -> Iterator[Notification]:
    """Yield what is to be published. Raises BadNotification, which names the attribute."""
    if lines:
        for line in sys.stdin:
            yield notification_from_text(line)
    elif attributes == ["-"]:
        yield notification_from_text(sys.stdin.read())
    elif not attributes:
        raise BadNotification("nothing to publish; give name=value, '-' or --lines")
    else:
        yield Notification(dict(_attribute(each) for each in attributes))


def _attribute(text: str) -> tuple[str, Value]:
    left, equals, value = text.partition("=")
    name, _, kind = left.partition(":")
    if not equals or not name:
        raise BadNotification(f"{text!r} is not name=value or name:type=value")
    try:
        return name, _typed(kind, value)
    except ValueError:
        raise BadNotification(f"{value!r} is no {kind or 'value'}", field=name) from None


def _typed(kind: str, value: str) -> Value:
    match kind:
        case "":
            return _guess(value)
        case "int32":
            return int(value)
        case "int64":
            return Int64(int(value))
        case "real64":
            return float(value)
        case "string":
            return value
        case "opaque":
            return bytes.fromhex(value)
    raise BadNotification(f"{kind!r} is none of int32, int64, real64, string, opaque")


def _guess(value: str) -> Value:
    """Read an unnamed type as JSON numbers are read: integers, then reals, else a string."""
    for read in (int, float):
        try:
            return read(value)
        except ValueError:
            continue
    return value


async def send(notifications: Iterator[Notification], *, proxy: str | None, as_json: bool) -> None:
    """Publish them in order; print each coordinate once it is safe."""
    # The first one is read before anybody is bothered: most mistakes show there.
    first = list(islice(notifications, 1))
    if not first:
        return
    async with waypost.produce(f"console/{new_incarnation()}", proxy=proxy, timeout_s=10) as producer:
        for notification in chain(first, notifications):
            try:
                async with asyncio.timeout(SAFE_S):
                    coordinate = await producer.publish(notification)
            except TimeoutError:
                raise Unreachable(f"not known to be safe within {SAFE_S:g} s; it may have been published") from None
            if as_json:
                print(json.dumps({"v": 1, "origin": coordinate.origin, "offset": coordinate.offset}), flush=True)
            else:
                print(f"{coordinate.origin} {coordinate.offset}", flush=True)
