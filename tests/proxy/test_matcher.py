"""Every expression once, whoever holds it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.matcher import HOLDER_NS, ID_BYTE_NS, ID_NS, Matcher
from proxy.session.role import Role
from proxy.session.session import Session
from proxy.session.subscription import Subscription
from waypost.identity import Epoch, Origin, SessionId, SubscriptionId
from waypost.notification import Notification
from waypost.subscription import parse
from waypost.subscription.cost import NODE_NS

A = Origin("A/0")


def session(name: str, **interests: str) -> Session:
    made = Session(SessionId(name), Epoch(1), Role.SERVING)
    for identity, text in interests.items():
        subscription = SubscriptionId(identity)
        made.subscriptions[subscription] = Subscription(
            id=subscription, expression=parse(text), start={A: 0}, promise_floor={}
        )
    return made


def matched(matcher: Matcher, number: int, offset: int = 1) -> dict[str, tuple[str, ...]]:
    found = matcher.match(A, offset, Notification({"n": number}))
    return {session.id: tuple(sorted(ids)) for session, ids in found}


def test_match_of_a_session_lists_all_its_matching_subscriptions() -> None:
    matcher = Matcher()
    matcher.put(session("s", x="n > 0", y="n > 1", z="n > 9"))
    matcher.put(session("t", x="n > 0"))
    assert matched(matcher, 5) == {"s": ("x", "y"), "t": ("x",)}


def test_matcher_stores_equal_expressions_once() -> None:
    matcher = Matcher()
    for name in "stu":
        matcher.put(session(name, x="n > 0", y="n > 0"))
    assert len(matcher) == 1


def test_nothing_is_wanted_below_the_start() -> None:
    matcher = Matcher()
    matcher.put(session("s", x="n > 0"))
    assert matched(matcher, 5, offset=0) == {}


def test_matcher_replaces_a_session_that_is_put_again() -> None:
    matcher, made = Matcher(), session("s", x="n > 0", y="n > 1")
    matcher.put(made)
    made.end_subscription(SubscriptionId("x"), {})
    matcher.put(made)
    assert matched(matcher, 1) == {}
    assert matched(matcher, 2) == {"s": ("y",)}


def test_removed_session_matches_no_notification() -> None:
    matcher = Matcher()
    matcher.put(session("s", x="n > 0"))
    matcher.remove(SessionId("s"))
    matcher.remove(SessionId("unknown"))
    assert matched(matcher, 5) == {}
    assert len(matcher) == 0


def test_with_many_expressions_sessions_come_in_the_order_in_which_their_expressions_did() -> None:
    matcher = Matcher()
    for number in range(100):
        matcher.put(session(f"s{number}", x=f"n > {100 - number}", y=f"n == {number}"))
    assert matched(matcher, 98) == {"s98": ("x", "y"), "s99": ("x",)} | {
        f"s{number}": ("x",) for number in range(3, 98)
    }
    found = [held.id for held, _ in matcher.match(A, 1, Notification({"n": 98}))]
    assert found == [f"s{number}" for number in range(3, 100)]


def test_put_of_a_known_session_changes_only_what_differs() -> None:
    matcher = Matcher()
    for number in range(20):
        matcher.put(session(f"s{number}", x=f"n == {number}"))
    matcher.put(session("s7", x="n == 7", y="n == 3"))
    assert matched(matcher, 3) == {"s3": ("x",), "s7": ("y",)}
    matcher.put(session("s7", y="n == 3"))
    assert matched(matcher, 7) == {} and len(matcher) == 19


def test_estimated_cost_follows_the_expressions_that_may_match() -> None:
    matcher = Matcher()
    for number in range(2_000):
        matcher.put(session(f"s{number}", x=f"n == {number}", y="m > 0"))
    one_session, all_of_them, nobody = matcher.foreseen_ns(
        [Notification(attributes).body for attributes in ({"n": 5}, {"n": 5, "m": 1}, {"o": 1})]
    )
    assert nobody < one_session < all_of_them / 1_000
    for number in range(1, 2_000):
        matcher.remove(SessionId(f"s{number}"))
    assert matcher.foreseen_ns([Notification({"n": 0, "m": 1}).body])[0] < all_of_them / 500


def test_estimate_of_a_batch_without_cost_is_the_slowest_for_each() -> None:
    matcher = Matcher()
    matcher.put(session("s", x="n > 0"))
    (harness,) = matcher.foreseen_ns([Notification({"n": 5}).body])
    assert matcher.foreseen_ns([Notification({"o": 1}).body] * 3) == [harness] * 3


def test_large_notification_costs_more_for_each_session_that_matches() -> None:
    matcher = Matcher()
    for number in range(5_000):
        matcher.put(session(f"s{number}", x="n > 0", y=f"m == {number}"))
    text = "x" * 80_000
    small, large, unwanted = matcher.foreseen_ns(
        [
            notification.body
            for notification in (Notification({"n": 1}), Notification({"n": 1, "t": text}), Notification({"t": text}))
        ]
    )
    assert 8 * small < large < 15 * small
    assert unwanted < small / 20


def test_estimate_counts_each_alternative_and_each_session_once() -> None:
    matcher, sessions, alternatives = Matcher(), 10, 200
    text = " || ".join(f"a + {number_of_test} == b + {number_of_test + 1}" for number_of_test in range(alternatives))
    for number in range(sessions):
        matcher.put(session(f"s{number}", x=text))
    for number in range(10_000):
        matcher.put(session(f"t{number}", x=f"n == {number}"))
    (estimated,) = matcher.foreseen_ns([Notification({"a": 1, "b": 1}).body])
    most = parse(text).cost.nodes * NODE_NS + sessions * (HOLDER_NS + ID_NS + ID_BYTE_NS)
    assert most / 2 < estimated < 1.1 * most


def test_sessions_stay_in_the_order_in_which_they_came() -> None:
    matcher = Matcher()
    for name in "stu":
        matcher.put(session(name, x="n > 0"))
    matcher.put(session("s", x="n > 0", y="n > 0"))
    found = matcher.match(A, 1, Notification({"n": 1}))
    assert [session.id for session, _ in found] == ["s", "t", "u"]


def test_what_matched_below_the_start_of_a_subscription_says_nothing_of_what_matches_above() -> None:
    matcher, made = Matcher(), session("s", x="n > 0")
    late = Subscription(id=SubscriptionId("late"), expression=parse("n > 1"), start={A: 500}, promise_floor={})
    made.subscriptions[late.id] = late
    matcher.put(made)
    for offset in (301, 302, 303):
        assert matched(matcher, 5, offset) == {"s": ("x",)}
    assert matched(matcher, 5, offset=501) == {"s": ("late", "x")}


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_matcher_that_has_matched_before_matches_as_one_that_has_not(data: st.DataObject) -> None:
    """Whatever is put, ended and removed in between, and at whatever coordinate of whatever origin."""
    origins = [A, Origin("B/0")]
    sessions: dict[str, Session] = {}
    matcher = Matcher()
    for step in range(data.draw(st.integers(5, 40))):
        match data.draw(st.sampled_from(["put", "end", "remove", "match", "match", "match", "match"])):
            case "put":
                name = data.draw(st.sampled_from("stu"))
                made = sessions.setdefault(name, Session(SessionId(name), Epoch(1), Role.SERVING))
                identity = SubscriptionId(f"{step}")
                made.subscriptions[identity] = Subscription(
                    id=identity,
                    expression=parse(data.draw(st.sampled_from(["n > 0", "n > 1", "n > 2", "n != 7"]))),
                    start={
                        origin: data.draw(st.integers(-1, 3)) for origin in data.draw(st.sets(st.sampled_from(origins)))
                    },
                    promise_floor={},
                    insecure=data.draw(st.booleans()),
                )
                matcher.put(made)
            case "end" if sessions:
                made = sessions[data.draw(st.sampled_from(sorted(sessions)))]
                if made.subscriptions:
                    gone = data.draw(st.sampled_from(sorted(made.subscriptions)))
                    made.end_subscription(gone, dict.fromkeys(origins, data.draw(st.integers(0, 3))))
                    matcher.put(made)
            case "remove" if sessions:
                matcher.remove(SessionId(name := data.draw(st.sampled_from(sorted(sessions)))))
                del sessions[name]
            case _:
                fresh = Matcher()
                for made in sessions.values():
                    fresh.put(made)
                origin, offset = data.draw(st.sampled_from(origins)), data.draw(st.integers(0, 4))
                attributes = Notification({"n": data.draw(st.integers(0, 8))})
                for _ in range(data.draw(st.integers(1, 3))):
                    found, expected = (
                        {session.id: set(ids) for session, ids in each.match(origin, offset, attributes)}
                        for each in (matcher, fresh)
                    )
                    assert found == expected
