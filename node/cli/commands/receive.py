"""`waypost sub`: receive notifications, one line each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import string
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import waypost
from node.cli.commands.input import parsed
from node.cli.commands.interrupt import blocking
from node.cli.commands.joining import entered
from waypost.client.events import NearerProxy, Redirected, Retry, SessionReplaced
from waypost.client.received_notification import Received
from waypost.client.roaming import Roaming
from waypost.errors import NotFound, Refused, WaypostError
from waypost.identity import Origin, SiteId, SubscriptionId, new_incarnation, origin_of
from waypost.keys import NO_KEYS, Keys
from waypost.messages import Attached, Gap, SubscriptionChanged
from waypost.notification import Value
from waypost.queue import Order
from waypost.reliability import Reliability
from waypost.subscription.batch import notification_as_json
from waypost.terminal import escaped, printable

EXIT_IN_VAIN = 27
SHOWN_SUBSCRIPTIONS = 3
"""Subscriptions of a session, beside the one that is asked for, that are named."""
PASSWORD = "WAYPOST_PASSWORD"
CONVERSIONS = "rsa"
"""Those of Python's formats: {name!r}, {name!s}, {name!a}."""
ATTACH_S = 10.0
"""How long to look for a proxy that accepts the attach."""
EFFECTIVE_S = 1.0
"""How long to wait for the promise of the proxy's own site, which comes at once, before the first line is printed."""
FORGET_S = 2.0
"""How long to try to delete our own session; Ctrl-C must not wait for a proxy that is gone."""


class WaitedInVain(WaypostError):
    """Fewer notifications came within the time than were wanted."""

    code = "WAITED_IN_VAIN"
    exit_status = EXIT_IN_VAIN


async def receive(
    expression: str | None,
    *,
    session: str | None,
    receiver: str,
    count: int,
    wait_s: float,
    form: str | None,
    proxy: str | None,
    as_json: bool,
    ttl_s: int | None = None,
    max_count: int | None = None,
    principal: str = "",
    password: str = "",
    token: str | Callable[[], str] = "",
    keys: Keys = NO_KEYS,
    insecure: bool = True,
    reliability: Reliability | None = None,
    order: Order = "any",
    roaming: Roaming | None = None,
) -> None:
    """Print the notifications that match an expression, one a line; events of the connection go to stderr.

    A named session, and its subscription, stay at the end.

    Args:
        expression: what to receive; None: what the session subscribes to already.
        session: its name; None: a session of our own, which is deleted at the end.
        receiver: its name in the session.
        count: end after so many notifications; 0: go on.
        wait_s: end by WaitedInVain after so many seconds; 0: go on.
        form: a format string with attributes as {name}; None: all attributes.
        proxy: the URL of a proxy; None: one found by mDNS.
        as_json: whether lines are JSON.
        ttl_s: retention of the subscription, in seconds; None: as it is, or without a bound.
        max_count: the most notifications that are stored for it; None: as it is, or without a bound.
        principal: to attach as; "": none.
        password: of the principal; "": none.
        token: to attach with, or a function that returns it; "": none.
        keys: the receiver's side of security keys.
        insecure: whether notifications whose keys do not meet `keys` come too.
        reliability: to request at the attach; None: none.
        order: in which what waits is given.
        roaming: the policy by which it goes to the nearest proxy; None: it stays where it is.

    Raises:
        SubscriptionError: the expression is not valid.
        NotFound: there is no expression, and the session does not exist, or has no subscription.
        Refused: `form` is no format, or does not fit a notification; or the proxy refuses the attach or the
            subscription.
        NoAnswer, NoProxy: no proxy lets this receiver in within ATTACH_S seconds, or `wait_s` if that is less, or none
            answers the subscription so soon.
        WaitedInVain: `wait_s` are over, and fewer than `count` came.
        WaypostError: the error that ended the session.
    """
    if expression is not None:
        parsed(expression, as_json=as_json)
    _check_form(form)
    name = session or f"console/{new_incarnation()}"
    news = _News()
    until = asyncio.get_running_loop().time() + wait_s if wait_s else None
    attach_timeout_s = min(ATTACH_S, wait_s) if wait_s else ATTACH_S
    attached = waypost.attach(
        name,
        proxy=proxy,
        receiver=receiver,
        principal=principal,
        password=password,
        token=token,
        reliability=reliability,
        order=order,
        roaming=roaming,
        timeout_s=attach_timeout_s,
        on_event=news.on_event,
        create=expression is not None,
    )
    async with entered(attached, attach_timeout_s) as attached_receiver:
        try:
            async with asyncio.timeout_at(until):
                if expression is None:
                    await _receive_all(attached_receiver, name, count, form, as_json)
                    return
                subscribe = partial(
                    attached_receiver.subscribe,
                    expression,
                    ttl_s=ttl_s,
                    max_count=max_count,
                    keys=keys,
                    insecure=insecure,
                )
                await _receive(attached_receiver, name, subscribe, count, form, as_json)
        except TimeoutError:
            raise WaitedInVain(f"nothing more came within {wait_s:g} s") from None
        finally:
            if session is None:
                await _forget(attached_receiver)


async def _receive_all(receiver: waypost.Receiver, name: str, count: int, form: str | None, as_json: bool) -> None:
    attached = await receiver.wait_attached()
    if not attached.subscriptions:
        raise NotFound(f"session {name} has no subscription", hint="write what to receive")
    print(_welcome(attached, name, None, as_json), file=sys.stderr)
    await _print_all(receiver, count, form, as_json)


async def _receive(
    receiver: waypost.Receiver,
    name: str,
    subscribe: Callable[[], Awaitable[SubscriptionId]],
    count: int,
    form: str | None,
    as_json: bool,
) -> None:
    attached = await receiver.wait_attached()
    subscription = await subscribe()
    with contextlib.suppress(TimeoutError, WaypostError):
        async with asyncio.timeout(EFFECTIVE_S):
            await receiver.wait_effective(subscription, [origin_of(SiteId(attached.site))])
    print(_welcome(attached, name, receiver.effective(subscription), as_json), file=sys.stderr)
    others = sorted(set(attached.subscriptions) - {subscription})
    for other in others[:SHOWN_SUBSCRIPTIONS]:
        end = f"waypost sessions unsubscribe {shlex.quote(name)} {shlex.quote(other)}"
        print(f"the session has another subscription, too; what ends it: {printable(end)}", file=sys.stderr)
    if len(others) > SHOWN_SUBSCRIPTIONS:
        print(f"and {len(others) - SHOWN_SUBSCRIPTIONS} more", file=sys.stderr)
    await _print_all(receiver, count, form, as_json)


def _welcome(attached: Attached, name: str, above: Mapping[Origin, int] | None, as_json: bool) -> str:
    """Return the first line; `above`: origin -> the offset above which nothing is missed; None: it is not asked for."""
    if as_json:
        welcome = {
            "proxy": attached.proxy,
            "site": attached.site,
            "session": name,
            "stored": attached.stored,
            "effective": dict(above or {}),
        }
        return json.dumps({"v": 1, "attached": welcome})
    begins = ", ".join(f"{origin} above {offset}" for origin, offset in sorted((above or {}).items()))
    if above is None:
        effective = f"{len(attached.subscriptions)} subscriptions"
    else:
        effective = f"effective from {begins}" if begins else "not effective yet"
    return f"attached to {attached.proxy}@{attached.site}, session {name}, {attached.stored} stored, {effective}"


async def _forget(receiver: waypost.Receiver) -> None:
    """Delete our own session: nobody would come back to it, and it would store notifications for ever."""
    with contextlib.suppress(WaypostError, TimeoutError):
        async with asyncio.timeout(FORGET_S):
            await receiver.delete()
    await receiver.close(forget=True)


async def _print_all(receiver: waypost.Receiver, count: int, form: str | None, as_json: bool) -> None:
    printed = 0
    async for received in receiver:
        with blocking():
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
                "secure": list(received.secure),
                "notification": notification_as_json(received),
            }
        )
    if form is not None:
        try:
            values = {name: escaped(value) if isinstance(value, str) else value for name, value in received.items()}
            return form.format_map(_Blank(values))
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            raise Refused(f"{form!r} does not fit what came: {error}", field="format") from None
    return " ".join(f"{escaped(name)}={_plain(value)}" for name, value in received.items())


def _check_form(form: str | None) -> None:
    """Raises Refused: it is no format, has a conversion that Python has not, or names something by its position;
    attributes have names only.
    """
    try:
        fields = list(string.Formatter().parse(form or ""))
    except ValueError as error:
        raise Refused(f"{form!r} is no format: {error}", field="format") from None
    names = [name for _, name, _, _ in fields if name is not None]
    if any(not name or name[0].isdigit() for name in names):
        raise Refused(f"{form!r} names an attribute by its position; write {{name}}", field="format")
    if conversion := next((found for *_, found in fields if found is not None and found not in CONVERSIONS), None):
        raise Refused(f"{form!r} has the conversion !{conversion}; there are !r, !s and !a", field="format")


class _Blank(dict[str, Any]):
    def __missing__(self, name: str) -> str:
        return ""


def _plain(value: Value) -> str:
    return value.hex() if isinstance(value, bytes) else escaped(str(value))


class _News:
    """Prints events of the connection to stderr. Those before the first attach are in joining.py."""

    def __init__(self) -> None:
        self._attached = self._is_away = False

    def on_event(self, event: object) -> None:
        """Print an event of the connection on stderr, if it is one that a user is told of."""
        match event:
            case Attached():
                if self._is_away:
                    print(f"attached again, to {event.proxy}@{event.site}", file=sys.stderr)
                self._attached, self._is_away = True, False
            case Retry() if self._attached:
                self._is_away = True
                print(f"reconnecting: {event.reason}, next in {event.after_ms} ms", file=sys.stderr)
            case SubscriptionChanged(settings=None):
                print(f"subscription {printable(event.subscription)} was ended by another", file=sys.stderr)
            case SessionReplaced():
                print(
                    f"session {printable(event.session)} is another one: the one of before was deleted or lost",
                    file=sys.stderr,
                )
            case NearerProxy():
                nearer = f"{event.round_trip_ms:.0f} ms away, and {event.present_ms:.0f} ms from here"
                print(f"moving to a nearer proxy, at {event.url}: {nearer}", file=sys.stderr)
            case Redirected():
                print(f"moved to {event.proxy} at {event.url}", file=sys.stderr)
            case Gap():
                print(f"gap: {event.origin} {event.first}-{event.last}, {event.cause}", file=sys.stderr)
            case _:
                pass
