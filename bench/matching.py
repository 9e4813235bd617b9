"""Matching, in processor time: the proxy's matcher with few expressions; the index with many, beside asking each one.

The workloads are those of :mod:`bench.workloads`. The naive evaluator runs in the same repeat as the index, over the
same expressions and notifications, and both must find the same. Notifications are decoded beforehand, but for the rows
of the matcher.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bench.measurement import Row
from bench.workloads import bodies, subscriptions
from matching.index import Index
from proxy.core.matcher import Matcher
from proxy.session.role import Role
from proxy.session.session import Session
from proxy.session.subscription import Subscription
from waypost.identity import Epoch, Origin, SessionId, SubscriptionId
from waypost.notification import Notification, Value, read_body
from waypost.subscription import Expression, parse

REPEATS = 5
LEAST_S = 0.3
NOTIFICATIONS = 400
ASKED = 10_000
"""Evaluations of the naive evaluator in one repeat, at least one for each expression."""
BODIES = [
    Notification({"origin": "JFK", "dep_delay": number, "carrier": "UA", "tailnum": f"N{number}", "distance": 9}).body
    for number in range(100)
]

Attributes = Mapping[str, Value]


def run() -> list[Row]:
    """Measure the proxy's matcher, and the index with each workload."""
    rows = [_with_few(distinct) for distinct in (1, 3, 10, 100, 1000)]
    for workload, sizes in (
        ("W1", (100, 1000, 10_000, 100_000)),
        ("W2", (10_000,)),
        ("W3", (10_000,)),
        ("W4", (10_000,)),
    ):
        for size in sizes:
            rows += _with_many(workload, size)
    rows += [*_matcher_with_many(), *_changes(10_000)]
    return rows


# ---------------------------------------------------------------- the proxy's matcher


def _with_few(distinct: int) -> Row:
    """Decode and match as the engine does, one notification after the other."""
    matcher = _matcher(f'origin == "JFK" && dep_delay > {bound} && distance < {bound}' for bound in range(distinct))
    rates = tuple(_rate(lambda body: matcher.match(Origin("A/0"), 1, read_body(body)), BODIES) for _ in range(REPEATS))
    return Row(f"matcher, {distinct} distinct expressions, decoding included", "notifications/s", rates)


def _matcher_with_many() -> list[Row]:
    events = bodies(NOTIFICATIONS)
    matcher = _matcher(subscriptions("W1", 10_000))
    rates = tuple(_rate(lambda body: matcher.match(Origin("A/0"), 1, read_body(body)), events) for _ in range(REPEATS))
    return [Row("matcher, W1, 10,000 sessions of one subscription, decoding included", "notifications/s", rates)]


def _matcher(texts: Iterable[str]) -> Matcher:
    matcher = Matcher()
    for number, text in enumerate(texts):
        session = Session(SessionId(f"s{number}"), Epoch(1), Role.SERVING)
        identity = SubscriptionId(text)
        session.subscriptions[identity] = Subscription(id=identity, expression=parse(text), start={}, promise_floor={})
        matcher.put(session)
    return matcher


# ---------------------------------------------------------------- the index


def _with_many(workload: str, size: int) -> list[Row]:
    expressions = [parse(text) for text in subscriptions(workload, size)]
    events = [read_body(body) for body in bodies(NOTIFICATIONS)]
    index = _index(expressions)
    asked = events[: max(5, ASKED // size)]
    found = [sorted(index.match(event)) for event in asked]
    rates: list[float] = []
    ratios: list[float] = []
    for _ in range(REPEATS):
        rates.append(_rate(index.match, events))
        began = time.process_time()
        naive = [_ask_all(expressions, event) for event in asked]
        naive_rate = len(asked) / (time.process_time() - began)
        assert naive == found
        ratios.append(rates[-1] / naive_rate)
    matched = sum(len(index.match(event)) for event in events) / len(events)
    name = f"index, {workload}, {size:,} subscriptions"
    goal = workload == "W1" and size == 10_000
    return [
        Row(name, "notifications/s", tuple(rates), ">= 40,000" if goal else "", f"{matched:,.1f} match"),
        Row(f"{name}, beside asking each", "times", tuple(ratios), ">= 30" if goal else ""),
    ]


def _changes(size: int) -> list[Row]:
    """Measure how fast expressions are added and removed beside `size` others; parsing is not counted."""
    texts = subscriptions("W1", size + 2000)
    index = _index([parse(text) for text in texts[:size]])
    coming = [parse(text) for text in texts[size:]]
    adding, removing = [], []
    for _ in range(REPEATS):
        adding.append(_rate_once(lambda expression: index.add(expression, 0), coming))
        removing.append(_rate_once(index.remove, coming))
    name = f"beside {size:,} others, W1"
    return [
        Row(f"subscribe {name}", "a second", tuple(adding)),
        Row(f"unsubscribe {name}", "a second", tuple(removing)),
    ]


def _index(expressions: Sequence[Expression]) -> Index[int]:
    index: Index[int] = Index()
    for number, expression in enumerate(expressions):
        index.add(expression, number)
    return index


def _ask_all(expressions: Sequence[Expression], event: Attributes) -> list[int]:
    return [number for number, expression in enumerate(expressions) if expression.matches(event)]


# ---------------------------------------------------------------- measuring


def _rate(do: Callable[[Any], object], over: Sequence[object]) -> float:
    """Call `do` with each element of `over`, again and again; return calls per second of processor time."""
    began, count = time.process_time(), 0
    while (took := time.process_time() - began) < LEAST_S:
        for element in over:
            do(element)
        count += len(over)
    return count / took


def _rate_once(do: Callable[[Any], object], over: Sequence[object]) -> float:
    began = time.process_time()
    for element in over:
        do(element)
    return len(over) / (time.process_time() - began)
