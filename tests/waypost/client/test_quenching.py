"""What a client's library makes of what it is told of interest: in doubt, somebody wants it."""

from __future__ import annotations

from waypost.client.quenching import Quenching
from waypost.messages import Interest, Quench
from waypost.notification import Notification


def told(*added: str, removed: tuple[str, ...] = (), number: int = 1, level: bool = True) -> Interest:
    return Interest(number, list(added), list(removed), level)


def asked(*names: str) -> Quenching:
    quenching = Quenching()
    quenching.ask(list(names), [], insecure=True)
    return quenching


def test_who_did_not_ask_sends_everything() -> None:
    assert Quenching().wanted({"a": 1})


def test_before_all_was_told_anything_may_be_wanted() -> None:
    quenching = asked("a")
    assert quenching.wanted({"a": 1})
    quenching.hear(told("a == 2", level=False))
    assert quenching.wanted({"a": 1})
    quenching.hear(told())
    assert not quenching.wanted({"a": 1})


def test_what_a_term_is_true_of_is_wanted_and_nothing_else() -> None:
    quenching = asked("a", "b")
    quenching.hear(told("a == 1", "b > 5"))
    assert quenching.wanted(Notification({"a": 1, "b": 0}))
    assert quenching.wanted({"b": 6})
    assert not quenching.wanted({"a": 2, "b": 5})
    quenching.hear(told(removed=("b > 5",)))
    assert not quenching.wanted({"b": 6})


def test_of_an_attribute_that_was_not_named_nothing_is_known() -> None:
    quenching = asked("a")
    quenching.hear(told())
    assert quenching.wanted({"a": 1, "b": 1})


def test_an_answer_to_an_earlier_question_means_nothing() -> None:
    quenching = asked("a")
    quenching.ask(["b"], [], insecure=True)
    assert not quenching.hear(told("a == 1", number=1))
    assert quenching.hear(told("b == 1", number=2))
    assert list(quenching.terms) == ["b == 1"]


def test_on_a_new_connection_all_is_asked_and_told_anew() -> None:
    quenching = asked("a")
    quenching.hear(told("a == 1"))
    assert quenching.begin_anew() == [Quench(1, ["a"])]
    assert (quenching.terms, quenching.level) == ({}, False)


def test_who_asks_no_more_sends_everything_and_does_not_ask_again() -> None:
    quenching = asked("a")
    quenching.hear(told())
    quenching.ask([], [], insecure=True)
    assert quenching.wanted({"a": 1})
    assert quenching.begin_anew() == []
