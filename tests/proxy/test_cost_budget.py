"""What a client may subscribe to is bounded by what it costs: of its own, of its session's and of the whole proxy's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from handover.messages import RelayUp
from proxy.core.inputs import ClientConnected, ClientSent, PeerSent
from proxy.session.subscription import Subscription
from proxy.session.subscription_set import SubscriptionSet
from tests.helpers.attacks import costly
from tests.helpers.engine_harness import SESSION, EngineHarness
from waypost.errors import LimitExceeded
from waypost.frames import encode_message
from waypost.identity import ProxyId
from waypost.limits import FREE_NODES, MATCH_MS_CLIENT, MATCH_MS_EXPRESSION, MATCH_MS_SESSION
from waypost.messages import VERSION, Attach, Hello, Problem, Subscribe, Subscribed, Unsubscribe
from waypost.subscription import parse
from waypost.subscription.cost import Cost


@pytest.fixture
def harness() -> EngineHarness:
    harness = EngineHarness()
    harness.step(ClientConnected(1, "10.0.0.1"))
    harness.step(ClientSent(1, Hello(VERSION, "client")))
    harness.serve()
    return harness


def subscribed(harness: EngineHarness, name: str, expression: str, connection: int = 1) -> Any:
    harness.send(connection, Subscribe(subscription=name, expression=expression))
    harness.complete_writes()
    return next(message for message in harness.received(connection) if isinstance(message, Subscribed | Problem))


def refused(harness: EngineHarness, name: str, expression: str) -> str:
    answer = subscribed(harness, name, expression)
    assert isinstance(answer, Problem) and answer.code == "LIMIT_EXCEEDED", answer
    return answer.message


def searching(number: int, texts: int) -> str:
    return f"contains(text, {', '.join(f'{chr(34)}{number}-{each}{chr(34)}' for each in range(texts))})"


def test_expression_with_a_thousand_texts_is_refused_with_an_alternative(
    harness: EngineHarness,
) -> None:
    message = refused(harness, "s", costly(0))
    assert "one expression" in message and f"{MATCH_MS_EXPRESSION} ms" in message and "begins-with" in message


@pytest.mark.parametrize(
    "expression",
    [
        'regex(text, "(a.{0,100}b.{0,100}){2}z")',
        " || ".join(f'regex(text, "a{number}[ab]{{12}}[cz]")' for number in range(5)),
        'begins-with(decompose(decompose(text)), "a")',
        " || ".join(f'wildcard(text, "*{number}?????????????*")' for number in range(12)),
        'contains(decompose-compat(text), "a")',
    ],
)
def test_patterns_and_texts_that_are_made_count(harness: EngineHarness, expression: str) -> None:
    refused(harness, "s", expression)


def test_many_small_searches_of_a_session_are_bounded_together(harness: EngineHarness) -> None:
    for number in range(MATCH_MS_SESSION // 21):
        assert isinstance(subscribed(harness, f"s{number}", searching(number, 20)), Subscribed)
    assert "a session" in refused(harness, "last", searching(99, 20))
    # What costs nothing is still taken, and what is there already.
    assert isinstance(subscribed(harness, "cheap", 'text == "a" && n > 5'), Subscribed)
    assert isinstance(subscribed(harness, "again", searching(0, 20)), Subscribed)


def test_large_expressions_of_a_session_are_bounded_by_what_they_take_in_memory(harness: EngineHarness) -> None:
    answers = [
        subscribed(
            harness,
            f"s{number}",
            " || ".join(f"a{number}x{number_of_test} == {number_of_test}" for number_of_test in range(500)),
        )
        for number in range(30)
    ]
    assert isinstance(answers[-1], Problem) and "parts" in answers[-1].message
    nodes = sum(sub.expression.cost.nodes for sub in harness.engine.sessions[SESSION].subscriptions.active())
    assert nodes < 32_000


def test_small_expressions_do_not_count(harness: EngineHarness) -> None:
    for number in range(300):
        assert isinstance(subscribed(harness, f"s{number}", f'a == {number} && b == "x" && c > 5'), Subscribed)
    assert harness.engine.sessions.matcher.spending.proxy.cost.nodes == 0
    assert parse('a == 1 && b == "x" && c > 5 && d < 4').cost.nodes <= FREE_NODES


def test_client_that_spreads_over_sessions_does_not_get_around_its_bound(harness: EngineHarness) -> None:
    spending = harness.engine.sessions.matcher.spending
    for number in range(MATCH_MS_CLIENT // 21):
        subscribed(harness, f"s{number}", searching(number, 20))
    session = harness.engine.sessions[SESSION]
    session.subscriptions, kept = SubscriptionSet(), session.subscriptions
    with pytest.raises(Exception, match="one client"):
        spending.require(session, parse(searching(99, 20)), "address 10.0.0.1", 512)
    spending.require(session, parse(searching(99, 20)), "address 10.0.0.2", 512)
    with pytest.raises(Exception, match="a proxy"):
        spending.require(session, parse(searching(99, 20)), "address 10.0.0.2", 100)
    session.subscriptions = kept


def test_subscriptions_are_bounded_by_number_of_one_client_and_of_the_proxy(harness: EngineHarness) -> None:
    engine = harness.engine
    engine.env.settings = replace(engine.env.settings, max_subscriptions=6)
    for number in range(3):
        assert isinstance(subscribed(harness, f"s{number}", f"n > {number}"), Subscribed)
    assert "one client has 3 subscriptions" in refused(harness, "s3", "n > 1")
    spending = engine.sessions.matcher.spending
    spending.require_room("address 10.0.0.2", 6)
    with pytest.raises(LimitExceeded, match="this proxy has 3 subscriptions"):
        spending.require_room("address 10.0.0.2", 3)
    harness.send(1, Unsubscribe("s0"))
    harness.complete_writes()
    assert isinstance(subscribed(harness, "s3", "n > 1"), Subscribed)


def test_payer_of_a_subscription_is_part_of_its_row(harness: EngineHarness) -> None:
    subscribed(harness, "s", searching(0, 20))
    (made,) = harness.engine.sessions[SESSION].subscriptions.active()
    assert Subscription.of(made.row()).payer == "address 10.0.0.1"


def test_a_relayed_receiver_pays_by_the_address_from_which_it_comes() -> None:
    harness = EngineHarness()
    harness.reload({}, "you")
    harness.serve()
    messages = (
        Hello(VERSION, "far"),
        Attach(session=SESSION, receiver="far", incarnation="i", frontier={}),
        Subscribe(subscription="s", expression=searching(0, 20)),
    )
    for number, message in enumerate(messages, start=1):
        relayed = RelayUp("you#1/1", number, encode_message(message), "10.0.0.9")
        harness.step(PeerSent(ProxyId("you"), relayed))
        harness.run_effects()
        harness.complete_writes()
    (made,) = harness.engine.sessions[SESSION].subscriptions.active()
    assert made.payer == "address 10.0.0.9"


def test_ended_subscriptions_are_paid_no_more(harness: EngineHarness) -> None:
    subscribed(harness, "s", searching(0, 20))
    matcher = harness.engine.sessions.matcher
    assert matcher.spending.proxy.cost.work_ns
    matcher.remove(SESSION)
    assert matcher.spending.proxy.cost == Cost()
    assert not matcher.spending._clients
