"""`waypost pub`: publish notifications, and say when they are safe."""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path

import waypost
from node.cli.commands.input import notification_from_text
from node.cli.commands.interrupt import blocking
from node.cli.commands.joining import entered
from node.cli.commands.stdout import print_done
from waypost.errors import BadNotification, Refused, Unreachable
from waypost.identity import new_incarnation
from waypost.keys import Keys
from waypost.notification import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, Int64, Notification, Value
from waypost.subscription.errors import quoted

CONSOLE = "console"
"""The producer of the outboxes of `waypost pub`."""
SENT_S = 10.0
"""How long to wait until what is in an outbox is sent on."""
JOIN_S = 10.0
"""How long to try to be let in by a proxy."""
SAFE_S = 30.0
"""How long to wait until a notification is safe."""
NOTICE_AFTER_S = 3.0
"""A wait that is longer than this is reported on stderr."""


def notifications_of(attributes: list[str], *, lines: bool) -> Iterator[Notification]:
    """Yield the notifications to be published; stdin is read as the iterator advances.

    Args:
        attributes: NAME=VALUE or NAME:TYPE=VALUE each, of one notification; or "-" alone: one as JSON on stdin.
        lines: whether stdin has one JSON object a line; `attributes` is empty then.

    Raises:
        Refused: as the iterator advances: there is nothing to publish, `attributes` does not go with `lines`, or a text
            is no notification; `field` names the attribute, and with `lines` the message names the line.
    """
    if lines and attributes:
        raise BadNotification("what is published is read from stdin; leave out --lines, or what is on the command line")
    if lines:
        for number, line in enumerate(sys.stdin, 1):
            try:
                notification = notification_from_text(line)
            except Refused as error:
                raise type(error)(f"line {number}: {error.message}", field=error.field) from None
            yield notification
    elif attributes == ["-"]:
        yield notification_from_text(sys.stdin.read())
    elif not attributes:
        raise BadNotification("nothing to publish; give name=value, '-' or --lines")
    else:
        yield Notification(_attributes(attributes))


def _attributes(texts: list[str]) -> dict[str, Value]:
    attributes: dict[str, Value] = {}
    for name, value in map(_attribute, texts):
        if name in attributes:
            raise BadNotification("given twice; a notification has one value of a name", field=name)
        attributes[name] = value
    return attributes


def _attribute(text: str) -> tuple[str, Value]:
    left, equals, value = text.partition("=")
    name, _, kind = left.partition(":")
    if not equals or not name:
        raise BadNotification(f"{text!r} is not name=value or name:type=value")
    if value.startswith("=") and not kind:
        raise BadNotification(
            f"{text!r} is a comparison; to publish a value say {name}{value}, and for a text {name}:string={value}",
            field=name,
        )
    try:
        return name, _typed(kind, value)
    except ValueError:
        octets = "; write its octets in hexadecimal, such as 00ff" if kind == "opaque" else ""
        raise BadNotification(f"{quoted(value)} is no {kind or 'value'}{octets}", field=name) from None
    except BadNotification as error:
        raise BadNotification(error.message, field=name) from None


def _typed(kind: str, value: str) -> Value:
    match kind:
        case "":
            return _guess(value)
        case "int32":
            return _within(INT32_MIN, int(value), INT32_MAX)
        case "int64":
            return Int64(_within(INT64_MIN, int(value), INT64_MAX))
        case "real64":
            return _real(value)
        case "string":
            return value
        case "opaque":
            return bytes.fromhex(value)
        case _:
            pass
    raise BadNotification(f"{kind!r} is none of int32, int64, real64, string, opaque")


def _within(low: int, value: int, high: int) -> int:
    if not low <= value <= high:
        raise BadNotification(f"{quoted(str(value))} is not from {low} to {high}")
    return value


def _real(value: str) -> float:
    real = float(value)
    if math.isinf(real) and any(character.isdigit() for character in value):
        raise BadNotification(f"{quoted(value)} is too large for a real64")
    return real


def _guess(value: str) -> Value:
    """Return a value without a type as JSON would be read: an integer, else a real, else a string."""
    for read in (int, _real):
        try:
            return read(value)
        except ValueError:
            continue
    return value


def _print_waiting() -> None:
    print(f"waiting: not known to be safe yet; up to {SAFE_S:g} s", file=sys.stderr, flush=True)


def _read(notifications: Iterator[Notification]) -> Iterator[Notification]:
    """Yield notifications that may be read from a terminal: Ctrl-C ends the read."""
    while True:
        with blocking():
            notification = next(notifications, None)
        if notification is None:
            return
        yield notification


async def send(
    notifications: Iterator[Notification],
    *,
    proxy: str | None,
    as_json: bool,
    keys: Keys,
    insecure: bool,
    token: Callable[[], str],
) -> None:
    """Publish notifications in order, each once the one before is safe, and print each coordinate, as long as somebody
    reads them.

    Args:
        proxy: the URL of a proxy; None: one found by mDNS.
        keys: to publish with.
        insecure: whether the notifications may go to receivers whose keys do not meet these, too.
        token: returns the token to publish with; "": none.

    Raises:
        Unreachable: a notification is not known to be safe within SAFE_S seconds; it may have been published.
        WaypostError: no proxy lets this producer in, or a notification is refused.
    """
    # The first one is read before a proxy is asked: most mistakes show there.
    first = list(islice(_read(notifications), 1))
    if not first:
        return
    made = waypost.produce(f"console/{new_incarnation()}", proxy=proxy, token=token, timeout_s=JOIN_S)
    async with entered(made, JOIN_S) as producer:
        for notification in chain(first, _read(notifications)):
            waiting = asyncio.get_running_loop().call_later(NOTICE_AFTER_S, _print_waiting)
            try:
                async with asyncio.timeout(SAFE_S):
                    coordinate = await producer.publish(notification, keys=keys, insecure=insecure)
            except TimeoutError:
                raise Unreachable(f"not known to be safe within {SAFE_S:g} s; it may have been published") from None
            finally:
                waiting.cancel()
            if as_json:
                print_done(json.dumps({"v": 1, "origin": coordinate.origin, "offset": coordinate.offset}))
            else:
                print_done(f"{coordinate.origin} {coordinate.offset}")


async def post(
    notifications: Iterator[Notification] | None,
    path: Path,
    producer: str | None,
    *,
    proxy: str | None,
    as_json: bool,
    keys: Keys,
    insecure: bool,
    token: Callable[[], str],
) -> None:
    """Write notifications into an outbox, print their sequence numbers, and send on what waits, for SENT_S seconds.
    Those that were refused for good, also by earlier calls, are listed on stderr, and stay in the file.

    That some still wait is no error where something was posted: it is safe.

    Args:
        notifications: None: nothing is posted.
        path: the file of the outbox.
        producer: whose outbox it is; None: that of the file, which has to be there.
        proxy: the URL of a proxy; None: one found by mDNS.
        keys: to publish with.
        insecure: whether the notifications may go to receivers whose keys do not meet these, too.
        token: returns the token to publish with; "": none.

    Raises:
        NotFound: there is no outbox.
        Refused: the file is no outbox, is another producer's or open already, a notification is not valid, or more
            would wait than the outbox may hold. Those before it are posted.
        StoreDamaged, StoreFailed: the disk does not take them, or returns other data than was written.
        Unreachable: nothing is posted, and some still wait after SENT_S seconds.
    """
    async with waypost.open_outbox(path, producer, proxy=proxy, token=token) as outbox:
        before, late = outbox.waiting, None
        for notification in _read(notifications or iter(())):
            sequence = await outbox.post(notification, keys=keys, insecure=insecure)
            print_done(json.dumps({"v": 1, "sequence": sequence}) if as_json else sequence)
        try:
            await outbox.wait_sent(SENT_S)
        except Unreachable as error:
            late = error
        for refused in await outbox.refused():
            print(f"{refused.sequence} was refused: {refused.code}: {refused.message}", file=sys.stderr)
        if notifications is None and late is None:
            print(json.dumps({"v": 1, "sent": before, "waiting": 0}) if as_json else f"{before} sent, 0 wait")
    if late is not None and notifications is None:
        raise late
    if late is not None:
        print(late.message, file=sys.stderr)
