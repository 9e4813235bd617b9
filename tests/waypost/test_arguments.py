"""Arguments of a wrong type, or out of their range: each is refused at once, by name, and without a proxy."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import pytest

import waypost
from waypost.client.delivery_state import ReceiverState
from waypost.client.rendezvous import Offering, RendezvousConsumer
from waypost.errors import WaypostError
from waypost.keys import Keys

NOWHERE = "ws://127.0.0.1:1"
LIBRARIES = ("msgspec", "pydantic", "Expected `", "Invalid enum", "Traceback", "object at 0x")
NAN, INF = math.nan, math.inf
NO_TEXT = (5, None, b"s", ["s"], {1}, object())
NO_NUMBER = ("x", b"1", [1], NAN, -1, True, 1.5, {1})
NO_TIME = ("x", b"1", [1], NAN, -1, True, {1})
NO_FLAG: tuple[Any, ...] = ("no", 1, 0, None, [])
NO_KEYS = (5, "secret", b"secret", {b"secret"}, None)


def receiver(**options: Any) -> waypost.Receiver:
    return waypost.attach("s", proxy=NOWHERE, **options)


def roaming(**options: Any) -> waypost.Receiver:
    return receiver(roaming=waypost.Roaming(**options))


def producer() -> waypost.Producer:
    return waypost.produce("p", proxy=NOWHERE)


def meeting(**options: Any) -> RendezvousConsumer:
    return waypost.connect_rendezvous("alice", proxy=NOWHERE, **options)


def offering(provide: Any = lambda _: b"", **options: Any) -> Offering:
    return waypost.offer("bob", provide, proxy=NOWHERE, **options)


def request(**fields: Any) -> waypost.Request:
    return waypost.Request(**{"id": "1", "owner": "bob", "requester": "alice", "path": "p"} | fields)


Case = tuple[str, Callable[[Any], Any], tuple[Any, ...]]
ATTACH: list[Case] = [
    ("session", lambda it: waypost.attach(it, proxy=NOWHERE), (*NO_TEXT, "", "x" * 10_000, "\ud800", "a\nb")),
    ("proxy", lambda it: waypost.attach("s", proxy=it), (5, b"ws://h:1", [], {}, [5], ["http://h"], "h:1", {"a": 1})),
    ("receiver", lambda it: receiver(receiver=it), (*NO_TEXT, "", "a\tb")),
    ("name", lambda it: receiver(name=it), (5, b"n", "", [])),
    ("state", lambda it: receiver(state=it), (5, "x", {}, waypost.Queue())),
    ("state.frontier", lambda it: receiver(state=ReceiverState(frontier=it)), (5, [1], {1: 2}, {"A/0": "x"})),
    ("state.receiver", lambda it: receiver(state=ReceiverState(receiver=it)), (5, "s", ("s",), ("s", 5))),
    ("state.epoch", lambda it: receiver(state=ReceiverState(epoch=it)), ("x", -1, NAN, None)),
    ("state.attach_seq", lambda it: receiver(state=ReceiverState(attach_seq=it)), ("x", -1, NAN, None)),
    ("state.attested", lambda it: receiver(state=ReceiverState(attested=it)), ("x", -1, NAN, None)),
    ("state.selective", lambda it: receiver(state=ReceiverState(selective=it)), (5, {}, None)),
    ("state.unconfirmed", lambda it: receiver(state=ReceiverState(unconfirmed=it)), (5, None, deque([5]))),
    ("create", lambda it: receiver(create=it), NO_FLAG),
    ("session_expiry_s", lambda it: receiver(session_expiry_s=it), (*NO_NUMBER, 0, 10**12)),
    ("receiver_expiry_s", lambda it: receiver(receiver_expiry_s=it), (*NO_NUMBER, 0, 10**12)),
    ("reliability", lambda it: receiver(reliability=it), (5, "best-effort", {})),
    ("session_reliability", lambda it: receiver(session_reliability=it), (5, "best-effort", {})),
    ("queue", lambda it: receiver(queue=it), (5, "fifo", {})),
    ("order", lambda it: receiver(order=it), (5, "lifo", None, b"any", ["any"])),
    ("principal", lambda it: receiver(principal=it), (5, None, b"p", "x" * 10_000)),
    ("password", lambda it: receiver(password=it), (5, None, b"p", "x" * 100_000)),
    ("token", lambda it: receiver(token=it), (5, None, b"t", "x" * 100_000)),
    ("window", lambda it: receiver(window=it), (*NO_NUMBER, 0, None, 10**9)),
    ("timeout_s", lambda it: receiver(timeout_s=it), (*NO_TIME, None)),
    ("on_event", lambda it: receiver(on_event=it), (5, "print", {})),
    ("tls", lambda it: receiver(tls=it), (5, True, "cert.pem")),
    ("path", lambda it: waypost.open_outbox(it, "p", proxy=NOWHERE), (5, "", b"x")),
    ("name", lambda it: waypost.open_outbox("box", it, proxy=NOWHERE), (5, b"x", "")),
    ("max_bytes", lambda it: waypost.open_outbox("box", "p", max_bytes=it), (0, "x", 2.5, 1 << 41)),
    ("proxy", lambda it: waypost.open_outbox("box", "p", proxy=it), (5,)),
    ("on_event", lambda it: waypost.open_outbox("box", "p", on_event=it), (5,)),
    ("name", lambda it: waypost.produce(it, proxy=NOWHERE), (*NO_TEXT, "")),
    ("proxy", lambda it: waypost.produce("p", proxy=it), (5, b"ws://h:1", [])),
    ("token", lambda it: waypost.produce("p", proxy=NOWHERE, token=it), (5, None)),
    ("timeout_s", lambda it: waypost.produce("p", proxy=NOWHERE, timeout_s=it), NO_TIME),
    ("on_event", lambda it: waypost.produce("p", proxy=NOWHERE, on_event=it), (5,)),
    ("tls", lambda it: waypost.produce("p", proxy=NOWHERE, tls=it), (5,)),
    ("sessions", lambda it: waypost.join(it, proxy=NOWHERE), (5, "s", b"s", None, [], [5], ["s", "s"], {"s": 1})),
    ("state", lambda it: waypost.join(["s"], state=it), (5, "x", ReceiverState())),
    ("session", lambda it: waypost.join(["s"], proxy=NOWHERE)[it], (5, "other", None)),
    ("name", lambda it: waypost.offer(it, lambda _: b"", proxy=NOWHERE), (*NO_TEXT, "")),
    ("provide", lambda it: offering(it), (5, None, "f")),
    ("key", lambda it: offering(key=it), (5, "secret", b"", b"x" * 10_000)),
    ("kept_s", lambda it: offering(kept_s=it), (*NO_NUMBER, 0, None)),
    ("name", lambda it: waypost.connect_rendezvous(it, proxy=NOWHERE), (*NO_TEXT, "")),
    ("key", lambda it: meeting(key=it), (5, "secret", b"")),
    ("kept_s", lambda it: meeting(kept_s=it), (*NO_NUMBER, 0, None)),
]
VALUES: list[Case] = [
    ("notification", lambda it: waypost.Notification(it), (5, None, "x", [1], {1}, b"x")),
    ("", lambda it: waypost.Notification({it: 1}), (1, None, b"n", ("n",))),
    ("n", lambda it: waypost.Notification({"n": it}), (None, {1}, [1], {}, True, 1j, object(), 2**64, "\0")),
    ("", lambda it: waypost.Notification({"n": it}), ("\ud800",)),
    ("body", lambda it: waypost.Notification.from_body(it), (5, None, "x", [1])),
    ("max_count", lambda it: waypost.Queue(max_count=it), (*NO_NUMBER, 0)),
    ("max_bytes", lambda it: waypost.Queue(max_bytes=it), (*NO_NUMBER, 0)),
    ("discard", lambda it: waypost.Queue(discard=it), (5, None, "newest", [])),
    ("deadlines", lambda it: waypost.Queue(deadlines=it), NO_FLAG),
    ("events", lambda it: waypost.Reliability(events=it), (5, None, "perfect", [])),
    ("connection", lambda it: waypost.Reliability(connection=it), (5, None, "perfect", "best-effort")),
    ("roaming", lambda it: waypost.attach("s", proxy=NOWHERE, roaming=it), (5, True, "nearest", waypost.Queue())),
    ("roaming", lambda it: waypost.produce("p", proxy=NOWHERE, roaming=it), (5, True, "nearest")),
    ("roaming.site", lambda it: roaming(site=it), (5, "", b"A", ["A"])),
    ("roaming.margin_ms", lambda it: roaming(margin_ms=it), (None, "10", 0.5, -1, 10**9, True)),
    ("roaming.every_s", lambda it: roaming(every_s=it), (None, "10", -1, 0, 1e9, float("nan"), float("inf"), True)),
    ("roaming.hold_s", lambda it: roaming(hold_s=it), (None, "10", -1, 1e9, float("nan"), float("inf"), True)),
    ("roaming.confirmations", lambda it: roaming(confirmations=it), (None, "3", 0, -1, 0.5, 10**9, True)),
    ("keys", lambda it: waypost.Keys(it), (5, "secret", [b"secret"], frozenset({b"secret"}))),
    ("keys", lambda it: waypost.Keys.producer(it), (5, "secret", None, b"", b"x" * 10_000)),
    ("keys", lambda it: waypost.Keys.consumer(it), (5, "secret", None, b"", b"x" * 10_000)),
    ("algorithm", lambda it: waypost.Keys.producer(b"k", algorithm=it), (5, None, "md5")),
    ("producer", lambda it: waypost.Keys.dual(producer=it), (5, None, b"key", "key")),
    ("consumer", lambda it: waypost.Keys.dual(consumer=it), (5, None, b"key", "key")),
    ("keys", lambda it: waypost.Keys.dual(scheme=it), (5, "triple")),
    ("keys", lambda it: waypost.Keys() | it, (5, None, b"key")),
    ("raw", lambda it: waypost.public_key(it), (5, None, "secret", b"")),
    ("algorithm", lambda it: waypost.public_key(b"k", it), (5, None, "md5")),
    ("expression", lambda it: waypost.parse(it), NO_TEXT),
    ("rights", lambda it: waypost.grant(it), (5, None, "king", b"read", [])),
    ("password", lambda it: waypost.grant("read", password=it), (5, b"p", "x" * 100_000)),
    ("by_token", lambda it: waypost.grant("read", by_token=it), NO_FLAG),
    ("id", lambda it: request(id=it).notification(), NO_TEXT),
    ("owner", lambda it: request(owner=it).notification(), NO_TEXT),
    ("requester", lambda it: request(requester=it).notification(), NO_TEXT),
    ("path", lambda it: request(path=it).notification(), NO_TEXT),
    ("max_bytes", lambda it: request(max_bytes=it).notification(), (*NO_NUMBER, 0, None)),
    ("key", lambda it: request(key=it).notification(), (5, b"key", "key")),
    ("data", lambda it: list(request().answer("1", it)), (5, None, "data", [1])),
    ("why", lambda it: request().refusal("1", it), (5, None, b"why")),
]
METHODS: list[Case] = [
    ("notification", lambda it: producer().publish(it), (5, None, "x", {1})),
    ("", lambda it: producer().publish({it: 2}), (1, None)),
    ("n", lambda it: producer().publish({"n": it}), (None, {1}, [1])),
    ("keys", lambda it: producer().publish({"n": 1}, keys=it), NO_KEYS),
    ("insecure", lambda it: producer().publish({"n": 1}, insecure=it), NO_FLAG),
    ("notification", lambda it: producer().publish_soon(it), (5, None)),
    ("names", lambda it: producer().quench(it), (*NO_TEXT, "")),
    ("names", lambda it: producer().quench(*["n"] * it), (1_000,)),
    ("keys", lambda it: producer().quench("n", keys=it), NO_KEYS),
    ("insecure", lambda it: producer().quench("n", insecure=it), NO_FLAG),
    ("notification", lambda it: producer().wanted(it), (5, None, "x")),
    ("timeout_s", lambda it: producer().wait_wanted({"n": 1}, it), (*NO_TIME, None)),
    ("keys", lambda it: producer().publish_with(it), NO_KEYS),
    ("proxy", lambda it: producer().move(it), (5, None, "http://h", b"ws://h:1")),
    ("expression", lambda it: receiver().subscribe(it), NO_TEXT),
    ("id", lambda it: receiver().subscribe("n > 0", id=it), (5, b"x", "", "x" * 10_000)),
    ("ttl_s", lambda it: receiver().subscribe("n > 0", ttl_s=it), (*NO_NUMBER, 0)),
    ("max_count", lambda it: receiver().subscribe("n > 0", max_count=it), (*NO_NUMBER, 0)),
    ("keys", lambda it: receiver().subscribe("n > 0", keys=it), NO_KEYS),
    ("insecure", lambda it: receiver().subscribe("n > 0", insecure=it), NO_FLAG),
    ("subscribing", lambda it: receiver().set_keys(subscribing=it), (5, b"key")),
    ("publishing", lambda it: receiver().set_keys(publishing=it), (5, b"key")),
    ("subscription", lambda it: receiver().unsubscribe(it), (*NO_TEXT, "")),
    ("subscription", lambda it: receiver().effective(it), NO_TEXT),
    ("subscription", lambda it: receiver().wait_effective(it, ["A/0"]), NO_TEXT),
    ("origins", lambda it: receiver().wait_effective("x", it), (5, None, "A/0", [5])),
    ("grants", lambda it: receiver().set_access(it), (5, "alice", [1], {1: 2}, {"alice": "owner"}, {"alice": None})),
    ("password", lambda it: receiver().set_access(password=it), (5, b"p")),
    ("max_items", lambda it: receiver().next_batch(it), (*NO_NUMBER, 0)),
    ("manual_ack", lambda it: receiver().next_batch(manual_ack=it), NO_FLAG),
    ("forget", lambda it: receiver().close(forget=it), NO_FLAG),
    ("timeout_s", lambda it: receiver().wait_attested(it), (*NO_TIME, None)),
    ("proxy", lambda it: receiver().move(it), (5, None)),
    ("owner", lambda it: meeting().arrange(it, "p"), (*NO_TEXT, "")),
    ("path", lambda it: meeting().arrange("bob", it), (*NO_TEXT, "")),
    ("id", lambda it: meeting().arrange("bob", "p", id=it), (5, b"x", "")),
    ("max_bytes", lambda it: meeting().arrange("bob", "p", max_bytes=it), (*NO_NUMBER, 0, None)),
    ("key", lambda it: meeting().arrange("bob", "p", key=it), (5, "key", b"")),
]
CASES = [
    pytest.param(field, act, value, id=f"{kind}{number}-{field}-{value!r:.20}")
    for kind, cases in (("make", ATTACH), ("value", VALUES), ("method", METHODS))
    for number, (field, act, values) in enumerate(cases)
    for value in values
]


async def refused(act: Callable[[Any], Any], value: Any) -> WaypostError:
    with pytest.raises(WaypostError) as caught:
        done = act(value)
        if inspect.isawaitable(done):
            await done
    return caught.value


@pytest.mark.parametrize(("field", "act", "value"), CASES)
async def test_wrong_argument_is_refused_by_name(field: str, act: Callable[[Any], Any], value: Any) -> None:
    error = await refused(act, value)
    assert error.definite and error.exit_status in (2, 5)
    assert (error.field or "") == field, error
    assert len(str(error).splitlines()) == 1 and len(error.message) < 300
    assert not any(library in error.message for library in LIBRARIES), error


@pytest.mark.parametrize(
    "act",
    [
        lambda secret: receiver(password=secret),
        lambda secret: receiver(token=secret),
        lambda secret: waypost.grant("read", password=secret),
        lambda secret: producer().publish({"n": 1}, keys=secret),
        lambda secret: waypost.Keys.producer(cast(bytes, bytearray(secret))),
        lambda secret: waypost.Keys(secret),
        lambda secret: waypost.public_key(cast(bytes, bytearray(secret))),
        lambda secret: offering(key=bytearray(secret)),
    ],
)
async def test_error_of_a_secret_does_not_show_it(act: Callable[[Any], Any]) -> None:
    assert "hunter2" not in str(await refused(act, b"hunter2"))


def test_error_of_an_argument_is_one_of_pythons_own_too() -> None:
    for kind in (TypeError, ValueError):
        with pytest.raises(kind):
            waypost.attach(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "act"),
    [
        ("session", lambda: waypost.blocking.attach(5)),  # type: ignore[arg-type]
        ("timeout_s", lambda: waypost.blocking.attach("s", proxy=NOWHERE, timeout_s="x")),
        ("name", lambda: waypost.blocking.produce(None)),  # type: ignore[arg-type]
        ("state", lambda: waypost.blocking.attach("s", proxy=NOWHERE, state=5)),
    ],
)
def test_blocking_facade_refuses_what_cannot_be_attached(field: str, act: Callable[[], Any]) -> None:
    with pytest.raises(WaypostError) as caught:
        act()
    assert caught.value.field == field


BLOCKING: list[tuple[str, Callable[[Any], Any], Any]] = [
    ("notification", lambda it: it.publish(None), None),
    ("n", lambda it: it.publish({"n": {1}}), None),
    ("keys", lambda it: it.publish({"n": 1}, keys=b"k"), None),
    ("insecure", lambda it: it.publish({"n": 1}, insecure="no"), None),
    ("names", lambda it: it.quench(5), None),
    ("notification", lambda it: it.wanted(5), None),
    ("keys", lambda it: it.publish_with(5), None),
    ("timeout_s", lambda it: it.next("x"), None),
    ("timeout_s", lambda it: it.next(NAN), None),
    ("expression", lambda it: it.subscribe(5), None),
    ("ttl_s", lambda it: it.subscribe("n > 0", ttl_s="x"), None),
    ("subscribing", lambda it: it.set_keys(subscribing=5), None),
    ("subscription", lambda it: it.unsubscribe(5), None),
    ("grants", lambda it: it.set_access(5), None),
    ("forget", lambda it: it.close(forget="yes"), None),
]


@pytest.mark.parametrize(("field", "act", "_"), BLOCKING)
def test_blocking_receiver_refuses_wrong_arguments(field: str, act: Callable[[Any], Any], _: None) -> None:
    made = waypost.blocking.attach("s", proxy=NOWHERE)
    try:
        with pytest.raises(WaypostError) as caught:
            act(made)
        assert caught.value.field == field
    finally:
        made.close()


def test_every_public_name_that_takes_arguments_is_tried_here() -> None:
    """Frontier is a type for annotations, Int64 is Python's int; what the library returns is not made by hand."""
    not_made = {"Frontier", "Int64", "Outbox", "Producer", "Received", "Receiver", "Resource", "blocking"}
    events = {
        "Attached",
        "BecameEffective",
        "Gap",
        "NearerProxy",
        "PostRefused",
        "Redirected",
        "Retry",
        "SessionReplaced",
    }
    not_made |= events | {"SubscriptionChanged", "WrongFederation"}
    not_made |= {
        name
        for name in waypost.__all__
        if issubclass(type(getattr(waypost, name)), type) and issubclass(getattr(waypost, name), Exception)
    }
    tried = inspect.getsource(inspect.getmodule(refused))  # type: ignore[arg-type]
    for name in set(waypost.__all__) - not_made:
        assert f"waypost.{name}(" in tried or f"{name}(" in tried, name


@pytest.mark.parametrize("value", [5, "x", 2.5, b"y", 2**40, waypost.Int64(3)])
def test_values_of_subclasses_travel_as_what_they_are(value: Any) -> None:
    kind = type(value)
    like = kind if kind is waypost.Int64 else type("Like", (kind,), {})
    sent = waypost.Notification({"n": like(value)})
    assert waypost.Notification.from_body(sent.body)["n"] == value


def test_time_may_be_infinite() -> None:
    assert receiver(timeout_s=INF) is not None


async def test_keys_of_all_kinds_are_taken() -> None:
    error = await refused(lambda keys: producer().publish({"n": 1}, keys=keys), Keys.producer(b"k"))
    assert "not entered" in error.message
    await asyncio.sleep(0)
