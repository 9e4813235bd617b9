"""Quench: a producer is told of the terms that have to do with its attributes, and of what changes, by its keys."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, reject, settings

from proxy.clients.quench import QuenchHandler, Term, alternatives_of
from proxy.core.inputs import ClientDisconnected, ClientSent
from tests.helpers import expressions
from tests.helpers.engine_harness import EngineHarness
from waypost.identity import Incarnation, ProxyId, SessionId, SiteId
from waypost.keys import Keys, Protection, public_key
from waypost.limits import QUENCH_COMPARED, QUENCH_EXAMINED, QUENCH_TERMS
from waypost.messages import Interest, PublishWith, Quench, Subscribe, Unsubscribe
from waypost.notification import Value
from waypost.records import FiltersRequested, InterestRegistered, InterestsExpired, TreeEntered
from waypost.subscription import parse
from waypost.subscription.canonical import write
from waypost.subscription.errors import SubscriptionError
from waypost.subscription.tree import Node

PRODUCER = 9
YOU, INCARNATION, FAR = ProxyId("you"), Incarnation("i"), SiteId("B")
K = Protection(tuple(Keys.producer(public_key(b"k")).listed()), False)


class Quenched(EngineHarness):
    """What a producer was told so far, as it would have it."""

    def __init__(self) -> None:
        super().__init__()
        self.terms: set[str] = set()
        self.caught_up = False

    def ask(self, *names: str, number: int = 1, insecure: bool = True, secret: bytes = b"") -> None:
        keys = Keys.producer(secret).listed() if secret else []
        self.send(PRODUCER, Quench(number, list(names), keys, insecure))
        self.listen()

    def register(self, *expressions: str, session: str = "s", **protections: Protection) -> None:
        """Another proxy of the site says what it needs for a session."""
        by: dict[str, tuple[Protection, ...]] = {}
        if protections:
            by = dict.fromkeys(expressions, tuple(protections.values()))
        self.log.append(InterestRegistered(YOU, INCARNATION, SessionId(session), expressions, by))
        self.listen()

    def listen(self) -> list[Interest]:
        self.read_log()
        while self.engine.next_deadline() <= self.clock.now_ms():
            self.tick()
            self.run_effects()
            self.pending.clear()
        interests = [message for message in self.received(PRODUCER) if isinstance(message, Interest)]
        for interest in interests:
            assert not self.terms.intersection(interest.added) and self.terms.issuperset(interest.removed)
            self.terms = (self.terms - set(interest.removed)) | set(interest.added)
            self.caught_up = self.caught_up or interest.caught_up
        return interests


def test_quench_reports_only_terms_with_its_attributes() -> None:
    harness = Quenched()
    harness.register("a == 1", "b == 2", "a > 5 && c == 3", "require(a) || require(c)")
    harness.ask("a")
    assert harness.terms == {"a == 1", "a > 5 && c == 3", "require(a)"}
    assert harness.caught_up


def test_producers_that_ask_again_and_again_do_not_hold_up_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    harness, compared = Quenched(), list[int]()
    match_terms = QuenchHandler._match_terms

    def counted(handler: QuenchHandler, requester: Any, expression: str, terms: tuple[Term, ...]) -> None:
        compared[-1] += len(terms)
        match_terms(handler, requester, expression, terms)

    compared.append(0)
    monkeypatch.setattr(QuenchHandler, "_match_terms", counted)
    harness.register(*(" || ".join(f"a == {10 * number + leg}" for leg in range(10)) for number in range(400)))
    harness.ask("a")
    assert harness.caught_up
    connections = range(20, 40)
    harness.send(19, Quench(1, ["a"], [], True))
    for _ in range(4_000 * 2 // QUENCH_COMPARED * len(connections) * 2):
        for connection in connections:
            harness.step(ClientSent(connection, Quench(1, ["a"], [], True)))
        compared.append(0)
        harness.tick()
        harness.run_effects()
        compared.append(0)
    answers = [message for message in harness.received(19) if isinstance(message, Interest)]
    assert sum(len(answer.added) for answer in answers) == 4_000
    assert answers[-1].caught_up
    assert max(compared[1:]) <= QUENCH_COMPARED


def test_quench_is_caught_up_at_once_without_any_interest() -> None:
    harness = Quenched()
    harness.ask("a")
    assert (harness.terms, harness.caught_up) == (set(), True)


def test_quench_reports_every_change_of_the_wanted_terms_and_no_other() -> None:
    harness = Quenched()
    harness.ask("a")
    harness.register("a == 1", "b == 1")
    assert harness.terms == {"a == 1"}
    harness.register("a == 1", session="t")
    assert harness.listen() == []
    harness.register("a == 2", "b == 1")
    assert harness.terms == {"a == 1", "a == 2"}
    harness.register(session="t")
    assert harness.terms == {"a == 2"}


def test_a_term_that_several_want_goes_with_the_last_of_them() -> None:
    harness = Quenched()
    harness.register("a == 1 || b == 1", session="s")
    harness.register("a == 1 || c == 1", session="t")
    harness.ask("a")
    harness.register(session="s")
    assert harness.terms == {"a == 1"}
    harness.register(session="t")
    assert harness.terms == set()


def test_filters_of_a_neighbour_count_as_wanted() -> None:
    harness = Quenched()
    harness.ask("a")
    harness.log.append(TreeEntered(1, ((SiteId("A"), FAR),)))
    harness.log.append(FiltersRequested(FAR, 1, 1, {"a == 1": 3}, tree_epoch=1))
    harness.listen()
    assert harness.terms == {"a == 1"}
    harness.log.append(FiltersRequested(FAR, 1, 2, {}, tree_epoch=1))
    harness.listen()
    assert harness.terms == set()


def test_expired_interests_of_a_dead_proxy_are_not_wanted() -> None:
    harness = Quenched()
    harness.register("a == 1")
    harness.ask("a")
    harness.log.append(InterestsExpired(YOU, INCARNATION))
    harness.listen()
    assert harness.terms == set()


def test_our_own_sessions_count() -> None:
    harness = Quenched()
    harness.serve()
    harness.ask("n")
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    harness.complete_writes()
    harness.listen()
    assert harness.terms == {"n > 0"}
    harness.send(1, Unsubscribe("x"))
    harness.complete_writes()
    harness.listen()
    assert harness.terms == set()


def test_interest_whose_keys_do_not_meet_is_not_wanted() -> None:
    harness = Quenched()
    harness.register("a == 1", by=K)
    harness.register("a == 2", session="t")
    harness.ask("a")
    assert harness.terms == {"a == 2"}
    harness.ask("a", number=2, secret=b"k", insecure=False)
    harness.terms = set()
    harness.ask("a", number=3, secret=b"k", insecure=False)
    assert harness.terms == {"a == 1"}


def test_quench_reports_when_keys_begin_and_stop_to_meet() -> None:
    harness = Quenched()
    harness.register("a == 1", by=K)
    harness.ask("a")
    harness.send(PRODUCER, PublishWith(Keys.producer(b"k").listed()))
    harness.listen()
    assert harness.terms == {"a == 1"}
    harness.send(PRODUCER, PublishWith([]))
    harness.listen()
    assert harness.terms == set()
    harness.register("a == 1")
    assert harness.terms == {"a == 1"}
    harness.register("a == 1", by=K)
    assert harness.terms == set()


def test_term_is_wanted_while_any_session_registers_it_without_keys() -> None:
    harness = Quenched()
    harness.register("a == 1", by=K)
    harness.register("a == 1", session="t")
    harness.register("a == 1", session="u")
    harness.ask("a")
    assert harness.terms == {"a == 1"}
    harness.register(session="t")
    assert harness.terms == {"a == 1"}
    harness.register(session="u")
    assert harness.terms == set()


def test_by_which_keys_a_neighbour_wants_it_comes_over_the_link() -> None:
    harness = Quenched()
    harness.ask("a")
    harness.log.append(TreeEntered(1, ((SiteId("A"), FAR),)))
    harness.log.append(FiltersRequested(FAR, 1, 1, {"a == 1": 3}, {"a == 1": (K,)}, tree_epoch=1))
    harness.listen()
    assert harness.terms == set()
    harness.log.append(FiltersRequested(FAR, 1, 2, {"a == 1": 3}, tree_epoch=1))
    harness.listen()
    assert harness.terms == {"a == 1"}


def test_many_interests_are_examined_and_reported_in_pieces() -> None:
    harness = Quenched()
    many = 2 * QUENCH_EXAMINED + QUENCH_TERMS
    harness.register(*(f"a == {number}" for number in range(many)))
    harness.send(PRODUCER, Quench(1, ["a"]))
    harness.tick()
    harness.run_effects()
    assert not any(interest.caught_up for interest in harness.received(PRODUCER) if isinstance(interest, Interest))
    harness.ask("a", number=2)
    interests = [len(interest.added) for interest in harness.listen()]
    assert harness.caught_up and len(harness.terms) == many
    assert max(interests, default=0) <= QUENCH_TERMS


def test_ended_quench_and_disconnected_producer_get_no_terms() -> None:
    harness = Quenched()
    harness.ask("a")
    harness.ask(number=2)
    harness.register("a == 1")
    assert harness.terms == set()
    harness.ask("a", number=3)
    harness.step(ClientDisconnected(PRODUCER))
    harness.register("a == 2")
    assert harness.listen() == []
    assert harness.engine.dispatcher.quenching.next_deadline() > harness.clock.now_ms()


@settings(deadline=None)
@given(expressions.tests, expressions.notifications)
def test_expression_matches_exactly_when_one_of_its_terms_with_a_named_attribute_does(
    tree: Node, attributes: dict[str, Value]
) -> None:
    try:
        expression = parse(write(tree))
    except SubscriptionError:
        reject()
    met = [term for term in alternatives_of(expression.canonical) if parse(term.text).matches(attributes)]
    assert bool(met) == (expression.matches(attributes) is True)
    assert all(term.concerns(attributes) for term in met)


def test_alternative_that_is_bottom_for_every_notification_wants_nothing() -> None:
    harness = Quenched()
    harness.ask("a")
    harness.register("a == 1 || 0 == 0 / 0")
    assert harness.terms == {"a == 1"}


def test_expression_that_matches_every_notification_is_reported_to_any_quench() -> None:
    harness = Quenched()
    harness.ask("a")
    harness.register("equals(0, b, 0)")
    assert len(harness.terms) == 1
