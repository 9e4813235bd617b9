"""The matcher as it is: notifications a second against 1, 10, 100 and 1000 distinct expressions."""

from __future__ import annotations

import time

from bench.measured import Row
from proxy.matching import Matcher
from proxy.session import Role, Session, Subscription
from waypost.identity import Epoch, Origin, SessionId, SubscriptionId
from waypost.notification import Notification, read_body
from waypost.subscription import parse

REPEATS = 5
LEAST_S = 0.3
BODIES = [
    Notification({"origin": "JFK", "dep_delay": each, "carrier": "UA", "tailnum": f"N{each}", "distance": 9}).body
    for each in range(100)
]


def run() -> list[Row]:
    """Decode and match as the engine does, one notification after the other."""
    return [_row(distinct) for distinct in (1, 10, 100, 1000)]


def _row(distinct: int) -> Row:
    matcher = _matcher(distinct)
    rates = tuple(_rate(matcher) for _ in range(REPEATS))
    return Row(f"matching, {distinct} distinct expressions", "notifications/s", rates)


def _matcher(distinct: int) -> Matcher:
    matcher = Matcher()
    for each in range(distinct):
        session = Session(SessionId(f"s{each}"), Epoch(1), Role.SERVING)
        text = f'origin == "JFK" && dep_delay > {each} && distance < {each}'
        identity = SubscriptionId(text)
        session.subscriptions[identity] = Subscription(identity, parse(text), {}, {})
        matcher.put(session)
    return matcher


def _rate(matcher: Matcher) -> float:
    began, count, origin = time.perf_counter(), 0, Origin("A/0")
    while (took := time.perf_counter() - began) < LEAST_S:
        for body in BODIES:
            matcher.match(origin, count, read_body(body))
            count += 1
    return count / took
