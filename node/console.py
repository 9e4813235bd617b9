"""What the commands of the command line do."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import waypost
from waypost.client.machine import Redirected, Retry
from waypost.client.session import Received
from waypost.errors import BadNotification, NoProxy, NotFound, Unreachable, WaypostError
from waypost.identity import new_incarnation
from waypost.messages import Gap
from waypost.notification import Int64, Notification, Value, type_name
from waypost.subscription import SubscriptionError, parse
from waypost.subscription.batch import evaluate_line, notification_from_json

EXIT_IN_VAIN = 27


# ---------------------------------------------------------------- receiving


async def receive(
    expression: str,
    *,
    session: str | None,
    receiver: str,
    count: int,
    wait_s: float,
    form: str | None,
    proxy: str | None,
    as_json: bool,
) -> None:
    """Print what matches, one line each; what happens goes to stderr."""
    parse(expression)
    name = session or f"console/{new_incarnation()}"
    attached = waypost.attach(name, proxy=proxy, receiver=receiver, timeout_s=10, on_event=_tell)
    async with attached as place:
        said = await place.until_attached()
        await place.subscribe(expression)
        print(
            f"attached to {said.proxy}@{said.site}, session {name}, {said.stored} stored, "
            f"effective from {dict(place.effective(expression))}",
            file=sys.stderr,
        )
        try:
            async with asyncio.timeout(wait_s or None):
                await _print_all(place, count, form, as_json)
        except TimeoutError:
            raise WaitedInVain(f"nothing more came within {wait_s:g} s") from None
        if session is None:
            await place.close(forget=True)


class WaitedInVain(WaypostError):
    code = "WAITED_IN_VAIN"
    exit_status = EXIT_IN_VAIN


async def _print_all(place: waypost.Session, count: int, form: str | None, as_json: bool) -> None:
    printed = 0
    async for received in place:
        print(_line(received, form, as_json), flush=True)
        printed += 1
        if printed == count:
            return


def _line(received: Received, form: str | None, as_json: bool) -> str:
    if as_json:
        return json.dumps(
            {
                "v": 1,
                "id": list(received.id),
                "coordinate": list(received.coordinate),
                "subscriptions": list(received.subscriptions),
                "notification": {name: _json_value(value) for name, value in received.items()},
            }
        )
    if form is not None:
        return form.format_map(_Blank(received))
    return " ".join(f"{name}={_plain(value)}" for name, value in received.items())


class _Blank(dict[str, Any]):
    def __missing__(self, name: str) -> str:
        return ""


def _json_value(value: Value) -> dict[str, Any]:
    """Return a value with its type; what JSON cannot say is said as a string."""
    kind = type_name(value)
    if isinstance(value, bytes):
        return {kind: value.hex()}
    if isinstance(value, float) and not math.isfinite(value):
        return {kind: str(value)}
    return {kind: str(int(value)) if isinstance(value, Int64) else value}


def _plain(value: Value) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _tell(event: object) -> None:
    match event:
        case Retry():
            print(f"reconnecting: {event.reason}, next in {event.after_ms} ms", file=sys.stderr)
        case Redirected():
            print(f"moved to {event.proxy} at {event.url}", file=sys.stderr)
        case Gap():
            print(f"gap: {event.origin} {event.first}-{event.last}, {event.reason}", file=sys.stderr)


# ---------------------------------------------------------------- publishing


def notifications_of(attributes: list[str], *, lines: bool) -> Iterator[Notification]:
    """Yield what is to be published. Raises BadNotification, which names the attribute."""
    if lines:
        for line in sys.stdin:
            yield _from_json(line)
    elif attributes == ["-"]:
        yield _from_json(sys.stdin.read())
    elif not attributes:
        raise BadNotification("nothing to publish; give name=value, '-' or --lines")
    else:
        yield Notification(dict(_attribute(each) for each in attributes))


def _from_json(text: str) -> Notification:
    try:
        return notification_from_json(json.loads(text))
    except json.JSONDecodeError as error:
        raise BadNotification(f"no JSON: {error}") from None


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


async def send(notifications: Iterable[Notification], *, proxy: str | None, as_json: bool) -> None:
    """Publish them in order; print each coordinate once it is safe."""
    async with waypost.produce(f"console/{new_incarnation()}", proxy=proxy, timeout_s=10) as producer:
        for notification in notifications:
            async with asyncio.timeout(30):
                coordinate = await producer.publish(notification)
            if as_json:
                print(json.dumps({"v": 1, "origin": coordinate.origin, "offset": coordinate.offset}), flush=True)
            else:
                print(f"{coordinate.origin} {coordinate.offset}", flush=True)


# ---------------------------------------------------------------- matching


def match_one(expression: str, notification: str, *, as_json: bool) -> None:
    """Print true, false or bottom; an error marks its place in the expression."""
    try:
        result = _word(parse(expression).matches(_from_json(notification)))
    except SubscriptionError as error:
        if not as_json:
            error.hint = f"{expression}\n      {' ' * error.offset}^"
        raise
    print(json.dumps({"v": 1, "result": result}) if as_json else result)


def _word(result: bool | None) -> str:
    return "bottom" if result is None else str(result).lower()


def match_batch(source: str) -> None:
    """Print one JSON line for each line of the file."""
    if source == "-":
        _match_lines(sys.stdin)
        return
    try:
        with Path(source).open(encoding="utf-8") as lines:
            _match_lines(lines)
    except OSError as error:
        raise NotFound(f"{source}: {error.strerror}", field="batch") from None


def _match_lines(lines: Iterable[str]) -> None:
    for line in lines:
        if line.strip():
            print(json.dumps(evaluate_line(line)), flush=False)
    sys.stdout.flush()


# ---------------------------------------------------------------- sessions


def _address(proxy: str | None) -> str:
    if proxy:
        return proxy
    from discovery.browse import find

    found = asyncio.run(find())
    if not found:
        raise NoProxy("none found on this network in 2 s", hint="is one running? try --proxy ws://host:port")
    return found[0]


def _get(proxy: str | None, path: str) -> Any:
    url = "http" + _address(proxy).removeprefix("ws") + path
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)
    except (urllib.error.URLError, TimeoutError, ValueError) as error:
        raise Unreachable(f"{url}: {error}", hint="is a proxy running there?") from None


def list_sessions(proxy: str | None, *, as_json: bool) -> None:
    answer = _get(proxy, "/v1/sessions")
    if as_json:
        print(json.dumps(answer))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="")
    for heading in ("session", "owner", "epoch", "state", "stored", "receivers"):
        table.add_column(heading)
    for row in answer["sessions"]:
        table.add_row(
            *(
                "" if row[each] is None else str(row[each])
                for each in ("session", "owner", "epoch", "state", "stored", "receivers")
            )
        )
    Console(soft_wrap=True).print(table)


def show_session(session: str, proxy: str | None, *, as_json: bool) -> None:
    for row in _get(proxy, "/v1/sessions")["sessions"]:
        if row["session"] == session:
            print(json.dumps({"v": 1} | row) if as_json else "\n".join(f"{key}: {value}" for key, value in row.items()))
            return
    raise NotFound(f"there is no session {session}", field="session")
