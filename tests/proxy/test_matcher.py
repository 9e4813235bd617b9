"""Every expression once, whoever holds it."""

from __future__ import annotations

from proxy.matching import Matcher
from proxy.session import Role, Session, Subscription
from waypost.identity import Epoch, Origin, SessionId, SubscriptionId
from waypost.notification import Notification
from waypost.subscription import parse

A = Origin("A/0")


def session(name: str, **interests: str) -> Session:
    made = Session(SessionId(name), Epoch(1), Role.SERVING)
    for identity, text in interests.items():
        subscription = SubscriptionId(identity)
        made.subscriptions[subscription] = Subscription(subscription, parse(text), {A: 0}, {})
    return made


def matched(matcher: Matcher, number: int, offset: int = 1) -> dict[str, tuple[str, ...]]:
    found = matcher.match(A, offset, Notification({"n": number}))
    return {session.id: tuple(sorted(ids)) for session, ids in found}


def test_a_session_is_told_all_its_subscriptions_that_matched() -> None:
    matcher = Matcher()
    matcher.put(session("s", x="n > 0", y="n > 1", z="n > 9"))
    matcher.put(session("t", x="n > 0"))
    assert matched(matcher, 5) == {"s": ("x", "y"), "t": ("x",)}


def test_one_expression_is_held_once() -> None:
    matcher = Matcher()
    for name in "stu":
        matcher.put(session(name, x="n > 0", y="n > 0"))
    assert len(matcher) == 1


def test_nothing_is_wanted_below_the_start() -> None:
    matcher = Matcher()
    matcher.put(session("s", x="n > 0"))
    assert matched(matcher, 5, offset=0) == {}


def test_what_was_put_again_is_as_it_is_now() -> None:
    matcher, made = Matcher(), session("s", x="n > 0", y="n > 1")
    matcher.put(made)
    made.end_subscription(SubscriptionId("x"), {})
    matcher.put(made)
    assert matched(matcher, 1) == {}
    assert matched(matcher, 2) == {"s": ("y",)}


def test_what_was_removed_wants_nothing() -> None:
    matcher = Matcher()
    matcher.put(session("s", x="n > 0"))
    matcher.remove(SessionId("s"))
    matcher.remove(SessionId("unknown"))
    assert matched(matcher, 5) == {}
    assert len(matcher) == 0
